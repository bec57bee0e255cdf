"""Positions are opaque: one that was made up, changed or taken in another database is refused."""

import random

import pytest

from resume import position, resume
from support import outcome

TOKEN = "SELECT herald.listen('c', %s)"


@pytest.mark.parametrize("token", ["", "x", "0/0", "A" * 168, "A" * 169, "ä" * 84, " " * 168, "=" * 168])
def test_made_up(cluster, connect, token):
    """Guards: an invalid position is refused, by each function that takes one."""
    client = connect(cluster)
    for query in (TOKEN, "SELECT * FROM herald.read('c', %s)"):
        assert outcome(client, query, token) == "22023: invalid notification position"


def test_changed(cluster, connect):
    """Guards: a position in which any one character was changed is refused."""
    client = connect(cluster)
    token = position(client)
    for place in range(len(token)):
        changed = token[:place] + random.choice([c for c in "AZaz09-_" if c != token[place]]) + token[place + 1:]
        assert outcome(client, TOKEN, changed).startswith("22023: ")
    assert resume(client, "c", token)


def test_put_together(cluster, connect):
    """Guards: parts of two positions do not make a third one."""
    client = connect(cluster)
    one, other = position(client), position(client)
    for cut in range(4, len(one), 4):
        assert one[:cut] + other[cut:] in (one, other) or \
            outcome(client, TOKEN, one[:cut] + other[cut:]).startswith("22023: ")


def test_tells_nothing(cluster, connect):
    """Guards: two positions at the same place differ, so that they do not reveal whether other sessions have sent."""
    client = connect(cluster)
    assert len({position(client) for _ in range(100)}) == 100


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
