"""The gain of the daisy chain: herald.wakeup_concurrency from 1 to all listeners (the thundering herd)."""

from functools import partial

from bench.family import Case, Context, Family, Plot, Point, Table
from bench.measuring.wakeups import wakeups
from bench.reporting import figures, plots

TOPOLOGIES = ((1, 100), (8, 300))  # notifiers, listeners
CONCURRENCIES = (1, 2, 4, 16)
QUICK_CONCURRENCIES = (2,)
ALL = 1_000  # more than there are listeners: no listener waits for a turn


def _herald(context: Context, notifiers: int, listeners: int, concurrency: int) -> dict:
    cluster = context.cluster_with("herald", {"herald.wakeup_concurrency": concurrency})
    return wakeups(cluster, context.seconds, notifiers=notifiers, listeners=listeners, counts=True)


def _stock(context: Context, notifiers: int, listeners: int) -> dict:
    return wakeups(context.clusters["stock"], context.seconds, notifiers=notifiers, listeners=listeners,
                   counts=False)


def points(quick: bool) -> list[Point]:
    """Every topology with every concurrency; stock, which wakes all at once, beside the largest."""
    found = []
    for notifiers, listeners in TOPOLOGIES[:1] if quick else TOPOLOGIES:
        topology = {"notifiers": notifiers, "listeners": listeners}
        for concurrency in QUICK_CONCURRENCIES if quick else CONCURRENCIES:
            found.append(Point(topology | {"concurrency": concurrency},
                               (Case("herald", partial(_herald, **topology, concurrency=concurrency)),)))
        found.append(Point(topology | {"concurrency": listeners},
                           (Case("stock", partial(_stock, **topology)),
                            Case("herald", partial(_herald, **topology, concurrency=ALL)))))
    return found


def _topologies(lines: list[dict]) -> list[tuple[int, int]]:
    return list(dict.fromkeys((point["notifiers"], point["listeners"]) for point in figures.points(lines)))


def _of_one(lines: list[dict], notifiers: int, listeners: int) -> list[dict]:
    return figures.select(lines, notifiers=notifiers, listeners=listeners)


def _row(lines: list[dict], point: dict, case: str) -> tuple:
    def middle(figure: str) -> float | None:
        return figures.middle(figures.values(lines, figure, case, **point))

    woken = "all" if point["concurrency"] == point["listeners"] else str(point["concurrency"])
    return (case, woken, figures.with_spread(figures.values(lines, "tps", case, **point)),
            middle("deliveries_per_s"), middle("last_us_p50"), middle("last_us_p99"),
            middle("signals_per_notification"), middle("saved_per_notification"),
            middle("messages_per_wakeup"))


def tables(lines: list[dict]) -> list[Table]:
    """One for each topology."""
    found = []
    for notifiers, listeners in _topologies(lines):
        chosen = _of_one(lines, notifiers, listeners)
        rows = [_row(chosen, point, case) for point in figures.points(chosen)
                for case in figures.cases(figures.select(chosen, **point))]
        found.append(Table(
            f"{notifiers} → {listeners}, one channel",
            ("server", "woken at a time", "NOTIFY/s", "deliveries/s", "last listener, µs, p50", "p99",
             "signals sent per NOTIFY", "saved", "messages per wakeup"), rows,
            "The last listener's latency: of single notifications, 20 ms apart. Signals and messages: "
            "herald.stats, of the load. Saved: a listener was concerned, and needed no signal of its own. "
            "Stock wakes everyone at once and counts no signals. The default is the number of CPUs."))
    return found


def _draw(axes, lines: list[dict], figure: str, ylabel: str) -> None:
    herald = figures.select(lines, "herald")
    for number, (notifiers, listeners) in enumerate(_topologies(lines)):
        stock = figures.middle(figures.values(_of_one(lines, notifiers, listeners), figure, "stock"))
        if stock is not None:
            axes.axhline(stock, linestyle=("--", ":")[number % 2], color=plots.COLOURS["stock"],
                         label=f"stock, {notifiers} → {listeners}")
    cases = [f"{notifiers} → {listeners}" for notifiers, listeners in _topologies(herald)]
    named = [line | {"case": f"{line['point']['notifiers']} → {line['point']['listeners']}"}
             for line in herald]
    plots.line_by_case(axes, named, "concurrency", figure, xlabel="herald.wakeup_concurrency", ylabel=ylabel,
                       cases=cases, label=lambda case: f"herald, {case}")


def plots_of(lines: list[dict]) -> list[Plot]:
    """Throughput and the last listener's latency over the concurrency."""
    return [
        Plot("wakeups_throughput", "Throughput by the number of listeners woken at a time",
             partial(_draw, lines=lines, figure="tps", ylabel="NOTIFY per second"),
             "Each line ends at all listeners at once: the thundering herd."),
        Plot("wakeups_latency", "Until the last listener receives a single notification",
             partial(_draw, lines=lines, figure="last_us_p50", ylabel="µs, median")),
    ]


FAMILY = Family(
    name="wakeups",
    title="Wakeups",
    question="What does it buy that listeners wake each other, a few at a time, instead of all at once?",
    points=points, tables=tables, plots=plots_of, seconds=1, quick_seconds=1)
