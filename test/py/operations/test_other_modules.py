"""pg_stat_statements, auto_explain and pgaudit together with pg_herald, in either order; and where its names appear."""

import re

import pytest

from harness.cluster import Cluster
from servers import SETTINGS, need_library, started
from support import hear, hear_until, notify, one, outcome

pytestmark = pytest.mark.seam

TRACKING = SETTINGS | {"pg_stat_statements.track": "all", "pg_stat_statements.track_planning": True,
                       "auto_explain.log_min_duration": 0, "auto_explain.log_nested_statements": True}
TRACKERS = "pg_stat_statements, auto_explain"


def with_trackers(libraries: str):
    """Yields a cluster with these libraries, and the view pg_stat_statements."""
    need_library(*TRACKERS.split(", "))
    for cluster in started(preload="pg_herald" in libraries,
                           settings=TRACKING | {"shared_preload_libraries": libraries}):
        cluster.psql("CREATE EXTENSION pg_stat_statements")
        yield cluster


@pytest.fixture(scope="module")
def wrapped():
    """A cluster with the recommended order: modules that track statements wrap pg_herald."""
    yield from with_trackers(f"pg_herald, {TRACKERS}")


@pytest.fixture(scope="module")
def wrapping():
    """A cluster with the other order: pg_herald wraps modules that track statements."""
    yield from with_trackers(f"{TRACKERS}, pg_herald")


@pytest.fixture(scope="module")
def alone():
    """A cluster with the server's own modules, without pg_herald."""
    yield from with_trackers(TRACKERS)


PREPARATIONS = """
    CREATE TABLE IF NOT EXISTS watched (i integer);
    CREATE OR REPLACE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_notify('c', NEW.i::text); NOTIFY c, 'of a trigger'; RETURN NEW; END $$;
    CREATE OR REPLACE TRIGGER tell AFTER INSERT ON watched FOR EACH ROW EXECUTE FUNCTION tell();
    CREATE OR REPLACE FUNCTION inlined(text) RETURNS void LANGUAGE sql AS $$ SELECT pg_notify('c', $1) $$;
    CREATE OR REPLACE PROCEDURE steps() LANGUAGE plpgsql AS
        $$ BEGIN NOTIFY c, '1'; COMMIT; PERFORM pg_notify('c', '2'); END $$"""
STATEMENTS = [
    "LISTEN c", "NOTIFY c", "NOTIFY c, 'x'", "NOTIFY c, 'x'", "NOTIFY c, 'y'",
    "SELECT pg_notify('c', '1')", "SELECT pg_notify('c', '2')",
    "SELECT pg_notify('c', i::text) FROM generate_series(1, 10) i",
    "SELECT pg_notification_queue_usage() >= 0", "SELECT inlined('3')", "CALL steps()",
    "INSERT INTO watched VALUES (1), (2)", "DO $$ BEGIN PERFORM pg_notify('c', '4'); END $$",
    "PREPARE send(text) AS SELECT pg_notify('c', $1)", "EXECUTE send('5')", "EXECUTE send('6')",
    "BEGIN", "NOTIFY c, 'rolled back'", "ROLLBACK", "EXPLAIN SELECT pg_notify('c', 'not heard')",
    "SELECT pg_notify('', 'an error')", "NOTIFY d, 'not heard'", "UNLISTEN d", "UNLISTEN *", "DISCARD ALL",
]
STATISTICS = """
    SELECT query, toplevel, calls, rows, plans FROM pg_stat_statements
    WHERE query !~ 'pg_stat_statements' ORDER BY query COLLATE "C", toplevel, calls, rows, plans"""


def explained(log: str, pid: int) -> list[str]:
    """The plans that auto_explain has logged for that backend, without times."""
    entries = re.split(r"^\S+ \S+ \S+ \[(\d+)\] ", log, flags=re.MULTILINE)[1:]
    return [re.sub(r"duration: [0-9.]+ ms", "duration", text)
            for number, text in zip(entries[::2], entries[1::2]) if int(number) == pid and "plan:" in text]


def tracked(cluster: Cluster, connect) -> dict:
    """The outcomes of the statements, what a listener receives, and what the trackers record."""
    listener, sender = connect(cluster), connect(cluster)
    listener.execute("LISTEN c")
    sender.execute(PREPARATIONS)
    one(sender, "SELECT pg_stat_statements_reset()")
    log_before = len(cluster.log())
    outcomes = [outcome(sender, sql) for sql in STATEMENTS]
    for number in range(3):
        sender.execute("SELECT pg_notify(%s, %s)", ("c", f"parameter {number}"))
    plans = explained(cluster.log()[log_before:], sender.info.backend_pid)
    statistics = listener.execute(STATISTICS).fetchall()
    notify(sender, "c", "end")
    return {"outcomes": outcomes, "plans": plans, "statistics": statistics,
            "heard": hear_until(listener, "end")}


def test_trackers_that_wrap(wrapped, alone, connect):
    """Guards: in the recommended order trackers record what they record on stock: statements, rows, plans."""
    expected = tracked(alone, connect)
    assert tracked(wrapped, connect) == expected
    calls = [(query, calls) for query, toplevel, calls, _, _ in expected["statistics"] if toplevel]
    assert ("NOTIFY c, 'x'", 2) in calls
    assert ("SELECT pg_notify($1, $2)", 2) in calls and ("SELECT pg_notify($1, $2)", 3) in calls
    assert any("pg_notify('c', NEW.i::text)" in plan for plan in expected["plans"])


@pytest.mark.parametrize("enabled", ["on", "off"])
def test_trackers_that_are_wrapped(wrapping, alone, connect, enabled):
    """Guards: in the other order NOTIFY statements are not tracked, and nothing else differs; also in sessions with
    herald.enabled off."""
    expected = tracked(alone, connect)
    expected["statistics"] = [row for row in expected["statistics"] if not row[0].startswith("NOTIFY")]
    wrapping.psql(f"ALTER DATABASE postgres SET herald.enabled = {enabled}")
    try:
        assert tracked(wrapping, connect) == expected
    finally:
        wrapping.psql("ALTER DATABASE postgres RESET herald.enabled")


def audited(libraries: str, connect) -> list[str]:
    """The audit log of the statements, in a cluster with these libraries."""
    need_library("pgaudit")
    settings = SETTINGS | {"shared_preload_libraries": libraries, "pgaudit.log": "all", "pgaudit.log_catalog": False}
    for cluster in started(preload="pg_herald" in libraries, settings=settings):
        sender = connect(cluster)
        sender.execute(PREPARATIONS)
        log_before = len(cluster.log())
        for sql in STATEMENTS:
            outcome(sender, sql)
        return re.findall(r"AUDIT: SESSION,\d+,\d+,(.*)", cluster.log()[log_before:])
    raise AssertionError("no cluster was started")


def test_audit(connect):
    """Guards: loaded after pg_herald, pgaudit logs what it logs on stock; loaded before it, everything but NOTIFY
    statements."""
    stock = audited("pgaudit", connect)
    assert sum("NOTIFY" in line.split(",") for line in stock) > 5
    for libraries, expected in (("pg_herald, pgaudit", stock),
                                ("pgaudit, pg_herald", [line for line in stock if "NOTIFY" not in line.split(",")])):
        assert audited(libraries, connect) == expected


def test_jit(both, connect):
    """Guards: a JIT-compiled plan, with our functions inlined where possible, notifies as on stock."""
    def run(cluster: Cluster) -> tuple:
        listener, sender = connect(cluster), connect(cluster)
        if not one(sender, "SELECT pg_jit_available()"):
            pytest.skip("this server cannot compile plans")
        sender.execute("SET jit = on; SET jit_above_cost = 0; SET jit_inline_above_cost = 0;"
                       "SET jit_optimize_above_cost = 0")
        listener.execute("LISTEN c")
        query = "SELECT pg_notify('c', i::text), pg_notification_queue_usage() >= 0" \
                " FROM generate_series(1, 5) i"
        plan = "\n".join(row[0] for row in sender.execute(f"EXPLAIN (ANALYZE) {query}"))
        results = sender.execute(query).fetchall()
        return "Inlining true" in plan, results, hear(listener, 10)

    compiled, results, heard = both(run)
    assert compiled and results == [("", True)] * 5 and heard == ["1", "2", "3", "4", "5"] * 2


def test_what_shows_through(cluster, stock, connect):
    """Guards: plans that show function names, and statistics of functions, show our function; on stock plans show the
    built-in one, which the statistics do not count."""
    plans, counted = [], []
    for server in (cluster, stock):
        session = connect(server)
        session.execute("SET track_functions = 'all'")
        plan = session.execute("EXPLAIN (VERBOSE, COSTS OFF) SELECT pg_notify('c', 'x')").fetchall()
        plans.append(plan[1][0].strip())
        session.execute("SELECT pg_notify('c', 'x')")
        session.execute("SELECT pg_stat_force_next_flush()")
        counted.append(session.execute("SELECT schemaname, funcname FROM pg_stat_user_functions"
                                       " WHERE funcname LIKE '%notify'").fetchall())
    assert plans == ["Output: pg_herald_notify('c'::text, 'x'::text)",
                     "Output: pg_notify('c'::text, 'x'::text)"]
    assert counted == [[("pg_catalog", "pg_herald_notify")], []]
