"""What happens to the cluster, what its clients do meanwhile, and the account at the end."""

import re
import sys
import time
from collections.abc import Callable

import psycopg

from client import Client
from crew import DOUBLED, FOREIGN, MISSING, SETUP
from harness.prefix import TOP
from hosts import SCOPE, SETTLED_S, Host, Patroni
from senders import Sender

PAGE = TOP / "docs/rollout.md"
DATABASE = "shop"
SENDERS = 3
ORDERS_BETWEEN = 300     # between two troubles
HEARTBEAT_S = 5.0
ONLY_REASON = ["first start"]  # the one time that a client reads the table
# A consumer's longest time without a bill since a moment: how long it was, and when it ended.
GAP = """SELECT extract(epoch FROM next - at)::float, extract(epoch FROM next)::float
	FROM (SELECT at, lead(at) OVER (ORDER BY at) AS next FROM {}.bill WHERE by = 'handle' AND at >= to_timestamp(%s)) times
	WHERE next IS NOT NULL ORDER BY next - at DESC LIMIT 1"""
BEFORE_S = 5  # the last bill before the trouble is there


class Failure(AssertionError):
    """The run has found an error."""


class Consumer:
    """A client of the project's package; its bills are in a schema of its own.

    on_primary  whether it listens on the primary alone; otherwise on any host that it finds
    """

    def __init__(self, name: str, on_primary: bool):
        self.name, self.on_primary = name, on_primary
        self.client: Client | None = None

    @property
    def setup(self) -> str:
        """Its tables."""
        return f"CREATE SCHEMA {self.name}; CREATE TABLE {self.name}.bill (LIKE bill INCLUDING ALL)"

    def start(self, site: Patroni) -> None:
        """Starts it, and waits until it listens."""
        path = f"&options=-csearch_path%3D{self.name},public"
        # At first both listen on the primary: what its table shows then has not been missed. docs/resume.md
        hosts = [site.primary(), *site.standbys()]
        options = {"connection": site.uri(DATABASE, hosts, path + "&target_session_attrs=read-write" * self.on_primary),
                   "work_connection": site.uri(DATABASE, hosts, path), "name": self.name, "channels": ["orders"],
                   "driver": "psycopg" if self.on_primary else "psycopg-async", "heartbeat": HEARTBEAT_S,
                   "backoff": [0.05, 0.5]}
        self.client = Client([sys.executable, str(TOP / "clients/python/conformance.py")], options,
                             site.folder / f"{self.name}.log").start()
        self.client.wait("listening", deadline_s=SETTLED_S)


class Story:
    """One run; use run(). If the channel `is_logged` not, or one bill `is_removed`, the run must fail."""

    def __init__(self, site: Patroni, is_logged: bool, is_removed: bool):
        self.site, self.is_logged, self.is_removed = site, is_logged, is_removed
        self.consumers = [Consumer("on_primary", True), Consumer("anywhere", False)]
        self.senders = [Sender(site.uri(DATABASE, more="&target_session_attrs=read-write"), number)
                        for number in range(SENDERS)]
        self._began = time.monotonic()

    def run(self) -> None:
        """Runs it; Failure if anything is wrong."""
        try:
            self._step("stock servers", self._begin_on_stock)
            self._step("roll-out", self._roll_out)
            self._step("extension", self._create_extension)
            self._step("switchover", self._with_times(self._switch_over))
            self._step("restart in maintenance mode", self._with_times(self._restart_paused))
            self._step("failover", self._with_times(self._fail_over))
            self._step("return", self._return)
            self._step("account", self._account)
        finally:
            for consumer in self.consumers:
                if consumer.client:
                    consumer.client.kill()

    # ---- the steps ----

    def _begin_on_stock(self) -> None:
        self._sql(f"CREATE DATABASE {DATABASE}", dbname="postgres")
        self._sql(SETUP + "".join(consumer.setup + ";" for consumer in self.consumers))
        for sender in self.senders:
            sender.start()
        self._until_orders(ORDERS_BETWEEN)

    def _roll_out(self) -> None:
        """As docs/rollout.md has it."""
        since = time.time()
        self.site.edit_config(configuration())
        self._until(lambda: len(self._pending()) == len(self.site.hosts), "each member has a pending restart")
        for standby in self.site.standbys():
            self._restart(standby)
        old = self.site.primary()
        candidate = self._sync_standby()
        self.site.ctl("switchover", SCOPE, "--candidate", candidate.name, "--force")
        self.site.until_settled()
        self._until(lambda: not self._pending(), "no restart is pending")
        if self.site.primary() is old:
            raise Failure("the switchover had no effect")
        for host in self.site.hosts:
            loaded = host.psql("SHOW shared_preload_libraries")
            if loaded != "pg_herald":
                raise Failure(f"{host.name} has loaded {loaded!r}")
        self._until_orders(ORDERS_BETWEEN)
        self._say(f"no commit for {self._commit_gap(since)[0]:.1f} s")

    def _create_extension(self) -> None:
        self._sql("CREATE EXTENSION pg_herald")
        if self.is_logged:
            self._sql("SELECT herald.set_channel('orders', logged => true)")
        wal = self._sql("SELECT pg_current_wal_flush_lsn()")[0][0]
        for standby in self.site.standbys():
            self._until(lambda: standby.psql(f"SELECT pg_last_wal_replay_lsn() >= '{wal}'") == "t", f"{standby.name} has the extension")
            self._until(lambda: standby.psql(f"SELECT read_position >= '{wal}' FROM herald.relay", DATABASE) == "t",
                        f"{standby.name} relays")
        for consumer in self.consumers:
            consumer.start(self.site)
        self._until_orders(ORDERS_BETWEEN)
        self._until_billed()

    def _switch_over(self) -> None:
        """By the REST API."""
        old, candidate = self.site.primary(), self._sync_standby()
        old.ask("switchover", {"leader": old.name, "candidate": candidate.name})
        self._until(lambda: self.site.in_role("leader") is candidate, f"{candidate.name} is the primary")

    def _restart_paused(self) -> None:
        """Patroni does nothing by itself then; the primary stays what it is."""
        primary = self.site.primary()
        self.site.ctl("pause", SCOPE, "--wait")
        self.site.ctl("restart", SCOPE, primary.name, "--force")
        self.site.ctl("resume", SCOPE, "--wait")
        if self.site.primary() is not primary:
            raise Failure("another server is the primary after a restart in maintenance mode")

    def _fail_over(self) -> None:
        """kill -9 of a host, when a failover would lose nothing."""
        self.killed = self.site.primary()
        expected = self._sync_standby()
        self.killed.kill()
        self._until(lambda: self.site.in_role("leader") not in (None, self.killed), "another host is the primary")
        if self.site.primary() is not expected:
            raise Failure(f"{self.site.primary().name} is the primary, and {expected.name} was the synchronous standby")

    def _return(self) -> None:
        """The host that was killed comes back, and is of use again."""
        self.killed.start()
        self.site.until_settled()
        self._until(lambda: self.killed.psql("SELECT count(*) FROM herald.relay", DATABASE) == "1", f"{self.killed.name} relays")
        self._until_orders(ORDERS_BETWEEN)

    def _account(self) -> None:
        for sender in self.senders:
            sender.end(SETTLED_S)
        self._until_billed()
        if self.is_removed:
            self._sql(f"DELETE FROM {self.consumers[0].name}.bill WHERE order_id = (SELECT max(id) FROM orders)")
        problems = []
        for consumer in self.consumers:
            consumer.client.stop()
            for what, query in (("missing", MISSING), ("handled twice", DOUBLED), ("not in the table", FOREIGN)):
                if found := self._sql(f"SET search_path = {consumer.name}, public; {query}"):
                    problems.append(f"{consumer.name}: {len(found)} {what}, such as {found[0]}")
            if consumer.client.reasons() != ONLY_REASON:
                problems.append(f"{consumer.name} had to read the table: {consumer.client.reasons()}")
            resumed = len(consumer.client.events("listening", resumed=True))
            if not resumed:
                problems.append(f"{consumer.name} has not resumed")
            by = dict(self._sql(f"SELECT by, count(*) FROM {consumer.name}.bill GROUP BY by"))
            self._say(f"{consumer.name}: {by.get('handle', 0)} notifications handled, {by.get('state', 0)} rows read at its first start;"
                      f" resumed {resumed} times")
        acknowledged = [number for sender in self.senders for number in sender.acknowledged]
        there = {number for number, in self._sql("SELECT id FROM orders")}
        if lost := set(acknowledged) - there:
            problems.append(f"{len(lost)} orders lost after their commit")
        self._say(f"{len(there)} orders, {len(acknowledged)} acknowledged;"
                  f" {sum(sender.unanswered for sender in self.senders)} transactions without an answer")
        problems += [f"log of {host.name}: {damage}" for host in self.site.hosts if (damage := host.damage())]
        if problems:
            raise Failure("\n".join(problems))

    # ---- internals ----

    def _step(self, name: str, step: Callable[[], None]) -> None:
        began = time.monotonic()
        try:
            step()
        except Exception:
            print(f"test {name} ... FAILED after {time.monotonic() - began:.0f} s", flush=True)
            raise
        print(f"test {name} ... ok, {time.monotonic() - began:.0f} s", flush=True)

    def _with_times(self, trouble: Callable[[], None]) -> Callable[[], None]:
        """The trouble, and what it cost clients."""
        def step() -> None:
            marks = [consumer.client.mark() for consumer in self.consumers]
            since = time.time() - BEFORE_S
            trouble()
            self._until_orders(ORDERS_BETWEEN)
            self._until_billed()
            commits, again = self._commit_gap(since)
            self._say(f"no commit for {commits:.1f} s")
            for consumer, mark in zip(self.consumers, marks):
                (bills, until), = self._sql(GAP.format(consumer.name), since)
                listening = consumer.client.wait("listening", mark)
                host = next(host for host in self.site.hosts if listening["server"].endswith(f":{host.port}"))
                role = "the primary" if host is self.site.primary() else "a standby"
                self._say(f"{consumer.name} handled nothing for {bills:.1f} s, until {until - again:+.1f} s after that;"
                          f" it listens on {host.name}, {role}")
        return step

    def _commit_gap(self, since: float) -> tuple[float, float]:
        """The longest time without an acknowledged commit since a moment: how long it was, and when it ended."""
        times = sorted(at for sender in self.senders for at in tuple(sender.times) if at >= since)
        return max((after - before, after) for before, after in zip(times, times[1:]))

    def _say(self, what: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {what}", flush=True)

    def _sql(self, statement: str, *parameters: object, dbname: str = DATABASE) -> list[tuple]:
        """The rows of the last statement, on the present primary."""
        with psycopg.connect(self.site.uri(dbname, more="&target_session_attrs=read-write"), autocommit=True) as connection:
            cursor = connection.execute(statement, parameters or None)
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description else []

    def _until(self, condition: Callable[[], object], what: str):
        """Waits, while all clients run."""
        def look() -> object:
            for consumer in self.consumers:
                if consumer.client:
                    consumer.client.check()
            for sender in self.senders:
                if sender.problem:
                    raise sender.problem
            return condition()
        return self.site.until(look, what)

    def _until_orders(self, count: int) -> None:
        """Waits for as many acknowledged orders as there are now, and some."""
        wanted = sum(len(sender.acknowledged) for sender in self.senders) + count
        self._until(lambda: sum(len(sender.acknowledged) for sender in self.senders) >= wanted, f"{count} more orders")

    def _until_billed(self) -> None:
        """Waits until each consumer has billed all orders that there are now."""
        last = self._sql("SELECT max(id) FROM orders")[0][0]
        for consumer in self.consumers:
            query = f"SET search_path = {consumer.name}, public; {MISSING.replace('FROM orders', f'FROM orders WHERE id <= {last}')}"
            self._until(lambda: not self._sql(query), f"{consumer.name} has billed all orders")

    def _pending(self) -> list[str]:
        return [name for name, member in self.site.members().items() if member.get("pending_restart")]

    def _restart(self, host: Host) -> None:
        self.site.ctl("restart", SCOPE, host.name, "--force")
        self.site.until_settled()

    def _sync_standby(self) -> Host:
        """Waits until there is one; a failover to it loses nothing."""
        return self._until(lambda: self.site.in_role("sync_standby"), "there is a synchronous standby")


def configuration() -> str:
    """The piece of YAML that the page has an administrator merge into Patroni's configuration."""
    (block,) = re.findall(r"<!-- configuration: begin -->\n```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return block
