"""Other activities of sessions that listen or notify; each on a stock server as well."""

import struct

import psycopg
import pytest

from harness.cluster import Cluster
from support import hear, hear_until, notify, one, outcome, reset
from wire import fatal, kinds, payloads

pytestmark = pytest.mark.seam


def heard_by_another(connect, cluster: Cluster, *statements: str) -> tuple:
    """The outcomes of the statements, and what another session and this session, which both listen, receive."""
    listener, sender = connect(cluster), connect(cluster)
    listener.execute("LISTEN c")
    sender.execute("LISTEN c")
    results = [outcome(sender, sql) for sql in statements]
    sender.execute("NOTIFY c, 'end'")
    return results, hear_until(listener, "end"), hear_until(sender, "end")


# ---- subtransactions ----

LOOP = """
    CREATE OR REPLACE PROCEDURE pg_temp.loop(rounds integer) LANGUAGE plpgsql AS $$
    BEGIN
        FOR i IN 1..rounds LOOP
            BEGIN
                PERFORM pg_notify('c', i::text);
                IF i % 5 = 0 THEN NOTIFY c, 'by statement'; END IF;
                IF i % 3 = 0 THEN RAISE division_by_zero; END IF;
            EXCEPTION WHEN division_by_zero THEN
                IF i % 2 = 0 THEN PERFORM pg_notify('c', 'caught ' || i); END IF;
            END;
        END LOOP;
    END $$"""


def test_ten_thousand_exception_blocks(both, connect):
    """Guards: of 10,000 subtransactions in a loop, those rolled back send nothing, the others all, in order."""
    _, heard, own = both(lambda cluster: heard_by_another(connect, cluster, LOOP, "CALL pg_temp.loop(10000)"))
    assert heard == own
    assert len(heard) == 6667 + 1 + 1666
    assert "9" not in heard and "caught 9" not in heard and "caught 12" in heard


def test_nested_exception_blocks(both, connect):
    """Guards: of exception blocks nested hundreds deep, only those not rolled back send their notifications."""
    def run(cluster: Cluster) -> tuple:
        return heard_by_another(
            connect, cluster,
            """CREATE OR REPLACE FUNCTION pg_temp.deeper(i integer) RETURNS integer LANGUAGE plpgsql AS $$
               BEGIN
                   PERFORM pg_notify('c', 'down ' || i);
                   IF i < 300 THEN PERFORM pg_temp.deeper(i + 1); END IF;
                   PERFORM pg_notify('c', 'up ' || i);
                   IF i % 100 = 50 THEN RAISE division_by_zero; END IF;
                   RETURN i;
               EXCEPTION WHEN division_by_zero THEN
                   PERFORM pg_notify('c', 'caught ' || i);
                   RETURN -i;
               END $$""", "SELECT pg_temp.deeper(1)")

    _, heard, _ = both(run)
    assert heard == [f"down {i}" for i in range(1, 50)] + ["caught 50"] + \
        [f"up {i}" for i in range(49, 0, -1)]


def test_savepoints_two_thousand_deep(both, connect):
    """Guards: with 2,000 savepoints open, rolling back to one in the middle and releasing another sends the same as on
    stock, also for duplicates across savepoints."""
    def run(cluster: Cluster) -> tuple:
        opened = [f"SAVEPOINT s{i}; NOTIFY c, '{i}'; NOTIFY c, 'of all'" for i in range(2000)]
        again = [f"SAVEPOINT t{i}; NOTIFY c, '{i}'" for i in range(400, 1200)]
        return heard_by_another(connect, cluster, "BEGIN", *opened, "ROLLBACK TO s500", *again,
                                "RELEASE s400", "NOTIFY c, '7'; NOTIFY c, 'last'", "COMMIT")

    _, heard, _ = both(run)
    assert heard == ["0", "of all"] + [str(i) for i in range(1, 1200)] + ["last"]


# ---- during other operations ----

def test_cursor_with_hold(both, connect):
    """Guards: a cursor WITH HOLD that notifies sends all of it, once, when its transaction commits; a listener that
    keeps one open receives notifications, and can fetch more rows."""
    def run(cluster: Cluster) -> tuple:
        return heard_by_another(
            connect, cluster, "BEGIN",
            "DECLARE held CURSOR WITH HOLD FOR"
            " SELECT i, pg_notify('c', i::text) FROM generate_series(1, 20) i",
            "FETCH 2 FROM held", "NOTIFY c, 'statement'", "COMMIT", "FETCH 2 FROM held", "NOTIFY c, 'second'",
            "FETCH LAST FROM held", "CLOSE held")

    results, heard, own = both(run)
    assert results[2] == [(1, ""), (2, "")] and results[5] == [(3, ""), (4, "")] and results[7] == [(20, "")]
    assert heard == own == ["1", "2", "statement"] + [str(i) for i in range(3, 21)] + ["second"]


def test_large_objects(both, connect):
    """Guards: notifications between reads and writes of a large object arrive at the end of the transaction."""
    def run(cluster: Cluster) -> tuple:
        return heard_by_another(
            connect, cluster, "SELECT lo_create(4711)", "BEGIN", "SELECT lo_open(4711, 131072 + 262144)",
            "SELECT lowrite(0, repeat('x', 100000)::bytea), pg_notify('c', 'written')", "NOTIFY c, 'more'",
            "SELECT lo_lseek64(0, 0, 0)", "SELECT length(loread(0, 200000)), pg_notify('c', 'read')",
            "COMMIT", "SELECT lo_unlink(4711), pg_notify('c', 'gone')")

    results, heard, _ = both(run)
    assert results[6] == [(100000, "")] and heard == ["written", "more", "read", "gone"]


def test_copy_in_by_a_listener(both, connect, wire):
    """Guards: a listener receives notifications that are sent during COPY FROM after it, not within."""
    def run(cluster: Cluster) -> tuple:
        client, sender = wire(cluster), connect(cluster)
        client.query("LISTEN c; CREATE TEMP TABLE copied (i integer)")
        client.send(("Q", b"COPY copied FROM STDIN\0"))
        assert client.receive()[0] == "G"
        for number in range(10):
            client.send(("d", f"{number}\n".encode()))
            notify(sender, "c", str(number))
        client.send(("c", b""))
        messages = client.until_ready()
        return kinds(messages), payloads(messages), kinds(client.query("SELECT count(*) FROM copied"))

    messages, heard, _ = both(run)
    assert messages == "C" + "A" * 10 + "Z" and heard == [str(number) for number in range(10)]


def test_copy_out_by_a_listener(both, connect, wire):
    """Guards: a listener receives notifications that are sent during COPY TO after its data, not in between."""
    def run(cluster: Cluster) -> tuple:
        client, sender = wire(cluster), connect(cluster)
        client.query("LISTEN c")
        client.send(("Q", b"COPY (SELECT i, repeat('x', 1000) FROM generate_series(1, 20000) i) TO STDOUT\0"))
        assert client.receive()[0] == "H"
        # COPY is far from its end: the server waits until the client reads.
        notify(sender, "c", *map(str, range(10)))
        messages = client.until_ready()
        return kinds(messages).lstrip("d"), payloads(messages)

    assert both(run) == ("cC" + "A" * 10 + "Z", [str(number) for number in range(10)])


def test_copy_that_notifies(both, connect):
    """Guards: COPY FROM into a table whose trigger notifies, and COPY TO of a query that notifies."""
    def run(cluster: Cluster) -> tuple:
        listener, sender = connect(cluster), connect(cluster)
        listener.execute("LISTEN c")
        sender.execute("""
            CREATE TEMP TABLE copied (i integer);
            CREATE OR REPLACE FUNCTION pg_temp.tell() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN PERFORM pg_notify('c', NEW.i::text); RETURN NEW; END $$;
            CREATE TRIGGER tell AFTER INSERT ON copied FOR EACH ROW EXECUTE FUNCTION pg_temp.tell()""")
        with sender.cursor().copy("COPY copied FROM STDIN") as copy:
            for number in range(500):
                copy.write_row((number,))
        query = "SELECT pg_notify('c', 'out ' || i) FROM copied WHERE i < 5"
        with sender.cursor().copy(f"COPY ({query}) TO STDOUT") as copy:
            rows = len(list(copy.rows()))
        sender.execute("NOTIFY c, 'end'")
        return rows, hear_until(listener, "end")

    rows, heard = both(run)
    assert rows == 5 and heard == [str(i) for i in range(500)] + [f"out {i}" for i in range(5)]


def call_with_integers(function: int, *arguments: int) -> tuple[str, bytes]:
    """A FunctionCall message (fast path) with binary integer arguments and a binary result."""
    body = struct.pack("!IHHH", function, 1, 1, len(arguments))
    for argument in arguments:
        body += struct.pack("!II", 4, argument)
    return "F", body + struct.pack("!H", 1)


def test_fast_path_of_others(both, connect, wire):
    """Guards: a listener that calls functions by the fast path, as libpq does for large objects, receives as usual."""
    def run(cluster: Cluster) -> list:
        client, sender = wire(cluster), connect(cluster)
        oid = one(sender, "SELECT 'int4pl(int, int)'::regprocedure::oid")
        client.query("LISTEN c")
        got = []
        for number in range(5):
            client.send(call_with_integers(oid, number, 1))
            messages = client.until_ready()
            notify(sender, "c", str(number))
            got.append((kinds(messages), messages[0][1], payloads([client.receive()])))
        client.query("BEGIN")
        client.send(call_with_integers(oid, 1, 1))
        client.until_ready()
        notify(sender, "c", "within")
        return got + [payloads(client.query("COMMIT"))]

    assert both(run) == [("VZ", struct.pack("!II", 4, number + 1), [str(number)]) for number in range(5)] \
        + [["within"]]


# ---- LISTEN from code ----

def function(body: str, options: str = "LANGUAGE plpgsql", name: str = "f") -> str:
    """CREATE FUNCTION f(i integer), or another name."""
    return f"CREATE OR REPLACE FUNCTION pg_temp.{name}(i integer) RETURNS integer {options} AS $f$ {body} $f$"


def procedure(body: str) -> str:
    """CREATE PROCEDURE p()."""
    return f"CREATE OR REPLACE PROCEDURE pg_temp.p() LANGUAGE plpgsql AS $$ BEGIN {body}; END $$"


TABLE = "CREATE TEMP TABLE t AS SELECT 1 AS i"
WAYS_TO_LISTEN = {
    "execute in a function": [function("BEGIN EXECUTE 'LISTEN d'; RETURN i; END"), "SELECT pg_temp.f(1)"],
    "function": [function("BEGIN LISTEN d; RETURN i; END"), "SELECT pg_temp.f(1)"],
    "sql function": [function("LISTEN d; SELECT i", "LANGUAGE sql"), "SELECT pg_temp.f(1)"],
    "security definer": [function("BEGIN LISTEN d; RETURN i; END", "LANGUAGE plpgsql SECURITY DEFINER"),
                         "SELECT pg_temp.f(1)"],
    "security restricted": [TABLE, function("BEGIN LISTEN d; RETURN i; END", name="g"),
                            function("SELECT pg_temp.g(i)", "LANGUAGE sql IMMUTABLE"),
                            "CREATE INDEX ON t (pg_temp.f(i))"],
    "security restricted, notify": [TABLE, function("SELECT pg_notify('c', 'of an index'); SELECT i",
                                                    "LANGUAGE sql IMMUTABLE"),
                                    "CREATE INDEX ON t (pg_temp.f(i))"],
    "explain": [function("BEGIN LISTEN d; PERFORM pg_notify('d', 'explained'); RETURN i; END"),
                "EXPLAIN (ANALYZE, BUFFERS OFF, COSTS OFF, TIMING OFF, SUMMARY OFF) SELECT pg_temp.f(1)"],
    "do": ["DO $$ BEGIN LISTEN d; END $$"],
    "do, rolled back": ["DO $$ BEGIN LISTEN d; RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN"
                        " NULL; END $$"],
    "do, unlisten": ["LISTEN d", "DO $$ BEGIN UNLISTEN d; END $$"],
    "procedure": [procedure("LISTEN d; COMMIT; PERFORM pg_notify('d', 'by itself'); COMMIT; LISTEN e;"
                            " ROLLBACK; UNLISTEN c; COMMIT; NOTIFY c, 'not heard'"), "CALL pg_temp.p()"],
    "procedure that fails": [procedure("LISTEN d; COMMIT; UNLISTEN d; PERFORM 1 / 0"), "CALL pg_temp.p()"],
    "a query that does nothing": ["WITH x AS (SELECT pg_notify('d', 'not heard')) SELECT 1", "LISTEN d"],
}


@pytest.mark.parametrize("way", WAYS_TO_LISTEN)
def test_listen_from_code(both, connect, way):
    """Guards: LISTEN and UNLISTEN in functions, blocks and procedures have the same effect as on stock."""
    def run(cluster: Cluster) -> tuple:
        listener, sender = connect(cluster), connect(cluster)
        listener.execute("LISTEN c")
        results = [outcome(listener, sql) for sql in WAYS_TO_LISTEN[way]]
        channels = listener.execute("SELECT * FROM pg_listening_channels() ORDER BY 1").fetchall()
        notify(sender, "d", "on d")
        notify(sender, "e", "on e")
        notify(sender, "c", "on c")
        listener.execute("LISTEN last")
        notify(sender, "last", "end")
        return results, channels, hear_until(listener, "end")

    assert both(run)[2]


# ---- time limits ----

LIMITS = {
    "statement_timeout": ("SET statement_timeout = '150ms'", "SELECT pg_sleep(30)"),
    "lock_timeout": ("SET lock_timeout = '150ms'", "SELECT pg_advisory_lock(77)"),
    "both": ("SET lock_timeout = '150ms'; SET statement_timeout = '10s'", "SELECT pg_advisory_lock(77)"),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_statement_limits(both, connect, limit):
    """Guards: a time limit cancels a listener's statement as on stock, although notifications come in; none of them
    is lost."""
    def run(cluster: Cluster) -> tuple:
        listener, sender, gate = connect(cluster), connect(cluster), connect(cluster)
        gate.execute("SELECT pg_advisory_lock(77)")
        listener.execute("LISTEN c")
        listener.execute(LIMITS[limit][0])
        results = []
        for number in range(2):
            notify(sender, "c", f"before {number}")
            results.append(outcome(listener, LIMITS[limit][1]))
            notify(sender, "c", f"after {number}")
        return results, hear(listener, 4)

    results, heard = both(run)
    assert len(set(results)) == 1 and "due to" in results[0]
    assert heard == ["before 0", "after 0", "before 1", "after 1"]


def test_statement_timeout_between_statements(both, connect):
    """Guards: a listener that is idle for longer than statement_timeout, and receives, is not cut off."""
    def run(cluster: Cluster) -> tuple:
        listener, sender = connect(cluster), connect(cluster)
        listener.execute("LISTEN c")
        listener.execute("SET statement_timeout = '500ms'")
        for number in range(30):
            notify(sender, "c", str(number))
            sender.execute("SELECT pg_sleep(0.02)")
        heard = hear(listener, 30)
        reset(listener, "statement_timeout")
        return heard, outcome(listener, "SELECT 1")

    assert both(run) == ([str(number) for number in range(30)], [(1,)])


def notified_until_gone(sender: psycopg.Connection, pid: int) -> bool:
    """Notifies c every 20 ms until that backend is gone, up to 1000 times; True if it is gone."""
    for _ in range(1000):
        notify(sender, "c", "x")
        if one(sender, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = %s", pid):
            return True
        sender.execute("SELECT pg_sleep(0.02)")
    return False


@pytest.mark.parametrize("limit, begin, message, hears", [
    ("idle_in_transaction_session_timeout", "BEGIN; SELECT 1",
     "terminating connection due to idle-in-transaction timeout", False),
    ("idle_session_timeout", "SELECT 1", "terminating connection due to idle-session timeout", True),
])
def test_idle_limits(both, connect, wire, limit, begin, message, hears):
    """Guards: a listener that sends nothing is idle, even while it receives notifications: the limit ends it."""
    def run(cluster: Cluster) -> tuple:
        sender = connect(cluster)
        for _ in range(5):  # the client may have had no CPU before the limit ended it
            client = wire(cluster)
            client.query(f"LISTEN c; SET {limit} = '1s'; {begin}")
            gone = notified_until_gone(sender, client.pid)
            messages = client.until_ready()
            if ("x" in payloads(messages)) == hears:
                break
        return gone, fatal(messages), "x" in payloads(messages)

    assert both(run) == (True, message, hears)


def test_client_connection_check(both, connect, wire):
    """Guards: if a listener's client disconnects, its running statement soon ends, although notifications come in."""
    def run(cluster: Cluster) -> bool:
        client, sender = wire(cluster), connect(cluster)
        client.query("LISTEN c; SET client_connection_check_interval = '50ms'")
        client.send(("Q", b"SELECT pg_sleep(300)\0"))
        notify(sender, "c", "x")
        client.close()
        return notified_until_gone(sender, client.pid)

    assert both(run)
