"""Standbys of other kinds: delayed, up to a target, without WAL senders, without pg_herald, beside a later version."""

import re
import shutil
import subprocess
from contextlib import contextmanager
from time import monotonic

import psycopg
import pytest

from harness.cluster import Cluster
from harness.installation import find_installation
from harness.prefix import SOURCES, TOP, Prefix
from harness.standby import Standby
from servers import SETTINGS, started
from support import hear, hear_until, notify, one, outcome, until
from test_relay import ARCHIVE_SETTINGS, fed_by_archive, listens, relay

pytestmark = pytest.mark.seam

DELAY_S = 2


@pytest.fixture(scope="module")
def primary():
    """A server where channels that begin with logged are logged."""
    for cluster in started(preload=True, settings=SETTINGS | {"wal_retrieve_retry_interval": "100ms"}):
        cluster.psql("SELECT herald.set_channel('logged*', logged => true); CREATE TABLE t (i int)")
        yield cluster


@pytest.fixture
def sender(primary, connect):
    """A session on the primary."""
    return connect(primary)


@contextmanager
def standby_with(primary: Cluster, **settings: object):
    """A standby of it with further settings."""
    standby = Standby(primary)
    standby.settings |= settings
    with standby:
        yield standby
        assert not standby.damage(), standby.damage()


def shown(standby: Cluster) -> int:
    """The number of rows that the standby shows."""
    return int(standby.psql("SELECT count(*) FROM t"))


def test_delayed(primary, sender, connect):
    """Guards: where the replay is delayed, a notification comes with its row, not before."""
    with standby_with(primary, recovery_min_apply_delay=f"{DELAY_S}s") as standby:
        listener, before, began = listens(connect(standby)), shown(standby), monotonic()
        sender.execute("INSERT INTO t VALUES (1); NOTIFY logged, 'a'")
        assert hear(listener, 1) == ["a"] and shown(standby) == before + 1
        assert monotonic() - began > DELAY_S


def test_recovery_target(primary, sender, connect):
    """Guards: a standby that stops at a target delivers what was committed before it, nothing else; and what its own
    sessions send when it goes on as a primary."""
    with standby_with(primary, recovery_target_name="here", recovery_target_action="pause") as standby:
        listener, watcher = listens(connect(standby)), connect(standby)
        notify(sender, "logged", "before")
        sender.execute("SELECT pg_create_restore_point('here')")
        notify(sender, "logged", "after")
        assert hear(listener, 1) == ["before"]
        until(lambda: one(watcher, "SELECT pg_get_wal_replay_pause_state()") == "paused", "it is at its target")
        watcher.execute("SELECT pg_wal_replay_resume()")
        until(lambda: not one(watcher, "SELECT pg_is_in_recovery()"), "it is a primary")
        notify(watcher, "logged", "of the new one")
        assert hear(listener, 1) == ["of the new one"]


def test_no_wal_senders(connect):
    """Guards: where no server may connect for WAL, and nothing wakes the relay, a standby that is fed by an archive
    delivers as well."""
    for former in started(preload=True, settings=SETTINGS | ARCHIVE_SETTINGS):
        with fed_by_archive(former) as standby:
            former.settings["max_wal_senders"] = 0
            former.restart()
            sender = connect(former)
            sends(sender, "before", listens(connect(standby)))  # it has replayed the change of the setting
            standby.settings["max_wal_senders"] = 0
            standby.restart()
            sends(sender, "after", listens(connect(standby)))
            assert not standby.damage(), standby.damage()


def sends(sender: psycopg.Connection, payload: str, listener: psycopg.Connection) -> None:
    """Notifies, archives that, and sees that it arrives."""
    notify(sender, "logged", payload)
    sender.execute("SELECT pg_switch_wal()")
    assert hear(listener, 1) == [payload]


def test_without_pg_herald(primary, sender, connect):
    """Guards: a server that does not load pg_herald replays the WAL as if nothing of it were there, is promoted, and
    refuses nothing that it did not refuse before."""
    standby = Standby(primary)
    del standby.settings["shared_preload_libraries"]
    with standby:
        watcher, before = connect(standby), shown(standby)
        sender.execute("INSERT INTO t VALUES (1)")
        for number in range(100):
            notify(sender, "logged", f"{number} {'x' * 5000}")
        sender.execute("INSERT INTO t VALUES (2)")
        until(lambda: shown(standby) == before + 2, "it shows both rows")
        assert outcome(watcher, "LISTEN logged") == "25006: cannot execute LISTEN during recovery"
        watcher.execute("SELECT pg_promote()")
        listens(watcher)
        notify(watcher, "logged", "of its own")
        assert hear(watcher, 1) == ["of its own"]
        assert "pg_herald" not in standby.log() and not standby.damage()


def install_later_version(prefix: Prefix) -> None:
    """Builds and installs a pg_herald whose messages in the WAL have the next version."""
    build = prefix.folder / "later"
    build.mkdir()
    for name in SOURCES:
        (shutil.copytree if (TOP / name).is_dir() else shutil.copy)(TOP / name, build / name)
    source = build / "src/core/wal_message.c"
    text, count = re.subn(r"(?m)^(#define VERSION\s+)1$", r"\g<1>2", source.read_text(encoding="utf-8"))
    assert count == 1
    source.write_text(text, encoding="utf-8")
    subprocess.run(["make", "-s", "-j2", f"PG_CONFIG={prefix.pg_config}", "install"], cwd=build, check=True)


@pytest.mark.long
@pytest.mark.timeout(900)  # it compiles the whole module
def test_later_version(connect):
    """Guards: a standby that cannot read the messages of a later version notifies its listeners that they have missed
    something, each time; and after its promotion its own messages count again."""
    with Prefix() as prefix:
        install_later_version(prefix)
        for former in started(preload=True, settings=SETTINGS, pg_config=prefix.pg_config):
            former.psql("SELECT herald.set_channel('logged*', logged => true)")
            standby = Standby(former)
            standby.installation = find_installation()
            with standby:
                listener, watcher = listens(connect(standby), "logged", "herald_reset"), connect(standby)
                notify(connect(former), "logged", "not understood")
                assert hear(listener, 1) == ["notifications were missed"]
                assert relay(watcher, "newer") > 0
                watcher.execute("SELECT pg_promote()")
                notify(watcher, "logged", "of the new one")
                # The former primary may have written anchors as well.
                assert set(hear_until(listener, "of the new one")) <= {"notifications were missed"}
                assert not standby.damage(), standby.damage()


def test_no_slot_for_the_relay(connect):
    """Guards: where max_worker_processes leaves no slot for the relay, the log names it at the start, and on a standby all
    that would wait for it fails at once, with the name of the setting; after the promotion all works."""
    few = {"max_worker_processes": 1, "max_logical_replication_workers": 0}
    for primary in started(preload=True, settings=SETTINGS | few):
        primary.psql("SELECT herald.set_channel('logged', logged => true)")
        position = primary.psql("SELECT herald.position()")
        with Standby(primary) as standby:
            session = connect(standby, options="-c statement_timeout=10s")
            for statement in ("LISTEN logged", "SELECT herald.position()", f"SELECT herald.listen('logged', '{position}')",
                              f"SELECT * FROM herald.read('logged', '{position}')"):
                assert outcome(session, statement).startswith(
                    '53400: background worker "pg_herald relay" cannot run'), statement
            assert not session.execute("TABLE herald.relay").fetchall()
            for server in (primary, standby):
                assert [f'background worker "pg_herald {name}" cannot run' in server.log()
                        for name in ("watchdog", "housekeeper", "relay")] == [False, True, True]
                assert "max_worker_processes (1) leaves no slot for it." in server.log()
            standby.psql("SELECT pg_promote()")
            session.execute("LISTEN logged; NOTIFY logged, 'a'")
            assert hear(session, 1) == ["a"]
