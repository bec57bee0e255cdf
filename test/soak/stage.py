"""The stage of a soak: the server, the actors, and what disturbs them."""

import sys
import threading
import time
import traceback
from collections import Counter
from random import Random

from actors import Actor, Flicker, Laggard, Listener, Sender, Visitor, Watcher
from figures import (Figures, log_is_clean, nothing_is_left, registry_room, resident_kb, turns_are_all_there,
                     use_registry, watched_pids)
from harness.cluster import Cluster
from link import Link
from oracle import Ledger

# In the last one the server's own LISTEN and NOTIFY are at work.
DATABASES = ("one", "two", "stock")
WITH_HERALD = DATABASES[:2]

# When this is full the channel map has doubled its buckets for certain, and is far from doing it again, however the
# hashes fall: so the room at the beginning and the end can be compared.
REGISTRY = "1280kB"
SETTINGS = {
    "autovacuum": False, "fsync": False, "max_connections": 150, "log_checkpoints": False,
    "herald.queue_memory": "512kB", "herald.channel_memory": REGISTRY, "herald.max_payload": "1MB",
}
SETUP = """
CREATE UNLOGGED TABLE soak (channel text, payload text);
CREATE FUNCTION soak() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify(NEW.channel, NEW.payload);
	RETURN NULL;
END $$;
CREATE TRIGGER soak BEFORE INSERT ON soak FOR EACH ROW EXECUTE FUNCTION soak();
"""
RELOADED = (("herald.wakeup_concurrency", ("1", "2", "16", "-1")),
            ("herald.max_queue_size", ("8GB", "8GB", "8GB", "2MB")))
RELOAD_S = 5
LOOK_S = 0.5
DISTURBED = 10            # backends, between two looks
MUST_HAPPEN = ("compared", "listens", "heard", "terminated")
HANG_S = 90               # without any progress
END_S = 120               # for an actor to come to its end
LINE_S = 60
GROWTH_MAX_KB = 4096      # of a process in the second half
REGISTRY_LEFT = 0.95      # of the room at the beginning


class Failure(AssertionError):
    """The soak has found something."""


class Stage:
    """A server and its actors; use run()."""

    def __init__(self, cluster: Cluster, seed: int, seconds: float, rate: float, falsified: bool = False):
        self.cluster = cluster
        self.seed = seed
        self.seconds = seconds
        self.random = Random(seed)
        self.ledger = Ledger()
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.flickers_a_second = 500
        self.lag_s = min(25.0, seconds / 5)
        self.falsified = falsified
        self._lock = threading.Lock()
        senders = [Sender(self, number, database, expendable=number % 2 == 1)
                   for number, database in enumerate(DATABASES * 2 + WITH_HERALD)]
        self.pause_s = len(senders) / rate
        self.senders = senders
        self.listeners: list[Actor] = [Watcher(self, number, database)
                                       for number, database in enumerate(DATABASES + WITH_HERALD)]
        self.listeners += [Visitor(self, number, database, expendable=True)
                           for number, database in enumerate(DATABASES * 2 + WITH_HERALD)]
        self.listeners += [Laggard(self, number, database, expendable=number > 1)
                           for number, database in enumerate(WITH_HERALD * 2)]
        self.listeners += [Flicker(self, number, database, expendable=True)
                           for number, database in enumerate(WITH_HERALD)]

    # ---- for the actors ----

    def has_herald(self, database: str) -> bool:
        """Is the extension there?"""
        return database in WITH_HERALD

    def count(self, what: str, number: int = 1) -> None:
        """Counts for the lines and the summary."""
        with self._lock:
            self.counts[what] += number

    def report(self, problem: str) -> None:
        """Ends the run."""
        self.problems.append(problem)

    def falsify(self, listener: Listener) -> bool:
        """To be thrown away?  One notification, to see that it is missed."""
        if not self.falsified or not isinstance(listener, Watcher) or listener.account.heard < 100:
            return False
        self.falsified = False
        return True

    # ---- the run ----

    def run(self) -> None:
        """Failure if anything is wrong."""
        for database in DATABASES:
            self.cluster.psql(f"CREATE DATABASE {database}")
            self.cluster.psql(SETUP, database)
            if self.has_herald(database):
                self.cluster.create_herald(database)
        self.figures = Figures(self.cluster, DATABASES[0])
        self.disturber = Link(self.cluster, DATABASES[0])
        use_registry(self.cluster, DATABASES[0])
        room = registry_room(self.cluster, DATABASES[0])

        for actor in (*self.listeners, *self.senders):
            actor.start()
        self._watch()
        last = self._memory()
        for actors in (self.senders, self.listeners):
            self._end(actors)
        self._raise_problems()
        print(f"  {dict(self.counts)}\n  {self.figures.stats()}")
        self._check_overruns()
        self._check_memory(last)

        watcher = self.figures.link
        self.disturber.close()
        nothing_is_left(self.cluster, watcher, list(WITH_HERALD))
        after = registry_room(self.cluster, DATABASES[0])
        print(f"  the registry had room for {room} channels, and has for {after}")
        if after < REGISTRY_LEFT * room:
            raise Failure("memory of the registry has leaked")
        turns_are_all_there(self.cluster, watcher, DATABASES[0])
        nothing_is_left(self.cluster, watcher, list(WITH_HERALD))
        print(f"logged:\n{log_is_clean(self.cluster)}")
        missing = [what for what in MUST_HAPPEN if self.counts[what] == 0]
        if missing:
            raise Failure(f"what did not happen at all: {missing}")

    def _watch(self) -> None:
        """Looks and disturbs, until the time is over."""
        began = told = reloaded = time.monotonic()
        line_s = min(LINE_S, self.seconds / 4)
        before = self._totals()
        self.middle: dict[int, int] = {}
        while (now := time.monotonic()) < began + self.seconds:
            for _ in range(DISTURBED):
                time.sleep(LOOK_S / DISTURBED)
                self._disturb()
            self.figures.look()
            self._look_for_hangs()
            self._raise_problems()
            if now > reloaded + RELOAD_S:
                reloaded = now
                self._reload()
            if not self.middle and now > began + self.seconds / 2:
                self.middle = self._memory()
            if now > told + line_s:
                after = self._totals()
                rates = [f"{(after[what] - before[what]) / (now - told):.0f} {what}/s" for what in after]
                print(f"{now - began:5.0f} s: {', '.join(rates)}; {self.figures.line(list(self._memory()))};"
                      f" {self.counts['terminated']} terminated", flush=True)
                told, before = now, after

    def _totals(self) -> dict[str, int]:
        return {"sent": self.ledger.messages, **{what: self.counts[what] for what in ("heard", "listens")}}

    def _disturb(self) -> None:
        """Cancels or terminates one of the expendable actors."""
        actors = (*self.senders, *self.listeners)
        pids = [actor.pid for actor in actors if actor.expendable and actor.pid]
        if not pids:
            return
        function = self.random.choice(("pg_cancel_backend",) * 20 + ("pg_terminate_backend",))
        self.disturber.run(f"SELECT {function}(pid) FROM pg_stat_activity"
                           f" WHERE pid = {self.random.choice(pids)}")
        if function == "pg_terminate_backend":
            self.count("terminated")

    def _reload(self) -> None:
        name, values = self.random.choice(RELOADED)
        self.disturber.run(f"ALTER SYSTEM SET {name} = '{self.random.choice(values)}'")
        self.disturber.run("SELECT pg_reload_conf()")
        self.count("reloads")

    # ---- looking ----

    def _raise_problems(self) -> None:
        if self.problems:
            raise Failure("\n".join(self.problems))

    def _look_for_hangs(self) -> None:
        for actor in (*self.senders, *self.listeners):
            if actor.is_alive() and time.monotonic() > actor.alive_at + HANG_S:
                self._raise_hang(actor, HANG_S)

    def _end(self, actors: list[Actor]) -> None:
        for actor in actors:
            actor.end()
        end = time.monotonic() + END_S
        for actor in actors:
            actor.join(max(0, end - time.monotonic()))
            if actor.is_alive():
                self._raise_hang(actor, END_S)

    def _raise_hang(self, actor: Actor, seconds: float) -> None:
        frame = sys._current_frames().get(actor.ident)
        where = "".join(traceback.format_stack(frame)[-4:]) if frame else ""
        activity = self.cluster.psql("SELECT pid, datname, state, wait_event, left(query, 80)"
                                     " FROM pg_stat_activity WHERE pid <> pg_backend_pid()", timeout_s=30)
        listeners = self.cluster.psql("TABLE herald.listeners; TABLE herald.queue; TABLE herald.stats",
                                      DATABASES[0], timeout_s=30)
        raise Failure(f"{actor.name}, backend {actor.pid}, has not moved for {seconds} s\n{where}\n"
                      f"{activity}\n{listeners}")

    def _check_overruns(self) -> None:
        told, counted = self.counts["overruns told"], self.figures.stats()["overruns"]
        if told > counted:
            raise Failure(f"{told} were told that they have missed something, but only {counted} have")

    def _memory(self) -> dict[int, int]:
        """kB of the processes that live as long as the run."""
        pids = [actor.pid for actor in (*self.senders, *self.listeners) if not actor.expendable]
        return {pid: resident_kb(pid) for pid in watched_pids(self.cluster, pids)}

    def _check_memory(self, last: dict[int, int]) -> None:
        grown = {pid: last[pid] - before for pid, before in self.middle.items() if pid in last}
        greatest = max(grown.values())
        print(f"  memory of {len(grown)} processes since the middle: has grown by {greatest} kB at most")
        if greatest > GROWTH_MAX_KB:
            raise Failure(f"memory has grown since the middle of the run: {grown} kB")
