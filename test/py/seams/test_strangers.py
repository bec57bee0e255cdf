"""How an ordinary role could disturb others: large transactions, lock waits, many channels, views, no Sync."""

import time
from contextlib import ExitStack, closing, contextmanager, nullcontext
from statistics import median

import psycopg
import pytest

from cache_scene import found
from faults import Doing, listen_to
from harness.cluster import Cluster
from laggards import KILOBYTES_7, fall_behind, files
from servers import SETTINGS, has_herald, started
from support import cpu_s, hear, load, notify, one, read_bytes, until, watchdog_stopped
from timing import as_fast, one_within, seconds
from wire import EXECUTE, FLUSH, SYNC, Wire, bind, cstring, error, kinds, parse, payloads

SETTLES_S = 20
LONG_STATEMENT_S = 120  # the statement takes long on purpose, and the machine may have other work
BLOCKED = 40  # listeners that wait for a lock
CHANNELS = 10_000


def test_error_of_a_commit_without_sync(server, wire):
    """Guards: a client that sends COMMIT and Flush gets the error of a failed COMMIT before it sends Sync."""
    first, second = wire(server), wire(server)
    first.query("CREATE TABLE IF NOT EXISTS skewed (number integer)")
    for client in (first, second):
        client.query("BEGIN ISOLATION LEVEL SERIALIZABLE")
        client.query("SELECT sum(number) FROM skewed")
        client.query("INSERT INTO skewed VALUES (1)")
    second.query("NOTIFY c")
    assert kinds(first.query("COMMIT")) == "CZ"
    second.send(parse("COMMIT"), bind(), EXECUTE, FLUSH)
    assert error(second.arrived(SETTLES_S)).startswith("40001")
    second.send(SYNC)
    assert kinds(second.until_ready()) == "Z"


def test_lock_wait_takes_no_turn(server, connect, wire):
    """Guards: listeners that wait for a table lock during parse analysis, which no hook reports, keep no other listener
    waiting; nor do listeners that leave and come back meanwhile."""
    holder, listener, sender = connect(server), wire(server), connect(server)
    holder.execute("CREATE TABLE IF NOT EXISTS strangers_locked (number integer)")
    listener.query("LISTEN d")
    blocked = [wire(server) for _ in range(BLOCKED)]
    for _ in range(5):
        for client in blocked:
            client.query("UNLISTEN *; LISTEN c")
        holder.execute("BEGIN; LOCK TABLE strangers_locked")
        for client in blocked:
            client.send(("Q", cstring("SELECT * FROM strangers_locked")))
        until(lambda: one(sender, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid = ANY(%s)",
                          [client.pid for client in blocked]) == BLOCKED, "all wait for the lock")
        # A listener that does not use its turn would keep it until the watchdog takes it back.
        with watchdog_stopped(server) if has_herald(server) else nullcontext():
            sender.execute("BEGIN; NOTIFY c; NOTIFY d; COMMIT")
            assert kinds([listener.receive()]) == "A"
        holder.execute("ROLLBACK")
        for client in blocked:
            client.until_ready()


QUIET_TIMES = 10  # factor of the delay without other load, or
PART_OF_THE_OTHER = 1 / 4  # of the time that the other statement takes


def heard_meanwhile(session: psycopg.Connection, sql: str, sender: psycopg.Connection,
                    listener: Wire) -> tuple[float, float]:
    """Runs the statement, and has the sender notify d meanwhile. Returns the seconds until the listener has received
    that, and the seconds that are allowed."""
    def hears() -> None:
        notify(sender, "d", sql)
        assert payloads([listener.receive()]) == [sql]

    quiet = median(seconds(hears) for _ in range(5))
    began = time.monotonic()
    doing = Doing(session, sql)
    active = "SELECT state = 'active' FROM pg_stat_activity WHERE pid = %s"
    until(lambda: not doing.runs() or one(sender, active, session.info.backend_pid), "the statement has begun")
    heard = seconds(hears)
    assert doing.end(LONG_STATEMENT_S) is None
    return heard, max(QUIET_TIMES * quiet, PART_OF_THE_OTHER * (time.monotonic() - began))


LARGE_FILES_MAX = 8192


@pytest.fixture(scope="module")
def tiny():
    """A server with the smallest queue memory."""
    yield from started(preload=True, settings=SETTINGS | {"herald.queue_memory": "512kB"})


def test_little_is_left_of_a_large_transaction(tiny, connect):
    """Guards: a transaction that notifies very much, and rolls back almost all of it, keeps no file for laggards."""
    laggard, sender = connect(tiny), connect(tiny)
    fall_behind(laggard)
    for number in range(5):
        sender.execute("BEGIN")
        notify(sender, "c", f"before {number}")
        sender.execute("SAVEPOINT s")
        sender.execute(f"SELECT count(pg_notify('c', n || '{KILOBYTES_7}')) FROM generate_series(1, 30) n")
        assert one(sender, "SELECT spilled FROM herald.queue") > 0
        sender.execute("ROLLBACK TO s")
        notify(sender, "c", f"after {number}")
        sender.execute("COMMIT")
    until(lambda: one(sender, "SELECT spilled FROM herald.queue") == 0, "no file is kept")
    laggard.execute("ROLLBACK")
    assert hear(laggard, 10) == [f"{when} {number}" for number in range(5) for when in ("before", "after")]


@contextmanager
def looping(cluster: Cluster, wire, statement: str):
    """Within the block, a session runs a statement that does not end by itself."""
    with closing(wire(cluster)) as client:
        client.send(("Q", cstring(statement)))
        yield
        client.cancel()
        assert error(client.until_ready()).startswith("57014")


def test_own_notification_beside_a_loop(cluster, wire):
    """Guards: a session's own notification comes before the answer, also when another session's notification for it is
    on its way. (On a stock server, from 19 on, about one in a thousand comes after it.)"""
    with ExitStack() as stack:
        session, *others = [stack.enter_context(closing(wire(cluster))) for _ in range(BLOCKED)]
        for listener in (session, *others):
            listener.query("LISTEN c")
        session.query("LISTEN own")
        stack.enter_context(looping(cluster, wire, "DO 'BEGIN LOOP NOTIFY c; COMMIT; PERFORM pg_sleep(0.001); END LOOP; END'"))
        for number in range(5000):
            assert str(number) in payloads(session.query(f"NOTIFY own, '{number}'"))


def test_table_of_large_files_is_full(tiny, connect):
    """Guards: when the table of large files is full of files kept for a laggard, far below the queue's size limit,
    large transactions still succeed: the laggard loses the oldest."""
    laggard, sender, other = connect(tiny), connect(tiny), connect(tiny)
    laggard.execute("LISTEN herald_reset")
    fall_behind(laggard)
    with load(tiny, f"SELECT count(pg_notify('c', n || '{KILOBYTES_7}')) FROM generate_series(1, 10) n;", 2):
        until(lambda: one(other, "SELECT segments_dropped FROM herald.stats") > 0, "something is given up", 120)
        assert one(sender, f"SELECT count(pg_notify('d', n || '{KILOBYTES_7}')) FROM generate_series(1, 20) n") == 20
    assert one(other, "SELECT usage FROM herald.queue") < 0.5
    until(lambda: len([path for path in files(tiny.data) if "large" in path.name]) <= LARGE_FILES_MAX,
          "what was given up is deleted")
    laggard.execute("ROLLBACK")
    assert "notifications were missed" in hear(laggard, 1)[0]


AGAIN_TIMES_MAX = 20  # factor of CPU time; visiting all channels for each would take a hundred times as long


def test_unlisten_again_and_again(cluster, connect):
    """Guards: very many UNLISTEN * in one transaction commit as quickly as one, in a session with many channels."""
    listener = connect(cluster)

    def commit(times: int) -> float:
        listener.execute(listen_to("again", 0, CHANNELS))
        listener.execute("BEGIN")
        listener.execute(f"DO $$ BEGIN FOR n IN 1 .. {times} LOOP LISTEN a; UNLISTEN *; END LOOP; END $$")
        listener.execute("LISTEN b")
        before = cpu_s(listener.info.backend_pid)
        listener.execute("COMMIT")
        return cpu_s(listener.info.backend_pid) - before

    if listener.info.server_version < 190000:  # from 19 on the server itself takes seconds for it
        as_fast(lambda: commit(20000), lambda: commit(1), AGAIN_TIMES_MAX)
    else:
        commit(20000)
    assert listener.execute("SELECT * FROM pg_listening_channels()").fetchall() == [("b",)]
    assert one(listener, "SELECT count(*) FROM herald.channels") == 1
    notify(listener, "b", "heard")
    assert hear(listener, 1) == ["heard"]


def test_very_many_invalidations(caching, connect, wire):
    """Guards: a notifying transaction with very many cache invalidations does not delay other sessions' notifications
    by its commit; and what it has invalidated is invalid."""
    reader, sender, other = (connect(caching) for _ in range(3))
    listener = wire(caching)
    listener.query("LISTEN d")
    look = "SELECT herald.cache_through('c500000', 'SELECT $1', 'k')"
    assert not found(reader, look)

    def attempt() -> tuple[float, float]:
        assert found(reader, look)
        sender.execute("BEGIN")
        sender.execute("SELECT count(herald.cache_invalidate('c' || n, 'k')) FROM generate_series(1, 500000) n")
        sender.execute("NOTIFY c")
        times = heard_meanwhile(sender, "COMMIT", other, listener)
        assert not found(reader, look)
        return times

    one_within(attempt, 1)


LOOK = "DO $$ BEGIN LOOP PERFORM count(*) FROM {}; END LOOP; END $$"
LOOKED_AT = ("herald.get_listeners()", "pg_stat_get_activity(NULL)")  # ours, and one of the server's


@pytest.mark.alone
def test_readers_of_views_hold_up_nobody(tiny, connect, wire):
    """Guards: sessions that read herald.listeners in a loop do not keep a sender from spilling what laggards have not
    read."""
    laggard, sender = connect(tiny), connect(tiny)
    fall_behind(laggard)
    for number in range(3):  # large ones: the view searches their files
        sender.execute(f"SELECT count(pg_notify('c', '{number} ' || n || '{KILOBYTES_7}')) FROM generate_series(1, 30) n")

    def send_beside(looked_at: str) -> float:
        with ExitStack() as stack:
            for _ in range(8):
                stack.enter_context(looping(tiny, wire, LOOK.format(looked_at)))
            return seconds(lambda: notify(sender, "c", *(f"{n} {KILOBYTES_7}" for n in range(150))))  # two rings full

    as_fast(*(lambda looked_at=looked_at: send_beside(looked_at) for looked_at in LOOKED_AT), 5)


MANY_LISTENS = "DO $$ BEGIN FOR n IN 1 .. 10000 LOOP EXECUTE format('LISTEN very_many_%s', n); END LOOP; END $$"
MANY_UNLISTENS = "DO $$ BEGIN FOR n IN 1 .. {} LOOP UNLISTEN *; END LOOP; END $$"


@pytest.mark.parametrize("before, within", [
    ((), (MANY_LISTENS, MANY_UNLISTENS.format(3000))),
    ((MANY_LISTENS, "UNLISTEN *"), (MANY_UNLISTENS.format(60000),)),  # the session listens to nothing any more
    ((MANY_LISTENS, "UNLISTEN *; LISTEN one"), (MANY_UNLISTENS.format(60000),)),
], ids=["in one transaction", "no channel left", "one channel left"])
def test_very_many_listens_and_unlistens(cluster, connect, wire, before, within):
    """Guards: very many LISTEN and UNLISTEN * beside a NOTIFY, which the server processes at commit (from 19 on), delay
    other sessions' notifications no more than another transaction does; the NOTIFY arrives once."""
    listener, sender, session = wire(cluster), connect(cluster), connect(cluster)
    listener.query("LISTEN d")

    def attempt() -> tuple[float, float]:
        for statement in ("UNLISTEN *", *before, "BEGIN", *within, "LISTEN last; NOTIFY last, 'own'"):
            session.execute(statement)
        times = heard_meanwhile(session, "COMMIT", sender, listener)
        assert hear(session, 1) == ["own"]
        notify(sender, "last", "next")
        assert hear(session, 1) == ["next"]
        return times

    one_within(attempt, 1)


NATIVE = "SET herald.enabled = off"
NATIVE_MEGABYTES = 200
LONG = "x" * 9000


def test_listen_and_notify_behind_the_servers_queue(cluster, connect, wire):
    """Guards: a transaction that begins to listen and notifies, while the server's own queue is full of notifications
    sent past pg_herald, delays other sessions' notifications no more than another transaction does."""
    cluster.psql("CREATE DATABASE full_of_native")
    cluster.create_herald("full_of_native")
    listener, sender = wire(cluster), connect(cluster)
    laggard, flooder = (connect(cluster, "full_of_native") for _ in range(2))
    listener.query("LISTEN d")
    for statement in (NATIVE, "LISTEN native", "BEGIN", "SELECT 1"):
        laggard.execute(statement)
    flooder.execute(NATIVE)
    flooder.execute("SELECT count(pg_notify('native', n || repeat('x', 7900)))"
                    f" FROM generate_series(1, {NATIVE_MEGABYTES * 125}) n")

    def attempt() -> tuple[float, float]:
        with connect(cluster, "full_of_native") as beginner:
            read = -read_bytes(beginner.info.backend_pid)
            times = heard_meanwhile(beginner, "BEGIN; LISTEN q; NOTIFY q, 'own'; COMMIT", sender, listener)
            read += read_bytes(beginner.info.backend_pid)
            if sender.info.server_version < 190000:  # from 19 on the server moves a listener past what is not for it
                assert read > NATIVE_MEGABYTES / 2 * 1024 * 1024, "nothing was to be read"
            assert hear(beginner, 1) == ["own"]
        until(lambda: one(sender, "SELECT count(*) FROM pg_stat_activity WHERE datname = 'full_of_native'") == 2,
              "it has gone: the next one begins where the laggard is")
        return times

    one_within(attempt, 1)
    laggard.close()
    flooder.close()
    cluster.psql("DROP DATABASE full_of_native WITH (FORCE)")


def test_both_ways_with_a_long_payload(connect):
    """Guards: a transaction that would use the server's own queue, and has a payload that is too long for it, goes
    through pg_herald's, in either order."""
    for cluster in started(preload=True, settings=SETTINGS | {"herald.max_payload": "20kB"}):
        listener, sender = connect(cluster), connect(cluster)
        listener.execute("LISTEN c")
        ways = [(NATIVE, "short"), ("RESET herald.enabled", LONG)]
        for order in (ways, ways[::-1]):
            sender.execute("BEGIN")
            for way, payload in order:
                sender.execute(way)
                sender.execute("SELECT pg_notify('c', %s)", (payload,))
            sender.execute("COMMIT")
            assert hear(listener, 2) == [payload for _, payload in order]
        sender.execute("RESET herald.enabled")
        notify(sender, "c", "only this")
        assert hear(listener, 1) == ["only this"]


LARGE_OBJECTS = 60_000


def test_large_objects_left_open(cluster, connect, wire):
    """Guards: a notifying transaction that leaves very many large objects open, which the server takes long to close,
    delays other sessions' notifications no more than another transaction does."""
    listener, sender, opener = wire(cluster), connect(cluster), connect(cluster)
    listener.query("LISTEN d")
    number = one(opener, "SELECT lo_create(0)")

    def attempt() -> tuple[float, float]:
        opener.execute("BEGIN")
        opener.execute("SELECT count(lo_open(%s, 262144)) FROM generate_series(1, %s)", (number, LARGE_OBJECTS))
        opener.execute("NOTIFY x")
        return heard_meanwhile(opener, "COMMIT", sender, listener)

    one_within(attempt, 1)
    opener.execute("SELECT lo_unlink(%s)", (number,))


LOOPS = 40


@pytest.mark.alone
def test_senders_in_a_loop(cluster, stock, connect, wire):
    """Guards: many sessions that notify in a loop on the server do not delay other sessions' notifications until each
    of them has had the CPU: these take at most twice as long as on a stock server."""
    def heard_after(server: Cluster) -> float:
        sender = connect(server)
        with closing(wire(server)) as listener, ExitStack() as stack:
            listener.query("LISTEN d")
            for _ in range(LOOPS):
                stack.enter_context(looping(server, wire, "DO 'BEGIN LOOP NOTIFY c; COMMIT; END LOOP; END'"))

            def hears() -> None:
                sender.execute("NOTIFY d")
                assert kinds([listener.receive()]) == "A"

            return median(seconds(hears) for _ in range(60))

    as_fast(lambda: heard_after(cluster), lambda: heard_after(stock), 2)


HOLDERS = 90
HELD = 400  # channels of each
PART_MAX = 1 / 4


@pytest.mark.parametrize("payloads", [1, 150], ids=["small transactions", "large ones"])
def test_senders_to_many_channels_with_many_listeners(cluster, connect, wire, payloads):
    """Guards: a sender whose notifications take longer to dispatch than to send waits for the dispatcher, so that those
    of other sessions do not queue behind a full queue memory."""
    listener, sender = wire(cluster), connect(cluster)
    listener.query("LISTEN d")
    for holder in (connect(cluster) for _ in range(HOLDERS)):
        holder.execute(listen_to("held", 0, HELD))
        holder.execute("BEGIN")
        holder.execute("SELECT 1")
    channels = ",".join(f"held_{number}" for number in range(HELD))
    behind = []
    with load(cluster, f"SELECT count(pg_notify(c, n::text)) FROM generate_series(1, {payloads}) n,"
              f" unnest('{{{channels}}}'::text[]) c;", 4, "-Mprepared"):
        time.sleep(1)
        for _ in range(20):
            behind.append(one(sender, "SELECT (head - dispatched) / size::float FROM herald.queue"))
            sender.execute("NOTIFY d")
            assert kinds([listener.receive()]) == "A"
    print(sorted(behind))
    assert median(behind) < PART_MAX, f"that part of the memory was to be dispatched: {sorted(behind)}"
