"""pg_notify() where pg_herald cannot replace it, and so does not know the channel: in a database with logged channels it
fails, in others it goes through the server's own queue."""

import psycopg
import pytest

from faults import Doing
from servers import SETTINGS, need_library, started
from settings import put
from support import hear, hear_until, notify, one, outcome, until
from wal import Wal
from wire import call, error, kinds

pytestmark = pytest.mark.seam

REFUSED = "0A000: cannot call function pg_notify() here in a database with logged channels"
CHANGED = "40001: settings of channels have changed during this transaction"
OURS, BUILT_IN = "herald.pg_notify", "pg_catalog.pg_notify"

# Where a call is in no plan: a statement that prepares it, and one that calls. {0} is the function.
WAYS = {
    "CHECK": ("CREATE TABLE t (x text CHECK ({0}('u', x) IS NOT NULL))", "INSERT INTO t VALUES ('past')"),
    "CHECK in COPY": ("CREATE TABLE t (x text CHECK ({0}('u', x) IS NOT NULL))", "COPY t FROM PROGRAM 'echo past'"),
    "CHECK of a domain": ("CREATE DOMAIN d AS text CHECK ({0}('u', VALUE) IS NOT NULL)", "SELECT 'past'::d"),
    "DEFAULT in COPY": ("CREATE TABLE t (x text, y text DEFAULT {0}('u', 'past')::text)", "COPY t (x) FROM PROGRAM 'echo a'"),
    "WHEN of a trigger": (
        "CREATE TABLE t (x text); CREATE TRIGGER w BEFORE UPDATE ON t FOR EACH ROW WHEN ({0}('u', OLD.x) IS NULL)"
        " EXECUTE FUNCTION suppress_redundant_updates_trigger(); INSERT INTO t VALUES ('past')", "UPDATE t SET x = 'past'"),
    "argument of EXECUTE": ("PREPARE p (text) AS SELECT $1", "EXECUTE p ({0}('u', 'past')::text)"),
    "argument of CALL": ("CREATE PROCEDURE p(text) LANGUAGE plpgsql AS 'BEGIN END'", "CALL p({0}('u', 'past')::text)"),
}
SEEN = {
    "SELECT": ("", "SELECT {0}('u', 'past')"),
    "DEFAULT": ("CREATE TABLE t (x text, y text DEFAULT {0}('u', 'past')::text)", "INSERT INTO t VALUES ('a')"),
    "PL/pgSQL": ("", "DO $$ DECLARE x text := {0}('u', 'past')::text; BEGIN x := {0}('u', 'past')::text; END $$"),
    "rule": ("CREATE TABLE t (x text); CREATE RULE r AS ON INSERT TO t DO ALSO SELECT {0}('u', NEW.x)",
             "INSERT INTO t VALUES ('past')"),
}


@pytest.fixture(scope="module")
def server():
    yield from started(preload=True, settings=SETTINGS)


@pytest.fixture
def open_one(server, connect):
    """open_one() opens a session in a database of this test, which has the extension and no settings."""
    server.psql("CREATE DATABASE of_calls")
    server.create_herald("of_calls")
    yield lambda: connect(server, "of_calls")
    server.psql("DROP DATABASE of_calls WITH (FORCE)")


def prepared(sender: psycopg.Connection, way: tuple[str, str], function: str) -> str:
    """Prepares a way to call; returns the statement that calls."""
    if way[0]:
        sender.execute(way[0].format(function))
    return way[1].format(function)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_unseen_call(open_one, way):
    """Guards: a call that pg_herald cannot replace arrives in a database without logged channels, fails at its caller in one
    with any, whatever its channel, and arrives again when there are none; the error costs a savepoint only."""
    sender, admin, listener = open_one(), open_one(), open_one()
    listener.execute("LISTEN u")
    statement = prepared(sender, way, BUILT_IN)
    sender.execute(statement)
    assert hear(listener, 1) == ["past"]
    put(admin, other=True)
    assert outcome(sender, statement) == REFUSED
    sender.execute("BEGIN; NOTIFY u, 'before'; SAVEPOINT s")
    assert outcome(sender, statement) == REFUSED
    sender.execute("ROLLBACK TO s; NOTIFY u, 'after'; COMMIT")
    assert hear(listener, 2) == ["before", "after"]
    put(admin, other=None, unlogged=False)
    sender.execute(statement)
    assert hear(listener, 1) == ["past"]


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_our_function_instead(open_one, way):
    """Guards: in these places the function that the error names is logged, and arrives."""
    need_library("pg_walinspect")
    sender, admin, listener = open_one(), open_one(), open_one()
    admin.execute("CREATE EXTENSION pg_walinspect")
    put(admin, u=True)
    listener.execute("LISTEN u")
    statement, wal = prepared(sender, way, OURS), Wal(admin)
    sender.execute(statement)
    assert hear(listener, 1) == ["past"]
    assert [message["notifications"] for message in wal.logged()] == [[{"channel": "u", "payload": "past"}]]


@pytest.mark.parametrize("way", SEEN.values(), ids=SEEN)
def test_call_in_a_plan(open_one, way):
    """Guards: where it can be replaced, the built-in function is logged."""
    need_library("pg_walinspect")
    sender, admin, listener = open_one(), open_one(), open_one()
    admin.execute("CREATE EXTENSION pg_walinspect")
    put(admin, u=True)
    listener.execute("LISTEN u")
    statement, wal = prepared(sender, way, BUILT_IN), Wal(admin)
    sender.execute(statement)
    assert hear(listener, 1) == ["past"]
    assert [message["notifications"] for message in wal.logged()] == [[{"channel": "u", "payload": "past"}]]


def test_catalog_is_locked_meanwhile(open_one):
    """Guards: while another session has locked the catalog with the settings, a call waits for it as for any catalog, and
    then does not fail where no channel is logged."""
    sender, locker, listener = open_one(), open_one(), open_one()
    listener.execute("LISTEN u")
    sender.execute("PREPARE p (text) AS SELECT $1")
    locker.execute("BEGIN; LOCK TABLE pg_foreign_server IN ACCESS EXCLUSIVE MODE")
    call_it = "EXECUTE p (pg_notify('u', 'past')::text)"
    sender.execute("SET lock_timeout = '10ms'")
    assert outcome(sender, call_it).startswith("55P03")
    sender.execute("SET lock_timeout = 0")
    sender.pgconn.send_query(call_it.encode())
    until(lambda: one(locker, "SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s", sender.info.backend_pid) == "Lock",
          "it waits")
    locker.execute("COMMIT")
    assert sender.pgconn.get_result().status == psycopg.pq.ExecStatus.TUPLES_OK
    assert hear(listener, 1) == ["past"]


def test_unseen_fast_path(open_one, server, wire):
    """Guards: the same by the fast path, which no other hook sees."""
    client, admin, listener = wire(server, "of_calls"), open_one(), open_one()
    listener.execute("LISTEN u")
    built_in, ours = (one(admin, "SELECT %s::regproc::oid", name) for name in (BUILT_IN, OURS))
    client.send(call(built_in, "u", "past"))
    assert kinds(client.until_ready()) == "VZ"
    put(admin, other=True)
    client.send(call(built_in, "u", "refused"))
    answer = client.until_ready()
    assert kinds(answer) == "EZ" and error(answer).startswith(REFUSED[:5])
    client.send(call(ours, "u", "ours"))
    assert kinds(client.until_ready()) == "VZ"
    assert hear(listener, 2) == ["past", "ours"]


@pytest.mark.parametrize("setting", [{"u": True}, {"elsewhere": True}])
@pytest.mark.parametrize("also", ["", "NOTIFY seen"])
def test_setting_comes_meanwhile(open_one, setting, also):
    """Guards: a transaction with an unseen call from before the first channel was logged fails at its commit, in a way that
    makes clients repeat it, and sends nothing; then it fails at its call."""
    sender, admin, listener = open_one(), open_one(), open_one()
    listener.execute("LISTEN u; LISTEN seen")
    statement = prepared(sender, WAYS["argument of EXECUTE"], BUILT_IN)
    sender.execute(f"BEGIN; {also}; {statement}; {also}")
    put(admin, setting)
    assert outcome(sender, "COMMIT") == CHANGED
    assert outcome(sender, statement) == REFUSED
    notify(sender, "u", "end")
    assert hear_until(listener, "end") == []


def test_setting_goes_meanwhile(open_one):
    """Guards: only what is logged at the commit counts."""
    sender, admin, listener = open_one(), open_one(), open_one()
    listener.execute("LISTEN u")
    statement = prepared(sender, WAYS["argument of EXECUTE"], BUILT_IN)
    sender.execute(f"BEGIN; {statement}")
    put(admin, a=True)
    put(admin, a=None)
    sender.execute("COMMIT")
    assert hear(listener, 1) == ["past"]


def test_holds_up_no_setting(open_one):
    """Guards: an open transaction with an unseen call, beside notifications that are seen, holds up no change of
    settings."""
    sender, admin = open_one(), open_one()
    statement = prepared(sender, WAYS["argument of EXECUTE"], BUILT_IN)
    sender.execute(f"BEGIN; NOTIFY seen; {statement}")
    admin.execute("BEGIN")
    put(admin, a=True)
    ending = Doing(admin, "COMMIT")
    assert ending.end() is None
    assert outcome(sender, "COMMIT") == CHANGED


def test_without_the_extension(server, connect):
    """Guards: a database without the extension has none of this."""
    server.psql("CREATE DATABASE without")
    sender, listener = connect(server, "without"), connect(server, "without")
    listener.execute("LISTEN u")
    sender.execute(prepared(sender, WAYS["argument of CALL"], BUILT_IN))
    assert hear(listener, 1) == ["past"]
    sender.close()
    listener.close()
    server.psql("DROP DATABASE without WITH (FORCE)")
