"""Positions, and sessions that resume from one."""

from itertools import count

import psycopg

from support import one


def position(connection: psycopg.Connection) -> str:
    """The position up to which everything has been sent to the client."""
    return one(connection, "SELECT herald.position()")


def resume(connection: psycopg.Connection, channel: str, after: str | None) -> bool:
    """Resumes a channel; whether all that was sent on it after the position will be delivered."""
    return one(connection, "SELECT herald.listen(%s, %s)", channel, after)


def why_not(connection: psycopg.Connection, channel: str, after: str) -> tuple[str, str]:
    """The channel must not resume after the position; the detail and the hint of the message that says why."""
    told = []

    def note(diag: psycopg.errors.Diagnostic) -> None:
        if diag.message_primary == f'notifications on channel "{channel}" after this position are not kept any more':
            told.append((diag.message_detail, diag.message_hint))

    connection.add_notice_handler(note)
    connection.execute("SET client_min_messages = debug1")
    is_resumed = resume(connection, channel, after)
    connection.execute("RESET client_min_messages")
    connection.remove_notice_handler(note)
    assert is_resumed is False
    reason, = told
    return reason


def read(connection: psycopg.Connection, channel: str, after: str | None, *more: object) -> tuple[list[str], str]:
    """The payloads after a position, and the position to go on from."""
    rows = connection.execute(f"SELECT payload, position FROM herald.read(%s, %s{', %s' * len(more)})",
                              (channel, after, *more)).fetchall()
    return [payload for payload, _ in rows if payload is not None], rows[-1][1]


def apart(connection: psycopg.Connection, channels: list[str], prefix: str) -> str:
    """The name of a channel, with this prefix, that does not share its counters with the given ones: by chance, one in
    64 does. Each start of the server draws new chances."""
    for number in count():
        name = f"{prefix}{number}"
        token = position(connection)
        with connection.transaction():
            connection.execute("SET LOCAL herald.enabled = off")
            connection.execute(f"NOTIFY {name}")
        connection.execute("BEGIN")
        is_apart = all(resume(connection, channel, token) for channel in channels)
        connection.execute("ROLLBACK")
        if is_apart:
            break
    return name
