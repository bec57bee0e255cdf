"""What one measurement on one cluster does.

Each function returns a dict whose "value" is the figure to compare; the rest goes with it into
the results. MeasureError means that there is no figure.
"""

import os
import re
import time
from pathlib import Path

from harness.cluster import Cluster, ClusterError
from harness.listeners import Listeners, ListenersError, probe

SCRIPTS = Path(__file__).resolve().parent / "scripts"
DBNAME = "bench"
PGBENCH_THREADS_MAX = 4
PGBENCH_TIMEOUT_S = 600  # far beyond any --seconds; a server that hangs must not hang us
DRAIN_TIMEOUT_S = 60
SETTLE_S = 0.1  # how long to look out for notifications that should not come
PROBE_INTERVAL_MS = 20
PGBENCH_SCALE = 10
SELECTS_PER_S = 30_000  # roughly, on one core; sets the length of a run


class MeasureError(RuntimeError):
    """The measurement failed; the message says why."""


def pgbench_arguments(clients: int, *further: str) -> list[str]:
    """The options of a pgbench run with so many clients, and as many threads as help."""
    threads = min(clients, os.cpu_count() or 1, PGBENCH_THREADS_MAX)
    return ["-n", "-c", str(clients), "-j", str(threads), *further]


def script_load(script: str, seconds: float) -> tuple[str, ...]:
    """The options to run one of bench/scripts for some (whole) seconds."""
    return "-f", str(SCRIPTS / f"{script}.sql"), "-T", str(max(1, round(seconds)))


def parse_pgbench(output: str) -> dict:
    """tps, transactions and latency_ms from what pgbench printed; MeasureError if they are not there."""
    def figure(pattern: str) -> float:
        found = re.search(pattern, output)
        if not found:
            raise MeasureError(f"pgbench printed no {pattern}:\n{output}")
        return float(found.group(1))

    transactions = int(figure(r"actually processed: (\d+)"))
    if transactions == 0:
        raise MeasureError("pgbench finished no transaction")
    return {
        "tps": figure(r"tps = ([\d.]+) \(without"),
        "transactions": transactions,
        "latency_ms": figure(r"latency average = ([\d.]+)"),
    }


def pgbench(cluster: Cluster, clients: int, *further: str) -> dict:
    """Runs pgbench and returns its figures, see parse_pgbench()."""
    try:
        output = cluster.client("pgbench", *pgbench_arguments(clients, *further), dbname=DBNAME,
                                timeout_s=PGBENCH_TIMEOUT_S)
    except ClusterError as error:
        raise MeasureError(str(error).splitlines()[-1]) from error
    return parse_pgbench(output)


def sustained(held: Listeners, load: dict, listeners_each: int) -> dict:
    """Waits until the listeners have heard all of a finished load, and sums up.

    listeners_each      how many connections hear one notification

    The value is transactions per second over the whole time, the wait included: a rate that the
    listeners keep up with. The wait begins when pgbench has ended.
    """
    expected = load["transactions"] * listeners_each
    drained = held.wait(expected, DRAIN_TIMEOUT_S)
    time.sleep(SETTLE_S)
    count = held.count()
    evenly = listeners_each < held.connections or count["min"] == count["max"]
    elapsed_s = load["transactions"] / load["tps"] + drained["waited_us"] / 1e6
    return {
        "value": load["transactions"] / elapsed_s,
        "deliveries_per_s": count["notifications"] / elapsed_s,
        "delivered": count["notifications"] == expected and evenly and count["closed"] == 0,
        "expected": expected,
        "drain_ms": drained["waited_us"] / 1000,
        "listen_ms": count["listen_us"] / 1000,
        "count": count,
        "pgbench": load,
    }


def topology(cluster: Cluster, seconds: float, *, notifiers: int, listeners: int,
             channel: str = "channel_1", script: str = "notify_channel_1",
             channels_each: int = 1) -> dict:
    """Notifies as fast as it goes for some seconds, and then waits until all is delivered.

    With %d in the channel's name each notification goes to one listener, otherwise to all.
    """
    each = 1 if "%d" in channel else listeners
    with Listeners(cluster, listeners, channel, dbname=DBNAME, channels_each=channels_each) as held:
        return sustained(held, pgbench(cluster, notifiers, *script_load(script, seconds)), each)


def insert(cluster: Cluster, seconds: float, *, script: str, clients: int = 32,
           commit_delay_us: int = 0) -> dict:
    """Inserts a row per transaction, and notifies one listener if the script does.

    commit_delay_us     how long the server waits before each flush: stands for a slower disk
    """
    cluster.psql("DROP TABLE IF EXISTS events; CREATE TABLE events (body text); CHECKPOINT; "
                 f"ALTER DATABASE {DBNAME} SET commit_delay = {commit_delay_us}; "
                 f"ALTER DATABASE {DBNAME} SET commit_siblings = 1", DBNAME)
    with Listeners(cluster, 1, dbname=DBNAME) as held:
        load = pgbench(cluster, clients, *script_load(script, seconds))
        expected = load["transactions"] if "notify" in script else 0
        held.wait(expected, DRAIN_TIMEOUT_S)
        heard = held.count()["notifications"]
    return {"value": load["tps"], "delivered": heard == expected, "pgbench": load}


def latency(cluster: Cluster, seconds: float, *, listeners: int, of: str) -> dict:
    """One NOTIFY every 20 ms; the value is the median of `of` (commit_us or last_us)."""
    count = max(10, int(seconds * 1000 / PROBE_INTERVAL_MS))
    times = probe(cluster, listeners, count, interval_ms=PROBE_INTERVAL_MS, dbname=DBNAME)
    if times[of]["p50"] is None:
        raise MeasureError(f"no {of} of {count}")
    return {"value": times[of]["p50"], "p99": times[of]["p99"],
            "delivered": times["complete"] == count, "probe": times}


def select_only(cluster: Cluster, seconds: float) -> dict:
    """pgbench -S, prepared, one client; loads its tables first where they are missing.

    A number of transactions, not of seconds: pgbench takes whole seconds only, and a difference
    of a percent shows best in many short runs, in turn.
    """
    transactions = max(100, round(seconds * SELECTS_PER_S))
    arguments = ("-S", "-M", "prepared", "-t", str(transactions))
    if cluster.psql("SELECT to_regclass('pgbench_accounts')", DBNAME) == "":
        cluster.client("pgbench", "-i", "-q", "-s", str(PGBENCH_SCALE), dbname=DBNAME)
        cluster.psql("CHECKPOINT", DBNAME)
        pgbench(cluster, 1, *arguments)
    load = pgbench(cluster, 1, *arguments)
    return {"value": load["tps"], "pgbench": load}


def listen_time(cluster: Cluster, _seconds: float, *, channels: int) -> dict:
    """The milliseconds that one connection takes to LISTEN to many channels in one transaction."""
    with Listeners(cluster, 1, "channel_%d", dbname=DBNAME, channels_each=channels) as held:
        listen_us = held.count()["listen_us"]
        cluster.psql(f"NOTIFY channel_0; NOTIFY channel_{channels - 1}; NOTIFY channel_{channels}",
                     DBNAME)
        held.wait(2, DRAIN_TIMEOUT_S)
        time.sleep(SETTLE_S)
        heard = held.count()["notifications"]
    return {"value": listen_us / 1000, "delivered": heard == 2}


MEASURE_ERRORS = (MeasureError, ClusterError, ListenersError)
