"""Listeners that fall far behind: their cost to the others, and what they receive afterwards.

They have a client of their own, which checks the numbers in the payloads: each sender's numbers must
arrive once each and in order. Before the measurement more is sent than pg_herald keeps in memory, so
that pg_herald has to write to files for them during the measurement.
"""

import math
import os
import time
from collections.abc import Callable
from contextlib import suppress

from bench.measuring.cpu import CpuClock
from bench.measuring.measure import (
    DBNAME, DRAIN_TIMEOUT_S, PGBENCH_TIMEOUT_S, SCRIPTS, SETTLE_S, MeasureError, heard_exactly, pgbench,
    script_load, sustained)
from harness.cluster import Cluster
from harness.listeners import Listeners

NOTIFIERS = 8
MB = 1024 * 1024
FILL_MB = 24  # herald.queue_memory is 16
FILL_EACH, FILL_BYTES = 50, 7900  # in bench/scripts/fill.sql: notifications per transaction, bytes of one
CATCH_UP_TIMEOUT_S = 900  # of a COMMIT: stock sends all notifications before its answer
QUIET_S = 30  # without a notification for this time, none will come
POLL_S = 0.02


class Laggards(Listeners):
    """Listeners that can be made to fall behind."""

    def __init__(self, cluster: Cluster, connections: int):
        super().__init__(cluster, connections, dbname=DBNAME, check_sequence=NOTIFIERS + 1)
        self._cluster = cluster

    def begin(self) -> None:
        """Begins a transaction in each; all are idle in it when this returns."""
        self._query("BEGIN")
        idle = self._cluster.psql("SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' "
                                  "AND application_name = 'bench/listen'", DBNAME)
        if int(idle) < self.connections:
            raise MeasureError(f"{idle} of {self.connections} listeners are idle in a transaction")

    def commit(self) -> None:
        """Ends the transactions; returns when all have ended."""
        self._query("COMMIT")

    def stop(self) -> None:
        """Stops reading their sockets."""
        self._ask("stop")

    def start(self) -> None:
        """Reads the sockets again."""
        self._ask("start")

    def hear(self, total: int) -> dict:
        """Waits until they have received `total` together, no more comes, or one is closed; returns count()."""
        before = -1
        while True:
            count = self.wait(total, QUIET_S)
            if count["notifications"] >= total or count["notifications"] == before or count["closed"]:
                return count
            before = count["notifications"]

    def _query(self, sql: str) -> None:
        self._ask(f"query {CATCH_UP_TIMEOUT_S * 1000} {sql}")


def alone(cluster: Cluster, seconds: float, *, rate: float | None = None) -> dict:
    """8 connections notify one listener, at a rate or as fast as possible; no listener is behind.

    tps             over the time until the listener has received all
    latency_ms      of a transaction; with a rate, from when it was due
    late_ms_max     with a rate: the longest delay of a transaction's begin
    cpu_us          the server's CPU time for each notification
    """
    options = ("--rate", f"{rate:g}") if rate else ()
    with Listeners(cluster, 1, dbname=DBNAME) as held:
        clock = CpuClock(cluster.postmaster_pid(), held.pid)
        load = pgbench(cluster, NOTIFIERS, *script_load("notify_numbered", seconds), "-D", "number=0",
                       *options, timeout_s=seconds + PGBENCH_TIMEOUT_S)
        figures = sustained(held, load, 1)
        used = clock.read(load["cpu_s"])
    return figures | used | {"latency_ms": load["latency_ms"], "late_ms_max": load["late_ms_max"],
                             "cpu_us": used["cpu_server_s"] * 1e6 / load["transactions"]}


def in_transaction(cluster: Cluster, seconds: float, *, behind: int, rate: float | None = None,
                   catch_up: bool = True) -> dict:
    """As alone(), while `behind` listeners to the same channel are idle in a transaction.

    catch_up        then they end the transaction, and must receive everything

    See _beside() for the figures.
    """
    with Laggards(cluster, behind) as laggards:
        laggards.begin()
        figures = _beside(cluster, seconds, laggards, FILL_MB, rate, laggards.commit if catch_up else None)
    _wait_for_empty_disk(cluster)
    return figures


def mute(cluster: Cluster, seconds: float, *, pending_mb: int) -> dict:
    """As alone(), while the client of one more listener does not read its socket, with pending_mb waiting for it.

    Then it reads, and must receive everything. See _beside() for the figures.
    """
    with Laggards(cluster, 1) as laggards:
        laggards.stop()
        figures = _beside(cluster, seconds, laggards, pending_mb, None, laggards.start)
    _wait_for_empty_disk(cluster)
    return figures


def _beside(cluster: Cluster, seconds: float, laggards: Laggards, fill_mb: int, rate: float | None,
            release: Callable[[], None] | None) -> dict:
    """The figures of alone(), and about the laggards:

    fill_s          time to send the first fill_mb
    behind_s        time that they were behind
    sent            notifications sent meanwhile
    sent_mb         size of these in pg_herald's queue (None: stock)
    disk_mb         size of the queue's files, before they catch up
    caught_up_s     time until they had received everything
    caught_up_per_s notifications that they received per second, all together
    exact           each has received every notification, once and in order

    release         makes them continue; None: they do not catch up
    """
    began_s = time.monotonic()
    began_at = _head(cluster)
    sent = _fill(cluster, fill_mb)
    figures = {"fill_s": time.monotonic() - began_s}
    figures |= alone(cluster, seconds, rate=rate)
    sent += figures["expected"]
    if laggards.count()["notifications"] > 0:
        raise MeasureError("those who are to be behind hear what is sent")
    figures |= {"behind_s": time.monotonic() - began_s, "sent": sent, "disk_mb": disk_bytes(cluster) / MB,
                "sent_mb": None if began_at is None else (_head(cluster) - began_at) / MB}
    if release:
        released_s = time.monotonic()
        release()
        laggards.hear(sent * laggards.connections)
        took_s = time.monotonic() - released_s
        time.sleep(SETTLE_S)
        exact = heard_exactly(laggards.count(), sent)
        figures |= {"caught_up_s": took_s, "caught_up_per_s": sent * laggards.connections / took_s,
                    "exact": exact, "delivered": figures["delivered"] and exact}
    return figures


def _fill(cluster: Cluster, mb: int) -> int:
    """Sends `mb` megabytes in large payloads; returns the number of notifications."""
    transactions = math.ceil(mb * MB / FILL_EACH / FILL_BYTES)
    load = pgbench(cluster, 1, "-f", str(SCRIPTS / "fill.sql"), "-t", str(transactions), "-D", "number=0",
                   "-D", f"sender={NOTIFIERS}")
    return load["transactions"] * FILL_EACH


def is_herald(cluster: Cluster) -> bool:
    """Whether pg_herald is loaded."""
    return "shared_preload_libraries" in cluster.settings


def _head(cluster: Cluster) -> int | None:
    return int(cluster.psql("SELECT head FROM herald.queue", DBNAME)) if is_herald(cluster) else None


def disk_bytes(cluster: Cluster) -> int:
    """The size of the queue's files."""
    total = 0
    for folder, _, files in os.walk(cluster.data / ("base/pgsql_tmp" if is_herald(cluster) else "pg_notify")):
        for name in files:
            with suppress(FileNotFoundError):  # deleted just now
                total += os.path.getsize(os.path.join(folder, name))
    return total


def _wait_for_empty_disk(cluster: Cluster) -> None:
    """Waits for pg_herald to delete its files, which no listener needs; stock keeps its own until the next NOTIFY."""
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    while is_herald(cluster) and disk_bytes(cluster) > 0:
        if time.monotonic() > deadline:
            raise MeasureError(f"{disk_bytes(cluster):,} bytes are left in files that nobody needs")
        time.sleep(POLL_S)
