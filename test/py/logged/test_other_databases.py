"""Positions of other databases: of the same name and OID, created again; of another cluster. And what a database's positions
survive."""

import pytest

from faults import FUNCTIONS, Doing, Points, pid_of
from following import anchored, has_delivered, has_replayed
from harness.cluster import Cluster
from harness.standby import Standby
from owner import is_of_elsewhere, set_channels
from resume import position, read, resume
from servers import SETTINGS, started
from support import hear, notify, outcome, until, wait_event
from test_relay import relay_pid

pytestmark = pytest.mark.seam

NUMBER = 99990


class OfItsOwn(Cluster):
    """A cluster that was made by initdb, not copied: it has its own key."""

    def _template(self) -> None:
        return None


@pytest.fixture(scope="module")
def primary():
    """A server with a template that has the extension and a logged channel."""
    for server in started(preload=True, settings=SETTINGS | {"wal_keep_size": "512MB", "wal_retrieve_retry_interval": "100ms"}):
        server.psql("CREATE DATABASE model")
        server.psql("CREATE EXTENSION pg_herald; SELECT herald.set_channel('c', true)", "model")
        yield server


@pytest.fixture(scope="module")
def standby(primary):
    """A standby of it."""
    with Standby(primary) as standby:
        yield standby
        assert not standby.damage(), standby.damage()


WAYS = {"wal_log": "TEMPLATE model STRATEGY wal_log", "file_copy": "TEMPLATE model STRATEGY file_copy", "empty": ""}


def create(primary: Cluster, way: str) -> None:
    """Creates the database, with the same OID each time."""
    primary.psql(f"CREATE DATABASE reborn OID {NUMBER} {WAYS[way]}")
    if way == "empty":
        primary.psql("CREATE EXTENSION pg_herald; SELECT herald.set_channel('c', true)", "reborn")


@pytest.fixture
def reborn(primary):
    """The database is dropped after the test."""
    yield
    primary.psql("DROP DATABASE IF EXISTS reborn WITH (FORCE)")


def gone_everywhere(servers: list[Cluster], connect, tokens: list[str]) -> None:
    """No server takes positions of the dropped database for its own; those of the new one are good on each."""
    for server in servers:
        until(lambda s=server: s is servers[0] or has_replayed(s), "it has followed")
        for token in tokens:
            session = connect(server, "reborn")
            assert is_of_elsewhere(session, "c", token)
            session.close()


@pytest.mark.parametrize("way", WAYS)
def test_same_oid(primary, standby, reborn, connect, way):
    """Guards: a database that is dropped and created with the same OID takes no position of the dropped one for its own, however it
    is created, on any server of the cluster."""
    tokens = []
    for _ in range(3):
        create(primary, way)
        until(lambda: has_replayed(standby), "the standby has it")
        there, here = connect(standby, "reborn"), connect(primary, "reborn")
        tokens.append(position(here))
        notify(here, "c", "1")
        assert read(here, "c", tokens[-1])[0] == ["1"]
        until(lambda: outcome(there, "LISTEN c") is None, "it is logged there")
        notify(here, "c", "2")
        assert hear(there, 1)[-1:] in (["1"], ["2"])
        tokens.append(position(there))
        for session in (here, there):
            assert isinstance(resume(session, "c", tokens[-1]), bool)
            session.close()
        primary.psql("DROP DATABASE reborn")
        until(lambda: has_replayed(standby), "it is dropped there")
    create(primary, way)
    gone_everywhere([primary, standby], connect, tokens)
    primary.restart()
    gone_everywhere([primary, standby], connect, tokens)


def test_nothing_sent_since(primary, reborn, connect):
    """Guards: the same where nothing was sent between a position and the end of its database; the new one's own positions are good
    from the start."""
    for number in range(3):
        create(primary, "wal_log")
        session = connect(primary, "reborn")
        if number > 0:
            assert is_of_elsewhere(session, "c", token)
        token = position(session)
        assert resume(session, "c", token) is True
        session.close()
        primary.psql("DROP DATABASE reborn")


def test_relay_has_not_come_to_it(stop_points, connect):
    """Guards: the same on a standby that shows the new database, and whose relay has not read of it yet."""
    for server in started(preload=True, pg_config=stop_points, settings=SETTINGS | {"wal_retrieve_retry_interval": "100ms"}):
        server.psql("CREATE DATABASE model TEMPLATE postgres")
        server.psql("SELECT herald.set_channel('c', true)", "model")
        server.psql(FUNCTIONS + "SELECT herald.set_channel('c', true)")
        with Standby(server) as standby:
            create(server, "wal_log")
            sender, watcher, points = connect(server), connect(standby), Points(connect(standby))
            anchored(server, sender)
            until(lambda: has_delivered(standby), "the standby has followed")
            session = connect(standby, "reborn")
            token = position(session)
            session.close()
            points.arm("relay-send", "wait", relay_pid(watcher))
            notify(sender, "c", "holds up the relay")
            points.waiter("relay-send")
            server.psql("DROP DATABASE reborn")
            create(server, "wal_log")
            notify(connect(server, "reborn"), "c", "of the new one")
            until(lambda: has_replayed(standby), "the standby has the new one")
            session = connect(standby, "reborn")
            asking = Doing(session, f"DO $$ BEGIN ASSERT NOT herald.listen('c', '{token}'), 'it returned true'; END $$")
            until(lambda: not asking.runs() or wait_event(watcher, pid_of(session)) not in (None, "ClientRead"), "it ends or waits")
            points.release()
            assert asking.end() is None
            until(lambda: has_delivered(standby), "the standby has followed")
            assert is_of_elsewhere(session, "c", token)
            assert not standby.damage(), standby.damage()


def test_promoted(primary, reborn, connect):
    """Guards: a new primary, and the one it was promoted from, do not take positions of a dropped database for those of one created
    with the same OID on either after they have parted."""
    create(primary, "wal_log")
    tokens = [position(connect(primary, "reborn"))]
    with Standby(primary) as standby:
        notify(connect(primary, "reborn"), "c", "1")
        tokens.append(position(connect(primary, "reborn")))
        notify(connect(primary, "reborn"), "c", "2")
        until(lambda: has_replayed(standby), "it has followed")
        standby.psql("SELECT pg_promote()")
        assert isinstance(resume(connect(standby, "reborn"), "c", tokens[0]), bool)
        for server in (primary, standby):
            server.psql("DROP DATABASE reborn WITH (FORCE)")
            create(server, "wal_log")
        for server in (primary, standby):
            for token in tokens:
                assert is_of_elsewhere(connect(server, "reborn"), "c", token)
            tokens.append(position(connect(server, "reborn")))
        assert is_of_elsewhere(connect(primary, "reborn"), "c", tokens[3])
        assert not standby.damage(), standby.damage()


# What may be done with a database without any effect on its positions.
CHANGES = [
    "ALTER DATABASE reborn RENAME TO renamed; ALTER DATABASE renamed RENAME TO reborn",
    "ALTER DATABASE reborn CONNECTION LIMIT 50",
    "ALTER DATABASE reborn SET work_mem = '8MB'",
    "CREATE ROLE owns_it; ALTER DATABASE reborn OWNER TO owns_it; ALTER DATABASE reborn OWNER TO postgres; DROP ROLE owns_it",
    "GRANT CREATE ON DATABASE reborn TO PUBLIC",
    "COMMENT ON DATABASE reborn IS 'the same'",
    "VACUUM FREEZE pg_database",
    "VACUUM FULL pg_database",
    "REINDEX TABLE pg_database",
    "SET allow_in_place_tablespaces = on; CREATE TABLESPACE elsewhere LOCATION ''; ALTER DATABASE reborn SET TABLESPACE elsewhere",
    "ALTER DATABASE reborn SET TABLESPACE pg_default; DROP TABLESPACE elsewhere",
    "CHECKPOINT",
]
WITHIN = [
    "VACUUM FREEZE",
    "VACUUM FULL pg_class",
    "VACUUM FULL pg_proc",
    "VACUUM FULL pg_extension",
    "VACUUM FULL pg_foreign_server",
    "REINDEX SYSTEM reborn",
    "ALTER EXTENSION pg_herald UPDATE",
]


def test_changes_of_a_database(primary, standby, reborn, connect):
    """Guards: positions stay good when the database is renamed, altered, frozen and rebuilt, and after a restart, on each server."""
    create(primary, "wal_log")
    session = connect(primary, "reborn")
    notify(session, "c", "first")
    primary.restart()  # so there is an anchor
    session = connect(primary, "reborn")
    token = position(session)
    notify(session, "c", "1")
    session.close()
    for changes, dbname in ((CHANGES, "postgres"), (WITHIN, "reborn")):
        for sql in changes:
            primary.psql(sql, dbname)
            session = connect(primary, "reborn")
            assert read(session, "c", token)[0] == ["1"], sql
            session.close()
    primary.restart()
    until(lambda: has_replayed(standby), "it has followed")
    for server in (primary, standby):
        listener = connect(server, "reborn")
        until(lambda s=listener: resume(s, "c", token), "it has come to the position")
        assert hear(listener, 1) == ["1"]


def test_another_cluster(primary, connect):
    """Guards: a position of another cluster, even of a database with the same OID, is of elsewhere; a part of one is invalid."""
    for other in started(kind=OfItsOwn, preload=True, settings=SETTINGS):
        set_channels(connect(other), c=True)
        here, there = connect(primary), connect(other)
        assert outcome(here, "SELECT oid FROM pg_database WHERE datname = current_database()") == \
            outcome(there, "SELECT oid FROM pg_database WHERE datname = current_database()")
        for session, elsewhere in ((here, there), (there, here)):
            token = position(session)
            assert resume(session, "c", token) is True
            assert is_of_elsewhere(elsewhere, "c", token)
            for invalid in (token[:-4], token + "AAAA", token[:50] + ("B" if token[50] == "A" else "A") + token[51:]):
                assert str(outcome(elsewhere, "SELECT herald.listen('c', %s)", invalid)).startswith("22023: ")


def test_another_database(primary, connect):
    """Guards: a position of another database is of elsewhere, whether that database is there or not."""
    here, model = connect(primary), connect(primary, "model")
    token = position(model)
    assert is_of_elsewhere(here, "c", token)
    model.close()
    primary.psql("CREATE DATABASE short TEMPLATE model")
    session = connect(primary, "short")
    assert is_of_elsewhere(session, "c", token)
    token = position(session)
    session.close()
    primary.psql("DROP DATABASE short")
    assert is_of_elsewhere(here, "c", token) and is_of_elsewhere(connect(primary, "model"), "c", token)
