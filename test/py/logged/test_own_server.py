"""A position of logged channels is good as long as the WAL has what comes after, on the server that gave it as well:
the queue may have lost that, to what others send on channels that are not logged."""

import psycopg
import pytest

from laggards import KILOBYTES_7, RING_BYTES, SMALLEST
from resume import position, read, resume, why_not
from servers import SETTINGS, started
from support import hear, notify, one, until

ROUND = 2 * RING_BYTES // 7000


@pytest.fixture(scope="module")
def small():
    """A server with the smallest queue, and a logged channel, c."""
    for server in started(preload=True, settings=SETTINGS | SMALLEST | {"wal_keep_size": "512MB"}):
        server.psql("SELECT herald.set_channel('c', logged => true); SELECT herald.set_channel('d', logged => true)")
        server.restart()  # so there is an anchor after that
        yield server


def lose(sender: psycopg.Connection, token: str) -> None:
    """Others send until the queue has nothing left of what came after the position."""
    sender.execute("DO $$ BEGIN FOR n IN 1 .. %s LOOP PERFORM pg_notify('others', n || '%s'); COMMIT; END LOOP; END $$"
                   % (3 * ROUND, KILOBYTES_7))
    assert why_not(sender, "others", token)[0].startswith("Later ones have taken their place")
    sender.execute("UNLISTEN others")


def test_queue_has_lost_what_the_wal_has(small, connect):
    """Guards: herald.listen() and herald.read() read it in the WAL, and go on in the queue, without a gap or a repetition;
    a channel that is not logged cannot."""
    sender = connect(small)
    notify(sender, "c", "received")
    token = position(sender)
    notify(sender, "c", "1", "2")
    lose(sender, token)
    notify(sender, "c", "3")
    listener = connect(small)
    assert resume(listener, "c", token)
    assert hear(listener, 3) == ["1", "2", "3"]
    assert read(connect(small), "c", token)[0] == ["1", "2", "3"]
    notify(sender, "c", "4")
    assert hear(listener, 1) == ["4"]
    after = position(listener)
    assert read(sender, "c", after)[0] == []
    lose(sender, after)
    notify(sender, "c", "5")
    assert read(sender, "c", after)[0] == ["5"]


def test_row_by_row_from_the_wal(small, connect):
    """Guards: positions within what the WAL has and the queue has lost, and beyond it; those of clients that have received
    some of it from the queue, in whatever order its transactions were committed."""
    sender, holder, client = connect(small), connect(small), connect(small)
    token = position(sender)
    holder.execute("BEGIN; SELECT pg_notify('c', 'last of all')")
    notify(sender, "c", *"12")
    halfway = read(client, "c", token, 1)[1]
    lose(sender, token)
    notify(sender, "c", *"34")
    holder.execute("COMMIT")
    lose(sender, halfway)
    assert read(client, "c", halfway)[0] == ["2", "3", "4", "last of all"]
    found = []
    for _ in range(5):
        rows, token = read(client, "c", token, 1)
        found += rows
    assert found == ["1", "2", "3", "4", "last of all"]
    assert read(client, "c", token)[0] == []


def test_file_of_a_large_transaction_is_gone(small, connect):
    """Guards: a large transaction whose file was deleted is read in the WAL, by both."""
    sender = connect(small)
    token = position(sender)
    sender.execute(f"SELECT count(pg_notify('c', n || '{KILOBYTES_7}')) FROM generate_series(1, 50) n")
    expected = [str(n) for n in range(1, 51)]
    lose(sender, token)
    until(lambda: one(sender, "SELECT spilled FROM herald.queue") == 0, "its file is deleted")
    listener = connect(small)
    assert resume(listener, "c", token)
    assert [payload.rstrip("x") for payload in hear(listener, 50)] == expected
    assert [payload.rstrip("x") for payload in read(connect(small), "c", token)[0]] == expected


def test_all_channels_of_a_client(small, connect):
    """Guards: channels that resume together do so from one reading of the WAL; beside one that the queue still has."""
    sender = connect(small)
    token = position(sender)
    for n in range(3):
        notify(sender, "c", f"c{n}")
        notify(sender, "d", f"d{n}")
    lose(sender, token)
    later = position(sender)
    notify(sender, "c", "c3")
    listener = connect(small)
    with listener.transaction():
        assert resume(listener, "c", token)
        assert resume(listener, "d", token)
    assert hear(listener, 7) == ["c0", "d0", "c1", "d1", "c2", "d2", "c3"]
    mixed = connect(small)
    with mixed.transaction():
        assert resume(mixed, "c", later)
        assert resume(mixed, "d", token)
    assert sorted(hear(mixed, 4)) == ["c3", "d0", "d1", "d2"]
    after = position(mixed)
    notify(sender, "d", "d3")
    assert hear(mixed, 1) == ["d3"]
    assert read(sender, "d", after)[0] == ["d3"] and read(sender, "c", after)[0] == []


def test_position_of_a_mixed_transaction(small, connect):
    """Guards: a position that herald.read() returns with the row max_rows is good after a restart, also where that row's
    transaction has notifications that are not logged."""
    sender = connect(small)
    token = position(sender)
    with sender.transaction():
        for channel, payload in (("c", "1"), ("others", "x"), ("c", "2")):
            notify(sender, channel, payload)
    notify(sender, "c", "3")
    rows, token = read(sender, "c", token, 1)
    assert rows == ["1", "2"]
    small.restart()
    client = connect(small)
    assert read(client, "c", token)[0] == ["3"]
    assert resume(client, "c", token)
    assert hear(client, 1) == ["3"]


def test_reading_is_given_up(small, connect):
    """Guards: what was read for a channel that is rolled back, or not listened to after all, is in no way: another
    position resumes in the same transaction, and a LISTEN begins now."""
    sender, listener = connect(small), connect(small)
    first = position(sender)
    notify(sender, "c", "1")
    second = position(sender)
    notify(sender, "c", "2")
    lose(sender, second)
    with listener.transaction():
        listener.execute("SAVEPOINT s")
        assert resume(listener, "c", first)
        listener.execute("ROLLBACK TO s")
        assert resume(listener, "c", second)
    assert hear(listener, 1) == ["2"]
    other = connect(small)
    with other.transaction():
        assert resume(other, "c", first)
        other.execute("UNLISTEN c; LISTEN c")
    notify(sender, "c", "3")
    assert hear(other, 1) == ["3"] and hear(listener, 1) == ["3"]
    after = position(other)
    notify(sender, "c", "4")
    assert hear(other, 1) == ["4"] and read(sender, "c", after)[0] == ["4"]
