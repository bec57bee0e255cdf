"""Writes one bill for each order, also when the connection breaks. PGHOST, PGDATABASE, ... say where."""

import asyncio
import random

import asyncpg


async def read_state(connection: asyncpg.Connection) -> None:
    """This is the first start, or something is gone: do what is left to do."""
    await connection.execute("INSERT INTO bill SELECT id FROM orders ORDER BY id ON CONFLICT DO NOTHING")


async def handle(connection: asyncpg.Connection, payload: str) -> None:
    """Do what one notification asks for."""
    await connection.execute("INSERT INTO bill VALUES ($1) ON CONFLICT DO NOTHING", int(payload))


async def consume() -> None:
    """Listen until the connection breaks."""
    connection = await asyncpg.connect()
    arrived = asyncio.Queue()

    def arrive(_connection, _pid: int, *channel_and_payload: str) -> None:
        arrived.put_nowait(channel_and_payload)

    connection.add_termination_listener(lambda _connection: arrived.put_nowait(None))
    try:
        async with connection.transaction():
            await connection.add_listener("herald_position", arrive)
            await connection.add_listener("orders", arrive)  # asyncpg drops what it does not know
            complete = await connection.fetchval(
                "SELECT herald.listen('orders', after => (SELECT position FROM progress FOR UPDATE))")
        if not complete:
            await read_state(connection)
        payloads = []
        while message := await arrived.get():
            channel, payload = message
            if channel != "herald_position":
                payloads.append(payload)
                continue
            async with connection.transaction():  # the work and its position: both are stored, or none
                for each in payloads:
                    await handle(connection, each)
                await connection.execute("UPDATE progress SET position = $1", payload)
            payloads = []
    finally:
        connection.terminate()


async def main() -> None:
    """Again and again."""
    while True:
        try:
            await consume()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as problem:
            print(problem)
        await asyncio.sleep(random.random())  # so that not all consumers come back at once


asyncio.run(main())
