"""Tests docs/caching.md: its examples run unchanged, in order, in psql; the rest of what it says is tested here."""

import re
import select
import subprocess
import time

import psycopg
import pytest

from cache_scene import found
from harness.cluster import Cluster
from harness.prefix import TOP
from servers import SETTINGS, started
from support import one, outcome, until

PAGE = TOP / "docs/caching.md"
BLOCK = re.compile(r"^```sql\n(?P<sql>.*?)^```\n(?:```\n(?P<shown>.*?)^```\n)?", re.MULTILINE | re.DOTALL)
CHANGE_OF_SESSION = re.compile(r"^-- in (the first|another) session\n", re.MULTILINE)
END = "this is the end of the answer"
DEADLINE_S = 60


class Psql:
    """A psql that a reader of the page has open."""

    def __init__(self, cluster: Cluster):
        self.process = subprocess.Popen([cluster.installation.program("psql"), "-Xq"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        env=cluster.environment())

    def answer(self, sql: str) -> str:
        """Returns what psql prints for this input."""
        self.process.stdin.write(f"{sql}\n\\echo {END}\n".encode())
        self.process.stdin.flush()
        printed = b""
        deadline = time.monotonic() + DEADLINE_S
        while not printed.endswith(f"{END}\n".encode()):
            assert select.select([self.process.stdout], [], [], max(0, deadline - time.monotonic()))[0], \
                f"psql gives no answer to {sql!r}"
            assert (more := self.process.stdout.read1()), f"psql has ended: {printed!r}"
            printed += more
        return printed.decode().removesuffix(f"{END}\n")

    def close(self) -> None:
        """Ends psql."""
        self.process.stdin.close()
        self.process.wait(DEADLINE_S)
        self.process.stdout.close()


@pytest.fixture
def sessions():
    """Two psqls, named as on the page, on a server of their own."""
    with Cluster(preload=True, caches=True, settings={"fsync": False, "autovacuum": False}) as cluster:
        cluster.create_herald()
        opened = {"the first": Psql(cluster), "another": Psql(cluster)}
        yield opened
        for psql in opened.values():
            psql.close()
        assert not cluster.damage(), cluster.damage()


def parts(sql: str) -> list[tuple[str, str]]:
    """Splits a block into parts, each with the session that runs it; the first session if the block names none."""
    pieces = CHANGE_OF_SESSION.split(sql)
    return [("the first", pieces[0]), *zip(pieces[1::2], pieces[2::2])]


def lines(text: str) -> list[str]:
    """The lines of a text, without the blanks that psql adds at their ends."""
    return [line.rstrip() for line in text.rstrip().split("\n")]


def test_examples_of_the_caching_page(sessions):
    """Guards: every example of docs/caching.md gives what the page shows, and nothing if it shows nothing."""
    blocks = list(BLOCK.finditer(PAGE.read_text(encoding="utf-8")))
    assert len(blocks) > 8
    for block in blocks:
        printed = "".join(sessions[whose].answer(sql) for whose, sql in parts(block["sql"]))
        assert lines(printed) == lines(block["shown"] or ""), block["sql"]


# ---- statements without an example ----

# Table `item`, whose two partitions and changes are watched, and function look(k), which caches its values.
ITEM = """
    CREATE TABLE item (k integer PRIMARY KEY, v integer) PARTITION BY LIST (k);
    CREATE TABLE item_1 PARTITION OF item FOR VALUES IN (1);
    CREATE TABLE item_2 PARTITION OF item FOR VALUES IN (2);
    INSERT INTO item VALUES (1, 10), (2, 20);
    SELECT herald.cache_watch('item', 'item', 'k');
    CREATE FUNCTION look(k integer) RETURNS integer LANGUAGE sql VOLATILE AS
        $$ SELECT herald.cache_through('item', 'SELECT v FROM item WHERE k = $1', k)::integer $$;
    """


@pytest.fixture
def cluster(caching):
    """The server of `database`: with caches."""
    return caching


@pytest.fixture
def open_one(cluster, connect, database):
    """open_one() opens a session in a database with `item`."""
    cluster.create_herald(database)
    cluster.psql(ITEM, database)
    return lambda: connect(cluster, database)


LOOK = "SELECT look(1)"


def look(session: psycopg.Connection, key: int = 1) -> int | None:
    """The key's value, as the session finds it."""
    return one(session, "SELECT look(%s)", key)


def test_triggers_that_read(open_one):
    """Guards: a trigger that reads the cache finds the new value if its name comes after that of the cache's own."""
    session, told = open_one(), []
    session.add_notice_handler(lambda notice: told.append(notice.message_primary))
    session.execute("""
        CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE NOTICE '%: %', tg_name, look(NEW.k); RETURN NULL; END $$;
        CREATE TRIGGER before AFTER UPDATE ON item FOR EACH ROW EXECUTE FUNCTION tell();
        CREATE TRIGGER later AFTER UPDATE ON item FOR EACH ROW EXECUTE FUNCTION tell()""")
    assert look(session) == 10
    session.execute("UPDATE item SET v = 11 WHERE k = 1")
    assert told == ["before: 10", "later: 11"]
    assert look(session) == 11


def test_within_the_statement(open_one):
    """Guards: the old value may be found only within the very statement that changes the table."""
    session = open_one()
    assert look(session) == 10
    assert session.execute("UPDATE item SET v = 11 WHERE k = 1 RETURNING look(k), v").fetchall() == [(10, 11)]
    assert look(session) == 11


def test_older_snapshots(open_one):
    """Guards: with an older snapshot, a cursor's or an imported one, a newer value may be found, but never an older
    one; and what is looked up with it is not kept."""
    session, changer, exporter = open_one(), open_one(), open_one()
    exporter.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    snapshot = one(exporter, "SELECT pg_export_snapshot()")
    session.execute("BEGIN; DECLARE c CURSOR FOR SELECT look(k) FROM item, generate_series(1, 3) WHERE k = 1")
    assert one(session, "FETCH c") == 10
    changer.execute("UPDATE item SET v = 11 WHERE k = 1")
    assert one(session, "FETCH c") == 10
    assert look(session) == 11
    assert one(session, "FETCH c") == 11
    session.execute("COMMIT; BEGIN ISOLATION LEVEL REPEATABLE READ")
    session.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
    assert one(session, "SELECT v FROM item WHERE k = 1") == 10
    assert look(session) == 11
    session.execute("COMMIT")
    changer.execute("UPDATE item SET v = 12 WHERE k = 1")
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    session.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
    assert look(session) == 10
    session.execute("COMMIT")
    assert look(session) == 12


def test_truncate_of_a_partition(open_one):
    """Guards: a partition that exists when the table is watched is covered; of one that comes later the rows are, and
    its TRUNCATE only after the next call."""
    session = open_one()
    assert look(session) == 10
    session.execute("TRUNCATE item_1")
    assert look(session) is None
    session.execute("CREATE TABLE item_3 PARTITION OF item FOR VALUES IN (3); INSERT INTO item VALUES (3, 30)")
    assert look(session, 3) == 30
    session.execute("UPDATE item_3 SET v = 31")
    assert look(session, 3) == 31
    session.execute("TRUNCATE item_3")
    assert look(session, 3) == 31
    session.execute("SELECT herald.cache_watch('item', 'item', 'k')")
    assert look(session, 3) is None
    session.execute("INSERT INTO item VALUES (3, 32)")
    assert look(session, 3) == 32
    session.execute("TRUNCATE item_3")
    assert look(session, 3) is None


def test_partitions_come_and_go(open_one):
    """Guards: ATTACH and DETACH fire no trigger; with cache_watch() in the same transaction nothing stale is found."""
    session, changer = open_one(), open_one()
    assert look(session) == 10
    changer.execute("ALTER TABLE item DETACH PARTITION item_1")
    assert look(session) == 10
    changer.execute("SELECT herald.cache_watch('item', 'item', 'k')")
    assert look(session) is None
    changer.execute("BEGIN; UPDATE item_1 SET v = 11; ALTER TABLE item ATTACH PARTITION item_1 FOR VALUES IN (1);"
                    "SELECT herald.cache_watch('item', 'item', 'k'); COMMIT")
    assert look(session) == 11
    changer.execute("UPDATE item SET v = 12")
    assert look(session) == 12


def test_watched_again(open_one):
    """Guards: cache_watch() in a transaction that is rolled back changes nothing; after one that commits, changes made
    while triggers were disabled are found; a session that looks up while it is under way does not keep these values."""
    session, changer = open_one(), open_one()
    changer.execute("ALTER TABLE item DISABLE TRIGGER ALL; ALTER TABLE item_1 DISABLE TRIGGER ALL")
    assert look(session) == 10
    changer.execute("UPDATE item SET v = 11")
    assert look(session) == 10
    changer.execute("BEGIN; SELECT herald.cache_watch('item', 'item', 'k'); ROLLBACK; UPDATE item SET v = 12")
    assert look(session) == 10
    changer.execute("BEGIN; SELECT herald.cache_watch('item', 'item', 'k'); UPDATE item SET v = 13 WHERE k = 1")
    assert [look(session), look(session, 2)] == [10, 12]
    changer.execute("COMMIT")
    assert [look(session), look(session, 2)] == [13, 12]
    changer.execute("UPDATE item SET v = 14")
    assert [look(session), look(session, 2)] == [14, 14]


def test_others_do_not_lock(open_one):
    """Guards: cache_watch() by a role that does not own the table fails before it waits for a lock, and blocks no other
    session."""
    session, changer = open_one(), open_one()
    changer.execute("DROP ROLE IF EXISTS regress_eve; CREATE ROLE regress_eve; GRANT ALL ON item TO regress_eve")
    changer.execute("BEGIN; UPDATE item SET v = 11 WHERE k = 1")
    session.execute("SET ROLE regress_eve; SET lock_timeout = '10s'")
    assert outcome(session, "SELECT herald.cache_watch('item', 'item', 'k')") == "42501: must be owner of table item"
    changer.execute("ROLLBACK; REVOKE ALL ON item FROM regress_eve; DROP ROLE regress_eve")


def test_security(open_one):
    """Guards: with another search_path a query is a different one, so what a role has cached with its own operators is
    not found by a function that sets the path; after REVOKE a value is found until the cache is cleared."""
    session, changer = open_one(), open_one()
    changer.execute("DROP ROLE IF EXISTS regress_liar; CREATE ROLE regress_liar; CREATE SCHEMA lies;"
                    "GRANT USAGE ON SCHEMA lies TO PUBLIC; GRANT SELECT ON item TO regress_liar;"
                    "CREATE FUNCTION lies.always(integer, integer) RETURNS boolean LANGUAGE sql RETURN $1 <> $2;"
                    "CREATE OPERATOR lies.= (LEFTARG = integer, RIGHTARG = integer, FUNCTION = lies.always)")
    query = "SELECT herald.cache_through('item', 'SELECT v FROM public.item WHERE k = $1', 1)"
    session.execute("SET ROLE regress_liar; SET search_path = lies, pg_catalog")
    assert one(session, query) == "20"
    session.execute("RESET search_path")
    assert one(session, query) == "10"
    changer.execute("REVOKE SELECT ON item FROM regress_liar")
    assert one(session, query) == "10"
    changer.execute("SELECT herald.cache_clear('item')")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute(query)
    session.execute("RESET ROLE")
    changer.execute("DROP ROLE regress_liar")


def test_serializable(open_one):
    """Guards: a serializable transaction neither finds nor keeps anything, and its answers are right."""
    session, changer = open_one(), open_one()
    assert look(session) == 10
    session.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
    assert [found(session, LOOK), found(session, LOOK)] == [False, False]
    assert [look(session), look(session, 2)] == [10, 20]
    changer.execute("UPDATE item SET v = 11 WHERE k = 1")
    assert look(session) == 10
    session.execute("COMMIT")
    assert look(session) == 11


def test_enabled_is_for_notifications(open_one):
    """Guards: with herald.enabled = off caches work, and are invalidated."""
    session, changer = open_one(), open_one()
    session.execute("SET herald.enabled = off")
    changer.execute("SET herald.enabled = off")
    assert [look(session), found(session, LOOK)] == [10, True]
    changer.execute("UPDATE item SET v = 11 WHERE k = 1")
    assert look(session) == 11


def test_transaction_id(open_one):
    """Guards: a lookup, also one that misses, assigns no transaction id; an invalidation does."""
    session = open_one()
    session.execute("BEGIN")
    assert look(session) == 10
    assert one(session, "SELECT pg_current_xact_id_if_assigned()") is None
    session.execute("SELECT herald.cache_invalidate('item', 1)")
    assert one(session, "SELECT pg_current_xact_id_if_assigned()") is not None
    session.execute("COMMIT")


def test_parallel_plans(open_one):
    """Guards: a scan whose filter looks into a cache is not parallel; one that only makes keys may be."""
    session = open_one()
    session.execute("CREATE TABLE big AS SELECT i FROM generate_series(1, 20000) i; ANALYZE big;"
                    "SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;"
                    "SET min_parallel_table_scan_size = 0")

    def plan(condition: str) -> str:
        return str(session.execute(f"EXPLAIN SELECT FROM big WHERE {condition}").fetchall())

    assert "Parallel" in plan("herald.cache_key(i) = 'x'")
    assert "Parallel" not in plan("herald.cache_through('big', 'SELECT $1', i) = 'x'")


@pytest.fixture
def publisher():
    """A server whose database `subscriber` replicates the changes of `item` in database `postgres`."""
    for cluster in started(preload=True, caches=True, settings=SETTINGS | {"wal_level": "logical"}):
        cluster.psql("CREATE DATABASE subscriber")
        cluster.create_herald("subscriber")
        cluster.psql(ITEM + "CREATE PUBLICATION items FOR TABLE item WITH (publish_via_partition_root);"
                            "SELECT pg_create_logical_replication_slot('items', 'pgoutput')")
        cluster.psql(ITEM + f"""
            CREATE SUBSCRIPTION items
                CONNECTION 'host={cluster.socket_folder} port={cluster.port} user=postgres dbname=postgres'
                PUBLICATION items WITH (create_slot = false, slot_name = items,
                                        copy_data = false)""", "subscriber")
        yield cluster


def test_caches_of_a_subscriber(publisher, connect):
    """Guards: on a subscriber the triggers that cache_watch() creates invalidate, for rows and for TRUNCATE; triggers
    that are not ENABLE ALWAYS do not."""
    changer = connect(publisher)
    session, watcher = connect(publisher, "subscriber"), connect(publisher, "subscriber")

    def applied(value: int | None) -> bool:
        return one(watcher, "SELECT max(v) FROM item WHERE k = 2") == value

    assert look(session, 2) == 20
    changer.execute("UPDATE item SET v = 21 WHERE k = 2")
    until(lambda: applied(21), "the subscriber has it")
    assert look(session, 2) == 21
    changer.execute("TRUNCATE item")
    until(lambda: applied(None), "the subscriber has it")
    assert look(session, 2) is None
    changer.execute("INSERT INTO item VALUES (2, 22)")
    until(lambda: applied(22), "the subscriber has it")
    assert look(session, 2) == 22
    watcher.execute('ALTER TABLE item ENABLE TRIGGER "herald item(k)"')
    changer.execute("UPDATE item SET v = 23 WHERE k = 2")
    until(lambda: applied(23), "the subscriber has it")
    assert look(session, 2) == 22
    watcher.execute("SELECT herald.cache_watch('item', 'item', 'k')")
    assert look(session, 2) == 23
