"""Parallel queries that notify, that run in a listener, and whose workers notify; each on a stock server as well."""

import re
import threading

import psycopg
import pytest

from harness.cluster import Cluster
from support import hear, hear_until, notify, one, outcome

pytestmark = pytest.mark.seam

# Functions that notify although they are declared safe to run in a worker.
FUNCTIONS = """
    CREATE OR REPLACE FUNCTION worker_function(i integer) RETURNS integer LANGUAGE plpgsql PARALLEL SAFE AS
        $$ BEGIN PERFORM pg_notify('c', i::text); RETURN i; END $$;
    CREATE OR REPLACE FUNCTION worker_expression(i integer) RETURNS integer LANGUAGE plpgsql PARALLEL SAFE AS
        $$ DECLARE nothing text; BEGIN nothing := pg_notify('c', i::text); RETURN i; END $$;
    CREATE OR REPLACE FUNCTION worker_notify(i integer) RETURNS integer LANGUAGE plpgsql PARALLEL SAFE AS
        $$ BEGIN NOTIFY c, 'x'; RETURN i; END $$;
    CREATE OR REPLACE FUNCTION worker_listen(i integer) RETURNS integer LANGUAGE plpgsql PARALLEL SAFE AS
        $$ BEGIN LISTEN c; RETURN i; END $$;
    CREATE OR REPLACE FUNCTION worker_unlisten(i integer) RETURNS integer LANGUAGE plpgsql PARALLEL SAFE AS
        $$ BEGIN UNLISTEN c; RETURN i; END $$;
    CREATE OR REPLACE FUNCTION worker_usage(i integer) RETURNS float8 LANGUAGE sql PARALLEL SAFE AS
        $$ SELECT pg_notification_queue_usage() + i - i $$;
    CREATE OR REPLACE FUNCTION worker_channels(i integer) RETURNS bigint LANGUAGE plpgsql PARALLEL SAFE AS
        $$ BEGIN RETURN count(*) + i - i FROM pg_listening_channels(); END $$"""
WORKERS_ONLY = "SET parallel_leader_participation = off"


@pytest.fixture
def parallel(connect):
    """parallel(cluster): a session that plans two workers for every query that allows them."""
    def open_one(cluster: Cluster) -> psycopg.Connection:
        connection = connect(cluster)
        version = int(one(connection, "SHOW server_version_num"))
        force = "debug_parallel_query" if version >= 160000 else "force_parallel_mode"
        connection.execute("CREATE TABLE IF NOT EXISTS big AS SELECT i FROM generate_series(1, 20000) i;"
                           f"ANALYZE big; SET {force} = on; SET parallel_setup_cost = 0;"
                           "SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;"
                           "SET max_parallel_workers_per_gather = 2")
        return connection

    return open_one


def workers(connection: psycopg.Connection, sql: str) -> int:
    """The number of workers launched for a query."""
    plan = "\n".join(row[0] for row in connection.execute(f"EXPLAIN (ANALYZE) {sql}").fetchall())
    return sum(int(count) for count in re.findall(r"Workers Launched: (\d+)", plan))


@pytest.mark.parametrize("sql", [
    "SELECT pg_notify('c', i::text) FROM big WHERE i % 400 = 0",
    "SELECT count(pg_notify('c', i::text)) FROM big WHERE i <= 50",
    "SELECT count(*) FROM (SELECT pg_notify('c', (i % 50)::text) FROM big WHERE i < 200 OFFSET 0) s",
    "SELECT pg_notify('c', (SELECT max(i)::text FROM big))",
    "SELECT pg_notify('c', count(*)::text) FROM big a JOIN big b USING (i)",
    "WITH sent AS MATERIALIZED (SELECT pg_notify('c', i::text) FROM big WHERE i % 1000 = 0)"
    " SELECT count(*) FROM sent",
    "SELECT count(*) FROM big WHERE i < 30 AND pg_notify('c', i::text) IS NOT NULL",
    "SELECT i % 3, pg_notify('c', count(*)::text) FROM big GROUP BY 1 ORDER BY 1",
])
def test_sent_in_a_parallel_query(both, connect, parallel, sql):
    """Guards: a query that notifies has the same plan, result and notifications as on stock."""
    def send(cluster: Cluster) -> tuple:
        listener, sender = connect(cluster), parallel(cluster)
        listener.execute("LISTEN c")
        plan = sender.execute(f"EXPLAIN (VERBOSE) {sql}").fetchall()
        result = outcome(sender, sql)
        notify(sender, "c", "end")
        return [row[0].replace("pg_herald_notify", "pg_notify") for row in plan], result, \
            sorted(hear_until(listener, "end"))

    plan, _, heard = both(send)
    assert heard
    assert any("Gather" in line for line in plan) != ("AND pg_notify" in sql)  # such a filter runs in the leader


@pytest.mark.parametrize("function, expected", [
    ("worker_function", "XX000: cannot send notifications from a parallel worker"),
    ("worker_expression", "XX000: cannot send notifications from a parallel worker"),
    ("worker_notify", "25000: cannot execute NOTIFY during a parallel operation"),
    ("worker_listen", "25000: cannot execute LISTEN during a parallel operation"),
    ("worker_unlisten", "25000: cannot execute UNLISTEN during a parallel operation"),
    ("worker_usage", [(0.0,)]),
    ("worker_channels", [(0,)]),
])
def test_functions_in_workers(both, connect, parallel, function, expected):
    """Guards: what is forbidden in a worker fails as on stock and leaves nothing behind; the session remains usable."""
    def run(cluster: Cluster) -> tuple:
        listener, sender = connect(cluster), parallel(cluster)
        sender.execute(FUNCTIONS)
        sender.execute(WORKERS_ONLY)
        listener.execute("LISTEN c")
        result = outcome(sender, f"SELECT min({function}(i)) FROM big WHERE i < 10")
        after = [outcome(sender, sql) for sql in ("LISTEN d", "SELECT * FROM pg_listening_channels()",
                                                  "NOTIFY d, 'own'", "NOTIFY c, 'end'")]
        return result, after, hear(sender, 1), hear_until(listener, "end")

    result, after, own, heard = both(run)
    assert result == expected
    assert after == [None, [("d",)], None, None] and own == ["own"] and heard == []


def test_leader_that_listens(both, connect, parallel):
    """Guards: a listener that runs parallel queries receives each notification once, in order, and its queries have
    their workers and correct results."""
    def run(cluster: Cluster) -> list[str]:
        leader, sender = parallel(cluster), connect(cluster)
        query = "SELECT count(*), sum(i) FROM big"
        leader.execute("LISTEN c")
        assert workers(leader, query) > 0
        sending = threading.Thread(target=notify, args=(sender, "c", *map(str, range(300))))
        sending.start()
        rounds = 0
        while sending.is_alive() or rounds < 20:
            assert leader.execute(query).fetchall() == [(20000, 200010000)]
            rounds += 1
        sending.join()
        return hear(leader, 300)

    assert both(run) == [str(number) for number in range(300)]


def test_leader_hears_after_the_query(both, parallel, connect):
    """Guards: a notification sent between two parallel queries of a transaction is delivered after the transaction."""
    def run(cluster: Cluster) -> list[str]:
        leader, sender = parallel(cluster), connect(cluster)
        leader.execute("LISTEN c")
        with leader.transaction():
            leader.execute("SELECT count(*) FROM big")
            notify(sender, "c", "within")
            leader.execute("SELECT count(*) FROM big")
            heard = [f"too early: {word}" for word in hear(leader, 1, 0.05)]
        return heard + hear(leader, 1)

    assert both(run) == ["within"]
