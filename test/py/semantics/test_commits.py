"""Commits that notify: what they wait for, and how many transaction ids they use, on stock and with pg_herald."""

import psycopg
import pytest

from servers import SETTINGS, has_herald, started
from slow_commits import SLOW
from support import hear, one, until
from wire import Wire, cstring, kinds

pytestmark = pytest.mark.seam

STOCKS_LOCK = "AccessExclusiveLock on object 0 of class 1262 of database 0"


@pytest.fixture(scope="module", params=[False, True], ids=["stock", "pg_herald"])
def server(request):
    """Commits can hang; waits for locks are logged."""
    for cluster in started(preload=request.param, settings=SETTINGS | SLOW | {
            "log_lock_waits": True, "deadlock_timeout": "10ms"}):
        cluster.psql("CREATE TABLE written (number integer)")
        yield cluster


def waits_for(watcher: psycopg.Connection, client: Wire) -> str | None:
    """The backend's wait event; "Client" while it waits for a command, None while it runs."""
    return one(watcher, "SELECT CASE wait_event_type WHEN 'Client' THEN 'Client'"
                        " ELSE wait_event_type || ' ' || wait_event END"
                        " FROM pg_stat_activity WHERE pid = %s", client.pid)


def stocks_lock(watcher: psycopg.Connection) -> list[bool]:
    """For each backend that holds or requests stock's lock: whether it is granted."""
    return [row[0] for row in watcher.execute(
        "SELECT granted FROM pg_locks WHERE locktype = 'object' AND database = 0 AND classid = 1262"
        " AND objid = 0 AND mode = 'AccessExclusiveLock' ORDER BY granted")]


def begin_commit(client: Wire, payload: str) -> None:
    """Sends a transaction that writes and notifies, and does not wait for the answer."""
    client.send(("Q", cstring(f"INSERT INTO written VALUES (1); NOTIFY c, '{payload}'")))


def test_commits_that_notify(server, connect, wire):
    """Guards: while one commit hangs, a second that notifies waits for its lock on stock; with pg_herald it gets
    as far as a commit that does not notify. The order is kept."""
    watcher, listener = connect(server), connect(server)
    herald = has_herald(server)
    listener.execute("LISTEN c")
    first, second = wire(server, synchronous_commit="on"), wire(server, synchronous_commit="on")
    local = wire(server)

    begin_commit(first, "first")
    until(lambda: waits_for(watcher, first) == "IPC SyncRep", "the first commit hangs")
    begin_commit(second, "second")
    until(lambda: waits_for(watcher, second) == ("IPC SyncRep" if herald else "Lock object"),
          "the second waits for the standby, or for the lock")
    begin_commit(local, "third")
    if herald:
        assert kinds(local.until_ready()) == "CCZ"
        assert stocks_lock(watcher) == []
    else:
        until(lambda: waits_for(watcher, local) == "Lock object", "the third waits for the lock")
        assert stocks_lock(watcher) == [False, False, True]
        until(lambda: f"still waiting for {STOCKS_LOCK}" in server.log(), "the log says so")
    watcher.execute("INSERT INTO written VALUES (1)")
    assert hear(listener, 1, 0.05) == []

    for client in (first, second):
        until(lambda: waits_for(watcher, client) == "IPC SyncRep", "only the standby is missing")
        watcher.execute("SELECT pg_cancel_backend(%s)", (client.pid,))
        assert kinds(client.until_ready()).replace("N", "") == "CCZ"
    if not herald:
        assert kinds(local.until_ready()) == "CCZ"
    assert hear(listener, 3) == ["first", "second", "third"]
    assert (STOCKS_LOCK in server.log()) != herald


def test_transactions_that_only_notify(server, connect):
    """Guards: each uses a transaction id on stock, and none with pg_herald."""
    sender, listener = connect(server), connect(server)
    listener.execute("LISTEN c")
    next_id = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
    before = one(sender, next_id)
    for number in range(5):
        sender.execute("SELECT pg_notify('c', %s)", (str(number),))
    for number in range(5, 10):
        sender.execute(f"NOTIFY c, '{number}'")
    assert one(sender, next_id) - before == (0 if has_herald(server) else 10)
    assert hear(listener, 10) == [str(number) for number in range(10)]
