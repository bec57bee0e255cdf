"""Notifications that bypass pg_herald's queue cannot be read again: they invalidate earlier positions, and nothing else
does."""

import psycopg
import pytest

from resume import apart, position, read, resume
from servers import SETTINGS, started
from slow_commits import SLOW
from support import hear, hear_until, notify, one, outcome, until, wait_event
from wire import cstring, kinds

PAST = "SET herald.enabled = off; NOTIFY %s, 'past'; RESET herald.enabled"


@pytest.fixture(scope="module")
def slow():
    """A server whose commits can wait for a standby that does not exist."""
    for cluster in started(preload=True, settings=SETTINGS | SLOW):
        cluster.psql("CREATE DATABASE of_a_test")
        yield cluster


@pytest.mark.parametrize("past", [
    "SET herald.enabled = off; NOTIFY c, 'past'; RESET herald.enabled",
    "CALL pg_temp.nothing(pg_notify('d', 'past')::text)",
], ids=["switched off", "argument of CALL"])
def test_sent_past_the_queue(cluster, connect, past):
    """Guards: after a native notification earlier positions are answered with false, since it cannot be read again;
    positions taken later are valid."""
    sender, listener = connect(cluster), connect(cluster)
    sender.execute("CREATE PROCEDURE pg_temp.nothing(x text) LANGUAGE plpgsql AS 'BEGIN END'")
    before = position(sender)
    sender.execute(past)
    notify(sender, "c", "1")
    after = position(sender)
    notify(sender, "c", "2")
    assert resume(listener, "c", before) is False
    for wait in ("0", "50s"):
        assert outcome(listener, "SELECT * FROM herald.read('c', %s, 10, %s)", before, wait).startswith("55000: ")
    assert resume(listener, "c", after) is True
    assert hear(listener, 1) == ["2"]


@pytest.mark.parametrize("statement", [
    "NOTIFY c, 'past'", "SELECT pg_notify('c', 'past')", "DO $$ BEGIN PERFORM pg_notify('c', 'past'); END $$"])
def test_begun_before_the_extension(cluster, database, connect, statement):
    """Guards: a transaction that notified before CREATE EXTENSION invalidates a position taken before its commit."""
    admin, sender, listener = (connect(cluster, database) for _ in range(3))
    sender.execute("BEGIN")
    sender.execute(statement)
    admin.execute("CREATE EXTENSION pg_herald")
    token = position(admin)
    sender.execute("COMMIT")
    assert resume(listener, "c", token) is False
    assert resume(listener, "c", position(admin)) is True


def test_past_the_queue_meanwhile(cluster, connect):
    """Guards: if a bypass happens between the answer and the commit, the session is notified that it has a gap."""
    sender, listener = connect(cluster), connect(cluster)
    token = position(sender)
    for told in (True, False):
        if told:
            listener.execute("LISTEN herald_reset")
        listener.execute("BEGIN")
        assert resume(listener, "c", token)
        sender.execute(PAST % "c")
        notify(sender, "c", "ours")
        if told:
            listener.execute("COMMIT")
            assert hear_until(listener, "notifications were missed") in ([], ["past"])
            listener.execute("UNLISTEN *")
            token = position(sender)
        else:
            with pytest.raises(psycopg.OperationalError, match="has missed notifications"):
                listener.execute("COMMIT")


@pytest.mark.parametrize("statements", [
    [f"LISTEN c{number}" for number in range(150)],
    ["UNLISTEN *"],
    ["SAVEPOINT s", "SET LOCAL herald.enabled = off", "NOTIFY c, 'rolled back'", "ROLLBACK TO s"],
    ["SET LOCAL herald.enabled = off", "NOTIFY c, 'rolled back'", "ROLLBACK"],
], ids=["LISTEN", "UNLISTEN", "savepoint", "rollback"])
def test_nothing_was_sent(cluster, connect, statements):
    """Guards: a transaction that could have bypassed the queue, but sent nothing that way, invalidates no position."""
    other, listener = connect(cluster), connect(cluster)
    if statements == ["UNLISTEN *"]:
        other.execute("; ".join(f"LISTEN c{number}" for number in range(150)))
    token = position(listener)
    notify(other, "c", "1")
    other.execute("BEGIN")
    for statement in statements:
        other.execute(statement)
    other.execute("COMMIT")
    assert read(listener, "c", token)[0] == ["1"]
    assert resume(listener, "c", token) is True
    assert hear(listener, 1) == ["1"]


def test_in_another_database(cluster, connect):
    """Guards: a bypass in another database invalidates no position here, whatever the OIDs."""
    here = connect(cluster)
    own = one(here, "SELECT oid FROM pg_database WHERE datname = current_database()")
    token = position(here)
    notify(here, "c", "1")
    for number in (64, 128, 1024):
        here.execute(f"CREATE DATABASE neighbour OID {1_000_000 - 1_000_000 % number + own % number}")
        there = connect(cluster, "neighbour")
        there.execute("NOTIFY c, 'past'")
        there.close()
        here.execute("DROP DATABASE neighbour WITH (FORCE)")
    assert read(here, "c", token)[0] == ["1"]


def test_by_the_session_itself(cluster, connect):
    """Guards: a session's own bypass in the transaction in which it resumes is delivered to it, and does not end its
    connection."""
    sender, listener = connect(cluster), connect(cluster)
    token = position(sender)
    notify(sender, "c", "1")
    listener.execute("BEGIN")
    assert resume(listener, "c", token) is True
    listener.execute("SET LOCAL herald.enabled = off; NOTIFY c, 'own'; COMMIT")
    assert sorted(hear(listener, 2)) == ["1", "own"]
    notify(sender, "c", "2")
    assert hear(listener, 1) == ["2"]


JUNK = {
    "statement": ["NOTIFY {junk}, '{n}'"],
    "function": ["SELECT pg_notify('{junk}', '{n}')"],
    "beside others": ["SET LOCAL herald.enabled = on", "NOTIFY {more}", "SET LOCAL herald.enabled = off", "NOTIFY {junk}, '{n}'"],
    "rolled back": ["SAVEPOINT s", "NOTIFY {more}, '{n}'", "ROLLBACK TO s", "NOTIFY {junk}, '{n}'"],
    "in a loop": ["DO $$ BEGIN FOR i IN 1..100 LOOP PERFORM pg_notify('{junk}', {n} || '.' || i); END LOOP; END $$"],
}


@pytest.mark.parametrize("statements", JUNK.values(), ids=JUNK)
def test_junk_spoils_junk(cluster, connect, statements):
    """Guards: a session with herald.enabled off invalidates positions for its own channels only; its notifications
    arrive."""
    stranger, sender, reader, hearer = (connect(cluster) for _ in range(4))
    junk, more = apart(sender, ["c"], "junk"), apart(sender, ["c"], "more")
    hearer.execute(f"LISTEN {junk}")
    token, first = position(sender), position(sender)
    for number in range(10):
        stranger.execute("BEGIN; SET LOCAL herald.enabled = off")
        for statement in statements:
            stranger.execute(statement.format(junk=junk, more=more, n=number))
        stranger.execute("COMMIT")
        assert hear(hearer, 1)
        notify(sender, "c", str(number))
        payloads, token = read(reader, "c", token)
        assert payloads == [str(number)]
        with connect(cluster) as listener:
            assert resume(listener, "c", first) is True
            assert len(hear(listener, number + 1)) == number + 1
    assert outcome(reader, f"SELECT * FROM herald.read('{junk}', %s)", first).startswith("55000: ")
    assert resume(reader, junk, first) is False


def test_other_channels(cluster, connect):
    """Guards: after an answer of false a session receives nothing twice on its other channels, even after ROLLBACK."""
    sender, listener = connect(cluster), connect(cluster)
    listener.execute("LISTEN a")
    token = position(listener)
    notify(sender, "a", "1", "2")
    assert hear(listener, 2) == ["1", "2"]
    sender.execute(PAST % "c")
    for end in ("ROLLBACK", "COMMIT"):
        listener.execute("BEGIN")
        assert resume(listener, "c", token) is False
        listener.execute(end)
        notify(sender, "a", end)
        assert hear(listener, 1) == [end]


@pytest.mark.parametrize("how", ["asked", "told"])
def test_heard(cluster, connect, how):
    """Guards: a session that has received a bypassing notification then has a valid position, taken or sent to it."""
    sender, listener = connect(cluster), connect(cluster)
    listener.execute("LISTEN c" if how == "asked" else "LISTEN c; LISTEN herald_position")
    assert how == "asked" or len(hear(listener, 1)) == 1
    position(listener)
    for number in range(5):
        sender.execute(PAST % "c")
        if how == "asked":
            assert hear(listener, 1) == ["past"]
            until(lambda: resume(connect(cluster), "c", position(listener)), "its position is good")
        else:
            _, *told = hear(listener, 2)
            told += hear(listener, 2, 0.2)
            assert resume(connect(cluster), "c", told[-1]) is True
        notify(sender, "c", str(number))
        assert hear(listener, 1) == [str(number)]
        if how == "told":
            assert len(hear(listener, 1)) == 1
    until(lambda: one(sender, "SELECT needed = dispatched FROM herald.queue"), "nothing is held back")


def test_position_channel(cluster, connect):
    """Guards: no session can send positions to others past the queue; in a database without the extension the channel is
    like any other."""
    for way in ("SET herald.enabled = off; NOTIFY herald_position, 'x'",
                "SET herald.enabled = off; SELECT pg_notify('herald_position', 'x')"):
        refused = outcome(connect(cluster), way)
        assert refused == '42939: channel name "herald_position" is reserved', way
    cluster.psql("CREATE DATABASE without_extension")
    with connect(cluster, "without_extension") as session:
        session.execute("LISTEN herald_position")
        notify(session, "herald_position", "x")
        assert hear(session, 1) == ["x"]
    cluster.psql("DROP DATABASE without_extension")


def test_committing_when_the_first_position_is_taken(slow, connect, wire):
    """Guards: a transaction that notified before CREATE EXTENSION, and is past its last look for the extension, when the
    first position is taken: it counts as a bypass when its commit becomes visible."""
    admin, watcher, listener = (connect(slow, "of_a_test") for _ in range(3))
    sender = wire(slow, "of_a_test", synchronous_commit="on")
    watcher.execute("CREATE TABLE written (number integer)")
    sender.send(("Q", cstring("INSERT INTO written VALUES (1); NOTIFY c, 'past'")))
    until(lambda: wait_event(watcher, sender.pid) == "SyncRep", "the commit hangs")
    admin.execute("CREATE EXTENSION pg_herald")
    token = position(admin)
    watcher.execute("SELECT pg_cancel_backend(%s)", (sender.pid,))
    assert kinds(sender.until_ready()).endswith("Z")
    assert resume(listener, "c", token) is False


def test_while_a_commit_hangs(slow, connect, wire):
    """Guards: a session that resumes does not wait for a bypassing transaction that is not visible yet; it receives
    that notification later."""
    admin, watcher, listener = (connect(slow, "of_a_test") for _ in range(3))
    admin.execute("CREATE EXTENSION IF NOT EXISTS pg_herald")
    sender = wire(slow, "of_a_test", synchronous_commit="on")
    token = position(admin)
    watcher.execute("CREATE TABLE written_too (number integer)")
    sender.send(("Q", cstring("SET herald.enabled = off; INSERT INTO written_too VALUES (1); NOTIFY c, 'past'")))
    until(lambda: wait_event(watcher, sender.pid) == "SyncRep", "the commit hangs")
    assert read(listener, "c", token)[0] == []
    assert resume(listener, "c", token) is True
    watcher.execute("SELECT pg_cancel_backend(%s)", (sender.pid,))
    assert kinds(sender.until_ready()).endswith("Z")
    assert hear(listener, 1) == ["past"]
    assert resume(listener, "c", token) is False
