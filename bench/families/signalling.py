"""One listener, and NOTIFY from more and more connections: the cost of redundant signals.

The columns are those of the published tables about signals to a listener that already has one pending.
"""

from bench.family import Family, Plot, Point, Table, both
from bench.measuring import measure
from bench.reporting import figures
from bench.reporting.plots import line_by_case

NOTIFIERS = (1, 2, 4, 8, 16, 32, 64, 128)
QUICK_NOTIFIERS = (8, 64)
CASES = ("stock", "herald")


def points(quick: bool) -> list[Point]:
    """A point for each number of connections."""
    return [Point({"notifiers": notifiers}, both(measure.topology, notifiers=notifiers, listeners=1))
            for notifiers in (QUICK_NOTIFIERS if quick else NOTIFIERS)]


def _published(lines: list[dict]) -> Table:
    rows = []
    for point, tps in figures.group(lines, "tps"):
        stock, herald = (tps.get(case, []) for case in CASES)
        rows.append((point["notifiers"], figures.average(stock), figures.average(herald),
                     figures.difference(figures.average(herald), figures.average(stock)),
                     figures.deviation(stock), figures.deviation(herald)))
    return Table("Averages", ("connections", "tps (stock)", "tps (herald)", "relative difference",
                              "stddev (stock)", "stddev (herald)"), rows)


def _raw(lines: list[dict]) -> Table:
    rows = []
    for case in CASES:
        for point, tps in figures.group(lines, "tps"):
            values = tps.get(case)
            if values:
                rows.append((case, point["notifiers"], len(values), min(values), max(values),
                             figures.average(values)))
    return Table("Rounds", ("version", "connections", "rounds", "min tps", "max tps", "average tps"), rows)


def _compared(lines: list[dict]) -> Table:
    rows = []
    for point in figures.points(lines):
        clients = [figures.middle(figures.values(lines, "cpu_client_share", case, **point)) for case in CASES]
        rows.append((point["notifiers"], figures.ratio(figures.ratios(lines, "tps", **point)),
                     *map(figures.percent, clients)))
    return Table("Compared", ("connections", "herald / stock", "clients' CPU (stock)", "clients' CPU (herald)"), rows,
                 measure.CLIENTS_CPU_NOTE)


def tables(lines: list[dict]) -> list[Table]:
    """The published table, its raw data, and stock and herald side by side."""
    return [_published(lines), _raw(lines), _compared(lines)]


def plots(lines: list[dict]) -> list[Plot]:
    """tps over the number of connections."""
    return [Plot("signalling", "NOTIFY to 1 listener", lambda axes: line_by_case(
        axes, lines, "notifiers", "tps", log_y=False, xlabel="connections that notify", ylabel="tps", cases=CASES))]


FAMILY = Family(
    name="signalling", title="Signalling", points=points, tables=tables, plots=plots, seconds=1,
    question="How many notifications a second reach one listener, as more and more connections notify?")
