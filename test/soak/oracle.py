"""Accounts for every notification: what was sent, and what each listener must have received of it.

A sender numbers its notifications on each channel, from 1. It records in the ledger what it is about to
commit, and what it knows to be committed. A sender that loses its connection during a commit does not
know; later notifications are sent by a sender with a new name.

A listener that has started to listen looks up in the ledger what had been issued by then: it may or may
not receive those, but from there on it must receive each number, once and in order. When it receives a
notification of its own, it must have received everything that was known to be committed before.

Notifications of different senders arrive in the order of their commits, which only the server knows. One watcher in
each database listens on all channels; all others there must receive the same order.

A client that resumes is sure of what arrived before its last position. Later notifications do not count: when it is
cut off, its account goes back to the position.
"""

import threading
from collections import deque
from itertools import count

LOST = "lost"  # instead of a number: rolled back, must never be received
PLACES = 200_000  # an order remembers at least half of this number: far more than one session lags behind another
Stream = tuple[str, str]  # channel and sender


class Wrong(AssertionError):
    """A notification is missing, or should not be there."""


class Order:
    """The order in which the leading watcher of a database has received everything."""

    def __init__(self):
        self._next = count()
        self._newer: dict[tuple[Stream, int], int] = {}
        self._older: dict[tuple[Stream, int], int] = {}
        self._last: dict[Stream, int] = {}

    def add(self, stream: Stream, number: int) -> None:
        """Adds the next notification."""
        if len(self._newer) >= PLACES / 2:
            self._older, self._newer = self._newer, {}
        self._newer[stream, number] = next(self._next)
        self._last[stream] = number

    def has_passed(self, stream: Stream, number: int) -> bool:
        """Whether the watcher has received the notification, or has missed it."""
        return self._last.get(stream, 0) >= number

    def place(self, stream: Stream, number: int) -> int | None:
        """The notification's place in the order; None if the watcher has missed it."""
        return self._newer.get((stream, number), self._older.get((stream, number)))


class Ledger:
    """All that the senders have sent, by database."""

    def __init__(self):
        self._lock = threading.Lock()
        self._issued: dict[str, dict[Stream, int]] = {}
        self._committed: dict[str, dict[Stream, int]] = {}
        self._orders: dict[str, Order] = {}
        self.messages = 0

    def order(self, database: str) -> Order:
        """The order of a database, shared by all accounts."""
        with self._lock:
            return self._orders.setdefault(database, Order())

    def issue(self, database: str, sender: str, counts: dict[str, int]) -> dict[str, int]:
        """Records that these counts are about to be committed; returns the first number on each channel."""
        with self._lock:
            issued = self._issued.setdefault(database, {})
            committed = self._committed.setdefault(database, {})
            first = {}
            for channel, count in counts.items():
                first[channel] = committed.get((channel, sender), 0) + 1
                issued[channel, sender] = first[channel] + count - 1
            return first

    def commit(self, database: str, sender: str, counts: dict[str, int]) -> None:
        """Records that what was issued is committed."""
        with self._lock:
            for channel, count in counts.items():
                self._committed[database][channel, sender] = self._issued[database][channel, sender]
                self.messages += count

    def issued(self, database: str) -> dict[Stream, int]:
        """The last number of each stream that may be committed by now."""
        with self._lock:
            return dict(self._issued.get(database, {}))

    def committed(self, database: str) -> dict[Stream, int]:
        """The last number of each stream that is known to be committed."""
        with self._lock:
            return dict(self._committed.get(database, {}))


class Account:
    """What one session has received, or one client in all its sessions.

    leads  the other accounts must have the same order
    """

    def __init__(self, ledger: Ledger, database: str, leads: bool = False):
        self.ledger = ledger
        self.database = database
        self.leads = leads
        self.channels: dict[str, dict[Stream, int] | None] = {}
        self.last: dict[Stream, int] = {}
        self.heard = 0
        self.unsure: list[tuple[Stream, int, int | None]] = []  # since the last position; with the previous number
        self._order = ledger.order(database)
        self._place = -1
        self._unplaced: deque[tuple[Stream, int]] = deque()

    def listens(self, *channels: str) -> None:
        """Records that LISTEN is about to run."""
        for channel in channels:
            self.channels.setdefault(channel, None)

    def has_begun(self) -> None:
        """Records that the LISTENs have taken effect."""
        for channel, floor in self.channels.items():
            if floor is None:
                self.channels[channel] = self.ledger.issued(self.database)

    def listens_no_more(self, *channels: str) -> None:
        """Records that UNLISTEN has run, or that a LISTEN was rolled back."""
        for channel in channels:
            self.channels.pop(channel, None)
            self.last = {stream: number for stream, number in self.last.items() if stream[0] != channel}

    def has_missed(self, *channels: str) -> None:
        """Handles the report of missed notifications on these channels, or on all: it starts again from now."""
        self.unsure.clear()
        for channel in channels or tuple(self.channels):
            self.listens_no_more(channel)
            self.listens(channel)
        self.has_begun()

    def is_sure(self) -> None:
        """Records that what was received will not arrive again; Wrong if others have received it in another order."""
        if not self.leads:
            self._unplaced += [(stream, number) for stream, number, _ in self.unsure]
        self.unsure.clear()
        while self._unplaced and self._order.has_passed(*self._unplaced[0]):
            stream, number = self._unplaced.popleft()
            place = self._order.place(stream, number)
            if place is not None and place < self._place:
                raise Wrong(f"heard {stream} {number} later than others")
            self._place = self._place if place is None else place

    def goes_back(self) -> int:
        """Records that what it is not sure of will arrive again; returns the number of those notifications."""
        for stream, _, before in reversed(self.unsure):
            if before is None:
                del self.last[stream]
            else:
                self.last[stream] = before
        repeated = len(self.unsure)
        self.unsure.clear()
        return repeated

    def loses_one(self) -> None:
        """Removes the last notification from the account, for a run that must fail."""
        self.last[self.unsure[-1][0]] -= 1

    def hears(self, channel: str, payload: str) -> None:
        """Records a notification; Wrong if it should not have arrived now."""
        sender, number, length, _ = payload.split(" ", 3)
        stream = channel, sender
        if channel not in self.channels:
            raise Wrong(f"heard {stream} {number}, but does not listen to that channel")
        if number == LOST:
            raise Wrong(f"heard what {sender} has rolled back on {channel}")
        if len(payload) != int(length):
            raise Wrong(f"heard {len(payload)} of {length} characters of {stream} {number}")
        self.heard += 1
        number = int(number)
        self.unsure.append((stream, number, self.last.get(stream)))
        if self.leads:
            self._order.add(stream, number)
        if stream in self.last:
            if number != self.last[stream] + 1:
                raise Wrong(f"heard {stream} {number} after {self.last[stream]}")
        elif (floor := self.channels[channel]) is not None and number > floor.get(stream, 0) + 1:
            raise Wrong(f"first heard {stream} {number}, but {floor.get(stream, 0)} had been issued"
                        " when it began to listen")
        self.last[stream] = number

    def has_heard_all(self, committed: dict[Stream, int]) -> None:
        """Wrong if a committed notification is missing."""
        for stream, number in committed.items():
            floor = self.channels.get(stream[0])
            if floor is not None and self.last.get(stream, floor.get(stream, 0)) < number:
                raise Wrong(f"has not heard {stream} {number}, which is committed; the last is"
                            f" {self.last.get(stream)}, {floor.get(stream, 0)} had been issued when it began")


def write(sender: str, number: int | str, length: int) -> str:
    """A payload of that number of characters, or a few more if its beginning is longer."""
    beginning = f"{sender} {number} "
    length = max(length, len(beginning) + 12)
    return f"{beginning}{length} ".ljust(length, "x")


def prove() -> None:
    """Checks that the oracle detects what is missing, doubled, out of order, truncated, or unexpected."""
    def wrong(heard: str, committed: int, leader: str = "", channel: str = "c", cut: int = 0) -> bool:
        """Whether the oracle objects. Two notifications are committed before the session listens. "s3 | t3 <" are
        number 3 of senders s and t; "|" is a position in between, and at "<" the session is cut off and resumes."""
        ledger = Ledger()
        account = Account(ledger, "d")

        def send(number: int) -> None:
            for sender in {"s", *heard} & {"s", "t"}:
                for _ in range(number):
                    ledger.issue("d", sender, {"c": 1})
                    ledger.commit("d", sender, {"c": 1})

        send(2)
        account.listens(channel)
        account.has_begun()
        send(committed)
        for word in leader.split():
            ledger.order("d").add(("c", word[0]), int(word[1:]))
        try:
            for word in heard.split():
                if word == "|":
                    account.is_sure()
                elif word == "<":
                    account.goes_back()
                else:
                    payload = write(word[0], word[1:], 40)
                    account.hears("c", payload[:len(payload) - cut])
            account.has_heard_all(ledger.committed("d"))
            account.is_sure()
        except Wrong:
            return True
        return False

    assert not wrong("", 0) and not wrong("s3 s4 s5", 3) and not wrong("s2 s3", 1) and not wrong("s1 s2 s3", 1)
    assert wrong("", 1) and wrong("s3 s5", 3) and wrong("s3 s4", 3) and wrong("s4 s5", 3), "missing"
    assert wrong("s3 s3 s4", 2) and wrong("s3 s4 s3", 2), "doubled"
    assert wrong("s4 s3", 2), "exchanged"
    assert wrong("s3", 1, cut=1), "cut off"
    assert wrong("slost", 0), "rolled back"
    assert wrong("s3", 1, channel="another"), "not listening"
    assert not wrong("s3 t3", 1, leader="s3 t3") and not wrong("s3 t3", 1, leader="t3"), "missed by the leader"
    assert wrong("t3 s3", 1, leader="s3 t3"), "in another order"
    assert not wrong("s3 | s4 < s4", 2) and not wrong("s3 s4 < s3 s4", 2), "cut off, and resumed"
    assert wrong("s3 | s4 < s3 s4", 2) and wrong("s3 | s4 < s5", 3) and wrong("s3 | s4 <", 2), "wrongly resumed"
    assert wrong("t3 | s3 < s3", 1, leader="s3 t3"), "resumed in another order"
