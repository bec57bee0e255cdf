"""The runtime without asyncio: everything blocks, and another thread watches the time."""

from __future__ import annotations

import inspect
import selectors
import socket
import threading
import time
from contextlib import contextmanager
from typing import Any, Callable, Coroutine, Iterator, List, Optional, TypeVar

from ._core import Collector
from ._options import Options
from ._runtime import Stop, Unawaited

T = TypeVar("T")


def complete(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise AssertionError("an operation has suspended")


class Waker:
    """Waits for sockets and time, until wake() is called: from any thread, or from a signal handler.

    A lock or an event of threading could be held by the very thread that the signal interrupts; a socket cannot.
    """

    def __init__(self) -> None:
        self._out, self._in = socket.socketpair()
        self._out.setblocking(False)

    def wake(self) -> None:
        """Ends the wait that runs, and all later ones."""
        try:
            self._out.send(b"\0")
        except OSError:  # it is full: awake for long; or it is closed
            pass

    def wait(self, seconds: float, *sockets: int, wakeable: bool = True) -> List[int]:
        """Waits, and returns those of the sockets that have something to read."""
        with selectors.DefaultSelector() as selector:
            if wakeable:
                selector.register(self._in, selectors.EVENT_READ)
            for number in sockets:
                selector.register(number, selectors.EVENT_READ)
            return [key.fd for key, _ in selector.select(max(0, seconds)) if key.fd in sockets]

    def close(self) -> None:
        """Frees it."""
        self._out.close()
        self._in.close()


class Limit:
    """What is done when the time of some work is over."""

    def __init__(self, until: float, end: Callable[[], None]):
        self.until, self.end = until, end
        self.over = False


class Watchdog:
    """A thread that ends work which takes too long."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._limit: Optional[Limit] = None
        self._sleeps_until: Optional[float] = None  # None: until it is woken
        self._closed = False
        self._thread: Optional[threading.Thread] = None

    @contextmanager
    def limit(self, seconds: float, end: Callable[[], None]) -> Iterator[Limit]:
        """Calls `end` in the other thread, if this context is not left in time."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="pg_herald watchdog", daemon=True)
            self._thread.start()
        limit = Limit(time.monotonic() + seconds, end)
        with self._changed:
            outer, self._limit = self._limit, limit
            if self._sleeps_until is None or limit.until < self._sleeps_until:
                self._changed.notify()
        try:
            yield limit
        finally:
            with self._changed:  # `end` does not run now, and will not
                self._limit = outer
                if outer is not None:
                    self._changed.notify()

    def close(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                limit = self._limit
                if limit is not None and not limit.over and limit.until <= now:
                    limit.over = True
                    limit.end()
                self._sleeps_until = None if limit is None or limit.over else limit.until
                self._changed.wait(None if self._sleeps_until is None else self._sleeps_until - now)


class Threads:
    """Time, calls, and what takes notifications. Connections are the driver's business."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.collector = Collector(options.batch)
        self.stopping = False
        self.waker = Waker()
        self.watchdog = Watchdog()

    def collect(self, collector: Collector) -> None:
        """From now on this collector takes what arrives."""
        self.collector = collector

    def stop(self) -> None:
        """Makes wait() and pause() raise Stop."""
        self.stopping = True
        self.waker.wake()

    def close(self) -> None:
        """Frees what it has."""
        self.watchdog.close()
        self.waker.close()

    async def pause(self, seconds: float) -> None:
        """Waits; Stop if it is to stop."""
        if not self.stopping:
            self.waker.wait(seconds)
        if self.stopping:
            raise Stop

    async def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Calls a function of the user's."""
        result = function(*arguments)
        if inspect.iscoroutine(result):
            result.close()
        if inspect.isawaitable(result):
            raise Unawaited(f"{function!r} has to be awaited, for which there is AsyncConsumer")
        return result
