"""Positions after which a server does not have everything: clients must not take it for everything."""

import os

import psycopg
import pytest

from faults import Doing
from following import ANCHOR_LOOKS, anchored, has_delivered, looks
from harness.standby import Standby
from resume import apart, position, read, resume, why_not
from servers import SETTINGS, need_library, started
from support import hear, notify, one, outcome, until

pytestmark = pytest.mark.seam

MISSED = "notifications were missed"
NOT_LOGGED = "Since the position the channel was not logged all the time"
PAST_QUEUE = "Some were sent through the server's own queue"


def notify_natively(session: psycopg.Connection, channel: str, payload: str) -> None:
    """Through the server's own queue."""
    session.execute("SET herald.enabled = off")
    notify(session, channel, payload)
    session.execute("RESET herald.enabled")


def test_too_much_wal(primary, connect):
    """Guards: where the WAL cannot be read for a position, no channel resumes there, whichever is asked for again."""
    sender = connect(primary)
    token = position(sender)
    notify(sender, "c", "1")
    notify(sender, "log_d", "2")
    primary.settings["herald.resume_wal_size"] = 0
    primary.restart()
    listener = connect(primary)
    listener.execute("BEGIN")
    assert {why_not(listener, channel, token)[0] for channel in ("c", "log_d", "c")} == {
        "The WAL after the position cannot be read here: it is longer than herald.resume_wal_size (0 MB)."}
    listener.execute("COMMIT")


def test_resumes_one_after_the_other(primary, connect):
    """Guards: what comes between two calls with one position in one transaction counts for the second."""
    sender = connect(primary)
    token = position(sender)
    notify(sender, "c", "1")
    notify(sender, "late", "not logged")
    primary.restart()
    listener, sender = connect(primary), connect(primary)
    listener.execute("BEGIN")
    assert resume(listener, "c", token)
    sender.execute("SELECT herald.set_channel('late', true)")
    assert why_not(listener, "late", token)[0].startswith(NOT_LOGGED)
    listener.execute("COMMIT")
    assert hear(listener, 1) == ["1"]


def test_read_just_after_a_start(primary, connect):
    """Guards: a position of a server that has just started says what its client has received."""
    for number in range(3):
        client = connect(primary)
        token = position(client)
        notify(client, "c", str(number))
        primary.restart()
        rows, after = read(connect(primary), "c", token)
        assert rows == [str(number)]
        primary.restart()
        assert read(connect(primary), "c", after)[0] == []


def test_setting_is_newer_than_the_relay(primary, connect):
    """Guards: a standby that shows a channel's new setting does not resume it after a position from before."""
    with Standby(primary) as standby:
        sender = connect(primary)
        anchored(primary, sender)
        for number in range(6):
            channel, listener, token = f"new_{number}", connect(standby), position(sender)
            notify(sender, channel, "not logged")
            sender.execute("SELECT herald.set_channel(%s, true)", (channel,))
            until(lambda: not outcome(listener, f"LISTEN {channel}"), "the standby has the setting")
            listener.execute("UNLISTEN *")
            assert why_not(listener, channel, token)[0].startswith(NOT_LOGGED)


def test_channel_that_was_not_logged(primary, connect):
    """Guards: on a standby, also after its promotion, a position says nothing of channels, and of times, that were not
    logged: a listener is notified of the change, and a reader gets an error."""
    with Standby(primary) as standby:
        sender, reader, listener = connect(primary), connect(standby), connect(standby)
        anchored(primary, sender)
        until(lambda: has_delivered(standby), "the standby has followed")
        listener.execute("LISTEN c; LISTEN herald_reset")
        token = position(reader)
        notify(sender, "unlogged", "x")
        notify(sender, "c", "1")
        assert outcome(reader, "SELECT FROM herald.read('unlogged', %s)", token).startswith("25006")
        assert outcome(reader, "SELECT FROM herald.read('{c,unlogged}'::text[], %s)", token).startswith("25006")
        assert hear(listener, 1) == ["1"]
        for logged in (False, True):
            sender.execute("SELECT herald.set_channel('c', %s)", (logged,))
            assert hear(listener, 1) == [MISSED]
            if not logged:
                notify(sender, "c", "not logged")
        notify(sender, "c", "2")
        assert hear(listener, 1) == ["2"]
        assert outcome(reader, "SELECT FROM herald.read('c', %s)", token).startswith("55000")
        last = position(reader)
        notify(sender, "unlogged", "y")
        notify(sender, "c", "3")
        until(lambda: has_delivered(standby), "the standby has followed")
        reader.execute("SELECT pg_promote()")
        promoted = connect(standby)
        assert why_not(promoted, "unlogged", last)[0].startswith(NOT_LOGGED)
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as error:
            promoted.execute("SELECT FROM herald.read('unlogged', %s)", (last,))
        assert error.value.diag.message_detail.startswith(NOT_LOGGED)
        assert resume(promoted, "c", last)
        assert hear(promoted, 1) == ["3"]


def test_two_positions(connect):
    """Guards: a session that resumes two channels after different positions has the older one's."""
    for server in started(preload=True, settings=SETTINGS):
        server.psql("SELECT herald.set_channel('log_*', logged => true); SELECT pg_notify('log_d', 'first')")
        looks(server, ANCHOR_LOOKS)
        sender = connect(server)
        notify(sender, "log_d", "x")
        older = position(sender)
        for part in range(40):
            sender.execute("SELECT count(pg_notify('c', %s || '.' || n || repeat('z', 300))) FROM generate_series(1, 100) n",
                           (str(part),))
        sender.execute("SELECT herald.set_channel('c', true)")
        notify(sender, "log_d", "y")
        listener = connect(server)
        listener.execute("BEGIN; LISTEN herald_position")
        assert resume(listener, "c", older) and resume(listener, "log_d", position(sender))
        listener.execute("COMMIT")
        count = 0
        for notification in listener.notifies():
            count += notification.channel == "c"
            if count and notification.channel == "herald_position":
                break
        listener.close()
        assert 0 < count < 4000
        server.restart()
        assert why_not(connect(server), "c", notification.payload)[0].startswith(NOT_LOGGED)


def test_temporary_files_are_full(primary, connect):
    """Guards: a client that reads the WAL with temp_file_limit used up gets an error; its transaction can go on, and the
    session can be cancelled."""
    client = connect(primary)
    token = position(client)
    for number in range(20):
        notify(client, "c", f"{number}" * 50)
    primary.psql("CREATE TABLE t (i int)")
    primary.restart()
    client = connect(primary)
    client.execute("SET temp_file_limit = '4MB'; SET work_mem = '64kB'")
    cursors = 0
    for rows in [2 ** power for power in range(14, -1, -1)]:
        while not outcome(client, f"DECLARE h{cursors} CURSOR WITH HOLD FOR SELECT repeat('x', 90) FROM"
                                  f" generate_series(1, {rows + 700})"):
            cursors += 1
    client.execute("BEGIN; INSERT INTO t VALUES (1); SAVEPOINT s")
    assert outcome(client, "SELECT herald.listen('c', %s)", token).startswith("53400")
    client.execute("ROLLBACK TO s; COMMIT")
    assert one(client, "SELECT count(*) FROM t") == 1
    client.execute("SET statement_timeout = '100ms'")
    assert outcome(client, "SELECT pg_sleep(10)").startswith("57014")


def test_cancelled_while_it_reads(primary, connect):
    """Guards: a call that is cancelled leaves no open file of the WAL, in a transaction that goes on."""
    client = connect(primary)
    token = position(client)
    for _ in range(30):
        client.execute("SELECT pg_logical_emit_message(false, 'x', repeat('y', 1000)) FROM generate_series(1, 2000)")
    notify(client, "c", "1")
    primary.restart()
    client = connect(primary)
    files = f"/proc/{client.info.backend_pid}/fd"
    client.execute("BEGIN")
    results = set()
    for milliseconds in range(1, 31):
        client.execute(f"SAVEPOINT s; SET LOCAL statement_timeout = {milliseconds}")
        results.add(str(outcome(client, "SELECT herald.listen('c', %s)", token))[:5])
        client.execute("ROLLBACK TO s")
    assert "57014" in results
    assert sum("pg_wal" in os.readlink(f"{files}/{name}") for name in os.listdir(files)
               if os.path.exists(f"{files}/{name}")) <= 1


def test_on_commit_actions_hold_no_lock(primary, connect):
    """Guards: a transaction that waits at its end for another one's lock does not keep settings from being changed, and so
    blocks no sender."""
    owner, other, admin, sender = (connect(primary) for _ in range(4))
    owner.execute("CREATE TABLE p (i int);"
                  "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'")
    other.execute("BEGIN; SELECT FROM p")
    owner.execute("BEGIN; SET LOCAL herald.enabled = off; CREATE TEMP TABLE tt (i int) ON COMMIT DROP;"
                  "CREATE FUNCTION g(int) RETURNS bool LANGUAGE sql BEGIN ATOMIC SELECT $1 > (SELECT count(*) FROM tt); END;"
                  "CREATE TRIGGER tr BEFORE INSERT ON p FOR EACH ROW WHEN (g(NEW.i)) EXECUTE FUNCTION f();"
                  "SELECT pg_notify('c', 'native')")
    doing = Doing(owner, "COMMIT")
    until(lambda: one(admin, "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'",
                      owner.info.backend_pid), "it waits")
    admin.execute("SET statement_timeout = '20s'; SELECT herald.set_channel('new', true)")
    notify(sender, "any", "x")
    other.execute("ROLLBACK")
    doing.end()
