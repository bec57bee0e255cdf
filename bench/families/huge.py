"""One transaction with millions of notifications."""

from functools import partial

from bench.family import Case, Context, Family, Plot, Point, Table
from bench.measuring.transaction import notify_huge
from bench.reporting import figures, plots

COUNT = 1_000_000
QUICK_COUNT = 100_000
HUGE_COUNT = 10_000_000
ROUNDS = 2


def _run(context: Context, name: str, notifications: int) -> dict:
    return notify_huge(context.clusters[name], notifications)


def _point(notifications: int, names: tuple[str, ...], rounds: int) -> Point:
    return Point({"notifications": notifications},
                 tuple(Case(name, partial(_run, name=name, notifications=notifications)) for name in names),
                 rounds=rounds)


def points(quick: bool) -> list[Point]:
    """A million on both servers; ten million on pg_herald's."""
    if quick:
        return [_point(QUICK_COUNT, ("stock", "herald"), 1)]
    return [_point(COUNT, ("stock", "herald"), ROUNDS), _point(HUGE_COUNT, ("herald",), 1)]


def full_points() -> list[Point]:
    """Ten million on stock as well, which takes much time and memory."""
    return [_point(HUGE_COUNT, ("stock",), 1)]


def _row(lines: list[dict], point: dict, name: str) -> tuple:
    def middle(figure: str) -> float | None:
        return figures.middle(figures.values(lines, figure, name, **point))

    exact = figures.values(lines, "exact", name, **point)
    return (f"{point['notifications']:,}", name, middle("notify_s"), middle("commit_s"), middle("arrived_s"),
            middle("peak_mb"), middle("peak_private_mb"), middle("listener_peak_mb"),
            "all" if all(exact) else "NOT ALL")


def tables(lines: list[dict]) -> list[Table]:
    """Time, memory, and whether all notifications arrived."""
    return [Table(
        "One transaction, all notifications different, to one listener",
        ("notifications", "server", "pg_notify() in a loop, s", "commit, s", "arrived after, s",
         "sender's peak, MB", "of that its own, MB", "listening backend's own peak, MB",
         "once each and in order"),
        [_row(lines, point, name) for point in figures.points(lines)
         for name in figures.cases(figures.select(lines, **point))],
        "Arrived after: from the beginning of the commit until the client has the last one. A backend's peak "
        "is VmHWM; its own is what that grew by, without shared memory, which is set aside when the server "
        "starts. The client checks the number in each payload.")]


def _draw(axes, lines: list[dict]) -> None:
    plots.line_by_case(axes, lines, "notifications", "peak_private_mb",
                       xlabel="notifications in one transaction", ylabel="MB")


def plots_of(lines: list[dict]) -> list[Plot]:
    """The sender's memory over the transaction's size."""
    return [Plot("huge_memory", "Peak of the sending backend's own memory", partial(_draw, lines=lines))]


FAMILY = Family(
    name="huge",
    title="One transaction with millions of notifications",
    question="Does it commit, in which memory, and when has it arrived?",
    points=points, tables=tables, plots=plots_of, full_points=full_points, seconds=1, quick_seconds=1)
