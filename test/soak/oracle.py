"""Accounts for every notification: what was sent, and what each listener has to have heard of it.

A sender numbers what it notifies on each channel, from 1. It says in the ledger what it is about to
commit, and what it knows to be committed. A sender that loses its connection while it commits does
not know; what comes afterwards, comes from a sender with a new name.

A listener that has begun to listen looks into the ledger what had been issued by then: it may have
heard of it or not, but from there on it must hear each number, once and in order. When it has heard a
notification of its own, it must have heard everything that was known to be committed before.
"""

import threading

LOST = "lost"  # in the place of a number: rolled back, must never be heard


class Wrong(AssertionError):
    """A notification is missing, or should not be there."""


class Ledger:
    """What all senders have sent. A stream is (database, channel, sender)."""

    def __init__(self):
        self._lock = threading.Lock()
        self._issued: dict[str, dict[tuple[str, str], int]] = {}
        self._committed: dict[str, dict[tuple[str, str], int]] = {}
        self.messages = 0

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

    def issued(self, database: str) -> dict[tuple[str, str], int]:
        """The last number of each stream that can have been committed by now."""
        with self._lock:
            return dict(self._issued.get(database, {}))

    def committed(self, database: str) -> dict[tuple[str, str], int]:
        """The last number of each stream that has been committed."""
        with self._lock:
            return dict(self._committed.get(database, {}))


class Account:
    """What one session has heard."""

    def __init__(self, ledger: Ledger, database: str):
        self.ledger = ledger
        self.database = database
        self.channels: dict[str, dict[tuple[str, str], int] | None] = {}
        self.last: dict[tuple[str, str], int] = {}
        self.heard = 0

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

    def has_missed(self) -> None:
        """It was told that it has missed notifications: it begins anew."""
        self.last.clear()
        self.channels = {channel: None for channel in self.channels}
        self.has_begun()

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
        if stream in self.last:
            if number != self.last[stream] + 1:
                raise Wrong(f"heard {stream} {number} after {self.last[stream]}")
        elif (floor := self.channels[channel]) is not None and number > floor.get(stream, 0) + 1:
            raise Wrong(f"first heard {stream} {number}, but {floor.get(stream, 0)} had been issued"
                        " when it began to listen")
        self.last[stream] = number

    def has_heard_all(self, committed: dict[tuple[str, str], int]) -> None:
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
    def wrong(numbers: list[int | str], committed: int, listening: bool = True, cut: int = 0) -> bool:
        ledger = Ledger()
        for _ in range(2):
            ledger.issue("d", "s", {"c": 1})
            ledger.commit("d", "s", {"c": 1})
        account = Account(ledger, "d")
        if listening:
            account.listens("c")
            account.has_begun()
        for _ in range(committed):
            ledger.issue("d", "s", {"c": 1})
            ledger.commit("d", "s", {"c": 1})
        try:
            for number in numbers:
                payload = write("s", number, 40)
                account.hears("c", payload[:len(payload) - cut])
            account.has_heard_all(ledger.committed("d"))
        except Wrong:
            return True
        return False

    assert not wrong([], 0) and not wrong([3, 4, 5], 3) and not wrong([2, 3], 1) and not wrong([1, 2, 3], 1)
    assert wrong([], 1) and wrong([3, 5], 3) and wrong([3, 4], 3) and wrong([4, 5], 3), "missing"
    assert wrong([3, 3, 4], 2) and wrong([3, 4, 3], 2), "doubled"
    assert wrong([4, 3], 2), "exchanged"
    assert wrong([3], 1, cut=1), "cut off"
    assert wrong([LOST], 0), "rolled back"
    assert wrong([3], 1, listening=False), "not listening"
