"""Standbys whose replay waits for a query, for example for one that waits for replay."""

import psycopg
import pytest

from faults import Doing
from following import anchored, has_delivered
from harness.standby import Standby
from resume import position, read, resume
from support import notify, one, until

pytestmark = pytest.mark.seam

CONFLICTS = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'RecoveryConflictSnapshot'"
CANCELING = "canceling wait for replay due to conflict with recovery"
WAITS = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Extension'"


@pytest.fixture
def sender(primary, connect):
    """A session of the primary, which has a table `job`."""
    connection = connect(primary)
    connection.execute("CREATE TABLE job (tries integer); INSERT INTO job VALUES (0)")
    return connection


@pytest.fixture
def standby(primary, sender):
    """One that has followed, and sends the primary no feedback."""
    with Standby(primary) as server:
        anchored(primary, sender)
        until(lambda: has_delivered(server), "the standby has followed")
        yield server


def remove_row(sender: psycopg.Connection) -> None:
    """Removes a row that snapshots of the standby still show."""
    sender.execute("UPDATE job SET tries = tries + 1")
    sender.execute("VACUUM job")


def add_column(sender: psycopg.Connection) -> None:
    """Needs a lock that no other transaction may have on the standby."""
    sender.execute("ALTER TABLE job ADD COLUMN another integer")


def remove_aborted_row(sender: psycopg.Connection) -> None:
    """Needs a page that no query on the standby is reading."""
    sender.execute("BEGIN; INSERT INTO job VALUES (0); ROLLBACK")
    sender.execute("VACUUM job")


@pytest.mark.parametrize("call", ["herald.listen('c', '{}')", "herald.read('c', '{}')"])
@pytest.mark.parametrize(("change", "source"), [(remove_row, ""), (add_column, ""), (remove_aborted_row, "FROM job")])
def test_waits_for_replay(sender, standby, connect, call, change, source):
    """Guards: a query that waits for replay, which waits for the query, fails; repeated, it gets what it waited for."""
    client, watcher = connect(standby), connect(standby)
    standby.psql("SELECT pg_wal_replay_pause()")
    change(sender)
    notify(sender, "c", "later")
    token = position(sender)
    doing = Doing(client, f"BEGIN; SELECT * FROM job; SELECT {call.format(token)} {source}; COMMIT")
    until(lambda: one(watcher, WAITS, client.info.backend_pid), "it waits for replay")
    standby.psql("SELECT pg_wal_replay_resume()")
    error = doing.end()
    assert isinstance(error, psycopg.errors.SerializationFailure) and str(error).startswith(CANCELING)
    client.rollback()
    until(lambda: has_delivered(standby), "replay goes on")
    assert resume(client, "c", token) is True


def test_waits_for_notifications(sender, standby, connect):
    """Guards: herald.read() ends its wait before the server cancels it, and the client goes on where it was."""
    client, watcher = connect(standby), connect(standby)
    token = position(client)
    doing = Doing(client, f"SELECT * FROM herald.read('c', '{token}', 10, '1 min')")
    until(lambda: one(watcher, WAITS, client.info.backend_pid), "it waits")
    remove_row(sender)
    assert doing.end() is None
    notify(sender, "c", "later")
    payloads = []
    while not payloads:
        payloads, token = read(client, "c", token, 10, "20 s")
    assert payloads == ["later"]


def test_replay_waits_for_another_query(sender, standby, connect):
    """Guards: a client resumes what the standby has replayed, also while replay waits for another session's query."""
    other, client, watcher = (connect(standby) for _ in range(3))
    notify(sender, "c", "first")
    token = position(sender)
    until(lambda: has_delivered(standby), "the standby has followed")
    other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM job")
    here = position(client)
    remove_row(sender)
    until(lambda: one(watcher, CONFLICTS), "replay waits")
    for after in (here, token):
        assert resume(connect(standby), "c", after) is True
    notify(sender, "c", "later")
    token = position(sender)
    with pytest.raises(psycopg.errors.SerializationFailure, match=CANCELING):
        resume(client, "c", token)
    doing = Doing(client, f"SELECT 1 / herald.listen('c', '{token}')::integer")
    until(lambda: one(watcher, WAITS, client.info.backend_pid), "it waits now, since replay does not wait for it")
    assert one(watcher, CONFLICTS) and doing.runs()
    other.rollback()
    assert doing.end() is None
