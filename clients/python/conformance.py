"""A consumer that the suite in test/clients drives: python conformance.py '{"connection": "...", ...}'.

It writes one JSON object in each line. "driver" is "psycopg", "psycopg-async" or "asyncpg".
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

from pg_herald import HeraldError, Notification, events

OPTIONS = ("work_connection", "require", "heartbeat", "batch", "attempts", "work_timeout", "table")
BILL = ("INSERT INTO bill (order_id, by) VALUES ($1, 'handle')"
        " ON CONFLICT (order_id) DO UPDATE SET handled = bill.handled + 1")
STATE = "INSERT INTO bill SELECT id, 'state', 0 FROM orders ON CONFLICT DO NOTHING"
DEAD_LETTER = "INSERT INTO dead_letter (payload, error) VALUES ($1, $2)"
FAILING = "SELECT 1 / 0"
HIDDEN = object()  # a statement that fails, which handle does not tell
KILL = "SELECT pg_terminate_backend(pg_backend_pid())"


def write(event: str, **fields: Any) -> None:
    """One line."""
    print(json.dumps({"event": event, "at": fields.pop("at", time.time()), **fields}), flush=True)


def report(event: events.Event) -> None:
    """An event of the package."""
    fields = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
    write(event.name, **{key: str(value) if isinstance(value, BaseException) else value for key, value in fields.items()})


class FileStore:
    """A position in a file, and perhaps none."""

    def __init__(self, path: str):
        self._path = Path(path)

    def load(self) -> Optional[str]:
        """The position."""
        return self._path.read_text(encoding="ascii") if self._path.exists() else None

    def save(self, position: str) -> None:
        """Replaces the file."""
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        new.write_text(position, encoding="ascii")
        new.replace(self._path)


class Work:
    """What handle, state and poison do, as steps that both kinds of consumer take: a pause, or a statement."""

    def __init__(self, arguments: Dict[str, Any]):
        self.stores = arguments.get("mode", "store") == "store"
        self.decision = arguments.get("poison", "none")
        self._plan = arguments.get("handler") or {}
        self._fails = dict(self._plan.get("fail_times") or {})

    @property
    def delay(self) -> float:
        """Seconds for each batch."""
        return float(self._plan.get("delay") or 0)

    def statements(self, batch: List[Notification]) -> List[Any]:
        """The statements of a batch; an exception in it where it is to fail."""
        steps: List[Any] = []
        for notification in batch:
            payload = notification.payload
            if payload == self._plan.get("kill_connection") and self.stores:
                steps.append((KILL,))
            if payload == self._plan.get("hide_failure"):
                steps.append(HIDDEN)
                break
            if payload == self._plan.get("fail_always") or self._fails.get(payload, 0) > 0:
                if payload in self._fails:
                    self._fails[payload] -= 1
                steps.append(ValueError(f"handle fails for {payload!r}"))
                break
            if self.stores and payload.lstrip("-").isdigit():
                steps.append((BILL, int(payload)))
            elif not self.stores:
                steps.append(notification)
        return steps


def take(step: Any) -> None:
    """A step that needs no connection."""
    if isinstance(step, Exception):
        raise step
    write("notification", channel=step.channel, payload=step.payload)


def options(arguments: Dict[str, Any], work: Work) -> Dict[str, Any]:
    """The arguments of the consumer, without the functions."""
    found = {key: arguments[key] for key in OPTIONS if arguments.get(key) is not None}
    mode = arguments.get("mode", "store")
    if mode == "shared":
        found["shared"] = True
    else:
        found["name"] = arguments.get("name")
    if mode == "own":
        found["store"] = FileStore(arguments["store_file"])
    if arguments.get("backoff") is not None:
        found["backoff"] = tuple(arguments["backoff"])
    return {"connection": arguments["connection"], "channels": arguments.get("channels") or [], "on_event": report, **found}


def run_in_thread(arguments: Dict[str, Any]) -> None:
    """With psycopg."""
    import psycopg

    from pg_herald import Consumer

    work = Work(arguments)

    def execute(connection: Any, query: str, *values: Any) -> None:
        psycopg.RawCursor(connection).execute(query.encode(), values)

    def handle(batch: List[Notification], *transaction: Any) -> None:
        time.sleep(work.delay)
        for step in work.statements(batch):
            if step is HIDDEN:
                with contextlib.suppress(psycopg.Error):
                    execute(*transaction, FAILING)
            elif isinstance(step, tuple) and not isinstance(step, Notification):
                execute(*transaction, *step)
            else:
                take(step)

    def state(reason: str, *transaction: Any) -> None:
        if work.stores:
            execute(*transaction, STATE)

    def poison(notification: Notification, error: Exception, *transaction: Any) -> Any:
        if work.stores and work.decision == "skip":
            execute(*transaction, DEAD_LETTER, notification.payload, str(error))
        return work.decision

    consumer = Consumer(**options(arguments, work), handle=handle, state=state,
                        poison=None if work.decision == "none" else poison)
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    consumer.run()


async def run_in_task(arguments: Dict[str, Any]) -> None:
    """With asyncpg, or with psycopg and asyncio."""
    work = Work(arguments)
    if arguments["driver"] == "asyncpg":
        import asyncpg

        from pg_herald.asyncpg import AsyncConsumer
        errors = (asyncpg.PostgresError,)
    else:
        import psycopg

        from pg_herald import AsyncConsumer  # type: ignore[assignment]
        errors = (psycopg.Error,)

    async def execute(connection: Any, query: str, *values: Any) -> None:
        if arguments["driver"] == "asyncpg":
            await connection.execute(query, *values)
        else:
            await psycopg.AsyncRawCursor(connection).execute(query.encode(), values)

    async def handle(batch: List[Notification], *transaction: Any) -> None:
        await asyncio.sleep(work.delay)
        for step in work.statements(batch):
            if step is HIDDEN:
                with contextlib.suppress(*errors):
                    await execute(*transaction, FAILING)
            elif isinstance(step, tuple) and not isinstance(step, Notification):
                await execute(*transaction, *step)
            else:
                take(step)

    async def state(reason: str, *transaction: Any) -> None:
        if work.stores:
            await execute(*transaction, STATE)

    async def poison(notification: Notification, error: Exception, *transaction: Any) -> Any:
        if work.stores and work.decision == "skip":
            await execute(*transaction, DEAD_LETTER, notification.payload, str(error))
        return work.decision

    consumer = AsyncConsumer(**options(arguments, work), handle=handle, state=state,
                             poison=None if work.decision == "none" else poison)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.stop)
    await consumer.run()


def main() -> int:
    """Runs one consumer; returns the exit status."""
    arguments = json.loads(sys.argv[1])
    arguments.setdefault("driver", "psycopg")
    try:
        if arguments["driver"] == "psycopg":
            run_in_thread(arguments)
        else:
            asyncio.run(run_in_task(arguments))
    except HeraldError as problem:
        write("failed", type=type(problem).__name__, message=str(problem))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
