"""A consumer with any of the drivers, so that one test serves for all of them."""

import asyncio
import inspect
import threading
import time

import psycopg

import pg_herald
import pg_herald.asyncpg
from pg_herald import events

DRIVERS = ("psycopg", "psycopg-async", "asyncpg")
DEADLINE_S = 60


def insert(batch):
    """The work of most tests, as statements."""
    return [("INSERT INTO done VALUES ($1, $2)", each.payload, each.channel) for each in batch]


class Subject:
    """A consumer that runs in a thread.

    work, state, poison     return statements, each with its parameters; what is no statement is returned, raised or called.
                            Each gets what the consumer's function gets, without the transaction.
    """

    def __init__(self, driver, connection, *, work=insert, state=None, poison=None, **options):
        self.seen, self._changed = [], threading.Condition()
        self.driver, self.error = driver, None
        options = {"channels": ["orders"], "heartbeat": 1.0, "backoff": (0.01, 0.1), **options}
        self.has_transaction = not options.get("shared") and options.get("store") is None
        if not options.get("shared"):
            options.setdefault("name", "billing")
        self._thread = self._loop = self._task = None
        kind = {"psycopg": pg_herald.Consumer, "psycopg-async": pg_herald.AsyncConsumer,
                "asyncpg": pg_herald.asyncpg.AsyncConsumer}[driver]
        functions = {"handle": work, "state": state, "poison": poison}
        count = {"handle": 1, "state": 1, "poison": 2}
        self.consumer = kind(connection, on_event=self._note, **options, **{
            name: self._function(function, count[name]) for name, function in functions.items() if function is not None})

    # ---- life ----

    def start(self):
        """Runs it in a thread."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def stop(self):
        """Stops it from this thread, and waits."""
        self.consumer.stop()
        self.has_ended()

    def cancel(self):
        """Cancels its task."""
        self._loop.call_soon_threadsafe(self._task.cancel)

    def has_ended(self):
        """Waits for its end; returns the error."""
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), f"it has not ended: {self.seen}"
        return self.error

    def end(self):
        """After a test, however that has ended."""
        if self._thread is not None and self._thread.is_alive():
            self.stop()

    def listen(self):
        """Starts it, and waits until it listens."""
        self.start().wait(events.Listening)
        return self

    # ---- what it says ----

    def wait(self, kind, since=0, **fields):
        """Waits for an event."""
        end = time.monotonic() + DEADLINE_S
        while not (found := self.events(kind, since, **fields)):
            with self._changed:
                self._changed.wait(0.05)
            alive = self._thread.is_alive() or self.events(kind, since, **fields)
            assert alive and time.monotonic() < end, f"no {kind.__name__}: {self.seen} {self.error!r}"
        return found[0]

    def events(self, kind, since=0, **fields):
        """The events of this kind, with these fields."""
        with self._changed:
            return [event for event in self.seen[since:] if isinstance(event, kind)
                    and all(getattr(event, name) == value for name, value in fields.items())]

    def mark(self):
        """What comes from now on."""
        with self._changed:
            return len(self.seen)

    def reasons(self):
        """Of all states."""
        return [event.reason for event in self.events(events.State)]

    # ---- within ----

    def _run(self):
        try:
            if self.driver == "psycopg":
                self.consumer.run()
            else:
                asyncio.run(self._run_in_task())
        except BaseException as problem:
            self.error = problem

    async def _run_in_task(self):
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        await self.consumer.run()

    def _note(self, event):
        with self._changed:
            self.seen.append(event)
            self._changed.notify_all()

    def _function(self, work, count):
        """The function for the consumer, with as many arguments as it needs."""
        def split(arguments):
            assert len(arguments) == count + self.has_transaction, arguments
            return arguments[:count], arguments[count:]

        def do(*arguments):
            result = None
            given, transaction = split(arguments)
            for step in work(*given) or []:
                if isinstance(step, tuple):
                    psycopg.RawCursor(*transaction).execute(step[0].encode(), step[1:])
                else:
                    result = self._take(step)
            return result

        async def do_async(*arguments):
            result = None
            given, transaction = split(arguments)
            for step in work(*given) or []:
                if isinstance(step, tuple):
                    if self.driver == "asyncpg":
                        await transaction[0].execute(*step)
                    else:
                        await psycopg.AsyncRawCursor(*transaction).execute(step[0].encode(), step[1:])
                elif inspect.iscoroutinefunction(step):
                    result = await step()
                else:
                    result = self._take(step)
            return result

        return do if self.driver == "psycopg" else do_async

    @staticmethod
    def _take(step):
        if isinstance(step, BaseException):
            raise step
        return step() if callable(step) else step
