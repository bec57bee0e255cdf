"""Settings that change, and a promotion, beside clients that listen, resume or read, and beside notifications of the same
transaction."""

import pytest

from faults import FUNCTIONS, Doing, Points
from following import ANCHOR_LOOKS, anchored, has_delivered, looks
from harness.standby import Standby
from resume import position, read, resume
from servers import SETTINGS, started
from support import hear, hear_until, notify, one, outcome, until

pytestmark = pytest.mark.seam

MISSED = "notifications were missed"


@pytest.fixture
def standby(primary):
    """A standby of it."""
    with Standby(primary) as standby:
        yield standby
        assert not standby.damage(), standby.damage()


@pytest.fixture
def pair(primary, standby, connect):
    """A session on the primary and one on the standby, which has an anchor and has followed."""
    sender, client = connect(primary), connect(standby)
    anchored(primary, sender)
    until(lambda: has_delivered(standby), "the standby has followed")
    return sender, client


def test_setting_and_notification(pair):
    """Guards: a transaction that changes a setting and notifies is relayed as well, and so are all settings of one."""
    sender, client = pair
    client.execute("LISTEN c; LISTEN log_1; LISTEN herald_reset")
    with sender.transaction():
        sender.execute("SELECT herald.set_channel('other', true)")
        notify(sender, "c", "with a setting")
    notify(sender, "c", "end")
    assert hear_until(client, "end") == ["with a setting"]
    with sender.transaction():
        sender.execute("SELECT herald.set_channel('aa', true)")
        sender.execute("SELECT herald.set_channel('c', false)")
    assert hear(client, 1) == [MISSED]


@pytest.mark.parametrize("how", ["LISTEN", "listen()"])
def test_setting_changes_before_the_commit(pair, standby, how):
    """Guards: a setting that changes between a LISTEN and its commit on a standby: the commit fails if the channel is not
    logged any more; a client that resumes is notified that it has missed something."""
    sender, client = pair
    token = position(client)
    client.execute("BEGIN; LISTEN herald_reset")
    if how == "LISTEN":
        client.execute("LISTEN c")
    else:
        assert resume(client, "c", token)
    sender.execute("SELECT herald.set_channel('c', false)")
    notify(sender, "c", "not logged")
    if how == "listen()":
        sender.execute("SELECT herald.set_channel('c', true)")
    until(lambda: has_delivered(standby), "the standby has followed")
    if how == "LISTEN":
        assert outcome(client, "COMMIT").startswith("25006")
        return
    client.execute("COMMIT")
    assert hear(client, 1) == [MISSED]


def test_setting_changes_while_it_reads(stop_points, connect):
    """Guards: herald.read() on a standby returns no position beyond notifications that were sent while the channel was not
    logged."""
    for primary in started(preload=True, pg_config=stop_points, settings=SETTINGS | {"wal_retrieve_retry_interval": "100ms"}):
        primary.psql(FUNCTIONS + "SELECT herald.set_channel('c', true)")
        with Standby(primary) as standby:
            sender, reader, watcher = connect(primary), connect(standby), connect(standby)
            anchored(primary, sender)
            token = position(sender)
            notify(sender, "c", "1")
            until(lambda: has_delivered(standby), "the standby has followed")
            points = Points(watcher)
            points.arm("wal-read", "wait", reader.info.backend_pid)
            doing = Doing(reader, f"SELECT 1 / (count(*) FILTER (WHERE payload IS NULL)) FROM herald.read('c', '{token}')")
            points.waiter("wal-read")
            sender.execute("SELECT herald.set_channel('c', false)")
            notify(sender, "c", "not logged")
            sender.execute("SELECT herald.set_channel('c', true)")
            until(lambda: has_delivered(standby), "the standby has followed")
            points.release()
            assert doing.end() is None
            assert outcome(reader, "SELECT FROM herald.read('c', %s)", token).startswith("55000")


def test_position_of_an_idle_standby(pair, standby, connect):
    """Guards: a position of a standby says nothing of a channel that is logged since, also if the standby's queue has not moved
    meanwhile; nor is it taken for one of the time after."""
    sender, client = pair
    before = position(client)
    notify(sender, "new", "not logged")
    sender.execute("SELECT herald.set_channel('new', true)")
    until(lambda: has_delivered(standby) and not outcome(client, "LISTEN new"), "the standby has the setting")
    client.execute("UNLISTEN *")
    after = position(client)
    assert outcome(client, "SELECT FROM herald.read('new', %s)", before).startswith("55000")
    assert resume(connect(standby), "new", before) is False
    assert resume(connect(standby), "new", after)
    assert resume(connect(standby), "c", before)


def test_position_of_a_standby_that_is_promoted(pair, standby, connect):
    """Guards: after a promotion a position from before it says nothing of channels that are not logged, also if the standby's
    queue has not moved meanwhile; one from after it does."""
    sender, client = pair
    before = position(client)
    notify(sender, "unlogged", "lost")
    until(lambda: has_delivered(standby), "the standby has followed")
    client.execute("SELECT pg_promote()")
    notify(client, "c", "1")
    assert resume(connect(standby), "unlogged", before) is False
    assert outcome(client, "SELECT FROM herald.read('unlogged', %s)", before).startswith("55000")
    listener = connect(standby)
    assert resume(listener, "c", before)
    assert hear(listener, 1) == ["1"]
    after = position(client)
    notify(client, "unlogged", "2")
    assert resume(listener, "unlogged", after)
    assert hear(listener, 1) == ["2"]


def test_logged_after_a_promotion(pair, standby, connect):
    """Guards: a position from a standby says nothing of a channel that is logged only since its promotion."""
    sender, client = pair
    before = position(client)
    notify(sender, "new", "lost")
    until(lambda: has_delivered(standby), "the standby has followed")
    client.execute("SELECT pg_promote()")
    client.execute("SELECT herald.set_channel('new', true)")
    notify(client, "new", "1")
    assert resume(connect(standby), "new", before) is False
    assert outcome(client, "SELECT FROM herald.read('new', %s)", before).startswith("55000")
    assert resume(connect(standby), "c", before)


def test_extension_is_dropped(pair):
    """Guards: listeners on a standby are notified when the extension is dropped, and with it all settings; without it LISTEN
    is refused there."""
    sender, client = pair
    client.execute("LISTEN c; LISTEN herald_reset")
    sender.execute("DROP EXTENSION pg_herald CASCADE")
    assert hear(client, 1) == [MISSED]
    until(lambda: outcome(client, "LISTEN d") == "25006: cannot execute LISTEN during recovery", "LISTEN is refused")


def test_session_goes_back_behind_a_setting(primary, connect):
    """Guards: a session that goes back to a position from before a channel was logged has a position from before that, whatever
    it has received since on others."""
    sender, listener = connect(primary), connect(primary)
    listener.execute("LISTEN c")
    anchored(primary, sender)
    before = position(sender)
    notify(sender, "e", "not logged")
    sender.execute("SELECT herald.set_channel('e', true)")
    notify(sender, "c", "x")
    assert hear(listener, 2) == ["since the copy", "x"]
    listener.execute("BEGIN")
    assert resume(listener, "e", before)
    token = position(listener)
    listener.execute("COMMIT")
    assert hear(listener, 1) == ["not logged"]
    primary.restart()
    assert resume(connect(primary), "e", token) is False


def test_commit_of_another_database(stop_points, connect):
    """Guards: a position does not take for received what was sent on a channel before that was logged, whatever another
    database has committed since."""
    for server in started(preload=True, pg_config=stop_points, settings=SETTINGS):
        server.psql(FUNCTIONS + "SELECT herald.set_channel('log_*', logged => true)")
        server.psql("CREATE DATABASE other TEMPLATE postgres")
        watcher, sender, admin, client = (connect(server) for _ in range(4))
        points, there = Points(watcher), connect(server, "other")
        for session in (there, admin):
            notify(session, "log_d", "first")
        looks(server, ANCHOR_LOOKS)
        standing = []
        for session, sql, point in ((there, "NOTIFY log_d", "publish-logged"), (sender, "NOTIFY c, 'not logged'", "publish-committed")):
            points.arm(point, "wait", session.info.backend_pid)
            standing.append(Doing(session, sql))
            points.waiter(point)
        admin.execute("SELECT herald.set_channel('c', true)")
        points.release("publish-logged")
        assert standing[0].end() is None
        token = position(client)
        points.release()
        assert standing[1].end() is None
        assert read(client, "c", token)[0] == ["not logged"]
        server.restart()
        assert outcome(connect(server), "SELECT FROM herald.read('c', %s)", token).startswith("55000")
