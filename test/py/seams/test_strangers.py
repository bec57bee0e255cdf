"""What an ordinary role can do to others: with large transactions, lock waits, many channels, views, and by
not saying Sync."""

import time
from statistics import median

import psycopg
import pytest

from cache_scene import found
from faults import Doing, listen_to
from laggards import KILOBYTES_7, fall_behind, files
from servers import SETTINGS, started
from support import hear, load, notify, one, until
from wire import EXECUTE, FLUSH, SYNC, Wire, bind, cstring, error, kinds, parse, payloads

SETTLES_S = 2
BLOCKED = 40  # listeners that wait for a lock
CHANNELS = 10_000


def test_error_of_a_commit_without_sync(server, wire):
    """Guards: a client that sends COMMIT and Flush is told why that failed, before it sends Sync."""
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
    """Guards: listeners whose statement waits for a table's lock while it is analysed, which no hook tells of,
    keep no other listener waiting; nor do those that leave and come back meanwhile."""
    holder, listener, sender = connect(server), wire(server), connect(server)
    holder.execute("CREATE TABLE IF NOT EXISTS strangers_locked (number integer)")
    listener.query("LISTEN d")
    blocked = [wire(server) for _ in range(BLOCKED)]
    times = []
    for _ in range(5):
        for client in blocked:
            client.query("UNLISTEN *; LISTEN c")
        holder.execute("BEGIN; LOCK TABLE strangers_locked")
        for client in blocked:
            client.send(("Q", cstring("SELECT * FROM strangers_locked")))
        until(lambda: one(sender, "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'strangers_locked'::regclass")
              == BLOCKED, "all wait for the lock")
        began = time.monotonic()
        sender.execute("BEGIN; NOTIFY c; NOTIFY d; COMMIT")
        assert kinds([listener.receive()]) == "A"
        times.append(time.monotonic() - began)
        holder.execute("ROLLBACK")
        for client in blocked:
            client.until_ready()
    assert median(times) < 0.05, f"heard after {[round(seconds * 1000) for seconds in times]} ms"


def heard_meanwhile(session: psycopg.Connection, sql: str, sender: psycopg.Connection,
                    listener: Wire) -> tuple[float, float]:
    """Runs the statement, and has the sender notify d while it is under way: how many seconds until the listener has
    heard that, and how many the statement took."""
    began = time.monotonic()
    doing = Doing(session, sql)
    active = "SELECT state = 'active' FROM pg_stat_activity WHERE pid = %s"
    until(lambda: not doing.runs() or one(sender, active, session.info.backend_pid), "the statement has begun")
    sent = time.monotonic()
    notify(sender, "d", sql)
    assert payloads([listener.receive()]) == [sql]
    heard = time.monotonic() - sent
    assert doing.end() is None
    return heard, time.monotonic() - began


LARGE_FILES_MAX = 8192


@pytest.fixture(scope="module")
def tiny():
    """As little memory for the queue as there can be."""
    yield from started(preload=True, settings=SETTINGS | {"herald.queue_memory": "512kB"})


def test_little_is_left_of_a_large_transaction(tiny, connect):
    """Guards: a transaction that has notified very much, and has rolled back all but a little of it, keeps no file
    for laggards."""
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


def test_table_of_large_files_is_full(tiny, connect):
    """Guards: as many files of large transactions as there can be, kept for a laggard far below the queue's limit,
    keep nobody from a large transaction: the laggard loses the oldest."""
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


def test_unlisten_again_and_again(cluster, connect):
    """Guards: very many UNLISTEN * in one transaction, of a session with very many channels, are as quick to
    commit as one."""
    listener = connect(cluster)
    listener.execute(listen_to("again", 0, CHANNELS))
    listener.execute("BEGIN")
    listener.execute("DO $$ BEGIN FOR n IN 1 .. 20000 LOOP LISTEN a; UNLISTEN *; END LOOP; END $$")
    listener.execute("LISTEN b")
    began = time.monotonic()
    listener.execute("COMMIT")
    if listener.info.server_version < 190000:  # from 19 on the server itself takes seconds for it
        assert time.monotonic() - began < 2
    assert listener.execute("SELECT * FROM pg_listening_channels()").fetchall() == [("b",)]
    assert one(listener, "SELECT count(*) FROM herald.channels") == 1
    notify(listener, "b", "heard")
    assert hear(listener, 1) == ["heard"]


def test_very_many_invalidations(cluster, connect, wire):
    """Guards: the commit of a transaction that has invalidated very many caches, and notifies, does not keep others'
    notifications waiting; and what it has invalidated is invalid."""
    reader, sender, other = (connect(cluster) for _ in range(3))
    listener = wire(cluster)
    listener.query("LISTEN d")
    look = "SELECT herald.cache_through('c500000', 'SELECT $1', 'k')"
    assert not found(reader, look) and found(reader, look)
    sender.execute("BEGIN")
    sender.execute("SELECT count(herald.cache_invalidate('c' || n, 'k')) FROM generate_series(1, 500000) n")
    sender.execute("NOTIFY c")
    heard, took = heard_meanwhile(sender, "COMMIT", other, listener)
    assert heard < 0.1 or heard < took / 4, f"heard after {heard:.2f} s, the other's commit took {took:.2f} s"
    assert not found(reader, look)


def test_readers_of_views_hold_up_nobody(tiny, connect, wire):
    """Guards: sessions that read herald.listeners again and again keep no sender from writing to files what laggards
    have not read."""
    laggard, sender = connect(tiny), connect(tiny)
    fall_behind(laggard)
    for number in range(3):  # large ones, whose files are looked through
        sender.execute(f"SELECT count(pg_notify('c', '{number} ' || n || '{KILOBYTES_7}')) FROM generate_series(1, 30) n")
    readers = [wire(tiny) for _ in range(8)]
    for reader in readers:
        reader.send(("Q", cstring("DO $$ BEGIN LOOP PERFORM count(*) FROM herald.get_listeners(); END LOOP; END $$")))
    try:
        longest = 0.0
        for number in range(150):  # two rings full
            began = time.monotonic()
            notify(sender, "c", f"{number} {KILOBYTES_7}")
            longest = max(longest, time.monotonic() - began)
        assert longest < 2, f"{longest:.1f} s"
    finally:
        for reader in readers:
            reader.cancel()
        for reader in readers:
            assert error(reader.until_ready()).startswith("57014")


MANY_LISTENS = "DO $$ BEGIN FOR n IN 1 .. 10000 LOOP EXECUTE format('LISTEN very_many_%s', n); END LOOP; END $$"
MANY_UNLISTENS = "DO $$ BEGIN FOR n IN 1 .. {} LOOP UNLISTEN *; END LOOP; END $$"


@pytest.mark.parametrize("before, within", [
    ((), (MANY_LISTENS, MANY_UNLISTENS.format(3000))),
    ((MANY_LISTENS, "UNLISTEN *"), (MANY_UNLISTENS.format(60000),)),  # it listens to nothing any more
    ((MANY_LISTENS, "UNLISTEN *; LISTEN one"), (MANY_UNLISTENS.format(60000),)),
], ids=["in one transaction", "no channel left", "one channel left"])
def test_very_many_listens_and_unlistens(cluster, connect, wire, before, within):
    """Guards: very many LISTEN and UNLISTEN * beside a NOTIFY, which the server goes through at the commit (from 19
    on), keep others' notifications waiting no longer than another; the NOTIFY arrives once."""
    listener, sender, session = wire(cluster), connect(cluster), connect(cluster)
    listener.query("LISTEN d")
    for statement in (*before, "BEGIN", *within, "LISTEN last; NOTIFY last, 'own'"):
        session.execute(statement)
    heard, took = heard_meanwhile(session, "COMMIT", sender, listener)
    assert hear(session, 1) == ["own"]
    notify(sender, "last", "next")
    assert hear(session, 1) == ["next"]
    assert heard < 0.1 or heard < took / 4, f"heard after {heard:.2f} s, the other's commit took {took:.2f} s"


NATIVE = "SET herald.enabled = off"
NATIVE_MEGABYTES = 200
LONG = "x" * 9000


def test_listen_and_notify_behind_the_servers_queue(cluster, connect, wire):
    """Guards: a transaction that begins to listen and notifies, while the server's own queue is full of what
    somebody has sent past pg_herald, keeps others' notifications waiting no longer than another."""
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
    commits, heard = [], []
    for _ in range(5):
        with connect(cluster, "full_of_native") as beginner:
            times = heard_meanwhile(beginner, "BEGIN; LISTEN q; NOTIFY q, 'own'; COMMIT", sender, listener)
            heard.append(times[0])
            commits.append(times[1])
            assert hear(beginner, 1) == ["own"]
        until(lambda: one(sender, "SELECT count(*) FROM pg_stat_activity WHERE datname = 'full_of_native'") == 2,
              "it has gone: the next one begins where the laggard is")
    laggard.close()
    flooder.close()
    cluster.psql("DROP DATABASE full_of_native WITH (FORCE)")
    if sender.info.server_version < 190000:  # from 19 on a listener is moved beyond what is not for it
        assert median(commits) > 0.06, "nothing was to be read"
    assert median(heard) < max(median(commits) / 4, 0.02), f"heard after {heard}, the others' commits took {commits}"


def test_both_ways_with_a_long_payload(connect):
    """Guards: what the server's own way cannot carry is not sent beside what it carries, in one transaction."""
    for cluster in started(preload=True, settings=SETTINGS | {"herald.max_payload": "20kB"}):
        listener, sender = connect(cluster), connect(cluster)
        listener.execute("LISTEN c")
        ways = [(NATIVE, "short"), ("RESET herald.enabled", LONG)]
        for order in (ways, ways[::-1]):
            sender.execute("BEGIN")
            for way, payload in order:
                sender.execute(way)
                sender.execute("SELECT pg_notify('c', %s)", (payload,))
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="own queue"):
                sender.execute("COMMIT")
        sender.execute("RESET herald.enabled")
        notify(sender, "c", "only this")
        assert hear(listener, 1) == ["only this"]


LARGE_OBJECTS = 60_000


def test_large_objects_left_open(cluster, connect, wire):
    """Guards: a transaction that notifies and leaves very many large objects open for the server to close, which takes
    long, keeps others' notifications waiting no longer than another."""
    listener, sender, opener = wire(cluster), connect(cluster), connect(cluster)
    listener.query("LISTEN d")
    number = one(opener, "SELECT lo_create(0)")
    opener.execute("BEGIN")
    opener.execute("SELECT count(lo_open(%s, 262144)) FROM generate_series(1, %s)", (number, LARGE_OBJECTS))
    opener.execute("NOTIFY x")
    heard, took = heard_meanwhile(opener, "COMMIT", sender, listener)
    opener.execute("SELECT lo_unlink(%s)", (number,))
    assert heard < 0.1 or heard < took / 4, f"heard after {heard:.2f} s, the other's commit took {took:.2f} s"


LOOPS = 40


def test_senders_in_a_loop(cluster, connect, wire):
    """Guards: many sessions that notify in a loop on the server do not keep others' notifications waiting until each
    of them has had the CPU."""
    listener, sender = wire(cluster), connect(cluster)
    listener.query("LISTEN d")
    senders = [wire(cluster) for _ in range(LOOPS)]
    for loop in senders:
        loop.send(("Q", cstring("DO 'BEGIN LOOP NOTIFY c; COMMIT; END LOOP; END'")))
    times = []
    for _ in range(60):
        began = time.monotonic()
        sender.execute("NOTIFY d")
        assert kinds([listener.receive()]) == "A"
        times.append(time.monotonic() - began)
    for loop in senders:
        loop.cancel()
        assert error(loop.until_ready()).startswith("57014")
    assert median(times) < 0.04, f"heard after {median(times) * 1000:.0f} ms, at most {max(times) * 1000:.0f} ms"


HOLDERS = 90
HELD = 400  # channels of each


@pytest.mark.parametrize("payloads", [1, 150], ids=["small transactions", "large ones"])
def test_senders_to_many_channels_with_many_listeners(cluster, connect, wire, payloads):
    """Guards: a sender of what takes longer to dispatch than to send waits for the dispatcher, so that others'
    notifications are not behind all that fits into the queue's memory."""
    listener, sender = wire(cluster), connect(cluster)
    listener.query("LISTEN d")
    for holder in (connect(cluster) for _ in range(HOLDERS)):
        holder.execute(listen_to("held", 0, HELD))
        holder.execute("BEGIN")
        holder.execute("SELECT 1")
    times = []
    channels = ",".join(f"held_{number}" for number in range(HELD))
    with load(cluster, f"SELECT count(pg_notify(c, n::text)) FROM generate_series(1, {payloads}) n,"
              f" unnest('{{{channels}}}'::text[]) c;", 4, "-Mprepared"):
        time.sleep(1)
        for _ in range(20):
            began = time.monotonic()
            sender.execute("NOTIFY d")
            assert kinds([listener.receive()]) == "A"
            times.append(time.monotonic() - began)
    assert median(times) < 0.1, f"heard after {median(times) * 1000:.0f} ms, at most {max(times) * 1000:.0f} ms"
