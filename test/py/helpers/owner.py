"""Roles that are no superusers, and what they find: settings of channels, logged channels, positions of elsewhere."""

import subprocess

import psycopg

from harness.cluster import Cluster
from resume import resume
from support import notify, one, outcome
from wal import DESCRIPTION

OWNER = "app_owner"


def become(role: str, session: psycopg.Connection) -> psycopg.Connection:
    """The session, which is the role's from now on."""
    session.execute(f"SET SESSION AUTHORIZATION {role}")
    return session


def settings_of(session: psycopg.Connection) -> dict[str, bool]:
    """The settings of channels in the session's database."""
    return dict(session.execute("SELECT channel, logged FROM herald.channel_settings").fetchall())


def set_channels(session: psycopg.Connection, **settings: bool | None) -> None:
    """Sets channels; with `prefix_` at the end of a name, all that begin with what is before it."""
    for name, logged in settings.items():
        channel = name.removesuffix("prefix_") + "*" if name.endswith("prefix_") else name
        session.execute("SELECT herald.set_channel(%s, %s)", (channel, logged))


def is_logged(cluster: Cluster, session: psycopg.Connection, *channels: str) -> list[bool]:
    """Whether what the session notifies these channels of is written into the WAL; asked from a program outside, since
    not every server comes with an extension that can read it."""
    return [_writes(cluster, session, channel) for channel in channels]


def _writes(cluster: Cluster, session: psycopg.Connection, channel: str) -> bool:
    begin = one(session, "SELECT pg_current_wal_insert_lsn()::text")
    notify(session, channel, "is this logged?")
    # pg_waldump needs at least one record.
    session.execute("SELECT pg_logical_emit_message(true, 'end', '')")
    end = one(session, "SELECT pg_current_wal_flush_lsn()::text")
    result = subprocess.run([cluster.installation.program("pg_waldump"), f"--path={cluster.data / 'pg_wal'}", f"--start={begin}",
                             f"--end={end}", "--rmgr=LogicalMessage"], check=True, capture_output=True, text=True)
    assert "prefix \"end\"" in result.stdout
    texts = [bytes.fromhex(found[2]) for found in DESCRIPTION.finditer(result.stdout)]
    return any(b'"kind":"notifications"' in text and f'"channel":"{channel}"'.encode() in text for text in texts)


def is_of_elsewhere(session: psycopg.Connection, channel: str, token: str) -> bool:
    """Whether the position is answered as one of another database: by false, and by an error of herald.read()."""
    return resume(session, channel, token) is False and \
        str(outcome(session, "SELECT FROM herald.read(%s, %s)", channel, token)).startswith("55000: ")
