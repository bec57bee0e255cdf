"""Writers: INSERT with a trigger that notifies, with several ways to flush the commit."""

from functools import partial
from weakref import WeakKeyDictionary

from bench.family import Case, Context, Family, Plot, Point, Table
from bench.measuring.writers import insert_with_trigger
from bench.reporting import figures, plots
from harness.cluster import Cluster
from harness.standby import Standby

CLIENTS = (1, 8, 32, 128)
ALSO_CLIENTS = (32, 128)  # for the other ways to commit
DELAYED_CLIENTS = 32
DELAYS_MS = (2, 5, 10)
STANDBY = "standby"
STANDBY_SETTINGS = {"max_wal_senders": 4}  # a cluster of its own
PLAIN = {"stock": "stock, no trigger", "herald": "herald, no trigger"}
NO_OP = "herald, trigger without NOTIFY"


def _delay(ms: int) -> str:
    return f"flush {ms} ms longer"


# How a transaction commits, and the database's settings for it.
COMMITS: dict[str, dict[str, object]] = {
    "on": {},
    "off": {"synchronous_commit": "off"},
    STANDBY: {},
} | {_delay(ms): {"commit_delay": 1000 * ms, "commit_siblings": 0} for ms in DELAYS_MS}

_standbys: WeakKeyDictionary[Cluster, Cluster] = WeakKeyDictionary()  # by their primary


def _with_standby(context: Context, name: str) -> Cluster:
    """A primary with a synchronous standby; both are started on first use."""
    primary = context.cluster_with(name, STANDBY_SETTINGS)
    if primary not in _standbys:
        standby = context.stack.enter_context(Standby(primary))
        standby.make_synchronous()
        _standbys[primary] = standby
    return primary


def _run(context: Context, name: str, commit: str, clients: int, trigger: str) -> dict:
    cluster = _with_standby(context, name) if commit == STANDBY else context.clusters[name]
    return insert_with_trigger(cluster, context.seconds, clients=clients, trigger=trigger,
                               settings=COMMITS[commit])


def _point(commit: str, clients: int, no_op: bool = False) -> Point:
    def case(label: str, name: str, trigger: str) -> Case:
        return Case(label, partial(_run, name=name, commit=commit, clients=clients, trigger=trigger))

    cases = [case(PLAIN["stock"], "stock", "none"), case("stock", "stock", "notify"),
             case("herald", "herald", "notify"), case(PLAIN["herald"], "herald", "none")]
    if no_op:
        cases.append(case(NO_OP, "herald", "no_op"))
    return Point({"commit": commit, "clients": clients}, tuple(cases))


def points(quick: bool) -> list[Point]:
    """Commits that wait for the disk from 1 to 128 clients; then the other ways to commit."""
    if quick:
        return [_point("on", 32), _point(_delay(5), DELAYED_CLIENTS)]
    found = [_point("on", clients, no_op=clients == DELAYED_CLIENTS) for clients in CLIENTS]
    found += [_point(commit, clients) for commit in ("off", STANDBY) for clients in ALSO_CLIENTS]
    return found + [_point(_delay(ms), DELAYED_CLIENTS) for ms in DELAYS_MS]


def _row(lines: list[dict], point: dict) -> tuple:
    def tps(case: str) -> str:
        return figures.with_spread(figures.values(lines, "tps", case, **point))

    def kept(server: str) -> str:
        return figures.ratio(figures.ratios(lines, "tps", subject=server, baseline=PLAIN[server], **point))

    return (point["commit"], str(point["clients"]), tps(PLAIN["stock"]), tps("stock"), kept("stock"),
            tps(PLAIN["herald"]), tps("herald"), kept("herald"),
            figures.ratio(figures.ratios(lines, "tps", **point)))


def _no_op_note(lines: list[dict]) -> str:
    cost = figures.ratios(lines, "tps", subject=NO_OP, baseline=PLAIN["herald"], commit="on",
                          clients=DELAYED_CLIENTS)
    if not cost:
        return ""
    return (f" With {DELAYED_CLIENTS} clients and commit on, a trigger that calls another function in place "
            f"of pg_notify() leaves {figures.ratio(cost)} of the throughput without a trigger.")


def tables(lines: list[dict]) -> list[Table]:
    """Transactions per second with and without the trigger, by the way to commit."""
    return [Table(
        "INSERT of one row per transaction, tps, with and without a trigger that calls pg_notify()",
        ("commit", "clients", "stock, no trigger", "stock, NOTIFY", "kept", "herald, no trigger",
         "herald, NOTIFY", "kept", "herald / stock"),
        [_row(lines, point) for point in figures.points(lines)],
        "One listener, which must have received every row's notification. on, off: synchronous_commit. standby: "
        "on, and a synchronous standby on the same machine must have flushed as well. flush 2 ms longer: "
        "commit_delay = 2000, commit_siblings = 0, set for the database: the backend that flushes for all "
        "who wait sleeps first, holding the WAL write lock, so a flush takes that much longer, as on a "
        "slower disk; unlike there, whoever comes to commit during the sleep is still in that flush." +
        _no_op_note(lines))]


def _draw_clients(axes, lines: list[dict]) -> None:
    shown = [PLAIN["stock"], "stock", PLAIN["herald"], "herald"]
    plots.line_by_case(axes, figures.select(lines, commit="on"), "clients", "tps", xlabel="clients",
                       ylabel="transactions per second", cases=shown)


def _draw_commits(axes, lines: list[dict]) -> None:
    names = {"on": "on", "off": "off", STANDBY: "sync.\nstandby"}
    names |= {_delay(ms): f"+{ms} ms" for ms in DELAYS_MS}
    shown = [PLAIN["stock"], "stock", PLAIN["herald"], "herald"]
    plots.marks_by_case(axes, figures.select(lines, clients=DELAYED_CLIENTS), "commit", "tps",
                        ylabel="transactions per second", cases=shown, names=names.get)


def plots_of(lines: list[dict]) -> list[Plot]:
    """tps over clients, and by the way to commit."""
    return [
        Plot("writers_clients", "INSERT with a trigger that notifies, synchronous_commit on",
             partial(_draw_clients, lines=lines)),
        Plot("writers_commits", f"The same with {DELAYED_CLIENTS} clients, by how a commit reaches its disk",
             partial(_draw_commits, lines=lines)),
    ]


FAMILY = Family(
    name="writers",
    title="Writers that notify",
    question="What is left of the throughput of INSERTs when a trigger notifies?",
    points=points, tables=tables, plots=plots_of, seconds=1.4, quick_seconds=1)
