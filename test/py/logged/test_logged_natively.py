"""Notifications on logged channels that do not go through pg_herald's queue."""

import pytest

from faults import Doing
from following import ANCHOR_LOOKS, anchored, has_delivered, looks
from harness.standby import Standby
from resume import position, resume
from servers import SETTINGS, need_library, started
from slow_commits import commit_slowly
from support import hear, hear_until, notify, one, until

pytestmark = pytest.mark.seam

MISSED = "notifications were missed"
TRIGGER = """
CREATE EXTENSION IF NOT EXISTS tcn;
CREATE TABLE t (id int PRIMARY KEY);
CREATE TRIGGER tcn AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION triggered_change_notification('tcn');
"""
WAITS = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"


@pytest.mark.parametrize("enabled", ["on", "off"])
def test_c_function_beside_others(primary, connect, enabled):
    """Guards: a transaction of which pg_herald has seen only a part: listeners on a standby are notified that they have missed
    something, and no channel resumes behind it."""
    need_library("tcn")
    primary.psql(TRIGGER + "SELECT herald.set_channel('tcn', true)")
    with Standby(primary) as standby:
        sender, listener = connect(primary), connect(standby)
        anchored(primary, sender)
        until(lambda: has_delivered(standby), "the standby has followed")
        listener.execute("LISTEN tcn; LISTEN herald_reset")
        token, here = position(sender), position(connect(standby))
        sender.execute(f"BEGIN; SET LOCAL herald.enabled = {enabled}; INSERT INTO t VALUES (1); NOTIFY c, 'seen'; COMMIT")
        until(lambda: has_delivered(standby), "the standby has followed")
        assert hear(listener, 1) == [MISSED]
        assert resume(connect(standby), "tcn", here) is False
        primary.restart()
        assert resume(connect(primary), "tcn", token) is False


def test_c_function_and_old_settings(connect):
    """Guards: a session that knows of no logged channel learns of them before it commits."""
    need_library("tcn")
    for server in started(preload=True, settings=SETTINGS):
        server.psql(TRIGGER)
        sender, admin = connect(server), connect(server)
        notify(sender, "u", "so it knows the settings")
        looks(server, ANCHOR_LOOKS)
        sender.execute("BEGIN; INSERT INTO t VALUES (1)")
        admin.execute("SELECT herald.set_channel('tcn', true)")
        looks(server, 2 * ANCHOR_LOOKS)
        token = position(connect(server))
        sender.execute("COMMIT")
        server.restart()
        assert resume(connect(server), "tcn", token) is False


def test_message_waits_for_the_lock(primary, connect):
    """Guards: no anchor comes between a native notification's message and its commit, if that has to wait."""
    sender, holder, client = connect(primary), connect(primary), connect(primary)
    notify(sender, "c", "first")
    looks(primary, ANCHOR_LOOKS)
    holder.execute("BEGIN; SELECT * FROM herald.channel FOR SHARE")
    doing = Doing(sender, "BEGIN; SET LOCAL herald.enabled = off; NOTIFY c, 'native'; SELECT herald.set_channel('other', true);"
                          " COMMIT")
    until(lambda: one(client, WAITS, sender.info.backend_pid), "it waits")
    primary.psql("SELECT pg_switch_wal(); CREATE TABLE more (i int)")
    looks(primary, 2 * ANCHOR_LOOKS)
    token = position(client)
    holder.execute("COMMIT")
    assert doing.end() is None
    primary.restart()
    assert resume(connect(primary), "c", token) is False


def test_new_standby_beside_a_hanging_commit(primary, connect):
    """Guards: a standby that begins while a native notification waits for the server's lock receives it."""
    first, second, watcher = (connect(primary) for _ in range(3))
    watcher.execute("SET synchronous_commit = local")
    primary.psql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'; SELECT pg_reload_conf()")
    until(lambda: one(first, "SHOW synchronous_standby_names") == "nobody", "it waits for a standby")
    for session in (first, second):
        session.execute("SET herald.enabled = off")
    hangs = commit_slowly(watcher, first, "NOTIFY log_x, 'holds the lock'")
    waits = Doing(second, "NOTIFY c, 'native'")
    until(lambda: one(watcher, WAITS, second.info.backend_pid), "it waits")
    watcher.execute("SELECT pg_switch_wal()")
    watcher.execute("CHECKPOINT")
    with Standby(primary) as standby:
        listener = connect(standby)
        listener.execute("LISTEN c; LISTEN herald_reset")
        primary.psql("ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()")
        assert hangs.end() is None and waits.end() is None
        notify(watcher, "c", "end")
        assert hear_until(listener, "end") == ["native"]
