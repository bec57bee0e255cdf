"""The servers: a primary, its standby, and the standby's standby."""

import time
from contextlib import ExitStack

from harness.cluster import ClusterError
from harness.standby import Member
from support import until

MODULE = "pg_herald"
SETTINGS = {
    "shared_preload_libraries": MODULE,
    "wal_level": "replica", "wal_log_hints": True, "wal_keep_size": "2GB", "hot_standby_feedback": False,
    "wal_retrieve_retry_interval": "200ms", "max_connections": 60, "shared_buffers": "32MB",
    "herald.max_payload": "1MB", "log_checkpoints": False,
    # A process that is killed loses nothing by the first; the memory in the second goes with the folder.
    "fsync": False, "dynamic_shared_memory_type": "mmap",
    # No query on a standby is cancelled because of a row that was vacuumed.
    "autovacuum": False,
}
ONE_IS_ENOUGH = {"synchronous_standby_names": "ANY 1 (*)"}
FOLLOWS_S = 60
BEHIND_S = 3  # a client may take a position so much later than it was sent
HAS_ALL = """SELECT count(*) = 0 FROM pg_stat_replication
	WHERE flush_lsn > greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())"""


def lsn(text: str) -> int:
    """A position in the WAL."""
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


class Node(Member):
    """One of the servers.

    starts  how often it was started
    copies  how often it got another server's data, without the WAL of the time before
    """

    def __init__(self, name: str, source: "Node | None" = None):
        super().__init__(name, dict(SETTINGS), source)
        self.starts = self.copies = 0

    def start(self) -> None:
        """As for any server."""
        self.starts += 1
        super().start()

    def says(self, sql: str) -> bool:
        """Whether a query says true; not if it is cancelled, as the server does with any query for which replay waits."""
        try:
            return self.psql(sql) == "t"
        except ClusterError as problem:
            if "due to conflict with recovery" not in str(problem):
                raise
            return False

    @property
    def has_module(self) -> bool:
        """Whether it has pg_herald, or will have when it starts."""
        return self.settings["shared_preload_libraries"] == MODULE

    def load_module(self, has: bool) -> None:
        """Has it run with pg_herald, or as a stock server, from its next start on."""
        self.settings["shared_preload_libraries"] = MODULE if has else ""

    def rejoin(self, primary: "Node", upstream: "Node") -> str:
        """Makes this stopped server, an earlier primary, a standby; returns how."""
        how = "rewound"
        try:
            self.rewind(primary)
        except ClusterError as problem:
            how = f"copied, since {problem}"
            self.copy(primary)
            self.copies += 1
        self.follow(upstream)
        self.start()
        return how

    def process(self, name: str) -> int | None:
        """The pid of its process of that name, if it has one."""
        return next((pid for pid, command in self.processes().items() if name in command), None)


class Chain:
    """Three nodes; in `order` each follows the one before, the primary is the first.

    absences  when the primary had no module: begin and end. A position from before an end is of no use after that begin
    present_from  the WAL at the last of these ends. A standby that was killed may show what was before, once more
    """

    def __init__(self, is_synchronous: bool, kind: type[Node] = Node):
        self.is_synchronous = is_synchronous
        first = kind("a")
        self.nodes = [first, kind("b", first), kind("c", first)]
        self.order = list(self.nodes)
        self.absences: list[tuple[float, float]] = []
        self.present_from = 0
        self._stack = ExitStack()

    def __enter__(self) -> "Chain":
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exception) -> None:
        self.close()

    def close(self) -> None:
        """Removes the servers."""
        self._stack.close()

    @property
    def primary(self) -> Node:
        """The present primary."""
        return self.order[0]

    @property
    def standbys(self) -> list[Node]:
        """The primary's standby, and the cascading one."""
        return self.order[1:]

    def upstream(self, standby: Node) -> Node:
        """The node that a standby follows."""
        return self.order[self.order.index(standby) - 1]

    def module_is_absent(self, since: float = float("inf")) -> bool:
        """Whether a primary has committed without the module since then, or may do so now."""
        return any(end + BEHIND_S >= since for _, end in self.absences)

    def begin_absence(self) -> None:
        """From now on the primary may have no module."""
        if not self.module_is_absent():
            self.absences.append((time.monotonic(), float("inf")))

    def end_absence(self) -> None:
        """Waits, if the primary had no module, until each server delivers what was committed since it has it again."""
        if self.module_is_absent():
            wal = self.primary.psql("SELECT txid_current(); SELECT pg_current_wal_flush_lsn()").split()[-1]
            for node in self.standbys:
                until(lambda: node.says(f"SELECT read_position >= '{wal}' FROM herald.relay"),
                      f"{node.name} delivers", FOLLOWS_S)
            self.present_from = lsn(wal)
            self.absences[-1] = self.absences[-1][0], time.monotonic()

    def until_safe(self) -> None:
        """Waits until the standby has everything that the primary has by now; for one that is asynchronous, not at all.

        From then on a commit is visible only when the standby has it, until the primary restarts.
        """
        if self.is_synchronous:
            wal = self.primary.psql("SELECT pg_current_wal_insert_lsn()")
            until(lambda: self.primary.psql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'"
                                            f" AND flush_lsn >= '{wal}'") == "1", "the standby follows", FOLLOWS_S)

    def commit(self) -> None:
        """Commits on the primary. It waits for a standby where one is synchronous, as a commit does that has written something; a
        mere transaction number is not that.
        """
        self.primary.psql("SELECT pg_logical_emit_message(true, '', '')")

    def until_all_follow(self) -> None:
        """Waits until the standbys show everything that the primary shows by now."""
        wal = self.primary.psql("SELECT pg_current_wal_insert_lsn()")
        for node in self.standbys:
            until(lambda: node.says(f"SELECT pg_last_wal_replay_lsn() >= '{wal}'"), f"{node.name} follows", FOLLOWS_S)

    def until_has_all(self, node: Node) -> None:
        """Waits until a node has all that its standby has: after a crash it has to replay that again.

        Before, it could not be stopped: the server's walsender ends when its standby is exactly where it is itself
        (WalSndDone()), and the standby is beyond that.
        """
        if node is not self.primary:
            until(lambda: node.says(HAS_ALL), f"{node.name} has what its standby has", FOLLOWS_S)

    def take_over(self) -> tuple[Node, Node, Node]:
        """Makes the standby the primary; returns the earlier one, which has stopped, the new one, and the last standby."""
        old, new, last = self.order
        new.promote()
        self.order = [new, last, old]
        return old, new, last

    def promote(self, crashes: bool) -> str:
        """Makes the standby the primary, and the primary, which has stopped, the last of the standbys; returns how.

        If it `crashes`, the new primary is killed before the old one returns.
        """
        old, new, last = self.take_over()
        if crashes:
            new.kill()
            new.start()
        return old.rejoin(new, last)

    def _start(self) -> None:
        for node in self.nodes:
            node.create()
            self._stack.callback(node.remove)
            if node is not self.primary:
                node.follow(self.upstream(node))
            node.start()
        if self.is_synchronous:
            for node in self.nodes:
                node.settings |= ONE_IS_ENOUGH
                node.reload()
