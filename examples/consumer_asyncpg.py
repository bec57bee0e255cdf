"""Writes one bill for each order, also when the connection breaks. PGHOST, PGDATABASE, ... say where."""

import asyncio

import asyncpg
from pg_herald import Notification
from pg_herald.asyncpg import AsyncConsumer


async def handle(batch: list[Notification], transaction: asyncpg.Connection) -> None:
    """Do what these notifications ask for."""
    for notification in batch:
        await transaction.execute("INSERT INTO bill VALUES ($1) ON CONFLICT DO NOTHING", int(notification.payload))


async def state(_reason: str, transaction: asyncpg.Connection) -> None:
    """This is the first start, or something is gone: do what is left to do."""
    await transaction.execute("INSERT INTO bill SELECT id FROM orders ORDER BY id ON CONFLICT DO NOTHING")


async def main() -> None:
    """Runs until it is cancelled."""
    consumer = AsyncConsumer(name="billing", channels=["orders"], handle=handle, state=state)
    await consumer.create_store()
    await consumer.run()


asyncio.run(main())
