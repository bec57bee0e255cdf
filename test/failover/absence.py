"""Servers that run without the module for a while: as stock servers, on which clients commit and notify all the same.

While the primary has no module, notifications are neither logged nor relayed. Listeners on a standby must receive a reset, or be
cut off, and no position from before may be of use afterwards.
"""

import time
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from clients import CHANNELS, SteadyListener
from nodes import FOLLOWS_S, Chain, Node
from support import until

if TYPE_CHECKING:
    from faults import Faults

TOLD, PROMOTED = "reset by an absent module", "promoted without the module"
ON_ALL_CHANNELS = f"SELECT count(DISTINCT channel) = {len(CHANNELS)} FROM ledger WHERE at > '{{}}'"
LONG_S = (0.1, 1)
TOLD_S = 20  # once the standby shows what was committed
# What may happen meanwhile, at most twice.
MEANWHILE = ("failover", "switchover", "crash_of_primary", "crash_of_standby", "crash_of_all", "restart", "paused_replay",
             "cut_replication", "new_segment")
PROMOTIONS = MEANWHILE[:2]


class Absence:
    """Takes the module from servers of a chain, and gives it back; `steady` are listeners that must be reset."""

    def __init__(self, chain: Chain, random: Random, count: Callable[[str], None], steady: list[SteadyListener]):
        self.chain = chain
        self.random = random
        self.count = count
        self.steady = steady
        self._times = 0

    def happen(self, faults: "Faults") -> str:
        """First on the primary; then on its standby, which is promoted; then on any servers, with any faults meanwhile."""
        self._times += 1
        if self._times == 1:
            absent, meanwhile = [self.chain.primary], []
        elif self._times == 2:
            absent, meanwhile = [self.chain.standbys[0]], [PROMOTIONS[0]]
        else:
            absent = self.random.sample(self.chain.nodes, self.random.randint(1, len(self.chain.nodes)))
            meanwhile = self.random.sample(MEANWHILE, self.random.randrange(3))
        did = [f"on {' '.join(node.name for node in absent)}"]
        for node in absent:
            self._restart(node, False)
        for name in meanwhile:
            fault, future = getattr(faults, name), self.chain.order[name in PROMOTIONS]
            did.append(f"{name.replace('_', ' ')}, {self._do(fault, not future.has_module)}")
            if name in PROMOTIONS and not future.has_module:
                self.count(PROMOTED)
        time.sleep(self.random.uniform(*LONG_S))
        self.random.shuffle(absent)
        for node in absent:
            self._restart(node, True)
        self.chain.until_all_follow()
        self.chain.end_absence()
        return "; ".join(did)

    def _restart(self, node: Node, has_module: bool) -> None:
        """After a crash, or not."""
        primary_has = has_module if node is self.chain.primary else self.chain.primary.has_module
        crashes = self.random.random() < 0.3
        if not crashes:
            self.chain.until_has_all(node)

        def restart() -> str:
            node.load_module(has_module)
            if crashes:
                node.kill()
                node.start()
            else:
                node.restart()
            return ""

        self._do(restart, not primary_has)

    def _do(self, action: Callable[[], str], is_absent: bool) -> str:
        """What leaves the primary with the module, or without."""
        if not is_absent:
            return action()
        begins = self.chain.primary.has_module
        listening = {client: client.told_so_far() for client in self.steady if client.node in self.chain.standbys}
        self.chain.begin_absence()
        did = action()
        if begins:
            self._until_told({client: told for client, told in listening.items() if told})
        return did

    def _until_told(self, listening: dict[SteadyListener, tuple[int, int]]) -> None:
        """Waits until something was committed that is not relayed, and until these listeners have had a reset."""
        now = self.chain.primary.psql("SELECT clock_timestamp()")
        until(lambda: self.chain.primary.psql(ON_ALL_CHANNELS.format(now)) == "t", "all channels are used", FOLLOWS_S)
        self.chain.until_all_follow()
        for client, told in listening.items():
            until(lambda: client.told_so_far() != told,
                  f"{client.name} on {client.node.name} has a reset, since the primary commits without pg_herald", TOLD_S)
            self.count(TOLD)
