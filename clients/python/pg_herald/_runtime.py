"""What the engine needs from a driver. The engine is written once, in coroutines.

With asyncio they are run by its loop. Without it (_threads.py) no operation ever suspends: each blocks, and the
coroutine runs from beginning to end in its thread.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Callable, Coroutine, List, Optional, Protocol, Tuple, Type, TypeVar

from ._core import Collector

T = TypeVar("T")


class Stop(Exception):
    """The consumer is to stop, and nothing is in work."""


class Unawaited(BaseException):
    """A function of the user's has returned what had to be awaited. No Exception: another attempt would not help."""


class Role(Enum):
    """What a connection is for."""

    LISTENING = "listening"
    LISTENING_ON_PRIMARY = "listening on the primary"  # where a standby has refused
    WORK = "work"


class Session(Protocol):
    """One connection."""

    server: str  # host:port
    depth: int  # of begin() without an end

    @property
    def raw(self) -> Any:
        """The driver's connection, for the user's functions."""

    @property
    def broken(self) -> bool:
        """Whether it has ended, as far as this is known without waiting."""

    @property
    def ended(self) -> bool:
        """Whether what was begun has been ended by a statement of the user's."""

    @property
    def committed(self) -> bool:
        """Whether the answer to send_commit() has come."""

    async def fetch(self, query: str, *arguments: object) -> List[Tuple[Any, ...]]:
        """Executes a statement with parameters $1, $2, ...; returns its rows."""

    async def begin(self) -> None:
        """Begins a transaction or, within one, a savepoint."""

    async def commit(self) -> None:
        """Ends what was begun last: it counts."""

    async def rollback(self) -> None:
        """Ends what was begun last: it does not count."""

    async def listen(self, channel: str) -> None:
        """LISTEN. What comes is given to the collector."""

    def send_commit(self) -> None:
        """Commits, without waiting for the answer: it comes behind all that is resumed, which must not all be taken into memory.

        wait() takes the answer as well. No statement may follow.
        """

    def abandon(self) -> None:
        """Ends the connection at once: what waits for it fails. The other end may be silent."""

    async def close(self) -> None:
        """Ends the connection, and tells the server so."""


class Runtime(Protocol):
    """Connections of one driver, and time."""

    stopping: bool
    errors: Tuple[Type[Exception], ...]  # what a connection or statement may raise

    def stop(self) -> None:
        """Makes wait() and pause() raise Stop. From any thread, or from a signal handler."""

    def close(self) -> None:
        """Frees what it has."""

    async def connect(self, role: Role) -> Session:
        """A new connection. HeraldError of the kind of the cause, or Stop."""

    def collect(self, collector: Collector) -> None:
        """From now on this collector takes what arrives."""

    async def wait(self, listening: Session, work: Optional[Session], seconds: float, stoppable: bool) -> bool:
        """Waits until something arrives; False: nothing has arrived for so long.

        An error if one of the connections has ended; Stop if it is to stop and may.
        """

    async def pause(self, seconds: float) -> None:
        """Waits; Stop if it is to stop."""

    async def bounded(self, work: Coroutine[Any, Any, T], seconds: float, session: Optional[Session]) -> T:
        """Runs this. If it takes longer, the session is abandoned, and TimeoutError."""

    async def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Calls a function of the user's. Unawaited if there is no loop, and it needs one."""
