"""Commits that hang: a session that asks for a standby, by synchronous_commit, waits for one that does not exist."""

from contextlib import contextmanager

import psycopg

from faults import Doing
from support import one, until, wait_event
from wire import cstring, kinds

SLOW = {"synchronous_standby_names": "nobody", "synchronous_commit": "local"}


@contextmanager
def slow_commit(cluster, wire, watcher: psycopg.Connection, payload: str):
    """Within the block, a transaction that has notified c hangs in its commit; afterwards it is committed.

    Yields a function that lets it commit earlier.
    """
    watcher.execute("CREATE TABLE IF NOT EXISTS written (number integer)")
    client = wire(cluster, synchronous_commit="on")
    client.send(("Q", cstring(f"INSERT INTO written VALUES (1); NOTIFY c, '{payload}'")))
    hangs = True

    def let_go() -> None:
        nonlocal hangs
        if hangs:
            hangs = False
            watcher.execute("SELECT pg_cancel_backend(%s)", (client.pid,))
            assert kinds(client.until_ready()).endswith("Z")

    try:
        until(lambda: wait_event(watcher, client.pid) == "SyncRep", "the commit hangs")
        yield let_go
    finally:
        let_go()


def commit_slowly(watcher: psycopg.Connection, connection: psycopg.Connection, sql: str) -> Doing:
    """Executes a statement until its commit waits for a standby: another process applies synchronous_standby_names, and may
    do so later than the session."""
    while True:
        doing = Doing(connection, sql)
        until(lambda: wait_event(watcher, connection.info.backend_pid) == "SyncRep" or not doing.runs(), "it waits, or ends")
        if doing.runs():
            return doing
        assert doing.end() is None


def head(watcher: psycopg.Connection) -> int:
    """The position to which the queue has been written."""
    return one(watcher, "SELECT head FROM herald.queue")


def send_behind(watcher: psycopg.Connection, client, sql: str) -> None:
    """Has a client run a statement that notifies, and waits until the notification is in the queue."""
    before = head(watcher)
    client.send(("Q", cstring(sql)))
    until(lambda: head(watcher) > before, "it has notified")
