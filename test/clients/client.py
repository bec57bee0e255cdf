"""A conformance program that runs: what it reports, and the ways to end it. README.md describes these programs."""

import json
import os
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from harness import cleanup

DEADLINE_S = 60
END_DEADLINE_S = 20
SAID_CHARACTERS = 1500


class ClientError(AssertionError):
    """A client did not do what it has to; the message has its last events, and what it wrote to stderr."""


@dataclass(frozen=True)
class Event:
    """One line of its output.

    name    of the event
    fields  the rest of the line
    at      when it was read, by the monotonic clock
    """

    name: str
    fields: dict
    at: float

    def __getitem__(self, field: str) -> object:
        return self.fields[field]

    def matches(self, name: str, fields: dict) -> bool:
        """Whether it has this name and these fields."""
        return self.name == name and all(self.fields.get(key) == value for key, value in fields.items())


class Client:
    """A conformance program; it runs from start() on.

    seen    its events, in order; also those of earlier processes, if it was started again
    """

    def __init__(self, command: list[str], options: dict, log: Path, environment: dict[str, str] | None = None):
        self.command, self.options, self.log = command, options, log
        self.environment = environment or {}
        self.process: subprocess.Popen | None = None
        self.status: int | None = None  # of the process that has ended last
        self.seen: list[Event] = []
        self._changed = threading.Condition()
        self._reader: threading.Thread | None = None

    # ---- life ----

    def start(self) -> "Client":
        """Starts it, in a process group of its own."""
        cleanup.at_end(self.kill)
        # Neither the server's address nor a password comes from the environment.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")} | self.environment
        with cleanup.deferred_signals(), open(self.log, "ab") as errors:
            self.process = subprocess.Popen([*self.command, json.dumps(self.options)], stdin=subprocess.DEVNULL,
                                            stdout=subprocess.PIPE, stderr=errors, env=environment, cwd=self.log.parent,
                                            start_new_session=True)
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True)
        self._reader.start()
        return self

    def signal(self, number: int) -> None:
        """Sends a signal to it."""
        self.process.send_signal(number)

    def stop(self) -> None:
        """Has it stop, as its user does: SIGTERM, after which it says "stopped", and ends with 0."""
        since = self.mark()
        self.signal(signal.SIGTERM)
        self.has_stopped(since)

    def has_stopped(self, since: int = 0) -> None:
        """Waits for its end after SIGTERM."""
        status = self.ended()
        last = self.seen[-1].name if len(self.seen) > since else "nothing"
        if (status, last) != (0, "stopped"):
            self.fail(f"after SIGTERM it ended with {status}, and {last!r} as its last word")

    def failed(self, kind: str, deadline_s: float = DEADLINE_S) -> Event:
        """Waits until it has failed with an error of this type."""
        status = self.ended(deadline_s)
        last = self.seen[-1] if self.seen else None
        if not last or status != 1 or not last.matches("failed", {"type": kind}):
            self.fail(f"it was to fail with {kind}; it ended with {status}")
        if not last.fields.get("message"):
            self.fail("its error has no message")
        return last

    def ended(self, deadline_s: float = END_DEADLINE_S) -> int:
        """Waits until it has ended, and all of its output is read; returns its exit status."""
        if self.process:
            try:
                self.status = self.process.wait(deadline_s)
            except subprocess.TimeoutExpired:
                self.fail(f"it has not ended within {deadline_s:g} s")
            self.kill()
        return self.status

    def runs(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """Kills it, if it still runs."""
        cleanup.cancel(self.kill)
        with cleanup.deferred_signals():
            if self.process:
                if self.runs():
                    os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
                self._reader.join(END_DEADLINE_S)
                self.process.stdout.close()
                self.process = None

    # ---- what it reports ----

    def mark(self) -> int:
        """A number for `since`: what comes from now on."""
        with self._changed:
            return len(self.seen)

    def events(self, name: str, since: int = 0, **fields: object) -> list[Event]:
        """The events with this name, and these fields."""
        with self._changed:
            return [event for event in self.seen[since:] if event.matches(name, fields)]

    def wait(self, name: str, since: int = 0, deadline_s: float = DEADLINE_S, **fields: object) -> Event:
        """Waits for the first such event since a mark."""
        end = time.monotonic() + deadline_s
        while not (found := self.events(name, since, **fields)):
            with self._changed:
                self._changed.wait(0.05)
            if not self.runs():
                self._reader.join(END_DEADLINE_S)
                if not self.events(name, since, **fields):
                    self.fail(f"it has ended, and not said {name} {fields or ''}")
            elif time.monotonic() > end:
                self.fail(f"not within {deadline_s:g} s: {name} {fields or ''}")
        return found[0]

    def reasons(self, since: int = 0) -> list[str]:
        """The reasons for which it has read the state."""
        return [event["reason"] for event in self.events("state", since)]

    def payloads(self, since: int = 0) -> list[str]:
        """What it has handled, where handling is to write it down (modes own and shared)."""
        return [event["payload"] for event in self.events("notification", since)]

    def handled(self) -> int:
        """How many notifications it says it has handled."""
        return sum(event["count"] for event in self.events("handled"))

    def check(self) -> None:
        """ClientError if it has ended."""
        if not self.runs():
            self.fail("it has ended")

    def memory_kb(self, what: str = "VmRSS") -> int:
        """Its memory: VmRSS now, VmHWM at its peak."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return int(status.partition(f"{what}:")[2].split()[0])

    def fail(self, problem: str) -> None:
        """ClientError."""
        last = "\n".join(f"  {event.name} {json.dumps(event.fields)[:300]}" for event in self.seen[-12:])
        said = self.log.read_text(encoding="utf-8", errors="replace")[-SAID_CHARACTERS:]
        raise ClientError(f"{problem}; its last events:\n{last}\nstderr:\n{said}")

    # ---- within ----

    def _read(self, lines) -> None:
        for line in lines:
            try:
                fields = json.loads(line)
                event = Event(fields.pop("event"), fields, time.monotonic())
            except (ValueError, KeyError, AttributeError):
                event = Event("not an event", {"line": line.decode(errors="replace")}, time.monotonic())
            with self._changed:
                self.seen.append(event)
                self._changed.notify_all()
