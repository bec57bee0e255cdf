"""Notifications on logged channels, where others of their database go through the server's own queue."""

import pytest

from following import anchored, has_delivered
from harness.standby import Standby
from resume import position, resume
from servers import need_library
from support import hear, notify, outcome, until

pytestmark = pytest.mark.seam

REFUSED = "0A000: cannot call function pg_notify() here in a database with logged channels"
def test_switched_off(primary, connect):
    """Guards: with herald.enabled off, a notification on a logged channel arrives on a standby, and is kept."""
    with Standby(primary) as standby:
        sender, listener = connect(primary), connect(standby)
        anchored(primary, sender)
        until(lambda: has_delivered(standby), "the standby has followed")
        listener.execute("LISTEN c; LISTEN herald_reset")
        token = position(sender)
        sender.execute("SET herald.enabled = off")
        notify(sender, "c", "off")
        assert hear(listener, 1) == ["off"]
        primary.restart()
        client = connect(primary)
        assert resume(client, "c", token)
        assert hear(client, 1) == ["off"]


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
