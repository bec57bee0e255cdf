"""herald.read() returns the transaction and the role that sent a notification, wherever the notification has been kept."""

import pytest
from psycopg import Connection

from laggards import SMALLEST, send_large
from resume import position
from servers import SETTINGS, started
from support import notify, one, outcome, until

EPOCH = 5
SUPERUSER = "postgres"


@pytest.fixture(scope="module")
def tiny():
    """A server with the smallest queue memory, which retains some files."""
    yield from started(preload=True, settings=SETTINGS | SMALLEST | {"herald.retain_size": "64MB"})


@pytest.fixture
def roles(cluster, connect):
    """Two roles, which the superuser can become."""
    admin = connect(cluster)
    admin.execute("CREATE ROLE alice; CREATE ROLE bob")
    yield "alice", "bob"
    admin.execute("DROP ROLE IF EXISTS alice; DROP ROLE IF EXISTS bob; DROP ROLE IF EXISTS carol")


def senders(reader: Connection, after: str, channel: str = "c") -> list[tuple]:
    """Payload, transaction and role of what was sent after the position."""
    return reader.execute("SELECT payload, xid::text::bigint, sender FROM herald.read(%s, %s, 100000)",
                          (channel, after)).fetchall()


def test_nothing_but_notifications(cluster, connect):
    """Guards: a transaction that has only notified has no id, and so the row has none; a row with a position alone has no
    sender either."""
    sender, reader = connect(cluster), connect(cluster)
    first = position(reader)
    assert reader.execute("SELECT xid, sender FROM herald.read('c', %s)", (first,)).fetchall() == [(None, None)]
    sender.execute("BEGIN; NOTIFY c, '1'")
    assert one(sender, "SELECT pg_current_xact_id_if_assigned()") is None
    sender.execute("COMMIT")
    assert senders(reader, first) == [("1", None, SUPERUSER)]


def test_transaction(cluster, connect):
    """Guards: the id is that of the transaction, before or after it notifies, and of subtransactions as well."""
    sender, reader = connect(cluster), connect(cluster)
    first, ids = position(reader), []
    for statements in (("NOTIFY c, '0'", "SELECT pg_current_xact_id()"),
                       ("SELECT pg_current_xact_id()", "NOTIFY c, '1'"),
                       ("SAVEPOINT a", "CREATE TABLE t (n int)", "NOTIFY c, '2'", "RELEASE a"),
                       ("SAVEPOINT a", "CREATE TABLE u (n int)", "NOTIFY c, 'x'", "ROLLBACK TO a", "NOTIFY c, '3'")):
        sender.execute("BEGIN")
        for statement in statements:
            sender.execute(statement)
        ids.append(int(one(sender, "SELECT coalesce(pg_current_xact_id_if_assigned()::text, '0')")))
        sender.execute("COMMIT")
    sender.execute("DROP TABLE t")
    assert len(set(ids)) == 4 and 0 not in ids
    assert senders(reader, first) == [(str(number), xid, SUPERUSER) for number, xid in enumerate(ids)]
    waited = reader.execute("SELECT xid, sender FROM herald.read('{d,c}'::text[], %s, wait => '1s')", (first,)).fetchall()
    assert waited == [(str(xid), SUPERUSER) for xid in ids]


def test_id_that_comes_late(cluster, connect):
    """Guards: the id is also there if a deferred trigger assigns it in the commit."""
    sender, reader = connect(cluster), connect(cluster)
    sender.execute("CREATE TABLE late (n int); CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS"
                   " 'BEGIN PERFORM pg_current_xact_id(); RETURN NULL; END'; CREATE CONSTRAINT TRIGGER late"
                   " AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late()")
    first = position(reader)
    sender.execute("BEGIN; NOTIFY c, 'x'; INSERT INTO late VALUES (1)")
    xid = int(one(sender, "SELECT pg_current_xact_id()::text"))
    sender.execute("COMMIT")
    assert senders(reader, first) == [("x", xid, SUPERUSER)]
    sender.execute("DROP TABLE late; DROP FUNCTION late()")


def test_visible(cluster, connect):
    """Guards: a reader can tell which notifications are of transactions that its snapshot shows."""
    sender, reader = connect(cluster), connect(cluster)
    sender.execute("CREATE TABLE orders (id int)")
    first = position(reader)
    sender.execute("BEGIN; INSERT INTO orders VALUES (1); NOTIFY c, '1'; COMMIT")
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM orders")
    sender.execute("BEGIN; INSERT INTO orders VALUES (2); NOTIFY c, '2'; COMMIT")
    sender.execute("NOTIFY c, 'of no row'")
    rows = reader.execute("SELECT payload, pg_visible_in_snapshot(xid, pg_current_snapshot()),"
                          " EXISTS (SELECT FROM orders WHERE id::text = payload) FROM herald.read('c', %s)", (first,))
    assert rows.fetchall() == [("1", True, True), ("2", False, False), ("of no row", None, False)]
    reader.execute("ROLLBACK")
    sender.execute("DROP TABLE orders")


def test_role(cluster, connect, roles):
    """Guards: the role is the current user at the commit, for all notifications of the transaction; what a function does with
    its owner's rights counts for its caller."""
    sender, reader = connect(cluster), connect(cluster)
    sender.execute("CREATE FUNCTION notifies() RETURNS void LANGUAGE sql SECURITY DEFINER AS"
                   " $$ SELECT pg_notify('c', 'by a function') $$; ALTER FUNCTION notifies() OWNER TO alice")
    first = position(reader)
    for statements in ("NOTIFY c, '1'", "SET ROLE alice; NOTIFY c, '2'", "NOTIFY c, '3'; SET ROLE bob; NOTIFY c, '4'",
                       "SELECT notifies()", "SET LOCAL ROLE alice; NOTIFY c, '5'", "NOTIFY c, '6'; RESET ROLE",
                       "SET SESSION AUTHORIZATION bob; NOTIFY c, '7'"):
        sender.execute(f"BEGIN; {statements}; COMMIT")
    sender.execute("RESET SESSION AUTHORIZATION; DROP FUNCTION notifies()")
    assert [(payload, role) for payload, _, role in senders(reader, first)] == [
        ("1", SUPERUSER), ("2", "alice"), ("3", "bob"), ("4", "bob"), ("by a function", "bob"), ("5", "alice"),
        ("6", SUPERUSER), ("7", "bob")]


def test_role_that_has_changed(cluster, connect, roles):
    """Guards: the name is the present one; of a role that was dropped there is none."""
    sender, reader, admin = connect(cluster), connect(cluster), connect(cluster)
    first = position(reader)
    for role in roles * 2:
        sender.execute(f"BEGIN; SET LOCAL ROLE {role}; NOTIFY c; COMMIT")
    assert [role for _, _, role in senders(reader, first)] == ["alice", "bob"] * 2
    admin.execute("ALTER ROLE alice RENAME TO carol")
    assert [role for _, _, role in senders(reader, first)] == ["carol", "bob"] * 2
    admin.execute("DROP ROLE bob")
    assert [role for _, _, role in senders(reader, first)] == ["carol", None] * 2


def test_large_and_spilled(tiny, connect):
    """Guards: all rows of a transaction whose notifications are in a file, and of those that have left the memory, have
    their sender."""
    sender, reader = connect(tiny), connect(tiny)
    sender.execute("CREATE ROLE writer")
    first, expected = position(reader), []
    for size in (100, 400_000, 100, 400_000):
        sender.execute("BEGIN; SET LOCAL ROLE writer")
        xid = int(one(sender, "SELECT pg_current_xact_id()::text"))
        expected += [(payload, xid, "writer") for payload in send_large(sender, max(size, 7000))]
        sender.execute("COMMIT")
        for number in range(100):  # more than a ring
            notify(sender, "c", f"{number} {'x' * 7000}")
            expected.append((f"{number} {'x' * 7000}", None, SUPERUSER))
    assert until(lambda: one(sender, "SELECT spilled FROM herald.queue") > 0, "some is in files")
    assert senders(reader, first) == expected
    sender.execute("DROP ROLE writer")


def test_epoch(connect):
    """Guards: the id has the epoch, so that it goes on when the ids of 32 bits begin again."""
    for server in started(preload=True, settings=SETTINGS):
        server.stop()
        server.run_as_server_user("pg_resetwal", "-e", str(EPOCH), "-D", str(server.data))
        server.start()
        sender, reader = connect(server), connect(server)
        first = position(reader)
        sender.execute("BEGIN; NOTIFY c, 'x'")
        xid = int(one(sender, "SELECT pg_current_xact_id()::text"))
        sender.execute("COMMIT")
        assert xid >> 32 == EPOCH
        assert senders(reader, first) == [("x", xid, SUPERUSER)]


def test_bytes(cluster, connect):
    """Guards: what the columns need: a transaction with one small notification takes 64 bytes of the queue, 8 of them for
    its id and its role together."""
    sender = connect(cluster)
    before = one(sender, "SELECT head FROM herald.queue")
    notify(sender, "c", *"123")
    after = one(sender, "SELECT head FROM herald.queue")
    assert after - before == 3 * 64


def test_prepared(cluster, connect):
    """Guards: a transaction that has notified cannot be prepared, so each row is of the session that committed it."""
    sender = connect(cluster)
    sender.execute("BEGIN; NOTIFY c")
    assert outcome(sender, "PREPARE TRANSACTION 'x'") == (
        "0A000: cannot PREPARE a transaction that has executed LISTEN, UNLISTEN, or NOTIFY")
