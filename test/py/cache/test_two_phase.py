"""Session caches and two-phase commit: the changes of a prepared transaction are found once it is committed, by any
session, also after a restart, and by sessions that join meanwhile."""

import psycopg
import pytest

from cache_scene import found
from caching import FLOOD, ITEM, LOOK
from faults import FUNCTIONS, Doing, Points, pid_of
from harness.cluster import Cluster
from servers import SETTINGS, started
from support import one, outcome, reconnect, until

pytestmark = pytest.mark.seam

TWO_PHASE = {"max_prepared_transactions": 4, "wal_level": "logical", "wal_retrieve_retry_interval": "100ms"}
OTHER = "SELECT herald.cache_through('other', 'SELECT 1')"


@pytest.fixture(scope="module")
def two_phase():
    """A server with prepared transactions."""
    for cluster in started(preload=True, caches=True, settings=SETTINGS | TWO_PHASE):
        cluster.psql(ITEM + FLOOD)
        yield cluster


@pytest.fixture
def writer(two_phase, connect):
    """A session that prepares; afterwards no transaction is prepared any more."""
    writer = connect(two_phase)
    writer.execute("UPDATE item SET v = 0")
    yield writer
    roll_back_all(connect(two_phase))


def roll_back_all(connection: psycopg.Connection) -> None:
    """Rolls back what a test has left prepared."""
    for name, in connection.execute("SELECT gid FROM pg_prepared_xacts WHERE database = current_database()").fetchall():
        connection.execute(f"ROLLBACK PREPARED '{name}'")


def prepare(connection: psycopg.Connection, value: int, name: str = "p") -> None:
    """Changes the row that all look up, and prepares the transaction."""
    connection.execute("BEGIN")
    connection.execute("UPDATE item SET v = %s WHERE id = 1", (value,))
    connection.execute(f"PREPARE TRANSACTION '{name}'")


@pytest.mark.parametrize("how", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("finisher", ["itself", "another"])
@pytest.mark.parametrize("reader", ["has joined", "joins meanwhile", "joins in a transaction",
                                    "is overrun meanwhile", "is the writer"])
def test_finished_later(two_phase, connect, writer, reader, finisher, how):
    """Guards: while a transaction is prepared all sessions find the old value, and none keeps it; once it is finished,
    in any session, all find the value that is valid then, and keep it."""
    session = writer if reader == "is the writer" else connect(two_phase)
    other = connect(two_phase)
    if reader in ("has joined", "is overrun meanwhile", "is the writer"):
        assert [one(session, LOOK), found(session, LOOK)] == ["0", True]
    prepare(writer, 1)

    if reader == "is overrun meanwhile":
        session.execute("BEGIN; SELECT 1")
        other.execute("CALL flood(20, 1000)")
        session.execute("COMMIT")
    if reader == "joins in a transaction":
        session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    for _ in range(3):
        assert one(session, LOOK) == "0"
    (writer if finisher == "itself" else other).execute(f"{how} PREPARED 'p'")
    if reader == "joins in a transaction":
        assert one(session, LOOK) == "0"
        session.execute("COMMIT")

    value = "1" if how == "COMMIT" else "0"
    for _ in range(3):
        assert one(session, LOOK) == value
    assert found(session, LOOK)
    writer.execute("UPDATE item SET v = 2 WHERE id = 1")
    assert one(session, LOOK) == "2"


def test_nothing_of_it_is_kept(writer, two_phase, connect):
    """Guards: values that a transaction has kept from its own changes are forgotten when it is prepared."""
    session = connect(two_phase)
    session.execute("BEGIN")
    session.execute("UPDATE item SET v = 1 WHERE id = 2")
    look = "SELECT herald.cache_through('of two', 'SELECT v FROM item WHERE id = 2')"
    assert one(session, look) == "1"
    assert found(session, look)
    session.execute("PREPARE TRANSACTION 'p'")
    writer.execute("ROLLBACK PREPARED 'p'")
    assert one(session, look) == "0"


def test_other_keys_are_kept(two_phase, connect, writer):
    """Guards: a transaction that stays prepared costs sessions that have read its invalidations only its keys, and
    costs sessions that join in another database nothing."""
    session = connect(two_phase)
    assert one(session, LOOK) == "0"
    prepare(writer, 1)
    assert one(session, LOOK) == "0"
    assert [found(session, OTHER), found(session, OTHER)] == [False, True]
    two_phase.psql("CREATE DATABASE elsewhere")
    two_phase.create_herald("elsewhere")
    elsewhere = connect(two_phase, "elsewhere")
    assert [found(elsewhere, OTHER), found(elsewhere, OTHER)] == [False, True]
    two_phase.psql("DROP DATABASE elsewhere WITH (FORCE)")


@pytest.mark.parametrize("why", ["the name is in use", "a temporary table"])
def test_prepare_that_fails(two_phase, connect, writer, why):
    """Guards: if PREPARE TRANSACTION fails after our callback, nothing has changed, and all goes on."""
    session = connect(two_phase)
    assert one(session, LOOK) == "0"
    writer.execute("BEGIN; INSERT INTO item VALUES (3, 0); PREPARE TRANSACTION 'p'")
    writer.execute("BEGIN; UPDATE item SET v = 1 WHERE id = 1")
    assert one(writer, LOOK) == "1"
    if why == "a temporary table":
        writer.execute("CREATE TEMPORARY TABLE mine ()")
    assert outcome(writer, "PREPARE TRANSACTION 'p'") == (
        '42710: transaction identifier "p" is already in use' if why == "the name is in use" else
        "0A000: cannot PREPARE a transaction that has operated on temporary objects")
    writer.execute("ROLLBACK PREPARED 'p'")
    for looks in (session, writer):
        assert [one(looks, LOOK), one(looks, LOOK), found(looks, LOOK)] == ["0", "0", True]
    writer.execute("UPDATE item SET v = 2 WHERE id = 1")
    assert [one(session, LOOK), one(writer, LOOK)] == ["2", "2"]


@pytest.mark.parametrize("mode", ["fast", "crash"])
def test_after_a_restart(two_phase, connect, writer, mode):
    """Guards: nothing of the queue is left, and a session that begins to look up does not keep what a transaction that
    was prepared before the restart is about to change."""
    prepare(writer, 1)
    if mode == "crash":
        two_phase.crash()
        two_phase.start()
    else:
        two_phase.restart()
    session, other = reconnect(two_phase, connect), connect(two_phase)
    for _ in range(3):
        assert one(session, LOOK) == "0"
    other.execute("COMMIT PREPARED 'p'")
    for _ in range(2):
        assert one(session, LOOK) == "1"
    assert found(session, LOOK)


def test_places_are_used_again(two_phase, connect, writer):
    """Guards: a session that joins after earlier transactions were prepared and finished keeps what it finds."""
    for number in range(10):
        prepare(writer, number)
        writer.execute("COMMIT PREPARED 'p'")
        session = connect(two_phase)
        assert [one(session, LOOK), found(session, LOOK)] == [str(number), True]
        session.close()


def test_nothing_between_committing_and_prepared(stop_points, connect):
    """Guards: a session that joins just as a transaction passes from the committing to the prepared ones learns of it:
    the committing ones are asked first."""
    for cluster in started(preload=True, caches=True, pg_config=stop_points, settings=SETTINGS | TWO_PHASE):
        cluster.psql(FUNCTIONS + ITEM)
        writer, joiner, points = connect(cluster), connect(cluster), Points(connect(cluster))
        writer.execute("BEGIN; UPDATE item SET v = 1 WHERE id = 1")
        points.arm("invalidate-published", "wait", pid_of(writer))
        preparing = Doing(writer, "PREPARE TRANSACTION 'p'")
        points.waiter("invalidate-published")
        points.arm("invalidation-writers-asked", "wait", pid_of(joiner))
        joining = Doing(joiner, LOOK)
        points.waiter("invalidation-writers-asked")
        points.release("invalidate-published")
        assert preparing.end() is None
        points.release("invalidation-writers-asked")
        assert joining.end() is None
        assert one(joiner, LOOK) == "0"
        points.watcher.execute("COMMIT PREPARED 'p'")
        assert one(joiner, LOOK) == "1"


# ---- logical replication ----

@pytest.fixture
def subscriber(two_phase, connect, writer):
    """Database `subscriber`, whose trigger fires for what is replicated, also in two phases."""
    two_phase.psql("CREATE DATABASE subscriber")
    two_phase.create_herald("subscriber")
    two_phase.psql("CREATE PUBLICATION items FOR TABLE item;"
                   "SELECT pg_create_logical_replication_slot('items', 'pgoutput', false, true)")
    two_phase.psql(ITEM.replace("INSERT INTO item VALUES (1, 0), (2, 0);",
                                "ALTER TABLE item REPLICA IDENTITY FULL; INSERT INTO item VALUES (1, 0);"),
                   "subscriber")
    two_phase.psql(f"""
        CREATE SUBSCRIPTION items
            CONNECTION 'host={two_phase.socket_folder} port={two_phase.port} user=postgres dbname=postgres'
            PUBLICATION items WITH (create_slot = false, slot_name = items, copy_data = false, two_phase = on)""",
                   "subscriber")
    yield two_phase
    for database in ("postgres", "subscriber"):
        roll_back_all(connect(two_phase, database))
    two_phase.psql("DROP SUBSCRIPTION items", "subscriber")
    two_phase.psql("DROP PUBLICATION items; DROP DATABASE subscriber WITH (FORCE)")


def is_prepared(cluster: Cluster, database: str) -> bool:
    """Whether a transaction is prepared in this database."""
    return cluster.psql(f"SELECT count(*) FROM pg_prepared_xacts WHERE database = '{database}'") != "0"


def test_caches_and_logical_replication(subscriber, connect, writer):
    """Guards: a subscription with two_phase = on replicates to a table whose trigger invalidates, and what a
    subscriber's sessions cache is never stale: while a transaction is prepared there, and once it is finished."""
    session = connect(subscriber, "subscriber")
    two_phase_state = "SELECT subtwophasestate FROM pg_subscription"
    until(lambda: one(session, two_phase_state) == "e", "the subscription takes prepared transactions")
    for value, how in ((1, "COMMIT"), (2, "ROLLBACK"), (3, "COMMIT")):
        before = one(session, LOOK)
        prepare(writer, value)
        until(lambda: is_prepared(subscriber, "subscriber"), "it is prepared on the subscriber")
        joiner = connect(subscriber, "subscriber")
        for looks in (session, joiner, session, joiner):
            assert one(looks, LOOK) == before
        writer.execute(f"{how} PREPARED 'p'")
        until(lambda: not is_prepared(subscriber, "subscriber"), "it is finished on the subscriber")
        after = str(value) if how == "COMMIT" else before
        for looks in (session, joiner):
            assert [one(looks, LOOK), one(looks, LOOK), found(looks, LOOK)] == [after, after, True]
        joiner.close()
