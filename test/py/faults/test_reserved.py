"""A transaction whose batch has its place in the queue: everybody waits for it, so it does nothing lengthy then."""

import resource
from pathlib import Path

import psycopg
import pytest

from faults import FUNCTIONS, Scene, pid_of
from servers import SETTINGS, started
from support import hear, notify, one

EVENTS = 2_000_000
KEYS = 20_000
ROWS, ROW_BYTES = 20_000, 1000

TRIGGER = """
    CREATE TEMP TABLE deferred (n int);
    CREATE FUNCTION pg_temp.nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    CREATE CONSTRAINT TRIGGER t AFTER INSERT ON deferred DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION pg_temp.nothing()"""


def own_bytes(connection: psycopg.Connection) -> int:
    """Memory of a backend that it shares with nobody."""
    _, resident, shared, *_ = Path(f"/proc/{pid_of(connection)}/statm").read_text(encoding="ascii").split()
    return (int(resident) - int(shared)) * resource.getpagesize()


def test_deferred_triggers(scene):
    """Guards: what a transaction with very many deferred triggers remembers of them is freed before, not then."""
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
    """A scene on a server that leaves new tables out of the WAL, unless they are small; all of them are, here."""
    settings = {"wal_level": "minimal", "max_wal_senders": 0, "archive_mode": False, "wal_skip_threshold": "1GB"}
    for cluster in started(preload=True, pg_config=stop_points, settings=SETTINGS | settings):
        cluster.psql(FUNCTIONS)
        yield Scene(cluster, connect)


def test_new_tables_outside_the_wal(minimal):
    """Guards: what was written into new tables without the WAL is written there, or to the disk, before, not then."""
    def inserted() -> int:
        return one(minimal.watcher, "SELECT pg_current_wal_insert_lsn() - '0/0'")

    victim = minimal.connect()
    victim.execute(f"BEGIN; CREATE TABLE filled AS SELECT repeat('x', {ROW_BYTES}) FROM generate_series(1, {ROWS})")
    before = inserted()
    victim.execute("NOTIFY c, 'reserved'")
    doing = minimal.stand_still("publish-reserved", victim, "COMMIT")
    assert inserted() - before > ROWS * ROW_BYTES
    minimal.points.release("publish-reserved")
    assert doing.end() is None
    assert one(minimal.watcher, "SELECT count(*) FROM filled") == ROWS
    for listener in minimal.listeners:
        assert hear(listener, 1) == ["reserved"]


def test_invalidations(scene):
    """Guards: what a transaction remembers of its invalidations is freed when others wait no longer for it."""
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
