"""All packages in one test: each has a database and clients of its own, and does the same at the same time."""

import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random

import psycopg
from psycopg import sql as names

from client import Client
from harness.cluster import SUPERUSER, Cluster
from kits import Kit
from sites import Site, Wires

HEARTBEAT_S = 1.0
NOTICE_DEADLINE_S = 2 * HEARTBEAT_S + 3  # two heartbeats; the rest is for a machine that is busy with all packages
DEADLINE_S = 60
POLL_S = 0.05
SUITE = "suite"  # our own application_name
PAUSE_S_MAX = 0.1
ROWS_MAX = 5

SETUP = """
CREATE TABLE orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE FUNCTION orders_notify() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM pg_notify('orders', NEW.id::text); RETURN NULL; END $$;
CREATE TRIGGER orders_notify AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION orders_notify();
CREATE TABLE bill (
    order_id bigint PRIMARY KEY, by text NOT NULL, handled int NOT NULL DEFAULT 1,
    at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE dead_letter (payload text NOT NULL, error text NOT NULL);
CREATE TABLE herald_consumer (
    name text PRIMARY KEY, position text, epoch bigint NOT NULL DEFAULT 0, changed_at timestamptz NOT NULL DEFAULT now());
"""
OTHERS = f"FROM pg_stat_activity WHERE datname = current_database() AND application_name <> '{SUITE}'" \
         " AND backend_type = 'client backend'"
WORKS = "pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted)"
WAITS_FOR_TABLE = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'relation'"
# Two listening connections may be there for a moment: one that is broken, and its successor.
LISTENS = f"NOT {WORKS}"

ACTIVITY = """SELECT pid, application_name, state, wait_event_type, wait_event, pg_blocking_pids(pid)::text, clock_timestamp() - backend_start,
    clock_timestamp() - xact_start, clock_timestamp() - state_change, query FROM pg_stat_activity WHERE datname = current_database()"""
STANDBYS = """SELECT application_name, sync_state, state, pg_current_wal_flush_lsn(), flush_lsn, replay_lsn, clock_timestamp() - backend_start
    FROM pg_stat_replication"""

MISSING = "SELECT id FROM orders EXCEPT SELECT order_id FROM bill"
DOUBLED = "SELECT order_id FROM bill WHERE handled > 1 OR by = 'handle' AND handled <> 1"
FOREIGN = "SELECT order_id FROM bill EXCEPT SELECT id FROM orders"


class CrewError(AssertionError):
    """Some packages did not do what they have to."""


class Case:
    """One package in a test.

    client      the client that was started last
    listening   the proxies of its listening connections, and `work` those of its work connections: see wire()
    """

    def __init__(self, kit: Kit, site: Site, dbname: str, folder: Path, stack: ExitStack):
        self.kit, self.site, self.dbname, self.folder = kit, site, dbname, folder
        self.client: Client | None = None
        self.clients: list[Client] = []
        self.listening: Wires | None = None
        self.work: Wires | None = None
        self._stack = stack
        self._lock = threading.Lock()
        self._connection: psycopg.Connection | None = None
        self._port = 0

    # ---- the database ----

    def create(self) -> None:
        """Makes the database."""
        with psycopg.connect(self.conninfo("postgres"), autocommit=True) as connection:
            connection.execute(names.SQL("CREATE DATABASE {}").format(names.Identifier(self.dbname)))
        if self.site.has_herald:
            self.sql("CREATE EXTENSION pg_herald")
        self.sql(SETUP)
        if self.site.is_logged:
            self.sql("SELECT herald.set_channel('orders', true)")

    def until_positions_are_good(self) -> None:
        """Waits until a position that the primary gives is good for a server that has to read the WAL, as one is after a restart
        or a failover. One from the second after a change of a channel's setting is not: docs/logged-channels.md. The standby, which
        reads nothing but the WAL, is asked."""
        standby = next(node for node in self.site.nodes if node is not self.site.primary)
        end = time.monotonic() + DEADLINE_S
        while True:
            after = self.one("SELECT herald.position()")
            problem: object = "the standby's answer is false"
            try:
                with psycopg.connect(self._conninfo_of(standby), autocommit=True) as connection:
                    with connection.transaction(force_rollback=True):
                        (is_good,), = connection.execute("SELECT herald.listen('orders', after => %s)", [after])
                if is_good:
                    return
            except psycopg.Error as error:  # the standby has not replayed that there is a database, or a logged channel
                problem = error
            assert time.monotonic() < end, f"no position is good: {problem}"
            time.sleep(POLL_S)

    def drop(self) -> None:
        """Ends what runs there, and drops the database."""
        for client in self.clients:
            client.kill()
        if self._connection:
            self._connection.close()
        with psycopg.connect(self.conninfo("postgres"), autocommit=True) as connection:
            connection.execute(names.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(names.Identifier(self.dbname)))

    def conninfo(self, dbname: str | None = None) -> str:
        """How we connect: to the present primary, past all proxies."""
        return self._conninfo_of(self.site.primary, dbname)

    def _conninfo_of(self, server: Cluster, dbname: str | None = None) -> str:
        return f"host={server.socket_folder} port={server.port} user={SUPERUSER} dbname={dbname or self.dbname}" \
               f" application_name={SUITE}"

    def sql(self, statement: str, *parameters: object) -> list[tuple]:
        """The rows of a statement on the present primary; while there is none, it waits. A statement whose connection breaks is
        executed again."""
        end = time.monotonic() + DEADLINE_S
        with self._lock:
            while True:
                try:
                    if self._connection is None or self._connection.closed or self._port != self.site.primary.port:
                        self._connect()
                    cursor = self._connection.execute(statement, parameters or None)
                    return cursor.fetchall() if cursor.description else []
                except psycopg.OperationalError:
                    is_there = self._connection and not self._connection.closed
                    if is_there or time.monotonic() > end:
                        raise
                time.sleep(POLL_S)

    def _connect(self) -> None:
        """Connects to the present primary."""
        if self._connection:
            self._connection.close()
            self._connection = None
        port = self.site.primary.port
        self._connection, self._port = psycopg.connect(self.conninfo(), autocommit=True), port

    def session(self) -> psycopg.Connection:
        """A connection of its own; what it has not committed is undone at the end of a `with`, which closes it."""
        return psycopg.connect(self.conninfo(), autocommit=True)

    def one(self, statement: str, *parameters: object) -> object:
        """The only value of a query."""
        (value,), = self.sql(statement, *parameters)
        return value

    def until(self, condition: Callable[[], object] | str, what: str, deadline_s: float = DEADLINE_S) -> object:
        """Waits for a condition, or a query that says true, while the client runs."""
        end = time.monotonic() + deadline_s
        while not (found := self.one(condition) if isinstance(condition, str) else condition()):
            if self.client:
                self.client.check()
                if time.monotonic() > end:
                    self.client.fail(f"not within {deadline_s:g} s: {what}")
            assert time.monotonic() < end, f"not within deadline: {what}"
            time.sleep(POLL_S)
        return found

    def activity(self) -> str:
        """What the primary's sessions of this database and its standbys do, for a message: a line each."""
        with self.session() as connection:
            return "\n".join(str(row) for query in (ACTIVITY, STANDBYS) for row in connection.execute(query))

    # ---- orders and bills ----

    def order(self, rows: int = 1) -> list[int]:
        """Inserts orders in one transaction; returns their numbers."""
        return [number for number, in self.sql(
            "INSERT INTO orders SELECT FROM generate_series(1, %s) RETURNING id", rows)]

    def until_billed(self, deadline_s: float = DEADLINE_S) -> None:
        """Waits until each order that there is now has a bill, and checks the bills."""
        last = self.one("SELECT coalesce(max(id), 0) FROM orders")
        self.until(f"SELECT NOT EXISTS ({MISSING.replace('FROM orders', f'FROM orders WHERE id <= {last}')})",
                   "each order has a bill", deadline_s)
        self.check_bills()

    def order_and_bill(self, rows: int = 1, deadline_s: float = DEADLINE_S) -> list[int]:
        """Inserts orders, and waits for their bills, which must come from notifications."""
        orders = self.order(rows)
        self.until_billed(deadline_s)
        assert self.billed_by(orders) == {"handle"}, self.sql("SELECT * FROM bill WHERE order_id = ANY (%s)", orders)
        return orders

    def billed_by(self, orders: list[int]) -> set[str]:
        """What has made the bills of these orders: "handle", "state"."""
        return {by for by, in self.sql("SELECT DISTINCT by FROM bill WHERE order_id = ANY (%s)", orders)}

    def check_bills(self) -> None:
        """No order may be billed twice, and nothing else."""
        for what, query in (("handled twice", DOUBLED), ("billed, and not ordered", FOREIGN)):
            found = [number for number, in self.sql(query)]
            assert not found, f"{len(found)} orders were {what}: {found[:10]}"

    def check_ledger(self) -> None:
        """Each order must have exactly one bill; for when the clients have stopped."""
        missing = [number for number, in self.sql(MISSING)]
        assert not missing, f"{len(missing)} orders have no bill: {missing[:10]}"
        self.check_bills()

    def position(self, name: str = "billing") -> str | None:
        """The position that the store has."""
        rows = self.sql("SELECT position FROM herald_consumer WHERE name = %s", name)
        return rows[0][0] if rows else None

    def pids(self, which: str) -> list[int]:
        """The server processes of the client: LISTENS or WORKS."""
        return [pid for pid, in self.sql(f"SELECT pid {OTHERS} AND {which}")]

    def terminate(self, which: str) -> None:
        """Ends the server processes of the client: LISTENS, WORKS, or both."""
        self.sql(f"SELECT pg_terminate_backend(pid) {OTHERS} AND ({which})")

    # ---- clients ----

    def wire(self) -> None:
        """Puts proxies before the servers, for the clients that are started later."""
        self.listening, self.work = Wires(self.site), Wires(self.site)
        self._stack.callback(self.listening.remove)
        self._stack.callback(self.work.remove)

    def options(self, **others: object) -> dict:
        """The argument of a conformance program, with what most tests want; None removes an option."""
        listening, work = (self.listening.ports, self.work.ports) if self.listening else (self.site.ports, self.site.ports)
        options = {"connection": self.site.uri(self.dbname, listening), "work_connection": self.site.uri(self.dbname, work),
                   "name": "billing", "channels": ["orders"], "mode": "store", "heartbeat": HEARTBEAT_S,
                   "backoff": [0.05, 0.5], "work_timeout": 20}
        if others.get("mode") == "shared":
            options |= {"name": None, "work_connection": None}
        if self.kit.driver:
            options["driver"] = self.kit.driver
        return {name: value for name, value in (options | others).items() if value is not None}

    def start(self, environment: dict[str, str] | None = None, **others: object) -> Client:
        """Starts a client."""
        self.client = Client(self.kit.command(), self.options(**others), self.folder / f"{self.kit.name}.log",
                             self.kit.filled_environment() | (environment or {}))
        self.clients.append(self.client)
        return self.client.start()

    def listen(self, **others: object) -> Client:
        """Starts a client, and waits until it listens."""
        client = self.start(**others)
        client.wait("listening")
        return client

    def leaves(self, since: int, began: float, deadline_s: float, what: str) -> None:
        """The client must leave a connection so soon, and say why."""
        event = self.client.wait("disconnected", since)
        if not event.at - began < deadline_s:
            self.client.fail(f"{what} was noticed after {event.at - began:.1f} s, and the deadline is {deadline_s:g} s")
        assert event["error"], "it does not say why it left the connection"

    def finish(self) -> None:
        """Waits for the bills, stops the client, and checks the ledger."""
        self.until_billed()
        self.client.stop()
        self.check_ledger()


class Crew:
    """The cases of a test. A package that has failed takes no further part; leaving the `with` reports all that have failed."""

    def __init__(self, kits: list[Kit], site: Site, name: str, folder: Path):
        self._stack = ExitStack()
        self.site = site
        self.cases = [Case(kit, site, f"{name}_{kit.name.replace('-', '_')}", folder, self._stack) for kit in kits]
        self._problems: dict[str, str] = {}

    def __enter__(self) -> "Crew":
        self.each(Case.create)
        if self.site.is_logged:
            self.each(Case.until_positions_are_good)
        return self

    def __exit__(self, kind, _exception, _traceback) -> None:
        problems = dict(self._problems)
        self._problems.clear()
        for case in self.cases:
            noise = [event["line"] for client in case.clients for event in client.events("not an event")]
            if noise:
                problems.setdefault(case.kit.name, f"on stdout it wrote {noise[:3]}")
        self._stack.close()
        self.each(Case.drop)
        problems |= self._problems
        if kind is None and problems:
            texts = [f"\n==== {name}: {problem}" for name, problem in problems.items()]
            raise CrewError("\n".join([", ".join(sorted(problems)), *texts]))

    def each(self, do: Callable[[Case], object]) -> None:
        """Does something with each package, at the same time."""
        threads = [threading.Thread(target=self._try, args=(do, case)) for case in self.cases
                   if case.kit.name not in self._problems]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _try(self, do: Callable[[Case], object], case: Case) -> None:
        try:
            do(case)
        except Exception as problem:  # pylint: disable=broad-exception-caught
            where = traceback.extract_tb(problem.__traceback__)
            here = next((frame for frame in reversed(where) if Path(frame.filename).name.startswith("test_")), where[-1])
            self._problems[case.kit.name] = f"{Path(here.filename).name}:{here.lineno}: {type(problem).__name__}: {problem}"


class Flow:
    """Within the block orders arrive: transactions of one row to ROWS_MAX, with pauses, on whichever server is the primary."""

    def __init__(self, case: Case, seed: object, pause_s_max: float = PAUSE_S_MAX):
        self._case, self._dice, self._pause_s_max = case, Random(f"{seed} {case.kit.name}"), pause_s_max
        self._stopped = threading.Event()
        self._problem: Exception | None = None
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> "Flow":
        self._thread.start()
        return self

    def __exit__(self, *_exception) -> None:
        self._stopped.set()
        self._thread.join()
        if self._problem:
            raise self._problem

    def _send(self) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    self._send_while_connected()
                except psycopg.OperationalError:  # there is no primary for a moment; what it has not committed is no order
                    time.sleep(POLL_S)
        except Exception as problem:  # pylint: disable=broad-exception-caught
            self._problem = problem

    def _send_while_connected(self) -> None:
        with psycopg.connect(self._case.conninfo(), autocommit=True) as connection:
            while not self._stopped.wait(self._dice.uniform(0, self._pause_s_max)):
                connection.execute("INSERT INTO orders SELECT FROM generate_series(1, %s)", [self._dice.randint(1, ROWS_MAX)])
