"""The faults, in random order. Each ends with three running servers."""

import os
import signal
import time
from collections.abc import Callable
from random import Random

from absence import Absence
from clients import SteadyListener
from nodes import Chain, Node
from support import stopped

LONG_S = (0.2, 1.5)
RELAY = "pg_herald relay"


class Faults:
    """Disturbs a chain; `count` is called with each fault's name, and what else is to be counted."""

    def __init__(self, chain: Chain, random: Random, count: Callable[[str], None], steady: list[SteadyListener]):
        self.chain = chain
        self.random = random
        self.count = count
        self._absence = Absence(chain, random, count, steady)
        self._deck: list[Callable[[], str]] = [self.failover, self.absent_module]

    def next(self) -> str:
        """Causes the next fault; returns a description. After the first two all kinds come before one comes again."""
        if not self._deck:
            self._deck = [self.failover, self.switchover, self.crash_of_primary, self.crash_of_standby,
                          self.crash_of_all, self.restart, self.stopped_process, self.terminated_relay,
                          self.paused_replay, self.cut_replication, self.new_segment, self.absent_module]
            self.random.shuffle(self._deck)
        fault = self._deck.pop()
        name = fault.__name__.replace("_", " ")
        self.count(name)
        return f"{name}, {fault()}"

    # ---- servers ----

    def failover(self) -> str:
        """The primary is killed, and its standby takes over. An asynchronous one may lack what came last."""
        self.chain.until_safe()
        lacks = not self.chain.is_synchronous and self.random.random() < 0.7
        if lacks:
            self.chain.standbys[0].detach()
            self._sleep()
        self.chain.primary.kill()
        return self._promote() + ", the last WAL is lost" * lacks

    def switchover(self) -> str:
        """The primary is stopped, and its standby takes over, with everything."""
        self.chain.until_safe()
        self.chain.primary.stop()
        return self._promote()

    def crash_of_primary(self) -> str:
        """Killed, and started again."""
        return self._crash(self.chain.primary)

    def crash_of_standby(self) -> str:
        """Killed, and started again."""
        return self._crash(self._any_standby())

    def crash_of_all(self) -> str:
        """All are killed, and started again."""
        for node in self.chain.order:
            node.kill()
        for node in self.chain.order:
            node.start()
        return "in the order of replication"

    def restart(self) -> str:
        """One is stopped, and started again."""
        node = self.random.choice(self.chain.nodes)
        self.chain.until_has_all(node)
        node.restart()
        return node.name

    def absent_module(self) -> str:
        """Some run as stock servers for a while."""
        return self._absence.happen(self)

    # ---- processes and replication ----

    def stopped_process(self) -> str:
        """SIGSTOP for a while."""
        node, name = self._any_standby(), self.random.choice(("walreceiver", RELAY, RELAY))
        if pid := node.process(name):
            with stopped(pid):
                self._sleep()
        return f"{name} of {node.name}" + ", which has none" * (not pid)

    def terminated_relay(self) -> str:
        """The server starts another one."""
        node = self._any_standby()
        if pid := node.process(RELAY):
            os.kill(pid, signal.SIGTERM)
        return node.name + ", which has none" * (not pid)

    def paused_replay(self) -> str:
        """A standby receives WAL, and shows nothing of it, for a while."""
        node = self._any_standby()
        node.psql("SELECT pg_wal_replay_pause()")
        self._sleep()
        node.psql("SELECT pg_wal_replay_resume()")
        return node.name

    def cut_replication(self) -> str:
        """A standby receives no WAL for a while."""
        node = self._any_standby()
        node.detach()
        self._sleep()
        node.follow(self.chain.upstream(node))
        return node.name

    def new_segment(self) -> str:
        """The WAL goes on in another file, beyond a checkpoint."""
        self.chain.primary.psql("CHECKPOINT; SELECT pg_switch_wal()")
        return self.chain.primary.name

    # ---- internals ----

    def _any_standby(self) -> Node:
        return self.random.choice(self.chain.standbys)

    def _sleep(self) -> None:
        time.sleep(self.random.uniform(*LONG_S))

    def _promote(self) -> str:
        before = self.chain.primary.name
        crashes = self.random.random() < 0.3
        how = self.chain.promote(crashes)
        self.count(how.split(",")[0])
        return f"{before} to {self.chain.primary.name}{', which crashes at once' * crashes}; {before} {how}"

    def _crash(self, node: Node) -> str:
        node.kill()
        if self.random.random() < 0.5:
            self._sleep()
        node.start()
        return node.name
