"""Waiting for a place behind a commit that hangs: what ends it, what it costs, and that it ends.

On the stock server whatever notifies waits for the lock of the one commit; with pg_herald, when the queue is
full. What clients get to see of it is the same.
"""

import time
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime

import psycopg
import pytest

from laggards import SMALLEST
from servers import SETTINGS, need_library, started
from slow_commits import SLOW, slow_commit
from support import cpu_s, hear_until, notify, one, stopped, until
from talkative import Mute, full as full_socket
from timing import as_fast, seconds
from wire import EXECUTE, SYNC, Wire, bind, cstring, error, kinds, parse, payloads

SENDERS = 100
IN_LINE = 20
SEGMENTS = 8
TIMES_MAX = 10  # as late as where nothing is in the way
CPU_PART_MAX = 0.1

# Takes more than half of a segment, so that each takes a segment of its own.
SEGMENT_FULL = "SELECT count(pg_notify('c', '{0} ' || n || repeat('x', 7000))) FROM generate_series(1, 8) n"
SEGMENT_HALF_FULL = SEGMENT_FULL.replace("(1, 8)", "(1, 4)")
SEND = "INSERT INTO written VALUES ({0}); " + SEGMENT_FULL
LOCK_TIMEOUT = "55P03: canceling statement due to lock timeout"
STATEMENT_TIMEOUT = "57014: canceling statement due to statement timeout"
CANCELED = "57014: canceling statement due to user request"
# Only a sender that has found no room holds this lock: HERALD_LOCK_ROOM of src/base/notify_locks.h.
ROOM_IS_AWAITED = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = 0 AND objsubid = 1 AND granted"


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


@pytest.fixture(scope="module")
def fill_bytes(slow):
    """What has a client's socket full."""
    with psycopg.connect(host=str(slow.socket_folder), port=slow.port, user="postgres", dbname="postgres",
                         autocommit=True) as watcher:
        return full_socket(slow, watcher)


def waiting(watcher: psycopg.Connection) -> int:
    """How many wait for a place."""
    return one(watcher, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND"
                        " (wait_event_type, wait_event) IN (('Lock', 'object'), ('Lock', 'advisory'), ('Extension', 'Extension'),"
                        " ('Extension', 'HeraldDispatch'))")


def waits_on(watcher: psycopg.Connection, has_herald: bool) -> bool:
    """One waits, and for a place: for an earlier batch to be settled it waits 0.2 s at most, and not with the lock."""
    def head() -> int:
        return one(watcher, "SELECT head FROM herald.queue") if has_herald else 0

    before, end = head(), time.monotonic() + 0.5
    while waiting(watcher) == 1 and head() == before and (not has_herald or one(watcher, ROOM_IS_AWAITED)):
        if time.monotonic() > end:
            return True
        time.sleep(0.01)
    return False


class Filler:
    """Sends until there is no place."""

    def __init__(self, wire, watcher: psycopg.Connection, batch: str, has_herald: bool):
        self._wire, self._watcher = wire, watcher
        self._canceled = 0
        self._batches = SEGMENTS + 2 if batch == SEGMENT_FULL else 2 * (SEGMENTS + 2)
        for _ in range(self._batches):
            wire.send(("Q", cstring(batch.format("filler"))))
        until(lambda: waits_on(watcher, has_herald), "there is no place")

    def let_others_go_first(self) -> None:
        """Waits behind all those that are waiting now."""
        before, begun = waiting(self._watcher), self._begun()
        self._watcher.execute("SELECT pg_cancel_backend(%s)", (self._wire.pid,))
        self._canceled += 1
        until(lambda: self._begun() > begun and waiting(self._watcher) == before, "it waits again")

    def _begun(self) -> datetime:
        return one(self._watcher, "SELECT query_start FROM pg_stat_activity WHERE pid = %s", self._wire.pid)

    def end(self) -> None:
        """All that it has not given up is sent."""
        errors = [error(self._wire.until_ready()) for _ in range(self._batches)]
        assert [found for found in errors if found] == [CANCELED] * self._canceled


@contextmanager
def full(cluster, wire, watcher: psycopg.Connection, batch: str = SEGMENT_FULL):
    """Within, there is no place: all wait that notify as much as SEND, behind a Filler. Gives a function that ends it."""
    with slow_commit(cluster, wire, watcher, "slow") as let_go:
        filler = Filler(wire(cluster), watcher, batch, "shared_preload_libraries" in cluster.settings)
        yield let_go, filler
    filler.end()


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


def until_waits(client: Wire, watcher: psycopg.Connection) -> list[tuple[str, bytes]]:
    """Waits until it waits as well, or has its whole answer, because the time was over before; that answer."""
    answer = []

    def has_answer() -> bool:
        answer.extend(client.arrived())
        return kinds(answer).endswith("Z")

    until(lambda: waiting(watcher) == 2 or has_answer(), "it waits")
    return answer


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ending", ["lock_timeout", "statement_timeout", "pg_cancel_backend", "CancelRequest"])
def test_ended(slow, connect, wire, way, ending):
    """Guards: lock_timeout ends the wait, as it ends that for a lock, statement_timeout that of a statement
    (a COMMIT is none any more), and a cancel any; nothing is committed then, and the session goes on."""
    watcher, client = connect(slow), wire(slow)
    number = client.pid
    if "timeout" in ending:
        client.query(f"SET {ending} = 300")
    with full(slow, wire, watcher):
        client.send(*WAYS[way](number))
        answer = until_waits(client, watcher)
        while answer and ending == "statement_timeout" and way != "procedure":  # it was slow to come so far
            assert error(answer) == STATEMENT_TIMEOUT
            client.query("ROLLBACK")
            client.send(*WAYS[way](number))
            answer = until_waits(client, watcher)
        if ending == "pg_cancel_backend":
            watcher.execute("SELECT pg_cancel_backend(%s)", (number,))
        elif ending == "CancelRequest":
            client.cancel()
        expected = {"lock_timeout": LOCK_TIMEOUT, "statement_timeout": STATEMENT_TIMEOUT}.get(ending, CANCELED)
        if ending == "statement_timeout" and way != "procedure":
            assert client.arrived(0.6) == []
            client.cancel()
            expected = CANCELED
        assert error(answer or client.until_ready()) == expected
        assert one(watcher, "SELECT count(*) FROM written WHERE number = %s", number) == 0
        client.query("RESET lock_timeout; RESET statement_timeout")
        assert kinds(client.query("SELECT 1")) == "TDCZ"
    client.query("LISTEN own")
    assert payloads(client.query("NOTIFY own, 'goes on'")) == ["goes on"]


@pytest.mark.alone
def test_lock_timeout_of_a_large_batch(slow, connect, wire):
    """Guards: lock_timeout is the limit of both waits together: for the dispatch, and for a place."""
    watcher, client = connect(slow), wire(slow)
    client.query("SET lock_timeout = 400")
    watcher.execute("SELECT pg_advisory_lock(1)")

    def times_out(sql: str) -> float:
        return seconds(lambda: error(client.query(sql)) == LOCK_TIMEOUT or pytest.fail("something else has ended it"))

    with full(slow, wire, watcher, SEGMENT_HALF_FULL):
        as_fast(lambda: times_out(SEGMENT_FULL.format("large")), lambda: times_out("SELECT pg_advisory_lock(1)"), 1.25)


@pytest.mark.alone
def test_many_wait(slow, connect, wire):
    """Guards: very many that wait take hardly any CPU time, and go on at once when the hang ends; all of it
    arrives, each transaction in one piece."""
    watcher, listener = connect(slow), wire(slow)
    senders = [wire(slow) for _ in range(SENDERS)]
    listener.query("LISTEN c")

    def all_send() -> None:
        for number, sender in enumerate(senders):
            sender.send(*query(SEND.format(number)))

    def all_are_through() -> None:
        for sender in senders:
            assert error(sender.until_ready()) is None

    def all_are_heard(fillers: int) -> None:
        heard = []
        while len(heard) < 8 * (fillers + SENDERS):
            heard.extend(payload[:20].split(" ")[0] for payload in payloads([listener.receive()]) if payload != "slow")
        assert heard[::8] == heard[7::8]
        assert sorted(heard[::8]) == sorted(["filler"] * fillers + [str(number) for number in range(SENDERS)])

    def go_on() -> float:
        with full(slow, wire, watcher) as (let_go, _):
            all_send()
            until(lambda: waiting(watcher) == 1 + SENDERS, "all wait")
            used_s, began = -sum(cpu_s(sender.pid) for sender in senders), time.monotonic()
            time.sleep(1)
            part = (used_s + sum(cpu_s(sender.pid) for sender in senders)) / (time.monotonic() - began)
            let_go()
            took_s = seconds(all_are_through)
        all_are_heard(SEGMENTS + 2)
        assert part < CPU_PART_MAX, f"they take {part:.0%} of a CPU while they wait"
        return took_s

    def have_not_waited() -> float:
        took_s = seconds(lambda: (all_send(), all_are_through()))
        all_are_heard(0)
        return took_s

    as_fast(go_on, have_not_waited, TIMES_MAX)


def test_first_come_first_served(slow, connect, wire):
    """Guards: of those that wait for a place, the first gets the first one."""
    watcher, listener = connect(slow), wire(slow)
    senders = [wire(slow) for _ in range(IN_LINE)]
    listener.query("LISTEN c")
    with full(slow, wire, watcher):
        for number, sender in enumerate(senders):
            sender.send(*query(SEND.format(number)))
            until(lambda number=number: waiting(watcher) == 2 + number, "it waits")
    for sender in senders:
        assert error(sender.until_ready()) is None
    heard = []
    while len(heard) < 1 + 8 * (SEGMENTS + 2 + IN_LINE):
        heard += [payload[:20].split(" ")[0] for payload in payloads([listener.receive()])]
    assert [number for number in heard[1::8] if number != "filler"] == [str(number) for number in range(IN_LINE)]


@pytest.mark.alone
@pytest.mark.parametrize("ending", ["pg_cancel_backend", "pg_terminate_backend"])
def test_first_in_line_does_not_read(slow, connect, wire, fill_bytes, ending):
    """Guards: those that wait first get an error, and their clients do not read that: others get theirs at once."""
    watcher, behind = connect(slow), wire(slow)

    def goes_on_behind(count: int) -> float:
        answers = []
        with full(slow, wire, watcher) as (let_go, filler), ExitStack() as end:
            clients = [end.enter_context(closing(Mute(slow, watcher))) for _ in range(count)]
            for number, client in enumerate(clients):
                client.send(fill_bytes, SEND.format(number))
                until(lambda number=number: waiting(watcher) == 2 + number, "the client waits")
            filler.let_others_go_first()
            behind.send(*query(SEND.format(count)))
            until(lambda: waiting(watcher) == 2 + count, "one waits behind them")
            for client in clients:
                watcher.execute(f"SELECT {ending}(%s)", (client.pid,))
            until(lambda: waiting(watcher) == 2, "the clients do not wait any more")
            assert ending == "pg_terminate_backend" or all(client.is_in_statement() for client in clients)
            took_s = seconds(lambda: (let_go(), answers.append(behind.until_ready())))
        assert error(answers[0]) is None
        return took_s

    as_fast(lambda: goes_on_behind(IN_LINE), lambda: goes_on_behind(0), TIMES_MAX)


def test_holder_of_the_servers_lock(slow, connect, wire):
    """Guards: a transaction that holds the lock of the server's own queue waits for no place: those that have
    one may wait for that lock."""
    if "shared_preload_libraries" not in slow.settings:
        pytest.skip("the stock server has one queue")
    need_library("tcn")
    watcher, sender, listener, laggard = connect(slow), wire(slow), connect(slow), connect(slow)
    watcher.execute("CREATE EXTENSION tcn; CREATE TABLE watched (id integer PRIMARY KEY);"
                    " CREATE TRIGGER tcn AFTER INSERT ON watched"
                    " FOR EACH ROW EXECUTE FUNCTION triggered_change_notification('c')")
    listener.execute("LISTEN c")
    for statement in ("LISTEN c", "BEGIN", "SELECT 1"):
        laggard.execute(statement)
    watcher.execute("SET herald.enabled = off")
    watcher.execute("SELECT pg_notify('c', 'natively ' || n || repeat('x', 7000)) FROM generate_series(1, 200) n")
    watcher.execute("RESET herald.enabled")
    assert one(watcher, "SELECT pg_notification_queue_usage()") > 0.0001
    with full(slow, wire, watcher):
        sender.send(*query(f"INSERT INTO watched VALUES (1); LISTEN d; {SEGMENT_FULL.format('holder')}"))
        assert error(sender.until_ready()) is None
    notify(watcher, "c", "end")
    heard = [payload[:20].split(" ")[0] for payload in hear_until(listener, "end")]
    assert heard.count("holder") == 8 and heard.count("natively") == 200
