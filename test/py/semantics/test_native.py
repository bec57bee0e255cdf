"""What pg_herald does not handle, and servers and databases without it: all works as on a stock server."""

import psycopg
import pytest

from servers import need_library
from support import hear, hear_until, notify, one

pytestmark = pytest.mark.seam


def test_tcn(cluster, connect):
    """Guards: notifications sent by a C function (contrib/tcn) arrive, as do those sent through pg_herald."""
    need_library("tcn")
    listener, sender = connect(cluster), connect(cluster)
    sender.execute("CREATE EXTENSION IF NOT EXISTS tcn")
    sender.execute("DROP TABLE IF EXISTS watched")
    sender.execute("CREATE TABLE watched (id integer PRIMARY KEY)")
    sender.execute("CREATE TRIGGER tcn AFTER INSERT OR DELETE ON watched"
                   " FOR EACH ROW EXECUTE FUNCTION triggered_change_notification('c')")
    listener.execute("LISTEN c")
    for number in range(10):
        with sender.transaction():
            sender.execute("INSERT INTO watched VALUES (%s)", (number,))
            notify(sender, "c", f"ours {number}")
    sender.execute("DELETE FROM watched WHERE id = 1")
    heard = hear(listener, 21)
    assert [word for word in heard if word.startswith("ours")] == [f"ours {number}" for number in range(10)]
    assert [word for word in heard if not word.startswith("ours")] == \
        [f'"watched",I,"id"=\'{number}\'' for number in range(10)] + ['"watched",D,"id"=\'1\'']
    sender.execute("LISTEN c")
    sender.execute("INSERT INTO watched VALUES (100)")
    assert hear(sender, 1) == ['"watched",I,"id"=\'100\'']


@pytest.mark.parametrize("sender_on", [True, False], ids=["sender on", "sender off"])
@pytest.mark.parametrize("listener_on", [True, False], ids=["listener on", "listener off"])
def test_session_switched_off(cluster, connect, sender_on, listener_on):
    """Guards: with herald.enabled off on either side, or changed while listening, everything arrives once."""
    listener, sender = connect(cluster), connect(cluster)
    listener.execute(f"SET herald.enabled = {listener_on}")
    sender.execute(f"SET herald.enabled = {sender_on}")
    listener.execute("LISTEN c")
    before = one(sender, "SELECT notifications FROM herald.stats")
    notify(sender, "c", "1")
    sender.execute("NOTIFY c, '2'")
    assert hear(listener, 2) == ["1", "2"]
    assert one(sender, "SELECT notifications FROM herald.stats") - before == (2 if sender_on else 0)
    sender.execute(f"SET herald.enabled = {not sender_on}")
    notify(sender, "c", "3")
    assert hear(listener, 1) == ["3"]
    listener.execute(f"SET herald.enabled = {not listener_on}")
    listener.execute("UNLISTEN c")
    listener.execute("LISTEN d")
    notify(sender, "c", "not heard")
    notify(sender, "d", "heard")
    assert hear(listener, 1) == ["heard"]


def test_database_without_the_extension(cluster, connect, database):
    """Guards: a database without the extension works natively, and receives nothing from another database."""
    listener, sender = connect(cluster, database), connect(cluster, database)
    other_listener, other_sender = connect(cluster), connect(cluster)
    listener.execute("LISTEN c")
    other_listener.execute("LISTEN c")
    before = one(other_sender, "SELECT notifications FROM herald.stats")
    sender.execute("NOTIFY c, 'native'")
    notify(sender, "c", "native, by the function")
    assert one(other_sender, "SELECT notifications FROM herald.stats") == before
    notify(other_sender, "c", "of postgres")
    assert hear(listener, 2) == ["native", "native, by the function"]
    assert hear(other_listener, 1) == ["of postgres"]
    notify(sender, "c", "end")
    notify(other_sender, "c", "end")
    assert hear_until(listener, "end") == hear_until(other_listener, "end") == []


def test_two_databases(cluster, connect, database):
    """Guards: with the extension in both, channels of the same name are separate."""
    here, there = connect(cluster), connect(cluster, database)
    there.execute("CREATE EXTENSION pg_herald")
    here.execute("LISTEN c")
    there.execute("LISTEN c")
    for number in range(10):
        notify(here, "c", f"here {number}")
        notify(there, "c", f"there {number}")
    assert hear(here, 10) == [f"here {number}" for number in range(10)]
    assert hear(there, 10) == [f"there {number}" for number in range(10)]
    assert here.execute("SELECT channel, listeners FROM herald.channels").fetchall() == [("c", 1)]
    assert here.execute("SELECT datname FROM herald.listeners ORDER BY 1").fetchall() == \
        [("of_a_test",), ("postgres",)]


def test_create_and_drop_extension_under_listeners(cluster, connect, database):
    """Guards: the extension can be created and dropped while sessions listen and statements are prepared."""
    listener, old_sender, other = (connect(cluster, database) for _ in range(3))
    listener.execute("LISTEN c")
    old_sender.execute("SET plan_cache_mode = force_generic_plan")
    old_sender.execute("PREPARE send(text) AS SELECT pg_notify('c', $1)")
    expected = []

    def send(word: str) -> None:
        expected.extend([f"prepared {word}", f"function {word}", f"statement {word}"])
        old_sender.execute(f"EXECUTE send('prepared {word}')")
        notify(other, "c", f"function {word}")
        assert hear(listener, 2) == expected[-3:-1]
        other.execute(f"NOTIFY c, 'statement {word}'")
        assert hear(listener, 1) == expected[-1:]

    send("before it")
    for number in range(3):
        other.execute("CREATE EXTENSION pg_herald")
        before = one(other, "SELECT notifications FROM herald.stats")
        send(f"with it {number}")
        assert one(other, "SELECT notifications FROM herald.stats") - before == 3
        assert other.execute("SELECT channel, listeners FROM herald.channels").fetchall() == [("c", 1)]
        other.execute("DROP EXTENSION pg_herald")
        send(f"without it {number}")


def test_drop_extension_with_notifications_pending(cluster, connect, database):
    """Guards: notifications sent before DROP EXTENSION arrive, even at a listener that is busy meanwhile."""
    listener, sender = connect(cluster, database), connect(cluster, database)
    sender.execute("CREATE EXTENSION pg_herald")
    listener.execute("LISTEN c")
    listener.execute("BEGIN")
    listener.execute("SELECT 1")
    notify(sender, "c", "before")
    with sender.transaction():
        notify(sender, "c", "in the same transaction")
        sender.execute("DROP EXTENSION pg_herald")
    notify(sender, "c", "after")
    listener.execute("COMMIT")
    assert sorted(hear(listener, 3)) == ["after", "before", "in the same transaction"]


def test_not_preloaded(stock, connect):
    """Guards: without shared_preload_libraries CREATE EXTENSION reports that, and LISTEN and NOTIFY work."""
    connection = connect(stock)
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as caught:
        connection.execute("CREATE EXTENSION pg_herald")
    assert caught.value.diag.message_primary == "pg_herald must be loaded via shared_preload_libraries"
    assert "shared_preload_libraries" in caught.value.diag.message_hint
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        connection.execute("LOAD 'pg_herald'")
    connection.execute("LISTEN c")
    connection.execute("NOTIFY c, 'works'")
    assert hear(connection, 1) == ["works"]


def test_server_queue_usage(cluster, connect):
    """Guards: pg_notification_queue_usage() includes the server's own queue."""
    laggard, sender = connect(cluster), connect(cluster)
    laggard.execute("LISTEN c")
    laggard.execute("BEGIN")
    laggard.execute("SELECT 1")
    sender.execute("SET herald.enabled = off")
    sender.execute("SELECT pg_notify('c', n || repeat('x', 7900)) FROM generate_series(1, 500) n")
    assert 0 < one(sender, "SELECT pg_notification_queue_usage()") < 0.01
    laggard.execute("COMMIT")
    assert len(hear(laggard, 500)) == 500


BY_CALL = "CALL ordered(pg_notify('c', '2')::text)"
BY_EXECUTE = "EXECUTE ordered(pg_notify('c', '2')::text)"
BY_CHECK = "INSERT INTO ordered VALUES (2)"


@pytest.mark.parametrize("statements, expected", [
    (["NOTIFY c, '1'", BY_CALL, "NOTIFY c, '3'"], "123"),
    (["NOTIFY c, '1'", BY_EXECUTE, "NOTIFY c, '3'"], "123"),
    (["NOTIFY c, '1'", BY_CHECK, "NOTIFY c, '3'"], "123"),
    (["NOTIFY c, '1'", BY_CALL, "NOTIFY c, '1'", "NOTIFY c, '2'", "NOTIFY c, '3'"], "123"),
    (["NOTIFY c, '1'", "SAVEPOINT s", BY_CALL, "NOTIFY c, '3'", "RELEASE s", "NOTIFY c, '4'"], "1234"),
    (["NOTIFY c, '1'", "SAVEPOINT s", BY_CALL, "ROLLBACK TO s", "NOTIFY c, '3'"], "13"),
    (["NOTIFY c, '1'", "SAVEPOINT s", BY_CALL, "ROLLBACK TO s"], "1"),
    (["NOTIFY c, '1'", "SAVEPOINT s", "NOTIFY c, '4'", "SAVEPOINT t", BY_CALL, "RELEASE t", "ROLLBACK TO s", BY_CHECK,
      "NOTIFY c, '3'"], "123"),
    (["SAVEPOINT s", "NOTIFY c, '1'", "SAVEPOINT t", BY_CALL, "ROLLBACK TO t", "RELEASE s", "NOTIFY c, '3'"], "13"),
], ids=str)
def test_order(server, connect, statements, expected):
    """Guards: the notifications of one transaction arrive in order, through whichever queue each is sent; those of
    subtransactions that are rolled back do not arrive."""
    listener, sender = connect(server), connect(server)
    sender.execute("CREATE OR REPLACE PROCEDURE ordered(x text) LANGUAGE plpgsql AS 'BEGIN END'")
    sender.execute("DROP TABLE IF EXISTS ordered")
    sender.execute("CREATE TABLE ordered (number integer CHECK (pg_notify('c', number::text) IS NOT NULL))")
    sender.execute("PREPARE ordered(text) AS SELECT $1")
    listener.execute("LISTEN c")
    for statement in ("BEGIN", *statements, "COMMIT"):
        sender.execute(statement)
    notify(sender, "c", "last")
    assert "".join(hear_until(listener, "last")) == expected


def test_order_around_a_setting(cluster, connect):
    """Guards: the same, if herald.enabled changes within the transaction."""
    listener, sender = connect(cluster), connect(cluster)
    listener.execute("LISTEN c")
    with sender.transaction():
        for number, setting in enumerate(["on", "off", "on", "off"]):
            sender.execute(f"SET LOCAL herald.enabled = {setting}")
            notify(sender, "c", str(number))
    assert hear(listener, 4) == ["0", "1", "2", "3"]
