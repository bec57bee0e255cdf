"""Accounts for every notification: what was sent, and what each listener has to have heard of it.

A sender numbers what it notifies on each channel, from 1. It says in the ledger what it is about to
commit, and what it knows to be committed. A sender that loses its connection while it commits does
not know; what comes afterwards, comes from a sender with a new name.

A listener that has begun to listen looks into the ledger what had been issued by then: it may have
heard of it or not, but from there on it must hear each number, once and in order. When it has heard a
notification of its own, it must have heard everything that was known to be committed before.

What different senders have sent comes in the order of their commits, which the server alone knows. One watcher in
each database listens to everything; all others there must hear the same order.

A client that resumes is sure of what came before its last position. What came after that does not count: when it is
cut off, its account goes back to the position.
"""

import threading
from collections import deque
from itertools import count

LOST = "lost"  # in the place of a number: rolled back, must never be heard
PLACES = 200_000  # of which an order knows half at least: far more than a session lags behind another
Stream = tuple[str, str]  # channel and sender


class Wrong(AssertionError):
    """A notification is missing, or should not be there."""


class Order:
    """In which order the leading watcher of a database has heard everything."""

    def __init__(self):
        self._next = count()
        self._newer: dict[tuple[Stream, int], int] = {}
        self._older: dict[tuple[Stream, int], int] = {}
        self._last: dict[Stream, int] = {}

    def add(self, stream: Stream, number: int) -> None:
        """The next one."""
        if len(self._newer) >= PLACES / 2:
            self._older, self._newer = self._newer, {}
        self._newer[stream, number] = next(self._next)
        self._last[stream] = number

    def has_passed(self, stream: Stream, number: int) -> bool:
        """The watcher has heard it, or has missed it."""
        return self._last.get(stream, 0) >= number

    def place(self, stream: Stream, number: int) -> int | None:
        """None if the watcher has missed it."""
        return self._newer.get((stream, number), self._older.get((stream, number)))


class Ledger:
    """What all senders have sent, in each database."""

    def __init__(self):
        self._lock = threading.Lock()
        self._issued: dict[str, dict[Stream, int]] = {}
        self._committed: dict[str, dict[Stream, int]] = {}
        self._orders: dict[str, Order] = {}
        self.messages = 0

    def order(self, database: str) -> Order:
        """The same for all of a database."""
        with self._lock:
            return self._orders.setdefault(database, Order())

    def issue(self, database: str, sender: str, counts: dict[str, int]) -> dict[str, int]:
        """So many are about to be committed on each channel; the number of the first on each."""
        with self._lock:
            issued = self._issued.setdefault(database, {})
            committed = self._committed.setdefault(database, {})
            first = {}
            for channel, count in counts.items():
                first[channel] = committed.get((channel, sender), 0) + 1
                issued[channel, sender] = first[channel] + count - 1
            return first

    def commit(self, database: str, sender: str, counts: dict[str, int]) -> None:
        """What was issued is committed."""
        with self._lock:
            for channel, count in counts.items():
                self._committed[database][channel, sender] = self._issued[database][channel, sender]
                self.messages += count

    def issued(self, database: str) -> dict[Stream, int]:
        """The last number of each stream that can have been committed by now."""
        with self._lock:
            return dict(self._issued.get(database, {}))

    def committed(self, database: str) -> dict[Stream, int]:
        """The last number of each stream that has been committed."""
        with self._lock:
            return dict(self._committed.get(database, {}))


class Account:
    """What one session has heard, or one client in all its sessions.

    leads  the others are to hear the same order
    """

    def __init__(self, ledger: Ledger, database: str, leads: bool = False):
        self.ledger = ledger
        self.database = database
        self.leads = leads
        self.channels: dict[str, dict[Stream, int] | None] = {}
        self.last: dict[Stream, int] = {}
        self.heard = 0
        self.unsure: list[tuple[Stream, int, int | None]] = []  # since the last position; what the last number was
        self._order = ledger.order(database)
        self._place = -1
        self._unplaced: deque[tuple[Stream, int]] = deque()

    def listens(self, *channels: str) -> None:
        """LISTEN is about to run."""
        for channel in channels:
            self.channels.setdefault(channel, None)

    def has_begun(self) -> None:
        """The LISTENs have taken effect."""
        for channel, floor in self.channels.items():
            if floor is None:
                self.channels[channel] = self.ledger.issued(self.database)

    def listens_no_more(self, *channels: str) -> None:
        """UNLISTEN has run, or a LISTEN was rolled back."""
        for channel in channels:
            self.channels.pop(channel, None)
            self.last = {stream: number for stream, number in self.last.items() if stream[0] != channel}

    def has_missed(self, *channels: str) -> None:
        """It was told that it has missed notifications on these channels, or on all: it begins again from now on."""
        self.unsure.clear()
        for channel in channels or tuple(self.channels):
            self.listens_no_more(channel)
            self.listens(channel)
        self.has_begun()

    def is_sure(self) -> None:
        """It will not get again what it has got; Wrong if others have heard that in another order."""
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
        """It gets again what it is not sure of; how much that is."""
        for stream, _, before in reversed(self.unsure):
            if before is None:
                del self.last[stream]
            else:
                self.last[stream] = before
        repeated = len(self.unsure)
        self.unsure.clear()
        return repeated

    def loses_one(self) -> None:
        """For a run that must fail: the last one has not come."""
        self.last[self.unsure[-1][0]] -= 1

    def hears(self, channel: str, payload: str) -> None:
        """A notification; Wrong if it should not come now."""
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
        """Wrong if something that was committed is missing."""
        for stream, number in committed.items():
            floor = self.channels.get(stream[0])
            if floor is not None and self.last.get(stream, floor.get(stream, 0)) < number:
                raise Wrong(f"has not heard {stream} {number}, which is committed; the last is"
                            f" {self.last.get(stream)}, {floor.get(stream, 0)} had been issued when it began")


def write(sender: str, number: int | str, length: int) -> str:
    """A payload of that many characters, or of a few more than its beginning takes."""
    beginning = f"{sender} {number} "
    length = max(length, len(beginning) + 12)
    return f"{beginning}{length} ".ljust(length, "x")


def prove() -> None:
    """The oracle sees what is missing, doubled, exchanged, cut off, or should not be."""
    def wrong(heard: str, committed: int, leader: str = "", channel: str = "c", cut: int = 0) -> bool:
        """Two are committed before the session listens. "s3 | t3 <" are number 3 of senders s and t; "|" is a position
        in between, and at "<" the session is cut off and resumes."""
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
