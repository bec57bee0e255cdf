"""The targets that pg_herald is held to, one line for each: what is compared, the ratio, whether it is met.

A scenario compares a subject with a baseline in the same run. Where nothing else is said the
baseline is the stock server and the subject is the one with pg_herald.
"""

from collections.abc import Callable
from dataclasses import dataclass

from bench import figures, measure
from bench.family import Case, Context, Family, Plot, Point, Table
from bench.plots import COLOURS, INK

LISTEN_CHANNELS = 30_000
IDLE_ROUNDS = 40  # a difference of a percent shows best in many short runs, in turn
IDLE_SECONDS = 0.1


@dataclass(frozen=True)
class Target:
    """What the ratio subject / baseline must reach."""

    ratio: float
    at_least: bool = True

    def met(self, ratio: float) -> bool:
        """Whether a ratio reaches it."""
        return ratio >= self.ratio if self.at_least else ratio <= self.ratio

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.ratio:g}"


@dataclass(frozen=True)
class Scenario:
    """What is measured, in which unit, and what it is held to. Cases stand by name."""

    name: str
    title: str
    unit: str
    baseline: str
    subject: str
    cases: tuple[Case, ...]
    target: Target | None = None
    rounds: int | None = None
    in_quick: bool = True


def _case(name: str, cluster: str, run: Callable, **parameters) -> Case:
    return Case(name, lambda context: run(context.clusters[cluster], context.seconds, **parameters))


def _both(name: str, title: str, unit: str, run: Callable, target: Target | None = None, *,
          in_quick: bool = True, **parameters) -> Scenario:
    cases = tuple(_case(cluster, cluster, run, **parameters) for cluster in ("stock", "herald"))
    return Scenario(name, title, unit, "stock", "herald", cases, target, in_quick=in_quick)


def _topology(name: str, title: str, target: float | None, *, in_quick: bool = True,
              **parameters) -> Scenario:
    return _both(name, title, "tps", measure.topology, Target(target) if target else None,
                 in_quick=in_quick, **parameters)


def _insert_notify(name: str, disk: str, commit_delay_us: int = 0, in_quick: bool = True) -> Scenario:
    def case(text: str, cluster: str, script: str) -> Case:
        return _case(text, cluster, measure.insert, script=script, commit_delay_us=commit_delay_us)

    baseline, subject = "INSERT, herald", "INSERT + NOTIFY, herald"
    title = f"INSERT + NOTIFY against INSERT alone, 32 clients, synchronous_commit on{disk}"
    return Scenario(name, title, "tps", baseline, subject, (
        case(baseline, "herald", "insert"),
        case(subject, "herald", "insert_notify"),
        case("INSERT + NOTIFY, stock", "stock", "insert_notify"),
        # What any second statement costs.
        case("INSERT + a statement that does nothing, herald", "herald", "insert_and_no_op"),
    ), Target(0.97), in_quick=in_quick)


def _commit_latency_beside() -> Scenario:
    def case(name: str, listeners: int, beside: int) -> Case:
        return _case(name, "herald", measure.latency, listeners=listeners, of="commit_us", beside=beside)

    baseline, subject = "1 listener, 300 beside", "300 listeners, 1 beside"
    return Scenario("commit_latency_beside",
                    "the same, with others notified as often: caches are as cold for both", "us",
                    baseline, subject, (case(baseline, 1, 300), case(subject, 300, 1)), in_quick=False)


def _commit_latency() -> Scenario:
    def case(name: str, cluster: str, listeners: int) -> Case:
        return _case(name, cluster, measure.latency, listeners=listeners, of="commit_us")

    baseline, subject = "1 listener, herald", "300 listeners, herald"
    return Scenario("commit_latency", "commit of a NOTIFY every 20 ms, 300 listeners against 1, median", "us",
                    baseline, subject, (case(baseline, "herald", 1), case(subject, "herald", 300),
                                        case("1 listener, stock", "stock", 1),
                                        case("300 listeners, stock", "stock", 300)),
                    Target(1.2, at_least=False))


def _select_only(cluster: str) -> Callable[[Context], dict]:
    return lambda context: measure.select_only(context.clusters[cluster], IDLE_SECONDS)


SCENARIOS = (
    _topology("one_to_one", "1 notifier, 1 listener", 1.8, notifiers=1, listeners=1),
    _topology("eight_to_one", "8 notifiers, 1 listener", 2.5, notifiers=8, listeners=1, in_quick=False),
    _topology("thirtytwo_to_one", "32 notifiers, 1 listener", 4.5, notifiers=32, listeners=1, in_quick=False),
    _topology("hundred_to_one", "100 notifiers, 1 listener", 5, notifiers=100, listeners=1),
    _topology("one_to_hundred", "1 notifier, 100 listeners, one channel", 50, notifiers=1, listeners=100),
    _topology("hundred_to_hundred", "100 notifiers, 100 listeners, one channel", 30,
              notifiers=100, listeners=100, in_quick=False),
    _topology("hundred_to_hundred_own_channels", "100 notifiers, 100 listeners, a channel for each", 28,
              notifiers=100, listeners=100, channel="channel_%d", script="notify_channel_client_id"),
    _topology("eight_to_three_hundred", "8 notifiers, 300 listeners, one channel", 80,
              notifiers=8, listeners=300, in_quick=False),
    _insert_notify("insert_notify", "", in_quick=False),
    _insert_notify("insert_notify_slower_disk", ", a flush takes 2 ms longer", commit_delay_us=2000,
                   in_quick=False),
    _commit_latency(),
    _commit_latency_beside(),
    _both("last_listener_latency", "the last of 300 listeners hears it, median", "us", measure.latency,
          Target(1.0, at_least=False), in_quick=False, listeners=300, of="last_us"),
    Scenario("idle_cost", "pgbench -S -M prepared, scale 10: loaded but unused against not loaded", "tps",
             "not loaded", "loaded, unused",
             (Case("not loaded", _select_only("stock")), Case("loaded, unused", _select_only("herald"))),
             Target(0.99), rounds=IDLE_ROUNDS, in_quick=False),
    _topology("thousand_listeners", "1 notifier, 1,000 listeners, one channel", None,
              notifiers=1, listeners=1000, in_quick=False),
    _topology("hundred_thousand_channels", "8 notifiers; 100 listeners to 1,000 channels each", None,
              notifiers=8, listeners=100, channel="channel_%d", channels_each=1000,
              script="notify_random_channel", in_quick=False),
    _both("thirty_thousand_channels_one_backend", "LISTEN to 30,000 channels in one transaction", "ms",
          measure.listen_time, Target(1.0, at_least=False), in_quick=False, channels=LISTEN_CHANNELS),
)


def points(quick: bool) -> list[Point]:
    """One point for each scenario."""
    return [Point({"scenario": one.name}, one.cases, one.rounds)
            for one in SCENARIOS if one.in_quick or not quick]


def _measured(lines: list[dict]) -> list[tuple[Scenario, list[dict], list[float]]]:
    """The scenarios that were measured, with their lines and their ratios."""
    found = []
    for scenario in SCENARIOS:
        own = figures.select(lines, scenario=scenario.name)
        if own:
            found.append((scenario, own, figures.ratios(own, "value", scenario.subject, scenario.baseline)))
    return found


def _result(scenario: Scenario, ratios: list[float]) -> str:
    if not scenario.target or not ratios:
        return ""
    return "met" if scenario.target.met(figures.middle(ratios)) else "MISSED"


def _delivered(lines: list[dict]) -> str:
    told = [line["figures"]["delivered"] for line in lines if "delivered" in line["figures"]]
    return "" if not told else "all" if all(told) else "NOT ALL"


def tables(lines: list[dict]) -> list[Table]:
    """Ratios against targets, and the figures of every case."""
    ratio_rows, case_rows = [], []
    for scenario, own, ratios in _measured(lines):
        ratio_rows.append((scenario.title, scenario.subject, scenario.baseline, figures.ratio(ratios),
                           str(scenario.target or ""), _result(scenario, ratios)))
        for case in scenario.cases:
            mine = figures.select(own, case.name)
            case_rows.append((
                scenario.title if case is scenario.cases[0] else "", case.name,
                figures.with_spread(figures.values(mine, "value"), scenario.unit),
                figures.middle(figures.values(mine, "deliveries_per_s")), _delivered(mine),
                figures.percent(figures.middle(figures.values(mine, "cpu_client_share")))))
    return [
        Table("Ratios", ("", "subject", "compared with", "ratio", "target", ""), ratio_rows,
              "tps of a topology: notifications per second until every listener has every one."),
        Table("Figures", ("", "case", "median (rounds)", "deliveries/s", "delivered", "clients' CPU"),
              case_rows, measure.CLIENTS_CPU_NOTE),
    ]


def plots(lines: list[dict]) -> list[Plot]:
    """The ratios of the topologies."""
    measured = [(scenario, figures.middle(ratios)) for scenario, _, ratios in reversed(_measured(lines))
                if scenario.unit == "tps" and scenario.baseline == "stock" and ratios]
    if not measured:
        return []

    def draw(axes) -> None:
        names = [scenario.title for scenario, _ in measured]
        axes.barh(names, [ratio for _, ratio in measured], color=COLOURS["herald"])
        for place, (scenario, ratio) in enumerate(measured):
            axes.text(ratio, place, f" {ratio:,.1f}", va="center", color=INK)
            if scenario.target:
                axes.plot([scenario.target.ratio] * 2, [place - 0.4, place + 0.4], color=INK, linewidth=1.5)
        axes.set_xscale("log")
        axes.set_xlim(1, max(ratio for _, ratio in measured) * 2)
        axes.grid(False, axis="y")
        axes.set_xlabel("times the stock server's tps; the mark is the target")

    return [Plot("targets", "pg_herald against the stock server", draw)]


FAMILY = Family(
    name="targets", title="Targets", points=points, tables=tables, plots=plots, seconds=2,
    question="Does each scenario reach the ratio to the stock server that it is held to?")
