"""What one client has processed, in all its sessions, and the position up to which it has done so.

A row of the table `ledger` is a sender and a number; the sender's transaction inserts it, and notifies a channel of it. At
the end a client must have processed exactly the rows of its channels.

A client is sure of what came before its last position. The rest is forgotten when its connection ends: it comes again.
After a reset the client takes the rows of the table that its server shows. A row that was committed while the client took
them may also be in a later notification, once.
"""

import time
from collections import deque

EVENTS_KEPT = 5000
Row = tuple[int, int]  # sender and number; each sender counts from 1, over all channels


class Wrong(AssertionError):
    """Something that must never be received."""


class Account:
    """One client's; `channels` are those whose rows it wants."""

    def __init__(self, channels: list[str]):
        self.channels = channels
        self.position: str | None = None
        self.processed: set[Row] = set()
        self.received = 0
        self.doubled: dict[Row, float] = {}     # with the time, as in events
        self.disordered: dict[Row, float] = {}
        self.unsure: list[Row] = []      # received since the last position
        self.events: deque[tuple[float, str]] = deque(maxlen=EVENTS_KEPT)  # for people, after a failure
        self._last: dict[int, int] = {}  # by sender
        self._read: set[Row] = set()     # from the table, and not received since

    def note(self, event: str) -> None:
        """Remembers what happened to the client."""
        self.events.append((time.time(), event))

    def receives(self, channel: str, payload: str) -> None:
        """Takes a notification; Wrong if it is damaged, or not the client's."""
        sender, number, length, _ = payload.split(" ", 3)
        if channel not in self.channels or len(payload) != int(length):
            raise Wrong(f"received on {channel}, {len(payload)} of {length} characters: {payload[:40]}")
        self.unsure.append((int(sender), int(number)))

    def is_sure(self, position: str) -> None:
        """Processes what was received, and stores the position with it."""
        for row in self.unsure:
            self._process(row)
        self.note(f"processes {_short(self.unsure)}, position {position[-6:]}")
        self.unsure.clear()
        self.position = position

    def goes_back(self) -> None:
        """Forgets what came after the last position."""
        self.unsure.clear()

    def forgets_position(self) -> None:
        """Goes on without one, as if nothing was missed."""
        self.unsure.clear()
        self.position = None

    def reads(self, rows: set[Row]) -> None:
        """Replaces everything by these rows of the table; there is no position until the next one comes."""
        self.note(f"reads the table: {len(rows)} rows, {_short(sorted(rows - self.processed))} are new,"
                  f" {_short(sorted(self.processed - rows))} are gone")
        self.processed = set(rows)
        self._read = rows
        self._last = {}
        for sender, number in rows:
            self._last[sender] = max(number, self._last.get(sender, 0))
        self.unsure.clear()
        self.position = None

    def _process(self, row: Row) -> None:
        self.received += 1
        if row in self._read:
            self._read.discard(row)
        elif row in self.processed:
            self.doubled[row] = time.time()
        else:
            sender, number = row
            if number < self._last.get(sender, 0):
                self.disordered[row] = time.time()
            self._last[sender] = number
            self.processed.add(row)


def _short(rows: list[Row]) -> str:
    """The number of rows, and the first and the last of each sender."""
    bounds = {}
    for sender, number in rows:
        bounds[sender] = bounds.get(sender, (number,))[:1] + (number,)
    return f"{len(rows)}{bounds or ''}"
