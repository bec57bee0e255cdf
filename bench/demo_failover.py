"""The demo of logged channels: the primary is killed under load, and no notification is lost. Run by ./demo failover.

A primary and a synchronous standby, a thousand rows a second in a ledger with a notification of each,
and a client. After some seconds all processes of the primary are killed; the standby is promoted, the
senders go on there, and the client resumes there after its last position. In the end the rows that the
new primary has are compared with what the client has processed.

Everything is temporary; the exit status is 0 if nothing is missing and nothing came twice.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP))

from bench import libpq  # noqa: E402
from bench.demo_failover_view import State, open_view  # noqa: E402
from bench.resuming_client import CHANNEL, Client, NotResumed  # noqa: E402
from harness.cluster import Cluster, ClusterError  # noqa: E402
from harness.installation import InstallationError  # noqa: E402
from harness.standby import Standby  # noqa: E402

SETTINGS = {"max_connections": 60, "autovacuum": False, "wal_keep_size": "512MB",
            # What a killed server leaves of this is in its folder, and goes with it.
            "dynamic_shared_memory_type": "mmap"}
SETUP = f"""
CREATE TABLE ledger (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY);
SELECT herald.set_channel('{CHANNEL}', logged => true);
"""
SEND = f"""
WITH row AS (INSERT INTO ledger DEFAULT VALUES RETURNING number)
SELECT pg_notify('{CHANNEL}', number::text) FROM row;
"""
RATE = 1000  # notifications a second
CONNECTIONS = 16  # enough for the rate on a disk that takes 8 ms for a flush
SENDERS = "senders"  # their application_name
SENDERS_RETRY_S = 0.3
BEFORE_S = 5.0
NOTICED_S = 1.0  # after that the failure of the primary counts as noticed
AFTER_S = 5.0
TICK_S = 0.1
SETTLE_S = 0.5  # for what comes although nothing is missing any more
TIMEOUT_S = 20.0
END_S = 20.0  # for what the client has not received when the senders stop


class DemoError(Exception):
    """The demo cannot go on."""


@dataclass(frozen=True)
class Outcome:
    """What the comparison of the two ledgers shows.

    unknown  numbers that the client has, but the table has not
    """

    sent: int
    received: int
    missing: int
    doubled: int
    unknown: int

    def __str__(self) -> str:
        text = f"sent {self.sent:,}, received {self.received:,}, missing {self.missing:,}, doubled {self.doubled:,}"
        return text + (f", not in the ledger {self.unknown:,}" if self.unknown else "")

    @property
    def is_right(self) -> bool:
        """Whether each was received once."""
        return self.sent > 0 and not (self.missing or self.doubled or self.unknown)


def compare(ledger: set[int], processed: Counter[int]) -> Outcome:
    """Compares the rows that survived with what the client has processed."""
    return Outcome(len(ledger), processed.total(), missing=len(ledger - processed.keys()),
                   doubled=processed.total() - len(processed), unknown=len(processed.keys() - ledger))


class Senders:
    """pgbench, which sends at a steady rate on whichever of the servers is the primary."""

    def __init__(self, *clusters: Cluster):
        where = libpq.servers(*clusters)
        self._command = [clusters[0].installation.program("pgbench"), "--no-vacuum", f"--client={CONNECTIONS}",
                         f"--rate={RATE}", "--time=3600", "--file=-"]
        self._environment = clusters[0].environment() | {
            "PGHOST": where["host"], "PGPORT": where["port"], "PGTARGETSESSIONATTRS": where["target_session_attrs"],
            "PGAPPNAME": SENDERS}
        self._process: subprocess.Popen | None = None
        self._next_s = 0.0

    def keep_running(self) -> None:
        """Starts it if it does not run; it ends when its connections break."""
        if time.monotonic() < self._next_s or self._process is not None and self._process.poll() is None:
            return
        self._next_s = time.monotonic() + SENDERS_RETRY_S
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL, env=self._environment, text=True)
        try:
            self._process.stdin.write(SEND)
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # it has not found a primary

    def stop(self) -> None:
        """Ends it; what its connections have begun may still be committed."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Show:
    """The servers, the client and the senders, and what is shown of them."""

    def __init__(self, primary: Cluster, standby: Cluster, view):
        self.primary, self.standby = primary, standby
        self.view = view
        self.client = Client(primary, standby)
        self.senders: Senders | None = None
        self.state = State()
        self._watched = self._connect(primary)
        self._begin_s = time.monotonic()
        self._resumed = 0
        self._was_connected = False

    def run(self) -> Outcome:
        """The whole story."""
        self._until(lambda: self.client.is_connected, "the client is connected")
        self._begin_s = time.monotonic()
        self._note(f"{RATE:,} commits a second begin, each with a notification")
        self.senders = Senders(self.primary, self.standby)
        try:
            self._go_on(BEFORE_S)
            self._fail_over()
            self._go_on(AFTER_S)
        finally:
            self.senders.stop()
        self.senders = None
        self._note("the senders stop")
        return self._count()

    def close(self) -> None:
        """Ends the connections."""
        self.client.close()
        self._watched.close()

    def _fail_over(self) -> None:
        self._watched.close()
        count = len(self.primary.processes()) + 1
        self.primary.kill()
        self.state.roles = ["killed", "standby"]
        self._note(f"kill -9 of all {count} processes of the primary", "kill -9")
        self._watched = self._connect(self.standby)
        self._go_on(NOTICED_S)
        self._watched.run("SELECT pg_promote(wait => false)")
        self._until(lambda: self._ask("SELECT pg_is_in_recovery()") == "f", "the standby is promoted")
        self.state.roles = ["killed", "primary"]
        self._note("the standby is promoted; the senders go on there", "the standby is promoted")
        self._until(lambda: self.client.resumed, "the client resumes")

    def _count(self) -> Outcome:
        self._until(lambda: self._ask(f"SELECT count(*) FROM pg_stat_activity WHERE application_name = '{SENDERS}'") == "0",
                    "the senders have ended")
        ledger = {int(number) for number, in self._watched.run("SELECT number FROM ledger")}
        end = time.monotonic() + END_S
        while not ledger <= self.client.processed.keys() and time.monotonic() < end:
            self._tick()
        self._go_on(SETTLE_S)
        self.view.end(self.state)
        return compare(ledger, self.client.processed)

    # ---- time ----

    def _go_on(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._tick()

    def _until(self, condition, what: str) -> None:
        """Goes on until the condition holds; DemoError if it does not."""
        end = time.monotonic() + TIMEOUT_S
        while not condition():
            if time.monotonic() > end:
                raise DemoError(f"not within {TIMEOUT_S:.0f} s: {what}")
            self._tick()

    def _tick(self) -> None:
        end = time.monotonic() + TICK_S
        while (left_s := end - time.monotonic()) > 0:
            self.client.work(left_s)
        if self.senders:
            self.senders.keep_running()
        self._note_client()
        state = self.state
        state.elapsed_s = time.monotonic() - self._begin_s
        state.sent = int(self._ask("SELECT count(*) FROM ledger"))
        state.received = self.client.processed.total()
        state.is_connected = self.client.is_connected
        state.history.append((state.elapsed_s, state.sent, state.received))
        self.view.draw(state)

    # ---- what is shown ----

    def _note_client(self) -> None:
        client = self.client
        if self._was_connected and not client.is_connected:
            forgets = f", and forgets {client.forgot:,} that came after its position" if client.forgot else ""
            self._note("the client has lost its connection" + forgets)
        if client.resumed > self._resumed:
            self._note("the client resumes there: herald.listen() returned true", "the client resumes")
        self._was_connected, self._resumed = client.is_connected, client.resumed

    def _note(self, text: str, mark: str = "") -> None:
        elapsed_s = time.monotonic() - self._begin_s
        if mark:
            self.state.marks.append((elapsed_s, mark))
        self.view.note(self.state, elapsed_s, text)

    def _connect(self, cluster: Cluster) -> libpq.Connection:
        return libpq.Connection(cluster.installation, libpq.servers(cluster) | {"target_session_attrs": "any"})

    def _ask(self, sql: str) -> str:
        ((answer,),) = self._watched.run(sql)
        return answer


def show() -> Outcome:
    """Makes the servers, and runs the demo."""
    print("starting a server, and a standby of it", flush=True)
    with Cluster(preload=True, settings=SETTINGS) as primary:
        primary.create_herald()
        primary.psql(SETUP)
        with Standby(primary) as standby:
            standby.make_synchronous()
            with open_view(primary.installation.version) as view:
                one = Show(primary, standby, view)
                try:
                    return one.run()
                finally:
                    one.close()


def forget_environment() -> None:
    """Removes the user's settings for libpq, which are meant for other servers."""
    for name in [name for name in os.environ if name.startswith("PG") and name not in ("PG_CONFIG", "PG_MAJOR")]:
        del os.environ[name]


def main() -> int:
    forget_environment()
    try:
        outcome = show()
    except KeyboardInterrupt:
        print("interrupted; everything is stopped and removed", file=sys.stderr)
        return 130
    except (ClusterError, DemoError, InstallationError, NotResumed, libpq.Lost, libpq.Failed) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    print(flush=True)
    subprocess.run([TOP / "scripts/what-stays"], check=False)
    print(f"\n{outcome}")
    return 0 if outcome.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
