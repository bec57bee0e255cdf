"""Small memory and large loads: a ring full of commits, many channels and listeners, payloads of all sizes."""

from contextlib import contextmanager

import psycopg
import pytest

from harness.cluster import Cluster
from harness.listeners import Listeners
from laggards import KILOBYTES_7, SMALLEST, compare, fall_behind, hear_all
from sequences import nothing_wrong, send_sequences
from servers import SETTINGS, started
from slow_commits import SLOW
from support import cpu_s, hear, left_nothing, notify, one, until, until_gone, wait_event
from timing import as_fast
from wire import cstring, kinds

SEGMENTS = 8  # of the ring
TIMES_MAX = 4  # factor of the stock server's CPU time

# Takes more than half of a segment, so that each transaction takes a segment of its own.
SEGMENT_FULL = f"SELECT pg_notify('c', '{{prefix}} ' || n || ' {KILOBYTES_7}') FROM generate_series(1, 8) n"


@pytest.fixture(scope="module")
def small():
    """A server with the smallest memory settings, and commits that can hang."""
    yield from started(preload=True, settings=SETTINGS | SMALLEST | SLOW)


def test_sequence_over_many_laps(small):
    """Guards: while a small ring is overwritten many times, listeners receive each sender's numbers once, in order."""
    before = int(small.psql("SELECT head FROM herald.queue"))
    clients, transactions, each = 8, 3000, 10
    with Listeners(small, 20, check_sequence=clients) as listeners:
        send_sequences(small, clients, transactions, each)
        counts = listeners.wait(20 * clients * transactions * each, 30)
    assert counts["min"] == counts["max"] == clients * transactions * each, counts
    assert counts["sequence"] == nothing_wrong(20 * clients * transactions * each)
    laps = (int(small.psql("SELECT head FROM herald.queue")) - before) / (512 * 1024)
    assert laps > 10


# ---- a ring full of transactions that are committing ----

@contextmanager
def full_of_commits(cluster: Cluster, wire, watcher: psycopg.Connection):
    """Within the block, the ring is full of transactions that hang in their commits; afterwards they are committed.

    Yields a function that lets them commit earlier, and returns what they have notified to c.
    """
    watcher.execute("CREATE TABLE IF NOT EXISTS written (number integer)")
    clients = [wire(cluster, synchronous_commit="on") for _ in range(SEGMENTS)]
    sent: list[str] = []

    def let_go() -> list[str]:
        while clients:
            client = clients.pop(0)
            watcher.execute("SELECT pg_cancel_backend(%s)", (client.pid,))
            assert kinds(client.until_ready()).endswith("Z")
        return sent

    try:
        for number, client in enumerate(clients):
            client.send(("Q", cstring(f"INSERT INTO written VALUES (1); {SEGMENT_FULL.format(prefix=number)}")))
            sent += [f"{number} {n} {KILOBYTES_7}" for n in range(1, 9)]
            until(lambda: wait_event(watcher, client.pid) == "SyncRep", "the commit hangs")
        yield let_go
    finally:
        let_go()


def waits_for_room(watcher: psycopg.Connection, pid: int) -> bool:
    """Whether the backend waits for room, with nothing of its transaction in the queue."""
    return wait_event(watcher, pid) in ("advisory", "Extension", "HeraldDispatch")  # the last has no name before 17


def test_sender_waits_for_commits(small, connect, wire):
    """Guards: a sender that finds the ring full of unfinished transactions waits, and goes on when they are finished;
    so do other senders, laggards are not affected, and all is received in order."""
    listener, laggard, watcher = connect(small), connect(small), connect(small)
    waiting = [wire(small) for _ in range(3)]
    listener.execute("LISTEN c")
    fall_behind(laggard)
    with full_of_commits(small, wire, watcher) as let_go:
        for number, client in enumerate(waiting):
            client.send(("Q", cstring(SEGMENT_FULL.format(prefix=f"waited {number}"))))
        until(lambda: all(waits_for_room(watcher, client.pid) for client in waiting), "they wait")
        assert hear(listener, 1, 0.2) == []
        sent = let_go()
    assert [kinds(client.until_ready()) for client in waiting] == ["T" + "D" * 8 + "CZ"] * 3
    heard = hear(listener, len(sent) + 24)
    compare(heard[:len(sent)], sent)
    assert sorted(word[:10] for word in heard[len(sent):]) == [f"waited {n} {m}" for n in range(3)
                                                               for m in range(1, 9)]
    laggard.execute("COMMIT")
    hear_all(laggard, heard)
    assert watcher.execute("SELECT segments_dropped, overruns FROM herald.stats").fetchone() == (0, 0)


@pytest.mark.parametrize("how", ["canceled", "terminated", "client gone"])
def test_interrupted_while_it_waits(small, connect, wire, how):
    """Guards: a sender that waits for room can be cancelled and terminated, or lose its client; nothing of its
    transaction is left."""
    listener, watcher, waiting = connect(small), connect(small), wire(small)
    listener.execute("LISTEN c")
    waiting.query("SET client_connection_check_interval = 100")
    with full_of_commits(small, wire, watcher) as let_go:
        waiting.send(("Q", cstring("BEGIN; LISTEN of_the_victim; INSERT INTO written VALUES (2); "
                                   f"{SEGMENT_FULL.format(prefix='never')}; COMMIT")))
        until(lambda: waits_for_room(watcher, waiting.pid), "it waits")
        if how == "canceled":
            assert one(watcher, "SELECT pg_cancel_backend(%s)", waiting.pid)
            messages = waiting.until_ready()
            assert kinds(messages).endswith("EZ")
            assert b"C57014\0" in next(body for kind, body in messages if kind == "E")
            assert kinds(waiting.query("SELECT 1")) == "TDCZ"
        elif how == "terminated":
            assert one(watcher, "SELECT pg_terminate_backend(%s, 20000)", waiting.pid)
        elif how == "client gone":
            waiting.close()
            until_gone(watcher, waiting.pid)
        sent = let_go()
    notify(watcher, "c", "goes on")
    compare(hear(listener, len(sent) + 1), [*sent, "goes on"])
    assert watcher.execute("SELECT channel, listeners FROM herald.channels").fetchall() == [("c", 1)]
    assert one(watcher, "SELECT count(*) FROM written WHERE number = 2") == 0


def test_waiting_senders_hold_up_no_others(small, connect, wire):
    """Guards: while the ring is full, a session that notifies nothing, or through the server's own queue, goes on."""
    other, watcher = connect(small), connect(small)
    other.execute("LISTEN c")
    with full_of_commits(small, wire, watcher):
        other.execute("INSERT INTO written VALUES (3)")
        other.execute("SET herald.enabled = off")
        notify(other, "c", "the server's way is open")
        assert hear(other, 1) == ["the server's way is open"]
    assert len(hear(other, 8 * SEGMENTS)) == 8 * SEGMENTS


# ---- sizes of payloads, numbers of channels and listeners ----

def test_payloads_of_every_size(small, connect):
    """Guards: payloads of sizes around every boundary of the layout, and of the maximum size, arrive complete; one byte
    more is refused."""
    listener, sender = connect(small), connect(small)
    listener.execute("LISTEN c")
    for size in [*range(0, 300), *range(1000, 8000, 333), *range(7900, 8000)]:
        payload = ("0123456789" * 800)[:size]
        notify(sender, "c", payload)
        assert hear(listener, 1) == [payload]
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="payload string too long"):
        notify(sender, "c", "x" * 8000)


def test_registry_used_up(small, connect):
    """Guards: too many channels are refused with a clear error; earlier LISTENs stay in effect, and after UNLISTEN
    there is room again."""
    listener, greedy, sender = connect(small), connect(small), connect(small)
    listener.execute("LISTEN c")
    greedy.execute("LISTEN c")
    for _ in range(2):
        with pytest.raises(psycopg.errors.OutOfMemory) as caught:
            greedy.execute("DO $$ BEGIN FOR i IN 1..20000 LOOP EXECUTE 'LISTEN channel_' || i; END LOOP; END $$")
        assert "herald.channel_memory (1024 kB)" in caught.value.diag.message_detail
        assert "herald.channel_memory" in caught.value.diag.message_hint
        assert sender.execute("SELECT channel, listeners FROM herald.channels").fetchall() == [("c", 2)]
        assert greedy.execute("SELECT pg_listening_channels()").fetchall() == [("c",)]
    listening = 0
    with pytest.raises(psycopg.errors.OutOfMemory):
        while listening < 20000:
            greedy.execute(f"LISTEN channel_{listening}")
            listening += 1
    assert listening > 1000
    notify(sender, "c", "heard by both")
    assert hear(listener, 1) == hear(greedy, 1) == ["heard by both"]
    with pytest.raises(psycopg.errors.OutOfMemory):
        for number in range(10000):
            listener.execute(f"LISTEN another_{number}")
    greedy.execute("UNLISTEN *")
    listener.execute("LISTEN room_again")
    notify(sender, "room_again", "heard")
    assert hear(listener, 1) == ["heard"]
    listener.execute("UNLISTEN *")
    assert left_nothing(sender)


def test_many_channels_in_one_transaction(cluster, stock, connect):
    """Guards: a session can listen to 30,000 channels in one transaction, at about the stock server's cost, and
    receives on each."""
    listener, theirs, sender = connect(cluster), connect(stock), connect(cluster)

    def listen(session: psycopg.Connection) -> float:
        session.execute("UNLISTEN *")
        before = cpu_s(session.info.backend_pid)
        session.execute("DO $$ BEGIN FOR i IN 1..30000 LOOP EXECUTE 'LISTEN channel_' || i; END LOOP; END $$")
        return cpu_s(session.info.backend_pid) - before

    as_fast(lambda: listen(listener), lambda: listen(theirs), TIMES_MAX)
    assert one(sender, "SELECT count(*) FROM herald.channels") == 30000
    assert one(sender, "SELECT channels FROM herald.listeners") == 30000
    sender.execute("SELECT pg_notify('channel_' || n, n::text) FROM generate_series(1, 30001) n")
    assert hear(listener, 30000) == [str(number) for number in range(1, 30001)]
    listener.execute("UNLISTEN *")
    assert left_nothing(sender)


def test_many_listeners_on_one_channel(cluster, connect):
    """Guards: a channel's list of listeners grows and shrinks with the listeners that come and go."""
    watcher = connect(cluster)
    with Listeners(cluster, 100, "c") as first, Listeners(cluster, 7, "c") as second:
        assert watcher.execute("SELECT channel, listeners FROM herald.channels").fetchall() == [("c", 107)]
        notify(watcher, "c", "1", "2", "3")
        assert first.wait(300, 20)["min"] == 3
        assert second.wait(21, 20)["min"] == 3
        first.close()
        until(lambda: watcher.execute("SELECT channel, listeners FROM herald.channels").fetchall() == [("c", 7)],
              "100 are gone")
        notify(watcher, "c", "4")
        assert second.wait(28, 20)["min"] == 4
    until(lambda: left_nothing(watcher), "nobody listens")


@pytest.mark.parametrize("wanted, shown", [("100MB", "64MB"), ("1535kB", "1MB")])
def test_queue_memory_in_use_is_shown(connect, wanted, shown):
    """Guards: the ring's size is a power of two, and SHOW displays the size in use."""
    for cluster in started(preload=True, settings=SETTINGS | {"herald.queue_memory": wanted}):
        session = connect(cluster)
        assert one(session, "SHOW herald.queue_memory") == shown
        assert one(session, "SELECT size = pg_size_bytes(current_setting('herald.queue_memory')) FROM herald.queue")
