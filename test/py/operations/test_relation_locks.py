"""Locks of relations: while one session reads our views or the catalogs of extensions and of foreign servers, and another one waits
to drop or rebuild what is read, no other session waits. None does on a stock server, where the same runs."""

import threading
from collections.abc import Callable
from contextlib import contextmanager

import psycopg
import pytest

from faults import Doing, pid_of
from harness.cluster import Cluster
from owner import is_logged, set_channels
from servers import has_herald
from support import DEADLINE_S, hear_until, notify, one, outcome, until

pytestmark = pytest.mark.seam

DATABASE = "of_locks"
PATIENCE_S = 10  # much longer than any of the steps takes by itself
CATALOGS = ["pg_extension", "pg_foreign_server", "pg_foreign_data_wrapper"]
READ = ["herald.stats", "herald.channel_settings", "herald.queue"]
TABLE = """
    CREATE TABLE item (id integer);
    CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_notify('c', 'trigger'); RETURN NEW; END $$;
    CREATE TRIGGER tell AFTER INSERT ON item FOR EACH ROW EXECUTE FUNCTION tell()"""

# Statements that wait for the reader.
WAITING = {
    "DROP EXTENSION": "DROP EXTENSION pg_herald CASCADE",
    **{f"VACUUM FULL {name}": f"VACUUM FULL {name}" for name in CATALOGS},
    "REINDEX": "REINDEX TABLE pg_foreign_server",
}

# Transactions that hold such locks.
HOLDING = {
    "catalogs": [f"LOCK TABLE {', '.join(CATALOGS)} IN ACCESS EXCLUSIVE MODE"],
    "views": [f"LOCK TABLE {', '.join(READ)} IN ACCESS EXCLUSIVE MODE"],
    "settings": ["SELECT herald.set_channel('uncommitted', true)", "ALTER SERVER pg_herald OPTIONS (SET logged '{orders,b}')"],
    "DROP EXTENSION": ["DROP EXTENSION pg_herald CASCADE"],
    "CREATE EXTENSION": ["DROP EXTENSION pg_herald CASCADE", "CREATE EXTENSION pg_herald", "SELECT herald.set_channel('orders', true)"],
}
OF_OURS = {"DROP EXTENSION", "views", "settings", "CREATE EXTENSION"}


def on_both(names: dict[str, object]) -> list[tuple[str, str]]:
    """The servers and these: those that a stock server has, and all with pg_herald."""
    return [(server, name) for server in ("stock", "pg_herald") for name in names if server != "stock" or name not in OF_OURS]


class Site:
    """The sessions of a test, all open before the locks are taken."""

    def __init__(self, server: Cluster, connect: Callable[..., psycopg.Connection]):
        self.server = server
        self.open_one = lambda: connect(server, DATABASE)
        self.watcher = connect(server)
        self.admin, self.reader, self.blocked, self.listener, self.sender, self.idle = (self.open_one() for _ in range(6))
        self.leaving, self.ended = self._to_leave(), self._to_leave()
        self.sent: list[str] = []
        self.listener.execute("LISTEN c; LISTEN orders")
        self.sender.execute("PREPARE tell AS SELECT pg_notify('c', 'prepared'); EXECUTE tell")
        notify(self.sender, "orders", "before")
        if has_herald(server):
            set_channels(self.admin, late=True)  # no session has read this yet
        assert hear_until(self.listener, "before") == ["prepared"]

    def _to_leave(self) -> psycopg.Connection:
        session = self.open_one()
        session.execute("CREATE TEMP TABLE gone (id integer); CREATE INDEX ON gone (id); LISTEN c; NOTIFY x")
        return session

    def read(self) -> None:
        """The reader's transaction reads whatever can be read, and stays open."""
        self.reader.execute("BEGIN")
        for name in CATALOGS + READ * has_herald(self.server):
            self.reader.execute(f"SELECT * FROM {name}")

    @contextmanager
    def waiting(self, sql: str):
        """Within the block, a statement waits for the reader."""
        self.read()
        doing = Doing(self.blocked, sql)
        until(lambda: one(self.watcher, "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s", pid_of(self.blocked)),
              "it is blocked")
        assert one(self.watcher, "SELECT pg_blocking_pids(%s)", pid_of(self.blocked)) == [pid_of(self.reader)]
        yield
        assert doing.runs(), "it was not blocked all the time"
        self.reader.execute("COMMIT")
        error = doing.end()
        assert error is None, error

    @contextmanager
    def holding(self, statements: list[str]):
        """Within the block, a transaction has run these statements."""
        self.blocked.execute("BEGIN")
        for sql in statements:
            self.blocked.execute(sql)
        yield
        self.blocked.execute("COMMIT")

    def does_not_wait(self, what: str, step: Callable[[], object]) -> None:
        """Takes a step, which must end."""
        errors = []

        def run() -> None:
            try:
                step()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), f"waits: {what}; {self._waits()}"
        assert errors == [], f"{what}: {errors}"

    def _waits(self) -> list[tuple]:
        """All that wait for a lock, and what for."""
        return self.watcher.execute(
            "SELECT a.pid, a.query, l.locktype, l.relation, l.mode, l.classid FROM pg_stat_activity a"
            " JOIN pg_locks l ON l.pid = a.pid AND NOT l.granted").fetchall()

    def tell(self, session: psycopg.Connection, sql: str, channel: str, payload: str) -> None:
        """Notifies in some way."""
        session.execute(sql.format(channel=channel, payload=payload))
        self.sent.append(payload)

    def end_session(self) -> None:
        """A session that listens, and has a temporary table, leaves."""
        pid = pid_of(self.leaving)
        self.leaving.close()
        until(lambda: not one(self.watcher, "SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid), "it has gone", PATIENCE_S)

    def end_by_force(self) -> None:
        """A session of this kind is ended by an administrator."""
        assert one(self.watcher, "SELECT pg_terminate_backend(%s, %s)", pid_of(self.ended), 1000 * PATIENCE_S)

    def read_again(self, session: psycopg.Connection) -> None:
        """Reads from a position, which needs the settings: where these are locked, that is an error instead of a wait."""
        result = outcome(session, "SELECT payload FROM herald.read('orders', herald.position())")
        assert result == [(None,)] or result == "55P03: could not read the settings of channels", result

    def nobody_waits(self) -> None:
        """Everything that an application does, in sessions that are open and in new ones."""
        for name, session in (("open", self.sender), ("idle", self.idle)):
            self._application(name, session)
        fresh = []
        for name, sql in (("function", "SELECT pg_notify('{channel}', '{payload}')"), ("statement", "NOTIFY {channel}, '{payload}'"),
                          ("expression", "DO $$ DECLARE nothing text; BEGIN nothing := pg_notify('{channel}', '{payload}'); END $$")):
            self.does_not_wait("a new session begins", lambda: fresh.append(self.open_one()))
            self.does_not_wait(f"first of all: {name}", lambda n=name, s=sql: self.tell(fresh[-1], s, "orders", f"new {n}"))
        self.does_not_wait("a new session begins", lambda: fresh.append(self.open_one()))
        self.does_not_wait("first of all: LISTEN", lambda: fresh[-1].execute("LISTEN other; UNLISTEN *"))
        self._application("new", fresh[-1])
        if has_herald(self.server):
            assert is_logged(self.server, fresh[-1], "orders", "late") == [True, True]
            self.sent.append("is this logged?")
        self.does_not_wait("exit", self.end_session)
        self.does_not_wait("pg_terminate_backend", self.end_by_force)

    def _application(self, name: str, session: psycopg.Connection) -> None:
        steps = {
            "LISTEN": "LISTEN other",
            "SELECT": "SELECT count(*) FROM item",
            "usage": "SELECT pg_notification_queue_usage()",
            "UNLISTEN": "UNLISTEN other",
            "INSERT": "INSERT INTO item VALUES (1)",
            "tables": "CREATE TABLE mine (id integer); DROP TABLE mine",
            "temporary tables": "CREATE TEMP TABLE passing (id integer) ON COMMIT DROP; CREATE TEMP TABLE other (id integer); DROP TABLE other",
            "savepoints": "BEGIN; SAVEPOINT s; SELECT pg_notify('c', 'never'); ROLLBACK TO s; COMMIT",
        }
        if has_herald(self.server):
            steps |= {"position": "SELECT herald.position()", "listen": "SELECT herald.listen('other')",
                      "herald.pg_notify": "SELECT herald.pg_notify('x', 'x')"}
        for step, sql in steps.items():
            self.does_not_wait(f"{name}: {step}", lambda s=sql: session.execute(s))
            if step == "INSERT":
                self.sent.append("trigger")
        if has_herald(self.server):
            self.does_not_wait(f"{name}: read", lambda: self.read_again(session))
        for channel in ("c", "orders", "late"):
            for form in ("SELECT pg_notify('{channel}', '{payload}')", "NOTIFY {channel}, '{payload}'",
                         "BEGIN; INSERT INTO quiet VALUES (1); NOTIFY {channel}, '{payload}'; COMMIT"):
                payload = f"{name} {channel} {form.split(' ', 1)[0]}"
                self.does_not_wait(payload, lambda c=channel, f=form, p=payload: self.tell(session, f, c, p))

    def everything_came(self) -> None:
        """The listener has received all that it was sent, once, in order; and what is sent now."""
        notify(self.sender, "c", "end")
        assert hear_until(self.listener, "end") == [payload for payload in self.sent if " late " not in payload]


@pytest.fixture
def site(request, connect):
    """A server with a database for the test, where the channel orders is logged if it can be."""
    server = request.getfixturevalue("stock" if request.param == "stock" else "cluster")
    server.psql(f"CREATE DATABASE {DATABASE}")
    server.psql(TABLE + "; CREATE TABLE quiet (id integer)", DATABASE)
    if has_herald(server):
        server.create_herald(DATABASE)
        server.psql("SELECT herald.set_channel('orders', true)", DATABASE)
    yield Site(server, connect)
    server.psql(f"DROP DATABASE {DATABASE} WITH (FORCE)", timeout_s=DEADLINE_S)


@pytest.mark.parametrize("site, waiting", on_both(WAITING), indirect=["site"])
def test_somebody_waits(site, waiting):
    """Guards: while a statement that would lock everybody out waits for a reader, commits, LISTEN, planning, first statements,
    and the ends of sessions do not wait behind it."""
    with site.waiting(WAITING[waiting]):
        site.nobody_waits()
    site.everything_came()


@pytest.mark.parametrize("site, holding", on_both(HOLDING), indirect=["site"])
def test_somebody_holds(site, holding):
    """Guards: the same, while a transaction holds such locks."""
    with site.holding(HOLDING[holding]):
        site.nobody_waits()
    site.everything_came()
