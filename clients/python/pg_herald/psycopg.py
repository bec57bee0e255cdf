"""Consumers with psycopg 3."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Callable, Coroutine, List, Optional, Tuple, TypeVar

import psycopg
from psycopg.rows import tuple_row

from ._asyncio import Tasks
from ._consumer import AsyncBase, SyncBase
from ._core import Collector
from ._libpq import ERRORS, LibpqSession, connect_error, parameters
from ._runtime import Role, Session, Stop
from ._threads import Threads

T = TypeVar("T")

__all__ = ["AsyncConsumer", "Consumer"]


class _SyncSession(LibpqSession):
    """One connection, in a thread."""

    def __init__(self, raw: psycopg.Connection[Any], collector: Optional[Callable[[], Collector]]):
        super().__init__(raw, collector)
        self._raw = raw

    async def fetch(self, query: str, *arguments: object) -> List[Tuple[Any, ...]]:
        with psycopg.RawCursor(self._raw, row_factory=tuple_row) as cursor:
            cursor.execute(query.encode(), arguments or None)
            return cursor.fetchall() if cursor.description else []

    async def _enter(self) -> psycopg.Transaction:
        transaction = psycopg.Transaction(self._raw)
        transaction.__enter__()
        return transaction

    async def _exit(self, transaction: Any, how: Optional[psycopg.Rollback]) -> None:
        transaction.__exit__(how and psycopg.Rollback, how, None)

    def abandon(self) -> None:
        self.sever()
        self.finish()

    async def close(self) -> None:
        self._raw.close()


class _SyncRuntime(Threads):
    """Connections of psycopg, in a thread."""

    errors = ERRORS

    async def connect(self, role: Role) -> _SyncSession:
        if self.stopping:
            raise Stop
        arguments = parameters(self.options, role)
        try:
            raw = psycopg.Connection.connect(**arguments)
        except psycopg.Error as problem:
            raise connect_error(problem) from problem
        return _SyncSession(raw, None if role is Role.WORK else lambda: self.collector)

    async def wait(self, listening: Session, work: Optional[Session], seconds: float, stoppable: bool) -> bool:
        assert isinstance(listening, _SyncSession)
        sockets = [session.socket for session in (listening, work) if isinstance(session, _SyncSession)]
        end = time.monotonic() + seconds
        while True:
            if stoppable and self.stopping:
                raise Stop
            ready = self.waker.wait(end - time.monotonic(), *sockets, wakeable=stoppable)
            if isinstance(work, _SyncSession) and work.socket in ready:
                work.receive()
            if listening.socket in ready:
                listening.receive()
                return True
            if time.monotonic() >= end:
                return False

    async def bounded(self, work: Coroutine[Any, Any, T], seconds: float, session: Optional[Session]) -> T:
        if not isinstance(session, _SyncSession):
            return await work  # nothing could end it
        with self.watchdog.limit(seconds, session.sever) as limit:
            try:
                return await work
            except Exception as problem:
                if not limit.over:
                    raise
                raise TimeoutError(f"this has taken longer than {seconds:g} s") from problem


class _AsyncSession(LibpqSession):
    """One connection, with asyncio."""

    def __init__(self, raw: psycopg.AsyncConnection[Any], collector: Optional[Callable[[], Collector]]):
        super().__init__(raw, collector)
        self._raw = raw

    async def fetch(self, query: str, *arguments: object) -> List[Tuple[Any, ...]]:
        async with psycopg.AsyncRawCursor(self._raw, row_factory=tuple_row) as cursor:
            await cursor.execute(query.encode(), arguments or None)
            return await cursor.fetchall() if cursor.description else []

    async def _enter(self) -> psycopg.AsyncTransaction:
        transaction = psycopg.AsyncTransaction(self._raw)
        await transaction.__aenter__()
        return transaction

    async def _exit(self, transaction: Any, how: Optional[psycopg.Rollback]) -> None:
        await transaction.__aexit__(how and psycopg.Rollback, how, None)

    def abandon(self) -> None:
        # What waits for it has to notice that before the socket is closed: the number could be another one's soon.
        self.sever()
        if not self._raw.lock.locked():
            self.finish()

    async def close(self) -> None:
        await self._raw.close()


class _AsyncRuntime(Tasks):
    """Connections of psycopg, with asyncio."""

    errors = ERRORS

    async def connect(self, role: Role) -> _AsyncSession:
        arguments = parameters(self.options, role)
        try:
            raw = await self.unless_stopped(psycopg.AsyncConnection.connect(**arguments), lambda late: late.pgconn.finish())
        except psycopg.Error as problem:
            raise connect_error(problem) from problem
        return _AsyncSession(raw, None if role is Role.WORK else lambda: self.collector)

    async def wait(self, listening: Session, work: Optional[Session], seconds: float, stoppable: bool) -> bool:
        assert isinstance(listening, _AsyncSession)
        loop = asyncio.get_running_loop()
        sessions = [session for session in (listening, work) if isinstance(session, _AsyncSession)]
        ready: List[_AsyncSession] = []

        def note(session: _AsyncSession) -> None:
            if session not in ready:
                ready.append(session)
            self.wake()

        end = loop.time() + seconds
        sockets = [session.socket for session in sessions]
        try:
            for session, number in zip(sessions, sockets):
                loop.add_reader(number, note, session)
            while listening not in ready and loop.time() < end:
                if stoppable and self.stopping:
                    raise Stop
                ready.clear()
                await self.sleep(end - loop.time())
                for session in ready:
                    session.receive()
            return listening in ready
        finally:
            for number in sockets:
                loop.remove_reader(number)


class Consumer(SyncBase["psycopg.Connection[Any]"]):
    """A consumer of notifications that misses nothing, with psycopg."""

    def _make_runtime(self) -> _SyncRuntime:
        return _SyncRuntime(self._options)


class AsyncConsumer(AsyncBase["psycopg.AsyncConnection[Any]"]):
    """A consumer of notifications that misses nothing, with psycopg and asyncio."""

    def _make_runtime(self) -> _AsyncRuntime:
        return _AsyncRuntime(self._options)
