"""The consumer, for all drivers: its states, and what it does in each."""

from __future__ import annotations

import logging
import math
import time
from typing import Any, Awaitable, Callable, Coroutine, List, Optional, Tuple, Type, TypeVar

from . import events
from ._core import POSITION_CHANNEL, Batch, Collector, Failures, Notification, Pauses
from ._options import Mode, Options
from ._runtime import Role, Runtime, Session, Stop, Unawaited
from .errors import (ConfigurationError, ExtensionMissingError, HandlerError, HeraldError, StockServerError, StoreError,
                     UnreachableError)

POSITION_INTERVAL_S = 60  # a position without notifications is stored at most once in this time
LOCK_PAUSES_S = (0.05, 1.0)  # between attempts to get the lock: the first, and the longest
RESUME_ATTEMPTS = 5  # after "canceling wait for replay due to conflict with recovery"
SERIALIZATION_FAILURE = "40001"
READ_ONLY = "25006"  # a standby has only channels that are logged, and a stock one has none
REFUSED = {"0A000", "42501"}  # a channel that cannot be listened to, no privilege
NO_POSITION = "22023"
# Of the server, a connection or another transaction, and soon over: no fault of the notification that is in work.
PASSING = ("08", "25006", "40", "53", "55P03", "57P", "58")
TABLE_MISSING = {"42P01", "42703", "3F000", "42501"}  # or its column, or its schema; or no privilege

IDENTIFY = ("SELECT EXISTS (SELECT FROM pg_catalog.pg_settings WHERE name = 'herald.enabled'),"
            " pg_catalog.to_regproc('herald.listen') IS NOT NULL")
# The server ends this session, and frees its lock, soon after the client or the network has gone, also in a long statement. What an
# administrator or the user has set remains.
GUARD = """SELECT pg_catalog.set_config(name, value, false)
	FROM (VALUES ('tcp_keepalives_idle', $1), ('tcp_keepalives_interval', $1), ('tcp_keepalives_count', '3'),
		('tcp_user_timeout', $2), ('client_connection_check_interval', $3)) AS wanted (name, value)
	JOIN pg_catalog.pg_settings USING (name) WHERE source = 'default'"""
ABSENCES = 4  # three keepalives after the first interval
LOCK = "SELECT pg_catalog.pg_try_advisory_lock(pg_catalog.hashtextextended('herald_consumer:' || $1, 0))"
UNLOCK = LOCK.replace("try_advisory_lock", "advisory_unlock")
SEE = "SELECT position, epoch FROM {} WHERE name = $1"
ACTIVATE = "UPDATE {} SET epoch = epoch + 1, changed_at = now() WHERE name = $1 RETURNING position, epoch"
INSERT = ("INSERT INTO {} AS consumer (name, epoch) VALUES ($1, 1) ON CONFLICT (name)"
          " DO UPDATE SET epoch = consumer.epoch + 1, changed_at = now() RETURNING position, epoch")
KEEP = "UPDATE {} SET position = $1, changed_at = now() WHERE name = $2 AND epoch = $3 RETURNING 1"
CONFIRM = "UPDATE {} SET changed_at = now() WHERE name = $1 AND epoch = $2 RETURNING 1"
IS_THERE = "SELECT pg_catalog.to_regclass($1) IS NOT NULL"
CREATE = """CREATE TABLE IF NOT EXISTS {} (
	name text PRIMARY KEY,
	position text,                              -- null: none yet
	epoch bigint NOT NULL DEFAULT 0,            -- counts activations
	changed_at timestamptz NOT NULL DEFAULT now()
)"""

T = TypeVar("T")

logger = logging.getLogger("pg_herald")


class Superseded(Exception):
    """Another instance has become active."""


class Again(Exception):
    """An attempt has failed in such a way that it needs new connections."""


class Engine:
    """One run of a consumer.

    started     called when it has begun: from now on problems are events, and it tries again
    """

    def __init__(self, options: Options, runtime: Runtime, started: Callable[[], None]):
        self._options, self._runtime, self._on_started = options, runtime, started
        self._again: Tuple[Type[Exception], ...] = (Again, HeraldError, *runtime.errors)  # after these it tries again
        self._started = False
        self._collector = Collector(options.batch)
        self._pauses = Pauses(*options.backoff)
        self._failures = Failures(2 * options.attempts, 2 * options.attempts)
        self._state_failures = Failures(options.attempts, 2 * options.attempts)
        self._listening: Optional[Session] = None
        self._work: Optional[Session] = None
        self._locked = False
        self._epoch: Optional[int] = None
        self._position: Optional[str] = None
        self._kept_at = 0.0  # time.monotonic()
        self._in_work: Optional[Notification] = None  # where notifications are handled one by one

    async def run(self) -> None:
        """Runs until it is to stop; HeraldError if it cannot start, or cannot go on."""
        error: Optional[BaseException] = None
        try:
            while await self._live():
                pass
        except Unawaited as problem:
            error = ConfigurationError(str(problem))
            raise error from None
        except BaseException as problem:
            error = problem if isinstance(problem, Exception) else None
            raise
        finally:
            self._abandon()
            if self._started:
                self._emit(events.Stopped(error))

    # ---- connections ----

    async def _live(self) -> bool:
        """From connecting until the connections are closed, and the pause after that. False: it has stopped."""
        try:
            try:
                await self._connect()
                await self._consume()
            except HandlerError:
                raise
            except Superseded:
                self._abandon()
                self._emit(events.Superseded())
                pause = self._pauses.next()
            except self._again as problem:
                self._abandon()
                error = problem.__cause__ if isinstance(problem, Again) else problem
                assert isinstance(error, Exception)
                if not self._started:
                    raise error if isinstance(error, HeraldError) else UnreachableError(events.describe(error)) from error
                pause = self._pauses.next()
                self._emit(events.Disconnected(error, pause))
            await self._runtime.pause(pause)
            return True
        except Stop:
            await self._leave()
            return False

    async def _connect(self) -> None:
        """Connecting, waiting and resuming."""
        if self._options.mode is not Mode.SHARED:
            self._work = await self._runtime.connect(Role.WORK)
            await self._guard(self._work)
            await self._lock()
            await self._activate()
        session = await self._connect_listening(Role.LISTENING)
        try:
            await self._resume(session)
        except self._runtime.errors as refusal:
            if getattr(refusal, "sqlstate", None) != READ_ONLY:
                raise
            await session.close()
            try:
                session = await self._connect_listening(Role.LISTENING_ON_PRIMARY)
            except UnreachableError as problem:
                raise UnreachableError(f"{session.server}: {refusal}; {problem}") from refusal
            await self._resume(session)

    async def _connect_listening(self, role: Role) -> Session:
        """Connects, and finds out whether the server has pg_herald."""
        session = self._listening = await self._runtime.connect(role)
        (herald, extension), = await self._statement(session, session.fetch(IDENTIFY))
        if herald and not extension:
            raise ExtensionMissingError(f"{session.server} has pg_herald, but the database has not the extension:"
                                        " CREATE EXTENSION pg_herald")
        if not herald and self._options.require:
            raise StockServerError(f"{session.server} has no pg_herald, and it is required")
        # A batch that has taken too long, or has broken its connection, comes again in smaller ones.
        self._collector = Collector(max(1, self._options.batch >> self._failures.breaks), stock=not herald)
        self._runtime.collect(self._collector)
        return session

    async def _guard(self, work: Session) -> None:
        """Has the server watch this connection. Not every server's system can do that."""
        seconds = math.ceil(self._options.heartbeat)
        values = (str(seconds), str(1000 * ABSENCES * seconds), str(1000 * seconds))
        try:
            await self._statement(work, work.fetch(GUARD, *values))
        except self._runtime.errors:
            if work.broken:
                raise

    async def _lock(self) -> None:
        """Waits until no other instance is active."""
        assert self._work is not None
        seconds = min(self._options.work_timeout, self._options.silence)
        pause, longest = LOCK_PAUSES_S
        tries = 0
        while not (await self._runtime.bounded(
                self._work.fetch(LOCK, self._options.name), seconds, self._work))[0][0]:
            tries += 1
            if tries == 2:  # not the rest of an earlier connection, which ends by itself
                if not self._started:
                    await self._look()
                self._emit(events.Waiting())
            await self._runtime.pause(min(pause, self._options.heartbeat))
            pause = min(2 * pause, longest)
        self._locked = True

    async def _look(self) -> None:
        """Checks what is needed once this instance becomes active; the caller of start learns of it now."""
        assert self._work is not None
        if self._options.mode is Mode.STORE:
            await self._store(self._work.fetch(SEE.format(self._options.table), self._options.name))
        session = await self._connect_listening(Role.LISTENING)
        self._listening = None
        await session.close()
        self._has_started()

    async def _activate(self) -> None:
        """Becomes the active instance, and reads the position."""
        assert self._work is not None
        if self._options.mode is Mode.OWN:
            try:
                load = self._runtime.call(self._options.store.load)
                self._position = await self._runtime.bounded(load, self._options.work_timeout, None)
            except Exception as problem:
                raise StoreError(f"load has failed: {events.describe(problem)}") from problem
        else:
            rows = await self._store(self._work.fetch(ACTIVATE.format(self._options.table), self._options.name))
            if not rows:
                rows = await self._store(self._work.fetch(INSERT.format(self._options.table), self._options.name))
            (self._position, self._epoch), = rows
        self._emit(events.Active(self._epoch))

    async def _store(self, statement: Coroutine[Any, Any, List[Any]]) -> List[Any]:
        """Executes a statement that needs the table."""
        assert self._work is not None
        try:
            return await self._statement(self._work, statement)
        except self._runtime.errors as problem:
            if self._work.broken:
                raise
            raise StoreError(str(problem)) from problem

    async def _resume(self, session: Session) -> None:
        """Listens, and calls state if something may be missing."""
        if self._collector.stock:
            await self._statement(session, self._listen_stock(session))
            reason = "stock"
        else:
            answers = await self._listen(session)
            reason = "first start" if None in answers else "gone" if False in answers else ""
        self._has_started()
        self._kept_at = -math.inf if reason else time.monotonic()
        if reason:
            await self._show_state(reason)
        self._emit(events.Listening(session.server, not reason, self._collector.stock))

    async def _listen_stock(self, session: Session) -> None:
        await session.begin()
        for channel in self._options.channels:
            await session.listen(channel)
        await session.commit()

    async def _listen(self, session: Session) -> List[Optional[bool]]:
        """Listens in one transaction; returns the answers of herald.listen()."""
        attempt = 1
        while (answers := await self._statement(session, self._ask(session, attempt == RESUME_ATTEMPTS))) is None:
            attempt += 1
        self._collector.clear()  # what a pooler's session still had for an earlier client, with a position that is not ours
        session.send_commit()
        end = time.monotonic() + self._options.work_timeout
        while not session.committed and self._collector.empty:  # what arrives shows that it is committed
            if not await self._runtime.wait(session, self._work, end - time.monotonic(), True):
                raise TimeoutError(f"there was no answer to COMMIT within {self._options.work_timeout:g} s")
        return answers

    async def _ask(self, session: Session, is_last: bool) -> Optional[List[Optional[bool]]]:
        """The answers; None if the standby asks to repeat the transaction."""
        try:
            await session.begin()
            await session.fetch("SELECT pg_catalog.set_config('herald.heartbeat', $1, false)", self._options.heartbeat_ms)
            await session.listen(POSITION_CHANNEL)
            answers: List[Optional[bool]] = []
            for channel in self._options.channels:
                await session.listen(channel)
                (answer,), = await session.fetch("SELECT herald.listen($1, after => $2)", channel, self._position)
                answers.append(answer)
            return answers
        except self._runtime.errors as problem:
            code = getattr(problem, "sqlstate", None)
            if code == NO_POSITION:
                raise StoreError(f"the stored position is none: {problem}") from problem
            if code in REFUSED:
                raise ConfigurationError(f"{session.server}: {problem}") from problem
            if code != SERIALIZATION_FAILURE or is_last:
                raise
            await session.rollback()
            return None

    def _has_started(self) -> None:
        if not self._started:
            self._started = True
            self._on_started()

    async def _leave(self) -> None:
        """Gives up the lock, and closes both connections."""
        work, listening = self._work, self._listening
        self._work = self._listening = None
        try:
            if work is not None and self._locked and not work.broken:
                seconds = min(self._options.work_timeout, self._options.silence)
                await self._runtime.bounded(work.fetch(UNLOCK, self._options.name), seconds, work)
        except self._runtime.errors:
            pass  # then it ends with the connection
        finally:
            for session in (work, listening):
                if session is not None:
                    await session.close()

    def _abandon(self) -> None:
        """Closes both connections without waiting."""
        for session in (self._work, self._listening):
            if session is not None:
                session.abandon()
        self._work = self._listening = None
        self._locked = False

    # ---- listening ----

    async def _consume(self) -> None:
        """Handles what comes."""
        first = True
        while True:
            batch = await self._next(stoppable=True)
            if batch.notifications:
                await self._process(batch)
            elif batch.position is not None:
                if not first:
                    self._pauses.reset()
                await self._pass_over(batch.position)
            first = False

    async def _next(self, stoppable: bool) -> Batch:
        """The next batch, or part of one."""
        while True:
            if stoppable and self._runtime.stopping:
                raise Stop
            batch = self._collector.take()
            if batch is not None:
                return batch
            await self._read(stoppable)

    async def _read(self, stoppable: bool) -> None:
        """Waits until something arrives. An error if it does not."""
        assert self._listening is not None
        heartbeat = self._options.heartbeat
        if not self._collector.stock:
            # Before it answers COMMIT the server sends what was missed, and no heartbeats; it may have to read for long.
            seconds = self._options.silence if self._listening.committed else self._options.work_timeout
            if not await self._runtime.wait(self._listening, self._work, seconds, stoppable):
                raise TimeoutError(f"nothing has arrived for {seconds:g} s, not even a heartbeat: the connection is"
                                   " mute, or a pooler keeps the notifications to itself")
        elif not await self._runtime.wait(self._listening, self._work, heartbeat, stoppable):
            await self._runtime.bounded(self._listening.fetch("SELECT 1"), heartbeat, self._listening)
            self._pauses.reset()

    async def _pass_over(self, position: str) -> None:
        """A position without notifications: stored now and then."""
        if self._options.mode is Mode.SHARED:
            self._position = position
        elif time.monotonic() - self._kept_at >= POSITION_INTERVAL_S:
            await self._bounded(self._keep(position))
            self._position = position

    # ---- the user's functions ----

    async def _show_state(self, reason: str) -> None:
        """Calls state, until it succeeds."""
        position = await self._first_position()
        while True:
            self._emit(events.State(reason))
            try:
                await self._begin()
                await self._bounded(self._state_step(reason, position))
            except (Superseded, StoreError):
                raise
            except Exception as problem:
                await self._failed("state", self._state_failures, problem)
            else:
                self._state_failures.reset()
                self._position = position or self._position
                return

    async def _first_position(self) -> Optional[str]:
        """The first position that comes; None if notifications came before it: it would stand for them, too."""
        if self._collector.stock:
            return None
        assert self._listening is not None
        end = time.monotonic() + self._options.heartbeat  # it comes at once, unless a pooler keeps it
        while self._collector.first_position is None and not self._collector.full and time.monotonic() < end:
            await self._runtime.wait(self._listening, self._work, end - time.monotonic(), True)
        first = self._collector.first_position
        return first[1] if first is not None and first[0] == 0 else None

    async def _state_step(self, reason: str, position: Optional[str]) -> None:
        if self._options.state is not None:
            await self._call(self._options.state, reason)
        await self._keep(position)
        await self._commit()

    async def _process(self, first: Batch) -> None:
        """Handles a batch, until it is committed."""
        while True:
            batch, count = first, 0
            try:
                while True:
                    await self._attempt(batch)
                    count += len(batch.notifications)
                    if batch.complete:
                        break
                    batch = await self._next(stoppable=False)
            except AttemptFailed as failed:
                # What came in parts is not in memory any more: it has to come again.
                await self._failed("handle", self._failures, failed.problem, repeat=first.complete)
            else:
                self._failures.reset()
                self._pauses.reset()
                self._collector.size = self._options.batch
                self._position = batch.position or self._position
                self._emit(events.Handled(count, batch.position))
                return

    async def _attempt(self, batch: Batch) -> None:
        """Handles a batch, or a part of one, once."""
        self._in_work = None
        try:
            await self._begin()
            if self._failures.count < self._options.attempts:
                await self._bounded(self._handle_together(batch))
            else:
                await self._handle_each(batch)
        except (Superseded, StoreError, HandlerError):
            raise
        except Exception as problem:
            raise AttemptFailed(problem) from problem

    async def _handle_together(self, batch: Batch) -> None:
        await self._call(self._options.handle, list(batch.notifications))  # its own: what it does to the list is not repeated
        await self._finish(batch)

    async def _handle_each(self, batch: Batch) -> None:
        """Handles notifications one by one, each with its own time."""
        for notification in batch.notifications:
            self._in_work = notification
            await self._bounded(self._handle_one(notification))
        self._in_work = None
        await self._bounded(self._finish(batch))

    async def _handle_one(self, notification: Notification) -> None:
        """Handles a notification, or has poison decide."""
        savepoint = self._work if self._options.mode is Mode.STORE else None
        if savepoint is not None:
            await savepoint.begin()
        try:
            await self._call(self._options.handle, [notification])
            if savepoint is not None:
                await savepoint.fetch("SELECT 1")  # fails, if the handler hides that a statement has failed
        except Exception as problem:
            if _is_passing(problem) or self._work is not None and (self._work.broken or self._work.ended):
                raise
            if savepoint is not None:
                await savepoint.rollback()
            await self._poisoned(notification, problem)
        else:
            if savepoint is not None:
                await savepoint.commit()

    async def _finish(self, batch: Batch) -> None:
        if batch.complete:
            await self._keep(batch.position)
            await self._commit()

    async def _poisoned(self, notification: Notification, problem: Exception) -> None:
        """Asks poison; HandlerError if the consumer is to stop."""
        decision = "stop"
        if self._options.poison is not None:
            decision = await self._call(self._options.poison, notification, problem)
            if decision not in ("skip", "stop"):
                raise HandlerError(f'poison has returned {decision!r}, neither "skip" nor "stop"', problem, notification)
        self._emit(events.Poison(notification.channel, notification.payload, problem, decision))
        if decision == "stop":
            raise HandlerError(f"a notification on channel {notification.channel!r} cannot be handled:"
                               f" {events.describe(problem)}", problem, notification) from problem

    async def _failed(self, what: str, failures: Failures, problem: Exception, repeat: bool = True) -> None:
        """After a failed attempt: rolls back and waits, or begins with new connections, or ends the consumer."""
        broke = not await self._roll_back()
        failures.add(broke)
        if failures.exhausted:
            raise HandlerError(f"{what} has failed {failures.count} times: {events.describe(problem)}", problem,
                               self._in_work) from problem
        if broke:
            raise Again from problem
        self._emit(events.Failing(problem, failures.count))
        if not repeat:
            raise Again from problem
        await self._runtime.pause(self._pauses.after(failures.count - 1))

    # ---- the work's transaction and store ----

    async def _begin(self) -> None:
        if self._options.mode is Mode.OWN and self._work is not None:
            await self._statement(self._work, self._work.fetch("SELECT 1"))  # the lock is still ours
        elif self._options.mode is Mode.STORE and self._work is not None and not self._work.depth:
            await self._statement(self._work, self._work.begin())

    async def _commit(self) -> None:
        if self._options.mode is Mode.STORE and self._work is not None:
            await self._work.commit()

    async def _roll_back(self) -> bool:
        """Undoes the transaction, if there is one. False: the connection has ended, which an error does not always tell."""
        work = self._work
        if work is None:
            return True
        try:
            while work.depth and not work.broken:
                await self._statement(work, work.rollback())
        except self._runtime.errors:
            work.abandon()
        return not work.broken

    async def _keep(self, position: Optional[str]) -> None:
        """Stores the position, where there is one. Superseded if another instance is active."""
        if self._options.mode is Mode.OWN and position is not None:
            try:
                await self._runtime.call(self._options.store.save, position)
            except Exception as problem:
                raise StoreError(f"save has failed: {events.describe(problem)}") from problem
        elif self._options.mode is Mode.STORE and self._work is not None:
            table, name, epoch = self._options.table, self._options.name, self._epoch
            try:
                rows = await (self._work.fetch(CONFIRM.format(table), name, epoch) if position is None
                              else self._work.fetch(KEEP.format(table), position, name, epoch))
            except self._runtime.errors as problem:
                if getattr(problem, "sqlstate", None) in TABLE_MISSING:
                    raise StoreError(str(problem)) from problem
                raise
            if not rows:
                raise Superseded
        if position is not None:
            self._kept_at = time.monotonic()

    async def _call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Calls a function of the user's, with the transaction if there is one, which must be there afterwards as well."""
        if self._options.mode is Mode.STORE and self._work is not None:
            arguments = (*arguments, self._work.raw)
        result = await self._runtime.call(function, *arguments)
        if self._work is not None and self._work.ended:
            raise HeraldError("the function has ended its transaction, which it must not")
        return result

    def _bounded(self, work: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """Runs an attempt; where there is a transaction, its connection is left when the time is over."""
        session = self._work if self._options.mode is Mode.STORE else None
        return self._runtime.bounded(work, self._options.work_timeout, session)

    def _statement(self, session: Session, work: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Executes statements of our own."""
        return self._runtime.bounded(work, self._options.work_timeout, session)

    def _emit(self, event: events.Event) -> None:
        """Reports an event, to the log as well."""
        failed = isinstance(event, events.Stopped) and event.error is not None
        logger.log(logging.ERROR if failed else event.level, "%s: %s", self._options.name or "shared", event)
        if self._options.on_event is not None:
            try:
                self._options.on_event(event)
            except Exception:
                logger.exception("on_event has failed")


def _is_passing(problem: Exception) -> bool:
    code = getattr(problem, "sqlstate", None)
    return isinstance(code, str) and code.startswith(PASSING)


class AttemptFailed(Exception):
    """An attempt at a batch has failed, by this problem."""

    def __init__(self, problem: Exception):
        super().__init__(problem)
        self.problem = problem
