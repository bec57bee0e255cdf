"""Wakeups: throughput, the last listener's latency, and the number of signals."""

from bench.measuring.latency import probes
from bench.measuring.measure import DBNAME, DRAIN_TIMEOUT_S, MeasureError, pgbench, script_load
from harness.cluster import Cluster
from harness.listeners import Listeners

COUNTERS = ("notifications", "delivered", "wakeups", "signals_sent", "signals_saved", "turns_rescued")
SINGLE_FIGURES = ("commit_us_p50", "first_us_p50", "last_us_p50", "last_us_p99")
LOAD_SHARE = 0.5  # of the seconds; the rest is for single notifications


def _load(cluster: Cluster, seconds: float, notifiers: int, listeners: int, counts: bool) -> dict:
    """A load as fast as possible, and the counters of herald.stats meanwhile."""
    with Listeners(cluster, listeners, dbname=DBNAME) as held:
        if counts:
            cluster.psql("SELECT herald.reset_stats()", DBNAME)
        load = pgbench(cluster, notifiers, *script_load("notify_channel_1", seconds))
        expected = load["transactions"] * listeners
        drained = held.wait(expected, DRAIN_TIMEOUT_S)
        if drained["notifications"] != expected or drained["closed"]:
            raise MeasureError(f"{drained['notifications']:,} of {expected:,} notifications were delivered")
        elapsed_s = load["transactions"] / load["tps"] + drained["waited_us"] / 1e6
        figures = {"tps": load["transactions"] / elapsed_s, "deliveries_per_s": expected / elapsed_s}
        if counts:
            values = cluster.psql(f"SELECT {', '.join(COUNTERS)} FROM herald.stats", DBNAME).split("|")
            figures |= _per_notification(dict(zip(COUNTERS, map(int, values))))
    return figures


def _per_notification(counted: dict[str, int]) -> dict:
    return {
        "signals_per_notification": counted["signals_sent"] / max(1, counted["notifications"]),
        "saved_per_notification": counted["signals_saved"] / max(1, counted["notifications"]),
        "messages_per_wakeup": counted["delivered"] / max(1, counted["wakeups"]),
        "counted": counted,
    }


def wakeups(cluster: Cluster, seconds: float, *, notifiers: int, listeners: int, counts: bool) -> dict:
    """A load as fast as possible, and then single notifications, 20 ms apart, to the same number of listeners.

    tps, deliveries_per_s           of the load, over the time until all was delivered
    last_us_p50, last_us_p99        until the last listener received a single notification
    signals_per_notification ...    of the load, from herald.stats; only with `counts`
    """
    figures = _load(cluster, seconds * LOAD_SHARE, notifiers, listeners, counts)
    single = probes(cluster, seconds * (1 - LOAD_SHARE), listeners=listeners)
    return figures | {name: single[name] for name in SINGLE_FIGURES}
