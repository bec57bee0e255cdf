"""Positions, and sessions that go on from one."""

import psycopg

from support import one


def position(connection: psycopg.Connection) -> str:
    """Up to here everything has been sent to the client."""
    return one(connection, "SELECT herald.position()")


def resume(connection: psycopg.Connection, channel: str, after: str | None) -> bool:
    """Whether all that was sent on the channel after a position will come."""
    return one(connection, "SELECT herald.listen(%s, %s)", channel, after)


def read(connection: psycopg.Connection, channel: str, after: str | None, *more: object) -> tuple[list[str], str]:
    """The payloads after a position, and the position to go on from."""
    rows = connection.execute(f"SELECT payload, position FROM herald.read(%s, %s{', %s' * len(more)})",
                              (channel, after, *more)).fetchall()
    return [payload for payload, _ in rows if payload is not None], rows[-1][1]
