"""Notifications on logged channels that would otherwise go through the server's own queue: they are logged, or fail at
their caller. What a C function sends by itself is not logged."""

import pytest

from c_api import built
from following import anchored, has_delivered
from harness.standby import Standby
from resume import position, resume
from servers import SETTINGS, need_library, started
from settings import put
from support import hear, hear_until, notify, one, outcome, until

pytestmark = pytest.mark.seam

REFUSED = "0A000: cannot call function pg_notify() here in a database with logged channels"
TRIGGER = """
CREATE EXTENSION IF NOT EXISTS tcn;
CREATE TABLE t (id int PRIMARY KEY);
CREATE TRIGGER tcn AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION triggered_change_notification('tcn');
"""


@pytest.fixture
def pair(primary, connect):
    """A session on the primary and one on a standby, which has an anchor and has followed."""
    with Standby(primary) as standby:
        sender, client = connect(primary), connect(standby)
        anchored(primary, sender)
        until(lambda: has_delivered(standby), "the standby has followed")
        yield sender, client
        assert not standby.damage(), standby.damage()


@pytest.mark.parametrize("statements, heard", [
    (["NOTIFY c, 'logged'"], ["logged"]),
    (["NOTIFY u, 'other'", "NOTIFY c, 'logged'"], ["other", "logged"]),
    (["RESET herald.enabled", "NOTIFY u, 'other'", "SET herald.enabled = off", "SELECT pg_notify('c', 'logged')"],
     ["other", "logged"]),
    (["SAVEPOINT s", "NOTIFY u, 'never'", "ROLLBACK TO s", "RESET herald.enabled", "NOTIFY c, 'logged'"], ["logged"]),
], ids=["alone", "beside others", "switched off later", "switched on later"])
def test_switched_off(pair, primary, connect, statements, heard):
    """Guards: with herald.enabled off a transaction that notifies a logged channel goes through pg_herald's queue as a whole:
    it is delivered here and on a standby, in order, and is covered by positions."""
    sender, client = pair
    here, token = connect(primary), position(sender)
    here.execute("LISTEN c; LISTEN u")
    client.execute("LISTEN c; LISTEN herald_reset")
    before = one(sender, "SELECT batches FROM herald.stats")
    sender.execute("SET herald.enabled = off; BEGIN")
    for statement in statements:
        sender.execute(statement)
    sender.execute("COMMIT; SET herald.enabled = off")
    assert one(sender, "SELECT batches FROM herald.stats") == before + 1
    assert hear(here, len(heard)) == heard
    assert hear(client, 1) == ["logged"]
    primary.restart()
    reader = connect(primary)
    assert resume(reader, "c", token)
    assert hear(reader, 1) == ["logged"]


def test_switched_off_and_not_logged(pair):
    """Guards: what is on no logged channel still goes through the server's own queue, and to no standby."""
    sender, client = pair
    client.execute("LISTEN c; LISTEN herald_reset")
    sender.execute("LISTEN u; SET herald.enabled = off")
    before = one(sender, "SELECT batches FROM herald.stats")
    notify(sender, "u", "native")
    assert hear(sender, 1) == ["native"]
    assert one(sender, "SELECT batches FROM herald.stats") == before
    notify(sender, "c", "end")
    assert hear_until(client, "end") == []


@pytest.mark.parametrize("enabled", ["on", "off"])
def test_c_function_beside_others(pair, primary, connect, enabled):
    """Guards: what a C function sends by itself is delivered where the server's own queue is, and not on a standby; it is
    not logged, and makes no gap: listeners on the standby are not disconnected, and positions stay good."""
    need_library("tcn")
    primary.psql(TRIGGER + "SELECT herald.set_channel('tcn', true)")
    sender, client = pair
    anchored(primary, sender)
    here, token = connect(primary), position(sender)
    for session in (here, client):
        until(lambda: outcome(session, "LISTEN tcn") is None, "the setting is there")
        session.execute("LISTEN c; LISTEN herald_reset")
    sender.execute(f"BEGIN; SET LOCAL herald.enabled = {enabled}; INSERT INTO t VALUES (1); NOTIFY c, 'seen'; COMMIT")
    sender.execute("INSERT INTO t VALUES (2)")
    notify(sender, "c", "end")
    assert sorted(hear(here, 4)) == sorted(['"t",I,"id"=\'1\'', '"t",I,"id"=\'2\'', "seen", "end"])
    assert hear(client, 2) == ["seen", "end"]
    primary.restart()
    reader = connect(primary)
    reader.execute("BEGIN")
    assert resume(reader, "tcn", token) and resume(reader, "c", token)
    reader.execute("COMMIT")
    assert hear(reader, 2) == ["seen", "end"]


@pytest.fixture(scope="module")
def long_native():
    """A server whose own queue is long, since a session of another database does not read it."""
    for server in started(preload=True, settings=SETTINGS | {"herald.max_payload": "20kB"}):
        server.psql("CREATE DATABASE busy")
        yield server


@pytest.fixture
def laggard(long_native, connect):
    """Keeps the server's own queue long."""
    laggard, stranger = connect(long_native, "busy"), connect(long_native, "busy")
    laggard.execute("LISTEN c")
    laggard.execute("BEGIN; SELECT 1")
    stranger.execute("SELECT count(pg_notify('c', n || repeat('x', 7000))) FROM generate_series(1, 300) n")
    yield laggard
    laggard.close()
    stranger.close()


@pytest.mark.parametrize("channel, payload", [("c", "x"), ("u", "x" * 9000), ("u", "x")], ids=["logged", "long", "neither"])
def test_first_listen_beside_a_long_queue(long_native, connect, laggard, channel, payload):
    """Guards: a queue of the server's that a stranger has made long makes no notification fail in the transaction of a
    session's first LISTEN; it goes through pg_herald's queue only if it must."""
    sender, admin, listener = connect(long_native), connect(long_native), connect(long_native)
    put(admin, c=True)
    listener.execute(f"LISTEN {channel}")
    before = one(admin, "SELECT batches FROM herald.stats")
    sender.execute("BEGIN; LISTEN d")
    notify(sender, channel, payload)
    sender.execute("COMMIT")
    assert hear(listener, 1) == [payload]
    assert one(admin, "SELECT batches FROM herald.stats") - before == (payload != "x" or channel == "c")
    sender.execute("BEGIN; LISTEN e")
    notify(sender, channel, payload)
    sender.execute("COMMIT")
    assert hear(listener, 1) == [payload]


@pytest.fixture(scope="module")
def module():
    with built("async_caller") as path:
        yield path


def test_caller_beside_logged_channels(primary, connect, module):
    """Guards: a C function's notification of a logged channel arrives, is counted by no position, and holds up nothing: in
    a transaction that has some of both kinds too."""
    listener, sender = connect(primary), connect(primary)
    sender.execute(f"CREATE FUNCTION pg_temp.async_notify(text, text) RETURNS void LANGUAGE C AS '{module}'")
    listener.execute("LISTEN c")
    token = position(sender)
    with sender.transaction():
        notify(sender, "c", "seen")
        sender.execute("SELECT pg_temp.async_notify('c', 'unseen')")
    sender.execute("SELECT pg_temp.async_notify('c', 'alone')")
    notify(sender, "c", "end")
    assert sorted(hear(listener, 4)) == ["alone", "end", "seen", "unseen"]
    reader = connect(primary)
    assert resume(reader, "c", token)
    assert hear(reader, 2) == ["seen", "end"]


def test_strangers_call_harms_none(primary, connect):
    """Guards: a role without privileges makes no gap, disconnects no listener, and makes no position false: neither by a
    call that is refused, nor by the trigger of a C function."""
    need_library("tcn")
    primary.psql("CREATE EXTENSION IF NOT EXISTS tcn; CREATE ROLE stranger LOGIN; CREATE SCHEMA stranger AUTHORIZATION stranger")
    with Standby(primary) as standby:
        sender, listener, stranger = connect(primary), connect(standby), connect(primary)
        anchored(primary, sender)
        until(lambda: has_delivered(standby), "the standby has followed")
        listener.execute("LISTEN c; LISTEN herald_reset")
        token = position(sender)
        stranger.execute("SET SESSION AUTHORIZATION stranger")
        stranger.execute("CREATE TABLE stranger.t (id int PRIMARY KEY); CREATE TRIGGER tcn AFTER INSERT ON stranger.t"
                         " FOR EACH ROW EXECUTE FUNCTION triggered_change_notification('c')")
        stranger.execute("PREPARE x(boolean) AS SELECT 1")
        for number in range(20):
            assert outcome(stranger, "EXECUTE x(pg_notify('nobody', '') IS NULL)") == REFUSED
            stranger.execute(f"INSERT INTO stranger.t VALUES ({number})")
            stranger.execute(f"BEGIN; INSERT INTO stranger.t VALUES (100 + {number}); NOTIFY other; COMMIT")
        notify(sender, "c", "end")
        assert hear(listener, 1) == ["end"]
        primary.restart()
        for server in (primary, standby):
            client = connect(server)
            assert resume(client, "c", token)
            assert hear(client, 1) == ["end"]


def test_strangers_notifications_harm_none(primary, connect):
    """Guards: what a role sends through the server's own queue, on however many channels, makes no position false of a
    channel that is logged; a position from before the channel was logged is false."""
    sender, stranger = connect(primary), connect(primary)
    before = position(sender)
    stranger.execute("SET herald.enabled = off; NOTIFY late, 'native'")
    sender.execute("SELECT herald.set_channel('late', true)")
    notify(sender, "c", "first")
    token = position(sender)
    stranger.execute("DO $$ BEGIN FOR i IN 1..1000 LOOP PERFORM pg_notify('x' || i, ''); END LOOP; END $$")
    notify(sender, "c", "end")
    client = connect(primary)
    assert resume(client, "c", token)
    assert hear(client, 1) == ["end"]
    assert [row[2] for row in client.execute("SELECT * FROM herald.read('c', %s)", (token,))] == ["end"]
    assert resume(connect(primary), "late", before) is False
    assert outcome(connect(primary), "SELECT FROM herald.read('late', %s)", before).startswith("55000")
    sender.execute("SELECT herald.set_channel('late', NULL)")
