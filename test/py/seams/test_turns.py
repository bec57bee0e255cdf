"""A turn is given to a listener that can use it, and a backlog is read only while its client is connected.

The watchdog takes back a turn that its holder does not use. So a notification that is received while the watchdog is
stopped did not have to wait for such a turn.
"""

import time
from contextlib import nullcontext

import pytest

from harness.cluster import Cluster
from servers import SETTINGS, has_herald, started
from support import one, read_bytes, until, wait_event, watchdog_stopped
from wire import EXECUTE, FLUSH, SYNC, Wire, bind, call, cstring, kinds, parse, payloads

ROUNDS = 50
SLEEPERS = 4
BACKLOG = 40_000  # notifications of 7,000 bytes
READ_BYTES_MAX = 40_000_000


@pytest.fixture(scope="module", params=["stock", "pg_herald"])
def two_turns(request):
    """The stock server, and one with pg_herald and two turns."""
    has_herald = request.param == "pg_herald"
    yield from started(preload=has_herald,
                       settings=SETTINGS | ({"herald.wakeup_concurrency": 2} if has_herald else {}))


def nobody_rescues(cluster: Cluster):
    """Within the block, no turn is taken back."""
    return watchdog_stopped(cluster) if has_herald(cluster) else nullcontext()


def test_long_call_on_the_fast_path(two_turns, connect, wire):
    """Guards: listeners that run a long function by the protocol's fast path, which calls no hook, do not delay
    listeners that can use a turn; they receive their notifications when they are done."""
    holder, sleepers = connect(two_turns), [wire(two_turns) for _ in range(SLEEPERS)]
    waits_for_the_holder = one(holder, "SELECT 'pg_advisory_xact_lock_shared(bigint)'::regprocedure::oid")
    listener, sender = wire(two_turns), wire(two_turns)
    for sleeper in sleepers:
        sleeper.query("LISTEN c")
    listener.query("LISTEN d")
    for number in range(ROUNDS):
        holder.execute("SELECT pg_advisory_lock(1)")
        for sleeper in sleepers:
            sleeper.send(call(waits_for_the_holder, "1"))
        until(lambda: one(holder, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
              == SLEEPERS, "all are at it")
        with nobody_rescues(two_turns):
            sender.query(f"NOTIFY c, '{number}'")
            sender.query(f"NOTIFY d, '{number}'")
            assert payloads([listener.receive()]) == [str(number)]
        holder.execute("SELECT pg_advisory_unlock(1)")
        for sleeper in sleepers:
            messages = sleeper.until_ready()
            assert kinds(messages) == "VAZ" and payloads(messages) == [str(number)]


def test_bind_without_sync(two_turns, connect, wire):
    """Guards: listeners that have bound a SHOW and not sent Sync, which calls no hook and leaves a transaction open,
    keep no other listener waiting; nor do listeners that leave and come back meanwhile."""
    listener, sender, watcher = wire(two_turns), wire(two_turns), connect(two_turns)
    listener.query("LISTEN d")
    for number in range(ROUNDS):
        holders = [wire(two_turns) for _ in range(SLEEPERS)]
        for holder in holders:
            holder.query("LISTEN c")
            holder.send(parse("SHOW work_mem"), bind(), EXECUTE, SYNC)
            holder.until_ready()
            holder.send(bind(), FLUSH)
            assert kinds([holder.receive()]) == "2"
        for holder in holders:  # one that still runs gets a turn, which only the watchdog takes back
            until(lambda: wait_event(watcher, holder.pid) == "ClientRead", "it waits for its client")  # pylint: disable=cell-var-from-loop
        with nobody_rescues(two_turns):
            sender.query(f"NOTIFY c, '{number}'")
            sender.query(f"NOTIFY d, '{number}'")
            assert payloads([listener.receive()]) == [str(number)]
        for holder in holders:
            holder.send(SYNC)
            assert payloads(holder.until_ready()) == [str(number)]
            holder.close()


def read_after_the_end(client: Wire) -> int:
    """Closes the connection; returns how many bytes its backend reads until it ends."""
    last = before = read_bytes(client.pid)
    client.close()
    end = time.monotonic() + 20
    while (now := read_bytes(client.pid)) is not None:
        last = now
        assert time.monotonic() < end, "the backend goes on"
    return last - before


def test_told_a_position_meanwhile(cluster, connect, wire):
    """Guards: listeners that were signalled for another reason, a position, while a transaction of theirs is open that
    called no hook, keep no other listener waiting."""
    listener, sender, watcher = wire(cluster), wire(cluster), connect(cluster)
    listener.query("LISTEN d")
    segment = one(watcher, "SELECT size / 8 FROM herald.queue")
    for number in range(5):
        holders = [wire(cluster) for _ in range(2 * SLEEPERS)]
        for holder in holders:
            holder.query("LISTEN c")
            holder.query("LISTEN herald_position")
            holder.send(parse(""), FLUSH)
            until(lambda: holder.receive()[0] == "1", "it is parsed")
        signals = one(watcher, "SELECT signals_sent FROM herald.stats")
        for _ in range(2):  # each fits into a segment
            sender.query("SELECT count(pg_notify('nobodys', i || repeat('x', 7000)))"
                         f" FROM generate_series(1, {segment // 10000}) i")
        until(lambda: one(watcher, "SELECT signals_sent FROM herald.stats") == signals + len(holders), "all are told")
        with nobody_rescues(cluster):
            sender.query("NOTIFY c")
            sender.query(f"NOTIFY d, '{number}'")
            assert payloads([listener.receive()]) == [str(number)]
        for holder in holders:
            holder.close()


@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1"], ids=["as is", "converted"])
@pytest.mark.parametrize("own", [False, True], ids=["of others", "own behind them"])
def test_client_that_has_gone(cluster, connect, wire, encoding, own):
    """Guards: a listener whose client disconnects in the middle of a large backlog ends soon, without reading all of
    it. Also when it waits for its own notification, which is behind the backlog."""
    client, sender = wire(cluster, client_encoding=encoding), connect(cluster)
    client.query("LISTEN c")
    client.query("BEGIN")
    client.query("NOTIFY c, 'own'" if own else "SELECT 1")
    sender.execute("SELECT count(pg_notify('c', g || repeat('x', 7000))) FROM generate_series(1, %s) g", (BACKLOG,))
    client.send(("Q", cstring("COMMIT")))
    for _ in range(10):
        while client.receive()[0] != "A":
            pass
    assert read_after_the_end(client) < READ_BYTES_MAX
    until(lambda: one(sender, "SELECT count(*) FROM herald.listeners WHERE pid = %s", client.pid) == 0, "it has left")
