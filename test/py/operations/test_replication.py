"""Standbys, backups, logical decoding and logical replication; each on a stock server as well."""

import os

import psycopg
import pytest

from following import has_replayed
from harness.standby import Standby
from resume import position, resume
from servers import SETTINGS, has_herald, need_library, started
from support import hear, hear_until, load, notify, one, outcome, until, watchdog_pid
from wire import kinds

pytestmark = pytest.mark.seam

HOT_STANDBY = {
    "LISTEN c": "25006: cannot execute LISTEN during recovery",
    "NOTIFY c, 'x'": "25006: cannot execute NOTIFY during recovery",
    "SELECT pg_notify('c', 'x')": "25006: cannot execute NOTIFY during recovery",
    "DO $$ BEGIN PERFORM pg_notify('c', 'x'); END $$": "25006: cannot execute NOTIFY during recovery",
    "DO $$ BEGIN LISTEN c; END $$": "25006: cannot execute LISTEN during recovery",
    "SELECT pg_notify('', 'x')": "25006: cannot execute NOTIFY during recovery",
    "UNLISTEN c": None,
    "UNLISTEN *": None,
    "DISCARD ALL": None,
    "SELECT * FROM pg_listening_channels()": [],
    "SELECT pg_notification_queue_usage()": [(0.0,)],
    "SELECT count(*) FROM item": [(10,)],
}


@pytest.fixture(scope="module", params=[True, False], ids=["pg_herald", "stock"])
def primary(request):
    """A server that allows every kind of replication, with pg_herald or without."""
    yield from started(preload=request.param, settings=SETTINGS | {
        "wal_level": "logical", "wal_retrieve_retry_interval": "100ms"})


@pytest.fixture
def item(primary):
    """A table whose trigger notifies c of each inserted row."""
    primary.psql("""
        CREATE TABLE item (id integer PRIMARY KEY);
        CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pg_notify('c', TG_OP || ' ' || NEW.id); RETURN NEW; END $$;
        CREATE TRIGGER tell AFTER INSERT ON item FOR EACH ROW EXECUTE FUNCTION tell()""")
    yield
    primary.psql("DROP TABLE item; DROP FUNCTION tell")


def test_notify_and_listen_on_a_standby(primary, item, connect):
    """Guards: a standby replays, gives stock's answers during recovery, and notifies once it is promoted."""
    listener, sender, laggard = connect(primary), connect(primary), connect(primary)
    listener.execute("LISTEN c")
    laggard.execute("LISTEN c; BEGIN; SELECT 1")
    notify(sender, "c", "in the queue while the backup is taken")

    with Standby(primary) as standby:
        reader = connect(standby)
        for number in range(10):
            sender.execute("INSERT INTO item VALUES (%s)", (number,))
        assert hear(listener, 11)[1:] == [f"INSERT {number}" for number in range(10)]
        until(lambda: has_replayed(standby), "the standby has followed")
        assert {sql: outcome(reader, sql) for sql in HOT_STANDBY} == HOT_STANDBY
        if has_herald(primary):
            assert one(reader, "SELECT used FROM herald.queue") == 0
            assert one(reader, "SELECT count(*) FROM herald.listeners") == 0
            assert watchdog_pid(standby)
            token = position(sender)

        assert one(reader, "SELECT pg_promote()")
        # A session from before the promotion, and a new one.
        new_sender = connect(standby)
        reader.execute("LISTEN c")
        reader.execute("INSERT INTO item VALUES (100)")
        new_sender.execute("INSERT INTO item VALUES (101)")
        new_sender.execute("NOTIFY c, 'end'")
        assert hear(reader, 3) == ["INSERT 100", "INSERT 101", "end"]
        if has_herald(primary):
            assert one(reader, "SELECT notifications FROM herald.stats") == 3
            assert not resume(new_sender, "c", token)
            assert resume(new_sender, "c", position(reader))
    notify(sender, "c", "end")
    assert hear_until(listener, "end") == []


def test_backup_under_load(primary, connect):
    """Guards: a backup taken during notifications is complete, and contains no file of pg_herald."""
    listener = connect(primary)
    listener.execute("LISTEN load")
    with load(primary, "NOTIFY load, 'x';", clients=2):
        hear(listener, 1)
        with Standby(primary) as standby:
            names = [name for _, folders, files in os.walk(standby.data) for name in folders + files]
            assert "PG_VERSION" in names
            assert [name for name in names if "herald" in name] == []
            assert one(connect(standby), "SELECT pg_is_in_recovery()")


def test_walsender(primary, connect, wire):
    """Guards: statements on a replication connection have the same effect as on stock: NOTIFY notifies, LISTEN is an
    error."""
    listener, walsender = connect(primary), wire(primary, replication="database")
    listener.execute("LISTEN c")
    assert kinds(walsender.query("LISTEN c")) == "EZ"
    assert kinds(walsender.query("NOTIFY c, 'statement'")) == "CZ"
    assert kinds(walsender.query("SELECT pg_notify('c', 'function')")) == "TDCZ"
    assert kinds(walsender.query("UNLISTEN *")) == "CZ"
    assert kinds(walsender.query("IDENTIFY_SYSTEM")) == "TDCZ"
    assert hear(listener, 2) == ["statement", "function"]


def decoded(connection: psycopg.Connection) -> list[str]:
    """The changes since the last call, by test_decoding."""
    return [row[0] for row in connection.execute(
        "SELECT data FROM pg_logical_slot_get_changes('decoding', NULL, NULL, 'include-xids', '0')")]


def test_logical_decoding(primary, item, connect):
    """Guards: logical decoding returns the changes of tables, and no notifications."""
    need_library("test_decoding")
    sender, listener = connect(primary), connect(primary)
    listener.execute("LISTEN c")
    sender.execute("SELECT pg_create_logical_replication_slot('decoding', 'test_decoding')")
    try:
        sender.execute("INSERT INTO item VALUES (1)")
        notify(sender, "c", "alone")
        with sender.transaction():
            notify(sender, "c", "with a change")
            sender.execute("INSERT INTO item VALUES (2)")
        sender.execute("DELETE FROM item WHERE id = 1")
        assert hear(listener, 4) == ["INSERT 1", "alone", "with a change", "INSERT 2"]
        assert decoded(sender) == [
            "BEGIN", "table public.item: INSERT: id[integer]:1", "COMMIT",
            "BEGIN", "table public.item: INSERT: id[integer]:2", "COMMIT",
            "BEGIN", "table public.item: DELETE: id[integer]:1", "COMMIT"]
    finally:
        sender.execute("SELECT pg_drop_replication_slot('decoding')")


@pytest.fixture(params=[True, False], ids=["extension", "no extension"])
def subscriber(request, primary):
    """Database `subscriber`, which subscribes to table `item`; with the extension or without."""
    if request.param and not has_herald(primary):
        pytest.skip("there is no extension on a stock server")
    primary.psql("CREATE DATABASE subscriber")
    if request.param:
        primary.create_herald("subscriber")
    primary.psql("CREATE PUBLICATION items FOR TABLE item;"
                 "SELECT pg_create_logical_replication_slot('items', 'pgoutput')")
    primary.psql(f"""
        CREATE TABLE item (id integer PRIMARY KEY);
        CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pg_notify('c', TG_NAME || ' ' || NEW.id); RETURN NEW; END $$;
        CREATE FUNCTION tell_by_statement() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN EXECUTE format('NOTIFY c, %L', TG_NAME || ' ' || NEW.id); RETURN NEW; END $$;
        CREATE TRIGGER always AFTER INSERT ON item FOR EACH ROW EXECUTE FUNCTION tell();
        ALTER TABLE item ENABLE ALWAYS TRIGGER always;
        CREATE TRIGGER by_default AFTER INSERT ON item FOR EACH ROW EXECUTE FUNCTION tell();
        CREATE TRIGGER replica AFTER INSERT ON item FOR EACH ROW EXECUTE FUNCTION tell_by_statement();
        ALTER TABLE item ENABLE REPLICA TRIGGER replica;
        CREATE SUBSCRIPTION items
            CONNECTION 'host={primary.socket_folder} port={primary.port} user=postgres dbname=postgres'
            PUBLICATION items WITH (create_slot = false, slot_name = items)""", "subscriber")
    yield "subscriber"
    primary.psql("DROP SUBSCRIPTION items", "subscriber")
    primary.psql("DROP PUBLICATION items; DROP DATABASE subscriber WITH (FORCE)")


def test_logical_replication(primary, item, subscriber, connect):
    """Guards: notifications of triggers in the apply worker arrive, in order, once."""
    listener, watcher, sender = connect(primary, subscriber), connect(primary, subscriber), connect(primary)
    listener.execute("LISTEN c")
    before = taken(watcher)
    for number in range(50):
        sender.execute("INSERT INTO item VALUES (%s)", (number,))
    assert hear(listener, 100) == [f"{trigger} {number}" for number in range(50)
                                   for trigger in ("always", "replica")]
    if before is not None:
        assert taken(watcher) - before >= 100
    notify(watcher, "c", "end")
    assert hear_until(listener, "end") == []


def taken(connection: psycopg.Connection) -> int | None:
    """The number of notifications sent through pg_herald; None without the extension."""
    if one(connection, "SELECT to_regclass('herald.stats') IS NULL"):
        return None
    return one(connection, "SELECT notifications FROM herald.stats")
