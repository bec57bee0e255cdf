"""herald.read() names the same transaction and role for a notification on each server, and after a restart: what the WAL
says is what the queue said."""

import pytest
from psycopg import Connection

from following import anchored, has_delivered
from harness.standby import Standby
from resume import position
from servers import need_library
from support import notify, one, outcome, until

pytestmark = pytest.mark.seam

PARTS = 2_500_000  # bytes of payload: a message of several parts, and a large transaction


def senders(connection: Connection, after: str) -> list[tuple]:
    """Payload, transaction and role of what was sent on c after the position."""
    return connection.execute("SELECT payload, xid::text::bigint, sender FROM herald.read('c', %s, 100000)",
                              (after,)).fetchall()


def sent(sender: Connection) -> list[tuple]:
    """Sends transactions of several kinds, of which one role is dropped then; payloads and roles that herald.read() must
    return."""
    sender.execute("CREATE ROLE writer; CREATE ROLE leaver; CREATE TABLE t (n int)")
    many = [f"{number:07000}" for number in range(1, PARTS // 7000 + 1)]
    expected = []
    for role, statements, payloads in (
            ("writer", "NOTIFY c, 'logged only'", ["logged only"]),
            ("leaver", "NOTIFY c, '1'; INSERT INTO t VALUES (1); SAVEPOINT a; NOTIFY c, '2'; INSERT INTO t VALUES (2);"
                       "RELEASE a; SAVEPOINT b; NOTIFY c, 'x'; ROLLBACK TO b; NOTIFY unlogged", ["1", "2"]),
            ("writer", f"SELECT count(pg_notify('c', lpad(n::text, 7000, '0'))) FROM generate_series(1, {len(many)}) n", many),
            ("postgres", "NOTIFY c, 'last'", ["last"])):
        sender.execute(f"BEGIN; {statements}; SET LOCAL ROLE {role}; COMMIT")
        expected += [(payload, None if role == "leaver" else role) for payload in payloads]
    sender.execute("DROP ROLE leaver")
    return expected


def test_same_everywhere(primary, connect):
    """Guards: what a standby's queue says, what the WAL says there and on the primary after restarts, and what the primary's
    queue said, is one: of subtransactions, of a message in several parts, of a role that was dropped."""
    sender = connect(primary)
    with Standby(primary) as standby:
        anchored(primary, sender)
        until(lambda: has_delivered(standby), "the standby has followed")
        first, there = position(sender), position(connect(standby))
        expected = sent(sender)
        found = senders(sender, first)
        assert [(payload, role) for payload, _, role in found] == expected
        assert all(xid is not None for _, xid, _ in found) and len({xid for _, xid, _ in found}) == 4
        assert one(sender, "SELECT xmin::text::bigint FROM t WHERE n = 1") == found[1][1] == found[2][1]
        until(lambda: has_delivered(standby), "the standby has followed")
        for token in (first, there):
            assert senders(connect(standby), token) == found
        standby.restart()
        for server in (standby, primary):
            for token in (first, there):
                assert senders(connect(server), token) == found, server
        primary.stop("immediate")
        primary.start()
        for token in (first, there):
            assert senders(connect(primary), token) == found


def test_id_with_its_epoch(primary, connect):
    """Guards: the WAL has the id with the epoch in which it was assigned."""
    primary.stop()
    primary.run_as_server_user("pg_resetwal", "-e", "3", "-D", str(primary.data))
    primary.start()
    sender = connect(primary)
    token = position(sender)
    sender.execute("BEGIN; NOTIFY c, 'x'")
    xid = int(one(sender, "SELECT pg_current_xact_id()::text"))
    sender.execute("COMMIT")
    assert xid >> 32 == 3
    primary.stop("immediate")
    primary.start()
    assert senders(connect(primary), token) == [("x", xid, "postgres")]


def test_what_consumers_outside_see(primary, connect):
    """Guards: the message in the WAL has both, as documented."""
    need_library("test_decoding")
    primary.stop()
    primary.settings["wal_level"] = "logical"
    primary.start()
    sender = connect(primary)
    sender.execute("SELECT pg_create_logical_replication_slot('s', 'test_decoding')")
    sender.execute("BEGIN; NOTIFY c, 'x'")
    xid = int(one(sender, "SELECT pg_current_xact_id()::text"))
    sender.execute("COMMIT")
    role = one(sender, "SELECT 'postgres'::regrole::oid")
    changes = str(sender.execute("SELECT data FROM pg_logical_slot_get_changes('s', NULL, NULL)").fetchall())
    assert f'"xid":"{xid:016x}","role":{role},"notifications":[' in changes
    notify(sender, "c", "y")
    assert outcome(sender, "SELECT pg_drop_replication_slot('s')") == [("",)]
