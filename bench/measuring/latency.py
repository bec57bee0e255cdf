"""Latencies, measured by the listening client: one process sends and receives, with one clock."""

from bench.measuring.measure import DBNAME, PROBE_INTERVAL_MS, MeasureError
from harness.cluster import Cluster
from harness.listeners import probe, run_once

PACED_TIMEOUT_S = 120
PROBES_MIN = 10
TIMES = ("commit_us", "first_us", "last_us")
PERCENTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}


def percentile(times: list[float], fraction: float) -> float:
    """The percentile of raw times; the longest if there are too few of them for the fraction."""
    return sorted(times)[min(len(times) - 1, int(len(times) * fraction))]


def probes(cluster: Cluster, seconds: float, *, listeners: int) -> dict:
    """One NOTIFY every 20 ms to `listeners` listeners on one channel.

    commit_us, first_us, last_us    raw times from just before the send to the commit's answer, and to the
                                    receipt by the first and the last listener; and percentiles of each,
                                    commit_us_p50 and so on
    """
    count = max(PROBES_MIN, int(seconds * 1000 / PROBE_INTERVAL_MS))
    times = probe(cluster, listeners, count, interval_ms=PROBE_INTERVAL_MS, dbname=DBNAME)
    if times["complete"] != count or times["closed"]:
        raise MeasureError(f"only {times['complete']} of {count} notifications were heard by all")
    figures = {"probes": count}
    for name in TIMES:
        raw = times[name]["raw"]
        figures[name] = raw
        figures |= {f"{name}_{suffix}": percentile(raw, fraction) for suffix, fraction in PERCENTILES.items()}
    return figures


def paced(cluster: Cluster, seconds: float, *, senders: int, listeners: int,
          rate: float | None = None) -> dict:
    """NOTIFY at a rate or as fast as possible, and the time of each delivery from when it was due.

    See bench/clients/paced.c. The rate reached is over the time until all was delivered. commit_us is
    from when it was due as well; late_us: the client's delay in sending.
    """
    options = {"paced": f"{seconds:g}", "paced_senders": senders}
    if rate:
        options["rate"] = f"{rate:.3f}"
    told = run_once(cluster, listeners, dbname=DBNAME, timeout_s=PACED_TIMEOUT_S, **options)
    if told["delivered"] != told["expected"] or told["committed"] != told["sent"] or not told["sent"]:
        raise MeasureError(f"{told['delivered']:,} of {told['expected']:,} notifications were delivered")
    figures = {"sent": told["sent"], "reached_per_s": told["sent"] / told["elapsed_s"],
               "deliveries_per_s": told["delivered"] / told["elapsed_s"]}
    if rate:
        figures["offered_per_s"] = rate
    for name in ("delivery_us", "commit_us", "late_us"):
        figures |= {f"{name}_{suffix}": value for suffix, value in told[name].items()}
    return figures
