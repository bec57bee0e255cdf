"""Runs bench/clients/pubsub, one client for PostgreSQL, Redis and NATS."""

import json
import subprocess
from collections.abc import Callable

from bench.measuring.cpu import threads_s
from bench.measuring.measure import BENCH, MeasureError
from bench.measuring.programs import build

FOLDER = BENCH / "clients" / "pubsub"
PROGRAM = FOLDER / "build" / "pubsub"
DRAIN_TIMEOUT_S = 60
END_TIMEOUT_S = 30


def publish(protocol: str, address: str, seconds: float, *, publishers: int, subscribers: int, depth: int,
            pids: Callable[[], list[int]]) -> dict:
    """Publishes for `seconds`, and waits until every subscriber has everything.

    pids    finds the server's processes; called when all clients are connected

    publishes_per_s is over the time until the last subscriber has the last message. The CPU times of
    server and client are those of publishing and delivery, without connecting.
    """
    build(FOLDER)
    command = [str(PROGRAM), "--protocol", protocol, "--address", address, "--publishers", str(publishers),
               "--subscribers", str(subscribers), "--depth", str(depth), "--seconds", f"{seconds:g}",
               "--drain", str(DRAIN_TIMEOUT_S)]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        try:
            if process.stdout.readline().strip() != "ready":
                raise MeasureError(process.stderr.read().strip() or "pubsub ended early")
            server = pids()
            before_s = threads_s(server)
            process.stdin.write("go\n")
            process.stdin.flush()
            line = process.stdout.readline()
            server_s = threads_s(server) - before_s
            if not line:
                raise MeasureError(process.stderr.read().strip() or "pubsub ended early")
            process.stdin.close()
            process.wait(END_TIMEOUT_S)
        finally:
            process.kill()  # no effect if it has ended
    return _figures(json.loads(line), server_s)


def _figures(counted: dict, server_s: float) -> dict:
    elapsed_s = counted["elapsed_s"]
    clients_s = counted["cpu_publishers_s"] + counted["cpu_subscribers_s"]
    return {
        "publishes_per_s": counted["published"] / elapsed_s,
        "deliveries_per_s": counted["received"] / elapsed_s,
        "delivered": counted["delivered"],
        "drain_ms": 1000 * (elapsed_s - counted["publishing_s"]),
        "cpu_server_us_per_publish": 1e6 * server_s / counted["published"],
        "cpu_client_share": clients_s / (clients_s + server_s) if clients_s + server_s > 0 else None,
        "publishers_busy_share": counted["cpu_publishers_s"] / elapsed_s,
        "subscribers_busy_share": counted["cpu_subscribers_s"] / elapsed_s,
        "client": counted,
    }
