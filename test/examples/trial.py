"""A trial for a consumer of docs/resume.md: it is disconnected in every way, while orders arrive.

    with Trial(cluster, "trial_of_pgx") as trial:
        trial.run(["consumer"], folder)

Each order must be handled once, in the order of the commits.
"""

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from harness import cleanup
from harness.prefix import TOP
from harness.tcp_cluster import TcpCluster
from proxy import Proxy

EXAMPLES = TOP / "examples"
DEADLINE_S = 60
POLL_S = 0.05
ROUNDS = 2  # how often each way to break a connection is used
NOTICED_AFTER_S = 0.5
LATE_S = 0.7
PAUSE_S_MAX = 0.2
ROWS_MAX = 20
BURST_ROWS = 300
BURST_ONE_OF = 20

# Every attempt to write a bill counts, even one that ON CONFLICT would hide.
AUDIT = """
    CREATE TABLE attempt (number bigint GENERATED ALWAYS AS IDENTITY, order_id bigint);
    CREATE FUNCTION bill_audit() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO attempt (order_id) VALUES (NEW.order_id); RETURN NEW; END $$;
    CREATE TRIGGER bill_audit BEFORE INSERT ON bill FOR EACH ROW EXECUTE FUNCTION bill_audit();
    """
IN_ORDER = "SELECT string_agg(order_id::text, ' ' ORDER BY number) FROM attempt WHERE number > {}"
SENT = "SELECT string_agg(payload, ' ' ORDER BY ordinality) FROM herald.read('orders', '{}', 1000000) WITH ORDINALITY"
OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND application_name <> 'psql'" \
         " AND backend_type = 'client backend'"


class TrialError(Exception):
    """The consumer did not behave correctly."""


class Consumer:
    """A program that runs until it is killed; it must not end by itself."""

    def __init__(self, command: list[str], environment: dict[str, str], log: Path):
        self.command, self.environment, self.log = command, environment, log
        self.process: subprocess.Popen | None = None

    def __enter__(self) -> "Consumer":
        self.start()
        return self

    def __exit__(self, *_exception) -> None:
        self.kill()

    def start(self) -> None:
        """Starts it, in a process group of its own."""
        cleanup.at_end(self.kill)
        with cleanup.deferred_signals(), open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            env=self.environment, cwd=self.log.parent, start_new_session=True)

    def restart(self) -> None:
        """Kills it, and starts it again."""
        self.kill()
        self.start()

    def kill(self) -> None:
        """Kills it with all its processes."""
        cleanup.cancel(self.kill)
        with cleanup.deferred_signals():
            if self.process:
                try:
                    os.killpg(self.process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                self.process.wait()
                self.process = None

    def said(self) -> str:
        """The end of its output."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-2000:]

    def check(self) -> None:
        """TrialError if it has ended."""
        if self.process and self.process.poll() is not None:
            raise TrialError(f"the consumer has ended with {self.process.returncode}:\n{self.said()}")

    def until(self, condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> None:
        """Waits for a condition while the consumer runs."""
        end = time.monotonic() + deadline_s
        while not condition():
            self.check()
            if time.monotonic() > end:
                raise TrialError(f"not within {deadline_s} s: {what}\n{self.said()}")
            time.sleep(POLL_S)


class Trial:
    """A database with the tables of the examples, and everything that is done to a consumer there.

    by_hand     the consumer has no client package, and keeps its position in the table of examples/progress.sql
    """

    def __init__(self, cluster: TcpCluster, dbname: str, by_hand: bool = False):
        self.cluster, self.dbname, self.random = cluster, dbname, random.Random(dbname)
        self.setup = ["setup.sql", *(["progress.sql"] if by_hand else [])]
        self.store = "progress" if by_hand else "herald_consumer"  # the table with one position
        self.stopped = threading.Event()
        self.problem: Exception | None = None

    def __enter__(self) -> "Trial":
        self.cluster.psql(f"CREATE DATABASE {self.dbname}")
        self.cluster.create_herald(self.dbname)
        self.psql("".join((EXAMPLES / name).read_text(encoding="utf-8") for name in self.setup) + AUDIT)
        return self

    def __exit__(self, *_exception) -> None:
        self.stopped.set()
        self.cluster.psql(f"DROP DATABASE {self.dbname} WITH (FORCE)")

    def psql(self, sql: str) -> str:
        """Runs statements in the trial's database."""
        return self.cluster.psql(sql, self.dbname, DEADLINE_S)

    def environment(self, port: int) -> dict[str, str]:
        """The connection parameters of a program: for libpq and similar ones, and for JDBC."""
        environment = self.cluster.tcp_environment(port, self.dbname)
        return environment | {
            "PYTHONUNBUFFERED": "1",
            "JDBC_URL": "jdbc:postgresql://{PGHOST}:{PGPORT}/{PGDATABASE}?user={PGUSER}&password={PGPASSWORD}".format(
                **environment)}

    def run(self, command: list[str], folder: Path) -> int:
        """Runs a consumer through the whole trial; TrialError if something is wrong. Returns the number of orders."""
        self.order(3)
        with Proxy(self.cluster.port) as proxy, \
                Consumer(command, self.environment(proxy.port), folder / "log") as consumer:
            self.until(consumer, self.position, "it stores its first position")
            if (handled := self.psql(IN_ORDER.format(0))) != "1 2 3":
                raise TrialError(f"of what was there before it started, it handled {handled!r}")
            before = self.psql("SELECT max(number) FROM attempt")
            sent = self.under_a_flow(lambda: self.break_connections(consumer, proxy))
            self.until(consumer, "SELECT NOT EXISTS (SELECT id FROM orders EXCEPT SELECT order_id FROM bill)",
                       "it handles all orders")
            check_same(self.psql(IN_ORDER.format(before)).split(), sent, consumer)
            self.knows_what_is_gone(consumer)
            return int(self.psql("SELECT count(*) FROM orders"))

    # ---- the parts ----

    def knows_what_is_gone(self, consumer: Consumer) -> None:
        """Makes the consumer miss a notification that cannot be read again; it must read the state, and continue."""
        consumer.kill()
        self.psql("SET herald.enabled = off; INSERT INTO orders (item) VALUES ('missed')")
        consumer.start()
        for _ in range(2):
            self.until(consumer, "SELECT (SELECT max(id) FROM orders) = (SELECT max(order_id) FROM bill)",
                       "it handles what was missed, and what comes then")
            self.order(1)

    def under_a_flow(self, disturb: Callable[[], None]) -> list[str]:
        """Calls `disturb` while orders arrive; returns the payloads sent, in the order of the commits."""
        start = self.psql("SELECT herald.position()")
        self.stopped.clear()
        sender = threading.Thread(target=self.send, args=(random.Random(self.random.random()),), daemon=True)
        sender.start()
        try:
            disturb()
        finally:
            self.stopped.set()
            sender.join(DEADLINE_S)
        if self.problem:
            raise self.problem
        return self.psql(SENT.format(start)).split()

    def send(self, dice: random.Random) -> None:
        """Sends orders, a few in each transaction, and sometimes many."""
        try:
            while not self.stopped.wait(dice.uniform(0, PAUSE_S_MAX)):
                self.order(BURST_ROWS if dice.randrange(BURST_ONE_OF) == 0 else dice.randint(1, ROWS_MAX))
        except Exception as problem:  # pylint: disable=broad-exception-caught
            self.problem = problem

    def order(self, rows: int) -> None:
        """Inserts orders in one transaction."""
        self.psql(f"INSERT INTO orders (item) SELECT 'pen' FROM generate_series(1, {rows})")

    def break_connections(self, consumer: Consumer, proxy: Proxy) -> None:
        """Breaks the consumer's connections in all ways, in random order."""
        def delay_commit() -> None:
            proxy.delay_commit(b"INTO bill", LATE_S)

        for way in self.any_order(self.ways(consumer, proxy) + [delay_commit]):
            before = self.listeners()
            time.sleep(self.random.uniform(0, 0.5))
            way()
            self.until(consumer, lambda: self.listeners() - before, "it listens again")
            if way in (delay_commit, consumer.restart):
                # The next break must not undo the progress after a late COMMIT, nor end a program that is still starting.
                at = self.position()
                self.until(consumer, lambda: self.position() != at, "it goes on")

    def any_order(self, ways: list[Callable]) -> list[Callable]:
        """The ways in random order, each ROUNDS times."""
        return [way for _ in range(ROUNDS) for way in self.random.sample(ways, len(ways))]

    def ways(self, consumer: Consumer, proxy: Proxy) -> list[Callable]:
        """The ways to break a connection."""
        return [self.terminate, lambda: proxy.delay_end(self.terminate_behind, NOTICED_AFTER_S), consumer.restart,
                proxy.reset, lambda: proxy.desert(NOTICED_AFTER_S), lambda: proxy.tear(self.random.randrange(1, 20000))]

    def terminate(self) -> None:
        """Ends the server processes of the consumer."""
        self.psql(f"SELECT pg_terminate_backend(pid) {OTHERS}")

    def terminate_behind(self) -> None:
        """Ends them while the consumer still has many received notifications to handle."""
        self.psql("DO $$BEGIN FOR n IN 1..100 LOOP INSERT INTO orders (item) VALUES ('pen'); COMMIT; END LOOP; END$$")
        self.terminate()

    def position(self) -> str:
        """The position that the consumer has stored; "" if there is none. Its package has to make the table."""
        is_there = self.psql(f"SELECT to_regclass('{self.store}') IS NOT NULL") == "t"
        return self.psql(f"SELECT position FROM {self.store}") if is_there else ""

    def listeners(self) -> set[str]:
        """The server processes that listen for the consumer."""
        return set(self.psql(f"SELECT pid FROM herald.listeners WHERE pid IN (SELECT pid {OTHERS})").split())

    def until(self, consumer: Consumer, condition: str | Callable[[], object], what: str) -> None:
        """Waits for a condition in SQL or Python, while the consumer runs."""
        consumer.until(lambda: self.psql(condition) == "t" if isinstance(condition, str) else condition(), what)


def check_same(handled: list[str], sent: list[str], consumer: Consumer) -> None:
    """TrialError with the first difference, if the lists differ."""
    if handled == sent:
        return
    at = next((n for n, pair in enumerate(zip(handled, sent)) if pair[0] != pair[1]), min(len(handled), len(sent)))
    raise TrialError(f"{len(sent)} orders were sent, {len(handled)} were handled; from number {at} on these were"
                     f" handled: {handled[at:at + 5]}, instead of {sent[at:at + 5]}\n{consumer.said()}")
