"""The scenario of ../README.md with pgqueuer: a manager that polls every 10 s, and is restarted when it fails."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.metadata import version

import asyncpg
import pgqueuer
from pgqueuer.adapters.cli import supervisor
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Context, Job

from scenario.scenario import Jobs

HOUR_S = 3600
POLL = timedelta(seconds=10)  # a lost connection is noticed only at a poll as well
RESTART_DELAY = timedelta(seconds=0.5)
PAUSE_S = 0.5  # while a job is left, and up to 0.1 s longer, pgqueuer looks for more jobs all the time
FIRST = 40001


class PgQueuer(Jobs):
    """One manager, as `pgq run --restart-on-failure` runs it."""

    unfinished = "SELECT count(*) FROM pgqueuer"

    def __init__(self):
        super().__init__("pgqueuer", version("pgqueuer"))
        self.asleep: list[str] = []
        self.wake_limit_s = min(self.deadline_s, POLL.total_seconds() / 2)

    @asynccontextmanager
    async def manager(self) -> AsyncIterator[pgqueuer.PgQueuer]:
        """Started by the supervisor, repeatedly."""
        connection = await asyncpg.connect()
        try:
            manager = pgqueuer.PgQueuer(AsyncpgDriver(connection))

            @manager.entrypoint("number")
            async def number(job: Job) -> None:
                self.did(int(job.payload))

            @manager.entrypoint("sleep")
            async def sleep(job: Job, context: Context) -> None:
                self.asleep.append("begun")
                self.changed()
                with context.cancellation:
                    await asyncio.sleep(HOUR_S)
                if context.cancellation.cancel_called:
                    self.asleep.append("canceled")
                    self.changed()

            yield manager
        finally:
            await connection.close()

    async def enqueue(self, numbers: Iterable[int], commit: bool = True) -> None:
        payloads = [str(number).encode() for number in numbers]
        async with self.pool.acquire() as connection:
            transaction = connection.transaction()
            await transaction.start()
            await pgqueuer.Queries(AsyncpgDriver(connection)).enqueue(
                ["number"] * len(payloads), payloads, [0] * len(payloads))
            await (transaction.commit() if commit else transaction.rollback())

    async def query(self, sql: str) -> int:
        connection = await asyncpg.connect()
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    async def idle(self) -> None:
        await super().idle()
        await asyncio.sleep(PAUSE_S)

    async def cancel(self) -> None:
        """A running job is canceled by a notification."""
        self.begin("cancel")
        queries = pgqueuer.Queries(AsyncpgPoolDriver(self.pool))
        job, = await queries.enqueue("sleep", None)
        await self.until(lambda: self.asleep == ["begun"], "the job that sleeps has begun")
        await queries.mark_job_as_cancelled([job])
        await self.until(lambda: self.asleep == ["begun", "canceled"], "the job that sleeps is canceled")

    async def main(self) -> None:
        """Runs all steps."""
        self.pool = await asyncpg.create_pool(min_size=4, max_size=4)
        await pgqueuer.Queries(AsyncpgPoolDriver(self.pool)).install()
        await self.enqueue([FIRST])
        running = asyncio.create_task(supervisor.run(
            self.manager, dequeue_timeout=POLL, shutdown=asyncio.Event(), restart_on_failure=True,
            restart_delay=RESTART_DELAY, shutdown_on_listener_failure=True))
        await self.until_done([FIRST])  # it executes LISTEN before it looks for jobs, so it listens now
        await self.woken()
        await self.burst()
        await self.rollback()
        await self.cancel()
        await self.reconnect()
        self.check(not running.done(), "the supervisor has ended")
        self.check_all()
        self.finish()


if __name__ == "__main__":
    asyncio.run(PgQueuer().main())
