"""The demo's client: keeps its position, and resumes after it on whichever server is the primary.

It counts as docs/resume.md says: what came is processed when the position behind it has come, and
what came after the last position is forgotten when the connection breaks.
"""

import time
from collections import Counter

from bench import libpq
from harness.cluster import Cluster

CHANNEL = "orders"
POSITION = "herald_position"
RETRY_S = 2.0


class NotResumed(Exception):
    """The server says that something is missing."""


class Client:
    """One client; it is used by one thread.

    processed  each number that it has processed, and how often: its ledger
    unsure     the numbers that came after the last position
    forgot     how often it forgot a number, which then comes once more
    resumed    how often it has resumed
    """

    def __init__(self, *clusters: Cluster):
        self._installation = clusters[0].installation
        self._parameters = libpq.servers(*clusters)
        self._connection: libpq.Connection | None = None
        self._position: str | None = None
        self._next_s = 0.0
        self.processed: Counter[int] = Counter()
        self.unsure: list[int] = []
        self.forgot = 0
        self.resumed = 0

    @property
    def is_connected(self) -> bool:
        """Whether it listens."""
        return self._connection is not None

    def work(self, timeout_s: float) -> None:
        """Processes what comes; waits up to timeout_s for it, or for the time to connect."""
        if self._connection is None:
            time.sleep(min(timeout_s, max(0.0, self._next_s - time.monotonic())))
            if time.monotonic() >= self._next_s:
                self._connect()
            return
        try:
            found = self._connection.notifications(timeout_s)
        except libpq.Lost:
            self.close()
            return
        for channel, payload in found:
            if channel == POSITION:
                self.processed.update(self.unsure)
                self.unsure = []
                self._position = payload
            else:
                self.unsure.append(int(payload))

    def close(self) -> None:
        """Ends the connection, and forgets what came after the last position."""
        self.forgot += len(self.unsure)
        self.unsure = []
        self._next_s = time.monotonic() + RETRY_S
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> None:
        try:
            self._connection = libpq.Connection(self._installation, self._parameters)
            after = f"'{self._position}'" if self._position else "NULL"
            self._connection.run(f"BEGIN; LISTEN {POSITION}")
            ((answer,),) = self._connection.run(f"SELECT herald.listen('{CHANNEL}', after => {after})")
            self._connection.run("COMMIT")
        except libpq.Lost:
            self.close()
            return
        if self._position:
            if answer != "t":
                raise NotResumed("herald.listen() returned false: something may be missing")
            self.resumed += 1
