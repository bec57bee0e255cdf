"""The scenario of ../README.md with procrastinate: a worker that polls once an hour."""

import asyncio
from collections.abc import Iterable
from importlib.metadata import version

import psycopg
from procrastinate import App, PsycopgConnector

from scenario.scenario import LISTENERS, Jobs

HOUR_S = 3600
WORKERS = 2


class Procrastinate(Jobs):
    """Workers of one app, each with a LISTEN connection of its own."""

    unfinished = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"

    def __init__(self):
        super().__init__("procrastinate", version("procrastinate"))
        self.app = App(connector=PsycopgConnector())
        self.number_task = self.app.task(name="number")(self.number)
        self.sleep_task = self.app.task(name="sleep", pass_context=False)(self.sleep)
        self.asleep: list[str] = []

    async def number(self, number: int) -> None:
        """A job that is done at once."""
        self.did(number)

    async def sleep(self) -> None:
        """A job that ends only if it is aborted."""
        self.asleep.append("begun")
        self.changed()
        try:
            await asyncio.sleep(HOUR_S)
        except asyncio.CancelledError:
            self.asleep.append("aborted")
            self.changed()
            raise

    async def enqueue(self, numbers: Iterable[int], commit: bool = True) -> None:
        async with (self.app.connector.pool.connection() as connection,
                    connection.transaction(force_rollback=not commit)):
            await self.number_task.configure(connection=connection).batch_defer_async(
                *({"number": number} for number in numbers))

    async def query(self, sql: str) -> int:
        async with await psycopg.AsyncConnection.connect() as connection:
            return (await (await connection.execute(sql)).fetchone())[0]

    async def cancel(self) -> None:
        """Checks that a running job is aborted by a notification."""
        self.begin("cancel")
        job = await self.sleep_task.defer_async()
        await self.until(lambda: self.asleep == ["begun"], "the job that sleeps has begun")
        await self.app.job_manager.cancel_job_by_id_async(job, abort=True)
        await self.until(lambda: self.asleep == ["begun", "aborted"], "the job that sleeps is aborted")

    async def main(self) -> None:
        """Runs all steps."""
        async with self.app.open_async():
            await self.app.schema_manager.apply_schema_async()
            workers = [asyncio.create_task(self.app.run_worker_async(
                name=f"worker {n}", concurrency=4, fetch_job_polling_interval=HOUR_S, abort_job_polling_interval=HOUR_S,
                install_signal_handlers=False)) for n in range(WORKERS)]
            await self.until_number(LISTENERS, WORKERS, "all workers listen")
            await self.woken()
            await self.burst()
            await self.rollback()
            await self.cancel()
            await self.reconnect()
            self.check(not any(worker.done() for worker in workers), "a worker has ended")
            self.check_all()
            self.finish()


if __name__ == "__main__":
    asyncio.run(Procrastinate().main())
