"""The stage of a soak: the server, the actors, and their disturbances."""

import sys
import threading
import time
import traceback
from collections import Counter
from random import Random

from actors import Actor, Flicker, Flood, Laggard, Listener, Reader, Resumer, Sender, Visitor, Watcher
from figures import (Figures, log_is_clean, nothing_is_left, registry_room, resident_kb, turns_are_all_there,
                     use_registry, watched_pids)
from harness.cluster import Cluster
from laggards import SMALLEST
from link import Link
from oracle import Ledger

# In the third database LISTEN and NOTIFY are native; in the last one no session listens.
DATABASES = ("one", "two", "stock")
WITH_HERALD = DATABASES[:2]
FLOODED = "flooded"

# When this memory is full, the channel map has doubled its buckets, and is far from doubling them again, whatever the
# hashes: so the room at the beginning and at the end can be compared.
REGISTRY = "1280kB"
SETTINGS = SMALLEST | {
    "autovacuum": False, "fsync": False, "max_connections": 150, "log_checkpoints": False,
    "herald.channel_memory": REGISTRY, "herald.max_payload": "1MB", "herald.retain_size": "512MB",
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
CONCURRENCIES = (1, 2, 16, -1)

# The phases of a run, repeated. In some of them the server drops what a laggard has not read, or retains nothing; in
# the phase after that the processes adopt the new setting. In the other phases a client can resume.
KEPT = {"max_queue_size": "8GB", "retain_size": "512MB"}
PHASES = (KEPT, KEPT, {"max_queue_size": "2MB"}, KEPT, KEPT, KEPT, {"retain_size": "0"}, KEPT)
PHASE_S = 5
LOOK_S = 0.5
DISTURBED = 10            # the number of backends disturbed between two looks
MUST_HAPPEN = ("compared", "listens", "heard", "terminated", "cut off", "resumed", "reads", "received again")
HANG_S = 90               # without any progress
END_S = 120               # for an actor to finish
LINE_S = 60
GROWTH_MAX_KB = 4096      # of a process in the second half of the run
REGISTRY_LEFT = 0.95      # the fraction of the room at the beginning that must be left


class Failure(AssertionError):
    """The soak has found an error."""


class Stage:
    """A server and its actors; use run()."""

    def __init__(self, cluster: Cluster, seed: int, seconds: float, rate: float, falsified: str | None = None,
                 growth_max_kb: int = GROWTH_MAX_KB):
        self.cluster = cluster
        self.seed = seed
        self.seconds = seconds
        self.random = Random(seed)
        self.ledger = Ledger()
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.flickers_a_second = 500
        self.lag_s = min(25.0, seconds / 5)
        self.era = 0  # odd while the server may drop what a client needs to resume
        self.phase = KEPT
        self.is_over = False
        self.falsified = falsified
        self.growth_max_kb = growth_max_kb
        self._lock = threading.Lock()
        senders = [Sender(self, number, database, expendable=number % 2 == 1)
                   for number, database in enumerate(DATABASES * 2 + WITH_HERALD)]
        self.pause_s = len(senders) / rate
        self.senders = [*senders, Flood(self, 0, FLOODED)]
        self.listeners: list[Actor] = [Watcher(self, number, database)
                                       for number, database in enumerate(DATABASES + WITH_HERALD)]
        self.listeners += [Visitor(self, number, database, expendable=True)
                           for number, database in enumerate(DATABASES * 2 + WITH_HERALD)]
        self.listeners += [Laggard(self, number, database, expendable=number > 1)
                           for number, database in enumerate(WITH_HERALD * 2)]
        self.listeners += [Flicker(self, number, database, expendable=True)
                           for number, database in enumerate(WITH_HERALD)]
        self.listeners += [Resumer(self, number, database, (1, 2, 3, 4))
                           for number, database in enumerate(WITH_HERALD * 4)]
        self.listeners += [Reader(self, number, database, (1,))
                           for number, database in enumerate(WITH_HERALD * 2)]

    # ---- for the actors ----

    def has_herald(self, database: str) -> bool:
        """Whether the database has the extension."""
        return database in (*WITH_HERALD, FLOODED)

    def leader(self, database: str) -> Actor:
        """The actor whose order counts in a database."""
        return next(actor for actor in self.listeners if actor.database == database)

    def keeps_since(self, era: int) -> bool:
        """Whether the server still has everything since then."""
        return era == self.era and era % 2 == 0

    def count(self, what: str, number: int = 1) -> None:
        """Counts an event for the lines and the summary."""
        with self._lock:
            self.counts[what] += number

    def report(self, problem: str) -> None:
        """Records a problem, which ends the run."""
        self.problems.append(problem)

    def falsify(self, listener: Listener) -> bool:
        """Whether its last notification shall count as lost: True once, to test that the loss is detected."""
        if self.falsified != listener.kind or listener.account.heard < 100:
            return False
        self.falsified = None
        return True

    # ---- the run ----

    def run(self) -> None:
        """Runs the soak; Failure if anything is wrong."""
        try:
            self._run()
        finally:
            self.is_over = True

    def _run(self) -> None:
        for database in (*DATABASES, FLOODED):
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
        self._set(retain_size="0")

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
        """Watches and disturbs the actors, until the time is over."""
        began = told = time.monotonic()
        phase, phase_s = 0, min(PHASE_S, self.seconds / len(PHASES))
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
            if now > began + (phase + 1) * phase_s:
                phase += 1
                self._change(PHASES[phase % len(PHASES)])
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
        victims = [(actor, actor.pid) for actor in actors if actor.expendable and actor.pid]
        if not victims:
            return
        actor, pid = self.random.choice(victims)
        what = "terminate" if self.random.random() < actor.cut_off else "cancel"
        self.disturber.run(f"SELECT pg_{what}_backend(pid) FROM pg_stat_activity WHERE pid = {pid}")
        if what == "terminate":
            self.count("terminated")

    def _change(self, phase: dict[str, str]) -> None:
        """Starts the next phase."""
        self.era += self.era % 2 != (phase is not KEPT or self.phase is not KEPT)
        self.phase = phase
        self._set(**KEPT | phase, wakeup_concurrency=self.random.choice(CONCURRENCIES))
        self.count("phases")

    def _set(self, **settings: str | int) -> None:
        """Sets and reloads these settings."""
        for name, value in settings.items():
            self.disturber.run(f"ALTER SYSTEM SET herald.{name} = '{value}'")
        self.disturber.run("SELECT pg_reload_conf()")

    # ---- watching ----

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
        """The memory in kB of the processes that live during the whole run."""
        pids = [actor.pid for actor in (*self.senders, *self.listeners) if not actor.expendable]
        return {pid: resident_kb(pid) for pid in watched_pids(self.cluster, pids)}

    def _check_memory(self, last: dict[int, int]) -> None:
        grown = {pid: last[pid] - before for pid, before in self.middle.items() if pid in last}
        greatest = max(grown.values())
        print(f"  memory of {len(grown)} processes since the middle: has grown by {greatest} kB at most")
        if greatest > self.growth_max_kb:
            raise Failure(f"memory has grown since the middle of the run: {grown} kB")
