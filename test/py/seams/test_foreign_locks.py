"""Senders that need the lock of the server's NOTIFY, which C functions such as those of contrib/tcn take, and a place in
pg_herald's queue."""

import time

import psycopg
import pytest

from faults import Doing
from laggards import SMALLEST
from servers import SETTINGS, need_library, started
from slow_commits import SLOW, commit_slowly, head, slow_commit
from support import one, until
from wire import Wire, cstring, error

pytestmark = pytest.mark.seam

SEGMENTS = 8
# Takes more than half of a segment, so that each takes a segment of its own.
SEGMENT_FULL = "SELECT count(pg_notify('c', n || repeat('x', 7000))) FROM generate_series(1, 8) n"
WATCHED = ("CREATE EXTENSION tcn; CREATE TABLE watched (id int PRIMARY KEY); CREATE TRIGGER t AFTER INSERT ON watched"
           " FOR EACH ROW EXECUTE FUNCTION triggered_change_notification('tcn')")
BOTH_KINDS = f"BEGIN; INSERT INTO watched VALUES (1); {SEGMENT_FULL}; COMMIT"
WAITS_FOR_LOCK = "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted"
WAITS = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND state = 'active' AND wait_event_type IN ('Lock', 'Extension')"
HAS_NATIVE_LOCK = ("SELECT array_agg(pid) FROM pg_locks WHERE locktype = 'object' AND database = 0 AND objid = 0"
                   " AND classid = 'pg_database'::regclass AND granted")
# Only a sender that has found no room holds this lock: HERALD_LOCK_ROOM of src/base/notify_locks.h.
ROOM_IS_AWAITED = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = 0 AND objsubid = 1 AND granted"


@pytest.fixture
def server():
    """A small queue, and two databases with tcn: channels are logged in postgres, and none in other."""
    need_library("tcn")
    for server in started(preload=True, settings=SETTINGS | SLOW | SMALLEST):
        server.psql(f"CREATE DATABASE other; SELECT herald.set_channel('log_*', true); {WATCHED}")
        server.create_herald("other")
        server.psql(WATCHED, "other")
        yield server


def fill(client: Wire, watcher: psycopg.Connection) -> int:
    """Sends, with one client, until there is no room; returns the number of its statements."""
    statements = SEGMENTS + 4
    for _ in range(statements):
        client.send(("Q", cstring(SEGMENT_FULL)))

    def waits_on() -> bool:
        before, end = head(watcher), time.monotonic() + 0.5
        while one(watcher, ROOM_IS_AWAITED) and head(watcher) == before:
            if time.monotonic() > end:
                return True
            time.sleep(0.01)
        return False

    until(waits_on, "there is no room")
    return statements


def test_each_holds_what_the_other_waits_for(server, connect, wire):
    """Guards: of two transactions that notify through both queues, in databases with logged channels and without, none waits
    for room with the lock of the server's NOTIFY, which the other one, with a place in the queue, waits for: so all go on
    as soon as a commit ends that waits for a standby."""
    watcher, starter = connect(server), connect(server, "other")
    starter.execute("SET synchronous_commit = on")
    starter.execute("SET herald.enabled = off")
    hangs = commit_slowly(watcher, starter, "NOTIFY native")
    transactions = []
    for database in ("postgres", "other"):
        session = connect(server, database)
        transactions.append(Doing(session, BOTH_KINDS))
        until(lambda: one(watcher, WAITS_FOR_LOCK, session.info.backend_pid), "it waits for the lock of the server's NOTIFY")
    filler = wire(server, "other")
    statements = fill(filler, watcher)
    watcher.execute("SELECT pg_cancel_backend(%s)", (starter.info.backend_pid,))
    for doing in (hangs, *transactions):
        assert doing.end() is None
    assert [error(filler.until_ready()) for _ in range(statements)] == [None] * statements


def test_without_room(server, connect, wire):
    """Guards: a transaction that waits for room does not hold the lock of the server's NOTIFY meanwhile: a session that
    notifies through the server's own queue goes on."""
    watcher, session, native = connect(server), connect(server), connect(server, "other")
    native.execute("SET statement_timeout = '10s'")
    native.execute("SET herald.enabled = off")
    with slow_commit(server, wire, watcher, "slow"):
        filler = wire(server, "other")
        statements = fill(filler, watcher)
        doing = Doing(session, BOTH_KINDS)
        until(lambda: one(watcher, WAITS, session.info.backend_pid), "it waits")
        holders = one(watcher, HAS_NATIVE_LOCK)
        native.execute("NOTIFY c, 'native'")
    assert holders is None
    assert doing.end() is None
    assert [error(filler.until_ready()) for _ in range(statements)] == [None] * statements
