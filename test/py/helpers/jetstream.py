"""A private NATS server with JetStream, and streams there."""

import asyncio
from collections.abc import Awaitable, Callable

import nats
from nats.js import JetStreamContext
from nats.js.api import RawStreamMsg, StreamConfig

from harness.ports import LOOPBACK
from harness.private_server import PrivateServer

DUPLICATE_WINDOW_S = 0.1  # the shortest that the server accepts
AT_ONCE = 200  # requests
REQUEST_S = 60


class JetStream(PrivateServer):
    """The server; InstallationError if it is not installed."""

    program_name = "nats-server"

    def command(self) -> list[str]:
        return [self.program, "--addr", LOOPBACK, "--port", str(self.port), "--jetstream", "--store_dir", str(self.folder)]

    @property
    def url(self) -> str:
        """Where it is."""
        return f"nats://{LOOPBACK}:{self.port}"

    def create(self, name: str) -> None:
        """Creates a stream that soon forgets which messages it has."""
        self._ask(lambda stream: stream.add_stream(StreamConfig(
            name=name, subjects=[f"{name}.>"], duplicate_window=DUPLICATE_WINDOW_S)))

    def last(self, name: str) -> int:
        """The last sequence number in a stream."""
        return self._ask(lambda stream: stream.stream_info(name)).state.last_seq

    def purge(self, name: str) -> None:
        """Removes all messages of a stream."""
        self._ask(lambda stream: stream.purge_stream(name))

    def messages(self, name: str) -> list[RawStreamMsg]:
        """All messages in a stream."""
        async def read(stream: JetStreamContext) -> list[RawStreamMsg]:
            last = (await stream.stream_info(name)).state.last_seq
            found = []
            for first in range(1, last + 1, AT_ONCE):
                found += await asyncio.gather(*(stream.get_msg(name, number)
                                                for number in range(first, min(first + AT_ONCE, last + 1))))
            return found
        return self._ask(read)

    def _ask(self, what: Callable[[JetStreamContext], Awaitable]):
        async def ask():
            client = await nats.connect(self.url)
            try:
                return await what(client.jetstream(timeout=REQUEST_S))
            finally:
                await client.close()
        return asyncio.run(ask())
