"""The consumers: their arguments, and running in a thread or a task."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import (Any, Awaitable, Callable, Generic, Iterable, Literal, Optional, Protocol, Sequence, Tuple, Type, TypeVar,
                    Union)

from . import _options
from ._core import Notification
from ._engine import CREATE, IS_THERE, Engine
from ._options import ConnectionOptions
from ._runtime import Role, Runtime
from ._threads import complete
from .errors import HeraldError, StoreError
from .events import Event

Batch = Sequence[Notification]
Decision = Literal["skip", "stop"]

C = TypeVar("C")  # the driver's connection
Handle = TypeVar("Handle", bound=Callable[..., Any])
State = TypeVar("State", bound=Callable[..., Any])
Poison = TypeVar("Poison", bound=Callable[..., Any])
AnyStore = TypeVar("AnyStore")
SyncSelf = TypeVar("SyncSelf", bound="SyncBase[Any]")
AsyncSelf = TypeVar("AsyncSelf", bound="AsyncBase[Any]")

# With a store of the user's own, and shared, there is no transaction.
Soon = Union[Awaitable[object], None]
SyncHandle = Union[Callable[[Batch, C], object], Callable[[Batch], object]]
SyncState = Union[Callable[[str, C], object], Callable[[str], object]]
SyncPoison = Union[Callable[[Notification, Exception, C], Decision], Callable[[Notification, Exception], Decision]]
AsyncHandle = Union[Callable[[Batch, C], Soon], Callable[[Batch], Soon]]
AsyncState = Union[Callable[[str, C], Soon], Callable[[str], Soon]]
AsyncPoison = Union[Callable[[Notification, Exception, C], Union[Awaitable[Decision], Decision]],
                    Callable[[Notification, Exception], Union[Awaitable[Decision], Decision]]]

DUPLICATES = {"23505", "42P07"}  # the errors of CREATE TABLE IF NOT EXISTS when another session does the same


class Store(Protocol):
    """A store of your own, for Consumer."""

    def load(self) -> Optional[str]:
        """The position that was saved last; None: there is none."""

    def save(self, position: str) -> object:
        """Saves a position."""


class AsyncStore(Protocol):
    """A store of your own, for AsyncConsumer. Both may be coroutine functions."""

    def load(self) -> Union[Awaitable[Optional[str]], Optional[str]]:
        """The position that was saved last; None: there is none."""

    def save(self, position: str) -> Soon:
        """Saves a position."""


class _Base(Generic[Handle, State, Poison, AnyStore]):
    """The arguments.

    connection      for the listening connection: what the driver takes, as text, or as a dict of its arguments
    work_connection for the work connection, to the primary; default: the same
    name            the consumer's name: one instance of each name is active
    channels        what it listens to
    handle          handle(batch, transaction): does the work. The transaction is the driver's connection, in a transaction
    state           state(reason, transaction): something may be missing; does what is left to do
    poison          poison(notification, error, transaction): handle fails for this notification; returns "skip" or "stop"
    store           a store of your own instead of the table: then the functions are called without a transaction
    shared          each process receives everything, from its start on: no name, no store, no transaction
    require         fail on a server without pg_herald
    heartbeat       seconds between two signs of life of the server
    batch           notifications in a batch, at most
    attempts        after so many failures of a batch its notifications are handled one by one
    backoff         the first and the longest pause before another attempt, in seconds
    work_timeout    seconds for an attempt at a batch, a state or a statement
    table           of the store; may have a schema
    on_event        is called with each event
    """

    _awaits: bool  # whether the functions may be coroutine functions

    def __init__(self, connection: ConnectionOptions = "", *, channels: Iterable[str], handle: Handle,
                 name: Optional[str] = None, work_connection: Optional[ConnectionOptions] = None,
                 state: Optional[State] = None, poison: Optional[Poison] = None, store: Optional[AnyStore] = None,
                 shared: bool = False, require: bool = False, heartbeat: float = 5.0, batch: int = 1000, attempts: int = 5,
                 backoff: Tuple[float, float] = (0.1, 10.0), work_timeout: float = 60.0, table: str = "herald_consumer",
                 on_event: Optional[Callable[[Event], object]] = None):
        self._options = _options.check(
            connection=connection, work_connection=work_connection, name=name, channels=channels, handle=handle, state=state,
            poison=poison, store=store, shared=shared, require=require, heartbeat=heartbeat, batch=batch, attempts=attempts,
            backoff=backoff, work_timeout=work_timeout, table=table, on_event=on_event, awaits=self._awaits)
        self._stopping = False


class SyncBase(_Base[SyncHandle[C], SyncState[C], SyncPoison[C], Store], Generic[C]):
    """A consumer in a thread."""

    _awaits = False
    _runtime: Optional[Runtime] = None
    _thread: Optional[threading.Thread] = None
    _error: Optional[BaseException] = None

    def run(self) -> None:
        """Runs until stop(). HeraldError if it cannot start, or cannot go on."""
        self._run(lambda: None)

    def stop(self) -> None:
        """Lets the batch in work end, and then run(). From any thread, or from a signal handler; does not wait."""
        self._stopping = True
        runtime = self._runtime
        if runtime is not None:
            runtime.stop()

    def create_store(self) -> None:
        """Creates the table, if it is not there."""
        runtime = self._make_runtime()
        try:
            complete(_create_store(runtime, self._options))
        finally:
            runtime.close()

    def __enter__(self: SyncSelf) -> SyncSelf:
        """Starts it in a thread. HeraldError if it cannot start."""
        started = threading.Event()
        self._error = None
        self._thread = threading.Thread(target=self._run_in_thread, args=[started.set], daemon=True,
                                        name=f"pg_herald {self._options.name}".rstrip())
        self._thread.start()
        try:
            started.wait()
        except BaseException:
            self.stop()
            raise
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        """Stops it, and waits for that. HeraldError if it had ended by itself."""
        assert self._thread is not None
        self.stop()
        self._thread.join()
        self._stopping = False
        if self._error is not None and kind is None:
            raise self._error

    def _run_in_thread(self, started: Callable[[], None]) -> None:
        try:
            self._run(started)
        except BaseException as problem:
            self._error = problem
        finally:
            started()

    def _run(self, started: Callable[[], None]) -> None:
        if self._runtime is not None:
            raise RuntimeError("the consumer runs already")
        runtime = self._runtime = self._make_runtime()
        try:
            if self._stopping:  # before it has begun
                runtime.stop()
            complete(Engine(self._options, runtime, started).run())
        finally:
            self._runtime = None
            self._stopping = False
            runtime.close()

    def _make_runtime(self) -> Runtime:
        raise NotImplementedError


class AsyncBase(_Base[AsyncHandle[C], AsyncState[C], AsyncPoison[C], AsyncStore], Generic[C]):
    """A consumer in a task."""

    _awaits = True
    _runtime: Optional[Runtime] = None
    _task: Optional[asyncio.Task[None]] = None

    async def run(self) -> None:
        """Runs until stop(). HeraldError if it cannot start, or cannot go on.

        If it is cancelled, the batch in work is rolled back, and both connections are closed.
        """
        await self._run(lambda: None)

    def stop(self) -> None:
        """Lets the batch in work end, and then run(). From any thread, or from a signal handler; does not wait."""
        self._stopping = True
        runtime = self._runtime
        if runtime is not None:
            runtime.stop()

    async def create_store(self) -> None:
        """Creates the table, if it is not there."""
        await _create_store(self._make_runtime(), self._options)

    async def __aenter__(self: AsyncSelf) -> AsyncSelf:
        """Starts it in a task. HeraldError if it cannot start."""
        started = asyncio.Event()
        self._task = asyncio.ensure_future(self._run(started.set))
        self._task.add_done_callback(lambda _: started.set())
        try:
            await started.wait()
            if self._task.done():
                self._task.result()
        except BaseException:
            self._task.cancel()
            await asyncio.wait({self._task})
            raise
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        """Stops it, and waits for that. HeraldError if it had ended by itself."""
        assert self._task is not None
        self.stop()
        try:
            await self._task
        except HeraldError:
            if kind is None:
                raise
        finally:
            self._stopping = False

    async def _run(self, started: Callable[[], None]) -> None:
        if self._runtime is not None:
            raise RuntimeError("the consumer runs already")
        runtime = self._runtime = self._make_runtime()
        try:
            if self._stopping:  # before it has begun
                runtime.stop()
            await Engine(self._options, runtime, started).run()
        finally:
            self._runtime = None
            self._stopping = False

    def _make_runtime(self) -> Runtime:
        raise NotImplementedError


async def _create_store(runtime: Runtime, options: _options.Options) -> None:
    session = await runtime.connect(Role.WORK)

    async def create() -> None:
        (is_there,), = await session.fetch(IS_THERE, options.table)
        if not is_there:  # else it needs no privilege
            await session.fetch(CREATE.format(options.table))

    try:
        await runtime.bounded(create(), options.work_timeout, session)
    except runtime.errors as problem:
        if getattr(problem, "sqlstate", None) not in DUPLICATES:
            raise StoreError(str(problem)) from problem
    finally:
        await session.close()
