"""Waiting for a place behind a commit that hangs: what ends it, what it costs, and that it ends.

On the stock server whatever notifies waits for the lock of the one commit; with pg_herald, when the queue is
full. What clients get to see of it is the same.
"""

import time
from contextlib import contextmanager

import psycopg
import pytest

from laggards import SMALLEST
from servers import SETTINGS, started
from slow_commits import SLOW, slow_commit
from support import cpu_s, one, until
from wire import EXECUTE, SYNC, bind, cstring, error, kinds, parse, payloads

SENDERS = 100
SEGMENTS = 8

# Takes more than half of a segment, so that each takes a segment of its own.
SEGMENT_FULL = "SELECT count(pg_notify('c', '{0} ' || n || repeat('x', 7000))) FROM generate_series(1, 8) n"
SEND = "INSERT INTO written VALUES ({0}); " + SEGMENT_FULL
LOCK_TIMEOUT = "55P03: canceling statement due to lock timeout"
STATEMENT_TIMEOUT = "57014: canceling statement due to statement timeout"
CANCELED = "57014: canceling statement due to user request"


@pytest.fixture(scope="module", params=["stock", "pg_herald"])
def slow(request):
    """Commits that can hang, and a queue that is full soon."""
    has_herald = request.param == "pg_herald"
    for server in started(preload=has_herald, settings=SETTINGS | SLOW | (SMALLEST if has_herald else {})):
        server.psql("CREATE TABLE written (number integer)")
        server.psql("CREATE PROCEDURE commits(number integer) LANGUAGE plpgsql AS $$ BEGIN "
                    + SEND.replace("SELECT count", "PERFORM count").replace("{0}", "of a procedure", 2)
                    .replace("VALUES (of a procedure)", "VALUES (commits.number)") + "; COMMIT; END $$")
        yield server


def waiting(watcher: psycopg.Connection) -> int:
    """How many wait for a place."""
    return one(watcher, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND"
                        " (wait_event_type, wait_event) IN (('Lock', 'object'), ('Extension', 'Extension'),"
                        " ('Extension', 'HeraldQueueRoom'))")


def waits_on(watcher: psycopg.Connection) -> bool:
    """One waits, and for longer than a sender of much waits for the dispatch (0.2 s): so it is for a place."""
    end = time.monotonic() + 0.4
    while waiting(watcher) == 1:
        if time.monotonic() > end:
            return True
        time.sleep(0.01)
    return False


@contextmanager
def full(cluster, wire, watcher: psycopg.Connection):
    """Within, there is no place: all wait that notify as much as SEND. Gives a function that ends it."""
    filler = wire(cluster)
    with slow_commit(cluster, wire, watcher, "slow") as let_go:
        for _ in range(SEGMENTS + 1):
            filler.send(("Q", cstring(SEGMENT_FULL.format("filler"))))
        until(lambda: waits_on(watcher), "there is no place")
        yield let_go
    for _ in range(SEGMENTS + 1):
        assert error(filler.until_ready()) is None


def query(sql: str) -> tuple[tuple[str, bytes], ...]:
    """A simple query."""
    return (("Q", cstring(sql)),)


def extended(*sql: str) -> tuple[tuple[str, bytes], ...]:
    """Statements by the extended protocol, in one go."""
    return tuple(message for one in sql for message in (parse(one), bind(), EXECUTE)) + (SYNC,)


WAYS = {
    "simple": lambda number: query(SEND.format(number)),
    "block": lambda number: query(f"BEGIN; {SEND.format(number)}; COMMIT"),
    "extended": lambda number: extended(*SEND.format(number).split("; ")),
    "procedure": lambda number: query(f"CALL commits({number})"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ending", ["lock_timeout", "statement_timeout", "pg_cancel_backend", "CancelRequest"])
def test_ended(slow, connect, wire, way, ending):
    """Guards: lock_timeout ends the wait, as it ends that for a lock, statement_timeout that of a statement
    (a COMMIT is none any more), and a cancel any; nothing is committed then, and the session goes on."""
    watcher, client = connect(slow), wire(slow)
    number = client.pid
    client.socket.settimeout(5)
    if "timeout" in ending:
        client.query(f"SET {ending} = 300")
    with full(slow, wire, watcher):
        client.send(*WAYS[way](number))
        until(lambda: waiting(watcher) == 2 or client.arrived(), "it waits")
        if ending == "pg_cancel_backend":
            watcher.execute("SELECT pg_cancel_backend(%s)", (number,))
        elif ending == "CancelRequest":
            client.cancel()
        expected = {"lock_timeout": LOCK_TIMEOUT, "statement_timeout": STATEMENT_TIMEOUT}.get(ending, CANCELED)
        if ending == "statement_timeout" and way != "procedure":
            assert client.arrived(0.6) == []
            client.cancel()
            expected = CANCELED
        assert error(client.until_ready()) == expected
        assert one(watcher, "SELECT count(*) FROM written WHERE number = %s", number) == 0
        client.query("RESET lock_timeout; RESET statement_timeout")
        assert kinds(client.query("SELECT 1")) == "TDCZ"
    client.query("LISTEN own")
    assert payloads(client.query("NOTIFY own, 'goes on'")) == ["goes on"]


def test_many_wait(slow, connect, wire):
    """Guards: very many that wait take hardly any CPU time, and go on at once when the hang ends; all of it
    arrives, each transaction in one piece."""
    watcher, listener = connect(slow), wire(slow)
    senders = [wire(slow) for _ in range(SENDERS)]
    listener.query("LISTEN c")
    with full(slow, wire, watcher) as let_go:
        for number, sender in enumerate(senders):
            sender.send(*query(SEND.format(number)))
        until(lambda: waiting(watcher) == 1 + SENDERS, "all wait")
        used_s = -sum(cpu_s(sender.pid) for sender in senders)
        time.sleep(1)
        used_s += sum(cpu_s(sender.pid) for sender in senders)
        let_go()
        began = time.monotonic()
        for sender in senders:
            assert error(sender.until_ready()) is None
        took_s = time.monotonic() - began
    heard = []
    while len(heard) < 1 + 8 * (SEGMENTS + 1 + SENDERS):
        heard += [payload[:20].split(" ")[0] for payload in payloads([listener.receive()])]
    assert heard[0] == "slow" and heard[1::8] == heard[8::8]
    assert sorted(heard[1::8]) == sorted(["filler"] * (SEGMENTS + 1) + [str(number) for number in range(SENDERS)])
    assert used_s < 0.1, f"{used_s:.2f} s of CPU time in a second of waiting"
    assert took_s < 3, f"{took_s:.1f} s until all had gone on"
