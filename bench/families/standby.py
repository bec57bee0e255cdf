"""Listeners on a standby: how far behind visibility they are, and what the relay costs."""

from functools import partial
from weakref import WeakKeyDictionary

from bench.family import Case, Context, Family, Plot, Point, Table
from bench.measuring.standby import NOTIFY_RATE, applied, beside_other_wal, listen, visible
from bench.reporting import figures, plots
from harness.cluster import Cluster
from harness.standby import Standby

LISTENERS = (1, 100, 300)
QUICK_LISTENERS = (1,)
RATE = 20  # a second: the last of 300 listeners has a notification before the next one is sent
OTHER_WAL = ((10, 1_000), (50, 1_000), (200, 7_000))  # MB/s, bytes of each row
LISTENERS_ROUNDS = 6
PRIMARY, STANDBY = "LISTEN on the primary", "LISTEN on the standby"
VISIBLE, APPLIED = "visible on the standby", "remote_apply"  # two measures of the lag of the replay
CASES = (VISIBLE, APPLIED, STANDBY, PRIMARY)
# No checkpoint, and no WAL that is deleted, within a measurement.
SETTINGS = {"max_wal_senders": 4, "max_wal_size": "8GB", "wal_keep_size": "2GB"}

_standbys: WeakKeyDictionary[Cluster, Standby] = WeakKeyDictionary()  # by their primary


def _standby(context: Context, name: str) -> Standby:
    """A standby of a primary of its own, both started on first use."""
    primary = context.cluster_with(name, SETTINGS)
    if primary not in _standbys:
        _standbys[primary] = context.stack.enter_context(Standby(primary))
    return _standbys[primary]


def _listen(context: Context, case: str, listeners: int) -> dict:
    standby = _standby(context, "herald")
    if case in (VISIBLE, APPLIED):
        return (visible if case == VISIBLE else applied)(standby, context.seconds, rate=RATE)
    return listen(standby, context.seconds, listeners=listeners, rate=RATE, on_primary=case == PRIMARY)


def _beside(context: Context, name: str, mb_per_s: int, row_bytes: int) -> dict:
    return beside_other_wal(_standby(context, name), name, context.seconds, mb_per_s=mb_per_s, row_bytes=row_bytes)


def points(quick: bool) -> list[Point]:
    """Numbers of listeners; then rates of other WAL."""
    found = [Point({"listeners": listeners}, tuple(
        Case(case, partial(_listen, case=case, listeners=listeners)) for case in CASES),
                   rounds_min=1 if quick else LISTENERS_ROUNDS)
             for listeners in (QUICK_LISTENERS if quick else LISTENERS)]
    return found + [Point({"mb_per_s": mb_per_s, "row_bytes": row_bytes}, tuple(
        Case(name, partial(_beside, name=name, mb_per_s=mb_per_s, row_bytes=row_bytes)) for name in ("stock", "herald")))
                    for mb_per_s, row_bytes in (OTHER_WAL[:1] if quick else OTHER_WAL)]


def _listeners_table(lines: list[dict]) -> Table:
    chosen = [line for line in lines if "listeners" in line["point"]]

    def ms(figure: str, case: str, point: dict) -> str:
        return figures.with_spread([us / 1000 for us in figures.values(chosen, figure, case, **point)])

    def later(figure: str, case: str, point: dict) -> str:
        # Both measures of the lag are rather too long, so the shorter one of each round counts.
        lags = [figures.differences(chosen, figure, case, lag, **point) for lag in (VISIBLE, APPLIED)]
        return figures.with_spread([max(us) / 1000 for us in zip(*lags)] if case == STANDBY else [])

    rows = [(str(point["listeners"]), case,
             *(show(figure, case, point) for figure in ("delivery_us_p50", "delivery_us_p99") for show in (ms, later)),
             ms("commit_us_p50", case, point))
            for point in figures.points(chosen) for case in CASES]
    return Table(f"A row and its notification, {RATE} a second on the primary: ms until it has arrived",
                 ("listeners", "", "p50", "after the replay", "p99", "after the replay",
                  "until the writer knows its commit, p50"), rows,
                 "From when the row was to be inserted, by one client on the same machine. visible: one connection to "
                 "the standby sends the same prepared query again as soon as it is answered, so it sees a row at most "
                 "one query late. remote_apply: the writer's commit waits until the standby, a synchronous one meanwhile, "
                 "has replayed it. There is no listener in these two; both are rather longer than the replay, and after the "
                 "replay is after the shorter one of each round. Every listener's notifications count, those of the "
                 "last as well.")


def _other_wal_table(lines: list[dict]) -> Table:
    chosen = [line for line in lines if "mb_per_s" in line["point"]]

    def cells(case: str, point: dict) -> tuple:
        def spread(figure: str, factor: float = 1) -> str:
            return figures.with_spread([factor * value for value in figures.values(chosen, figure, case, **point)])

        return (spread("wal_mb_per_s"), spread("replay_behind_mb_max"), spread("relay_behind_mb_max"),
                spread("caught_up_s"), spread("startup_percent"), spread("relay_percent"),
                spread("delivery_us_p50", 1e-3), spread("delivery_us_p99", 1e-3))

    rows = [(str(point["mb_per_s"]), f"{point['row_bytes']:,}", case, *cells(case, point)) for point in figures.points(chosen)
            for case in figures.cases(figures.select(chosen, **point))]
    return Table("The standby replays other WAL",
                 ("MB/s, to be", "bytes a row", "server", "MB/s, written", "replay behind, MB, at most", "relay behind, MB, at most",
                  "s until both are through", "replay, % of a CPU", "relay, % of a CPU",
                  "until a listener has it, ms, p50", "p99"), rows,
                 f"A record for each row that is inserted. With herald {NOTIFY_RATE} logged notifications a second go to "
                 "one listener on the standby meanwhile. Both servers and the clients are on one machine.")


def tables(lines: list[dict]) -> list[Table]:
    """Latency by the number of listeners, and other WAL."""
    return [table for table in (_listeners_table(lines), _other_wal_table(lines)) if table.rows]


def _draw(axes, lines: list[dict]) -> None:
    timed = [line | {"figures": {"ms": line["figures"]["delivery_us_p50"] / 1000}}
             for line in lines if "listeners" in line["point"] and "figures" in line]
    plots.line_by_case(axes, timed, "listeners", "ms", xlabel="listeners", ylabel="ms, median",
                       cases=CASES)


def plots_of(lines: list[dict]) -> list[Plot]:
    """The median over the number of listeners."""
    return [Plot("standby_latency", "Until a row is visible, and its notification received", partial(_draw, lines=lines))]


FAMILY = Family(
    name="standby",
    title="Listeners on a standby",
    question="How long after its commit does a notification arrive on a standby, and does the relay keep up?",
    points=points, tables=tables, plots=plots_of, seconds=3, quick_seconds=1)
