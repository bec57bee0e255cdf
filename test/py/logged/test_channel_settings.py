"""Settings of channels: herald.set_channel(), and which channels are logged. Tests ask a function of the build with stop
points, which asks as a sender does before its commit."""

import json
import random
from collections.abc import Callable

import psycopg
import pytest

from faults import FUNCTIONS, Doing, Points, pid_of
from following import has_replayed
from harness.cluster import Cluster
from harness.standby import Standby
from servers import SETTINGS, need_library, started
from support import one, outcome, until

pytestmark = pytest.mark.seam

SET = "SELECT herald.set_channel(%s, %s)"
ROWS = "SELECT channel, logged FROM herald.channel_settings ORDER BY channel COLLATE \"C\""


@pytest.fixture(scope="module")
def server(stop_points):
    """A server with stop points, logical decoding and prepared transactions."""
    for cluster in started(preload=True, pg_config=stop_points, settings=SETTINGS | {
            "wal_level": "logical", "max_prepared_transactions": 2, "wal_retrieve_retry_interval": "100ms"}):
        cluster.psql(FUNCTIONS)
        yield cluster


@pytest.fixture
def open_one(server, connect):
    """open_one() opens a session in a database of this test, which has the extension and no settings."""
    server.psql("CREATE DATABASE of_settings")
    server.create_herald("of_settings")
    server.psql(FUNCTIONS, "of_settings")
    yield lambda: connect(server, "of_settings")
    server.psql("DROP DATABASE of_settings WITH (FORCE)")


@pytest.fixture
def points(server, connect):
    """The stop points of the server."""
    points = Points(connect(server))
    yield points
    points.release()


def put(session: psycopg.Connection, settings: dict[str, bool | None] | None = None, **channels: bool | None) -> None:
    """Sets these channels and prefixes."""
    for name, logged in {**(settings or {}), **channels}.items():
        session.execute(SET, (name, logged))


def is_logged(session: psycopg.Connection, *channels: str) -> list[bool]:
    """Whether these channels are logged."""
    return [one(session, "SELECT stop_is_logged(%s)", channel) for channel in channels]


def waits_for_lock(watcher: psycopg.Connection, session: psycopg.Connection) -> bool:
    """Whether a session waits for a heavyweight lock."""
    return one(watcher, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", pid_of(session))


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
    """Guards: an asterisk alone stands for all channels; a setting of false excludes some of them, null removes it."""
    session = open_one()
    put(session, {"*": True, "quiet*": False})
    assert is_logged(session, "a", "quiet", "quieter", "quie") == [True, False, False, True]
    put(session, {"quiet*": None})
    assert is_logged(session, "quiet") == [True]
    assert session.execute(ROWS).fetchall() == [("*", True)]
    put(session, {"*": None, "never set": None})
    assert session.execute(ROWS).fetchall() == [] and not one(session, "SELECT stop_any_logged()")


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


def longest_match(settings: dict[str, bool], channel: str) -> bool:
    """What the settings say, found slowly."""
    if channel in settings:
        return settings[channel]
    matching = [name for name in settings if name.endswith("*") and channel.startswith(name[:-1])]
    return bool(matching) and settings[max(matching, key=len)]


def test_a_thousand_settings(open_one):
    """Guards: a thousand settings, many of which are prefixes of others, give the same as a search of all of them."""
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
    assert dict(session.execute(ROWS).fetchall()) == settings
    channels = [channel for channel in {word(11) for _ in range(3000)} | {name.rstrip("*") for name in settings} if channel]
    for each in (session, other):
        found = dict(each.execute("SELECT channel, stop_is_logged(channel) FROM unnest(%s::text[]) channel", (channels,)).fetchall())
        assert found == {channel: longest_match(settings, channel) for channel in channels}


# ---- when it counts ----

def test_committed_changes_count(open_one):
    """Guards: a session that is open uses what has been committed, at once and whatever its snapshot shows; what is not
    committed, or was rolled back, does not count for others."""
    session, other = open_one(), open_one()
    other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM herald.channel_settings")
    assert is_logged(other, "a") == [False]
    session.execute("BEGIN")
    put(session, a=True)
    assert is_logged(session, "a") == [True] and is_logged(other, "a") == [False]
    session.execute("ROLLBACK")
    assert is_logged(session, "a") == [False] and is_logged(other, "a") == [False]
    put(session, a=True)
    assert is_logged(other, "a") == [True]
    assert one(other, "SELECT count(*) FROM herald.channel_settings") == 0
    other.execute("COMMIT")
    put(session, a=False)
    assert is_logged(other, "a") == [False] == is_logged(open_one(), "a")
    session.execute("UPDATE herald.channel SET name = 'b', logged = true")
    assert is_logged(other, "a", "b") == [False, True]
    session.execute("DELETE FROM herald.channel")
    assert is_logged(other, "a", "b") == [False, False]


def test_savepoints(open_one):
    """Guards: what is rolled back to a savepoint does not count, in this session either."""
    session, other = open_one(), open_one()
    session.execute("BEGIN")
    put(session, a=True)
    session.execute("SAVEPOINT one")
    put(session, a=False, b=True)
    assert is_logged(session, "a", "b") == [False, True]
    session.execute("ROLLBACK TO one")
    assert is_logged(session, "a", "b") == [True, False]
    put(session, c=True)
    session.execute("RELEASE one; COMMIT")
    for each in (session, other):
        assert is_logged(each, "a", "b", "c") == [True, False, True]


def test_changed_while_it_is_read(open_one, points):
    """Guards: a change that is committed while a session reads the settings counts when it has read them."""
    session, reader = open_one(), open_one()
    points.arm("settings-read", "wait", pid_of(reader))
    doing = Doing(reader, "DO $$ BEGIN ASSERT stop_is_logged('a'); END $$")
    points.waiter("settings-read")
    put(session, a=True)
    points.release("settings-read")
    assert doing.end() is None
    points.arm("settings-read", "error", pid_of(reader))
    put(session, b=True)
    assert outcome(reader, "SELECT stop_is_logged('b')") == 'XX000: error at stop point "settings-read"'
    assert is_logged(reader, "a", "b") == [True, True]


def test_extension_created_again(open_one):
    """Guards: without the extension no channel is logged; created again, it has no settings, and new ones count in the
    sessions that were open."""
    session, other = open_one(), open_one()
    for _ in range(2):
        put(session, a=True)
        assert is_logged(other, "a") == [True]
        session.execute("DROP EXTENSION pg_herald")
        assert is_logged(other, "a") == [False] and not one(other, "SELECT stop_any_logged()")
        session.execute("CREATE EXTENSION pg_herald")
        assert is_logged(other, "a") == [False]
    put(session, b=True)
    assert is_logged(other, "a", "b") == [False, True]
    session.execute("BEGIN; DROP EXTENSION pg_herald; CREATE EXTENSION pg_herald")
    put(session, c=True)
    assert is_logged(session, "b", "c") == [False, True]
    session.execute("ROLLBACK")
    for each in (session, other):
        assert is_logged(each, "b", "c") == [True, False]


def test_table_of_another_owner(open_one):
    """Guards: a table of that name that does not belong to the extension sets nothing."""
    session = open_one()
    session.execute("DROP EXTENSION pg_herald; CREATE EXTENSION pg_herald")
    session.execute("ALTER EXTENSION pg_herald DROP TABLE herald.channel")
    session.execute("ALTER TABLE herald.channel DISABLE TRIGGER ALL; INSERT INTO herald.channel VALUES ('a', true)")
    assert is_logged(session, "a") == [False]
    session.execute("ALTER EXTENSION pg_herald ADD TABLE herald.channel")
    assert is_logged(session, "a") == [True]


# ---- settings and commits do not overlap ----

def test_senders_end_under_the_old_setting(open_one):
    """Guards: a change waits before its commit for transactions that are committing under the old settings, and an open
    transaction that has changed settings does not hold them up."""
    session, sender, late, watcher = (open_one() for _ in range(4))
    session.execute("BEGIN")
    put(session, a=True)
    sender.execute("BEGIN")
    assert not one(sender, "SELECT stop_hold_settings()")
    committing = Doing(session, "COMMIT")
    until(lambda: waits_for_lock(watcher, session), "the change waits for the sender")
    assert is_logged(sender, "a") == [False]
    asking = Doing(late, "DO $$ BEGIN ASSERT stop_hold_settings(); ASSERT stop_is_logged('a'); END $$")
    until(lambda: waits_for_lock(watcher, late), "the next sender waits for the change")
    sender.execute("COMMIT")
    assert committing.end() is None and asking.end() is None


def test_sender_waits_for_a_commit(open_one, points):
    """Guards: a sender that meets the commit of a change waits, and then has the new setting; a cancel ends its wait."""
    session, sender, other, watcher = (open_one() for _ in range(4))
    points.arm("settings-alone", "wait", pid_of(session))
    changing = Doing(session, "SELECT herald.set_channel('a', true)")
    points.waiter("settings-alone")
    assert is_logged(watcher, "a") == [False]
    asking = Doing(sender, "DO $$ BEGIN ASSERT stop_hold_settings(); ASSERT stop_is_logged('a'); END $$")
    until(lambda: waits_for_lock(watcher, sender), "the sender waits for the change")
    other.execute("SET lock_timeout = '10ms'")
    assert outcome(other, "SELECT stop_hold_settings()") == "55P03: canceling statement due to lock timeout"
    points.release("settings-alone")
    assert changing.end() is None and asking.end() is None


def test_changes_come_one_by_one(open_one):
    """Guards: a second transaction that changes settings waits for the first at once, so they do not deadlock."""
    first, second, watcher = (open_one() for _ in range(3))
    first.execute("BEGIN")
    put(first, a=True)
    second.execute("BEGIN")
    changing = Doing(second, "SELECT herald.set_channel('b', true)")
    until(lambda: waits_for_lock(watcher, second), "the second waits")
    put(first, c=True)
    first.execute("COMMIT")
    assert changing.end() is None
    second.execute("COMMIT")
    assert is_logged(watcher, "a", "b", "c") == [True, True, True]


def test_dropped_during_the_wait(open_one):
    """Guards: a sender that waits while the extension is dropped, and perhaps created again, then has what is there."""
    for again, expected in (("", "false"), ("CREATE EXTENSION pg_herald; SELECT herald.set_channel('a', true)", "true")):
        session, sender, watcher = (open_one() for _ in range(3))
        session.execute("DROP EXTENSION IF EXISTS pg_herald; CREATE EXTENSION pg_herald")
        session.execute(f"BEGIN; DROP EXTENSION pg_herald; {again}")
        asking = Doing(sender, "DO $$ BEGIN"
                       f" ASSERT stop_hold_settings() = {expected} AND stop_is_logged('a') = {expected}; END $$")
        until(lambda: waits_for_lock(watcher, sender), "the sender waits")
        session.execute("COMMIT")
        assert asking.end() is None


# ---- what readers of the WAL find ----

@pytest.fixture
def messages(open_one):
    """messages() returns the settings that were written to the WAL since the last call, each transaction's as a list."""
    need_library("test_decoding")
    session = open_one()
    session.execute("SELECT pg_create_logical_replication_slot('settings', 'test_decoding')")

    def read() -> list[list[tuple[str, bool]]]:
        transactions: list[list[tuple[str, bool]]] = []
        for (line,) in session.execute("SELECT data FROM pg_logical_slot_get_changes('settings', NULL, NULL)"):
            if line.startswith("BEGIN"):
                transactions.append([])
            head, found, text = line.partition(" content:")
            if found and "prefix: pg_herald," in head:
                assert "transactional: 1" in head
                message = json.loads(text)
                assert list(message) == ["version", "kind", "run", "channel", "logged"]
                assert (message["version"], message["kind"], len(message["run"])) == (1, "setting", 16)
                transactions[-1].append((message["channel"], message["logged"]))
        return [changes for changes in transactions if changes]

    yield read
    session.execute("SELECT pg_drop_replication_slot('settings')")


def test_messages(open_one, messages: Callable):
    """Guards: the WAL has a message for each change that is committed, in its transaction; none for what is rolled back
    or changes nothing; also for changes in subtransactions, by the owner's own statements, and by replication."""
    session = open_one()
    put(session, {"orders*": True, 'a "quoted" \\ name\n': False})
    put(session, {"orders*": True})
    assert messages() == [[("orders*", True)], [('a "quoted" \\ name\n', False)]]
    session.execute("BEGIN")
    put(session, a=True)
    session.execute("SAVEPOINT one")
    put(session, b=True)
    session.execute("ROLLBACK TO one")
    put(session, c=True)
    session.execute("SAVEPOINT two")
    put(session, d=True)
    session.execute("RELEASE two; RELEASE one; COMMIT")
    session.execute("BEGIN")
    put(session, e=True)
    session.execute("ROLLBACK")
    assert messages() == [[("a", True), ("c", True), ("d", True)]]
    put(session, a=None, b=None, c=False)
    assert messages() == [[("a", False)], [("c", False)]]
    session.execute("UPDATE herald.channel SET name = 'x' WHERE name = 'd'")
    session.execute("DELETE FROM herald.channel WHERE name = 'x'")
    assert messages() == [[("x", True), ("d", False)], [("x", False)]]
    session.execute("SET session_replication_role = replica; INSERT INTO herald.channel VALUES ('r', true)")
    assert messages() == [[("r", True)]]


def test_own_notifications_follow_a_change(open_one):
    """Guards: a transaction that changes a setting and notifies commits both, in one statement too."""
    session, listener = open_one(), open_one()
    listener.execute("LISTEN a")
    session.execute("SELECT herald.set_channel('a', true), pg_notify('a', 'one')")
    session.execute("BEGIN; NOTIFY a, 'two'; SELECT herald.set_channel('a', false); COMMIT")
    assert [notice.payload for notice in listener.notifies(timeout=20, stop_after=2)] == ["one", "two"]


def test_prepare_after_a_change(open_one):
    """Guards: a transaction that has changed settings cannot be prepared; with the change rolled back it can."""
    session = open_one()
    session.execute("BEGIN")
    put(session, a=True)
    assert outcome(session, "PREPARE TRANSACTION 'settings'") == \
        "0A000: cannot PREPARE a transaction that has changed settings of channels"
    session.execute("ROLLBACK; BEGIN; CREATE TABLE item (); SAVEPOINT one")
    put(session, a=True)
    session.execute("ROLLBACK TO one; PREPARE TRANSACTION 'settings'")
    session.execute("COMMIT PREPARED 'settings'")
    assert is_logged(session, "a") == [False]


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
    """Guards: names that cannot be those of channels, by the function and by the owner's own statements."""
    session = open_one()
    for logged in (True, False, None):
        assert outcome(session, SET, name, logged) == error
    if name is not None:
        assert outcome(session, "INSERT INTO herald.channel VALUES (%s, true)", name) == error
        put(session, a=True)
        assert outcome(session, "UPDATE herald.channel SET name = %s", name) == error
        assert session.execute(ROWS).fetchall() == [("a", True)]


def test_calls_that_are_refused(open_one):
    """Guards: read-only transactions; TRUNCATE, which readers of the WAL would not notice; the trigger elsewhere."""
    session = open_one()
    put(session, a=True)
    session.execute("BEGIN READ ONLY")
    assert outcome(session, SET, "a", True) == "25006: cannot execute herald.set_channel() in a read-only transaction"
    session.execute("ROLLBACK; CREATE TABLE other (name text, logged boolean)")
    assert outcome(session, "TRUNCATE herald.channel") == '0A000: cannot truncate table "channel"'
    session.execute("CREATE TRIGGER changed AFTER INSERT ON other FOR EACH ROW EXECUTE FUNCTION herald.channel_changed()")
    assert outcome(session, "INSERT INTO other VALUES ('b', true)") == \
        '39P01: function "channel_changed" is for table herald.channel only'
    assert outcome(session, "INSERT INTO herald.channel VALUES ('b', NULL)").startswith("23502")
    assert session.execute(ROWS).fetchall() == [("a", True)]


def test_roles_and_settings(open_one):
    """Guards: all users see the settings; only a role with EXECUTE changes them, only by the function, whatever its
    search_path says; it cannot create triggers with our function."""
    admin, user = open_one(), open_one()
    admin.execute("CREATE ROLE setter; CREATE SCHEMA app AUTHORIZATION setter")
    try:
        user.execute("SET SESSION AUTHORIZATION setter")
        assert outcome(user, SET, "a", True) == "42501: permission denied for function set_channel"
        admin.execute("GRANT EXECUTE ON FUNCTION herald.set_channel TO setter")
        user.execute("""
            CREATE FUNCTION app.never(boolean, boolean) RETURNS boolean LANGUAGE plpgsql AS
                $$ BEGIN RAISE 'this must not be called'; END $$;
            CREATE OPERATOR app.<> (LEFTARG = boolean, RIGHTARG = boolean, FUNCTION = app.never);
            CREATE OPERATOR app.= (LEFTARG = boolean, RIGHTARG = boolean, FUNCTION = app.never);
            SET search_path = app, pg_catalog;
            CREATE TABLE item (name text)""")
        put(user, a=True)
        put(user, a=False, b=True)
        put(user, b=None)
        assert user.execute(ROWS).fetchall() == [("a", False)]
        for sql in ("SELECT * FROM herald.channel", "INSERT INTO herald.channel VALUES ('c', true)",
                    "DELETE FROM herald.channel", "TRUNCATE herald.channel"):
            assert outcome(user, sql) == "42501: permission denied for table channel"
        assert outcome(user, "CREATE TRIGGER changed AFTER INSERT ON item FOR EACH ROW"
                       " EXECUTE FUNCTION herald.channel_changed()") == \
            "42501: permission denied for function herald.channel_changed"
        assert one(user, "SELECT current_setting('search_path')") == "app, pg_catalog"
    finally:
        user.close()
        admin.execute("DROP OWNED BY setter CASCADE; DROP ROLE setter")


# ---- other servers ----

def test_settings_on_a_standby(server, open_one, connect):
    """Guards: a standby has the primary's settings, in sessions that are open as well, and cannot change them; promoted,
    it can."""
    session = open_one()
    put(session, a=True)
    standby = Standby(server)
    standby.installation = server.installation
    with standby:
        reader = connect(standby, "of_settings")
        until(lambda: is_logged(reader, "a", "b") == [True, False], "the setting is there")
        put(session, a=False, b=True)
        until(lambda: has_replayed(standby), "the standby has the change")
        assert is_logged(reader, "a", "b") == [False, True]
        assert outcome(reader, SET, "a", True) == "25006: cannot execute herald.set_channel() during recovery"
        session.execute("DROP EXTENSION pg_herald")
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


@pytest.mark.parametrize("kind", ["plain", "custom"])
def test_dump_of_settings(server: Cluster, elsewhere: Cluster, open_one, connect, tmp_path, kind):
    """Guards: a dump contains the settings; restored on another server, with --clean too, they count there."""
    put(open_one(), {"job*": True, 'a "quoted" \\ name\t*': True}, a=True, job_quiet=False)
    archive = str(tmp_path / "archive")
    server.client("pg_dump", f"--format={kind}", "-f", archive, "of_settings")
    elsewhere.psql("CREATE DATABASE target")
    try:
        if kind == "plain":
            elsewhere.client("psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-f", archive, dbname="target")
        else:
            for options in ((), ("--clean", "--if-exists")):
                elsewhere.client("pg_restore", "--exit-on-error", "--single-transaction", *options, "-d", "target", archive)
        session = connect(elsewhere, "target")
        assert session.execute(ROWS).fetchall() == open_one().execute(ROWS).fetchall()
        assert is_logged(session, "a", "job", "job2", "job_quiet", 'a "quoted" \\ name\tx', "b") == \
            [True, True, True, False, True, False]
        session.execute(SET, ("a", None))
        assert is_logged(session, "a") == [False]
    finally:
        elsewhere.psql("DROP DATABASE target WITH (FORCE)")


def test_dump_without_settings(server, open_one):
    """Guards: the option that the documentation names leaves the settings out of a dump."""
    put(open_one(), a=True)
    assert "COPY herald.channel" in server.client("pg_dump", "of_settings")
    assert "herald.channel" not in server.client("pg_dump", "--exclude-table-data=herald.*", "of_settings")


@pytest.fixture
def subscriber(server, open_one):
    """A database that has the extension, and subscribes to all tables of the test's database."""
    publisher = open_one()
    server.psql("CREATE DATABASE subscriber")
    server.create_herald("subscriber")
    server.psql(FUNCTIONS, "subscriber")
    publisher.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    publisher.execute("SELECT pg_create_logical_replication_slot('everything', 'pgoutput')")
    server.psql(f"""
        CREATE SUBSCRIPTION everything
            CONNECTION 'host={server.socket_folder} port={server.port} user=postgres dbname=of_settings'
            PUBLICATION everything WITH (create_slot = false, slot_name = everything, copy_data = false)""", "subscriber")
    yield "subscriber"
    server.psql("DROP SUBSCRIPTION everything", "subscriber")
    server.psql("DROP DATABASE subscriber WITH (FORCE)")


def test_subscriber_gets_settings(server, open_one, subscriber, connect):
    """Guards: where table herald.channel is replicated, settings count for the subscriber, in sessions that are open."""
    session, reader = open_one(), connect(server, subscriber)
    assert is_logged(reader, "a") == [False]
    put(session, {"a": True, "job_*": True})
    until(lambda: is_logged(reader, "a", "job_1") == [True, True], "the settings are there")
    put(session, {"a": None, "job_*": False})
    until(lambda: is_logged(reader, "a", "job_1") == [False, False], "the changes are there")
    assert reader.execute(ROWS).fetchall() == [("job_*", False)]
