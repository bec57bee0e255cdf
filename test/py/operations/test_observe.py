"""What an administrator can see: which listeners lag, by how much and for how long; what a backend waits for. Also
checks docs/troubleshooting.md."""

import os
import re
import signal

import psycopg
import pytest

from harness.prefix import TOP
from laggards import KILOBYTES_7, RING_BYTES, SEGMENT_BYTES, SMALLEST, fall_behind, hear_all, send
from servers import SETTINGS, started
from slow_commits import SLOW
from support import hear, left_nothing, one, state_of, until, wait_event, watchdog_pid
from wire import cstring, payloads

MEGABYTE = 1024 * 1024
LAPS = 1.2 * MEGABYTE / RING_BYTES  # the number of rings to send, for a listener to be a megabyte behind
ONE = 1.5 * len(KILOBYTES_7) / RING_BYTES  # for a single notification
SEGMENTS = RING_BYTES // SEGMENT_BYTES
TROUBLESHOOTING = TOP / "docs/troubleshooting.md"


@pytest.fixture(scope="module")
def watched():
    """A small queue; commits can hang."""
    yield from started(preload=True, settings=SETTINGS | SMALLEST | SLOW)


@pytest.fixture
def watcher(watched, connect):
    """A session that does not listen. When the test begins, no session does."""
    watcher = connect(watched)
    until(lambda: left_nothing(watcher), "the last test's listeners are gone")
    return watcher


def behind(watcher: psycopg.Connection, pid: int) -> int:
    """How far the listener is behind, in bytes."""
    return one(watcher, "SELECT pending_bytes FROM herald.listeners WHERE pid = %s", pid)


# ---- laggards ----

def test_laggard_is_shown(watched, connect, watcher):
    """Guards: the view shows how far a listener in a transaction is behind, and for how long, until it has read; a
    listener that keeps up is not behind."""
    laggard, listener, sender = connect(watched), connect(watched), connect(watched)
    listener.execute("LISTEN c")
    pid = laggard.info.backend_pid
    for _ in range(2):
        fall_behind(laggard)
        began = one(watcher, "SELECT clock_timestamp()")
        sent = send(sender, ONE, "first ", heard_by=listener)
        first_was_sent = one(watcher, "SELECT clock_timestamp()")
        sent += send(sender, LAPS, heard_by=listener)
        assert state_of(watcher, pid) == "busy"
        assert behind(watcher, pid) > MEGABYTE > RING_BYTES / 8 > behind(watcher, listener.info.backend_pid)
        before = one(watcher, "SELECT clock_timestamp()")
        age = one(watcher, "SELECT pending_age FROM herald.listeners WHERE pid = %s", pid)
        assert before - first_was_sent < age < one(watcher, "SELECT clock_timestamp()") - began
        laggard.execute("COMMIT")
        hear_all(laggard, sent)
        until(lambda: behind(watcher, pid) == 0, "it has caught up")


def test_client_that_does_not_read_is_shown(watched, connect, wire, watcher):
    """Guards: the view and pg_stat_activity distinguish a client that does not read from a listener in a transaction."""
    mute, sender = wire(watched), connect(watched)
    mute.query("LISTEN c")
    sent = send(sender, 1)
    until(lambda: wait_event(watcher, mute.pid) == "ClientWrite", "it is blocked")
    sent += send(sender, LAPS + 1)
    assert state_of(watcher, mute.pid) == "processing" and behind(watcher, mute.pid) > MEGABYTE
    heard = []
    while len(heard) < len(sent):
        heard += payloads([mute.receive()])
    assert heard == sent


def test_watchdog_that_goes(watched, watcher):
    """Guards: a watchdog that ends is started again."""
    before = watchdog_pid(watched)
    assert one(watcher, "SELECT herald.watchdog_pid()") == before
    os.kill(before, signal.SIGTERM)
    until(lambda: one(watcher, "SELECT herald.watchdog_pid()") not in (None, before), "there is a new one")
    assert one(watcher, "SELECT herald.watchdog_pid()") == watchdog_pid(watched)


def test_large_transaction_counts(watched, connect, watcher):
    """Guards: a large transaction's notifications in a file count as lag, in the views."""
    laggard, sender = connect(watched), connect(watched)
    fall_behind(laggard)
    usage_before = one(watcher, "SELECT usage FROM herald.queue")
    sender.execute("SELECT count(pg_notify('c', n || repeat('x', 7000))) FROM generate_series(1, 300) n")
    assert behind(watcher, laggard.info.backend_pid) > 300 * 7000
    used, usage = watcher.execute("SELECT used, usage FROM herald.queue").fetchone()
    assert used > 300 * 7000 and usage > usage_before
    laggard.execute("COMMIT")
    assert len(hear(laggard, 300)) == 300
    until(lambda: one(watcher, "SELECT used FROM herald.queue") == 0, "the file is deleted")


# ---- what a backend waits for ----

def event(watcher: psycopg.Connection, pid: int) -> tuple[str, str]:
    """Type and name of the backend's wait event."""
    return watcher.execute("SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE pid = %s",
                           (pid,)).fetchone()


def ours(watcher: psycopg.Connection, name: str) -> tuple[str, str]:
    """One of our wait events, as this server shows it: custom names exist from 17 on."""
    return "Extension", name if watcher.info.server_version >= 170000 else "Extension"


def test_waits_behind_a_commit(watched, connect, wire, watcher):
    """Guards: pg_stat_activity shows that a session waits for its own notification, behind a slow commit."""
    watcher.execute("CREATE TABLE IF NOT EXISTS written (number integer)")
    first, second = wire(watched, synchronous_commit="on"), wire(watched)
    second.query("LISTEN c")
    first.send(("Q", cstring("INSERT INTO written VALUES (1); NOTIFY c, 'first'")))
    until(lambda: event(watcher, first.pid) == ("IPC", "SyncRep"), "the commit hangs")
    second.send(("Q", cstring("NOTIFY c, 'second'")))
    until(lambda: event(watcher, second.pid) == ours(watcher, "HeraldDispatch"), "it waits")
    watcher.execute("SELECT pg_cancel_backend(%s)", (first.pid,))
    assert payloads(second.until_ready()) == ["first", "second"]
    first.until_ready()


def test_waits_for_room(watched, connect, wire, watcher):
    """Guards: pg_stat_activity shows that a sender waits, because the queue is full behind a commit that hangs."""
    watcher.execute("CREATE TABLE IF NOT EXISTS written (number integer)")
    first, sender = wire(watched, synchronous_commit="on"), wire(watched)
    first.send(("Q", cstring("INSERT INTO written VALUES (1); NOTIFY c, 'first'")))
    until(lambda: event(watcher, first.pid) == ("IPC", "SyncRep"), "the commit hangs")
    segment_full = "SELECT count(pg_notify('c', n || repeat('x', 7000))) FROM generate_series(1, 8) n"
    for _ in range(SEGMENTS + 1):
        sender.send(("Q", cstring(segment_full)))
    until(lambda: event(watcher, sender.pid) == ours(watcher, "HeraldDispatch"), "it waits")
    watcher.execute("SELECT pg_cancel_backend(%s)", (first.pid,))
    first.until_ready()
    for _ in range(SEGMENTS + 1):
        sender.until_ready()


def documented_waits() -> set[str]:
    """The names of the wait events that docs/troubleshooting.md explains."""
    return set(re.findall(r"^\| `(Herald\w+)` \|", TROUBLESHOOTING.read_text(encoding="utf-8"), re.MULTILINE))


def test_wait_events_are_documented(watched, watcher):
    """Guards: docs/troubleshooting.md explains each wait event; from 17 on, the server lists the same ones."""
    source = TROUBLESHOOTING.parent.parent / "src/base/waits.c"
    names = set(re.findall(r'"(Herald\w+)"', source.read_text(encoding="utf-8")))
    assert documented_waits() == names
    if watcher.info.server_version >= 170000:
        known = watcher.execute("SELECT name FROM pg_wait_events WHERE name LIKE 'Herald%'").fetchall()
        assert {name for name, in known} == names


# ---- docs/troubleshooting.md ----

def queries() -> list[str]:
    """The statements of the page's SQL blocks: each ends with a semicolon at the end of a line."""
    blocks = re.findall(r"^```sql\n(.*?)^```", TROUBLESHOOTING.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [sql for block in blocks for sql in re.split(r"(?<=;)\n", block) if sql.strip()]


def test_queries_of_the_troubleshooting_page(watched, connect, watcher):
    """Guards: each query on docs/troubleshooting.md runs, also while a listener lags."""
    laggard, sender = connect(watched), connect(watched)
    fall_behind(laggard)
    send(sender, LAPS)
    assert len(queries()) > 5
    for sql in queries():
        watcher.execute("BEGIN")
        try:
            watcher.execute(sql)
        finally:
            watcher.execute("ROLLBACK")
