"""Measurements on one cluster.

Each function returns figures. "value", if present, is the figure to compare; other names end in
their unit. MeasureError means that there is no figure.
"""

import json
import os
import re
import resource
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.measuring.cpu import CpuClock
from harness.cluster import Cluster, ClusterError
from harness.listeners import Listeners, ListenersError, probe
from harness.private_server import ServerError

BENCH = Path(__file__).resolve().parent.parent
CLIENTS = BENCH / "clients" / "build"
SCRIPTS = BENCH / "scripts"
DBNAME = "bench"
PGBENCH_THREADS_MAX = 4
PGBENCH_TIMEOUT_S = 600  # far beyond any --seconds; ends the measurement if the server hangs
DRAIN_TIMEOUT_S = 60
SETTLE_S = 0.1  # time to wait for notifications that should not come
PROBE_INTERVAL_MS = 20
WRONG = ("missing", "duplicated", "out_of_order", "malformed")  # the counters of listen --check-sequence
CLIENTS_CPU_NOTE = ("Clients' CPU: the share of pgbench and the listening client in the CPU time that they and the "
                    "server used.")


class MeasureError(RuntimeError):
    """The measurement failed; the message says why."""


def pgbench_arguments(clients: int, *further: str) -> list[str]:
    """The options of a pgbench run with `clients` clients, and a thread for each CPU up to a maximum."""
    threads = min(clients, os.cpu_count() or 1, PGBENCH_THREADS_MAX)
    return ["-n", "-c", str(clients), "-j", str(threads), *further]


def script_load(script: str, seconds: float) -> tuple[str, ...]:
    """The options to run one of bench/scripts for a time, rounded to whole seconds."""
    return "-f", str(SCRIPTS / f"{script}.sql"), "-T", str(max(1, round(seconds)))


def parse_pgbench(output: str) -> dict:
    """tps, transactions and latency_ms from pgbench's output; MeasureError if one is missing.

    late_ms_max     the longest delay of a transaction's begin; None without --rate
    """
    def figure(pattern: str) -> float:
        found = re.search(pattern, output)
        if not found:
            raise MeasureError(f"pgbench printed no {pattern}:\n{output}")
        return float(found.group(1))

    transactions = int(figure(r"actually processed: (\d+)"))
    if transactions == 0:
        raise MeasureError("pgbench finished no transaction")
    late = re.search(r"schedule lag: avg [\d.]+ \(max ([\d.]+)\) ms", output)
    return {
        "tps": figure(r"tps = ([\d.]+) \(without"),
        "transactions": transactions,
        "latency_ms": figure(r"latency average = ([\d.]+)"),
        "late_ms_max": float(late[1]) if late else None,
    }


def pgbench(cluster: Cluster, clients: int, *further: str, timeout_s: float = PGBENCH_TIMEOUT_S) -> dict:
    """Runs pgbench and returns its figures, see parse_pgbench(), and its own CPU seconds as cpu_s."""
    def children_s() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before_s = children_s()
    try:
        output = cluster.client("pgbench", *pgbench_arguments(clients, *further), dbname=DBNAME,
                                timeout_s=timeout_s)
    except ClusterError as error:
        raise MeasureError(str(error).splitlines()[-1]) from error
    return parse_pgbench(output) | {"cpu_s": children_s() - before_s}


def sustained(held: Listeners, load: dict, listeners_each: int) -> dict:
    """Waits until the listeners have received all of a finished load, and returns its figures.

    listeners_each      number of connections that receive one notification

    The value is transactions per second over the whole time including the wait: a rate that the
    listeners sustain. The wait begins when pgbench has ended.
    """
    expected = load["transactions"] * listeners_each
    drained = held.wait(expected, DRAIN_TIMEOUT_S)
    time.sleep(SETTLE_S)
    count = held.count()
    evenly = listeners_each < held.connections or count["min"] == count["max"]
    elapsed_s = load["transactions"] / load["tps"] + drained["waited_us"] / 1e6
    return {
        "value": load["transactions"] / elapsed_s,
        "tps": load["transactions"] / elapsed_s,
        "pgbench_tps": load["tps"],
        "deliveries_per_s": count["notifications"] / elapsed_s,
        "delivered": count["notifications"] == expected and evenly and count["closed"] == 0,
        "expected": expected,
        "drain_ms": drained["waited_us"] / 1000,
        "listen_ms": count["listen_us"] / 1000,
        "count": count,
        "pgbench": load,
    }


def heard_exactly(count: dict, sent: int) -> bool:
    """Whether each listener has received `sent` notifications, each sender's all, once each and in order.

    count       from Listeners.count() with check_sequence
    """
    return (count["closed"] == 0 and count["min"] == count["max"] == sent
            and not any(count["sequence"][what] for what in WRONG))


def topology(cluster: Cluster, seconds: float, *, notifiers: int, listeners: int,
             channel: str = "channel_1", script: str = "notify_channel_1", variables: dict | None = None,
             channels_each: int = 1, heartbeat_s: float = 0) -> dict:
    """Notifies as fast as possible for `seconds`, and then waits until all is delivered.

    With %d in the channel's name each notification goes to one listener, otherwise to all.

    variables       values of the script's variables, by name
    heartbeat_s     interval at which each listener sends a SELECT 1 of its own; 0: never
    """
    each = 1 if "%d" in channel else listeners
    options = {"heartbeat": heartbeat_s} if heartbeat_s else {}
    with Listeners(cluster, listeners, channel, dbname=DBNAME, channels_each=channels_each,
                   **options) as held:
        clock = CpuClock(cluster.postmaster_pid(), held.pid)
        set_to = [f"--define={name}={value}" for name, value in (variables or {}).items()]
        load = pgbench(cluster, notifiers, *script_load(script, seconds), *set_to)
        figures = sustained(held, load, each)
        return figures | clock.read(load["cpu_s"])


def ping_pong(cluster: Cluster, seconds: float, *, idle_listeners: int = 0) -> dict:
    """Two connections notify each other in turn, while idle_listeners listen, each to a channel of its own."""
    def run() -> dict:
        command = [str(CLIENTS / "pingpong"), "--seconds", f"{seconds:g}"]
        result = subprocess.run(command, text=True, stdin=subprocess.DEVNULL, capture_output=True,
                                env=cluster.environment(DBNAME), timeout=seconds + DRAIN_TIMEOUT_S)
        if result.returncode != 0:
            raise MeasureError(f"pingpong failed: {result.stderr.strip()}")
        return json.loads(result.stdout)

    if idle_listeners == 0:
        return run() | {"delivered": True}
    with Listeners(cluster, idle_listeners, "idle_%d", dbname=DBNAME) as held:
        figures = run()
        heard = held.count()
    return figures | {"delivered": heard["notifications"] == 0 and heard["closed"] == 0}


def insert(cluster: Cluster, seconds: float, *, script: str, clients: int = 32,
           commit_delay_us: int = 0, channel: str = "channel_1") -> dict:
    """Runs a script that may insert a row; if it notifies the channel, one listener must receive all.

    commit_delay_us     the server's wait before each flush, in place of a slower disk
    """
    cluster.psql("DROP TABLE IF EXISTS events; CREATE TABLE events (body text); CHECKPOINT; "
                 f"ALTER DATABASE {DBNAME} SET commit_delay = {commit_delay_us}; "
                 f"ALTER DATABASE {DBNAME} SET commit_siblings = 0", DBNAME)
    try:
        with Listeners(cluster, 1, channel, dbname=DBNAME) as held:
            load = pgbench(cluster, clients, *script_load(script, seconds))
            expected = load["transactions"] if "notify" in script else 0
            held.wait(expected, DRAIN_TIMEOUT_S)
            heard = held.count()["notifications"]
    finally:
        cluster.psql(f"ALTER DATABASE {DBNAME} RESET commit_delay; "
                     f"ALTER DATABASE {DBNAME} RESET commit_siblings")
    return {"value": load["tps"], "tps": load["tps"], "delivered": heard == expected, "pgbench": load}


@contextmanager
def _notified_beside(cluster: Cluster, listeners: int) -> Iterator[None]:
    """A context in which `listeners` others listen to channel_1, notified at a probe's rate at random moments."""
    if listeners == 0:
        yield
        return
    command = [cluster.installation.program("pgbench"), *pgbench_arguments(1, *script_load(
        "notify_channel_1", PGBENCH_TIMEOUT_S)), "--rate", str(1000 / PROBE_INTERVAL_MS)]
    with Listeners(cluster, listeners, dbname=DBNAME):
        load = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                env=cluster.environment(DBNAME))
        try:
            yield
            if load.poll() is not None:
                raise MeasureError("pgbench, which notifies others, has ended by itself")
        finally:
            load.kill()
            load.wait()


def latency(cluster: Cluster, seconds: float, *, listeners: int, of: str,
            interval_ms: int = PROBE_INTERVAL_MS, beside: int = 0) -> dict:
    """One NOTIFY at an interval; the value is the median of `of` (commit_us or last_us).

    beside      number of listeners on another channel, notified by another client every PROBE_INTERVAL_MS
    """
    count = max(10, int(seconds * 1000 / interval_ms))
    with _notified_beside(cluster, beside):
        times = probe(cluster, listeners, count, interval_ms=interval_ms, channel="probe", dbname=DBNAME)
    if times[of]["p50"] is None:
        raise MeasureError(f"no {of} of {count}")
    return {"value": times[of]["p50"], "p99": times[of]["p99"],
            "delivered": times["complete"] == count, "probe": times}


def listen_time(cluster: Cluster, _seconds: float, *, channels: int) -> dict:
    """The time of one connection, in ms, to LISTEN to many channels in one transaction."""
    with Listeners(cluster, 1, "channel_%d", dbname=DBNAME, channels_each=channels) as held:
        listen_us = held.count()["listen_us"]
        cluster.psql(f"NOTIFY channel_0; NOTIFY channel_{channels - 1}; NOTIFY channel_{channels}",
                     DBNAME)
        held.wait(2, DRAIN_TIMEOUT_S)
        time.sleep(SETTLE_S)
        heard = held.count()["notifications"]
    return {"value": listen_us / 1000, "delivered": heard == 2}


MEASURE_ERRORS = (MeasureError, ClusterError, ServerError, ListenersError, subprocess.TimeoutExpired)
