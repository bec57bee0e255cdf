"""Caches are never stale, whatever happens at the same time: each statement also reads the table itself.

Every value is a number that only grows, so that an older one can be distinguished from a newer one. Many sessions
change the rows, and compare what herald.cache_through() returns with the table under the very same snapshot. Both must
be equal; the cached value may be newer only with an old snapshot, of a cursor or from another session.
"""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from string import ascii_lowercase

import psycopg
import pytest

from harness.cluster import Cluster
from servers import SETTINGS, started
from support import one

# Duration, with both kinds of servers together; and the seed, to repeat a failed run.
LOAD_S = float(os.environ.get("HERALD_CACHES_S", "10"))
SEED = int(os.environ.get("HERALD_CACHES_SEED", "0")) or random.randrange(1, 1_000_000)

pytestmark = pytest.mark.timeout(120 + 2 * LOAD_S)

KEYS = 24
ROLES = ["ann", "bob"]
CLIENTS = 10

# A client that does not get a lock, conflicts with another session, or was cancelled, tries something else. (At
# REPEATABLE READ a session can insert a key that another session has deleted, and then sees both rows.)
EXPECTED = (psycopg.errors.CardinalityViolation,
            psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure,
            psycopg.errors.UniqueViolation, psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled)

# Another session has finished it already, or is about to; or the server has no prepared transactions.
EXPECTED_IN_TWO_PHASES = (psycopg.errors.UndefinedObject, psycopg.errors.ObjectNotInPrerequisiteState)

SETUP = f"""
    CREATE ROLE ann; CREATE ROLE bob;
    CREATE SEQUENCE version;
    CREATE SEQUENCE compared;
    CREATE TABLE item (k integer PRIMARY KEY, v bigint NOT NULL);
    CREATE TABLE late (k integer PRIMARY KEY, v bigint NOT NULL);
    CREATE TABLE bulk (k integer PRIMARY KEY, v bigint NOT NULL);
    INSERT INTO item SELECT k, nextval('version') FROM generate_series(1, {KEYS}) k;
    INSERT INTO late SELECT k, nextval('version') FROM generate_series(1, {KEYS}) k;
    INSERT INTO bulk SELECT k, 0 FROM generate_series(0, 20999) k;
    GRANT ALL ON ALL TABLES IN SCHEMA public TO PUBLIC;
    GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO PUBLIC;

    SELECT herald.cache_watch('item', 'item', 'k');
    SELECT herald.cache_watch('bulk', 'bulk', 'k');
    CREATE TRIGGER total AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON item
        FOR EACH STATEMENT EXECUTE FUNCTION herald.invalidate_cache('total');
    CREATE FUNCTION invalidate_late() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM herald.cache_invalidate('late', coalesce(NEW.k, OLD.k)); RETURN NULL; END $$;
    CREATE CONSTRAINT TRIGGER late AFTER INSERT OR UPDATE OR DELETE ON late
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION invalidate_late();

    -- Takes a moment, now and then, with its snapshot taken already.
    CREATE FUNCTION nap() RETURNS boolean LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_sleep(random() / 1000) WHERE random() < 0.3; RETURN true; END $$;

    -- What the caches say, and the table, for these keys.
    CREATE FUNCTION look(keys integer[]) RETURNS TABLE (key text, cached text, actual text)
    LANGUAGE sql STABLE AS $$
        SELECT 'item ' || k,
               herald.cache_through('item', 'SELECT current_user || v FROM item WHERE k = $1 AND nap()', k),
               (SELECT current_user || v FROM item i WHERE i.k = s.k)
          FROM unnest(keys) s(k)
        UNION ALL
        SELECT 'twice ' || k,
               herald.cache_through('item', 'SELECT 2 * v FROM item WHERE k = $1', k::numeric(4, 1)),
               (SELECT (2 * v)::text FROM item i WHERE i.k = s.k)
          FROM unnest(keys) s(k)
        UNION ALL
        SELECT 'late ' || k,
               herald.cache_through('late', 'SELECT v FROM late WHERE k = $1 AND nap()', k),
               (SELECT v::text FROM late l WHERE l.k = s.k)
          FROM unnest(keys) s(k)
        UNION ALL
        SELECT 'total',
               herald.cache_through('total', 'SELECT sum(v) FROM item'),
               (SELECT sum(v)::text FROM item)
    $$;

    -- Looks as fast as a backend can, in a transaction each, and changes a row now and then.
    CREATE PROCEDURE hammer(rounds integer, writes float8) LANGUAGE plpgsql AS $$
        DECLARE
            keys integer[];
            wrong text;
            found bigint;
        BEGIN
            FOR i IN 1..rounds LOOP
                keys := ARRAY[1 + floor(random() * {KEYS}), 1 + floor(random() * {KEYS})];
                IF random() < writes THEN
                    UPDATE item SET v = nextval('version') WHERE k = keys[1];
                    IF random() < 0.3 THEN ROLLBACK; ELSE COMMIT; END IF;
                END IF;
                SELECT count(*), string_agg(l::text, ' ') FILTER (WHERE cached IS DISTINCT FROM actual)
                  INTO found, wrong FROM look(keys) l;
                IF wrong IS NOT NULL THEN
                    RAISE EXCEPTION 'stale: %', wrong USING ERRCODE = 'HS001';
                END IF;
                PERFORM nextval('compared') FROM generate_series(1, found / 7);
                COMMIT;
            END LOOP;
        END $$;

    -- More keys than the queue of invalidations holds, in many transactions.
    CREATE PROCEDURE flood() LANGUAGE plpgsql AS $$
        BEGIN
            FOR i IN 0..20 LOOP
                UPDATE bulk SET v = v + 1 WHERE k >= i * 1000 AND k < (i + 1) * 1000;
                COMMIT;
            END LOOP;
        END $$;
"""

LOOK = "SELECT * FROM look(%s)"
WRITES = [
    "UPDATE item SET v = nextval('version') WHERE k = {a}",
    "UPDATE item SET v = nextval('version') WHERE k IN ({a}, {b})",
    "DELETE FROM item WHERE k = {a}",
    "INSERT INTO item VALUES ({a}, nextval('version'))",
    "INSERT INTO item VALUES ({a}, nextval('version')), ({b}, nextval('version'))"
    " ON CONFLICT (k) DO UPDATE SET v = nextval('version')",
    "UPDATE item SET k = {b}, v = nextval('version') WHERE k = {a}",
    "WITH gone AS (DELETE FROM item WHERE k = {a} RETURNING k)"
    " UPDATE item SET v = nextval('version') WHERE k = {b}",
]
LATE_WRITES = [
    "UPDATE late SET v = nextval('version') WHERE k = {a}",
    "DELETE FROM late WHERE k = {a}",
    "INSERT INTO late VALUES ({a}, nextval('version')) ON CONFLICT (k) DO UPDATE SET v = nextval('version')",
]


class Stale(AssertionError):
    """A value was found that is not the table's."""


class Client:
    """Runs one session after another, each of which performs one action after another, and compares."""

    def __init__(self, load: "Load", rng: random.Random):
        self.load = load
        self.rng = rng
        self.connection = None
        self.other = None
        self.recent: list[str] = []  # latest statements, reported with a stale value
        self.wrote_late = False

    def run(self) -> None:
        """Runs until the load ends."""
        while not self.load.done.is_set():
            try:
                self._live_once()
            except psycopg.OperationalError as error:
                if isinstance(error, psycopg.errors.OutOfMemory) or self.load.is_down():
                    raise
                self.load.count["sessions ended"] += 1

    def _live_once(self) -> None:
        with self.load.connect() as self.connection, self.load.connect() as self.other:
            if self.rng.random() < 0.5:
                self._execute("LISTEN c")
            self._prepare()
            for _ in range(self.rng.choice([3, 30, 300])):
                if self.load.done.is_set():
                    break
                action = self.rng.choices(ACTIONS, WEIGHTS)[0]
                self.recent = [action.__name__]
                try:
                    action(self)
                except EXPECTED as error:
                    self.load.count[type(error).__name__] += 1
                except psycopg.DatabaseError as error:
                    error.add_note(f"{error.diag.context}; before: {self.recent[-12:]}")
                    raise
                if self.connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                    self._execute("ROLLBACK")
                self.wrote_late = False
            self._execute("RESET ROLE")
            for name, figure in zip(("hits", "misses"), self._execute(
                    "SELECT coalesce(sum(hits), 0), coalesce(sum(misses), 0) FROM herald.caches"
                    " WHERE pid = pg_backend_pid()").fetchone()):
                self.load.count[name] += int(figure)

    # ---- actions ----

    def look(self) -> None:
        """Looks up in a transaction of its own."""
        self._look()

    def prepared(self) -> None:
        """Uses the same plan again and again."""
        keys = ",".join(map(str, self._keys()))
        self._compare(self._execute(f"EXECUTE look('{{{keys}}}')").fetchall())

    def write(self) -> None:
        """Changes one row, or several."""
        if self.rng.random() < 0.3:
            self._execute(f"SET synchronous_commit = {self.rng.choice(['on', 'off'])}")
        self._write()
        self._look()

    def read_committed(self) -> None:
        """Sees own changes at once, also when they are rolled back, and those of others in between."""
        self._execute("BEGIN")
        for _ in range(self.rng.randrange(1, 6)):
            self.rng.choice([self._look, self._write, self._within_savepoint])()
        self._execute(self.rng.choice(["COMMIT", "COMMIT", "ROLLBACK"]))
        self.wrote_late = False
        self._look()

    def two_phase(self) -> None:
        """Prepares own changes, which this session finishes, or later another one."""
        name = f"p{self.rng.random()}"
        self._execute("BEGIN")
        for _ in range(self.rng.randrange(1, 4)):
            self.rng.choice([self._look, self._write, self._within_savepoint])()
        with suppress(*EXPECTED_IN_TWO_PHASES):
            self._execute(f"PREPARE TRANSACTION '{name}'")
        self.wrote_late = False
        self._look()
        if self.rng.random() < 0.5:
            return
        keys = list(range(1, KEYS + 1))
        with self.load.connect() as joiner:
            self._compare(joiner.execute(LOOK, (keys,)).fetchall())
            with suppress(*EXPECTED_IN_TWO_PHASES):
                self._execute(f"{self.rng.choice(['COMMIT', 'COMMIT', 'ROLLBACK'])} PREPARED '{name}'")
            self._compare(joiner.execute(LOOK, (keys,)).fetchall())
        self._look()

    def repeatable_read(self) -> None:
        """Uses one snapshot, which gets old."""
        self._execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        for _ in range(self.rng.randrange(1, 6)):
            self.rng.choice([self._look, self._look, self._look, self._rest, self._write])()
        self._execute(self.rng.choice(["COMMIT", "ROLLBACK"]))
        self.wrote_late = False
        self._look()

    def serializable(self) -> None:
        """Bypasses the caches."""
        self._execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
        self._look()
        self._write()
        self._look()
        self._execute("COMMIT")
        self.wrote_late = False
        self._look()

    def cursor(self) -> None:
        """Looks up with the snapshot that a cursor was opened with."""
        hold = self.rng.random() < 0.3
        self._execute("BEGIN")
        if self.rng.random() < 0.3:
            self._write()
        keys = ",".join(map(str, self._keys()))
        self._execute(f"DECLARE c CURSOR {'WITH HOLD' if hold else ''}"
                      f" FOR SELECT * FROM look('{{{keys}}}')")
        for _ in range(3):
            self.rng.choice([self._look, self._rest, self._write, self._within_savepoint])()
            self._compare(self._execute("FETCH 3 FROM c").fetchall(), may_be_newer=True)
            self._look()
        self._execute(self.rng.choice(["COMMIT", "COMMIT", "ROLLBACK"]))
        self.wrote_late = False
        self._look()
        if hold:
            self._execute("CLOSE ALL")

    def imported(self) -> None:
        """Looks up with a snapshot that another session took a while ago."""
        with self.other.transaction():
            self.other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            if self.rng.random() < 0.5:
                self.other.execute("SELECT pg_current_xact_id()")
            snapshot = one(self.other, "SELECT pg_export_snapshot()")
            for _ in range(2):
                self._rest()
                self._look()
            self._execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            try:
                self._execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
            except (psycopg.errors.InvalidParameterValue, psycopg.errors.UndefinedObject):
                self.other.execute("SELECT")  # fails if that session has been ended, and its snapshot with it
                raise
            self._look(may_be_newer=True)
            self._execute("COMMIT")
        self._look()

    def procedure(self) -> None:
        """Looks up as fast as the server can."""
        self._execute("CALL hammer(%s, %s)", self.rng.choice([20, 200]), self.rng.choice([0, 0.2, 1]))

    def truncate(self) -> None:
        """Changes all keys at once."""
        self._execute("BEGIN; SET LOCAL lock_timeout = '50ms'; TRUNCATE item")
        self._look()
        self._execute("INSERT INTO item SELECT k, nextval('version') FROM generate_series(1, %s) k", KEYS)
        self._look()
        self._execute(self.rng.choice(["COMMIT", "ROLLBACK"]))
        self._look()

    def fill_up(self) -> None:
        """Inserts deleted rows again."""
        for table in ("item", "late"):
            self._execute(f"INSERT INTO {table} SELECT k, nextval('version') FROM generate_series(1, %s) k"
                          " ON CONFLICT DO NOTHING", KEYS)
        self._look()

    def change_role(self) -> None:
        """Changes the role: each role has values of its own."""
        self._execute(f"SET ROLE {self.rng.choice(ROLES + ['NONE'])}")
        self._look()

    def discard(self) -> None:
        """Runs DISCARD ALL, as a pooler does between two clients."""
        self._execute("DISCARD ALL")
        self._prepare()
        self._look()

    def temporary(self) -> None:
        """Caches a temporary table."""
        self._execute("""
            CREATE TEMPORARY TABLE IF NOT EXISTS mine (k integer, v bigint);
            SELECT herald.cache_watch('mine', 'mine', 'k');
            DELETE FROM mine; INSERT INTO mine VALUES (1, nextval('version'))""")
        question = ("SELECT 'mine', herald.cache_through('mine', 'SELECT max(v) FROM mine WHERE k = $1', 1),"
                    " (SELECT max(v)::text FROM mine)")
        self._compare(self._execute(question).fetchall())
        self._execute("BEGIN; SAVEPOINT s; UPDATE mine SET v = nextval('version')")
        self._compare(self._execute(question).fetchall())
        self._execute("ROLLBACK TO s")
        self._compare(self._execute(question).fetchall())
        self._execute("UPDATE mine SET v = nextval('version'); COMMIT")
        self._compare(self._execute(question).fetchall())
        self._execute("DELETE FROM mine; DROP TABLE mine")

    def pipelined(self) -> None:
        """Several statements at once, in one transaction, without waiting for answers."""
        with self.connection.pipeline():
            cursors = []
            for _ in range(4):
                if self.rng.random() < 0.5:
                    self.connection.execute(self._a_write(WRITES[:1]))
                cursors.append(self.connection.execute(LOOK, (self._keys(),)))
        for cursor in cursors:
            self._compare(cursor.fetchall())

    def stand_still(self) -> None:
        """Stays in a transaction, with an id or without, while the others go on."""
        self._execute(f"BEGIN ISOLATION LEVEL {self.rng.choice(['READ COMMITTED', 'REPEATABLE READ'])}")
        self._execute(self.rng.choice(["SELECT pg_current_xact_id()", "SELECT 1", "NOTIFY c"]))
        self._look()
        self.load.done.wait(self.rng.choice([0.1, 0.5, 1.5]))
        self._look()
        self._write()
        self._look()
        self._execute(self.rng.choice(["COMMIT", "ROLLBACK"]))
        self.wrote_late = False
        self._look()

    def small_memory(self) -> None:
        """Computes evicted values again."""
        self._execute(f"SET herald_cache.memory = '{self.rng.choice([0, 1, 2, 4096])}kB'")
        self._look()
        self._execute("RESET herald_cache.memory")

    # ---- parts of actions ----

    def _prepare(self) -> None:
        self._execute("PREPARE look(integer[]) AS SELECT * FROM look($1)")

    def _keys(self) -> list[int]:
        return [self.rng.randrange(1, KEYS + 1) for _ in range(4)]

    def _a_write(self, statements: list[str]) -> str:
        a, b = self.rng.sample(range(1, KEYS + 1), 2)
        return self.rng.choice(statements).format(a=a, b=b)

    def _write(self) -> None:
        late = self.rng.random() < 0.3
        self._execute(self._a_write(LATE_WRITES if late else WRITES))
        in_block = self.connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
        self.wrote_late |= late and in_block

    def _within_savepoint(self) -> None:
        self._execute("SAVEPOINT s")
        self._write()
        self._look()
        self._execute(self.rng.choice(["ROLLBACK TO s", "ROLLBACK TO s", "RELEASE s"]))
        self._look()

    def _rest(self) -> None:
        time.sleep(self.rng.random() / 100)

    def _look(self, may_be_newer: bool = False) -> None:
        self._compare(self._execute(LOOK, self._keys()).fetchall(), may_be_newer)

    def _compare(self, rows: list[tuple], may_be_newer: bool = False) -> None:
        for key, cached, actual in rows:
            if key.startswith("late") and self.wrote_late:
                continue  # its triggers have not run yet
            self.load.count["compared"] += 1
            if cached == actual or may_be_newer and (key == "total" or self._is_newer(cached, actual)):
                continue  # (a sum can also shrink)
            raise Stale(f"{key}: cached {cached}, but it is {actual}; before: {self.recent[-12:]}")

    @staticmethod
    def _is_newer(cached: str | None, actual: str | None) -> bool:
        """Whether it is newer; also True if that cannot be known, because there is a time without any value."""
        if cached is None or actual is None:
            return True
        return int(cached.lstrip(ascii_lowercase)) > int(actual.lstrip(ascii_lowercase))  # without the role's name

    def _execute(self, sql: str, *parameters: object) -> psycopg.Cursor:
        self.recent.append(sql)
        return self.connection.execute(sql, parameters or None)


ACTIONS = [Client.look, Client.prepared, Client.write, Client.read_committed, Client.two_phase,
           Client.repeatable_read, Client.serializable, Client.cursor, Client.imported,
           Client.procedure, Client.truncate, Client.fill_up, Client.change_role, Client.discard,
           Client.temporary, Client.pipelined, Client.stand_still, Client.small_memory]
WEIGHTS = [20, 20, 20, 12, 6, 12, 2, 8, 4, 12, 1, 3, 4, 2, 2, 6, 2, 1]


class Load:
    """All clients, and threads that disturb them."""

    def __init__(self, cluster: Cluster, rng: random.Random):
        self.cluster = cluster
        self.done = threading.Event()
        self.count: Counter[str] = Counter()
        self.problems: list[BaseException] = []
        clients = [Client(self, random.Random(rng.random())) for _ in range(CLIENTS)]
        self._threads = [threading.Thread(target=self._run, args=(run,), daemon=True) for run in
                         [client.run for client in clients] +
                         [self._flood, self._end_sessions, self._finish_prepared]]
        self._clients = self._threads[:CLIENTS]
        self.rng = rng

    def connect(self, name: str = "load") -> psycopg.Connection:
        """Opens a session of this load; one that is named "load" may be ended at any time."""
        return psycopg.connect(host=str(self.cluster.socket_folder), port=self.cluster.port, user="postgres",
                               dbname="postgres", autocommit=True, prepare_threshold=None,
                               application_name=name)

    def is_down(self) -> bool:
        """Whether the server, and not only a session, has ended."""
        return bool(self.cluster.damage())

    def run(self, seconds: float) -> None:
        """Runs for this time, or until something is wrong."""
        for thread in self._threads:
            thread.start()
        self.done.wait(seconds)
        self.done.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a client hangs"

    def _run(self, actor: Callable[[], None]) -> None:
        try:
            actor()
        except BaseException as error:
            self.problems.append(error)
            self.done.set()

    def _flood(self) -> None:
        """Lets the queue overflow now and then, with one session that is behind: in a failed block it reads nothing."""
        slow = Client(self, random.Random(self.rng.random()))
        with self.connect("flood") as writer, self.connect("slow") as slow.connection:
            while not self.done.wait(1):
                slow.look()
                with suppress(psycopg.errors.DivisionByZero):
                    slow.connection.execute("BEGIN; SELECT 1 / 0")
                writer.execute("CALL flood()")
                slow.connection.execute("ROLLBACK")
                slow.look()

    def _finish_prepared(self) -> None:
        """Finishes transactions that a session has left prepared; others may wait for their locks."""
        with self.connect("finish") as connection:
            while any(client.is_alive() for client in self._clients):
                for name, in connection.execute("SELECT gid FROM pg_prepared_xacts"
                                                " WHERE prepared < clock_timestamp() - interval '50 ms'").fetchall():
                    with suppress(*EXPECTED_IN_TWO_PHASES):
                        connection.execute(f"{self.rng.choice(['COMMIT', 'ROLLBACK'])} PREPARED '{name}'")
                        self.count["finished by another"] += 1
                time.sleep(0.02)

    def _end_sessions(self) -> None:
        with self.connect("end") as connection:
            while not self.done.wait(0.5):
                connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                                   " WHERE application_name = 'load' ORDER BY random() LIMIT 1")


@pytest.fixture(scope="module", params=[0, 100], ids=["one phase", "two phases"])
def busy(request):
    """A server that finds deadlocks soon."""
    for cluster in started(preload=True, caches=True, settings=SETTINGS | {
            "deadlock_timeout": "10ms", "max_connections": 60,
            "max_prepared_transactions": request.param}):
        cluster.psql(SETUP)
        yield cluster


def test_never_stale(busy, connect):
    """Guards: no statement gets a value from a cache that differs from the table under the same snapshot."""
    print(f"HERALD_CACHES_SEED={SEED}")
    watcher = connect(busy)
    load = Load(busy, random.Random(SEED))
    load.run(LOAD_S / 2)
    stats = watcher.execute("SELECT invalidations, cache_resets, catch_ups FROM herald.cache_stats").fetchone()
    load.count["compared"] += one(watcher, "SELECT last_value * 7 FROM compared")
    load.count.update(dict(zip(("invalidations", "resets", "catch_ups"), stats)))
    print(dict(sorted(load.count.items())))
    assert not load.problems, [(problem, getattr(problem, "__notes__", "")) for problem in load.problems]
    assert load.count["compared"] > 1000 and load.count["hits"] > 0 and load.count["resets"] > 0
