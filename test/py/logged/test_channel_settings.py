"""Settings of channels: herald.set_channel(), and which channels are logged."""

import json
import random

import psycopg
import pytest

from faults import FUNCTIONS, Doing, pid_of
from following import has_replayed
from harness.cluster import Cluster
from harness.standby import Standby
from servers import SETTINGS, started
from settings import ALTER, CREATE, SET, is_logged, put, refused, rows
from support import one, outcome, until

pytestmark = pytest.mark.seam



# ---- which setting counts ----

def test_exact_before_prefix(open_one):
    """Guards: a channel's own setting counts before those of its prefixes, and of these the longest; without any a
    channel is not logged."""
    session = open_one()
    assert not one(session, "SELECT stop_any_logged()")
    put(session, {"job_private_*": False}, orders=True, job_private_loud=True, job_quiet=False)
    assert one(session, "SELECT stop_any_logged()")
    assert is_logged(session, "orders", "order", "orders2", "Orders", "") == [True, False, False, False, False]
    assert is_logged(session, "job", "job_", "job_a", "job_quiet", "job_quiet2") == [False] * 5
    put(session, {"job_*": True})
    assert is_logged(session, "job", "job_", "job_a", "job_quiet", "job_quiet2") == [False, True, True, False, True]
    assert is_logged(session, "job_private", "job_private_", "job_private_loud", "job_privateer") == \
        [True, False, True, True]


def test_all_channels(open_one):
    """Guards: an asterisk alone stands for all channels; a setting of false excludes some of them, null removes it; with
    the last one the server goes."""
    session = open_one()
    put(session, {"*": True, "quiet*": False})
    assert is_logged(session, "a", "quiet", "quieter", "quie") == [True, False, False, True]
    put(session, {"quiet*": None})
    assert is_logged(session, "quiet") == [True]
    assert rows(session) == {"*": True}
    put(session, {"*": None, "never set": None})
    assert rows(session) == {} and not one(session, "SELECT stop_any_logged()")
    assert one(session, "SELECT count(*) FROM pg_foreign_server") == 0


def test_names_of_several_bytes(open_one):
    """Guards: names and prefixes with characters of several bytes, up to 63 bytes; the asterisk does not count."""
    session = open_one()
    long = "é" * 31 + "x"
    put(session, dict.fromkeys(["größe*", "größen_ordnung*", "日本*", "日本語", long, "ß" * 31 + "*", "y" * 63 + "*"], True))
    put(session, {"größen_*": False})
    assert is_logged(session, "größe", "größen", "größen_", "größen_ordnungen", "grö", "große") == \
        [True, True, False, True, False, False]
    assert is_logged(session, "日", "日本", "日本人", "日本語", long, long[:-1]) == [False, True, True, True, True, False]
    assert is_logged(session, "ß" * 31, "ß" * 31 + "s", "ß" * 30, "y" * 63, "y" * 62) == \
        [True, True, False, True, False]


def test_odd_names(open_one):
    """Guards: names with characters that mean something in an array, in SQL or in an option."""
    session = open_one()
    odd = ["a,b", "{a}", "a=b", "a\"b", "a\\b", "a'b", "NULL", "null", " a ", "a b*", "\n\t\x01", "$1", "%s", "--"]
    put(session, dict.fromkeys(odd, True))
    put(session, {odd[0]: None, odd[1]: False})
    assert rows(session) == dict.fromkeys(odd[2:], True) | {odd[1]: False}
    assert is_logged(session, *(name.replace("*", "x") for name in odd)) == [False, False] + [True] * (len(odd) - 2)


def longest_match(settings: dict[str, bool], channel: str) -> bool:
    """What the settings say, found slowly."""
    if channel in settings:
        return settings[channel]
    matching = [name for name in settings if name.endswith("*") and channel.startswith(name[:-1])]
    return bool(matching) and settings[max(matching, key=len)]


def test_a_thousand_settings(open_one):
    """Guards: a thousand settings, many of which are prefixes of others, give the same as a search of all of them; one
    statement sets them within seconds."""
    numbers = random.Random(7)

    def word(length_max: int) -> str:
        return "".join(numbers.choice("abé") for _ in range(numbers.randint(0, length_max)))

    session, other = open_one(), open_one()
    settings: dict[str, bool] = {}
    while len(settings) < 1000:
        name = word(9) + numbers.choice(["", "*"])
        if name:
            settings[name] = numbers.random() < 0.5
    session.execute("SELECT herald.set_channel(key, value::boolean) FROM jsonb_each_text(%s)", (json.dumps(settings),))
    assert rows(session) == settings
    channels = [channel for channel in {word(11) for _ in range(3000)} | {name.rstrip("*") for name in settings} if channel]
    for each in (session, other):
        found = dict(each.execute("SELECT channel, stop_is_logged(channel) FROM unnest(%s::text[]) channel", (channels,)).fetchall())
        assert found == {channel: longest_match(settings, channel) for channel in channels}


# ---- when it counts ----

def test_committed_changes_count(open_one):
    """Guards: a session that is open uses what has been committed, at once and whatever its snapshot shows; what is not
    committed counts for no session."""
    session, other = open_one(), open_one()
    other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM herald.channel_settings")
    assert is_logged(other, "a") == [False]
    session.execute("BEGIN")
    put(session, a=True)
    assert rows(session) == {"a": True}
    assert is_logged(session, "a") == [False] == is_logged(other, "a")
    session.execute("ROLLBACK")
    assert is_logged(session, "a") == [False] == is_logged(other, "a")
    put(session, a=True)
    assert is_logged(other, "a") == [True] == is_logged(session, "a")
    assert rows(other) == {}
    other.execute("COMMIT")
    put(session, a=False)
    assert is_logged(other, "a") == [False] == is_logged(open_one(), "a")
    session.execute(f"{ALTER} OPTIONS (ADD logged '{{b}}', DROP unlogged)")
    assert is_logged(other, "a", "b") == [False, True]
    session.execute("DROP SERVER pg_herald")
    assert is_logged(other, "a", "b") == [False, False]


def test_savepoints(open_one):
    """Guards: a setting rolled back to a savepoint has no effect."""
    session, other = open_one(), open_one()
    session.execute("BEGIN")
    put(session, a=True)
    session.execute("SAVEPOINT one")
    put(session, a=False, b=True)
    session.execute("ROLLBACK TO one")
    put(session, c=True)
    session.execute("RELEASE one; COMMIT")
    for each in (session, other):
        assert is_logged(each, "a", "b", "c") == [True, False, True]


def test_changed_while_it_is_read(open_one, points):
    """Guards: a setting committed while a session reads the settings is seen by its next lookup; an error while it reads
    leaves nothing behind."""
    session, reader = open_one(), open_one()
    points.arm("settings-read", "wait", pid_of(reader))
    doing = Doing(reader, "SELECT stop_is_logged('a')")
    points.waiter("settings-read")
    put(session, a=True)
    points.release("settings-read")
    assert doing.end() is None
    assert is_logged(reader, "a") == [True]
    points.arm("settings-read", "error", pid_of(reader))
    put(session, b=True)
    assert outcome(reader, "SELECT stop_is_logged('b')") == 'XX000: error at stop point "settings-read"'
    assert is_logged(reader, "a", "b") == [True, True]


def test_extension_created_again(open_one):
    """Guards: the extension cannot be dropped by mistake while channels are set; without it no channel is logged;
    created again, it has no settings, and new ones count in the sessions that were open."""
    session, other = open_one(), open_one()
    for _ in range(2):
        put(session, a=True)
        assert is_logged(other, "a") == [True]
        assert outcome(session, "DROP EXTENSION pg_herald").startswith("2BP01")
        session.execute("DROP EXTENSION pg_herald CASCADE")
        assert is_logged(other, "a") == [False] and not one(other, "SELECT stop_any_logged()")
        session.execute("CREATE EXTENSION pg_herald")
        assert is_logged(other, "a") == [False]
    put(session, b=True)
    assert is_logged(other, "a", "b") == [False, True]
    session.execute("BEGIN; DROP EXTENSION pg_herald CASCADE; CREATE EXTENSION pg_herald")
    put(session, c=True)
    session.execute("ROLLBACK")
    for each in (session, other):
        assert is_logged(each, "b", "c") == [True, False]
    session.execute("BEGIN; DROP EXTENSION pg_herald CASCADE; CREATE EXTENSION pg_herald")
    put(session, c=True)
    session.execute("COMMIT")
    for each in (session, other):
        assert is_logged(each, "b", "c") == [False, True]


def test_server_with_another_wrapper(open_one):
    """Guards: a server of that name, but of another wrapper, sets nothing; herald.set_channel() does not change it, nor
    claims to have set something."""
    session = open_one()
    session.execute("CREATE FOREIGN DATA WRAPPER other; CREATE SERVER pg_herald FOREIGN DATA WRAPPER other"
                    " OPTIONS (logged '{a}')")
    assert is_logged(session, "a") == [False]
    assert str(outcome(session, SET, "b", True))[:5] == "42710"
    assert one(session, "SELECT srvoptions FROM pg_foreign_server") == ["logged={a}"]


# ---- catalogs that are locked ----

@pytest.mark.parametrize("table", ["pg_foreign_server", "pg_foreign_data_wrapper"])
def test_catalog_is_locked(open_one, table):
    """Guards: while a session has locked a catalog, as VACUUM FULL does, NOTIFY does not wait, and what needs to know the
    settings fails; a change waits as any statement does."""
    admin, holder, sender, setter = (open_one() for _ in range(4))
    put(admin, a=True)
    holder.execute(f"BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
    late = open_one()
    for session in (sender, late):
        session.execute("SET lock_timeout = '10s'")
        session.execute("NOTIFY a, 'x'")
        session.execute("LISTEN a; UNLISTEN *")
    assert one(late, "SELECT stop_any_logged()")
    for function in ("stop_is_logged('a')", "herald.listen('a', herald.position())"):
        assert outcome(late, f"SELECT {function}") == "55P03: could not read the settings of channels"
    setting = Doing(setter, "SELECT herald.set_channel('b', true)")
    until(lambda: one(sender, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", pid_of(setter)),
          "the change waits")
    holder.execute("COMMIT")
    assert setting.end() is None
    assert is_logged(late, "a", "b") == [True, True]


# ---- errors and privileges ----

@pytest.mark.parametrize("name, error", [
    (None, "22004: channel must not be null"),
    ("", "22023: channel name cannot be empty"),
    ("a*b", '22023: invalid channel name or prefix "a*b"'),
    ("*a", '22023: invalid channel name or prefix "*a"'),
    ("a**", '22023: invalid channel name or prefix "a**"'),
    ("x" * 64, "22023: channel name too long"),
    ("é" * 32, "22023: channel name too long"),
    ("x" * 64 + "*", "22023: channel name too long"),
    ("herald_reset", '42939: channel name "herald_reset" is reserved'),
    ("herald_position", '42939: channel name "herald_position" is reserved'),
])
def test_names_that_are_refused(open_one, name, error):
    """Guards: names that cannot be those of channels, by the function and by statements on the server."""
    session = open_one()
    for logged in (True, False, None):
        assert outcome(session, SET, name, logged) == error
    listed = '{z,NULL}' if name is None else f'{{z,"{name}"}}'
    error = "22023: channel name cannot be empty" if name is None else error
    for option in ("logged", "unlogged"):
        assert outcome(session, f"{CREATE} OPTIONS ({option} '{listed}')") == error
    put(session, a=True)
    for change in (f"SET logged '{listed}'", f"ADD unlogged '{listed}'"):
        assert outcome(session, f"{ALTER} OPTIONS ({change})") == error
    assert rows(session) == {"a": True}


@pytest.mark.parametrize("sql, error", [
    (f"{CREATE} OPTIONS (log '{{a}}')", 'HV00D: invalid option "log"'),
    (f"{CREATE} OPTIONS (\"Logged\" '{{a}}')", 'HV00D: invalid option "Logged"'),
    (f"{CREATE} OPTIONS (logged 'a')", '22P02: malformed array literal: "a"'),
    (f"{CREATE} OPTIONS (logged '')", '22P02: malformed array literal: ""'),
    (f"{CREATE} OPTIONS (logged '{{a,a}}')", '42710: channel "a" is set more than once'),
    (f"{CREATE} OPTIONS (logged '{{a*}}', unlogged '{{b,a*}}')", '42710: channel "a*" is set more than once'),
    (f"{CREATE} OPTIONS (logged '{{a}}', logged '{{b}}')", '42710: option "logged" provided more than once'),
    ("ALTER FOREIGN DATA WRAPPER pg_herald OPTIONS (ADD logged '{a}')", 'HV00D: invalid option "logged"'),
    (f"{CREATE}; CREATE USER MAPPING FOR CURRENT_USER SERVER pg_herald OPTIONS (logged '{{a}}')",
     'HV00D: invalid option "logged"'),
    (f"{CREATE}; CREATE FOREIGN TABLE t () SERVER pg_herald OPTIONS (unlogged '{{a}}')",
     'HV00D: invalid option "unlogged"'),
])
def test_options_that_are_refused(open_one, sql, error):
    """Guards: options that are none, and options of anything but the server."""
    session = open_one()
    assert outcome(session, sql) == error
    assert rows(session) == {}


def test_options_without_names(open_one):
    """Guards: a server without options, or with empty ones, sets nothing, and can be set; an array of arrays is a list."""
    session = open_one()
    session.execute(f"{CREATE} OPTIONS (logged '{{}}', unlogged '{{}}')")
    assert rows(session) == {} and not one(session, "SELECT stop_any_logged()")
    put(session, a=True, b=False)
    assert rows(session) == {"a": True, "b": False}
    session.execute(f"{ALTER} OPTIONS (SET logged '{{{{c,d}},{{e,f}}}}', DROP unlogged)")
    assert is_logged(session, *"abcdef") == [False] * 2 + [True] * 4
    session.execute(f"{ALTER} OPTIONS (DROP logged)")
    put(session, {"*": True})
    assert rows(session) == {"*": True}


ANOTHER = '42710: server "another" is not allowed for foreign-data wrapper "pg_herald"'


def test_another_server_of_the_wrapper(open_one):
    """Guards: a second server of the wrapper, or one with another name, is refused at the commit, with all else of the
    transaction; in between it may exist."""
    session = open_one()
    create = "CREATE SERVER another FOREIGN DATA WRAPPER pg_herald"
    rename = f"{ALTER} RENAME TO another"
    assert outcome(session, create) == ANOTHER
    put(session, a=True)
    for statements in ([create], [create, "CREATE TABLE t ()"], [rename], ["SAVEPOINT s", rename, "RELEASE s"],
                       [f"{ALTER} OPTIONS (SET logged '{{b}}')", create]):
        assert refused(session, *statements) == ANOTHER
    assert refused(session, create, "DROP SERVER another") is None
    assert refused(session, rename, "ALTER SERVER another RENAME TO pg_herald") is None
    assert refused(session, "SAVEPOINT s", create, "ROLLBACK TO s") is None
    assert rows(session) == {"a": True} and is_logged(session, "a", "b") == [True, False]
    assert one(session, "SELECT to_regclass('t') IS NULL")


def test_calls_that_are_refused(open_one):
    """Guards: changes in read-only transactions and in parallel queries."""
    session = open_one()
    put(session, a=True)
    session.execute("BEGIN READ ONLY")
    assert outcome(session, SET, "a", True) == "25006: cannot execute herald.set_channel() in a read-only transaction"
    session.execute("ROLLBACK")
    assert rows(session) == {"a": True}


def test_prepare_after_a_change(open_one):
    """Guards: a transaction that has changed settings cannot be prepared; with the change rolled back, or without effect,
    it can."""
    session = open_one()
    error = "0A000: cannot PREPARE a transaction that has changed settings of channels"
    session.execute("BEGIN")
    put(session, a=True)
    assert outcome(session, "PREPARE TRANSACTION 'settings'") == error
    session.execute("ROLLBACK; BEGIN; CREATE TABLE item (); SAVEPOINT one")
    put(session, a=True)
    session.execute("ROLLBACK TO one; PREPARE TRANSACTION 'settings'")
    session.execute("COMMIT PREPARED 'settings'")
    assert is_logged(session, "a") == [False]
    session.execute(f"BEGIN; {CREATE}; PREPARE TRANSACTION 'settings'")
    session.execute("COMMIT PREPARED 'settings'")
    put(session, a=True)
    session.execute("BEGIN; DROP EXTENSION pg_herald CASCADE")
    assert outcome(session, "PREPARE TRANSACTION 'settings'") == error
    assert is_logged(session, "a") == [True]


def test_roles_and_settings(open_one):
    """Guards: all users see the settings; USAGE on the wrapper allows the first one, then the owner of the server
    alone changes it; a role without that right holds up no other; nothing of this executes what is in the user's search_path."""
    admin, user = open_one(), open_one()
    admin.execute("CREATE ROLE setter; CREATE SCHEMA app AUTHORIZATION setter")
    try:
        user.execute("SET SESSION AUTHORIZATION setter")
        assert outcome(user, SET, "a", True) == "42501: permission denied for foreign-data wrapper pg_herald"
        put(admin, z=True)
        assert outcome(user, SET, "a", True) == "42501: must be owner of foreign server pg_herald"
        assert outcome(user, SET, "z", None) == "42501: must be owner of foreign server pg_herald"
        user.execute("BEGIN")
        put(user, z=True, y=None)  # which changes nothing
        admin.execute("SET lock_timeout = '15s'")
        put(admin, z=False)
        put(admin, z=True)
        user.execute("COMMIT")
        assert rows(user) == {"z": True} and is_logged(user, "z") == [True]
        put(admin, z=None)
        admin.execute("GRANT USAGE ON FOREIGN DATA WRAPPER pg_herald TO setter")
        user.execute("""
            CREATE FUNCTION app.never(boolean, boolean) RETURNS boolean LANGUAGE plpgsql AS
                $$ BEGIN RAISE 'this must not be called'; END $$;
            CREATE FUNCTION app.never(text, text) RETURNS boolean LANGUAGE plpgsql AS
                $$ BEGIN RAISE 'this must not be called'; END $$;
            CREATE OPERATOR app.= (LEFTARG = boolean, RIGHTARG = boolean, FUNCTION = app.never);
            CREATE OPERATOR app.= (LEFTARG = text, RIGHTARG = text, FUNCTION = app.never);
            SET search_path = app, pg_catalog""")
        put(user, a=True)
        put(user, a=False, b=True)
        put(user, b=None)
        assert rows(user) == {"a": False}
        assert one(user, "SELECT current_setting('search_path')") == "app, pg_catalog"
        admin.execute("REVOKE USAGE ON FOREIGN DATA WRAPPER pg_herald FROM setter")
        put(user, c=True)
        put(admin, c=None)
        put(user, a=None)
        assert outcome(user, SET, "a", True).startswith("42501")
    finally:
        user.close()
        admin.execute("DROP OWNED BY setter CASCADE; DROP ROLE setter")


def test_security_definer_and_search_path(open_one):
    """Guards: a function that sets channels for a role that may not, as an administrator may write one."""
    admin, user = open_one(), open_one()
    admin.execute("CREATE ROLE caller; CREATE FUNCTION log_it(text) RETURNS void LANGUAGE sql SECURITY DEFINER"
                  " SET search_path = '' AS 'SELECT herald.set_channel($1, true)'")
    try:
        user.execute("SET SESSION AUTHORIZATION caller; SELECT log_it('a')")
        assert is_logged(user, "a") == [True]
    finally:
        user.close()
        admin.execute("DROP ROLE caller")


# ---- other servers ----

def test_settings_on_a_standby(decoding, open_one, connect):
    """Guards: a standby has the primary's settings, in sessions that are open as well, and cannot change them; promoted,
    it can."""
    session = open_one()
    put(session, a=True)
    standby = Standby(decoding)
    standby.installation = decoding.installation
    with standby:
        reader = connect(standby, "of_settings")
        until(lambda: is_logged(reader, "a", "b") == [True, False], "the setting is there")
        put(session, a=False, b=True)
        until(lambda: has_replayed(standby), "the standby has the change")
        assert is_logged(reader, "a", "b") == [False, True]
        assert outcome(reader, SET, "a", True) == "25006: cannot execute herald.set_channel() during recovery"
        session.execute("DROP EXTENSION pg_herald CASCADE")
        until(lambda: has_replayed(standby), "the standby has dropped the extension")
        assert is_logged(reader, "a", "b") == [False, False]
        session.execute("CREATE EXTENSION pg_herald")
        put(session, c=True)
        until(lambda: has_replayed(standby), "the standby has the new settings")
        assert is_logged(reader, "a", "b", "c") == [False, False, True]
        standby.psql("SELECT pg_promote()")
        put(reader, c=False)
        assert is_logged(reader, "c") == [False]
        reader.close()


@pytest.fixture(scope="module")
def elsewhere(stop_points):
    """Another server with stop points."""
    for cluster in started(preload=True, pg_config=stop_points, settings=SETTINGS):
        cluster.psql("DROP EXTENSION pg_herald")
        yield cluster


@pytest.mark.parametrize("options", [("--format=plain",), ("--format=plain", "--schema-only"), ("--format=custom",)],
                         ids=["plain", "schema only", "custom"])
def test_dump_of_settings(decoding: Cluster, elsewhere: Cluster, open_one, connect, tmp_path, options):
    """Guards: a dump contains the settings, also one without data; restored on another server, with --clean too, they
    count there."""
    put(open_one(), {"job*": True, 'a "quoted" \\ name\t*': True}, a=True, job_quiet=False)
    archive = str(tmp_path / "archive")
    decoding.client("pg_dump", *options, "-f", archive, "of_settings")
    elsewhere.psql("CREATE DATABASE target")
    try:
        if "--format=plain" in options:
            elsewhere.client("psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-f", archive, dbname="target")
        else:
            for more in ((), ("--clean", "--if-exists")):
                elsewhere.client("pg_restore", "--exit-on-error", "--single-transaction", *more, "-d", "target", archive)
        session = connect(elsewhere, "target")
        assert rows(session) == rows(open_one())
        if "--schema-only" in options:
            session.execute(FUNCTIONS.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"))
        assert is_logged(session, "a", "job", "job2", "job_quiet", 'a "quoted" \\ name\tx', "b") == \
            [True, True, True, False, True, False]
        session.execute(SET, ("a", None))
        assert is_logged(session, "a") == [False]
    finally:
        elsewhere.psql("DROP DATABASE target WITH (FORCE)")


def test_copy_of_a_database(decoding, open_one, connect):
    """Guards: a database that is made from another one has its settings, and changes them by itself."""
    put(open_one(), a=True)
    decoding.psql("SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity WHERE datname = 'of_settings'")
    decoding.psql("CREATE DATABASE copied TEMPLATE of_settings")
    try:
        copied = connect(decoding, "copied")
        assert is_logged(copied, "a") == [True]
        put(copied, a=None, b=True)
        assert is_logged(copied, "a", "b") == [False, True]
        assert is_logged(open_one(), "a", "b") == [True, False]
    finally:
        decoding.psql("DROP DATABASE copied WITH (FORCE)")
