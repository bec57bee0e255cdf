"""The effect of a NOTIFY to many listeners on other sessions: a bystander's SELECT 1, and a client that is busy.

bench/clients/steady.c sends the statements, in one process for each connection, and listen.c holds the listeners.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.measuring.measure import CLIENTS, DBNAME, DRAIN_TIMEOUT_S, PGBENCH_TIMEOUT_S, MeasureError
from harness.cluster import Cluster
from harness.listeners import Listeners

NOTIFY_INTERVAL_MS = 25  # 300 listeners keep two CPUs busy for some 8 ms, and are idle for the rest
SELECT_INTERVAL_US = 2000
NOTIFY = "NOTIFY channel_1"


def _command(sql: str, seconds: float, interval_us: int, *options: str) -> list[str]:
    return [str(CLIENTS / "steady"), "--interval-us", str(interval_us), "--seconds", f"{seconds:g}", *options, sql]


def _steady(cluster: Cluster, command: list[str], timeout_s: float) -> dict:
    result = subprocess.run(command, text=True, stdin=subprocess.DEVNULL, capture_output=True,
                            env=cluster.environment(DBNAME), timeout=timeout_s)
    if result.returncode != 0:
        raise MeasureError(f"steady failed: {result.stderr.strip()}")
    told = json.loads(result.stdout)
    if not told["counted"]:
        raise MeasureError("steady had no time to measure anything")
    return told


def _heard(held: Listeners | None, sent: int) -> bool:
    """Whether every listener, if there are any, has received `sent` notifications."""
    if held is None:
        return True
    count = held.wait(sent * held.connections, DRAIN_TIMEOUT_S)
    return count["min"] == count["max"] == sent and count["closed"] == 0


@contextmanager
def _listeners(cluster: Cluster, number: int) -> Iterator[Listeners | None]:
    """A context with `number` listeners to channel_1; None for 0."""
    if number == 0:
        yield None
        return
    with Listeners(cluster, number, dbname=DBNAME) as held:
        yield held


@contextmanager
def _notifier(cluster: Cluster) -> Iterator[subprocess.Popen]:
    """A context in which a process sends a NOTIFY every NOTIFY_INTERVAL_MS."""
    command = _command(NOTIFY, PGBENCH_TIMEOUT_S, NOTIFY_INTERVAL_MS * 1000)
    process = subprocess.Popen(command, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               env=cluster.environment(DBNAME))
    try:
        yield process
    finally:
        process.kill()  # no effect if it has ended
        process.wait()
        process.stdout.close()


def bystander(cluster: Cluster, seconds: float, *, listeners: int) -> dict:
    """The time of a SELECT 1, sent about every 2 ms, while a NOTIFY every 25 ms goes to `listeners` listeners.

    p50_us, p90_us, p99_us      from the moment when it was due to its answer, see bench/clients/steady.c
    sent_p50_us, ...            from the moment when it was sent
    """
    command = _command("SELECT 1", seconds, SELECT_INTERVAL_US, "--jitter", "--prepared")
    with ExitStack() as stack:
        held = stack.enter_context(_listeners(cluster, listeners))
        notifier = stack.enter_context(_notifier(cluster))
        told = _steady(cluster, command, seconds + DRAIN_TIMEOUT_S)
        notifier.terminate()
        output, _ = notifier.communicate(timeout=DRAIN_TIMEOUT_S)
        if notifier.returncode != 0:
            raise MeasureError("steady, which notifies, has failed")
        notified = json.loads(output)
        delivered = _heard(held, notified["sent"])
    figures = {f"{name}_us": told["from_due_us"][name] for name in ("p50", "p90", "p99")}
    figures |= {f"sent_{name}_us": told["took_us"][name] for name in ("p50", "p90", "p99")}
    return figures | {"delivered": delivered, "bystander": told, "notifier": notified}


def steady_commit(cluster: Cluster, seconds: float, *, listeners: int, busy: bool) -> dict:
    """The time of a NOTIFY, sent every 25 ms by a process of its own; the value is the median in µs.

    busy        the client uses its CPU between two NOTIFYs, instead of sleeping
    """
    command = _command(NOTIFY, seconds, NOTIFY_INTERVAL_MS * 1000, *(["--busy"] if busy else []))
    with _listeners(cluster, listeners) as held:
        told = _steady(cluster, command, seconds + DRAIN_TIMEOUT_S)
        delivered = _heard(held, told["sent"])
    return {"value": told["took_us"]["p50"], "p90_us": told["took_us"]["p90"], "p99_us": told["took_us"]["p99"],
            "delivered": delivered, "steady": told}
