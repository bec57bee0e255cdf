"""Why notifications after a position are gone: herald.read() reports the reason; herald.listen() returns false, and says the
same to a client that wants messages of level DEBUG1."""

import psycopg
import pytest

from following import anchored, has_delivered, has_replayed
from harness.standby import Standby
from laggards import KILOBYTES_7, RING_BYTES, SMALLEST
from resume import position, resume, why_not
from servers import SETTINGS, started
from support import hear, notify, one, stopped, until

ROUND = 2 * RING_BYTES // 7000


@pytest.fixture(scope="module")
def tiny():
    """A server with the smallest queue memory."""
    yield from started(preload=True, settings=SETTINGS | SMALLEST | {
        "herald.retain_size": "1MB", "herald.max_queue_size": "4MB"})


def fill(sender: psycopg.Connection, count: int = ROUND) -> None:
    """Sends `count` notifications of 7 kB each."""
    sender.execute("DO $$ BEGIN FOR n IN 1 .. %s LOOP PERFORM pg_notify('c', n || '%s'); COMMIT; END LOOP; END $$"
                   % (count, KILOBYTES_7))


def why(client: psycopg.Connection, token: str) -> tuple[str, str]:
    """The error's detail, and its hint without the usual part."""
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as error:
        client.execute("SELECT * FROM herald.read('c', %s)", (token,))
    diag = error.value.diag
    assert diag.message_primary == "notifications after this position are not kept any more"
    usual = "Take a new position with herald.position(), then read the state that the notifications are about."
    assert diag.message_hint.startswith(usual)
    assert why_not(client, "c", token) == (diag.message_detail, diag.message_hint)
    client.execute("UNLISTEN c")
    return diag.message_detail, diag.message_hint[len(usual):].strip()


def test_no_position(tiny, connect):
    """Guards: without a position herald.listen() returns null, and listens."""
    listener = connect(tiny)
    assert one(listener, "SELECT herald.listen('c')") is None
    assert resume(listener, "d", None) is None
    assert listener.execute("SELECT pg_listening_channels()").fetchall() == [("c",), ("d",)]


def test_by_size(tiny, connect):
    """Guards: the reason, if later notifications have replaced them."""
    client = connect(tiny)
    token = position(client)
    fill(client, 4 * ROUND)
    detail, hint = why(client, token)
    assert detail.startswith("Later ones have taken their place: herald.queue_memory (")
    assert detail.endswith("kB) and herald.retain_size (1024 kB) hold no more.")
    assert hint == "herald.retain_size keeps more."


def test_for_room(tiny, connect):
    """Guards: the reason, if a laggard has kept more than herald.max_queue_size allows."""
    client, laggard = connect(tiny), connect(tiny)
    laggard.execute("LISTEN c")
    laggard.execute("BEGIN; SELECT 1")
    token = position(client)
    fill(client, 5_000_000 // 7000)
    assert why(client, token) == (
        "They were deleted when herald.max_queue_size (4096 kB) was reached or the disk was full.",
        "Free disk space, or increase herald.max_queue_size.")


def test_gone_past_the_queue(tiny, connect):
    """Guards: the reason, if a notification was sent natively."""
    client = connect(tiny)
    token = position(client)
    client.execute("SET herald.enabled = off; NOTIFY c; RESET herald.enabled")
    assert why(client, token) == (
        "Some were sent through the server's own queue, where they cannot be read again.",
        "Look for sessions with herald.enabled off.")


def test_of_elsewhere(tiny, connect):
    """Guards: the reason, if the position is of another database."""
    tiny.psql("CREATE DATABASE there")
    tiny.create_herald("there")
    token = position(connect(tiny, "there"))
    assert why(connect(tiny), token) == (
        "The position belongs to another database or another cluster, or was changed, or the database has been created again since.", "")
    tiny.psql("DROP DATABASE there WITH (FORCE)")


def test_of_an_earlier_run(tiny, connect):
    """Guards: the reason, if the server was restarted."""
    token = position(connect(tiny))
    tiny.restart()
    assert why(connect(tiny), token) == ("The server has been restarted since, or it is another one.", "")


def test_relay_is_late(connect):
    """Guards: the reason on a standby whose relay does not come to what queries see there."""
    for primary in started(preload=True, settings=SETTINGS):
        primary.psql("SELECT herald.set_channel('c', logged => true)")
        with Standby(primary) as standby:
            sender, client = connect(primary), connect(standby)
            anchored(primary, sender)
            until(lambda: has_delivered(standby), "the standby has followed")
            token = position(sender)
            with stopped(one(client, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_herald relay'")):
                notify(sender, "c", "1")
                until(lambda: has_replayed(standby), "the standby has replayed it")
                detail, _ = why_not(client, "c", token)
            assert detail == "The relay of this server has not yet come to the position, or to what queries see here."
            another = connect(standby)
            assert resume(another, "c", token)
            assert hear(another, 1) == ["1"]
