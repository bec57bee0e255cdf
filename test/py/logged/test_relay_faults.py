"""The relay of a standby, when something goes wrong: it fails, is ended, cannot read; at a promotion, too."""

import os
import signal

import psycopg
import pytest

from faults import FUNCTIONS, Doing, Points
from harness.cluster import Cluster
from harness.standby import Standby
from laggards import SMALLEST
from servers import SETTINGS, started
from support import hear, hear_until, notify, one, outcome, stopped, until, until_gone, wait_event
from test_relay import heard, listens, relay, relay_pid

pytestmark = pytest.mark.seam

MISSED = "notifications were missed"


@pytest.fixture(scope="module")
def primary(stop_points):
    """A server with stop points and little memory, where channels that begin with logged are logged."""
    for cluster in started(preload=True, pg_config=stop_points, settings=SETTINGS | SMALLEST | {
            "wal_retrieve_retry_interval": "100ms", "wal_keep_size": "500MB"}):
        cluster.psql(FUNCTIONS)
        cluster.psql("SELECT herald.set_channel('logged*', logged => true)")
        yield cluster


@pytest.fixture(scope="module")
def standby(primary):
    """A standby of it, which keeps no WAL for others."""
    standby = Standby(primary)
    standby.settings["wal_keep_size"] = 0
    with standby:
        yield standby
        assert not standby.damage(), standby.damage()


@pytest.fixture
def sender(primary, connect):
    """A session on the primary."""
    return connect(primary)


@pytest.fixture
def watcher(standby, connect):
    """A session on the standby; there is a relay."""
    watcher = connect(standby)
    until(lambda: relay_pid(watcher), "there is a relay")
    return watcher


@pytest.fixture
def points(watcher):
    """The stop points of the standby."""
    points = Points(watcher)
    yield points
    points.release()


@pytest.fixture
def listener(standby, connect):
    """A session on the standby that listens to channel logged, and is notified of what it misses."""
    return listens(connect(standby), "logged", "herald_reset")


def is_disconnected(server: Cluster, session: psycopg.Connection) -> bool:
    """Whether the session ends, because it has missed something."""
    pid = session.info.backend_pid
    with pytest.raises(psycopg.OperationalError):
        until(lambda: hear(session, 1, 0.1) and False, "the session ends")
    return f"[{pid}] FATAL:  terminating connection because it has missed notifications" in server.log()


def test_reading_fails_for_a_while(sender, watcher, points, listener):
    """Guards: the relay tries again if it cannot read, and nothing is lost."""
    before = relay(watcher, "gaps")
    notify(sender, "logged", "before")
    assert hear(listener, 1) == ["before"]  # so it reads in the server's last file, where it tries for longer
    points.arm("wal-read", "error", relay_pid(watcher), 8)
    notify(sender, "logged", "meanwhile")
    points.reached("wal-read")
    assert heard(listener, sender) == ["meanwhile"]
    assert relay(watcher, "gaps") == before


@pytest.mark.long
def test_reading_fails_for_good(sender, watcher, points, listener):
    """Guards: if the server's last file cannot be read for longer than HERALD_WAL_WAIT_MS, listeners are notified that they
    have missed something, and the relay goes on."""
    before = relay(watcher, "gaps")
    notify(sender, "logged", "before")
    assert hear(listener, 1) == ["before"]
    points.arm("wal-read", "error", relay_pid(watcher), 1_000_000)
    notify(sender, "logged", "lost")
    assert hear(listener, 1, 40) == [MISSED]
    points.release()
    assert_goes_on(sender, watcher, listener, before)


def test_sending_fails(sender, standby, watcher, points, listener, connect):
    """Guards: if the relay cannot send a transaction, all listeners in that database are notified that they have missed
    something, at its place; a client that does not listen to herald_reset is disconnected."""
    other, before = listens(connect(standby)), relay(watcher, "gaps")
    pid = relay_pid(watcher)
    notify(sender, "logged", "before")
    assert hear(other, 1) == ["before"]
    points.arm("relay-send", "error", pid)
    notify(sender, "logged", "lost")
    assert is_disconnected(standby, other)
    assert hear(listener, 2) == ["before", MISSED]
    assert heard(listener, sender) == []
    until(lambda: relay(watcher, "gaps") > before, "the relay counts it, which it does after the delivery")
    assert relay(watcher, "gaps") == before + 1
    assert relay_pid(watcher) == pid
    assert "pg_herald cannot relay logged notifications" in standby.log()


def test_relay_is_ended_while_it_sends(sender, watcher, points, listener):
    """Guards: the relay that was ended before its commit sends the transaction again."""
    pid = relay_pid(watcher)
    points.arm("relay-send", "wait", pid)
    notify(sender, "logged", "1", "2")
    points.waiter("relay-send")
    os.kill(pid, signal.SIGTERM)
    until_gone(watcher, pid)
    assert heard(listener, sender) == ["1", "2"]


def assert_goes_on(sender: psycopg.Connection, watcher: psycopg.Connection, listener: psycopg.Connection, before: int) -> None:
    """After a part of the WAL is lost the relay goes on; it has notified the listener of one gap, or of another one where
    evidence comes that the primary runs pg_herald, which may have been in the lost part; what follows that at once may be
    skipped with it."""
    found: list[str] = []
    while "again" not in found:
        notify(sender, "logged", "again")
        found += hear(listener, 1, 5)
    assert found.count(MISSED) <= 1 and set(found) <= {MISSED, "again"}
    until(lambda: relay(watcher, "gaps") > before, "the relay counts it, which it does after the delivery")
    assert relay(watcher, "gaps") <= before + 2


def lose_wal(sender: psycopg.Connection, watcher: psycopg.Connection) -> None:
    """Sends four notifications, which the standby deletes from its WAL before the relay has read them."""
    with stopped(relay_pid(watcher)):
        for number in range(4):
            notify(sender, "logged", f"lost {number}")
            sender.execute("SELECT pg_switch_wal()")
        sender.execute("CHECKPOINT")
        last = one(sender, "SELECT pg_current_wal_flush_lsn()")
        until(lambda: one(watcher, "SELECT pg_last_wal_replay_lsn() >= %s", last), "the standby has followed")
        watcher.execute("CHECKPOINT")


def test_wal_is_gone(primary, standby, sender, watcher, listener, connect):
    """Guards: if WAL was deleted that the relay has not read, all listeners are notified, and the relay goes on where the
    standby is."""
    other, before = listens(connect(standby)), relay(watcher, "gaps")
    notify(sender, "logged", "before")
    assert hear(listener, 1) == ["before"] == hear(other, 1)
    pid = relay_pid(watcher)
    lose_wal(sender, watcher)
    assert is_disconnected(standby, other)
    assert hear(listener, 1) == [MISSED]
    assert_goes_on(sender, watcher, listener, before)
    assert relay_pid(watcher) == pid


def test_wal_is_gone_without_listeners(standby, sender, watcher, connect):
    """Guards: the relay goes on also if no session listens, and the gap is in the queue."""
    before, head = relay(watcher, "gaps"), one(watcher, "SELECT head FROM herald.queue")
    lose_wal(sender, watcher)
    until(lambda: relay(watcher, "gaps") > before, "the relay notices")
    until(lambda: one(watcher, "SELECT head FROM herald.queue") > head, "the gap is in the queue")
    until(lambda: relay(watcher, "bytes_behind") == 0, "the relay has gone on")
    session = listens(connect(standby), "herald_reset")
    until(lambda: outcome(session, "LISTEN logged") is None, "there is evidence that the primary runs pg_herald")
    assert heard(session, sender) == []


def test_larger_than_the_queue(primary, standby, sender, watcher, listener):
    """Guards: a transaction that does not fit into herald.max_queue_size of the standby is a gap, and the relay goes on."""
    standby.psql("ALTER SYSTEM SET herald.max_queue_size = '1MB'; SELECT pg_reload_conf()")
    try:
        until(lambda: one(watcher, "SHOW herald.max_queue_size") == "1MB", "the setting is in force")
        before = relay(watcher, "gaps")
        sender.execute("SELECT count(pg_notify('logged', n || repeat('x', 7000))) FROM generate_series(1, 400) n")
        assert hear(listener, 1) == [MISSED]
        assert heard(listener, sender) == []
        until(lambda: relay(watcher, "gaps") > before, "the relay counts it, which it does after the delivery")
        assert relay(watcher, "gaps") == before + 1
    finally:
        standby.psql("ALTER SYSTEM RESET herald.max_queue_size; SELECT pg_reload_conf()")


def test_no_room(standby, sender, watcher, listener, connect):
    """Guards: what a laggard has not read on the standby goes to files, and arrives."""
    laggard = listens(connect(standby))
    laggard.execute("BEGIN; SELECT 1")
    payloads = [f"{number} {'x' * 7000}" for number in range(300)]
    for payload in payloads:
        notify(sender, "logged", payload)
    assert heard(listener, sender) == payloads
    assert one(watcher, "SELECT spilled FROM herald.queue") > 0
    laggard.execute("COMMIT")
    assert hear_until(laggard, "end") == payloads


@pytest.mark.parametrize("wal", ["kept", "gone"])
def test_reading_begins_within_a_transaction(primary, standby, connect, wal):
    """Guards: of a transaction that has begun to write its parts before the WAL that a new relay reads, everything arrives,
    or listeners are notified that they have missed something."""
    sender, checker = connect(primary), connect(primary)
    points = Points(checker)
    payloads = [f"{number} {'x' * 6000}" for number in range(200)]
    sender.execute("BEGIN")
    with sender.cursor() as cursor:
        cursor.executemany("SELECT pg_notify('logged', %s)", [(payload,) for payload in payloads])
    points.arm("publish-reserve", "wait", sender.info.backend_pid)
    doing = Doing(sender, "COMMIT")
    try:
        points.waiter("publish-reserve")
        if wal == "gone":
            checker.execute("SELECT pg_switch_wal()")
        checker.execute("CHECKPOINT")
        last = one(checker, "SELECT pg_current_wal_flush_lsn()")
        until(lambda: standby.psql(f"SELECT pg_last_wal_replay_lsn() >= '{last}'") == "t", "the standby has followed")
        standby.psql("CHECKPOINT")
        standby.restart()
        listener = listens(connect(standby), "logged", "herald_reset")
    finally:
        points.release()
    assert doing.end() is None
    expected = payloads if wal == "kept" else [MISSED]
    assert hear(listener, len(expected)) == expected
    assert heard(listener, checker) == []


@pytest.mark.parametrize("end", ["cancelled", "released"])
def test_senders_wait_after_a_promotion(stop_points, connect, end):
    """Guards: on a promoted server a session that notifies waits until the relay has ended; the wait can be cancelled, and
    its transaction is rolled back then."""
    for former in started(preload=True, pg_config=stop_points, settings=SETTINGS | {
            "wal_retrieve_retry_interval": "100ms"}):
        former.psql(FUNCTIONS)
        former.psql("SELECT herald.set_channel('logged*', logged => true)")
        with Standby(former) as new:
            listener, watcher, sender = listens(connect(new), "logged", "logged_other"), connect(new), connect(new)
            points = Points(watcher)
            points.arm("relay-finish")
            points.arm("await-relay")
            notify(connect(former), "logged", "of the former")
            assert hear(listener, 1) == ["of the former"]
            watcher.execute("SELECT pg_promote()")
            points.waiter("relay-finish")
            doing = Doing(sender, "SELECT pg_notify('logged_other', 'of the new')")
            points.waiter("await-relay")
            points.release("await-relay")
            until(lambda: wait_event(watcher, sender.info.backend_pid) in ("Extension", "HeraldRelay"), "it waits")
            assert hear(listener, 1, 0.3) == []
            if end == "cancelled":
                watcher.execute("SELECT pg_cancel_backend(%s)", (sender.info.backend_pid,))
                assert doing.end().sqlstate == "57014"
                points.release()
            else:
                points.release()
                assert doing.end() is None
            until(lambda: outcome(sender, "NOTIFY logged_other, 'end'") is None, "it can send")
            assert hear_until(listener, "end") == (["of the new"] if end == "released" else [])
            assert not new.damage(), new.damage()
