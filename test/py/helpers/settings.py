"""Settings of channels: herald.set_channel(), and which channels are logged by what is committed."""

import psycopg

from support import one, outcome

SET = "SELECT herald.set_channel(%s, %s)"
ROWS = "SELECT channel, logged FROM herald.channel_settings ORDER BY channel COLLATE \"C\""
CREATE = "CREATE SERVER pg_herald FOREIGN DATA WRAPPER pg_herald"
ALTER = "ALTER SERVER pg_herald"


def put(session: psycopg.Connection, settings: dict[str, bool | None] | None = None, **channels: bool | None) -> None:
    """Sets these channels and prefixes."""
    for name, logged in {**(settings or {}), **channels}.items():
        session.execute(SET, (name, logged))


def rows(session: psycopg.Connection) -> dict[str, bool]:
    """The settings that a session sees."""
    return dict(session.execute(ROWS).fetchall())


def is_logged(session: psycopg.Connection, *channels: str) -> list[bool]:
    """Whether these channels are logged; by a function of the build with stop points."""
    return [one(session, "SELECT stop_is_logged(%s)", channel) for channel in channels]


def refused(session: psycopg.Connection, *statements: str) -> object:
    """The error at the commit of these statements, which themselves succeed."""
    session.execute("BEGIN")
    for statement in statements:
        session.execute(statement)
    return outcome(session, "COMMIT")
