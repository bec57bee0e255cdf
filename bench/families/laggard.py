"""Listeners that are idle in a transaction: their cost to the others, and what they receive afterwards."""

from functools import partial

from bench.family import Case, Context, Family, Plot, Point, Table
from bench.measuring.laggard import FILL_MB, NOTIFIERS, alone, in_transaction
from bench.reporting import figures, plots

LOADS = {"full speed": None, "20,000/s": 20_000}  # NOTIFY per second, all senders together
STEADY = "20,000/s"
BEHIND_TIMES = 7  # under the steady load: 7 times the duration of a measurement
QUICK_BEHIND_TIMES = 2
FULL_BEHIND_SECONDS = 600  # the same with --full
ALONE_SHARE = 0.25  # of that duration, for the comparison
ROUNDS = figures.INTERVAL_ROUNDS_MIN  # at full speed; several short rounds show a few percent best
AIMS = {1: 0.95, 100: 0.85}  # number of listeners behind: least share of the throughput to be kept
ALONE = {"stock": "stock, nobody behind", "herald": "herald, nobody behind"}
AFTERWARDS = "and then"
AFTERWARDS_RATE = 20_000  # a hundred listeners have a hundred times as much to receive


def _seconds(context: Context, load: str) -> float:
    if LOADS[load] is None:
        return context.seconds
    if context.full:
        return FULL_BEHIND_SECONDS
    return (QUICK_BEHIND_TIMES if context.quick else BEHIND_TIMES) * context.seconds


def _alone(context: Context, name: str, load: str) -> dict:
    share = ALONE_SHARE if load == STEADY else 1
    return alone(context.clusters[name], share * _seconds(context, load), rate=LOADS[load])


def _behind(context: Context, name: str, behind: int, load: str) -> dict:
    return in_transaction(context.clusters[name], _seconds(context, load), behind=behind, rate=LOADS[load],
                          catch_up=behind == 1)


def _catch_up(context: Context, behind: int) -> dict:
    return in_transaction(context.clusters["herald"], context.seconds, behind=behind, rate=AFTERWARDS_RATE)


def _point(behind: int, load: str, servers: tuple[str, ...], rounds: int | None) -> Point:
    cases = []
    for name in servers:
        pair = [Case(ALONE[name], partial(_alone, name=name, load=load)),
                Case(name, partial(_behind, name=name, behind=behind, load=load))]
        cases += pair if name == "stock" else reversed(pair)
    return Point({"behind": behind, "load": load}, tuple(cases), rounds=rounds)


def points(quick: bool) -> list[Point]:
    """One listener and a hundred behind, at full speed; one at a steady load, for longer; a hundred catch up."""
    everyone = Case("herald", partial(_catch_up, behind=100))
    many = [] if quick else [_point(100, "full speed", ("stock", "herald"), ROUNDS)]
    return [
        _point(1, "full speed", ("stock", "herald"), 1 if quick else ROUNDS),
        *many,
        _point(1, STEADY, ("stock", "herald"), 1),
        Point({"behind": 100, "load": STEADY, AFTERWARDS: "all catch up"}, (everyone,), rounds=1),
    ]


def full_points() -> list[Point]:
    """A hundred that are behind as long as the one."""
    return [_point(100, STEADY, ("herald",), 1)]


def _cost_row(lines: list[dict], point: dict, name: str) -> tuple:
    def middle(figure: str, case: str) -> float | None:
        return figures.middle(figures.values(lines, figure, case, **point))

    kept = figures.ratios(lines, "tps", subject=name, baseline=ALONE[name], **point)
    aim, result = "", ""
    if name == "herald" and kept:
        aim = f"≥ {AIMS[point['behind']]:g}"
        result = figures.verdict(kept, lambda share: share >= AIMS[point["behind"]])
    return (str(point["behind"]), point["load"], name,
            figures.with_spread(figures.values(lines, "tps", ALONE[name], **point)),
            figures.with_spread(figures.values(lines, "tps", name, **point)),
            figures.ratio(kept), aim, result, middle("cpu_us", ALONE[name]), middle("cpu_us", name))


def _late_row(lines: list[dict], point: dict, name: str) -> tuple:
    def worst(figure: str, case: str) -> float | None:
        return max(figures.values(lines, figure, case, **point), default=None)

    def middle(case: str) -> float | None:
        return figures.middle(figures.values(lines, "latency_ms", case, **point))

    return (str(point["behind"]), name, middle(ALONE[name]), middle(name), worst("late_ms_max", ALONE[name]),
            worst("late_ms_max", name))


def afterwards_row(lines: list[dict], point: dict, name: str, first: str) -> tuple:
    """A row about what the laggards received afterwards; other families with laggards use it as well."""
    def middle(figure: str) -> float | None:
        return figures.middle(figures.values(lines, figure, name, **point))

    disk, sent = middle("disk_mb"), middle("sent_mb")
    exact = figures.values(lines, "exact", name, **point)
    return (first, name, middle("behind_s"), middle("sent"), sent, disk, disk / sent if sent else None,
            middle("caught_up_s"), middle("caught_up_per_s"),
            "" if not exact else "all" if all(exact) else "NOT ALL")


AFTERWARDS_COLUMNS = ("server", "behind for, s", "notifications", "in the queue, MB", "on disk, MB",
                      "on disk / in the queue", "caught up in, s", "received/s, all together",
                      "once each and in order")


def _pairs(lines: list[dict], chosen: list[dict]) -> list[tuple[dict, str]]:
    return [(point, name) for point in chosen for name in ALONE if figures.select(lines, name, **point)]


def tables(lines: list[dict]) -> list[Table]:
    """The laggards' cost; the latency of the others; what the laggards received."""
    # A point without "and then" would select the lines of one that has it.
    compared = [line for line in lines if AFTERWARDS not in line["point"]]
    everyone = [line for line in lines if AFTERWARDS in line["point"]]
    points_of = figures.points(compared)
    steady = [point for point in points_of if point["load"] == STEADY]
    found = [Table(
        f"{NOTIFIERS} connections notify one listener, while others are idle in a transaction",
        ("behind", "load", "server", "NOTIFY/s, none behind", "NOTIFY/s", "kept", "aim", "",
         "server's CPU, µs per NOTIFY, none behind", "with"),
        [_cost_row(compared, point, name) for point, name in _pairs(compared, points_of)],
        f"NOTIFY/s: until the one listener has every one. Before, {FILL_MB} MB are sent to those who are "
        "behind: more than herald.queue_memory, so that pg_herald writes to files from the first moment on.")]
    if steady:
        found.append(Table(
            f"The same at {STEADY}: how late it made the others",
            ("behind", "server", "a transaction, ms, none behind", "with",
             "the latest begin, ms, none behind", "with"),
            [_late_row(compared, point, name) for point, name in _pairs(compared, steady)],
            "pgbench --rate; both from when the transaction was due."))
    rows = [afterwards_row(of, point, name, ", ".join(map(str, point.values())))
            for of in (compared, everyone) for point, name in _pairs(of, figures.points(of))]
    found.append(Table(
        "What they received, once their transactions had ended", ("behind, load", *AFTERWARDS_COLUMNS), rows,
        "Their client checks the number in each payload: of each sender every one, once, in order. On disk: "
        "just before. In the queue: with what pg_herald puts around each notification; what is not on disk "
        "is in memory. A hundred have to receive a hundred times as much: after full speed they end instead, "
        "and so they do after ten minutes."))
    return found


def _draw(axes, lines: list[dict]) -> None:
    placed = [line | {"point": {"place": f"{line['point']['behind']} behind,\n{line['point']['load']}"}}
              for line in lines if AFTERWARDS not in line["point"]]
    plots.marks_by_case(axes, placed, "place", "tps", ylabel="NOTIFY per second",
                        cases=(ALONE["stock"], "stock", ALONE["herald"], "herald"))


def plots_of(lines: list[dict]) -> list[Plot]:
    """Throughput with and without laggards."""
    return [Plot("laggard", f"{NOTIFIERS} to one, while other listeners are idle in a transaction",
                 partial(_draw, lines=lines))]


FAMILY = Family(
    name="laggard",
    title="Listeners that are idle in a transaction",
    question="What do listeners that fall behind cost the others, and do they receive everything afterwards?",
    points=points, tables=tables, plots=plots_of, full_points=full_points, seconds=2, quick_seconds=1)
