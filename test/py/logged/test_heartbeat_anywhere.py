"""Heartbeats where channels are logged: an idle client's last position is good after a restart, also when the WAL that
there was when it connected has gone; on a primary and on a standby."""

import psycopg
import pytest

from following import has_delivered, has_replayed
from harness.cluster import Cluster
from harness.standby import Standby
from resume import resume
from servers import SETTINGS, started
from support import hear, notify, one, until

POSITION = "herald_position"
SHORT = "-c herald.heartbeat=200"
SEGMENT_BYTES = 16 * 1024 * 1024
WAL_PART = 6  # of a position, in docs/resume.md

pytestmark = pytest.mark.seam


@pytest.fixture
def forgetful():
    """A server with a logged channel, c, that keeps no WAL that it does not need."""
    for server in started(preload=True, settings=SETTINGS | {
            "wal_keep_size": 0, "min_wal_size": "32MB", "max_wal_size": "32MB", "wal_retrieve_retry_interval": "100ms"}):
        server.psql("SELECT herald.set_channel('c', logged => true)")
        server.restart()
        yield server


def listening(connect, server: Cluster) -> tuple[psycopg.Connection, str]:
    """A session with heartbeats that listens to c, and its first position."""
    session = connect(server, options=SHORT)
    with session.transaction():
        session.execute(f"LISTEN {POSITION}")
        session.execute("LISTEN c")
    first, = hear(session, 1)
    return session, first


def first_wal(server: Cluster) -> int:
    """The LSN at which the server's WAL begins."""
    name = server.psql("SELECT min(name) FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{24}$'")
    return (int(name[8:16], 16) << 32) + int(name[16:], 16) * SEGMENT_BYTES


def write_wal(primary: Cluster, *standbys: Cluster) -> None:
    """Writes WAL without a notification, until no server has any that it has now."""
    end = int(primary.psql("SELECT pg_current_wal_insert_lsn() - '0/0'"))
    primary.psql("CREATE TABLE IF NOT EXISTS filled (n int)")

    def is_gone() -> bool:
        primary.psql("INSERT INTO filled VALUES (1); SELECT pg_switch_wal()")
        primary.psql("CHECKPOINT")
        for standby in standbys:
            until(lambda there=standby: has_replayed(there), "it is replayed")
            standby.psql("CHECKPOINT")
        return all(first_wal(server) > end for server in (primary, *standbys))

    until(is_gone, "the WAL is gone", 60)


def moved(session: psycopg.Connection, server: Cluster) -> str:
    """The first position from which a reader begins in WAL that the server still has."""
    def is_there() -> str | None:
        position, = hear(session, 1)
        return position if int(position.split("-")[WAL_PART], 16) > first_wal(server) else None

    return until(is_there, "a position with WAL that is there", 60)


def test_on_a_primary(forgetful, connect):
    """Guards: an idle client's position moves with the WAL: it resumes after a crash, from its last position, though not
    from its first."""
    session, first = listening(connect, forgetful)
    write_wal(forgetful)
    last = moved(session, forgetful)
    notify(connect(forgetful), "c", "since")
    forgetful.crash()
    forgetful.start()
    after = connect(forgetful)
    assert resume(after, "c", first) is False
    after.close()
    after = connect(forgetful)
    assert resume(after, "c", last) is True
    assert hear(after, 1) == ["since"]


def test_on_a_standby(forgetful, connect):
    """Guards: the same on a standby, where the heartbeat runs as well; the position is good there and on the primary."""
    with Standby(forgetful) as standby:
        notify(sender := connect(forgetful), "c", "first")
        until(lambda: has_delivered(standby), "the standby has followed")
        session, first = listening(connect, standby)
        assert one(session, "SELECT pg_is_in_recovery()")
        write_wal(forgetful, standby)
        last = moved(session, standby)
        notify(sender, "c", "since")
        until(lambda: has_delivered(standby), "the standby has followed")
        for server in (standby, forgetful):
            server.restart()
            after = connect(server)
            assert resume(after, "c", first) is False
            after.close()
            after = connect(server)
            assert resume(after, "c", last) is True
            assert hear(after, 1) == ["since"]
            after.close()


def test_through_a_promotion(primary, connect):
    """Guards: a session that stays connected while its standby is promoted is sent heartbeats before, and after it, from which
    a client resumes."""
    with Standby(primary) as standby:
        notify(connect(primary), "c", "first")
        until(lambda: has_delivered(standby), "the standby has followed")
        session, _ = listening(connect, standby)
        assert len(hear(session, 3)) == 3
        primary.stop("immediate")
        standby.psql("SELECT pg_promote()")
        assert len(hear(session, 3)) == 3
        last, = hear(session, 1)
        notify(connect(standby), "c", "promoted")
        after = connect(standby)
        assert resume(after, "c", last) is True
        assert hear(after, 1) == ["promoted"]
