"""The owner of a database, which is no superuser, sets channels, and dumps, restores and copies the database; and how settings
end. A superuser has created the extension, and has granted the owner its foreign data wrapper."""

import subprocess

import pytest

from harness.cluster import Cluster
from owner import OWNER, become, is_logged, is_of_elsewhere, set_channels, settings_of
from resume import position, read, resume
from servers import SETTINGS, started
from support import hear, hear_until, notify, one, outcome

pytestmark = pytest.mark.seam

USAGE = f"GRANT USAGE ON FOREIGN DATA WRAPPER pg_herald TO {OWNER}"
SCHEMA = """
    CREATE TABLE item (id integer PRIMARY KEY);
    CREATE TABLE bookmark (position text);
    CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_notify('orders', 'item ' || NEW.id); RETURN NEW; END $$;
    CREATE TRIGGER tell AFTER INSERT ON item FOR EACH ROW EXECUTE FUNCTION tell();
    INSERT INTO item VALUES (1), (2)"""
CHANNELS = {"orders": True, "job_*": True, "job_debug": False}
SERVER = "SELECT srvowner::regrole::text FROM pg_foreign_server WHERE srvname = 'pg_herald'"
DATABASES = ("shop", "target", "copy")


@pytest.fixture(scope="module")
def server():
    """A server on which the owner may create databases."""
    for cluster in started(preload=True, settings=SETTINGS):
        cluster.psql(f"CREATE ROLE {OWNER} LOGIN CREATEDB; CREATE ROLE other LOGIN")
        yield cluster


@pytest.fixture
def databases(server):
    """Databases that a test creates are dropped after it."""
    yield
    server.psql(";".join(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)" for name in DATABASES))


def create(server: Cluster, name: str, extension: bool = True, usage: bool = True) -> None:
    """Creates a database of the owner."""
    server.psql(f"CREATE DATABASE {name} OWNER {OWNER}")
    if extension:
        server.create_herald(name)
    if usage:
        server.psql(USAGE, name)


@pytest.fixture
def shop(server, databases, connect):
    """The owner's session in a database with settings of channels, and a position stored in a table."""
    create(server, "shop")
    session = become(OWNER, connect(server, "shop"))
    set_channels(session, orders=True, job_prefix_=True, job_debug=False)
    session.execute(SCHEMA)
    session.execute("INSERT INTO bookmark VALUES (herald.position())")
    notify(session, "orders", "after the position")
    return session


def client(server: Cluster, name: str, *arguments: str, dbname: str = "postgres") -> str:
    """Runs a program as the owner, without any error or warning of privileges; returns its output."""
    return server.client(name, "-U", OWNER, *arguments, dbname=dbname)


def errors(server: Cluster, role: str, dump: str, dbname: str) -> list[str]:
    """Runs a plain dump to its end; returns the errors."""
    said = subprocess.run([server.installation.program("psql"), "-Xq", "-U", role, "-f", "-"], input=dump, text=True,
                          capture_output=True, env=server.environment(dbname)).stderr
    return [line.split("ERROR:  ")[1] for line in said.splitlines() if "ERROR:" in line]


def works(server: Cluster, name: str, connect, with_rows: bool = True) -> None:
    """Checks a restored or copied database: its settings, that they count, their owner, and that it notifies; and that the
    stored position is that of another database."""
    session, listener = become(OWNER, connect(server, name)), connect(server, name)
    assert settings_of(session) == CHANNELS
    assert one(session, SERVER) == OWNER
    listener.execute("LISTEN orders")
    session.execute("INSERT INTO item VALUES (3)")
    assert hear(listener, 1) == ["item 3"]
    assert is_logged(server, connect(server, name), "orders", "job_1", "job_debug", "x") == [True, True, False, False]
    if with_rows:
        assert one(session, "SELECT count(*) FROM item") == 3
        assert is_of_elsewhere(session, "orders", one(session, "SELECT position FROM bookmark"))
    token = position(session)
    notify(listener, "orders", "of here")
    assert read(session, "orders", token)[0] == ["of here"]
    set_channels(session, mine=True)
    assert settings_of(session) == CHANNELS | {"mine": True}


# ---- privileges ----

def test_privileges(server, databases, connect):
    """Guards: a role with USAGE on the wrapper creates the settings, and then owns them; others neither change nor remove
    them, but see them; without USAGE the owner of the database cannot create them."""
    create(server, "shop", usage=False)
    owner, other = become(OWNER, connect(server, "shop")), become("other", connect(server, "shop"))
    for sql in ("SELECT herald.set_channel('orders', true)", "CREATE SERVER pg_herald FOREIGN DATA WRAPPER pg_herald"):
        assert outcome(owner, sql) == "42501: permission denied for foreign-data wrapper pg_herald"
    assert settings_of(owner) == {} and is_logged(server, connect(server, "shop"), "orders") == [False]
    server.psql(USAGE, "shop")
    set_channels(owner, orders=True)
    assert one(owner, SERVER) == OWNER
    for sql in ("SELECT herald.set_channel('a', true)", "SELECT herald.set_channel('orders', null)",
                "ALTER SERVER pg_herald OPTIONS (SET logged '{a}')", "DROP SERVER pg_herald"):
        assert outcome(other, sql) == "42501: must be owner of foreign server pg_herald"
    owner.execute("ALTER SERVER pg_herald OPTIONS (SET logged '{orders,job_*}', ADD unlogged '{job_debug}')")
    for session in (owner, other, connect(server, "shop")):
        assert settings_of(session) == CHANNELS
    # What has been granted is needed once.
    server.psql(f"REVOKE ALL ON FOREIGN DATA WRAPPER pg_herald FROM {OWNER}", "shop")
    set_channels(owner, mine=True)
    assert is_logged(server, connect(server, "shop"), "orders", "job_1", "job_debug", "mine") == [True, True, False, True]


# What the server of the settings cannot be, as statements of its owner.
REFUSED = [
    "CREATE SERVER another FOREIGN DATA WRAPPER pg_herald",
    "CREATE SERVER another FOREIGN DATA WRAPPER pg_herald OPTIONS (logged '{a}')",
    "ALTER SERVER pg_herald RENAME TO another",
    "ALTER SERVER pg_herald OPTIONS (ADD host 'example.com')",
    "ALTER SERVER pg_herald OPTIONS (ADD \"Unlogged\" '{a}')",
    *(f"ALTER SERVER pg_herald OPTIONS ({change})" for value in (
        "orders", "{", "{a*b}", "{*a}", "{a**}", '{""}', "{NULL}", "{herald_reset}", "{herald_position}",
        "{" + "x" * 64 + "}", "{" + "é" * 32 + "*}") for change in (f"SET logged '{value}'", f"ADD unlogged '{value}'")),
    "ALTER SERVER pg_herald OPTIONS (ADD unlogged '{orders}')",
]


def test_refused_statements(server, databases, connect):
    """Guards: what cannot be a setting is refused when it is made, with a message that names it, and changes nothing."""
    create(server, "shop")
    owner = become(OWNER, connect(server, "shop"))
    owner.execute("CREATE SERVER pg_herald FOREIGN DATA WRAPPER pg_herald OPTIONS (logged '{orders}')")
    for sql in REFUSED:
        said = str(outcome(owner, sql))
        assert said[:2] in ("22", "42", "55", "0A", "HV") and said != "None", f"{sql}: {said}"
        assert settings_of(owner) == {"orders": True}
        assert one(owner, "SELECT count(*) FROM pg_foreign_server") == 1
    assert is_logged(server, connect(server, "shop"), "orders", "a") == [True, False]


def test_server_of_another_wrapper(server, databases, connect):
    """Guards: a server of that name that belongs to another wrapper sets nothing, and is not changed."""
    create(server, "shop")
    superuser = connect(server, "shop")
    superuser.execute(f"CREATE FOREIGN DATA WRAPPER pg_stranger; GRANT USAGE ON FOREIGN DATA WRAPPER pg_stranger TO {OWNER}")
    owner = become(OWNER, connect(server, "shop"))
    owner.execute("CREATE SERVER pg_herald FOREIGN DATA WRAPPER pg_stranger OPTIONS (logged '{orders}')")
    assert settings_of(owner) == {} and is_logged(server, superuser, "orders") == [False]
    for session in (owner, superuser):
        assert str(outcome(session, "SELECT herald.set_channel('a', true)"))[:2] in ("42", "55", "0A", "HV")
    assert one(owner, "SELECT srvoptions::text FROM pg_foreign_server") == '{"logged={orders}"}'
    superuser.execute("ALTER SERVER pg_herald OPTIONS (SET logged 'no array')")
    assert settings_of(owner) == {}
    owner.execute("DROP SERVER pg_herald")
    set_channels(owner, orders=True)
    assert is_logged(server, superuser, "orders") == [True]


# ---- dumps ----

@pytest.mark.parametrize("what", [(), ("--schema-only",)], ids=["all", "schema only"])
@pytest.mark.parametrize("form", ["plain", "custom"])
def test_restored_by_the_owner(server, shop, connect, tmp_path, form, what):
    """Guards: the owner dumps the database, and restores it where a superuser has created the extension, without an error;
    the settings are there, also if only the schema was dumped."""
    create(server, "target")
    archive = str(tmp_path / "archive")
    # To comment on an extension, of whichever kind, one has to own it.
    client(server, "pg_dump", "--no-comments", f"--format={form}", "-f", archive, *what, "shop")
    if form == "plain":
        client(server, "psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-f", archive, dbname="target")
    else:
        client(server, "pg_restore", "--exit-on-error", "--single-transaction", "-d", "target", archive)
    works(server, "target", connect, with_rows=not what)
    assert resume(shop, "orders", one(shop, "SELECT position FROM bookmark")) is True


def test_restored_again(server, shop, connect, tmp_path):
    """Guards: with --clean the owner's settings replace those that are there."""
    create(server, "target")
    set_channels(become(OWNER, connect(server, "target")), orders=False, old=True)
    archive, entries = str(tmp_path / "archive"), tmp_path / "entries"
    client(server, "pg_dump", "--format=custom", "-f", archive, "shop")
    # Only its owner could drop the extension.
    entries.write_text("".join(line for line in client(server, "pg_restore", "--list", archive).splitlines(keepends=True)
                               if " EXTENSION " not in line), encoding="utf-8")
    for _ in range(2):
        client(server, "pg_restore", "--exit-on-error", "--clean", "--if-exists", f"--use-list={entries}", "-d", "target", archive)
    works(server, "target", connect)


@pytest.mark.parametrize("extension", [True, False], ids=["extension", "no extension"])
def test_restored_by_a_superuser(server, shop, connect, tmp_path, extension):
    """Guards: a superuser restores the owner's dump into a database with the extension or without, without an error, in two
    steps of which the second disables triggers; what is restored belongs to the owner."""
    create(server, "target", extension=extension, usage=False)
    archive = str(tmp_path / "archive")
    client(server, "pg_dump", "--format=custom", "-f", archive, "shop")
    listener = connect(server, "target")
    listener.execute("LISTEN orders")
    server.client("pg_restore", "--exit-on-error", "--schema-only", "-d", "target", archive)
    server.client("pg_restore", "--exit-on-error", "--data-only", "--disable-triggers", "-d", "target", archive)
    notify(connect(server, "target"), "orders", "end")
    assert hear_until(listener, "end") == []
    works(server, "target", connect)


def test_data_only(server, shop, connect):
    """Guards: a dump of the data has nothing of pg_herald, and restored leaves the settings there as they are."""
    create(server, "target")
    session = become(OWNER, connect(server, "target"))
    session.execute(SCHEMA.rpartition(";")[0])
    set_channels(session, mine=True)
    dump = client(server, "pg_dump", "--data-only", "shop")
    assert "herald" not in dump.replace(one(shop, "SELECT position FROM bookmark"), "")
    assert errors(server, OWNER, dump, "target") == []
    assert settings_of(session) == {"mine": True}
    assert is_of_elsewhere(session, "orders", one(session, "SELECT position FROM bookmark"))


@pytest.mark.parametrize("target", ["no extension", "no privilege"])
def test_restored_without_preparation(server, shop, connect, target):
    """Guards: where the extension or the privilege is missing, all errors are about that, and all else is restored."""
    create(server, "target", extension=target == "no privilege", usage=False)
    said = errors(server, OWNER, client(server, "pg_dump", "shop"), "target")
    assert said and all("pg_herald" in error for error in said), said
    session, listener = become(OWNER, connect(server, "target")), connect(server, "target")
    assert one(session, "SELECT count(*) FROM item") == 2 and one(session, SERVER.replace("srvowner::regrole::text", "count(*)")) == 0
    listener.execute("LISTEN orders")
    session.execute("INSERT INTO item VALUES (3)")
    assert hear(listener, 1) == ["item 3"]


# ---- copies ----

@pytest.mark.parametrize("strategy", ["wal_log", "file_copy"])
def test_copied(server, shop, connect, strategy):
    """Guards: the owner copies the database as a template: settings come along, and are the copy's own from then on;
    positions of the original are not those of the copy."""
    token = one(shop, "SELECT position FROM bookmark")
    assert resume(shop, "orders", token) is True
    shop.close()
    client(server, "psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-c", f"CREATE DATABASE copy TEMPLATE shop STRATEGY {strategy}")
    works(server, "copy", connect)
    original = become(OWNER, connect(server, "shop"))
    assert settings_of(original) == CHANNELS
    assert resume(original, "orders", token) is True
    assert is_of_elsewhere(original, "orders", position(connect(server, "copy")))


# ---- the end of settings ----

ENDS = {
    "DROP SERVER": (OWNER, "DROP SERVER pg_herald"),
    "DROP OWNED": (OWNER, f"DROP OWNED BY {OWNER}"),
    "DROP EXTENSION": ("postgres", "DROP EXTENSION pg_herald CASCADE; CREATE EXTENSION pg_herald"),
    "options dropped": (OWNER, "ALTER SERVER pg_herald OPTIONS (DROP logged)"),
    "set_channel": (OWNER, "SELECT herald.set_channel('orders', null)"),
}


@pytest.mark.parametrize("end", ENDS)
def test_settings_end(server, databases, connect, end):
    """Guards: settings end with the server that holds them, in sessions that are open too; rolled back, they do not. New ones can
    be made."""
    create(server, "shop")
    role, sql = ENDS[end]
    owner, open_one, ending = become(OWNER, connect(server, "shop")), connect(server, "shop"), become(role, connect(server, "shop"))
    set_channels(owner, orders=True)
    assert is_logged(server, open_one, "orders") == [True]
    ending.execute(f"BEGIN; {sql}; ROLLBACK")
    assert settings_of(owner) == {"orders": True} and is_logged(server, open_one, "orders") == [True]
    ending.execute(sql)
    assert settings_of(owner) == {} and is_logged(server, open_one, "orders", "new") == [False, False]
    server.psql(USAGE, "shop")
    set_channels(owner, new=True)
    assert is_logged(server, open_one, "orders", "new") == [False, True]


def test_settings_keep_their_owner(server, databases, connect):
    """Guards: neither the extension nor the owner's role is dropped from under the settings; REASSIGN OWNED gives them to another
    role, which can then change them."""
    create(server, "shop")
    superuser, other = connect(server, "shop"), become("other", connect(server, "shop"))
    set_channels(become(OWNER, connect(server, "shop")), orders=True)
    assert str(outcome(superuser, "DROP EXTENSION pg_herald")).startswith("2BP01: ")
    assert str(outcome(superuser, f"DROP ROLE {OWNER}")).startswith("2BP01: ")
    assert str(outcome(superuser, "DROP SCHEMA herald CASCADE")).startswith("2BP01: ")
    superuser.execute(f"BEGIN; REASSIGN OWNED BY {OWNER} TO other; COMMIT")
    set_channels(other, orders=False)
    assert settings_of(other) == {"orders": False} and one(other, SERVER) == "other"
    superuser.execute(f"ALTER DATABASE shop OWNER TO {OWNER}")
