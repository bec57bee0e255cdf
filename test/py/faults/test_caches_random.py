"""Caches with random faults: under load, with too little memory, and by kill -9."""

import os
import random
import resource
import shutil
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest

from cache_scene import CHANGE, FAR_BEHIND, NOTHING_READ, RING, ROWS, CacheScene, look
from faults import Actors, Doing, pid_of
from support import one, reconnect, until_crashed

# Duration of each test; and the seed, to repeat a failed run.
LOAD_S = float(os.environ.get("HERALD_FAULTS_S", "1"))
SEED = int(os.environ.get("HERALD_FAULTS_SEED", "0"))

pytestmark = pytest.mark.timeout(90 + 2 * LOAD_S)

# Points at which any process may be held for a moment.
POINTS = ["invalidate-announced", "invalidate-published", "catch-up-handed-out", "invalidation-joined",
          "invalidation-joined-and-asked", "catch-up", "invalidation-leave"]
MOMENTS = [*POINTS, "watchdog-look", "deliver-begin"]

STATS = "SELECT invalidations, cache_resets, catch_ups FROM herald.cache_stats"


# ---- under load ----

class Client:
    """Runs one session after another, which changes, looks up, and fills the queue, and may end at any moment."""

    def __init__(self, load: "Load", rng: random.Random):
        self.load = load
        self.rng = rng

    def run(self) -> None:
        """Runs until the load ends."""
        cluster = self.load.scene.cluster
        while not self.load.done.is_set():
            self.load.sessions += 1
            try:
                with psycopg.connect(host=str(cluster.socket_folder), port=cluster.port, user="postgres",
                                     dbname="postgres", autocommit=True, prepare_threshold=None) as session:
                    self._live_once(session)
            except psycopg.OperationalError:
                pass

    def _live_once(self, session: psycopg.Connection) -> None:
        session.execute(self.rng.choice(["LISTEN c", "SELECT 1"]))
        session.execute(f"SET statement_timeout = {self.rng.choice([0, 0, 1, 5, 50])}")
        for _ in range(self.rng.randrange(5, 200)):
            if self.load.done.is_set():
                return
            try:
                for sql in self._transaction():
                    session.execute(sql)
                    self.load.done_so_far += 1
            except (psycopg.errors.QueryCanceled, psycopg.errors.DeadlockDetected,
                    psycopg.errors.SerializationFailure):
                pass
            if session.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                session.execute("ROLLBACK")

    def _transaction(self) -> list[str]:
        change = f"UPDATE item SET v = v + 1 WHERE k = {self.rng.randrange(1, ROWS + 1)}"
        end = self.rng.choice(["COMMIT", "COMMIT", "ROLLBACK"])
        return self.rng.choices([
            ["SELECT look()"],
            [change, "SELECT look()"],
            ["BEGIN", change, "SELECT look()", "SAVEPOINT s", change, "SELECT look()", "ROLLBACK TO s",
             "SELECT look()", end, "SELECT look()"],
            ["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT look()", "SELECT pg_sleep(0.005)",
             "SELECT look()", end],
            ["BEGIN", "SELECT herald.cache_clear('item')", "NOTIFY c", end, "SELECT look()"],
            [f"SELECT flood({self.rng.choice([100, FAR_BEHIND, RING + 64])})", "SELECT look()"],
        ], [30, 20, 10, 10, 3, 3])[0]


class Load(Actors):
    """Clients that may be ended, and survivors that look up all the time."""

    def __init__(self, scene: CacheScene, clients: int, rng: random.Random):
        super().__init__()
        self.scene = scene
        self.sessions = 0
        self.done_so_far = 0
        self.looks = [0 for _ in scene.readers]
        self.start(*[Client(self, random.Random(rng.random())).run for _ in range(clients)])
        self.start(*[partial(self._look, number) for number in range(len(scene.readers))])

    def _look(self, number: int) -> None:
        while not self.done.is_set():
            look(self.scene.readers[number])
            self.looks[number] += 1


@pytest.mark.parametrize("with_points", [False, True], ids=["terminate and cancel", "stand still as well"])
def test_caches_end_at_any_moment(caches, with_points):
    """Guards: sessions are terminated, cancelled, timed out and held at random; no session ever finds what is not in
    the table, none hangs, and afterwards all is kept, and all are caught up."""
    rng = random.Random(SEED)
    load = Load(caches, 5, rng)
    kept = [pid_of(connection) for connection in (*caches.readers, caches.writer, caches.watcher)]
    end = time.monotonic() + LOAD_S
    while (time.monotonic() < end or min(load.looks) <= 5 or load.done_so_far <= 20) and not load.problems:
        how = rng.choice(["pg_terminate_backend", "pg_cancel_backend", "pg_cancel_backend"])
        caches.watcher.execute(
            f"SELECT {how}(pid) FROM pg_stat_activity WHERE backend_type = 'client backend'"
            "  AND pid <> ALL (%s) AND pid %% 3 = %s", (kept, rng.randrange(3)))
        if with_points:
            caches.points.arm(rng.choice(MOMENTS), times=rng.randrange(1, 3))
            time.sleep(rng.random() * 0.05)
            caches.points.release()
        time.sleep(rng.random() * 0.05)
    caches.points.release()
    load.end()
    stats = caches.watcher.execute(STATS).fetchone()
    print(f"{load.sessions} sessions, {load.done_so_far} statements; looks {load.looks};"
          f" invalidations, resets, catch-ups: {stats}")
    assert all(looks > 5 for looks in load.looks) and load.done_so_far > 20
    caches.goes_on()


# ---- too little memory ----

@contextmanager
def limited(scene: CacheScene, victim: psycopg.Connection, room: int):
    """Within the block, a backend can have `room` bytes of address space more than it has now."""
    program, pid = shutil.which("prlimit"), f"--pid={pid_of(victim)}"
    status = Path(f"/proc/{pid_of(victim)}/statm").read_text(encoding="ascii")
    limit = int(status.split()[0]) * resource.getpagesize() + room
    assert scene.cluster.run_as_server_user(program, pid, f"--as={limit}:").returncode == 0
    yield
    assert scene.cluster.run_as_server_user(program, pid, "--as=unlimited:").returncode == 0


@pytest.mark.parametrize("sql", [
    "SELECT length(herald.cache_through('large', $$SELECT repeat('x', 6000000)$$))",
    "SELECT max(length(herald.cache_through('many', $$SELECT repeat('x', 1000 + 0 * $1)$$, n)))"
    " FROM generate_series(1, 5000) n",
    "SELECT flood(50000)",
    "SELECT count(herald.cache_through('queries', 'SELECT 1 ' || repeat(' ', n))) FROM generate_series(1, 5000) n",
], ids=["a large value", "many values", "many invalidations", "many queries"])
def test_out_of_memory(caches, sql):
    """Guards: a session that runs out of memory at any place, while it keeps a value or announces a change, gets a
    clear error; it can go on, and finds no wrong value; the others notice nothing."""
    victim = caches.reader()
    victim.execute("SET herald_cache.memory = '64MB'")
    failed = 0
    while True:
        with limited(caches, victim, failed * 800_000):
            try:
                victim.execute(sql)
                break
            except psycopg.errors.OutOfMemory:
                failed += 1
        victim.execute(CHANGE)
        assert caches.kept(victim) < ROWS and caches.kept(victim) == ROWS
        if failed % 4 == 0:
            assert [caches.kept(reader) for reader in caches.readers] == [ROWS - 1] * 3
            caches.goes_on()
    assert failed > 2
    caches.goes_on(also=[victim])


LENGTH = "SELECT length(herald.cache_through('large', 'SELECT repeat(''x'', $1 + 0 * $2)', %s, %s))"


def test_value_is_too_large(caches):
    """Guards: a value that does not fit is returned, and not kept; no session keeps more than it may, in any case."""
    victim = caches.reader()
    victim.execute("SET herald_cache.memory = '64kB'")
    for length in (10, 60_000, 70_000, 5_000_000, 63_000, 30_000, 10):
        for number in range(3):
            assert one(victim, LENGTH, length, number) == length
            use = one(victim, "SELECT memory FROM herald.caches WHERE pid = pg_backend_pid()")
            assert 0 <= use <= 64 * 1024
        assert caches.kept(victim) <= ROWS and caches.kept(victim) == ROWS
    caches.goes_on(also=[victim])


# ---- kill -9 ----

@pytest.mark.parametrize("point", POINTS)
def test_killed_with_caches(faulty, connect, point):
    """Guards: after kill -9 of a backend at any point the server restarts with nothing cached, and all works."""
    scene = CacheScene(faulty, connect)
    scene.points.arm(point, "kill")
    Doing(scene.connect(), f"SELECT look(); {CHANGE}; SELECT flood({FAR_BEHIND + 1000})").end()
    scene.readers[0].close()
    until_crashed(scene.watcher)
    watcher = reconnect(faulty, connect)
    assert one(watcher, "SELECT stop_caches()") == NOTHING_READ
    assert watcher.execute(STATS).fetchone() == (0, 0, 0)
    scene = CacheScene(faulty, connect)
    scene.goes_on()
    scene.end()
