"""Random faults under load: terminations, cancellations, timeouts, processes that are held.

Every message is accounted for: what was reported to a client as committed is received once by every listener that
stays, and each sender's messages are received in their order.
"""

import os
import random
import threading
import time
from collections import defaultdict
from functools import partial

import psycopg
import pytest

from faults import Actors, Scene, pid_of
from laggards import files
from support import hear, one, until, works_from_the_start

# Duration of each test; and the seed, to repeat a failed run.
LOAD_S = float(os.environ.get("HERALD_FAULTS_S", "3"))
SEED = int(os.environ.get("HERALD_FAULTS_SEED", "0"))

pytestmark = pytest.mark.timeout(90 + 2 * LOAD_S)

# Points at which any process may be held for a moment.
MOMENTS = [
    "publish-reserve", "publish-reserved", "publish-no-room", "await-room", "publish-committed", "publish-finished",
    "dispatch-try", "dispatch-locked", "dispatch-published", "dispatch-marked", "dispatch-unlock",
    "dispatch-unlocked", "dispatch-done", "turn-taken", "turn-in-slot", "turn-handed-out", "reason-added",
    "deliver-begin", "deliver-read", "deliver-message", "deliver-all-read", "deliver-done",
    "turn-given-back", "exit", "exit-word-free", "listen-joined", "listen-entered", "watchdog-look",
    "housekeeper-look",
    "requeued", "spill-saved", "spill-published", "tail-moved", "spill-retired", "large-transaction-write",
    "large-transaction-complete",
]


class Victims(Actors):
    """Senders that also listen, some with savepoints and large transactions, and that may end at any moment."""

    def __init__(self, scene: Scene, count: int, rng: random.Random):
        super().__init__()
        self.scene = scene
        self.committed: list[str] = []  # as reported to the clients
        self.tried: set[str] = set()
        self.sessions = 0
        self._lock = threading.Lock()
        self.start(*[partial(self._live, random.Random(rng.random())) for _ in range(count)])

    def _live(self, rng: random.Random) -> None:
        while not self.done.is_set():
            self._live_once(rng)

    def _live_once(self, rng: random.Random) -> None:
        """Runs one session, until it is ended; each message has the session's name and a number."""
        with self._lock:
            self.sessions += 1
            name = f"v{self.sessions}"
        cluster = self.scene.cluster
        try:
            with psycopg.connect(host=str(cluster.socket_folder), port=cluster.port, user="postgres",
                                 dbname="postgres", autocommit=True, prepare_threshold=None) as victim:
                victim.execute(rng.choice(["LISTEN c", "LISTEN d", "SELECT 1"]))
                victim.execute(f"SET statement_timeout = {rng.choice([0, 0, 1, 5, 50])}")
                for number in range(rng.randrange(5, 200)):
                    if self.done.is_set():
                        return
                    self._send(victim, rng, f"{name} {number}")
        except psycopg.OperationalError:
            pass

    def _send(self, victim: psycopg.Connection, rng: random.Random, payload: str) -> None:
        self.tried.add(payload)
        kind = rng.random()
        try:
            if kind < 0.6:
                victim.execute(f"NOTIFY c, '{payload}'")
            elif kind < 0.8:
                victim.execute(f"BEGIN; SAVEPOINT s; NOTIFY c, 'rolled back'; ROLLBACK TO s;"
                               f" NOTIFY c, '{payload}'; COMMIT")
            elif kind < 0.95:
                victim.execute(f"NOTIFY d, '{'x' * 7000}'; NOTIFY c, '{payload}'")
            else:
                victim.execute("BEGIN; SELECT count(pg_notify('d', n::text)) FROM generate_series(1, 3000) n;"
                               f" NOTIFY c, '{payload}'; COMMIT")
        except psycopg.errors.QueryCanceled:
            if victim.info.transaction_status != psycopg.pq.TransactionStatus.IDLE:
                victim.execute("ROLLBACK")
        else:
            self.committed.append(payload)


def numbers(words: list[str]) -> dict[str, list[int]]:
    """The numbers in these messages, by the sender's name."""
    result = defaultdict(list)
    for word in words:
        name, number = word.split()
        result[name].append(int(number))
    return result


class Survivors:
    """Listeners in threads of their own, which receive until the final message."""

    def __init__(self, scene: Scene):
        self.heard: list[list[str]] = [[] for _ in scene.listeners]
        self._threads = [threading.Thread(target=self._listen, args=pair, daemon=True)
                         for pair in zip(scene.listeners, self.heard)]
        for thread in self._threads:
            thread.start()

    def _listen(self, listener: psycopg.Connection, heard: list[str]) -> None:
        while heard[-1:] != ["the end"]:
            heard += hear(listener, 1, 1)

    def end(self) -> None:
        """Waits until they have received the final message."""
        for thread, heard in zip(self._threads, self.heard):
            thread.join(30)
            assert not thread.is_alive(), f"the end did not come; the last was {heard[-1:]}"
            heard.pop()


def steady(connection: psycopg.Connection, done: threading.Event, name: str,
           sent: list[str]) -> threading.Thread:
    """A sender that is not disturbed."""

    def run() -> None:
        while not done.is_set():
            connection.execute(f"NOTIFY c, '{name} {len(sent)}'")
            sent.append(f"{name} {len(sent)}")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@pytest.mark.parametrize("with_points", [False, True], ids=["terminate and cancel", "stand still as well"])
def test_sessions_end_at_any_moment(scene, with_points):
    """Guards: sessions are terminated, cancelled, timed out and held at random; the others receive what was committed,
    once and in order, and none hangs."""
    rng = random.Random(SEED)
    survivors, victims = Survivors(scene), Victims(scene, 4, rng)
    sent = {name: [] for name in ("s1", "s2")}
    senders = [scene.connect() for _ in sent]
    threads = [steady(connection, victims.done, *named) for connection, named in zip(senders, sent.items())]
    kept = {pid_of(connection) for connection in [*scene.listeners, *senders, scene.sender, scene.watcher]}
    end = time.monotonic() + LOAD_S
    while time.monotonic() < end or len(victims.committed) <= 20:
        how = rng.choice(["pg_terminate_backend", "pg_cancel_backend"])
        scene.watcher.execute(
            f"SELECT {how}(pid) FROM pg_stat_activity WHERE backend_type = 'client backend'"
            "  AND pid <> ALL (%s) AND pid %% 3 = %s", (list(kept), rng.randrange(3)))
        if with_points:
            point = rng.choice(MOMENTS)
            scene.points.arm(point, times=rng.randrange(1, 3))
            time.sleep(rng.random() * 0.05)
            scene.points.release()
        time.sleep(rng.random() * 0.05)
    victims.end()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a sender hangs"
    scene.sender.execute("NOTIFY c, 'the end'")
    survivors.end()

    heard = survivors.heard[0]
    print(f"{len(heard)} heard; {victims.sessions} victims, {len(victims.committed)} of"
          f" {len(victims.tried)} committed")
    assert all(words == heard for words in survivors.heard), "all hear the same, in the same order"
    assert len(heard) == len(set(heard)), "nothing is heard twice"
    by_sender = numbers(heard)
    for name, words in sent.items():
        assert by_sender[name] == list(range(len(words))) and words
    assert all(mine == sorted(mine) for mine in by_sender.values()), "each sender's are in order"
    assert not set(victims.committed) - set(heard), "what was committed is heard"
    assert not {word for word in heard if word[0] == "v"} - victims.tried
    assert len(victims.committed) > 20, "the victims have hardly sent anything"


@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_restart_under_load(faulty, connect, mode):
    """Guards: a server that is shut down under load, with files and laggards, starts again with nothing left over."""
    scene = Scene(faulty, connect)
    rng = random.Random(SEED)
    laggard = scene.listener("d")
    laggard.execute("BEGIN; SELECT 1")
    victims = Victims(scene, 4, rng)
    until(lambda: one(scene.watcher, "SELECT spilled FROM herald.queue") > 0, "something is in files")
    assert files(faulty.data)
    victims.done.set()
    faulty.restart(mode)
    victims.end()
    assert files(faulty.data) == []
    works_from_the_start(faulty, connect)
