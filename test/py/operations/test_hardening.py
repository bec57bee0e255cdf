"""Privileges that administrators take away, roles that read or write everything, programs that empty all tables, and owners of the
extension's objects: applications notify as on a stock server, and no role gains anything."""

import psycopg
import pytest

from harness.cluster import Cluster
from owner import become, is_logged, set_channels, settings_of
from resume import position, read
from servers import has_herald
from support import hear_until, one, outcome

DATABASE = "of_hardening"
ROLES = ("ordinary", "reader", "writer", "creator", "stranger")
DENIED = "42501: permission denied for function pg_notify"

APPLICATION = """
    CREATE TABLE app.item (id integer);
    CREATE FUNCTION app.tell() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_notify('c', 'trigger'); RETURN NEW; END $$;
    CREATE TRIGGER tell AFTER INSERT ON app.item FOR EACH ROW EXECUTE FUNCTION app.tell();
    CREATE FUNCTION app.by_sql() RETURNS void LANGUAGE sql AS $$ SELECT pg_notify('c', 'sql') $$;
    CREATE FUNCTION app.by_body() RETURNS void LANGUAGE sql BEGIN ATOMIC SELECT pg_notify('c', 'body'); END"""
PREPARE = "PREPARE prepared AS SELECT pg_notify('c', 'prepared')"

# What notifies: the statement, and the payload.
CALLS = {
    "SELECT pg_notify('c', 'select')": "select",
    "SELECT count(pg_catalog.pg_notify('c', 'rows')) FROM generate_series(1, 3)": "rows",
    "EXECUTE prepared": "prepared",
    "INSERT INTO app.item VALUES (1)": "trigger",
    "SELECT app.by_sql()": "sql",
    "SELECT app.by_body()": "body",
    "DO $$ DECLARE nothing text; BEGIN nothing := pg_notify('c', 'expression'); END $$": "expression",
    "BEGIN; DECLARE rows CURSOR FOR SELECT pg_notify('c', 'cursor'); FETCH ALL FROM rows; COMMIT": "cursor",
}

EVERYTHING = "n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)'"
SWEEP = f"""
    DO $$ DECLARE found record; BEGIN
        FOR found IN SELECT p.oid::regprocedure AS routine FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
                     WHERE {EVERYTHING} LOOP
            EXECUTE format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', found.routine);
        END LOOP;
        FOR found IN SELECT nspname FROM pg_namespace n WHERE {EVERYTHING} LOOP
            EXECUTE format('REVOKE ALL ON SCHEMA %I FROM PUBLIC', found.nspname);
            EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM PUBLIC', found.nspname);
        END LOOP;
    END $$"""
TABLES = f"""SELECT string_agg(c.oid::regclass::text, ', ' ORDER BY c.oid::regclass::text) FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'f', 'm', 'S') AND {EVERYTHING}"""


def create_database(server: Cluster) -> None:
    """Creates the roles, and a database with the extension where the server has it."""
    server.psql("".join(f"CREATE ROLE {role};" for role in ROLES) + f"CREATE DATABASE {DATABASE};"
                "GRANT pg_read_all_data TO reader; GRANT pg_write_all_data TO writer; ALTER ROLE creator SUPERUSER")
    if has_herald(server):
        server.create_herald(DATABASE)


def drop_database(server: Cluster) -> None:
    """Drops them again."""
    server.psql(f"DROP DATABASE {DATABASE} WITH (FORCE);" + "".join(f"DROP ROLE {role};" for role in ROLES))


@pytest.fixture
def either(server):
    """A server, stock or with pg_herald, with the database of a test."""
    create_database(server)
    yield server
    drop_database(server)


@pytest.fixture
def ours(cluster):
    """A server with pg_herald, with the database of a test."""
    create_database(cluster)
    yield cluster
    drop_database(cluster)


# ---- privileges taken away ----

@pytest.fixture
def ordinary(either, connect) -> list[psycopg.Connection]:
    """Two sessions of an ordinary user: one has notified before the privileges are taken away, one begins after."""
    superuser = connect(either, DATABASE)
    superuser.execute("CREATE SCHEMA app AUTHORIZATION ordinary")
    early = become("ordinary", connect(either, DATABASE))
    early.execute(APPLICATION)
    early.execute(PREPARE)
    assert not any(isinstance(outcome(early, sql), str) for sql in CALLS)
    superuser.execute(SWEEP)
    late = become("ordinary", connect(either, DATABASE))
    late.execute(PREPARE)
    return [early, late]


@pytest.mark.seam
def test_sweep(either, ordinary, connect):
    """Guards: an application notifies as before if PUBLIC has no privilege on any routine or schema, except those of the server
    itself; and it does so through pg_herald."""
    superuser, listener = connect(either, DATABASE), connect(either, DATABASE)
    listener.execute("LISTEN c")
    before = one(superuser, "SELECT notifications FROM herald.stats") if has_herald(either) else None
    for session in ordinary:
        assert [sql for sql in CALLS if isinstance(outcome(session, sql), str)] == []
        assert one(session, "SELECT pg_notification_queue_usage()") >= 0
        session.execute("NOTIFY c, 'statement'")
        session.execute("LISTEN c; UNLISTEN c")
    superuser.execute("NOTIFY c, 'end'")
    assert hear_until(listener, "end") == 2 * [*CALLS.values(), "statement"]
    if before is not None:
        assert one(superuser, "SELECT notifications FROM herald.stats") == before + 2 * (len(CALLS) + 1) + 1
        for sql in ("SELECT herald.pg_notify('c', 'x')", "SELECT * FROM herald.stats", "SELECT herald.position()"):
            assert str(outcome(ordinary[0], sql)) == "42501: permission denied for schema herald"


@pytest.mark.seam
def test_pg_notify_revoked(either, ordinary, connect):
    """Guards: the privileges of pg_notify() itself say which roles may call it, on a stock server and with pg_herald."""
    superuser, listener = connect(either, DATABASE), connect(either, DATABASE)
    listener.execute("LISTEN c")
    superuser.execute("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_notify FROM PUBLIC")
    for session in ordinary:
        for sql in CALLS:
            assert outcome(session, sql) == DENIED
            session.execute("ROLLBACK")
        session.execute("NOTIFY c, 'statement'")
        assert one(session, "SELECT pg_notification_queue_usage()") >= 0
    superuser.execute("GRANT EXECUTE ON FUNCTION pg_catalog.pg_notify TO ordinary")
    for session in ordinary:
        assert [sql for sql in CALLS if isinstance(outcome(session, sql), str)] == []
    superuser.execute("NOTIFY c, 'end'")
    assert hear_until(listener, "end") == ["statement"] * 2 + 2 * [*CALLS.values()]


# ---- roles that read or write everything ----

def test_roles_of_all_data(ours, connect):
    """Guards: members of pg_read_all_data and of pg_write_all_data find no key of positions, and do not change settings."""
    superuser = connect(ours, DATABASE)
    set_channels(superuser, orders=True)
    assert one(superuser, TABLES) is None
    for role in ("reader", "writer"):
        session = become(role, connect(ours, DATABASE))
        for sql in ("SELECT herald.set_channel('orders', false)", "DROP SERVER pg_herald", "ALTER SERVER pg_herald OPTIONS (DROP logged)",
                    "UPDATE pg_foreign_server SET srvoptions = '{}'", "DELETE FROM pg_foreign_server",
                    "SELECT pg_read_binary_file('global/pg_control')"):
            assert str(outcome(session, sql)).startswith("42501: "), sql
        relations = [name for (name,) in superuser.execute(
            "SELECT c.oid::regclass::text FROM pg_class c WHERE relnamespace = 'herald'::regnamespace AND relkind <> 'c'")]
        assert relations
        for name in relations:
            assert str(outcome(session, f"DELETE FROM {name}"))[:5] in ("42501", "55000")
    assert settings_of(superuser) == {"orders": True}


# ---- programs that empty all tables ----

def test_cleaner_of_tests(ours, connect):
    """Guards: a program that locks and then empties all tables, as one does between tests, finds nothing of ours: settings and
    positions are there afterwards, and no sender waits for its locks."""
    cleaner, sender = connect(ours, DATABASE), connect(ours, DATABASE)
    cleaner.execute("CREATE TABLE item (id integer); INSERT INTO item VALUES (1)")
    set_channels(sender, orders=True)
    token = position(sender)
    tables = one(cleaner, TABLES)
    assert tables == "item"
    cleaner.execute(f"BEGIN; LOCK TABLE {tables} IN ACCESS EXCLUSIVE MODE")
    sender.execute("SET statement_timeout = '10s'; SELECT pg_notify('orders', 'meanwhile')")
    cleaner.execute(f"TRUNCATE {tables} RESTART IDENTITY CASCADE; COMMIT")
    assert settings_of(sender) == {"orders": True}
    assert read(sender, "orders", token)[0] == ["meanwhile"]
    assert is_logged(ours, connect(ours, DATABASE), "orders") == [True]


# ---- owners of our objects ----

REPLACED = """CREATE OR REPLACE FUNCTION {0} LANGUAGE {1} AS
    $$ {2} $$"""
BECOME = "ALTER ROLE stranger SUPERUSER"
BODIES = {"plpgsql": f"BEGIN {BECOME}; RETURN{{}}; END", "sql": f"{BECOME}; SELECT{{}}"}
FUNCTIONS = {
    "{}.pg_herald_notify(channel text, payload text) RETURNS void": "",
    "{}.pg_herald_notification_queue_usage() RETURNS float8": " 0::float8",
    "{}.pg_notify(channel text, payload text) RETURNS void": "",
    "{}.pg_notification_queue_usage() RETURNS float8": " 0::float8",
}
OUR_FUNCTIONS = """SELECT objid::regprocedure::text FROM pg_depend
    WHERE classid = 'pg_proc'::regclass AND deptype = 'e'
      AND refclassid = 'pg_extension'::regclass AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_herald')"""
OF_A_SUPERUSER = [
    "SELECT pg_catalog.pg_notify('c', 'select')", "EXECUTE tell", "INSERT INTO item VALUES (1)", "NOTIFY c, 'statement'",
    "SELECT pg_catalog.pg_notification_queue_usage()", "LISTEN d", "UNLISTEN d",
    "DO $$ DECLARE nothing text; BEGIN nothing := pg_notify('c', 'expression'); END $$",
]


def test_creator_is_ordinary_later(cluster, database, connect):
    """Guards: the role that created the extension, and is a superuser no more, cannot change what pg_notify() becomes."""
    superuser, creator = connect(cluster, database), connect(cluster, database)
    superuser.execute("CREATE ROLE creator SUPERUSER")
    try:
        become("creator", creator).execute("CREATE EXTENSION pg_herald")
        superuser.execute("ALTER ROLE creator NOSUPERUSER")
        for function in ("pg_herald_notify(text, text)", "pg_herald_notification_queue_usage()"):
            for change in ("STRICT", "SET work_mem = '64kB'", "RENAME TO other", "OWNER TO creator"):
                said = outcome(creator, f"ALTER FUNCTION pg_catalog.{function} {change}")
                assert said.startswith("42501: must be owner of function"), said
            creator.execute(f"REVOKE EXECUTE ON FUNCTION pg_catalog.{function} FROM PUBLIC")  # a warning, as stock says
            assert one(superuser, "SELECT has_function_privilege('public', %s, 'EXECUTE')", f"pg_catalog.{function}")
    finally:
        superuser.execute("DROP EXTENSION IF EXISTS pg_herald CASCADE; DROP OWNED BY creator; DROP ROLE creator")


@pytest.mark.parametrize("language", BODIES)
@pytest.mark.parametrize("given", ["by REASSIGN OWNED", "each", "with pg_catalog"])
def test_functions_of_a_stranger(cluster, database, connect, given, language):
    """Guards: an ordinary role that owns the extension's objects, even if it may create objects beside them, cannot have a
    superuser that calls pg_notify() run its code."""
    superuser, creator, stranger, listener = (connect(cluster, database) for _ in range(4))
    superuser.execute("CREATE ROLE creator SUPERUSER; CREATE ROLE stranger")
    try:
        become("creator", creator).execute("CREATE EXTENSION pg_herald")
        superuser.execute("CREATE TABLE item (id integer); PREPARE tell AS SELECT pg_notify('c', 'prepared'); EXECUTE tell;"
                          "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS"
                          " $$ BEGIN PERFORM pg_notify('c', 'trigger'); RETURN NEW; END $$;"
                          "CREATE TRIGGER tell AFTER INSERT ON item FOR EACH ROW EXECUTE FUNCTION tell()")
        listener.execute("LISTEN c")
        # This may be refused, since no ordinary role may own a foreign data wrapper.
        said = outcome(superuser, "REASSIGN OWNED BY creator TO stranger")
        assert said is None or said.startswith("42501: "), said
        if given != "by REASSIGN OWNED":
            superuser.execute("ALTER SCHEMA herald OWNER TO stranger")
            for (name,) in superuser.execute(OUR_FUNCTIONS).fetchall():
                superuser.execute(f"ALTER FUNCTION {name} OWNER TO stranger")
        if given == "with pg_catalog":
            superuser.execute("GRANT CREATE ON SCHEMA pg_catalog TO stranger")
        become("stranger", stranger)
        replaced = [outcome(stranger, REPLACED.format(function.format(schema), language, BODIES[language].format(result)))
                    for schema in ("herald", "pg_catalog") for function, result in FUNCTIONS.items()]
        # It does not own the built-in functions.
        assert all(str(said).startswith("42501: ") for said in replaced[-2:])
        for session in (superuser, connect(cluster, database)):
            session.execute("DISCARD PLANS")
            if session is not superuser:
                session.execute("PREPARE tell AS SELECT pg_notify('c', 'prepared')")
            for sql in OF_A_SUPERUSER:
                assert not isinstance(outcome(session, sql), str), sql
            assert not one(session, "SELECT rolsuper FROM pg_roles WHERE rolname = 'stranger'"), replaced
        superuser.execute("NOTIFY c, 'end'")
        assert hear_until(listener, "end") == ["select", "prepared", "trigger", "statement", "expression"] * 2
    finally:
        for session in (creator, stranger):
            session.close()
        superuser.execute("DROP EXTENSION pg_herald CASCADE; DROP OWNED BY stranger CASCADE; DROP OWNED BY creator CASCADE;"
                          "DROP ROLE creator; DROP ROLE stranger")
