"""Latency of single notifications, and under a steady load."""

from functools import partial
from weakref import WeakKeyDictionary

from bench.family import Case, Context, Family, Plot, Point, Table, both
from bench.measuring.latency import PERCENTILES, TIMES, paced, percentile, probes
from bench.reporting import figures, plots
from harness.cluster import Cluster

LISTENERS = (1, 10, 100, 300, 1_000)
QUICK_LISTENERS = (1, 100)
TOPOLOGIES = ((8, 1), (1, 100))  # senders, listeners
LOADS = (10, 30, 50, 70, 90)  # percent of saturation
SAME_LOADS = (100, 500)  # NOTIFY per second, on both servers
QUICK_LOADS = (50,)
LOAD_SHARE = 0.5  # of a measurement's seconds
LOAD_FIGURES = ("offered_per_s", "reached_per_s", "delivery_us_p50", "delivery_us_p99", "late_us_p50")
NAMES = {"commit_us": "commit", "first_us": "first listener", "last_us": "last listener"}

# The highest rate of each cluster, by (senders, listeners): measured once, so that all rounds offer the same.
_saturations: WeakKeyDictionary[Cluster, dict[tuple[int, int], float]] = WeakKeyDictionary()


def _saturation(cluster: Cluster, seconds: float, senders: int, listeners: int) -> float:
    found = _saturations.setdefault(cluster, {})
    if (senders, listeners) not in found:
        measured = paced(cluster, seconds, senders=senders, listeners=listeners)
        found[senders, listeners] = measured["reached_per_s"]
    return found[senders, listeners]


def _loaded(context: Context, name: str, senders: int, listeners: int, load_percent: int) -> dict:
    cluster, seconds = context.clusters[name], context.seconds * LOAD_SHARE
    saturation = _saturation(cluster, seconds, senders, listeners)
    measured = paced(cluster, seconds, senders=senders, listeners=listeners,
                     rate=saturation * load_percent / 100)
    return {"saturation_per_s": saturation, **measured}


def points(quick: bool) -> list[Point]:
    """Loads, the same for both and in percent of saturation; single notifications to 1 ... 1,000 listeners."""
    found = [Point({"load": "same", "senders": senders, "listeners": listeners, "per_s": rate},
                   both(paced, senders=senders, listeners=listeners, rate=rate))
             for senders, listeners in TOPOLOGIES for rate in (SAME_LOADS[-1:] if quick else SAME_LOADS)]
    for senders, listeners in TOPOLOGIES:
        for load in QUICK_LOADS if quick else LOADS:
            cases = tuple(Case(name, partial(_loaded, name=name, senders=senders, listeners=listeners,
                                             load_percent=load)) for name in ("stock", "herald"))
            found.append(Point({"load": "steady", "senders": senders, "listeners": listeners,
                                "load_percent": load}, cases))
    return found + [Point({"load": "single", "listeners": listeners}, both(probes, listeners=listeners))
                    for listeners in (QUICK_LISTENERS if quick else LISTENERS)]


def _pooled(lines: list[dict], time: str, case: str, listeners: int) -> list[float]:
    rounds = figures.values(lines, time, case, load="single", listeners=listeners)
    return [one for raw in rounds for one in raw]


def _single_table(lines: list[dict]) -> Table:
    rows = []
    single = figures.select(lines, load="single")
    for point in figures.points(single):
        for time in TIMES:
            row = [f"{point['listeners']:,}", NAMES[time]]
            for case in ("stock", "herald"):
                times = _pooled(lines, time, case, point["listeners"])
                row += [percentile(times, fraction) if times else None for fraction in PERCENTILES.values()]
            row.append(figures.ratio(figures.ratios(lines, f"{time}_p50", **point)))
            rows.append(tuple(row))
    samples = max((len(_pooled(lines, "commit_us", case, point["listeners"]))
                   for point in figures.points(single) for case in ("stock", "herald")), default=0)
    return Table(
        "One NOTIFY every 20 ms: µs until its commit is known, and the first and last listener have received it",
        ("listeners", "until", "stock p50", "p99", "p99.9", "herald p50", "p99", "p99.9",
         "herald / stock, p50"),
        rows, f"Of all rounds together, up to {samples:,} notifications; of fewer than 1,000 p99.9 is the "
        "longest. The client that sends is the one that listens, on one thread: the last of many listeners "
        "is also as late as the client takes to read from all before it.")


def _same_table(lines: list[dict]) -> Table:
    rows = []
    same = figures.select(lines, load="same")
    for point in figures.points(same):
        row = [f"{point['senders']} → {point['listeners']}", figures.number(point["per_s"])]
        for case in ("stock", "herald"):
            row += [figures.middle(figures.values(same, f"delivery_us_{suffix}", case, **point)) for suffix in PERCENTILES]
        rows.append(tuple(row))
    return Table("The same load for both: µs until delivery",
                 ("from → to", "offered/s", "stock p50", "p99", "p99.9", "herald p50", "p99", "p99.9"), rows)


def _load_table(lines: list[dict], senders: int, listeners: int) -> Table:
    rows = []
    for point in figures.points(figures.select(lines, load="steady", senders=senders, listeners=listeners)):
        def middle(figure: str, case: str, at: dict = point) -> float | None:
            return figures.middle(figures.values(lines, figure, case, **at))

        row = [f"{point['load_percent']} %"]
        for case in ("stock", "herald"):
            row += [middle(figure, case) for figure in LOAD_FIGURES]
        rows.append((*row, figures.ratio(figures.ratios(lines, "offered_per_s", **point))))
    return Table(
        f"A steady load, {senders} → {listeners}: µs until delivery",
        ("of its saturation", "stock: offered/s", "reached/s", "p50", "p99", "of it sent late, p50",
         "herald: offered/s", "reached/s", "p50", "p99", "of it sent late, p50", "offered, herald / stock"),
        rows, "Each server is offered a share of what itself can, as measured at first with senders that "
        "send again at once. A delivery's time begins when the notification was due, not when a sender "
        "got round to it (how much that is, is the last column); all deliveries count.")


def _topologies(lines: list[dict]) -> list[tuple[int, int]]:
    return list(dict.fromkeys((point["senders"], point["listeners"])
                              for point in figures.points(figures.select(lines, load="steady"))))


def tables(lines: list[dict]) -> list[Table]:
    """Single notifications, the same load for both, then each steady load."""
    single = [_single_table(lines)] if figures.select(lines, load="single") else []
    same = [_same_table(lines)] if figures.select(lines, load="same") else []
    return [*single, *same, *(_load_table(lines, *topology) for topology in _topologies(lines))]


def _draw_single(axes, lines: list[dict]) -> None:
    """Commit and last listener: solid and dashed."""
    single = figures.select(lines, load="single")
    for case in figures.cases(single):
        for time, dashes in (("last_us", "-"), ("commit_us", "--")):
            places = sorted({line["point"]["listeners"] for line in figures.select(single, case)})
            axes.plot(places, [percentile(_pooled(lines, time, case, place), 0.5) for place in places],
                      dashes, marker="o", color=plots.colour(case), label=f"{case}, {NAMES[time]}")
    _finish(axes, sorted({line["point"]["listeners"] for line in single}), "listeners", "µs, median")


def _draw_load(axes, lines: list[dict], senders: int, listeners: int) -> None:
    """p50 and p99 over the offered rate."""
    steady = figures.select(lines, load="steady", senders=senders, listeners=listeners)
    for case in figures.cases(steady):
        at = figures.points(figures.select(steady, case))
        for suffix, dashes in (("p99", "--"), ("p50", "-")):
            measured = sorted((figures.middle(figures.values(lines, "offered_per_s", case, **point)),
                               figures.middle(figures.values(lines, f"delivery_us_{suffix}", case, **point)))
                              for point in at)
            axes.plot(*zip(*measured), dashes, marker="o", color=plots.colour(case),
                      label=f"{case}, {suffix}")
    _finish(axes, None, "NOTIFY per second, offered", "µs until delivery")


def _finish(axes, places: list | None, xlabel: str, ylabel: str) -> None:
    axes.set_xscale("log")
    plots.log_scale(axes)
    if places:
        plots.mark_places(axes, places)
    else:
        plots.thousands(axes.xaxis)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)


def plots_of(lines: list[dict]) -> list[Plot]:
    """Single notifications over listeners; each steady load over its rate."""
    found = []
    if figures.select(lines, load="single"):
        found.append(Plot("latency_single", "One NOTIFY every 20 ms", partial(_draw_single, lines=lines)))
    return found + [Plot(f"latency_load_{senders}_{listeners}", f"A steady load, {senders} → {listeners}",
                         partial(_draw_load, lines=lines, senders=senders, listeners=listeners),
                         "10 to 90 % of what each server can; times are from when a notification was due.")
                    for senders, listeners in _topologies(lines)]


FAMILY = Family(
    name="latency",
    title="Latency",
    question="How long do the sender and the listeners wait, alone and under load?",
    points=points, tables=tables, plots=plots_of, seconds=1.6, quick_seconds=1)
