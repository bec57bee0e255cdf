"""The steps of ../README.md in Python: for a queue of jobs, and for a listener."""

import asyncio
import json
import os
import queue
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable

WOKEN = 20  # jobs in sequence, each when the worker has nothing else to do
WRITERS = 4
TRANSACTIONS = 25  # of each writer
ROWS_PER_TRANSACTION = 10
RETRY_S = 0.25
POLL_S = 0.01
LISTENERS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'listen%'"

OTHERS = """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"""


class Steps:
    """Common to all programs: they report their current step, and print a result at the end."""

    def __init__(self, framework: str, version: str):
        self.framework, self.version = framework, version
        self.deadline_s = float(os.environ["DEADLINE_S"])
        self.steps: list[str] = []
        self.per_second = 0.0

    def begin(self, step: str) -> None:
        """Begins a step."""
        self.steps.append(step)

    def fail(self, message: str) -> None:
        """Ends the program, whatever its threads do."""
        print(f"{self.framework}: {self.steps[-1] if self.steps else 'start'}: {message}", file=sys.stderr, flush=True)
        os._exit(1)

    def check(self, condition: object, message: str) -> None:
        """Fails unless the condition holds."""
        if not condition:
            self.fail(message)

    def finish(self) -> None:
        """Ends the program, and prints its result."""
        print(json.dumps({"framework": self.framework, "version": self.version, "steps": self.steps,
                          "per_second": round(self.per_second)}), flush=True)
        os._exit(0)


class Jobs(Steps, ABC):
    """A queue whose jobs are numbers. A program defines how jobs are enqueued; did() is the job."""

    unfinished: str  # a query for the number of jobs that the framework has not finished

    def __init__(self, framework: str, version: str):
        super().__init__(framework, version)
        self.done: Counter[int] = Counter()
        self.wake_limit_s = self.deadline_s  # less than the worker's poll interval
        self._changed = asyncio.Event()

    @abstractmethod
    async def enqueue(self, numbers: Iterable[int], commit: bool = True) -> None:
        """Enqueues these jobs in one transaction, which commits or not."""

    @abstractmethod
    async def query(self, sql: str) -> int:
        """The first number that a query returns, on a connection of its own."""

    async def idle(self) -> None:
        """Waits until the worker has nothing to do but listen."""
        await self.until_number(self.unfinished, 0, "no job is left")

    async def until_number(self, sql: str, number: int, what: str) -> None:
        """Waits until a query returns this number."""
        began = time.monotonic()
        while await self.query(sql) != number:
            self.check(time.monotonic() - began < self.deadline_s, f"not within {self.deadline_s:g} s: {what}")
            await asyncio.sleep(POLL_S)

    def did(self, number: int) -> None:
        """The job itself: records its number."""
        self.done[number] += 1
        self.changed()

    def changed(self) -> None:
        """Lets until() check its condition again."""
        self._changed.set()

    async def until(self, condition: Callable[[], object], what: str, limit_s: float | None = None) -> None:
        """Waits for the condition."""
        limit_s = limit_s or self.deadline_s
        try:
            async with asyncio.timeout(limit_s):
                while not condition():
                    await self._changed.wait()
                    self._changed.clear()
        except TimeoutError:
            self.fail(f"not within {limit_s:g} s: {what}")

    async def until_done(self, numbers: Iterable[int]) -> None:
        """Waits until these jobs are done."""
        await self.until(lambda: all(self.done[number] for number in numbers), f"all of {numbers} are done")

    async def woken(self) -> None:
        """Checks that each job wakes up the waiting worker."""
        self.begin("woken")
        for number in range(WOKEN):
            await self.wake(number)

    async def wake(self, number: int) -> None:
        """Checks that a job wakes up the worker."""
        await self.idle()
        await self.enqueue([number])
        await self.until(lambda: self.done[number], f"job {number} wakes the worker", self.wake_limit_s)

    async def burst(self) -> None:
        """Enqueues jobs by several writers at once."""
        async def write(writer: int) -> None:
            for transaction in range(TRANSACTIONS):
                first = 1000 * writer + transaction * ROWS_PER_TRANSACTION
                await self.enqueue(range(first, first + ROWS_PER_TRANSACTION))

        self.begin("burst")
        began, before = time.monotonic(), self.done.total()
        await asyncio.gather(*map(write, range(1, WRITERS + 1)))
        jobs = WRITERS * TRANSACTIONS * ROWS_PER_TRANSACTION
        await self.until(lambda: self.done.total() - before >= jobs, f"{jobs} jobs are done")
        self.per_second = jobs / (time.monotonic() - began)

    async def rollback(self) -> None:
        """Checks that a job that is rolled back is not done."""
        self.begin("rollback")
        await self.enqueue([10001], commit=False)
        await self.enqueue([10002])
        await self.until_done([10002])

    async def reconnect(self) -> None:
        """Breaks all connections. A job must be done again, and from then on each must wake up the worker."""
        self.begin("reconnect")
        await self.idle()
        await self.query(OTHERS)
        began, enqueued, number = time.monotonic(), [], 20000
        while not any(self.done[n] for n in enqueued):
            self.check(time.monotonic() - began < self.deadline_s, "no job is done any more")
            number += 1
            try:
                await self.enqueue([number])
                enqueued.append(number)
            except Exception as problem:  # pylint: disable=broad-exception-caught
                print(f"{self.framework}: not enqueued: {problem!r}", file=sys.stderr)
            await asyncio.sleep(RETRY_S)
        await self.until_done(enqueued)
        for number in (30001, 30002):
            await self.wake(number)

    def check_all(self) -> None:
        """Checks that each job was done once, and none that was rolled back."""
        self.check(set(self.done.values()) == {1}, f"done more than once: {[n for n in self.done if self.done[n] > 1]}")
        self.check(not self.done[10001], "a job was done that had been rolled back")


class Listener(Steps, ABC):
    """Sends and receives texts. A program defines how they are sent, and passes those received to heard()."""

    def __init__(self, framework: str, version: str):
        super().__init__(framework, version)
        self._heard: queue.Queue[str] = queue.Queue()

    @abstractmethod
    def send(self, texts: list[str], commit: bool = True) -> None:
        """Sends these texts in one transaction, which commits or not; called by any thread."""

    @abstractmethod
    def terminate(self) -> None:
        """Ends all other connections to the database, by query OTHERS."""

    def heard(self, text: str) -> None:
        """Called with each text that was received."""
        self._heard.put(text)

    def next(self) -> str:
        """The next text that was received."""
        try:
            return self._heard.get(timeout=self.deadline_s)
        except queue.Empty:
            self.fail(f"nothing was heard within {self.deadline_s:g} s")

    def expect(self, text: str) -> None:
        """Checks that the next text is this one."""
        self.check((heard := self.next()) == text, f"heard {heard!r} instead of {text!r}")

    def run(self) -> None:
        """Runs all steps."""
        self.begin("woken")
        for number in range(WOKEN):
            self.send([f"woken {number}"])
            self.expect(f"woken {number}")
        self.burst()
        self.begin("rollback")
        self.send(["rolled back"], commit=False)
        self.send(["committed"])
        self.expect("committed")
        self.reconnect()
        self.finish()

    def burst(self) -> None:
        """Sends texts by several writers at once; the order of each must be kept."""
        def write(writer: int) -> None:
            for first in range(0, TRANSACTIONS * ROWS_PER_TRANSACTION, ROWS_PER_TRANSACTION):
                self.send([f"{writer} {seq}" for seq in range(first, first + ROWS_PER_TRANSACTION)])

        self.begin("burst")
        began = time.monotonic()
        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
        for thread in threads:
            thread.start()
        expected = [0] * WRITERS
        for _ in range(WRITERS * TRANSACTIONS * ROWS_PER_TRANSACTION):
            writer, seq = map(int, self.next().split())
            self.check(seq == expected[writer], f"writer {writer}: heard {seq} instead of {expected[writer]}")
            expected[writer] += 1
        for thread in threads:
            thread.join()
        self.per_second = sum(expected) / (time.monotonic() - began)

    def reconnect(self) -> None:
        """Breaks all connections. A text must arrive again, and from then on every one."""
        self.begin("reconnect")
        self.terminate()
        began, tries = time.monotonic(), 0
        while self._heard.empty():
            self.check(time.monotonic() - began < self.deadline_s, "nothing is heard any more")
            tries += 1
            try:
                self.send([f"try {tries}"])
            except Exception as problem:  # pylint: disable=broad-exception-caught
                print(f"{self.framework}: not sent: {problem!r}", file=sys.stderr)
            time.sleep(RETRY_S)
        self.send(["after reconnecting"])
        last = 0
        while (text := self.next()) != "after reconnecting":
            word, number = text.split()
            self.check(word == "try" and int(number) > last, f"heard {text!r} after try {last}")
            last = int(number)
