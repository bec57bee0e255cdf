"""What a stranger's notification takes while others do what any role may do."""

from functools import partial

from bench.family import Family, Plot, Point, Table, both
from bench.measuring.strangers import ATTACKS, stranger
from bench.reporting import figures

QUICK = ("nothing", "a NOTIFY in each transaction")
CASES = ("stock", "herald")
TIMES = ("received_us_p50", "received_us_p99", "commit_us_p50", "commit_us_p99")


def points(quick: bool) -> list[Point]:
    """One for each attack."""
    return [Point({"attack": attack}, both(stranger, attack=attack)) for attack in (QUICK if quick else ATTACKS)]


def _row(lines: list[dict], attack: str) -> tuple:
    def ms(figure: str, case: str) -> str:
        return figures.with_spread([us / 1000 for us in figures.values(lines, figure, case, attack=attack)])

    return (attack, *(ms(figure, case) for figure in TIMES[:2] for case in CASES),
            *(figures.ratio(figures.ratios(lines, figure, attack=attack)) for figure in TIMES))


def tables(lines: list[dict]) -> list[Table]:
    """Until it is received, and the ratios of both times."""
    return [Table("A stranger's NOTIFY, every 20 ms to one listener", (
        "meanwhile others do", "received, ms, p50: stock", "herald", "p99: stock", "herald",
        "herald / stock: received, p50", "p99", "committed, p50", "p99"),
        [_row(lines, point["attack"]) for point in figures.points(lines)])]


FAMILY = Family(
    name="strangers", title="Beside attacks", points=points, tables=tables, seconds=2, quick_seconds=0.5,
    question="How does a stranger fare while others do what any role may do?")
