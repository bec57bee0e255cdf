"""Where the temporary files of the queue are, and what happens when they cannot be written."""

import re
import shutil
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from harness import server_user
from harness.cluster import Cluster
from laggards import (
    LOGGED, RING_BYTES, SMALLEST, counted, fall_behind, files, hear_all, no_files_left, no_leak, open_spill_files,
    send, send_large, spilled,
)
from servers import SETTINGS, started
from small_disk import DISK_BYTES, NAME, small_disk, until_empty, use
from support import hear, hear_until, notify, one, until
from wire import cstring, fatal, kinds

FATAL = "terminating connection because it has missed notifications"
MISSED = "notifications were missed"
WRITE_ERROR = "an error while writing temporary files"


@contextmanager
def server(**settings: object):
    """A separate cluster with the smallest memory settings."""
    for cluster in started(preload=True, settings=SETTINGS | SMALLEST | settings):
        yield cluster
        no_leak(cluster)


@pytest.fixture
def folder():
    """folder() creates a folder that belongs to the server's user."""
    made = []

    def make() -> Path:
        made.append(server_user.make_folder())
        return made[-1]

    yield make
    for path in made:
        shutil.rmtree(path, ignore_errors=True)


def create_tablespace(cluster: Cluster, name: str, path: Path) -> Path:
    """Creates a tablespace; returns its folder."""
    cluster.psql(f"CREATE TABLESPACE {name} LOCATION '{path}'")
    return path


def logged_why(cluster: Cluster) -> list[tuple[int, str]]:
    """From the log, the PIDs of the listeners that have missed something, and why."""
    return [(int(pid), reason) for pid, reason in LOGGED.findall(cluster.log())]


# ---- temp_tablespaces ----

@pytest.mark.parametrize("value, used", [
    ("fast", ["fast"]),
    ('"Odd, ""name"""', ["odd"]),
    ('fast, "Odd, ""name""", no_such', ["fast", "odd"]),
    ("no_such", ["default"]),
    ('""', ["default"]),
    ('fast, ""', ["fast", "default"]),
    ("pg_default", ["default"]),
])
def test_temp_tablespaces(folder, connect, value, used):
    """Guards: the files are spread over the tablespaces in the server's own setting, as far as they exist, else they
    are in the default one; a restart of the server finds and deletes them there."""
    with server(temp_tablespaces=value) as cluster:
        places = {"fast": create_tablespace(cluster, "fast", folder()),
                  "odd": create_tablespace(cluster, '"Odd, ""name"""', folder()),
                  "default": cluster.data / "base"}
        laggard, sender = connect(cluster), connect(cluster)
        fall_behind(laggard)
        sent = send(sender, 6)
        found = {place: len(files(path)) for place, path in places.items()}
        assert [place for place, count in found.items() if count] == used, found
        assert sum(found.values()) * RING_BYTES // 8 == spilled(sender)
        laggard.execute("COMMIT")
        hear_all(laggard, sent)
        until(lambda: spilled(sender) == 0, "nothing is in files")
        until(lambda: not any(files(path) for path in places.values()), "they are deleted")

        fall_behind(laggard)
        send(sender, 3)
        assert any(files(path) for path in places.values())
        cluster.restart("immediate")
        assert not any(files(path) for path in places.values())


def test_setting_of_a_session(folder, connect):
    """Guards: a session that writes files for others uses neither its own temp_tablespaces nor its own temp_file_limit,
    nor those set for its role or database."""
    with server() as cluster:
        own = create_tablespace(cluster, "own", folder())
        cluster.psql("ALTER ROLE postgres SET temp_tablespaces = own;"
                     "ALTER DATABASE postgres SET temp_file_limit = 0")
        laggard, sender = connect(cluster), connect(cluster)
        assert one(sender, "SHOW temp_tablespaces") == "own" and one(sender, "SHOW temp_file_limit") == "0"
        fall_behind(laggard)
        sent = send(sender, 3)
        assert files(own) == [] and files(cluster.data)
        assert one(sender, "SHOW temp_file_limit") == "0"
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="temp_file_limit"):
            sender.execute("SELECT count(DISTINCT md5(g::text)) FROM generate_series(1, 200000) g")
        laggard.execute("COMMIT")
        hear_all(laggard, sent)
        assert counted(sender)[1:] == (0, 0)

        # A transaction that is too large for memory has its file in the same place; test_temp_file_limit covers the
        # limit.
        sender.execute("SET temp_file_limit = '10MB'; BEGIN")
        sender.execute("SELECT count(pg_notify('c', n || repeat('x', 7000))) FROM generate_series(1, 1000) n")
        assert files(own) == [] and files(cluster.data)
        sender.execute("COMMIT")
        assert len(hear(laggard, 1000)) == 1000


def test_tablespaces_after_reload(folder, connect):
    """Guards: temp_tablespaces can be changed while the server runs; files that exist stay where they are."""
    with server() as cluster:
        first, second = (create_tablespace(cluster, name, folder()) for name in ("first", "second"))
        laggard, sender = connect(cluster), connect(cluster)
        for value, path in (("first", first), ("second", second)):
            cluster.psql(f"ALTER SYSTEM SET temp_tablespaces = {value}; SELECT pg_reload_conf()")
            until(lambda: one(sender, "SHOW temp_tablespaces") == value, "it is reloaded")
            until(lambda: spills_into(path, laggard, sender), "the new setting is used")


def spills_into(path: Path, laggard, sender) -> bool:
    """Whether the laggard's unread notifications are written to this folder."""
    fall_behind(laggard)
    sent = send(sender, 3)
    found = len(files(path))
    laggard.execute("COMMIT")
    hear_all(laggard, sent)
    until(lambda: spilled(sender) == 0, "nothing is in files")
    return found > 0


def test_tablespace_is_dropped(folder, connect):
    """Guards: a tablespace with no files in it can be dropped, and from then on another one is used."""
    with server(temp_tablespaces="gone") as cluster:
        gone = create_tablespace(cluster, "gone", folder())
        laggard, sender = connect(cluster), connect(cluster)
        assert spills_into(gone, laggard, sender)
        until(lambda: not list(gone.rglob("*.fileset")), "the folder of its files is deleted")
        sender.execute("DROP TABLESPACE gone")
        fall_behind(laggard)
        sent = send(sender, 3)
        assert counted(sender)[1:] == (0, 0), "the laggard has missed something for want of a place for files"
        laggard.execute("COMMIT")
        hear_all(laggard, sent)


# ---- files that cannot be written ----

@pytest.mark.parametrize("files_before", [False, True], ids=["from the start", "later"])
def test_folder_not_writable(connect, wire, files_before):
    """Guards: where files cannot be written, the laggards are overrun, informed, and logged with the reason; senders
    and other listeners notice nothing; once it is possible again all is as before."""
    with server() as cluster:
        laggard, listener, sender = wire(cluster), connect(cluster), connect(cluster)
        told = connect(cluster)
        told.execute("LISTEN herald_reset")
        fall_behind(laggard, told)
        listener.execute("LISTEN c")
        send(sender, 3 if files_before else 0.5, heard_by=listener)
        temporary = cluster.data / "base" / "pgsql_tmp"
        if files_before:
            temporary = next(temporary.glob("*.fileset"))
        else:
            temporary.mkdir(exist_ok=True)
            server_user.give(temporary)
        temporary.chmod(0o500)
        try:
            send(sender, 5, heard_by=listener)
            assert re.search(r"LOG:  .*temporary .*: Permission denied", cluster.log())
            assert sorted(logged_why(cluster)) == sorted(
                (pid, WRITE_ERROR) for pid in (laggard.pid, told.info.backend_pid))
            assert counted(sender)[2] == 2
            laggard.send(("Q", cstring("COMMIT")))
            messages = laggard.until_ready()
            assert kinds(messages)[-2:-1] == "E" or kinds(messages)[-1] == "E"
            assert fatal(messages) == FATAL
            told.execute("COMMIT")
            assert hear(told, 1) == [MISSED]
        finally:
            temporary.chmod(0o700)
        fall_behind(told)
        sent = send(sender, 3, heard_by=listener)
        assert spilled(sender) > RING_BYTES
        told.execute("COMMIT")
        hear_all(told, sent)
        assert counted(sender)[2] == 2
        no_files_left(cluster, sender)


@pytest.fixture
def disk():
    """A small disk, which is soon full."""
    with small_disk() as path:
        yield path


def test_disk_is_full(disk, connect, wire):
    """Guards: on a full disk the oldest files make room, at the cost of only the listeners that need them; when there
    is no room at all, at the cost of all laggards; senders notice nothing, and with room again all is as before."""
    with server(temp_tablespaces=NAME) as cluster:
        use(cluster, disk)
        early, told, listener, sender = wire(cluster), connect(cluster), connect(cluster), connect(cluster)
        fall_behind(early)
        listener.execute("LISTEN c")
        send(sender, 4, heard_by=listener)
        told.execute("LISTEN herald_reset")
        fall_behind(told)
        sent = send(sender, 4, heard_by=listener)
        assert logged_why(cluster) == [(early.pid, WRITE_ERROR)]
        assert "No space left on device" in cluster.log()
        early.send(("Q", cstring("COMMIT")))
        assert fatal(early.until_ready()) == FATAL
        told.execute("COMMIT")
        hear_all(told, sent)
        no_files_left(cluster, sender)
        until_empty(disk)

        fills_it = disk / "of_others"
        with open(fills_it, "wb", buffering=0) as file, pytest.raises(OSError):
            while True:
                file.write(b"x" * 65536)
        fall_behind(told)
        send(sender, 4, heard_by=listener)
        until(lambda: files(disk) == [], "what was given up is deleted")
        assert counted(sender)[2] == 2
        told.execute("COMMIT")
        assert hear(told, 1) == [MISSED]

        fills_it.unlink()
        fall_behind(told)
        sent = send(sender, 4, heard_by=listener)
        assert files(disk)
        told.execute("COMMIT")
        hear_all(told, sent)
        assert counted(sender)[2] == 2


FAILED = "could not write notifications to file"
WORKS = "pg_herald can write its temporary files again"


@pytest.mark.parametrize("behind", [False, True], ids=["nobody", "a laggard"])
def test_full_disk_is_logged_once(disk, connect, behind):
    """Guards: on a full disk a line of the log says so, not one for each segment, whether all listeners have read what is
    kept, or laggards make room again and again."""
    with server(temp_tablespaces=NAME, **{"herald.retain_size": "64MB"}) as cluster:
        use(cluster, disk)
        laggard, sender = connect(cluster), connect(cluster)
        if behind:
            fall_behind(laggard)
        send(sender, 10)
        until(lambda: FAILED in cluster.log(), "the disk is full")
        send(sender, 10)
        assert cluster.log().count(FAILED) == 1 and "No space left on device" in cluster.log()
        assert WORKS not in cluster.log()


@pytest.mark.long
def test_room_again_is_logged(disk, connect):
    """Guards: when no segment has failed for some time, the log says once that files can be written again; and the next
    failure is logged."""
    with server(temp_tablespaces=NAME, **{"herald.retain_size": "1MB"}) as cluster:
        use(cluster, disk)
        sender = connect(cluster)
        fills_it = disk / "of_others"

        def fill() -> None:
            fills_it.write_bytes(b"x" * (shutil.disk_usage(disk).free - RING_BYTES))

        fill()
        send(sender, 10)
        assert cluster.log().count(FAILED) == 1
        fills_it.unlink()
        until(lambda: shutil.disk_usage(disk).free > DISK_BYTES / 2 and send(sender, 0.2) and WORKS in cluster.log(),
              "it works again", 90)
        fill()
        send(sender, 10)
        assert cluster.log().count(FAILED) == 2 and cluster.log().count(WORKS) == 1


def test_large_transaction_on_a_full_disk(disk, connect, wire):
    """Guards: a transaction too large for memory takes the room of laggards' files; if that is not enough it fails with
    an error and leaves nothing, and what it had notified before a savepoint can still be committed; with room again all
    is as before."""
    with server(temp_tablespaces=NAME) as cluster:
        use(cluster, disk)
        laggard, listener, sender = wire(cluster), connect(cluster), connect(cluster)
        fall_behind(laggard)
        listener.execute("LISTEN c")
        send(sender, 4, heard_by=listener)
        assert files(disk) and logged_why(cluster) == []
        sender.execute("BEGIN; SELECT pg_notify('c', 'before'); SAVEPOINT s")
        with pytest.raises(psycopg.errors.DiskFull) as caught:
            send_large(sender, 2 * DISK_BYTES)
        diagnosis = caught.value.diag
        assert diagnosis.message_primary == (
            "could not write the notifications of this transaction to a temporary file")
        assert "No space left on device" in cluster.log()
        assert logged_why(cluster) == [(laggard.pid, WRITE_ERROR)]
        sender.execute("ROLLBACK TO s; COMMIT")
        assert hear(listener, 1) == ["before"]
        until_empty(disk)

        with pytest.raises(psycopg.errors.DiskFull):
            send_large(sender, 2 * DISK_BYTES)
        until_empty(disk)
        sent = send_large(sender, DISK_BYTES // 2)
        hear_all(listener, sent)
        until_empty(disk)
        laggard.send(("Q", cstring("COMMIT")))
        assert fatal(laggard.until_ready()) == FATAL


def test_large_transaction_without_a_place(connect):
    """Guards: where no file can be created, a transaction too large for memory fails; but after a rollback to a
    savepoint, earlier notifications that fit into memory can still be committed."""
    with server() as cluster:
        listener, sender = connect(cluster), connect(cluster)
        listener.execute("LISTEN c")
        temporary = cluster.data / "base" / "pgsql_tmp"
        temporary.mkdir(exist_ok=True)
        server_user.give(temporary)
        temporary.chmod(0o500)
        with pytest.raises(psycopg.Error, match="Permission denied"):
            send_large(sender, RING_BYTES)
        sender.execute("BEGIN; SELECT pg_notify('c', 'before'); SAVEPOINT s")
        with pytest.raises(psycopg.Error, match="Permission denied"):
            send_large(sender, RING_BYTES)
        sender.execute("ROLLBACK TO s; SELECT pg_notify('c', 'after'); COMMIT")
        assert hear(listener, 2) == ["before", "after"]
        temporary.chmod(0o700)
        hear_all(listener, send_large(sender, RING_BYTES))
        no_files_left(cluster, sender)


def test_file_cannot_be_read(connect, wire):
    """Guards: a laggard whose file is gone, for whatever reason, is informed; others go on."""
    with server() as cluster:
        laggard, told, sender = wire(cluster), connect(cluster), connect(cluster)
        told.execute("LISTEN herald_reset")
        fall_behind(laggard, told)
        sent = send(sender, 4)
        files(cluster.data)[len(files(cluster.data)) // 2].unlink()
        laggard.send(("Q", cstring("COMMIT")))
        assert fatal(laggard.until_ready()) == FATAL
        told.execute("COMMIT")
        assert 0 < len(hear_until(told, MISSED)) < len(sent)
        notify(sender, "c", "goes on")
        assert hear(told, 1) == ["goes on"]
        assert open_spill_files(told.info.backend_pid) == []
        assert counted(sender)[2] == cluster.log().count("a missing or unreadable temporary file") == 2
