"""Session caches and the rest of the server: slow commits, standbys, several databases, memory, and an extension that
is dropped and created."""

import threading
from contextlib import contextmanager

import psycopg
import pytest

from cache_scene import found
from caching import FLOOD, ITEM, LOOK
from harness.standby import Standby
from servers import SETTINGS, started
from slow_commits import SLOW
from support import one, outcome, reset, until, wait_event

FIGURES = "SELECT hits, misses FROM herald.caches WHERE pid = pg_backend_pid()"


@pytest.fixture(scope="module")
def caching():
    """A server with a cached table; commits can hang."""
    for cluster in started(preload=True, caches=True, settings=SETTINGS | SLOW):
        cluster.psql(ITEM + FLOOD)
        yield cluster


@pytest.fixture
def session(caching, connect):
    """A session that caches."""
    session = connect(caching)
    session.execute("UPDATE item SET v = 0")
    return session


@pytest.fixture
def other(caching, connect):
    """A session that makes changes."""
    return connect(caching)


# ---- a commit that takes long ----

@contextmanager
def hanging_commit(watcher: psycopg.Connection, connection: psycopg.Connection, statement: str):
    """Within the block, the commit of a statement in `connection` is durable, but not visible yet."""
    def commit():
        connection.execute("SET synchronous_commit = on")
        connection.execute(statement)

    committing = threading.Thread(target=commit)
    committing.start()
    try:
        until(lambda: wait_event(watcher, connection.info.backend_pid) == "SyncRep", "the commit waits")
        yield
    finally:
        watcher.execute("SELECT pg_cancel_backend(%s)", (connection.info.backend_pid,))
        committing.join()
        connection.execute("RESET synchronous_commit")


@pytest.mark.seam
def test_overrun_while_a_commit_takes_long(caching, connect, session, other):
    """Guards: while a commit waits, its invalidations are already in the queue; a session that is overrun meanwhile,
    and begins to read only behind them, does not keep the old value. (test_commit_waits_for_a_standby covers sessions
    that are not overrun.)"""
    watcher = connect(caching)
    assert one(session, LOOK) == "0"
    with hanging_commit(watcher, other, "UPDATE item SET v = 1 WHERE id = 1"):
        session.execute("BEGIN; SELECT 1")
        watcher.execute("CALL flood(20, 1000)")
        session.execute("COMMIT")
        for _ in range(3):
            assert one(session, LOOK) == "0"
    for _ in range(3):
        assert one(session, LOOK) == "1"
    assert one(watcher, "SELECT resets FROM herald.caches WHERE pid = %s", session.info.backend_pid) == 1


@pytest.mark.seam
def test_truncate_under_an_older_snapshot(caching, connect, session, other):
    """Guards: a truncated table looks empty to older snapshots as well; so does the cache, although what is found with
    these snapshots must not be kept."""
    watcher, truncating = connect(caching), connect(caching)
    other.execute("""
        DROP TABLE IF EXISTS emptied;
        CREATE TABLE emptied AS SELECT 1 AS v;
        SELECT herald.cache_watch('emptied', 'emptied')""")
    session.execute("PREPARE look AS SELECT herald.cache_through('emptied', 'SELECT v FROM emptied'),"
                    " (SELECT v FROM emptied)")
    with hanging_commit(watcher, other,
                        "UPDATE item SET v = 0; SELECT herald.cache_clear('emptied')"):
        assert session.execute("EXECUTE look").fetchone() == ("1", 1)
        truncating.execute("BEGIN; TRUNCATE emptied")
        looked = []
        looking = threading.Thread(target=lambda: looked.append(session.execute("EXECUTE look").fetchone()))
        looking.start()
        until(lambda: one(watcher, "SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s",
                          session.info.backend_pid) == "Lock", "it waits for the table, with its snapshot")
        truncating.execute("COMMIT")
        looking.join()
        assert looked == [(None, None)]


# ---- changes of a table ----

CHANGES = {
    "COPY": "COPY wide (id, v) FROM PROGRAM 'echo 1,copied' (FORMAT csv)",
    "ON CONFLICT": "INSERT INTO wide VALUES (0, 'x') ON CONFLICT (id) DO UPDATE SET id = 1, v = 'upserted'",
    "MERGE": "MERGE INTO wide USING (VALUES (0)) s(id) ON s.id = wide.id WHEN MATCHED THEN UPDATE SET id = 1",
    "foreign key": "UPDATE owner SET id = 1; UPDATE wide SET id = 1",
    "view": "INSERT INTO wide_view VALUES (1, 'by a view')",
    "partition": "UPDATE parted SET v = 'moved', region = 's'",
    "TRUNCATE of a partition": "TRUNCATE parted_n",
    "TRUNCATE CASCADE": "TRUNCATE owner CASCADE",
    "as a replica": "SET session_replication_role = replica; UPDATE wide SET v = 'replicated', id = 1;"
                    " RESET session_replication_role",
}


@pytest.mark.seam
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_changes_the_table(session, other, change):
    """Guards: every way to change rows fires the trigger, for the session itself and for others."""
    look = """
        SELECT herald.cache_through('wide', 'SELECT v || owner FROM wide WHERE id = $1', 1),
               (SELECT v || owner FROM wide WHERE id = 1),
               herald.cache_through('wide by owner', 'SELECT count(*) FROM wide WHERE owner = $1', 0),
               (SELECT count(*)::text FROM wide WHERE owner = 0),
               herald.cache_through('parted', 'SELECT v || region FROM parted WHERE id = $1', 1),
               (SELECT v || region FROM parted WHERE id = 1)"""
    for changer in (session, other):
        other.execute("""
            DROP TABLE IF EXISTS wide, owner, parted CASCADE;
            CREATE TABLE owner (id integer PRIMARY KEY);
            CREATE TABLE wide (id integer UNIQUE, v text,
                               owner integer DEFAULT 0 REFERENCES owner ON UPDATE CASCADE);
            CREATE TABLE parted (id integer, region text, v text) PARTITION BY LIST (region);
            CREATE TABLE parted_n PARTITION OF parted FOR VALUES IN ('n');
            CREATE TABLE parted_s PARTITION OF parted FOR VALUES IN ('s');
            CREATE VIEW wide_view AS SELECT id, v FROM wide;
            SELECT herald.cache_watch('wide', 'wide', 'id');
            SELECT herald.cache_watch('wide by owner', 'wide', 'owner');
            SELECT herald.cache_watch('parted', 'parted', 'id');
            INSERT INTO owner VALUES (0);
            INSERT INTO wide VALUES (0, 'x');
            INSERT INTO parted VALUES (1, 'n', 'first');
            SELECT herald.cache_clear(c) FROM (VALUES ('wide'), ('wide by owner'), ('parted')) _(c)""")
        before = [looks.execute(look).fetchone() for looks in (session, other)]
        assert before == [(None, None, "1", "1", "firstn", "firstn")] * 2
        changer.execute(change)
        for looks in (session, other):
            after = looks.execute(look).fetchone()
            assert after[::2] == after[1::2] and after != before[0]


# ---- queries ----

@pytest.mark.seam
def test_queries_within_queries(session, other):
    """Guards: a query that calls cache_through() for many other queries does not lose its own plan."""
    other.execute("""
        CREATE OR REPLACE FUNCTION many(count integer) RETURNS integer LANGUAGE plpgsql AS $$
            DECLARE
                total integer := 0;
            BEGIN
                FOR i IN 1..count LOOP
                    total := total + herald.cache_through('one', 'SELECT $1 - ' || i, 2 * i)::integer;
                END LOOP;
                RETURN total;
            END $$""")
    for count in (10, 70, 100, 200, 300, 400, 1000):
        query = f"SELECT many({count}) + (SELECT count(*)::integer FROM item)"
        assert one(session, "SELECT herald.cache_through('many', %s)", query) == str(count * (count + 1) // 2 + 2)
        session.execute("SELECT herald.cache_clear('one')")


@pytest.mark.seam
def test_query_that_sets_search_path(session):
    """Guards: a query that sets search_path itself, when the earlier value is large enough for its memory to be freed
    at once."""
    session.execute("""DO $do$ BEGIN
        PERFORM set_config('search_path',
                           (SELECT string_agg(repeat('s', 57) || i, ',') FROM generate_series(10001, 40000) i), false);
        PERFORM herald.cache_through('path', $$SELECT set_config('search_path', 'public', false)$$);
        END $do$""")
    assert one(session, "SHOW search_path") == "public"


@pytest.mark.seam
def test_trigger_with_too_many_arguments(session, other):
    """Guards: a trigger with more than 32,767 arguments, for which an older CREATE TRIGGER stored a negative number,
    and none of them."""
    session.execute("CREATE TABLE too_many (a int); CREATE TRIGGER t AFTER INSERT ON too_many"
                    " FOR EACH ROW EXECUTE FUNCTION herald.invalidate_cache('c', 'a')")
    session.execute("SET allow_system_table_mods = on")
    session.execute("UPDATE pg_trigger SET tgnargs = (40000 - 65536)::int2 WHERE tgrelid = 'too_many'::regclass")
    assert outcome(other, "INSERT INTO too_many VALUES (1)") == '22023: trigger "t" does not name a cache'
    session.execute("UPDATE pg_trigger SET tgnargs = 2 WHERE tgrelid = 'too_many'::regclass; DROP TABLE too_many")


@pytest.mark.seam
def test_query_that_fails(session):
    """Guards: a query that fails, or is cancelled, keeps nothing and harms nothing."""
    for number in range(200):
        assert outcome(session, f"SELECT herald.cache_through('e', 'SELECT {number} / 0')"
                       ) == "22012: division by zero"
    session.execute("SET statement_timeout = '20ms'")
    assert outcome(session, "SELECT herald.cache_through('e', 'SELECT pg_sleep(60)::text')"
                   ) == "57014: canceling statement due to statement timeout"
    reset(session, "statement_timeout")
    assert one(session, "SELECT entries FROM herald.caches WHERE pid = pg_backend_pid()") == 0


@pytest.mark.seam
def test_plan_follows_the_table(session, other):
    """Guards: after a change of the table's columns, or of search_path, the cached plan is made again."""
    other.execute("""
        DROP TABLE IF EXISTS moving; CREATE TABLE moving (v integer); INSERT INTO moving VALUES (7);
        DROP SCHEMA IF EXISTS beside CASCADE; CREATE SCHEMA beside;
        CREATE TABLE beside.moving AS SELECT 'beside' AS v""")
    look = "SELECT herald.cache_through('moving', 'SELECT v FROM moving')"
    assert one(session, look) == "7"
    other.execute("ALTER TABLE moving ALTER v TYPE numeric(4, 2); SELECT herald.cache_clear('moving')")
    assert one(session, look) == "7.00"
    session.execute("SET search_path = beside")
    assert one(session, look) == "beside"
    session.execute("RESET search_path")
    assert one(session, look) == "7.00"


@pytest.mark.seam
def test_caches_in_a_parallel_query(session, other):
    """Guards: within a parallel plan only the leader looks into its cache."""
    other.execute("DROP TABLE IF EXISTS many_rows; CREATE TABLE many_rows AS"
                  " SELECT n % 100 AS n FROM generate_series(1, 50000) n; ANALYZE many_rows")
    session.execute("SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;"
                    " SET min_parallel_table_scan_size = 0")
    query = ("SELECT n, herald.cache_through('parallel', 'SELECT $1 + 1000', n)"
             " FROM (SELECT n FROM many_rows GROUP BY n OFFSET 0) s")
    assert "Gather" in str(session.execute(f"EXPLAIN {query}").fetchall())
    rows = session.execute(query).fetchall()
    assert sorted(rows) == [(n, str(n + 1000)) for n in range(100)]
    assert one(session, "SELECT entries FROM herald.caches WHERE pid = pg_backend_pid()") >= 100


# ---- standby, databases, the extension ----

@pytest.mark.seam
def test_caches_on_a_standby(connect):
    """Guards: a standby has no caches, and computes each value; once it is promoted it caches, in old sessions too, and
    changes invalidate."""
    for primary in started(preload=True, caches=True, settings=SETTINGS | {"wal_retrieve_retry_interval": "100ms"}):
        primary.psql("""
            CREATE TABLE item (id integer PRIMARY KEY, v integer);
            INSERT INTO item VALUES (1, 0);
            SELECT herald.cache_watch('item', 'item', 'id')""")
        with Standby(primary) as standby:
            session, other = connect(standby), connect(standby)
            for version in range(3):
                primary.psql(f"UPDATE item SET v = {version}")
                until(lambda: one(session, "SELECT v FROM item") == version, "the standby has followed")
                assert one(session, LOOK) == str(version)
            assert outcome(session, "SELECT herald.cache_invalidate('item', 1)"
                           ) == "25006: cannot execute invalidating a cache during recovery"
            assert outcome(session, "SELECT herald.cache_clear('item')"
                           ) == "25006: cannot execute invalidating a cache during recovery"
            assert session.execute("SELECT * FROM herald.caches").fetchall() == []

            # A snapshot from before the promotion stays in use.
            other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            assert one(other, LOOK) == "2"
            assert one(session, "SELECT pg_promote()")
            # The server uses a snapshot of the standby again until a transaction ends.
            session.execute("SELECT pg_current_xact_id()")
            assert [one(session, LOOK), found(session, LOOK)] == ["2", True]
            assert [one(other, LOOK), found(other, LOOK)] == ["2", False]
            session.execute("UPDATE item SET v = 3")
            assert [one(session, LOOK), one(other, LOOK)] == ["3", "2"]
            other.execute("COMMIT")
            assert [one(other, LOOK), found(other, LOOK)] == ["3", True]
            other.execute("UPDATE item SET v = 4")
            assert [one(session, LOOK), one(other, LOOK)] == ["4", "4"]


@pytest.mark.seam
@pytest.mark.parametrize("encoding", ["UTF8", "SQL_ASCII"])
def test_databases_are_apart(caching, connect, session, encoding):
    """Guards: the same cache and key in another database is a different one; in any encoding, for any bytes."""
    session.execute(f"CREATE DATABASE apart ENCODING {encoding} TEMPLATE template0"
                    " LC_COLLATE 'C' LC_CTYPE 'C'")
    try:
        caching.create_herald("apart")
        there = connect(caching, "apart", client_encoding="UTF8")
        assert one(session, LOOK) == "0"
        there.execute("CREATE TABLE item AS SELECT 1 AS id, 9 AS v")
        assert one(there, LOOK) == "9"
        before = session.execute(FIGURES).fetchone()
        there.execute("UPDATE item SET v = 10; SELECT herald.cache_clear('item')")
        assert one(there, LOOK) == "10"
        assert one(session, LOOK) == "0"
        assert session.execute(FIGURES).fetchone() == (before[0] + 1, before[1])
        argument = "chr(233)" if encoding == "UTF8" else r"E'\xe9'"
        look_odd = f"SELECT herald.cache_through('a', 'SELECT octet_length($1)', {argument})"
        assert not found(there, look_odd) and found(there, look_odd)
        there.execute(f"SELECT herald.cache_invalidate('a', {argument})")
        assert not found(there, look_odd)
        there.close()
    finally:
        session.execute("DROP DATABASE apart WITH (FORCE)")


@pytest.mark.seam
def test_extension_is_dropped_and_created(caching, connect):
    """Guards: values that a session cached before the extension, and its triggers with it, were dropped are not found
    after it was created again."""
    caching.psql("CREATE DATABASE comes_and_goes")
    watch = "SELECT herald.cache_watch('item', 'item', 'id')"
    try:
        session, other = (connect(caching, "comes_and_goes") for _ in range(2))
        other.execute(f"CREATE EXTENSION pg_herald_cache CASCADE; CREATE TABLE item AS SELECT 1 AS id, 0 AS v; {watch}")
        assert one(session, LOOK) == "0"
        other.execute("DROP EXTENSION pg_herald CASCADE")
        assert outcome(session, LOOK) == '3F000: schema "herald" does not exist'
        other.execute("UPDATE item SET v = 1")
        other.execute(f"CREATE EXTENSION pg_herald_cache CASCADE; {watch}")
        assert one(session, LOOK) == "1"
        other.execute("UPDATE item SET v = 2")
        assert one(session, LOOK) == "2"
        session.close()
        other.close()
    finally:
        caching.psql("DROP DATABASE comes_and_goes WITH (FORCE)")


# ---- memory ----

MEMORY = "SELECT memory FROM herald.caches WHERE pid = pg_backend_pid()"
CONTEXTS = ("SELECT sum(total_bytes)::bigint FROM pg_backend_memory_contexts"
            " WHERE name LIKE 'pg_herald cache%'")
FILL = ("SELECT count(herald.cache_through('m', 'SELECT repeat(''x'', $1 + 0 * $2)', %(size)s, i))"
        " FROM generate_series(1, %(count)s) i")


def test_memory_is_bounded(session):
    """Guards: the memory that the view shows stays within the setting, whatever the sizes of values; the memory that is
    really taken does so roughly."""
    limit = 1024 * 1024
    session.execute("SET herald_cache.memory = '1MB'")
    for size in (1, 60, 200, 500, 1100, 2200, 5000, 20000, 200000, 1):
        session.execute(FILL, {"size": size, "count": max(20, 2 * limit // (size + 100))})
        assert limit / 2 < one(session, MEMORY) <= limit, f"values of {size} bytes"
        assert one(session, CONTEXTS) <= 3 * limit, f"values of {size} bytes"
    session.execute("SET herald_cache.memory = 0")
    assert one(session, MEMORY) == 0


def test_memory_of_queries(session):
    """Guards: the memory of the queries themselves counts, too: thousands of them with a value each, and long ones."""
    session.execute("SET herald_cache.memory = '256kB'")
    for length, count in ((20, 5000), (2000, 1000), (300_000, 2), (20, 5000)):
        assert one(session, "SELECT count(herald.cache_through('m', 'SELECT ' || i || repeat(' ', %s)))"
                            " FROM generate_series(1, %s) i", length, count) == count
        assert one(session, MEMORY) <= 256 * 1024, f"queries of {length} bytes"
        assert one(session, CONTEXTS) <= 1024 * 1024, f"queries of {length} bytes"
    assert one(session, MEMORY) > 128 * 1024


def test_thousands_of_caches(session, other):
    """Guards: thousands of cache names cost no more than their values, and each can be cleared."""
    session.execute("SET herald_cache.memory = '16MB'")
    look_all = ("SELECT count(*) FILTER (WHERE herald.cache_through('cache ' || i, 'SELECT $1', i) = i::text)"
                " FROM generate_series(1, 5000) i")

    def hits() -> int:
        before, _ = session.execute(FIGURES).fetchone() or (0, 0)
        assert one(session, look_all) == 5000
        return session.execute(FIGURES).fetchone()[0] - before

    assert (hits(), hits()) == (0, 5000)
    other.execute("SELECT herald.cache_clear('cache 77')")
    assert hits() == 4999
    other.execute("SELECT count(herald.cache_clear('cache ' || i)) FROM generate_series(1, 5000) i")
    assert hits() == 0
    assert one(session, CONTEXTS) <= 16 * 1024 * 1024


def test_longest_unused_goes_first(session):
    """Guards: a value that is used stays while unused ones are evicted."""
    session.execute("SET herald_cache.memory = '64kB'")
    look = "SELECT herald.cache_through('lru', 'SELECT repeat(''x'', 1000 + 0 * $1)', {})"
    session.execute(look.format(0))
    for number in range(1, 300):
        session.execute(look.format(number))
        assert found(session, look.format(0))
    there = [found(session, look.format(number)) for number in range(299, 279, -1)]
    assert all(there) and not found(session, look.format(200))


def test_large_value(session, other):
    """Guards: a value of megabytes is returned unchanged, and forgotten when invalidated; one that is too large is not
    kept."""
    session.execute("SET herald_cache.memory = '100MB'")
    look = "SELECT md5(herald.cache_through('large', 'SELECT repeat(''pg'', 20000000)'))"
    expected = one(session, "SELECT md5(repeat('pg', 20000000))")
    assert [one(session, look), one(session, look)] == [expected, expected]
    assert one(session, MEMORY) > 40_000_000
    other.execute("SELECT herald.cache_clear('large')")
    session.execute("SELECT herald.cache_through('small', 'SELECT 1')")
    assert one(session, MEMORY) < 1_000_000
    assert one(session, CONTEXTS) < 10_000_000
    session.execute("SET herald_cache.memory = '1MB'")
    assert one(session, look) == expected
    assert not found(session, look)


@pytest.mark.long
def test_largest_value(session, other):
    """Guards: a value that with its key takes more than 1 GB, which is more than the server's palloc() allows, is kept
    if the setting allows that: it is no error."""
    session.execute("SET herald_cache.memory = '2GB'")
    look = ("SELECT octet_length(herald.cache_through('largest', 'SELECT repeat(repeat(left($1, 1), 1000000), 1073)',"
            " repeat('k', 1000000)))")
    assert one(session, look) == 1_073_000_000
    assert found(session, look)
    other.execute("SELECT herald.cache_clear('largest')")
    session.execute("SELECT herald.cache_through('small', 'SELECT 1')")
    assert one(session, CONTEXTS) < 20_000_000


def test_memory_of_a_transaction(session):
    """Guards: values that a transaction keeps, and loses when a subtransaction is rolled back, leave nothing behind in its memory."""
    used = "SELECT sum(used_bytes) FROM pg_backend_memory_contexts WHERE name = 'TopTransactionContext'"
    rounds = """DO $$ BEGIN FOR n IN 1 .. %s LOOP
        BEGIN PERFORM herald.cache_through('own', 'SELECT $1', n); RAISE SQLSTATE 'R0000'; EXCEPTION WHEN SQLSTATE 'R0000' THEN END;
        END LOOP; END $$"""
    session.execute("BEGIN; UPDATE item SET v = 1 WHERE id = 1")
    session.execute(rounds % 10)
    before = one(session, used)
    session.execute(rounds % 2000)
    assert one(session, used) - before < 10_000
    session.execute("ROLLBACK")


def test_pooler(session, other):
    """Guards: cached values survive DISCARD ALL and SET ROLE, and stay correct."""
    other.execute("DROP ROLE IF EXISTS regress_pooled; CREATE ROLE regress_pooled;"
                  " GRANT SELECT ON item TO PUBLIC")
    assert one(session, LOOK) == "0"
    session.execute("DISCARD ALL")
    assert one(session, LOOK) == "0"
    session.execute("SET ROLE regress_pooled")
    assert one(session, LOOK) == "0"
    other.execute("UPDATE item SET v = 5")
    assert one(session, LOOK) == "5"
    session.execute("DISCARD ALL")
    assert one(session, LOOK) == "5"


@pytest.mark.seam
def test_cancelled_commit(session, other):
    """Guards: the invalidations of a transaction that fails as it commits have no effect; its own values are gone."""
    other.execute("""
        DROP TABLE IF EXISTS checked;
        CREATE TABLE checked (id integer UNIQUE DEFERRABLE INITIALLY DEFERRED)""")
    assert [one(session, LOOK), one(other, LOOK)] == ["0", "0"]
    other.execute("BEGIN; INSERT INTO checked VALUES (1), (1)")
    other.execute("UPDATE item SET v = 6 WHERE id = 1")
    assert one(other, LOOK) == "6"
    with pytest.raises(psycopg.errors.UniqueViolation):
        other.execute("COMMIT")
    assert [one(session, LOOK), one(other, LOOK)] == ["0", "0"]
