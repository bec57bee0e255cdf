"""A client that stops reading its socket."""

from functools import partial

from bench.families.laggard import AFTERWARDS_COLUMNS, afterwards_row
from bench.family import Case, Context, Family, Plot, Point, Table
from bench.measuring.laggard import NOTIFIERS, alone, mute
from bench.reporting import figures, plots

PENDING_MB = 1024
QUICK_PENDING_MB = 100
ROUNDS = 2  # each sends a gigabyte twice
ALONE = {"stock": "stock, all read", "herald": "herald, all read"}


def _alone(context: Context, name: str) -> dict:
    return alone(context.clusters[name], context.seconds)


def _mute(context: Context, name: str, pending_mb: int) -> dict:
    return mute(context.clusters[name], context.seconds, pending_mb=pending_mb)


def points(quick: bool) -> list[Point]:
    """With a gigabyte pending for the client that does not read."""
    pending_mb = QUICK_PENDING_MB if quick else PENDING_MB
    cases = (Case(ALONE["stock"], partial(_alone, name="stock")),
             Case("stock", partial(_mute, name="stock", pending_mb=pending_mb)),
             Case("herald", partial(_mute, name="herald", pending_mb=pending_mb)),
             Case(ALONE["herald"], partial(_alone, name="herald")))
    return [Point({"pending_mb": pending_mb}, cases, rounds=1 if quick else ROUNDS)]


def _row(lines: list[dict], point: dict, name: str) -> tuple:
    def middle(figure: str, case: str) -> float | None:
        return figures.middle(figures.values(lines, figure, case, **point))

    return (f"{point['pending_mb']:,}", name,
            figures.with_spread(figures.values(lines, "tps", ALONE[name], **point)),
            figures.with_spread(figures.values(lines, "tps", name, **point)),
            figures.ratio(figures.ratios(lines, "tps", subject=name, baseline=ALONE[name], **point)),
            middle("cpu_us", ALONE[name]), middle("cpu_us", name), middle("fill_s", name))


def tables(lines: list[dict]) -> list[Table]:
    """The cost to the others; what the client received when it read again."""
    pairs = [(point, name) for point in figures.points(lines) for name in ALONE
             if figures.select(lines, name, **point)]
    return [
        Table(f"{NOTIFIERS} connections notify one listener; the client of another does not read",
              ("pending, MB", "server", "NOTIFY/s, all read", "NOTIFY/s", "kept",
               "server's CPU, µs per NOTIFY, all read", "with", "sent the pending in, s"),
              [_row(lines, point, name) for point, name in pairs],
              "NOTIFY/s: until the one that reads has every one. What is pending was sent before, by one "
              "connection, to the client that does not read."),
        Table("What it received when it read again", ("pending, MB", *AFTERWARDS_COLUMNS),
              [afterwards_row(lines, point, name, f"{point['pending_mb']:,}") for point, name in pairs],
              "Checked by the number in each payload. On disk: just before it began to read."),
    ]


def _draw(axes, lines: list[dict]) -> None:
    plots.bars_by_case(axes, lines, "pending_mb", "tps", ylabel="NOTIFY per second",
                       names="{:,} MB pending".format,
                       cases=(ALONE["stock"], "stock", ALONE["herald"], "herald"))


def plots_of(lines: list[dict]) -> list[Plot]:
    """Throughput with and without such a client."""
    return [Plot("mute", f"{NOTIFIERS} to one, while the client of another listener does not read",
                 partial(_draw, lines=lines))]


FAMILY = Family(
    name="mute",
    title="A client that does not read",
    question="Does a client that stops reading its socket, with much to read, delay other sessions?",
    points=points, tables=tables, plots=plots_of, seconds=2, quick_seconds=1)
