"""Sessions that cache what others change, and must survive faults at stop points."""

from collections.abc import Callable, Iterable

import psycopg

from faults import AT_REST, Doing, Points, pid_of
from harness.cluster import Cluster
from support import left_nothing, one, stopped, until, until_gone, watchdog_pid

RING = 16384  # messages; as HERALD_INVAL_SIZE
FAR_BEHIND = RING // 2
ROWS = 8

NOTHING_READ = "reading 0, committing 0, turn of slot -1"
CHANGE = "UPDATE item SET v = v + 1 WHERE k = 1"
LOOK = "SELECT look()"

SETUP = f"""
    CREATE FUNCTION stop_caches() RETURNS text
        LANGUAGE C STRICT AS '$libdir/pg_herald_cache', 'herald_stop_caches';

    CREATE TABLE item (k integer PRIMARY KEY, v bigint NOT NULL);
    INSERT INTO item SELECT k, 0 FROM generate_series(1, {ROWS}) k;
    SELECT herald.cache_watch('item', 'item', 'k');

    -- Everything is as in the table, under the same snapshot; how much of it was in the cache.
    CREATE FUNCTION look() RETURNS bigint LANGUAGE plpgsql STABLE AS $$
        DECLARE
            before bigint := (SELECT hits FROM herald.caches WHERE pid = pg_backend_pid());
            wrong text;
        BEGIN
            SELECT string_agg(l::text, ' ') FILTER (WHERE cached IS DISTINCT FROM v::text) INTO wrong
              FROM (SELECT k, v, herald.cache_through('item', 'SELECT v FROM item WHERE k = $1', k) AS cached
                      FROM item OFFSET 0) l;
            IF wrong IS NOT NULL THEN
                RAISE EXCEPTION 'stale: %', wrong;
            END IF;
            RETURN (SELECT hits FROM herald.caches WHERE pid = pg_backend_pid()) - coalesce(before, 0);
        END $$;

    -- So many messages, in one transaction, of other caches.
    CREATE FUNCTION flood(messages integer) RETURNS bigint LANGUAGE sql AS $$
        SELECT count(herald.cache_invalidate('flood ' || n / 1000, n))
          FROM generate_series(1, messages) n
    $$;
"""


class CacheScene:
    """A writer and three sessions that cache, which must go on working whatever happens to a victim."""

    def __init__(self, cluster: Cluster, connect: Callable[[Cluster], psycopg.Connection]):
        self.cluster = cluster
        self._connect = connect
        self._opened: list[psycopg.Connection] = []
        self.watcher = connect(cluster)
        if one(self.watcher, "SELECT to_regclass('item') IS NULL"):
            self.watcher.execute(SETUP)
        self.points = Points(self.watcher)
        self.writer = self.connect()
        self.readers = [self.reader() for _ in range(3)]

    # ---- sessions ----

    def connect(self) -> psycopg.Connection:
        """Opens one more connection, which is closed at the end."""
        self._opened.append(self._connect(self.cluster))
        return self._opened[-1]

    def reader(self) -> psycopg.Connection:
        """Opens one more session, which caches everything."""
        connection = self.connect()
        assert self.kept(connection) == 0 and self.kept(connection) == ROWS
        return connection

    def stand_still(self, point: str, connection: psycopg.Connection, sql: str) -> Doing:
        """Starts a statement, and waits until it is held at this point."""
        self.points.arm(point, "wait", pid_of(connection))
        doing = Doing(connection, sql)
        until(lambda: not doing.runs() or self.points.standing(point), f"it stands still at {point}")
        assert self.points.standing(point) == pid_of(connection), doing.end()
        return doing

    def end_session(self, connection: psycopg.Connection) -> None:
        """Terminates a session, and waits until it has gone."""
        self.watcher.execute("SELECT pg_terminate_backend(%s)", (pid_of(connection),))
        until_gone(self.watcher, pid_of(connection))

    def kept(self, connection: psycopg.Connection) -> int:
        """The number of rows that a session finds in its cache, without those for an earlier snapshot only."""
        self.writer.execute("SELECT pg_current_xact_id()")
        return look(connection)

    # ---- the queue of invalidations ----

    def flood(self, messages: int) -> None:
        """Sends this number of invalidations, of other caches."""
        self.writer.execute("SELECT flood(%s)", (messages,))

    def behind(self, connection: psycopg.Connection) -> int | None:
        """How many messages a session has not read yet; None: it was reset."""
        return one(self.watcher, "SELECT lag FROM herald.caches WHERE pid = %s", pid_of(connection))

    def resets(self, connection: psycopg.Connection) -> int:
        """How often a session has noticed that it was overrun."""
        return one(self.watcher, "SELECT resets FROM herald.caches WHERE pid = %s", pid_of(connection))

    def fall_behind(self) -> None:
        """Makes all fall far behind; a victim that has not read meanwhile is the first to get the turn."""
        self.flood(10)
        for reader in self.readers:
            assert self.kept(reader) == ROWS
        self.flood(FAR_BEHIND + 1000)

    def fall_behind_alone(self, victim: psycopg.Connection) -> None:
        """Gives the turn to the victim, which does not read meanwhile; the others go on reading."""
        while (self.behind(victim) or 0) < FAR_BEHIND + 1000:
            self.flood(1000)
            for reader in self.readers:
                assert self.kept(reader) == ROWS

    def catch_up(self, connections: Iterable[psycopg.Connection]) -> None:
        """Waits until these have caught up, without running a statement in them."""
        for connection in connections:
            until(lambda c=connection: (self.behind(c) or 0) < FAR_BEHIND, "it catches up")

    def goes_on(self, also: Iterable[psycopg.Connection] = ()) -> None:
        """All (and also these) see what is changed now, keep it, and are caught up while they are idle."""
        readers = list(dict.fromkeys([*self.readers, *also]))
        self.writer.execute("UPDATE item SET v = v + 1")
        for reader in readers:
            assert self.kept(reader) == 0 and self.kept(reader) == ROWS
        resets = [self.resets(reader) for reader in readers]
        self.flood(FAR_BEHIND + 1000)
        self.catch_up(readers)
        assert [self.resets(reader) for reader in readers] == resets
        assert [self.kept(reader) for reader in readers] == [ROWS] * len(readers)
        self.no_snapshots()

    def no_snapshots(self) -> None:
        """No idle session holds back what vacuum may remove."""
        until(lambda: not one(self.watcher, "SELECT count(*) FROM pg_stat_activity"
                              " WHERE backend_xmin IS NOT NULL AND state = 'idle'"), "no snapshots")

    def end(self) -> None:
        """Closes the sessions; then no session may be reading or have a turn, and no transaction may be announced."""
        self.points.release()
        for connection in self._opened:
            connection.close()
        until(lambda: one(self.watcher, "SELECT stop_caches()") == NOTHING_READ, "all is given back")
        assert one(self.watcher, "SELECT count(*) FROM herald.caches") == 0
        until(lambda: self.points.state() == AT_REST, "nor a turn of notifications")
        until(lambda: left_nothing(self.watcher), "nobody listens, and the queue is empty")

    # ---- the watchdog ----

    def without_watchdog(self):
        """Within the block, the background worker does not run: no turn is taken back."""
        return stopped(until(lambda: watchdog_pid(self.cluster), "the watchdog runs"))


def look(connection: psycopg.Connection) -> int:
    """Compares cached values with the table; returns how many were found in the cache."""
    return one(connection, LOOK)


def found(connection: psycopg.Connection, statement: str) -> bool:
    """Whether a statement that looks up one value finds it in the session's cache."""
    hits = "SELECT coalesce(sum(hits), 0) FROM herald.caches WHERE pid = pg_backend_pid()"
    before = one(connection, hits)
    connection.execute(statement)
    return one(connection, hits) == before + 1
