"""The scenario of ../README.md with SQLAlchemy's asyncio: a session that writes, and asyncpg's add_listener()."""

import asyncio
import threading
from concurrent.futures import Future

import sqlalchemy
from orders import CHANNEL, Base, Order
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from scenario.scenario import OTHERS, RETRY_S, Listener


class WithAsyncpg(Listener):
    """One engine, and one thread with its event loop, for everything."""

    def __init__(self):
        super().__init__("sqlalchemy-asyncpg", sqlalchemy.__version__)
        self.loop = asyncio.new_event_loop()
        self.engine = create_async_engine("postgresql+asyncpg://", pool_pre_ping=True, max_overflow=10)
        self.listening: Future[None] = Future()

    def send(self, texts: list[str], commit: bool = True) -> None:
        asyncio.run_coroutine_threadsafe(self.send_async(texts, commit), self.loop).result()

    async def send_async(self, texts: list[str], commit: bool) -> None:
        """Sends these texts in one transaction."""
        async with AsyncSession(self.engine) as session:
            for text_ in texts:
                session.add(Order(text=text_))
                await session.flush()
            await (session.commit() if commit else session.rollback())

    def terminate(self) -> None:
        asyncio.run_coroutine_threadsafe(self.terminate_async(), self.loop).result()

    async def terminate_async(self) -> None:
        """Ends all other connections."""
        async with self.engine.connect() as connection:
            await connection.execute(text(OTHERS))

    async def listen(self) -> None:
        """Listens, and starts again when the connection breaks."""
        while True:
            ended = asyncio.Event()
            try:
                async with self.engine.connect() as connection:
                    raw = (await connection.get_raw_connection()).driver_connection
                    raw.add_termination_listener(lambda _connection: ended.set())
                    await raw.add_listener(CHANNEL, lambda _connection, _pid, _channel, payload: self.heard(payload))
                    if not self.listening.done():
                        self.listening.set_result(None)
                    await ended.wait()
                    await connection.invalidate()
            except (DBAPIError, OSError):
                await asyncio.sleep(RETRY_S)

    async def start(self) -> None:
        """Creates the tables, and starts the listener."""
        async with self.engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        self.listener = asyncio.create_task(self.listen())

    def main(self) -> None:
        """Runs all steps."""
        threading.Thread(target=self.loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(self.start(), self.loop).result()
        self.listening.result()
        self.run()


if __name__ == "__main__":
    WithAsyncpg().main()
