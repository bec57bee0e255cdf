"""The runtime with asyncio."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any, Callable, Coroutine, Optional, TypeVar

from ._core import Collector
from ._options import Options
from ._runtime import Session, Stop

T = TypeVar("T")
GRACE_S = 1  # what waits for a connection that was abandoned ends by itself in this time, and is cancelled else


class Tasks:
    """Time, calls, and what takes notifications. Connections are the driver's business."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.collector = Collector(options.batch)
        self.stopping = False
        self._loop = asyncio.get_running_loop()
        self._sleeper: Optional[asyncio.Future[None]] = None

    def collect(self, collector: Collector) -> None:
        """From now on this collector takes what arrives."""
        self.collector = collector

    def stop(self) -> None:
        """Makes wait() and pause() raise Stop. From any thread, or from a signal handler."""
        self.stopping = True
        try:
            self._loop.call_soon_threadsafe(self.wake)
        except RuntimeError:  # the loop is closed
            pass

    def close(self) -> None:
        """It has nothing to free."""

    def wake(self, *_: object) -> None:
        """Ends sleep()."""
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    async def sleep(self, seconds: Optional[float]) -> None:
        """Waits until wake(), or until the time is over."""
        self._sleeper = self._loop.create_future()
        timer = None if seconds is None else self._loop.call_later(seconds, self.wake)
        try:
            await self._sleeper
        finally:
            self._sleeper = None
            if timer is not None:
                timer.cancel()

    async def pause(self, seconds: float) -> None:
        """Waits; Stop if it is to stop."""
        end = self._loop.time() + seconds
        while not self.stopping and (rest := end - self._loop.time()) > 0:
            await self.sleep(rest)
        if self.stopping:
            raise Stop

    async def unless_stopped(self, work: Coroutine[Any, Any, T], undo: Callable[[T], None]) -> T:
        """Runs this; Stop if it is to stop before that has ended. A result that comes too late is undone."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(self.wake)
        try:
            while not task.done():
                if self.stopping:
                    raise Stop
                await self.sleep(None)
        except BaseException:
            await _end(task)
            if not task.cancelled() and task.exception() is None:
                undo(task.result())
            raise
        return task.result()

    async def bounded(self, work: Coroutine[Any, Any, T], seconds: float, session: Optional[Session]) -> T:
        """Runs this. If it takes longer, the session is abandoned, and TimeoutError."""
        task = asyncio.ensure_future(work)
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
            if done:
                return task.result()
            if session is not None:
                session.abandon()
                await asyncio.wait({task}, timeout=GRACE_S)
        finally:
            await _end(task)
        problem = None if task.cancelled() else task.exception()
        raise TimeoutError(f"this has taken longer than {seconds:g} s") from problem

    async def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Calls a function of the user's, which may be a coroutine function."""
        result = function(*arguments)
        return await result if inspect.isawaitable(result) else result


async def _end(task: "asyncio.Future[Any]") -> None:
    """Cancels a task, and waits until it has ended."""
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
