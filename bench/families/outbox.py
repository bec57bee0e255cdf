"""An outbox: the cost of notifying readers of each row in the transaction that inserts it."""

from functools import partial

from bench.family import Case, Context, Family, Plot, Point, Table
from bench.measuring.outbox import BATCH_MS, write
from bench.reporting import figures, plots

READERS = (1, 10, 100)
WRITERS = (8, 32, 128)
RATE = 500  # a second: all cases sustain it
FASTEST, PACED = "as fast as it goes", f"{RATE}/s"
TRIGGER, BATCHED, HERALD = "stock, trigger", f"stock, batched every {BATCH_MS} ms", "herald, trigger"


def _run(context: Context, name: str, readers: int, writers: int, load: str, batched: bool) -> dict:
    return write(context.clusters[name], context.seconds, readers=readers, writers=writers, batched=batched,
                 rate=RATE if load == PACED else None)


def _point(readers: int, writers: int, load: str) -> Point:
    run = partial(_run, readers=readers, writers=writers, load=load)
    return Point({"readers": readers, "writers": writers, "load": load}, (
        Case(TRIGGER, partial(run, name="stock", batched=False)),
        Case(BATCHED, partial(run, name="stock", batched=True)),
        Case(HERALD, partial(run, name="herald", batched=False))))


def points(quick: bool) -> list[Point]:
    """Each number of readers with each number of writers; at a fixed rate with the fewest."""
    if quick:
        return [_point(1, 32, FASTEST), _point(10, WRITERS[0], PACED)]
    return [_point(readers, writers, FASTEST) for readers in READERS for writers in WRITERS] + [
        _point(readers, WRITERS[0], PACED) for readers in READERS]


def _fastest_row(lines: list[dict], point: dict) -> tuple:
    def writes(case: str) -> str:
        return figures.with_spread(figures.values(lines, "writes_per_s", case, **point))

    def ratio(baseline: str) -> str:
        return figures.ratio(figures.ratios(lines, "writes_per_s", subject=HERALD, baseline=baseline, **point))

    return (str(point["readers"]), str(point["writers"]), writes(TRIGGER), writes(BATCHED), writes(HERALD),
            ratio(TRIGGER), ratio(BATCHED))


def _paced_row(lines: list[dict], point: dict, case: str) -> tuple:
    def ms(figure: str) -> str:
        return figures.with_spread([us / 1000 for us in figures.values(lines, figure, case, **point)])

    return (str(point["readers"]), case, ms("delivery_us_p50"), ms("delivery_us_p99"), ms("commit_us_p50"))


def tables(lines: list[dict]) -> list[Table]:
    """Writes a second; and the time until a reader is notified."""
    found = figures.points(lines)
    return [
        Table("Rows inserted a second, one a transaction, until all readers have received all",
              ("readers", "writers", TRIGGER, BATCHED, HERALD, "herald / trigger", "herald / batched"),
              [_fastest_row(lines, point) for point in found if point["load"] == FASTEST],
              "trigger: pg_notify() by a trigger, in the transaction. batched: the application notes each row that it "
              f"has committed, and one connection notifies of all of them every {BATCH_MS} ms; what has been noted is "
              "lost when the application ends. One client process holds all connections, on the same machine."),
        Table(f"Until a reader has the notification, ms, at {RATE} rows a second from {WRITERS[0]} writers",
              ("readers", "", "p50", "p99", "until the writer knows its commit, p50"),
              [_paced_row(lines, point, case) for point in found if point["load"] == PACED
               for case in (TRIGGER, BATCHED, HERALD)],
              "From when the row was to be inserted.")]


def _draw(axes, lines: list[dict]) -> None:
    plots.line_by_case(axes, figures.select(lines, readers=10, load=FASTEST), "writers", "writes_per_s",
                       xlabel="writers", ylabel="rows a second", cases=(TRIGGER, BATCHED, HERALD))


def plots_of(lines: list[dict]) -> list[Plot]:
    """Writes over the number of writers."""
    return [Plot("outbox_writes", "An outbox with 10 readers", partial(_draw, lines=lines))]


FAMILY = Family(
    name="outbox",
    title="An outbox",
    question="What does it take to tell readers of each row within the transaction that inserts it?",
    points=points, tables=tables, plots=plots_of, seconds=2, quick_seconds=1)
