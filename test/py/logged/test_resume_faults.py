"""Positions beside a commit that stands still, and positions of a history in which users have written the WAL."""

import json
import struct

import psycopg
import pytest

from faults import FUNCTIONS, Doing, Points
from following import ANCHOR_LOOKS, looks
from harness.cluster import Cluster
from harness.standby import Standby
from resume import position, read, resume
from servers import SETTINGS, started
from support import notify, one, outcome, until

pytestmark = pytest.mark.seam

LOGGED = "SELECT herald.set_channel('log_*', logged => true)"
PAGE_BYTES, SEGMENT_BYTES = 8192, 16 << 20
PAGE_HEAD_BYTES, SEGMENT_HEAD_BYTES = 24, 40
RECORD_HEAD_BYTES = 24
MESSAGE_HEAD_BYTES = RECORD_HEAD_BYTES + 5 + 24 + 2  # of a message in one long block of data, with a prefix of one character
TRANSACTION, COMMIT_WITH_INFO, HAS_SUBTRANSACTIONS, LOGICAL_MESSAGE = 1, 0x80, 2, 21
ORIGIN_OF_ITS_OWN = b"\xfd\xff\xff"


def test_commit_that_stands_still(stop_points, connect):
    """Guards: a position does not take for received what was sent on a channel before that was logged, by a commit that is
    not settled yet."""
    for server in started(preload=True, pg_config=stop_points, settings=SETTINGS):
        server.psql(FUNCTIONS + LOGGED)
        watcher, sender, other, client = (connect(server) for _ in range(4))
        points = Points(watcher)
        notify(other, "log_d", "first")
        looks(server, ANCHOR_LOOKS)
        points.arm("publish-committed", "wait", sender.info.backend_pid)
        doing = Doing(sender, "NOTIFY c, 'not logged'")
        points.waiter("publish-committed")
        other.execute("SET lock_timeout = '1s'")
        other.execute("SELECT herald.set_channel('c', true)")
        notify(other, "log_d", "second")
        token = position(client)
        points.release()
        assert doing.end() is None
        assert read(client, "c", token)[0] == ["not logged"]
        server.restart()
        assert outcome(connect(server), "SELECT FROM herald.read('c', %s)", token).startswith("55000")


# ---- a record made by a user ----

def crc_32c(data: bytes, crc: int = 0xFFFFFFFF) -> int:
    """The checksum of the WAL, before its last inversion."""
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


def record(resource_manager: int, info: int, data: bytes, at: int) -> bytes:
    """A record with a valid checksum, up to where the next one may begin."""
    head = struct.pack("<IIQBBH", RECORD_HEAD_BYTES + len(data), 700, at - 64, info, resource_manager, 0)
    made = head + struct.pack("<I", crc_32c(head, crc_32c(data)) ^ 0xFFFFFFFF) + data
    return made + bytes(-len(made) % 8)


def made_up(database: int, at: int) -> bytes:
    """A notification of pg_herald's, and its commit, which has more subtransactions than memory has."""
    text = json.dumps({"version": 1, "kind": "notifications", "run": "0123456789abcdef", "place": f"{1:016x}", "part": 1,
                       "first": f"{0:016x}", "xid": f"{700:016x}", "role": 10,
                       "notifications": [{"channel": "log_d", "payload": "made up"}], "last": True},
                      separators=(",", ":")).encode()
    message = struct.pack("<IBxxxQQ", database, 1, 10, len(text)) + b"pg_herald\0" + text
    message = ORIGIN_OF_ITS_OWN + b"\xfe" + struct.pack("<I", len(message)) + message
    commit = struct.pack("<QIi", 0, HAS_SUBTRANSACTIONS, 0x7FFFFFF0) + bytes(8)
    records = record(LOGICAL_MESSAGE, 0, message, at)
    return records + record(TRANSACTION, COMMIT_WITH_INFO, bytes((0xFF, len(commit))) + commit, at + len(records))


def lsn(session: psycopg.Connection) -> int:
    """The end of the WAL."""
    return int(one(session, "SELECT pg_current_wal_insert_lsn() - '0/0'"))


def anchor_after(server: Cluster, begin: int) -> int:
    """Where the next anchor is in the server's WAL."""
    shown = server.run_as_server_user("pg_waldump", "--rmgr=LogicalMessage", f"--path={server.data}/pg_wal",
                                      f"--start={begin >> 32:X}/{begin & 0xFFFFFFFF:X}").stderr
    for line in shown.splitlines():
        if "non-transactional" in line and 'prefix "pg_herald"' in line:
            high, low = line.split("lsn: ")[1].split(",")[0].split("/")
            return int(high, 16) << 32 | int(low, 16)
    raise AssertionError("there is no anchor")


def write_at(session: psycopg.Connection, place: int, record: bytes) -> None:
    """A message whose content is so long that these bytes of it come to that place in the WAL."""
    content, at, skip = bytearray(), lsn(session), MESSAGE_HEAD_BYTES
    while at < place + len(record):
        if at % PAGE_BYTES == 0:
            at += PAGE_HEAD_BYTES if at % SEGMENT_BYTES else SEGMENT_HEAD_BYTES
        if skip:
            skip -= 1
        else:
            content.append(record[at - place] if at >= place else ord("y"))
        at += 1
    session.execute("SELECT pg_logical_emit_message(false, 'x', %s::bytea)", (bytes(content),))


def test_records_of_a_user(connect):
    """Guards: where another server has an anchor, this one may have bytes of a user that look like records: they are not
    read as such."""
    for former in started(preload=True, settings=SETTINGS | {"wal_keep_size": "512MB"}):
        former.psql("CREATE ROLE someone;" + LOGGED)
        with Standby(former) as standby:
            notify(connect(former), "log_d", "first")
            assert one(connect(standby), "SELECT pg_promote()")
            sender, user = connect(former), connect(standby)
            user.execute("SET ROLE someone")
            while lsn(sender) < lsn(user) + (2 << 20):
                sender.execute("SELECT pg_logical_emit_message(false, 'x', repeat('y', 1000000))")
            begin = lsn(sender)
            sender.execute("SELECT pg_switch_wal()")
            notify(sender, "log_d", "second")
            looks(former, ANCHOR_LOOKS)
            notify(sender, "log_d", "witness")
            token = position(sender)
            place = anchor_after(former, begin)
            while (room := place - lsn(user)) > 100_000:
                user.execute("SELECT pg_logical_emit_message(false, 'x', repeat('y', %s))", (min(room - 50_000, 1_000_000),))
            records = made_up(one(user, "SELECT oid::int FROM pg_database WHERE datname = 'postgres'"), place)
            write_at(user, place, records)
            until(lambda: lsn(user) > lsn(sender) or user.execute(
                "SELECT pg_logical_emit_message(false, 'x', repeat('y', 100000))") is None, "it has as much WAL")
            assert resume(user, "log_d", token) is False
            file = standby.data / f"pg_wal/00000002{place >> 32:08X}{(place & 0xFFFFFFFF) // SEGMENT_BYTES:08X}"
            assert file.read_bytes()[place % SEGMENT_BYTES:].startswith(records)
            assert not standby.damage(), standby.damage()
