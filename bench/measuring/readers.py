"""Readers that do not listen: herald.read() with a wait, beside LISTEN and beside a polled table.

One client holds all connections and sends as well, so that all times are from one clock. It begins when all
readers wait, after their first queries, which fill the backends' caches.
"""

import time

from bench.measuring.cpu import CpuClock
from bench.measuring.measure import DBNAME, MeasureError
from harness.cluster import Cluster
from harness.listeners import Listeners

CHANNEL = "pull"
POLL_MS = 100
WAIT_S = 20  # of herald.read()
ROWS_MAX = 1_000
START_TIMEOUT_S = 60
POLL_S = 0.05
WAYS = ("read", "listen", "poll")

TABLE = """DROP TABLE IF EXISTS pulled;
CREATE TABLE pulled (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text);
"""
# Prepared, as an application would prepare a query that it sends this often.
READ = (f"PREPARE pull(text) AS SELECT position, payload FROM herald.read('{CHANNEL}', $1, {ROWS_MAX}, "
        "'{wait_s:g}s')")
POLL = "PREPARE pull(bigint) AS SELECT id, payload FROM pulled WHERE id > $1 ORDER BY id"
PULL = "EXECUTE pull('%s')"


class Readers(Listeners):
    """Connections that read in one of the WAYS, and one that sends; ready when all of them wait or poll."""

    def __init__(self, cluster: Cluster, way: str, readers: int, wait_s: float):
        self._cluster = cluster
        super().__init__(cluster, readers, CHANNEL, dbname=DBNAME, paced_senders=1,
                         **self._options(way, wait_s))
        try:
            self._wait(way)
        except BaseException:
            self.close()
            raise

    def notify(self, seconds: float, rate: float) -> dict:
        """Sends at the rate; see bench/clients/paced.c."""
        return self._ask(f"paced {seconds:g} {rate:g}")

    def _options(self, way: str, wait_s: float) -> dict:
        if way == "listen":
            return {}
        if way == "read":
            position = self._cluster.psql("SELECT herald.position()", DBNAME)
            return {"setup": READ.format(wait_s=wait_s), "pull": PULL, "pull_from": position}
        self._cluster.psql(TABLE, DBNAME)
        return {"setup": POLL, "pull": PULL, "pull_from": 0, "pull_every": POLL_MS,
                "send": "INSERT INTO pulled (payload) VALUES ('%s')"}

    def _wait(self, way: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while way == "read" and self._waiting() < self.connections:
            if time.monotonic() > deadline:
                raise MeasureError(f"{self._waiting()} of {self.connections} readers wait")
            time.sleep(POLL_S)
        # Before the measurement every reader polls and receives at least once.
        told = self.notify(2 * POLL_MS / 1000, 1000 / POLL_MS)
        if told["delivered"] != told["expected"]:
            raise MeasureError(f"{told['delivered']:,} of {told['expected']:,} notifications were delivered")

    def _waiting(self) -> int:
        return int(self._cluster.psql("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension' "
                                      "AND application_name = 'bench/listen'", DBNAME))


def read(cluster: Cluster, seconds: float, *, way: str, readers: int, rate: float | None,
         wait_s: float = WAIT_S) -> dict:
    """One connection sends at a rate to `readers` readers; without a rate nothing is sent.

    delivery_us_p50, ...    from when a notification or a row was due to be sent until a reader has it
    commit_us_p50           from then until the sender has the commit's answer
    cpu_server_percent      the CPU time of all the server's processes, in percent of one CPU
    cpu_us                  the same in µs per delivery
    cpu_clients_percent     the CPU time of the client that reads and sends, in percent of one CPU
    """
    with Readers(cluster, way, readers, wait_s) as held:
        clock, began_s = CpuClock(cluster.postmaster_pid(), held.pid), time.monotonic()
        if rate:
            told = held.notify(seconds, rate)
        else:
            time.sleep(seconds)
        took_s, used = time.monotonic() - began_s, clock.read(0)
        if held.count()["closed"]:
            raise MeasureError("the server has closed a reader's connection")
    figures = {"cpu_server_percent": 100 * used["cpu_server_s"] / took_s,
               "cpu_clients_percent": 100 * used["cpu_listen_s"] / took_s, "took_s": took_s}
    if not rate:
        return figures
    if told["delivered"] != told["expected"] or not told["sent"]:
        raise MeasureError(f"{told['delivered']:,} of {told['expected']:,} notifications were delivered")
    figures |= {f"delivery_us_{name}": told["delivery_us"][name] for name in ("p50", "p99", "max")}
    return figures | {"sent": told["sent"], "commit_us_p50": told["commit_us"]["p50"],
                      "cpu_us": 1e6 * used["cpu_server_s"] / told["delivered"], "delivered": True}
