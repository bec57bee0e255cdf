"""A run: the servers, the faults, the clients, and the comparison at the end."""

import sys
import threading
import time
import traceback
from collections import Counter
from random import Random

from account import Row
from actors import Actor
from absence import TOLD
from clients import (CHANNELS, COMMITTING, DATABASE, IGNORED, LOGGED, REFUSED, Client, Cutter, Listener, Reader, Sender,
                     SteadyListener)
from faults import Faults
from figures import log_is_clean
from link import Link
from nodes import Chain, Node
from outsiders import join, join_mixed

SENDERS, LISTENERS, READERS, STEADY = 4, 9, 3, 3
PAUSE_S = (0.2, 1.2)      # between two faults; each takes some seconds itself
# No client can resume from such a position (src/notify/cursor/README.md): of a server that has begun to read the WAL behind
# the last anchor; beside a commit that hangs for a second.
KNOWN = ("had not come to an anchor yet", COMMITTING)
ANCHOR_S = 3  # the copies have no WAL from before them: positions must come from an anchor after that
CALM_S = 2                # without faults, before the senders end
END_S = 90                # for a thread to finish
HANG_S = 90               # without any progress
LOOK_S = 0.1
SHOWN, SHOWN_BEFORE, SHOWN_AFTER = 2, 30, 8  # of what is wrong with a client; events before and after it
MARKER = 0                # the sender of the marks: the last notification on each channel
MUST_HAPPEN = ("cut off", "resumed, same server", "resumed, other server", "resumed, after a restart", "failover",
               "absent module", REFUSED, TOLD)
ROLES = ("primary", "standby", "cascading standby")


class Failure(AssertionError):
    """The run has found an error."""


class Story:
    """One run; use run(). With is_logged off, clients use the primary alone; with is_mixed, some may disturb them."""

    def __init__(self, chain: Chain, seed: int, seconds: float, is_logged: bool, is_mixed: bool, falsified: str | None):
        self.chain = chain
        self.seed = seed
        self.seconds = seconds
        self.is_logged = is_logged
        self.is_mixed = is_mixed
        self.is_over = False
        self.counts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.resets: Counter[str] = Counter()
        self.needless_resets = 0
        self.problems: list[str] = []
        self._falsified = falsified
        self._is_calm = False
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._late = float("inf")
        self.senders = [Sender(self, number, not chain.is_synchronous and number == SENDERS)
                        for number in range(1, SENDERS + 1)]
        self.clients: list[Client] = [Listener(self, number) for number in range(LISTENERS)]
        self.clients += [Reader(self, number) for number in range(READERS)]
        self.steady = [SteadyListener(self, number) for number in range(STEADY)] if is_logged else []
        self.clients += self.steady
        self._ignorant: Client | None = None
        self.others: list[Actor] = [Cutter(self, 0, DATABASE, expendable=True)]
        self.must_happen = list(MUST_HAPPEN) if is_logged else []

    # ---- for the threads ----

    def servers(self) -> list[Node]:
        """Those that a client may use."""
        return self.chain.nodes if self.is_logged else [self.chain.primary]

    def role(self, node: Node) -> str:
        """A node's present role."""
        return ROLES[self.chain.order.index(node)]

    def count(self, what: str, number: int = 1) -> None:
        """Counts an event for the summary."""
        with self._lock:
            self.counts[what] += number

    def report(self, problem: str) -> None:
        """Records a problem, which ends the run."""
        self.problems.append(problem)

    def reset(self, client: Client, why: str, more: str) -> None:
        """Records that a client could not resume, and has read the table instead. The reason decides whether that was needless;
        `more` is only shown."""
        with self._lock:
            self.resets[f"{why}; {more}"] += 1
            self.needless_resets += not (client.node.copies or any(known in why for known in KNOWN) or
                                         client.is_behind or self.chain.module_is_absent(client.position_at))
        if self.is_logged:
            self.say(f"{client.kind} {client.number} on {client.node.name}: {why}; {more}")

    def say(self, what: str) -> None:
        """Prints what has just happened."""
        print(f"{time.monotonic() - self._began:6.1f} s  {what}", flush=True)

    def marks(self, channels: list[str]) -> set[Row]:
        """The rows that are sent last on these channels."""
        return {(MARKER, 1 + CHANNELS.index(channel)) for channel in channels}

    def is_late(self) -> bool:
        """Whether a client shall wait no more for what it lacks."""
        return time.monotonic() > self._late

    def falsify(self, row: Row | None) -> str | None:
        """How a client shall falsify this row, which it has just received: once in a run that must fail."""
        if row is None or not self._is_calm or row[0] == MARKER or self._falsified == IGNORED:
            return None
        with self._lock:
            falsified, self._falsified = self._falsified, None
        return falsified

    def ignores(self, client: Client) -> bool:
        """Whether a client shall not read the table, though it must: the first one in a run that must fail, then always."""
        with self._lock:
            if self._falsified == IGNORED and not self._ignorant and client.account.position and \
                    self.chain.module_is_absent(client.position_at):
                self._ignorant = client
        return client is self._ignorant

    # ---- the run ----

    def run(self) -> None:
        """Runs it; Failure if anything is wrong."""
        try:
            self._run()
        finally:
            self.is_over = True

    def _run(self) -> None:
        if self.is_mixed:
            self.must_happen += join_mixed(self)
        if self.is_logged:
            self.must_happen += join(self)
            self.chain.primary.psql(LOGGED)
        self.chain.until_all_follow()
        self._pause(ANCHOR_S)
        for actor in (*self.clients, *self.senders, *self.others):
            actor.start()
        self._disturb()
        self.chain.until_all_follow()
        self._is_calm = True
        self._pause(CALM_S)
        for actors in (self.others, self.senders):
            self._end(actors)
        self.chain.primary.psql("BEGIN; " + "".join(
            f"SELECT send({MARKER}, {number}, 1, '{channel}', 40);" for number, channel in enumerate(CHANNELS, 1)) + "COMMIT")
        self._late = time.monotonic() + END_S / 2
        self._end(self.clients)
        self._compare()

    def _disturb(self) -> None:
        random = Random(self.seed)
        faults = Faults(self.chain, random, self._count_fault, self.steady)
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            self._pause(random.uniform(*PAUSE_S))
            self.say(faults.next())

    def _count_fault(self, name: str) -> None:
        self.faults[name] += 1

    def _pause(self, seconds: float) -> None:
        """Watches the threads for this time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(LOOK_S, left))
            self._look()

    def _look(self) -> None:
        if self.problems:
            raise Failure("\n".join(self.problems))
        for actor in (*self.senders, *self.clients):
            if actor.is_alive() and time.monotonic() > actor.alive_at + HANG_S:
                self._raise_hang(actor)

    def _end(self, actors: list) -> None:
        for actor in actors:
            actor.end()
        end = time.monotonic() + END_S
        for actor in actors:
            actor.join(max(0, end - time.monotonic()))
            if actor.is_alive():
                self._raise_hang(actor)
        self._look()

    def _raise_hang(self, actor) -> None:
        frame = sys._current_frames().get(actor.ident)
        where = "".join(traceback.format_stack(frame)[-4:]) if frame else ""
        activity = "\n".join(f"{node.name}:\n" + node.psql(
            "SELECT pid, backend_type, state, wait_event, left(query, 100) FROM pg_stat_activity", timeout_s=30)
            for node in self.chain.order)
        raise Failure(f"{actor.name}, backend {actor.pid}, does not go on\n{where}\n{activity}")

    # ---- the comparison ----

    def _compare(self) -> None:
        link = Link(self.chain.primary, DATABASE)
        rows = {channel: {} for channel in CHANNELS}
        for sender, number, channel, at in link.run("SELECT sender, number, channel, extract(epoch FROM at) FROM ledger"):
            rows[channel][int(sender), int(number)] = float(at)
        link.close()
        found: Counter[str] = Counter()
        for client in self.clients:
            account = client.account
            wanted = {row: at for channel in account.channels for row, at in rows[channel].items()}
            missing = {row: at for row, at in wanted.items() if row not in account.processed}
            extra = dict.fromkeys(account.processed - wanted.keys(), 0.0)
            for what, times in (("missing", missing), ("not in the table", extra), ("doubled", account.doubled),
                                ("out of order", account.disordered)):
                self._show(client, what, times)
            found.update(received=account.received, missing=len(missing), extra=len(extra),
                         doubled=len(account.doubled), disordered=len(account.disordered))
        present = {row for channel in rows.values() for row in channel}
        lost = sum((sender.number, number) not in present for sender in self.senders for number in sender.committed)
        self._summarise(len(present), found, lost)
        self._judge(found, lost)

    def _show(self, client: Client, what: str, times: dict[Row, float]) -> None:
        """Prints the first of these rows, and what happened to the client at that time."""
        for row, at in sorted(times.items(), key=lambda item: item[::-1])[:SHOWN]:
            print(f"  {client.kind} {client.number}: {row} is {what}")
            before = [event for event in client.account.events if event[0] < at]
            after = [event for event in client.account.events if event[0] >= at]
            for when, event in before[-SHOWN_BEFORE:] + after[:SHOWN_AFTER]:
                print(f"    {when - at:+.3f} s  {event}")

    def _summarise(self, rows: int, found: Counter[str], lost: int) -> None:
        counted = {what: self.counts[what] for what in sorted(self.counts)}
        print(f"  faults: {dict(self.faults)}\n  {counted}\n"
              f"  {rows} rows in the table, {lost} lost after their commit; {found['received']} notifications received:"
              f" {found['missing']} missing, {found['doubled']} doubled, {found['extra']} not in the table,"
              f" {found['disordered']} out of order; {self.resets.total()} resets")
        for why, number in self.resets.most_common():
            print(f"    {number} resets: {why}")

    def _judge(self, found: Counter[str], lost: int) -> None:
        wrong = [what for what in ("missing", "doubled", "extra", "disordered") if found[what]]
        if self.chain.is_synchronous and lost:
            wrong.append("lost by servers that replicate synchronously")
        if self.chain.is_synchronous and self.is_logged and not self.is_mixed and self.needless_resets:
            wrong.append("resets, though nothing was lost")
        wrong += [f"no {what}" for what in self.must_happen if not (self.counts + self.faults)[what]]
        for node in self.chain.nodes:
            try:
                log_is_clean(node)
            except AssertionError as problem:
                wrong.append(f"log of {node.name}: {problem}")
        if wrong:
            raise Failure(", ".join(wrong))
