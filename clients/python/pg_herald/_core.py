"""What a consumer decides without a connection: batches, positions, pauses, and what to do after failures."""

from __future__ import annotations

import random
from collections import deque
from typing import Callable, Deque, List, NamedTuple, Optional, Tuple

POSITION_CHANNEL = "herald_position"
EXPONENT_MAX = 60  # so that the power stays a number; the pause has long reached its maximum


class Notification(NamedTuple):
    """What NOTIFY has sent."""

    channel: str
    payload: str


class Batch(NamedTuple):
    """Notifications that are handled together.

    position    the position that stands for them; None: the server has no pg_herald, or more parts follow
    complete    whether it ends at the end of a transaction; otherwise more parts of this transaction follow
    """

    notifications: List[Notification]
    position: Optional[str]
    complete: bool


class Collector:
    """What the listening connection has received and is not handled yet.

    size    the number of notifications in a batch, at most
    stock   the server has no pg_herald, and sends no positions
    """

    def __init__(self, size: int, stock: bool = False):
        self.size, self.stock = size, stock
        self._notifications: Deque[Notification] = deque()
        self._positions: Deque[Tuple[int, str]] = deque()  # each with the number of notifications received before it
        self._received = 0

    def add(self, channel: str, payload: str) -> None:
        """Takes what has arrived."""
        if channel == POSITION_CHANNEL and not self.stock:
            self._positions.append((self._received, payload))
        else:
            self._notifications.append(Notification(channel, payload))
            self._received += 1

    def clear(self) -> None:
        """Forgets what is there."""
        self._notifications.clear()
        self._positions.clear()

    @property
    def first_position(self) -> Optional[Tuple[int, str]]:
        """The first position that is there, and how many notifications came before it."""
        if not self._positions:
            return None
        received, position = self._positions[0]
        return received - self._taken, position

    @property
    def empty(self) -> bool:
        """Whether nothing is there."""
        return not self._notifications and not self._positions

    @property
    def waiting(self) -> int:
        """The number of notifications."""
        return len(self._notifications)

    @property
    def full(self) -> bool:
        """Whether there is more than a batch: nothing must be read now."""
        return len(self._notifications) > self.size

    def take(self) -> Optional[Batch]:
        """The next batch; None: something must be read before.

        It ends at the last position within its size. If the first transaction is larger than that, it comes in parts.
        """
        if self.stock:
            return Batch(self._cut(self.size), None, True) if self._notifications else None
        last: Optional[Tuple[int, str]] = None
        while self._positions and self._positions[0][0] - self._taken <= self.size:
            last = self._positions.popleft()
        if last is not None:
            return Batch(self._cut(last[0] - self._taken), last[1], True)
        return Batch(self._cut(self.size), None, False) if self.full else None

    @property
    def _taken(self) -> int:
        return self._received - len(self._notifications)

    def _cut(self, count: int) -> List[Notification]:
        return [self._notifications.popleft() for _ in range(min(count, len(self._notifications)))]


class Pauses:
    """The pauses between attempts: 0 to min(longest, first * 2^n) seconds, at random.

    So consumers that have lost the same server do not all come back at the same moment.
    """

    def __init__(self, first: float, longest: float, choose: Callable[[float, float], float] = random.uniform):
        self._first, self._longest, self._choose = first, longest, choose
        self._attempts = 0

    def next(self) -> float:
        """The pause before the next attempt, in seconds."""
        pause = self.after(self._attempts)
        self._attempts += 1
        return pause

    def after(self, attempts: int) -> float:
        """A pause after this number of earlier attempts, in seconds."""
        return self._choose(0, min(self._longest, self._first * 2 ** min(attempts, EXPONENT_MAX)))

    def reset(self) -> None:
        """Something has succeeded."""
        self._attempts = 0


class Failures:
    """The failed attempts since the last success.

    breaks      those of them in which the connection broke
    errors_max  after so many errors no further attempt is made
    breaks_max  after so many breaks, too
    """

    def __init__(self, errors_max: int, breaks_max: int):
        self._errors_max, self._breaks_max = errors_max, breaks_max
        self._errors = self.breaks = 0

    def add(self, broke: bool) -> None:
        """One more."""
        if broke:
            self.breaks += 1
        else:
            self._errors += 1

    def reset(self) -> None:
        """A success."""
        self._errors = self.breaks = 0

    @property
    def count(self) -> int:
        """All of them."""
        return self._errors + self.breaks

    @property
    def exhausted(self) -> bool:
        """Whether no further attempt is made."""
        return self._errors >= self._errors_max or self.breaks >= self._breaks_max
