"""What senders pay for keeping what all have read, of which clients that come back are served."""

from functools import partial

from bench.family import Case, Context, Family, Point, Table
from bench.measuring.measure import topology
from bench.reporting import figures

NOTIFIERS = (8, 100)
PAYLOAD_BYTES = (0, 100, 1_000)
NOTHING, KEPT = "nothing is kept", "64 MB are kept"
RETAIN_SIZE = {NOTHING: "0", KEPT: "64MB"}  # the default is the latter
ROUNDS = 8


def _run(context: Context, case: str, notifiers: int, payload_bytes: int) -> dict:
    cluster = context.cluster_with("herald", {"herald.retain_size": RETAIN_SIZE[case]})
    return topology(cluster, context.seconds, notifiers=notifiers, listeners=1, script="notify_payload",
                    variables={"payload_bytes": payload_bytes})


def _point(notifiers: int, payload_bytes: int, rounds: int | None = None) -> Point:
    run = partial(_run, notifiers=notifiers, payload_bytes=payload_bytes)
    return Point({"notifiers": notifiers, "payload_bytes": payload_bytes},
                 tuple(Case(case, partial(run, case=case)) for case in RETAIN_SIZE), rounds, ROUNDS)


def points(quick: bool) -> list[Point]:
    """Each number of notifiers with each payload."""
    if quick:
        return [_point(NOTIFIERS[0], PAYLOAD_BYTES[1], rounds=1)]
    return [_point(notifiers, payload_bytes) for notifiers in NOTIFIERS for payload_bytes in PAYLOAD_BYTES]


def tables(lines: list[dict]) -> list[Table]:
    """Throughput with and without."""
    rows = [(f"{point['notifiers']} → 1", f"{point['payload_bytes']:,}",
             *(figures.with_spread(tps.get(case, [])) for case in RETAIN_SIZE),
             figures.ratio(figures.ratios(lines, "tps", KEPT, NOTHING, **point)))
            for point, tps in figures.group(lines, "tps")]
    return [Table("What keeping costs the senders", (
        "NOTIFY from → to", "payload, bytes", f"{NOTHING}, tps", f"{KEPT}, tps", "ratio"), rows,
        "herald.retain_size = 0, and 64 MB, which is the default; two servers, measured in turn.")]


FAMILY = Family(
    name="retain", title="What is kept", points=points, tables=tables, seconds=2,
    question="What do senders pay for keeping what all have read?")
