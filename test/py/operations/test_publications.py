"""Publications of all tables, of a database that gets the extension and settings later: subscribers without pg_herald, and with it."""

from contextlib import contextmanager

import psycopg
import pytest

from harness.cluster import Cluster
from harness.standby import conninfo
from owner import set_channels, settings_of
from resume import position, read
from servers import SETTINGS, need_library, started
from support import hear, notify, one, outcome, until

pytestmark = pytest.mark.seam

TABLE = """
    CREATE TABLE item (id integer PRIMARY KEY);
    CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_notify('orders', TG_TABLE_NAME || ' ' || NEW.id); RETURN NEW; END $$;
    CREATE TRIGGER tell AFTER INSERT ON item FOR EACH ROW EXECUTE FUNCTION tell();
    ALTER TABLE item ENABLE ALWAYS TRIGGER tell"""


@pytest.fixture(scope="module")
def publisher():
    """A server whose database postgres publishes all tables, and has no extension yet."""
    for cluster in started(preload=True, settings=SETTINGS | {"wal_level": "logical"}):
        cluster.psql("DROP EXTENSION pg_herald; CREATE PUBLICATION everything FOR ALL TABLES")
        cluster.psql(TABLE + "; INSERT INTO item VALUES (1)")
        yield cluster


@pytest.fixture(scope="module")
def with_herald():
    """Another server with pg_herald, which connects to its publisher again and again without a pause."""
    yield from started(preload=True, settings=SETTINGS | {"wal_retrieve_retry_interval": "100ms"})


@pytest.fixture
def session(publisher, connect):
    """A session on the publisher; after the test neither the extension nor rows are left."""
    session = connect(publisher)
    yield session
    session.execute("DROP EXTENSION IF EXISTS pg_herald CASCADE; TRUNCATE item; INSERT INTO item VALUES (1)")


@contextmanager
def subscribed(publisher: Cluster, subscriber: Cluster, *preparations: str):
    """A database of a server, with the table and what else is prepared, that subscribes to everything; yields its name."""
    subscriber.psql("CREATE DATABASE subscriber")
    try:
        for sql in (TABLE, *preparations):
            subscriber.psql(sql, "subscriber")
        subscriber.psql(f"CREATE SUBSCRIPTION everything CONNECTION '{conninfo(publisher)} dbname=postgres' PUBLICATION everything",
                        "subscriber")
        yield "subscriber"
        subscriber.psql("DROP SUBSCRIPTION everything", "subscriber")
    except BaseException:
        subscriber.client("psql", "-Xq", stdin="ALTER SUBSCRIPTION everything DISABLE;"
                          "ALTER SUBSCRIPTION everything SET (slot_name = NONE); DROP SUBSCRIPTION everything", dbname="subscriber")
        raise
    finally:
        subscriber.psql("DROP DATABASE subscriber WITH (FORCE)")


def rows(session: psycopg.Connection) -> list[int]:
    """The rows of the table."""
    return [number for (number,) in session.execute("SELECT id FROM item ORDER BY id")]


def use(session: psycopg.Connection) -> None:
    """Creates the extension, sets channels in all ways, and notifies."""
    session.execute("CREATE EXTENSION pg_herald")
    set_channels(session, orders=True, job_prefix_=True)
    session.execute("INSERT INTO item VALUES (2)")
    session.execute("ALTER SERVER pg_herald OPTIONS (SET logged '{orders,jobs}')")
    with session.transaction():
        set_channels(session, orders=None, late=True)
        session.execute("INSERT INTO item VALUES (3)")
    notify(session, "late", "logged")


def published(session: psycopg.Connection) -> list[str]:
    """The tables that the publication has."""
    return [name for (name,) in session.execute("SELECT schemaname || '.' || tablename FROM pg_publication_tables")]


def test_subscriber_without_pg_herald(publisher, session, stock, connect):
    """Guards: replication to a server that has neither the module nor the extension goes on when the publisher creates the
    extension, sets channels and drops it; also if the subscriber asks again what is published."""
    with subscribed(publisher, stock) as database:
        there = connect(stock, database)
        until(lambda: rows(there) == [1], "the first row is copied")
        there.execute("LISTEN orders")
        use(session)
        assert published(session) == ["public.item"]
        until(lambda: rows(there) == [1, 2, 3], "rows arrive")
        assert hear(there, 2) == ["item 2", "item 3"]
        there.execute("ALTER SUBSCRIPTION everything REFRESH PUBLICATION")
        session.execute("DROP EXTENSION pg_herald CASCADE")
        session.execute("INSERT INTO item VALUES (4)")
        until(lambda: rows(there) == [1, 2, 3, 4], "rows arrive after that as well")
        assert there.execute("SELECT srrelid::regclass::text FROM pg_subscription_rel").fetchall() == [("item",)]


@pytest.mark.parametrize("extension", ["before", "after"])
def test_subscriber_with_pg_herald(publisher, session, with_herald, connect, extension):
    """Guards: a subscriber that has the extension too, created before the subscription or after it, gets the rows, the first
    ones by a copy; settings and positions are each server's own."""
    use(session)
    with subscribed(publisher, with_herald, *["CREATE EXTENSION pg_herald"] * (extension == "before")) as database:
        there = connect(with_herald, database)
        until(lambda: rows(there) == [1, 2, 3], "rows are copied")
        if extension == "after":
            there.execute("CREATE EXTENSION pg_herald")
        assert settings_of(there) == {}
        set_channels(there, mine=True)
        set_channels(session, more=True)
        there.execute("LISTEN orders")
        token = position(there)
        session.execute("INSERT INTO item VALUES (4)")
        assert hear(there, 1) == ["item 4"]
        assert read(there, "orders", token)[0] == ["item 4"]
        assert settings_of(there) == {"mine": True}
        assert settings_of(session) == {"jobs": True, "late": True, "more": True}


def control(cluster: Cluster) -> dict[str, str]:
    """What pg_controldata says of the cluster."""
    said = cluster.run_as_server_user("pg_controldata", str(cluster.data)).stderr
    return {name: value.strip() for name, _, value in (line.partition(":") for line in said.splitlines())}


def test_decoded_by_pgoutput(publisher, session):
    """Guards: pgoutput and test_decoding show changes of the user's tables and the messages of logged channels, nothing else:
    not what positions are signed with."""
    session.execute("SELECT pg_create_logical_replication_slot('binary', 'pgoutput')")
    try:
        use(session)
        position(session)
        nonce = control(publisher)["Mock authentication nonce"]
        assert len(nonce) == 64
        data = b"".join(row for (row,) in session.execute(
            "SELECT data FROM pg_logical_slot_peek_binary_changes('binary', NULL, NULL, 'proto_version', '1',"
            " 'publication_names', 'everything', 'messages', 'true')"))
        assert b"orders" in data and b"item" in data
        for spelling in (bytes.fromhex(nonce), nonce.encode(), nonce.upper().encode()):
            assert spelling not in data
        # A message of pgoutput for a relation: its kind, its OID, its schema and its name.
        assert b"herald\0" not in data.replace(b"pg_herald\0", b"")
    finally:
        session.execute("SELECT pg_drop_replication_slot('binary')")


def test_decoded_as_text(publisher, session):
    """Guards: test_decoding shows no table but the user's."""
    need_library("test_decoding")
    session.execute("SELECT pg_create_logical_replication_slot('text', 'test_decoding')")
    try:
        use(session)
        lines = [line for (line,) in session.execute("SELECT data FROM pg_logical_slot_peek_changes('text', NULL, NULL)")]
        assert {line.partition(":")[0] for line in lines if line.startswith("table")} == {"table public.item"}
        assert control(publisher)["Mock authentication nonce"] not in "".join(lines)
    finally:
        session.execute("SELECT pg_drop_replication_slot('text')")


def test_all_tables_of_our_schema(publisher, session):
    """Guards: our schema has nothing that could be published."""
    use(session)
    session.execute("CREATE PUBLICATION ours FOR TABLES IN SCHEMA herald")
    assert published(session) == ["public.item"]
    for name, in session.execute("SELECT relname FROM pg_class WHERE relnamespace = 'herald'::regnamespace AND relkind <> 'c'").fetchall():
        assert str(outcome(session, f"ALTER PUBLICATION ours ADD TABLE herald.{name}"))[:5] in ("22023", "42809")
    session.execute("DROP PUBLICATION ours")
