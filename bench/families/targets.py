"""pg_herald's targets, one line for each: the compared cases, their ratio, whether the target is met.

A scenario compares a subject with a baseline in the same run. By default the baseline is the stock
server and the subject is the one with pg_herald.
"""

from collections.abc import Callable
from dataclasses import dataclass

from bench.family import Case, Context, Family, Plot, Point, Table
from bench.measuring import measure
from bench.measuring.bystander import NOTIFY_INTERVAL_MS, bystander, steady_commit
from bench.measuring.idle import SCALE, unused
from bench.reporting import figures
from bench.reporting.plots import COLOURS, INK, thousands

LISTEN_CHANNELS = 30_000
# Where a few percent count, many short rounds give a narrower interval than a few long ones.
CLOSE_ROUNDS = 12
CLOSER_ROUNDS = 30
CLOSE_SHARE = 0.5  # of a measurement's seconds
NO_OP_ROUNDS = 8
BESIDE_ROUNDS = 3  # of further cases beside such a comparison
IDLE_ROUNDS = 80
IDLE_TPCB_ROUNDS = 30
IDLE_SECONDS = 0.1
LATENCY_ROUNDS = 8
BYSTANDER_ROUNDS = 6  # opening 300 connections takes longer than the measurement
BUSY_ROUNDS = 6
BUSY_BESIDE_ROUNDS = 1
# Two servers at the same time: 300 listeners keep both CPUs busy for some 7 ms, and must be idle between two NOTIFYs.
TOGETHER_INTERVAL_MS = 47
# Additional time of a flush, for 9,000 commits a second as on the machine where the target was found.
SLOWER_FLUSH_US = 3000
NOBODY_LISTENS = "nobody listens, herald"


@dataclass(frozen=True)
class Target:
    """The bound for the ratio subject / baseline or, with a unit, for the subject's own value."""

    bound: float
    at_least: bool = True
    unit: str = ""

    def met(self, value: float) -> bool:
        """Whether a ratio, or the subject's value, reaches it."""
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {figures.number(self.bound, self.unit)}"


@dataclass(frozen=True)
class Scenario:
    """One comparison: its cases, its unit and its target. Subject and baseline are names of cases."""

    name: str
    title: str
    unit: str
    baseline: str
    subject: str
    cases: tuple[Case, ...]
    target: Target | None = None
    rounds: int | None = None
    together: bool = False
    when: str = "always"  # or "normal": not with --quick, or "full"
    figure: str = "value"
    measured_with: str = ""  # the figure is in the measurements of the scenario of that name


def _case(name: str, cluster: str, run: Callable, *, rounds_max: int | None = None, share: float = 1,
          **parameters) -> Case:
    return Case(name, lambda context: run(context.clusters[cluster], share * context.seconds, **parameters),
                rounds_max)


def _both(name: str, title: str, unit: str, run: Callable, target: Target | None = None, *,
          rounds: int | None = None, together: bool = False, when: str = "always", **parameters) -> Scenario:
    cases = tuple(_case(cluster, cluster, run, **parameters) for cluster in ("stock", "herald"))
    return Scenario(name, title, unit, "stock", "herald", cases, target, rounds, together, when)


def _topology(name: str, title: str, target: float | None, **parameters) -> Scenario:
    if target:
        return _both(name, title, "tps", measure.topology, Target(target), share=CLOSE_SHARE, **parameters)
    return _both(name, title, "tps", measure.topology, **parameters)


def _insert_notify(name: str, disk: str, commit_delay_us: int, rounds: int,
                   target: Target | None = None) -> Scenario:
    def case(text: str, cluster: str, script: str, rounds_max: int | None = None) -> Case:
        return _case(text, cluster, measure.insert, rounds_max=rounds_max, share=CLOSE_SHARE, script=script,
                     commit_delay_us=commit_delay_us)

    baseline, subject = "INSERT, herald", "INSERT + NOTIFY, herald"
    title = f"INSERT + NOTIFY against INSERT alone, 32 clients, synchronous_commit on{disk}"
    return Scenario(name, title, "tps", baseline, subject, (
        case(baseline, "herald", "insert"),
        case(subject, "herald", "insert_notify"),
        # The cost of any second statement.
        case("INSERT + a statement that does nothing, herald", "herald", "insert_and_no_op", NO_OP_ROUNDS),
        case("INSERT + NOTIFY, stock", "stock", "insert_notify", BESIDE_ROUNDS),
    ), target, rounds=rounds, when="normal")


def _commit_latency_beside() -> Scenario:
    def case(name: str, listeners: int, beside: int) -> Case:
        return _case(name, "herald", measure.latency, listeners=listeners, of="commit_us", beside=beside)

    baseline, subject = "1 listener, 300 beside", "300 listeners, 1 beside"
    return Scenario("commit_latency_beside",
                    "the same, with others notified as often: caches are as cold for both", "µs",
                    baseline, subject, (case(baseline, 1, 300), case(subject, 300, 1)), when="full")


def _commit_latency() -> Scenario:
    def case(name: str, cluster: str, listeners: int, rounds_max: int | None = None) -> Case:
        return _case(name, cluster, measure.latency, rounds_max=rounds_max, share=CLOSE_SHARE,
                     listeners=listeners, of="commit_us")

    baseline, subject = "1 listener, herald", "300 listeners, herald"
    return Scenario("commit_latency", "commit of a NOTIFY every 20 ms, 300 listeners against 1, median", "µs",
                    baseline, subject, (case(baseline, "herald", 1), case(subject, "herald", 300),
                                        case("1 listener, stock", "stock", 1, BESIDE_ROUNDS),
                                        case("300 listeners, stock", "stock", 300, BESIDE_ROUNDS)),
                    Target(1.2, at_least=False), rounds=LATENCY_ROUNDS)


def _busy_client() -> Scenario:
    def case(name: str, cluster: str, listeners: int, rounds_max: int | None = None) -> Case:
        return _case(name, cluster, steady_commit, rounds_max=rounds_max, share=CLOSE_SHARE, listeners=listeners,
                     busy=True)

    baseline, subject = "1 listener, herald", "300 listeners, herald"
    title = (f"commit of a NOTIFY every {NOTIFY_INTERVAL_MS} ms by a client that is busy between, 300 listeners "
             "against 1, median")
    return Scenario("busy_client", title, "µs", baseline, subject, (
        case(baseline, "herald", 1), case(subject, "herald", 300),
        case("1 listener, stock", "stock", 1, BUSY_BESIDE_ROUNDS),
        case("300 listeners, stock", "stock", 300, BUSY_BESIDE_ROUNDS),
    ), Target(1.5, at_least=False), rounds=BUSY_ROUNDS)


def _bystander() -> tuple[Scenario, ...]:
    """One scenario is measured; the others evaluate the same measurements."""
    def case(name: str, cluster: str, listeners: int) -> Case:
        return _case(name, cluster, bystander, share=CLOSE_SHARE, listeners=listeners)

    cases = case("stock", "stock", 300), case("herald", "herald", 300), case(NOBODY_LISTENS, "herald", 0)
    title = f"a SELECT 1 beside a NOTIFY every {NOTIFY_INTERVAL_MS} ms to 300 listeners"
    at_most_stock = Target(1.0, at_least=False)
    return (
        Scenario("bystander", f"{title}, median", "µs", "stock", "herald", cases, at_most_stock,
                 rounds=BYSTANDER_ROUNDS, figure="p50_us"),
        *(Scenario(f"bystander_{name}", f"the same, {name}", "µs", "stock", "herald", cases, at_most_stock,
                   figure=f"{name}_us", measured_with="bystander") for name in ("p90", "p99")),
        Scenario("bystander_alone", "the same, median, against no listener", "µs", NOBODY_LISTENS, "herald",
                 (), Target(1.2, at_least=False), figure="p50_us", measured_with="bystander"),
    )


def _unused(name: str, load: str, title: str, target: Target | None, rounds: int) -> Scenario:
    def on(cluster: str) -> Callable[[Context], dict]:
        return lambda context: unused(context.clusters[cluster], IDLE_SECONDS, load=load)

    return Scenario(name, f"{title}, scale {SCALE}: loaded but unused against not loaded", "tps", "not loaded",
                    "loaded, unused", (Case("not loaded", on("stock")), Case("loaded, unused", on("herald"))),
                    target, rounds=rounds, when="normal")


SCENARIOS = (
    _topology("one_to_one", "1 notifier, 1 listener", 1.8, rounds=CLOSE_ROUNDS, notifiers=1, listeners=1),
    _topology("eight_to_one", "8 notifiers, 1 listener", 2.5, notifiers=8, listeners=1, when="normal"),
    _topology("thirtytwo_to_one", "32 notifiers, 1 listener", 4.5, notifiers=32, listeners=1, when="normal"),
    _topology("hundred_to_one", "100 notifiers, 1 listener", 5, notifiers=100, listeners=1),
    _topology("one_to_hundred", "1 notifier, 100 listeners, one channel", 50, notifiers=1, listeners=100),
    _topology("hundred_to_hundred", "100 notifiers, 100 listeners, one channel", 30,
              notifiers=100, listeners=100, when="normal"),
    _topology("hundred_to_hundred_own_channels", "100 notifiers, 100 listeners, a channel for each", 28,
              notifiers=100, listeners=100, channel="channel_%d", script="notify_channel_client_id"),
    _topology("eight_to_three_hundred", "8 notifiers, 300 listeners, one channel", 80,
              notifiers=8, listeners=300, when="normal"),
    _insert_notify("insert_notify", f", a flush takes {SLOWER_FLUSH_US // 1000} ms longer", SLOWER_FLUSH_US,
                   CLOSER_ROUNDS, Target(0.97)),
    _insert_notify("insert_notify_this_disk", ", this machine's disk", 0, CLOSE_ROUNDS),
    _commit_latency(),
    _commit_latency_beside(),
    _busy_client(),
    *_bystander(),
    _both("last_listener_latency", "the last of 300 listeners receives it, median", "µs", measure.latency,
          Target(1.0, at_least=False), rounds=LATENCY_ROUNDS, together=True, when="normal", listeners=300,
          of="last_us", interval_ms=TOGETHER_INTERVAL_MS),
    _unused("idle_cost", "select", "pgbench -S -M prepared", Target(0.99), IDLE_ROUNDS),
    _unused("idle_cost_tpcb", "tpcb", "pgbench -b tpcb-like -M prepared", None, IDLE_TPCB_ROUNDS),
    _topology("thousand_listeners", "1 notifier, 1,000 listeners, one channel", None,
              notifiers=1, listeners=1000, rounds=2, when="normal"),
    _topology("seventy_thousand_channels", "8 notifiers; 100 listeners to 700 channels each", None,
              notifiers=8, listeners=100, channel="channel_%d", channels_each=700,
              script="notify_random_channel", when="normal"),
    _both("thirty_thousand_channels_one_backend", "LISTEN to 30,000 channels in one transaction", "ms",
          measure.listen_time, Target(4000, at_least=False, unit="ms"), when="normal",
          channels=LISTEN_CHANNELS),
)


def _points(*when: str, rounds: int | None = None) -> list[Point]:
    return [Point({"scenario": one.name}, one.cases, rounds or one.rounds,
                  figures.INTERVAL_ROUNDS_MIN if one.target else 1, one.together)
            for one in SCENARIOS if one.when in when and not one.measured_with]


def points(quick: bool) -> list[Point]:
    """One point for each scenario."""
    return _points("always", rounds=1) if quick else _points("always", "normal")


def full_points() -> list[Point]:
    """Scenarios that explain a figure of another one."""
    return _points("full")


def measured(lines: list[dict]) -> list[tuple[Scenario, list[dict], list[float]]]:
    """The scenarios that were measured, with their lines and their ratios."""
    found = []
    for scenario in SCENARIOS:
        own = figures.select(lines, scenario=scenario.measured_with or scenario.name)
        if own:
            found.append((scenario, own, figures.ratios(own, scenario.figure, scenario.subject, scenario.baseline)))
    return found


def _result(scenario: Scenario, own: list[dict], ratios: list[float]) -> str:
    if not scenario.target:
        return ""
    compared = figures.values(own, scenario.figure, scenario.subject) if scenario.target.unit else ratios
    return figures.verdict(compared, scenario.target.met)


def _delivered(lines: list[dict]) -> str:
    told = [line["figures"]["delivered"] for line in lines if "delivered" in line["figures"]]
    return "" if not told else "all" if all(told) else "NOT ALL"


def tables(lines: list[dict]) -> list[Table]:
    """Ratios against targets, and the figures of every case."""
    ratio_rows, case_rows = [], []
    for scenario, own, ratios in measured(lines):
        ratio_rows.append((scenario.title, scenario.subject, scenario.baseline, figures.ratio(ratios),
                           str(scenario.target or ""), _result(scenario, own, ratios)))
        for case in scenario.cases:
            mine = figures.select(own, case.name)
            case_rows.append((
                scenario.title if case is scenario.cases[0] else "", case.name,
                figures.with_spread(figures.values(mine, scenario.figure), scenario.unit),
                figures.middle(figures.values(mine, "deliveries_per_s")), _delivered(mine),
                figures.percent(figures.middle(figures.values(mine, "cpu_client_share")))))
    return [
        Table("Ratios", ("", "subject", "compared with", "ratio", "target", ""), ratio_rows,
              "tps of a topology: notifications per second until every listener has every one. The last of "
              "300 listeners: both servers at the same time, a NOTIFY every "
              f"{TOGETHER_INTERVAL_MS} ms on each. A SELECT 1, every 2 ms or so, takes from the moment when it was "
              "due until its answer has come."),
        Table("Figures", ("", "case", "median (rounds)", "deliveries/s", "delivered", "clients' CPU"),
              case_rows, measure.CLIENTS_CPU_NOTE),
    ]


def plots(lines: list[dict]) -> list[Plot]:
    """The ratios of the topologies."""
    shown = [(scenario, ratios) for scenario, _, ratios in reversed(measured(lines))
             if scenario.unit == "tps" and scenario.baseline == "stock" and ratios]
    if not shown:
        return []

    def draw(axes) -> None:
        for place, (scenario, ratios) in enumerate(shown):
            middle, (low, high) = figures.middle(ratios), figures.median_interval(ratios)
            axes.errorbar(middle, place, xerr=[[middle - low], [high - middle]], color=COLOURS["herald"], marker="o",
                          capsize=3, linestyle="none", label="pg_herald")
            axes.text(1.02, place, f"{middle:,.1f}", va="center", transform=axes.get_yaxis_transform())
            if scenario.target:
                axes.plot([scenario.target.bound] * 2, [place - 0.35, place + 0.35], color=INK, linewidth=1.5,
                          label="target")
        axes.set_yticks(range(len(shown)), [scenario.title for scenario, _ in shown])
        axes.set_xscale("log")
        axes.set_xlim(left=min([1, *(ratio for _, ratios in shown for ratio in ratios)]))
        thousands(axes.xaxis)
        axes.grid(False, axis="y")
        axes.set_xlabel("times the stock server's tps")

    return [Plot("targets", "pg_herald against the stock server", draw)]


FAMILY = Family(
    name="targets", title="Targets", points=points, full_points=full_points, tables=tables, plots=plots,
    seconds=2,
    question="Does each scenario reach the ratio to the stock server that it is held to?")
