"""A transaction whose batch has its place in the queue does nothing lengthy: all later notifications wait for it."""

import resource
from pathlib import Path

import psycopg
import pytest

from faults import FUNCTIONS, Scene, pid_of
from resume import apart, position, resume
from servers import SETTINGS, started
from support import hear, notify, one

EVENTS = 2_000_000
KEYS = 20_000

TRIGGER = """
    CREATE TEMP TABLE deferred (n int);
    CREATE FUNCTION pg_temp.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    CREATE CONSTRAINT TRIGGER t AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION pg_temp.nothing()"""


def own_bytes(connection: psycopg.Connection) -> int:
    """A backend's private memory, in bytes."""
    _, resident, shared, *_ = Path(f"/proc/{pid_of(connection)}/statm").read_text(encoding="ascii").split()
    return (int(resident) - int(shared)) * resource.getpagesize()


def test_deferred_triggers(scene):
    """Guards: a transaction with very many deferred triggers frees their memory before its batch has its place."""
    victim = scene.connect()
    victim.execute(TRIGGER)
    victim.execute("BEGIN; INSERT INTO deferred VALUES (1)")
    little = own_bytes(victim)
    victim.execute(f"INSERT INTO deferred SELECT generate_series(1, {EVENTS})")
    much = own_bytes(victim)
    assert much - little > 8 * EVENTS
    victim.execute("NOTIFY c, 'reserved'")
    doing = scene.stand_still("publish-reserved", victim, "COMMIT")
    assert own_bytes(victim) - little < (much - little) / 2
    scene.points.release("publish-reserved")
    assert doing.end() is None
    for listener in scene.listeners:
        assert hear(listener, 1) == ["reserved"]


@pytest.fixture
def minimal(stop_points, connect):
    """A scene on a server that leaves new tables out of the WAL, unless they are small; all of them are small here."""
    settings = {"wal_level": "minimal", "max_wal_senders": 0, "archive_mode": False, "wal_skip_threshold": "1GB"}
    for cluster in started(preload=True, pg_config=stop_points, settings=SETTINGS | settings):
        cluster.psql(FUNCTIONS)
        yield Scene(cluster, connect)


@pytest.mark.parametrize("statement", [
    "CREATE TABLE filled AS SELECT repeat('x', 1000) FROM generate_series(1, 20000)",
    "TRUNCATE c_tables; INSERT INTO c_tables VALUES ('x')",
])
def test_new_tables_outside_the_wal(minimal, statement):
    """Guards: new tables that were not WAL-logged are written to the WAL, or to the disk, while no session waits: the
    transaction has no place in the queue, and its notifications go through the server's own queue."""
    minimal.watcher.execute("CREATE TABLE IF NOT EXISTS c_tables (t text)")
    victim, client = minimal.connect(), minimal.connect()
    d = apart(client, ["c"], "d")
    before = position(client)
    victim.execute(f"BEGIN; {statement}; NOTIFY c, 'by the server'; COMMIT")
    for listener in minimal.listeners:
        assert hear(listener, 1) == ["by the server"]
    assert resume(client, "c", before) is False
    assert resume(client, d, before) is True
    before = position(client)
    victim.execute("BEGIN; INSERT INTO c_tables VALUES ('y'); NOTIFY c, 'by ours'; COMMIT")
    assert resume(client, "c", before) is True
    assert hear(client, 1) == ["by ours"]


def test_invalidations(scene):
    """Guards: a transaction frees the memory of its invalidations only when other sessions no longer wait for it."""
    victim = scene.connect()
    victim.execute("BEGIN")
    victim.execute(f"SELECT count(herald.cache_invalidate('c', n)) FROM generate_series(1, {KEYS}) n")
    victim.execute("NOTIFY c, 'first'")
    doing = scene.stand_still("invalidate-reset", victim, "COMMIT")
    notify(scene.sender, "c", "second")
    for listener in scene.listeners:
        assert hear(listener, 2) == ["first", "second"]
    assert doing.runs()
    scene.points.release("invalidate-reset")
    assert doing.end() is None
    assert one(victim, "SELECT 1") == 1
