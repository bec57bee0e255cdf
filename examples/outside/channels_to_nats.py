"""Publishes each notification on a logged channel in a stream of NATS JetStream, once: python3 channels_to_nats.py SLOT STREAM

The stream has subject "STREAM.>", and no other publisher. The program ends at any error; start it again then.
PGHOST, PGDATABASE, ... say where the database is; NATS_URL says where NATS is.
"""

import asyncio
import os
import sys
from urllib.parse import quote

import nats
import psycopg
from logged_channels import batches, number
from nats.js import JetStreamContext

START = (0, 0)


async def last_position(stream: JetStreamContext, name: str) -> tuple[int, tuple[int, int]]:
    """The stream's last sequence number, and the position in that message."""
    sequence = (await stream.stream_info(name)).state.last_seq
    if not sequence:
        return 0, START
    headers = (await stream.get_msg(name, sequence)).headers  # an error if the stream has not kept its last message
    return sequence, (number(headers["Herald-Lsn"]), int(headers["Herald-Index"]))


async def main(slot: str, name: str) -> None:
    """Runs until an error."""
    client = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"), allow_reconnect=False)
    stream = client.jetstream()
    sequence, position = await last_position(stream, name)
    with psycopg.connect(autocommit=True) as connection:
        for batch in batches(connection, slot, position):
            for notification in batch:
                # The server refuses it if anything else was stored in between: what a bridge that was killed, or whose
                # connection has broken, had sent before.
                answer = await stream.publish(
                    f"{name}.{quote(notification.channel, safe='').replace('.', '%2E')}", notification.payload.encode(),
                    stream=name, headers={
                        "Nats-Expected-Last-Sequence": str(sequence),
                        "Herald-Lsn": notification.lsn, "Herald-Index": str(notification.index),
                        "Herald-Run": notification.run, "Herald-Place": notification.place})
                sequence = answer.seq
            if not batch:
                await asyncio.sleep(0.2)


asyncio.run(main(*sys.argv[1:]))
