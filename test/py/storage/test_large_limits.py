"""Limits on the files of large transactions, of one transaction and of all."""

import random
import threading
import time
from pathlib import Path

import psycopg
import pytest

from laggards import (
    KILOBYTES_7, RING_BYTES, SEGMENT_BYTES, SMALLEST, counted, fall_behind, files, no_files_left, no_leak,
)
from servers import SETTINGS, started
from support import hear, notify, one, until

KILOBYTE = 1024
MEGABYTE = 1024 * KILOBYTE
LIMIT = 4 * MEGABYTE  # of the queue, memory and files: a transaction may have 2 MB, all files 3.5 MB


@pytest.fixture(scope="module")
def limited():
    """A server with the smallest memory settings, and a low limit for the whole queue."""
    for cluster in started(preload=True, settings=SETTINGS | SMALLEST | {"herald.max_queue_size": "4MB"}):
        yield cluster
        no_leak(cluster)


@pytest.fixture
def watcher(limited, connect):
    """A session that notifies nothing, once the previous test's files are gone."""
    watcher = connect(limited)
    no_files_left(limited, watcher)
    return watcher


def grow(sender: psycopg.Connection, size: float, name: str = "") -> int:
    """Notifies c of about `size` bytes in the open transaction; returns the number of notifications."""
    count = int(size / len(KILOBYTES_7))
    sender.execute("SELECT count(pg_notify('c', %s || n || %s)) FROM generate_series(1, %s) n",
                   (name, KILOBYTES_7, count))
    return count


def uncommitted(watcher: psycopg.Connection) -> int:
    """Bytes in files of open transactions."""
    return one(watcher, "SELECT uncommitted FROM herald.queue")


def sizes(cluster) -> dict[Path, int]:
    """The size of each file, read one after the other."""
    found = {}
    for path in files(cluster.data):
        try:
            found[path] = path.stat().st_size
        except FileNotFoundError:
            pass
    return found


def on_disk(cluster) -> int:
    """The total size of all files."""
    return sum(sizes(cluster).values())


def at_one_moment(cluster) -> int:
    """Bytes that existed together, between two looks: files come and go meanwhile."""
    before, after = sizes(cluster), sizes(cluster)
    return sum(min(size, after.get(path, 0)) for path, size in before.items())


def laggard_behind(count: int, laggard: psycopg.Connection, sender: psycopg.Connection) -> psycopg.Connection:
    """Puts the laggard `count` notifications of 7 kB behind, to be read when its transaction ends; returns it."""
    fall_behind(laggard)
    for number in range(count):
        notify(sender, "c", f"{number} {KILOBYTES_7}")
    return laggard


# ---- temp_file_limit ----

def test_temp_file_limit(limited, connect, watcher):
    """Guards: the file of an open transaction counts for temp_file_limit, together with those of queries; beyond it
    NOTIFY fails with the server's error, and what was notified before a savepoint can be committed."""
    listener, sender = connect(limited), connect(limited)
    listener.execute("LISTEN c")
    sender.execute("SET temp_file_limit = '1MB'; SET work_mem = '64kB'")
    sender.execute("BEGIN")
    before = grow(sender, 0.6 * MEGABYTE)
    sender.execute("SAVEPOINT s")
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="temp_file_limit"):
        grow(sender, 0.6 * MEGABYTE, "more ")
    sender.execute("ROLLBACK TO s")
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="temp_file_limit"):
        sender.execute("SELECT count(DISTINCT md5(g::text)) FROM generate_series(1, 20000) g")
    sender.execute("ROLLBACK TO s; COMMIT")
    assert len(hear(listener, before)) == before

    # Committed or rolled-back notifications no longer count for the session.
    for end in ("ROLLBACK", "COMMIT", "COMMIT"):
        sender.execute("BEGIN")
        count = grow(sender, 0.9 * MEGABYTE)
        sender.execute(end)
        assert end == "ROLLBACK" or len(hear(listener, count)) == count
    sender.execute("SELECT count(DISTINCT md5(g::text)) FROM generate_series(1, 8000) g")
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="temp_file_limit"):
        grow(sender, 1.5 * MEGABYTE)
    assert uncommitted(watcher) == 0
    assert one(sender, "SHOW temp_file_limit") == "1MB"


def test_savepoints_use_the_same_room(limited, connect, watcher):
    """Guards: space of rolled-back notifications is written over: many savepoints exceed neither limit; the rest of the
    file is freed when the transaction commits."""
    listener, laggard, sender = connect(limited), connect(limited), connect(limited)
    listener.execute("LISTEN c")
    fall_behind(laggard)
    sender.execute("SET temp_file_limit = '1MB'; BEGIN")
    before = grow(sender, 0.2 * MEGABYTE)
    for _ in range(10):
        sender.execute("SAVEPOINT s")
        grow(sender, 0.7 * MEGABYTE, "rolled back ")
        sender.execute("ROLLBACK TO s")
    assert 0.8 * MEGABYTE < uncommitted(watcher) <= MEGABYTE
    assert uncommitted(watcher) == on_disk(limited)
    sender.execute("COMMIT")
    assert uncommitted(watcher) == 0
    assert 0.19 * MEGABYTE < on_disk(limited) < 0.3 * MEGABYTE
    assert one(watcher, "SELECT spilled FROM herald.queue") == on_disk(limited)
    for connection in (listener, laggard):
        connection.execute("COMMIT")
        assert len(hear(connection, before)) == before


# ---- herald.max_queue_size ----

def test_open_transactions_count(limited, connect, watcher):
    """Guards: the files of open transactions count for herald.max_queue_size as they grow. One without room fails, with
    an error that shows what takes it; small ones and earlier notifications are not affected; with room again it can be
    repeated."""
    listener = connect(limited)
    first, second, third = (connect(limited) for _ in range(3))
    listener.execute("LISTEN c")
    for sender, size in ((first, 1.8), (second, 0.9)):
        sender.execute("BEGIN")
        grow(sender, size * MEGABYTE)
    held, spilled, used, usage = watcher.execute(
        "SELECT uncommitted, spilled, used, usage FROM herald.queue").fetchone()
    assert 2.5 * MEGABYTE < held == spilled == used == on_disk(limited)
    assert usage == used / LIMIT

    third.execute("BEGIN; SELECT pg_notify('c', 'before'); SAVEPOINT s")
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded) as caught:
        grow(third, MEGABYTE)
    diagnosis = caught.value.diag
    assert diagnosis.message_primary == (
        "notifications of open transactions would exceed herald.max_queue_size (4096 kB)")
    own = on_disk(limited) - held
    assert own > 0.2 * MEGABYTE
    assert diagnosis.message_detail == (
        f"Queue memory takes {RING_BYTES // KILOBYTE} kB of it, the file of this transaction {own // KILOBYTE} kB,"
        f" the files of other open transactions {held // KILOBYTE} kB, and notifications that are being committed"
        " or not read yet 0 kB.")
    assert "increase herald.max_queue_size" in diagnosis.message_hint
    assert on_disk(limited) <= LIMIT - RING_BYTES
    notify(listener, "c", "small")
    assert hear(listener, 1) == ["small"]
    third.execute("ROLLBACK TO s; COMMIT")
    assert hear(listener, 1) == ["before"]

    first.execute("ROLLBACK")
    count = grow(third, MEGABYTE)
    assert len(hear(listener, count)) == count
    second.execute("COMMIT")
    assert len(hear(listener, int(0.9 * MEGABYTE / 7000))) == int(0.9 * MEGABYTE / 7000)


def test_half_for_one(limited, connect, watcher):
    """Guards: one transaction may have half of herald.max_queue_size, so that it cannot take all from the others; its
    session goes on."""
    listener, sender, other = connect(limited), connect(limited), connect(limited)
    listener.execute("LISTEN c")
    sender.execute("BEGIN; SELECT pg_notify('c', 'before'); SAVEPOINT s")
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="too many notifications in one transaction"):
        grow(sender, 2.2 * MEGABYTE)
    assert 1.9 * MEGABYTE < uncommitted(watcher) <= LIMIT / 2
    count = grow(other, 0.8 * MEGABYTE)
    assert len(hear(listener, count)) == count
    sender.execute("ROLLBACK TO s; COMMIT")
    assert hear(listener, 1) == ["before"]
    count = grow(sender, 1.9 * MEGABYTE)
    assert len(hear(listener, count)) == count


def test_laggards_give_way(limited, connect, watcher):
    """Guards: notifications that laggards have not read give way to an open transaction, the oldest first, and no more
    than necessary."""
    laggard, late, sender = connect(limited), connect(limited), connect(limited)
    laggard.execute("LISTEN herald_reset")
    fall_behind(laggard)
    for number in range(220):
        notify(sender, "c", f"{number} {KILOBYTES_7}")
    fall_behind(late)
    for number in range(180):
        notify(sender, "c", f"late {number} {KILOBYTES_7}")
    overruns = counted(watcher)[2]
    sender.execute("BEGIN")
    grow(sender, 1.8 * MEGABYTE)
    assert counted(watcher)[2] == overruns + 1
    assert on_disk(limited) <= LIMIT - RING_BYTES + SEGMENT_BYTES
    late.execute("COMMIT")
    assert [word.split(" x")[0] for word in hear(late, 180)] == [f"late {number}" for number in range(180)]
    laggard.execute("COMMIT")
    assert hear(laggard, 1) == ["notifications were missed"]
    sender.execute("ROLLBACK")


def test_nothing_is_given_up_in_vain(limited, connect, watcher):
    """Guards: an open transaction that would have no room whatever laggards lose takes nothing from them."""
    laggard = laggard_behind(110, connect(limited), watcher)
    senders = [connect(limited) for _ in range(3)]
    overruns = counted(watcher)[2]
    for sender, size in zip(senders, (1.4, 1.4)):
        sender.execute("BEGIN")
        grow(sender, size * MEGABYTE)
    assert 0 < on_disk(limited) - uncommitted(watcher) < 0.5 * MEGABYTE
    senders[2].execute("SET herald.max_payload = '2MB'")
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded, match="open transactions would exceed"):
        notify(senders[2], "c", "x" * MEGABYTE)
    assert counted(watcher)[2] == overruns
    laggard.execute("COMMIT")
    assert len(hear(laggard, 110)) == 110
    for sender in senders:
        sender.execute("ROLLBACK")


def test_open_transactions_take_nothing(limited, connect, watcher):
    """Guards: open transactions, however many, make no listener lose what fits into the last quarter of the limit."""
    laggard = laggard_behind(100, connect(limited), watcher)
    senders = [connect(limited) for _ in range(4)]
    overruns = counted(watcher)[2]
    for sender in senders:
        sender.execute("BEGIN")
        try:
            grow(sender, 1.8 * MEGABYTE)
        except psycopg.errors.ConfigurationLimitExceeded:
            pass
    assert counted(watcher)[2] == overruns
    laggard.execute("COMMIT")
    assert len(hear(laggard, 100)) == 100
    for sender in senders:
        sender.execute("ROLLBACK")


@pytest.mark.parametrize("seed", range(2))
def test_many_at_once(limited, connect, watcher, seed):
    """Guards: of many concurrent large transactions, some of which fail, and a laggard, the files together never exceed
    the limit by more than what is being written and deleted at that moment; nothing stays counted."""
    rng = random.Random(seed)
    laggard = connect(limited)
    laggard.execute("LISTEN herald_reset")
    senders = [connect(limited) for _ in range(6)]
    plans = [[(rng.uniform(0.1, 1.9), rng.choice(["COMMIT", "ROLLBACK"])) for _ in range(12)] for _ in senders]
    failed, over, done = [], [], threading.Event()

    def run(sender: psycopg.Connection, plan: list[tuple[float, str]]) -> None:
        for size, end in plan:
            sender.execute("BEGIN")
            try:
                grow(sender, size * MEGABYTE)
            except psycopg.errors.ConfigurationLimitExceeded as error:
                failed.append(str(error))
                end = "ROLLBACK"
            sender.execute(end)

    def watch() -> None:
        # A file that is being deleted is still on the disk, but no longer counted; and each sender may be writing one
        # batch.
        most = LIMIT - RING_BYTES + SEGMENT_BYTES * (len(senders) + 1) + 2 * MEGABYTE
        while not done.is_set():
            if (size := at_one_moment(limited)) > most:
                over.append(size)
            time.sleep(0.002)

    fall_behind(laggard)
    threads = [threading.Thread(target=run, args=pair) for pair in zip(senders, plans)]
    watching = threading.Thread(target=watch)
    for thread in (*threads, watching):
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    watching.join()
    assert failed and not over, (len(failed), over[:5])
    assert all("open transactions would exceed" in text for text in failed)
    laggard.execute("COMMIT")
    laggard.close()
    until(lambda: watcher.execute("SELECT spilled, uncommitted, used FROM herald.queue").fetchone() == (0, 0, 0),
          "nothing stays counted")
