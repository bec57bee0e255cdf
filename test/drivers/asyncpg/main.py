"""The scenario of ../README.md with asyncpg: add_listener(), and prepared statements throughout."""

import asyncio
import json
import os
import sys

import asyncpg

WRITERS = 4
ROWS_PER_TRANSACTION = 10
WAITING_TRANSACTIONS = 400  # of each writer, while the listener only waits
BUSY_TRANSACTIONS = 100  # of each writer, while the listener runs statements
DEADLINE_S = 60
LARGE = "ä€😀" * 888 + "x" * 7  # 7,999 bytes


class Failure(Exception):
    """The driver received something else than expected."""


class Listener:
    """A connection that listens, and a count of what it has received."""

    def __init__(self):
        self.heard = 0
        self.last_seq = dict.fromkeys(range(1, WRITERS + 1), 0)

    async def connect(self) -> None:
        """Connects, or reconnects, and listens."""
        self.connection = await asyncpg.connect()
        self.arrived: asyncio.Queue[tuple[int, str]] = asyncio.Queue()
        self.ended = asyncio.Event()
        self.connection.add_termination_listener(lambda _connection: self.ended.set())
        self.pid = await self.connection.fetchval("SELECT pg_backend_pid()")
        await self.listen()

    async def listen(self) -> None:
        """Executes LISTEN, as asyncpg does it."""
        await self.connection.add_listener("events", self.arrive)

    async def unlisten(self) -> None:
        """Executes UNLISTEN, by removing the channel's only callback."""
        await self.connection.remove_listener("events", self.arrive)

    def arrive(self, _connection, sender: int, channel: str, payload: str) -> None:
        """Called by asyncpg for each notification."""
        self.arrived.put_nowait((sender, payload))

    async def next(self) -> tuple[int, str]:
        """The next notification: its sender and payload."""
        try:
            return await asyncio.wait_for(self.arrived.get(), DEADLINE_S)
        except asyncio.TimeoutError:
            raise Failure(f"nothing came within {DEADLINE_S} s; heard {self.heard} so far") from None

    async def expect(self, wanted: str) -> int:
        """Checks the payload of the next notification; returns its sender."""
        sender, payload = await self.next()
        if payload != wanted:
            raise Failure(f"heard {payload[:40]!r} instead of {wanted[:40]!r}")
        self.heard += 1
        return sender

    def take_row(self, payload: str) -> None:
        """Checks that each writer's rows arrive in order, none lost and none doubled."""
        try:
            writer, seq = map(int, payload.split())
            last = self.last_seq[writer]
        except (ValueError, KeyError):
            raise Failure(f"heard {payload[:40]!r} during the load") from None
        if seq != last + 1:
            raise Failure(f"writer {writer}: heard row {seq} after row {last}")
        self.last_seq[writer] = seq
        self.heard += 1


async def write_rows(writer: int, seq: int, transactions: int) -> None:
    """One writer's part of a load, from row `seq` on."""
    connection = await asyncpg.connect()
    insert = await connection.prepare(
        "INSERT INTO event SELECT $1, s FROM generate_series($2::int, $3::int) s")
    for first in range(seq, seq + transactions * ROWS_PER_TRANSACTION, ROWS_PER_TRANSACTION):
        async with connection.transaction():
            await insert.fetch(writer, first, first + ROWS_PER_TRANSACTION - 1)
    await connection.close()


async def hear_rows(listener: Listener, count: int, busy: bool) -> None:
    """Takes `count` rows: waits for each, or takes those that arrive with the results of statements."""
    wanted = listener.heard + count
    while listener.heard < wanted:
        if not busy:
            listener.take_row((await listener.next())[1])
            continue
        async with listener.connection.transaction():
            await listener.connection.fetch("SELECT count(*) FROM pg_class WHERE oid > $1", 0)
        while not listener.arrived.empty():
            listener.take_row(listener.arrived.get_nowait()[1])


async def load(listener: Listener, transactions: int, busy: bool) -> None:
    """Runs all writers at once, each on its own connection, and the listener meanwhile."""
    tasks = [asyncio.create_task(write_rows(writer, last + 1, transactions))
             for writer, last in listener.last_seq.items()]
    await asyncio.gather(hear_rows(listener, WRITERS * transactions * ROWS_PER_TRANSACTION, busy), *tasks)


async def main() -> None:
    listener = Listener()
    await listener.connect()
    other = await asyncpg.connect()
    await load(listener, WAITING_TRANSACTIONS, busy=False)
    await load(listener, BUSY_TRANSACTIONS, busy=True)

    await other.fetch("SELECT pg_notify('events', $1)", LARGE)
    await listener.expect(LARGE)

    await listener.connection.fetch("NOTIFY events, 'own'")  # fetch() prepares, execute() would not
    if await listener.expect("own") != listener.pid:
        raise Failure("the notification of its own has another sender")

    transaction = other.transaction()
    await transaction.start()
    await other.fetch("NOTIFY events, 'rolled back'")
    await transaction.rollback()
    await other.fetch("NOTIFY events, 'committed'")
    await listener.expect("committed")

    await listener.unlisten()
    await other.fetch("NOTIFY events, 'unheard'")
    await listener.listen()
    await other.fetch("NOTIFY events, 'heard again'")
    await listener.expect("heard again")

    await other.fetch("SELECT pg_terminate_backend($1)", listener.pid)
    try:
        await asyncio.wait_for(listener.ended.wait(), DEADLINE_S)
    except asyncio.TimeoutError:
        raise Failure("the end of the connection was not noticed") from None
    if not listener.arrived.empty():
        raise Failure("a notification came instead of the end of the connection")
    await other.fetch("NOTIFY events, 'missed'")
    await listener.connect()
    await other.fetch("NOTIFY events, 'after reconnecting'")
    await listener.expect("after reconnecting")
    await listener.connection.close()
    await other.close()

    print(json.dumps({"driver": "asyncpg", "version": asyncpg.__version__, "heard": listener.heard,
                      "steps": ["waiting", "busy", "large", "own", "rollback", "unlisten", "reconnect"]}))


async def main_or_fail() -> None:
    """Runs main(); an error ends the program, whatever its other tasks do."""
    try:
        await main()
    except (Failure, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as problem:
        print(f"asyncpg: {problem}", file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    asyncio.run(main_or_fail())
