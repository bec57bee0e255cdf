"""ALTER EXTENSION pg_herald UPDATE, from each earlier version, and while the extension is in use."""

import re
import subprocess
from pathlib import Path

import psycopg
import pytest

from harness.prefix import TOP
from support import hear, notify, one

DEFAULT = re.search(r"^default_version = '(.*)'$", (TOP / "pg_herald.control").read_text(encoding="utf-8"), re.M)[1]
SCRIPT = re.compile(r"pg_herald--([0-9.]+)\.sql")
VERSIONS = sorted(found[1] for path in (TOP / "sql").iterdir() if (found := SCRIPT.fullmatch(path.name)))
NEXT = "9.9"
CHANGES = """
COMMENT ON SCHEMA herald IS 'changed';
ALTER FUNCTION herald.position() COST 77;
CREATE OR REPLACE VIEW herald.channels AS SELECT c.channel, c.listeners, c.sent, c.delivered, c.last_sent, c.stats_since, 1 AS more FROM herald.get_channels() c;
REVOKE EXECUTE ON FUNCTION herald.watchdog_pid() FROM PUBLIC;
"""
OBJECTS = """
    SELECT pg_describe_object(classid, objid, objsubid), obj_description(objid, classid::regclass::name),
           CASE classid WHEN 'pg_proc'::regclass THEN
                    (SELECT row(prosrc, probin, prosecdef, provolatile, proparallel, proisstrict, procost, prorows, proconfig,
                                pg_get_function_arguments(oid), pg_get_function_result(oid), proacl)::text
                       FROM pg_proc WHERE oid = objid)
                WHEN 'pg_class'::regclass THEN
                    (SELECT row(pg_get_viewdef(oid), relacl, array(SELECT (attname, atttypid, col_description(oid, attnum))
                                FROM pg_attribute WHERE attrelid = pg_class.oid ORDER BY attnum))::text
                       FROM pg_class WHERE oid = objid)
                WHEN 'pg_namespace'::regclass THEN (SELECT nspacl::text FROM pg_namespace WHERE oid = objid)
           END
      FROM pg_depend
     WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
       AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_herald')
     ORDER BY 1"""


def objects(connection: psycopg.Connection) -> list[tuple]:
    """All objects of the extension."""
    return connection.execute(OBJECTS).fetchall()


@pytest.fixture(scope="module")
def fresh(cluster) -> list[tuple]:
    """The objects that CREATE EXTENSION creates."""
    cluster.psql("CREATE DATABASE fresh")
    cluster.create_herald("fresh")
    with psycopg.connect(host=str(cluster.socket_folder), port=cluster.port, user="postgres",
                         dbname="fresh") as connection:
        found = objects(connection)
    cluster.psql("DROP DATABASE fresh")
    return found


@pytest.fixture
def a_next_version(cluster):
    """Installs a script that updates to a next version, in which some objects are changed."""
    sharedir = subprocess.run([cluster.installation.pg_config, "--sharedir"], capture_output=True, text=True,
                              check=True).stdout.strip()
    script = Path(sharedir) / "extension" / f"pg_herald--{DEFAULT}--{NEXT}.sql"
    script.write_text(CHANGES, encoding="utf-8")
    yield
    script.unlink()


@pytest.mark.parametrize("version", VERSIONS)
def test_update_gives_what_create_gives(cluster, database, connect, fresh, version):
    """Guards: an update from any version results in the objects that CREATE EXTENSION creates now."""
    connection = connect(cluster, database)
    connection.execute(f"CREATE EXTENSION pg_herald VERSION '{version}'")
    connection.execute("ALTER EXTENSION pg_herald UPDATE")
    assert one(connection, "SELECT extversion FROM pg_extension WHERE extname = 'pg_herald'") == DEFAULT
    assert objects(connection) == fresh and fresh


def test_update_while_it_is_used(cluster, database, connect, fresh, a_next_version):
    """Guards: an update during open transactions, prepared statements and listeners: no notification is missed, and the
    changes of the script are made. (It also shows that the comparison above detects changes.)"""
    admin, sender, listener = (connect(cluster, database) for _ in range(3))
    admin.execute("CREATE EXTENSION pg_herald")
    listener.execute("LISTEN c")
    sender.execute("PREPARE send(text) AS SELECT pg_notify('c', $1)")
    sender.execute("EXECUTE send('1')")
    sender.execute("BEGIN; EXECUTE send('2')")
    admin.execute(f"ALTER EXTENSION pg_herald UPDATE TO '{NEXT}'")
    sender.execute("COMMIT")
    sender.execute("EXECUTE send('3')")
    notify(sender, "c", "4")
    assert hear(listener, 4) == ["1", "2", "3", "4"]
    assert one(admin, "SELECT more FROM herald.channels WHERE channel = 'c'") == 1
    changed = {before[0] for before, after in zip(fresh, objects(admin)) if before != after}
    assert changed == {"schema herald", "view herald.channels", 'function herald."position"()',
                       "function herald.watchdog_pid()"}
