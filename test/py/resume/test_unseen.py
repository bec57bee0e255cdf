"""Notifications that bypass pg_herald's queue invalidate positions, for all channels if the hooks do not see which; what
a C function sends by itself is covered by no position."""

import pytest

from c_api import built
from resume import apart, position, resume
from support import hear_until, one, outcome

pytestmark = pytest.mark.seam

# The first transaction of the procedure prepares the CHECK of the domain; the last one executes it again.
BY_DOMAIN = """
    CREATE TYPE pg_temp.message AS (channel text, payload text);
    CREATE DOMAIN pg_temp.sending AS pg_temp.message CHECK (pg_notify((VALUE).channel, (VALUE).payload) IS NOT NULL);
    CREATE PROCEDURE pg_temp.past(channel text) LANGUAGE plpgsql AS $$
    DECLARE
        sending pg_temp.sending := (channel, 'first');
    BEGIN
        sending.payload := 'second';
        COMMIT;
        INSERT INTO tokens VALUES (herald.position());
        COMMIT;
        sending.payload := 'past';
        COMMIT;
    END
    $$"""

BESIDE = {
    "C": [],
    "C, beside LISTEN": ["LISTEN other"],
    "C, beside what is rolled back": ["SAVEPOINT s", "SET LOCAL herald.enabled = off", "NOTIFY c", "ROLLBACK TO s"],
}


@pytest.fixture(scope="module")
def module():
    with built("async_caller") as path:
        yield path


@pytest.fixture
def send_unseen(connect, cluster, module):
    """send_unseen(way, channel) sends a notification past all hooks; returns a position from just before."""
    def send(way: str, channel: str) -> str:
        sender = connect(cluster)
        if way in BESIDE:
            sender.execute(f"CREATE FUNCTION pg_temp.async_notify(text, text) RETURNS void LANGUAGE C AS '{module}'")
            token = position(sender)
            sender.execute("BEGIN")
            for statement in BESIDE[way]:
                sender.execute(statement)
            sender.execute("SELECT pg_temp.async_notify(%s, 'past')", (channel,))
            sender.execute("COMMIT")
            return token
        sender.execute("CREATE TEMP TABLE tokens (token text)")
        sender.execute(BY_DOMAIN)
        sender.execute("CALL pg_temp.past(%s)", (channel,))
        return one(sender, "SELECT token FROM tokens")

    return send


@pytest.mark.parametrize("way", [*BESIDE, "domain"])
def test_unseen(cluster, connect, send_unseen, way):
    """Guards: a notification that no hook sees arrives, and positions before it are answered with false; those of a C
    function, which pg_herald does not know of, are not."""
    listener, other = connect(cluster), connect(cluster)
    listener.execute("LISTEN c")
    token = send_unseen(way, "c")
    assert hear_until(listener, "past") == (["first", "second"] if way == "domain" else [])
    if way in BESIDE:
        assert resume(other, "c", token) is True
        return
    assert resume(other, "c", token) is False
    assert outcome(other, "SELECT * FROM herald.read('c', %s)", token).startswith("55000: ")
    assert resume(other, "c", position(other)) is True


def test_before_the_first_position(cluster, connect, database):
    """Guards: a position taken in a transaction does not cover a bypassing notification that the session has not
    received, though it is the first position of its database."""
    listener, sender = connect(cluster, database), connect(cluster, database)
    sender.execute("CREATE EXTENSION pg_herald")
    listener.execute("LISTEN c")
    listener.execute("BEGIN; SELECT")
    sender.execute("SET herald.enabled = off; NOTIFY c, 'past'")
    token = position(listener)
    assert resume(connect(cluster, database), "c", token) is False


def test_channels_from_different_positions(cluster, connect):
    """Guards: if channels are resumed from different positions, a bypass on one of them, before its own position,
    does not invalidate the older position of the other."""
    sender = connect(cluster)
    b = apart(sender, ["a"], "b")
    older = position(sender)
    sender.execute(f"SET herald.enabled = off; NOTIFY {b}, 'past'; RESET herald.enabled")
    newer = position(sender)
    for _ in range(2):
        client = connect(cluster)
        client.execute("BEGIN")
        assert one(client, "SELECT herald.listen('a', %s)", older) is True
        assert one(client, "SELECT herald.listen(%s, %s)", b, newer) is True
        client.execute("COMMIT")
        sender.execute("NOTIFY a, 'heard'")
        assert hear_until(client, "heard") == []
