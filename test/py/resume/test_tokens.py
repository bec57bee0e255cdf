"""Positions can be read, and not made: one that was made up, changed or taken in another database is refused."""

import random

import psycopg
import pytest

from resume import position, resume
from support import notify, outcome
from support import one as one_of

TOKEN = "SELECT herald.listen('c', %s)"


@pytest.mark.parametrize("token", [
    "", "x", "0/0", "A" * 168, "ä" * 84, " " * 168, "4-1", "4-" * 11, "4-" * 11 + "0" * 32, "4-1-" + "0-" * 9 + "0" * 31,
    " 4-1-" + "0-" * 9 + "0" * 32, "4--1-" + "0-" * 9 + "0" * 32, "4-0x1-" + "0-" * 9 + "0" * 32, "4-01-" + "0-" * 9 + "0" * 32,
    "4-1-" + "f" * 17 + "-" + "0-" * 8 + "0" * 32, "4-1-" + "0-" * 3 + "2-" + "0-" * 5 + "0" * 32])
def test_made_up(cluster, connect, token):
    """Guards: an invalid position is refused, by each function that takes one."""
    client = connect(cluster)
    for query in (TOKEN, "SELECT * FROM herald.read('c', %s)"):
        assert outcome(client, query, token) == "22023: invalid notification position"


def test_changed(cluster, connect):
    """Guards: a position in which any one character was changed is refused, or is one of another cluster."""
    client = connect(cluster)
    token = position(client)
    for place in range(len(token)):
        changed = token[:place] + random.choice([c for c in "Ag9a10-_" if c != token[place]]) + token[place + 1:]
        assert is_refused(client, changed), changed
    assert resume(client, "c", token)


def test_put_together(cluster, connect):
    """Guards: parts of two positions do not make a third one."""
    client = connect(cluster)
    one = position(client)
    notify(client, "c", "between")
    other = position(client)
    for cut in range(4, len(one), 4):
        assert one[:cut] + other[cut:] in (one, other) or is_refused(client, one[:cut] + other[cut:])


def is_refused(client: psycopg.Connection, token: str) -> bool:
    """Whether the session does not resume from this text."""
    said = outcome(client, TOKEN, token)
    return said == [(False,)] or said.startswith("22023: ")


def test_parts_of_a_position(cluster, connect):
    """Guards: the parts of a position are those that docs/resume.md names; it is the same as long as nothing is sent."""
    client = connect(cluster)
    client.execute("SELECT herald.set_channel('c', true)")
    token = position(client)
    assert position(client) == token
    parts = token.split("-")
    assert len(parts) == 12 and parts[0] == "4" and len(token) <= 173
    assert int(parts[1], 16) == one_of(client, "SELECT oid FROM pg_database WHERE datname = current_database()")
    assert int(parts[3], 16) <= one_of(client, "SELECT head FROM herald.queue")
    assert 0 < int(parts[6], 16) <= one_of(client, "SELECT pg_current_wal_insert_lsn() - '0/0'")
    notify(client, "c", "more")
    later = position(client).split("-")
    assert later[:3] == parts[:3] and int(later[3], 16) > int(parts[3], 16) and later[11] != parts[11]
    client.execute("SELECT herald.set_channel('c', NULL)")


def test_of_another_database(cluster, connect, database):
    """Guards: a position of another database is answered with false, for ever and without an error; one from before the
    extension was created again is still good."""
    cluster.create_herald(database)
    here, there = connect(cluster), connect(cluster, database)
    token = position(there)
    assert resume(here, "c", token) is False
    assert outcome(here, "SELECT FROM herald.read('c', %s)", token).startswith("55000: ")
    there.execute("DROP EXTENSION pg_herald; CREATE EXTENSION pg_herald")
    assert resume(there, "c", token) is True


def test_bad_channels(cluster, connect):
    """Guards: channel names are checked as by NOTIFY."""
    client = connect(cluster)
    token = position(client)
    for channel in ("", None, "x" * 64):
        expected = outcome(client, "SELECT pg_notify(%s, '')", channel)
        assert expected.startswith("22023: channel name")
        assert outcome(client, "SELECT herald.listen(%s, %s)", channel, token) == expected
        assert outcome(client, "SELECT herald.read(%s, %s)", channel, token) == expected
