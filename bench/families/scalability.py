"""The five published scenarios of 1 and 100 notifiers and listeners, and where the server's time goes.

Further scenarios have more listeners, or idle listeners on other channels. As published, every
listener sends a SELECT 1 of its own each second.
"""

from functools import partial

from bench.family import Case, Context, Family, Plot, Point, Table, both
from bench.measuring import measure, profiling
from bench.reporting import figures
from bench.reporting.plots import line_by_case, marks_by_case

HEARTBEAT_S = 1
OWN_CHANNELS = {"channel": "channel_%d", "script": "notify_channel_client_id"}
SCENARIOS = {
    "1 → 1": {"notifiers": 1, "listeners": 1},
    "100 → 1": {"notifiers": 100, "listeners": 1},
    "1 → 100": {"notifiers": 1, "listeners": 100},
    "100 → 100": {"notifiers": 100, "listeners": 100},
    "100 → 100, own channels": {"notifiers": 100, "listeners": 100, **OWN_CHANNELS},
}
MORE_LISTENERS = {"1 → 1,000": {"notifiers": 1, "listeners": 1000}}
IDLE_LISTENERS = (0, 10, 100, 1000)
QUICK_IDLE_LISTENERS = (100,)
QUICK_PROFILES = ("1 → 100",)
PING_PONG = "ping-pong"
CASES = ("stock", "herald")
MANY_LISTENERS = 1000  # connecting takes longer than measuring
MANY_ROUNDS = 2
PLOTTED_GROUPS = ("signals sent: kill()", "signals received", "waiting and being woken", "locks",
                  "sends to clients", "begin and end of transactions", "pg_herald's own code")


def _profile(parameters: dict) -> tuple[Case, ...]:
    def run(name: str, context: Context) -> dict:
        cluster = context.clusters[name]
        return profiling.profiled(cluster, lambda: measure.topology(
            cluster, context.seconds, heartbeat_s=HEARTBEAT_S, **parameters))

    return tuple(Case(name, partial(run, name)) for name in CASES)


def _rounds(quick: bool, listeners: int) -> int | None:
    return MANY_ROUNDS if listeners >= MANY_LISTENERS and not quick else None


def points(quick: bool) -> list[Point]:
    """The scenarios, the idle listeners, and then one measurement of each scenario under perf."""
    scenarios = SCENARIOS if quick else SCENARIOS | MORE_LISTENERS
    idle = QUICK_IDLE_LISTENERS if quick else IDLE_LISTENERS
    profiles = QUICK_PROFILES if quick else SCENARIOS
    return [
        *(Point({"scenario": name}, both(measure.topology, heartbeat_s=HEARTBEAT_S, **parameters),
                _rounds(quick, parameters["listeners"])) for name, parameters in scenarios.items()),
        *(Point({"scenario": PING_PONG, "idle_listeners": count},
                both(measure.ping_pong, idle_listeners=count), _rounds(quick, count)) for count in idle),
        *(Point({"scenario": name, "profile": True}, _profile(SCENARIOS[name]), rounds=1)
          for name in profiles),
    ]


def _topologies(lines: list[dict]) -> list[dict]:
    return [line for line in lines
            if "profile" not in line["point"] and line["point"]["scenario"] != PING_PONG]


def _ping_pongs(lines: list[dict]) -> list[dict]:
    return figures.select(lines, scenario=PING_PONG)


def _throughput(lines: list[dict]) -> Table:
    rows = []
    for point, tps in figures.group(lines, "tps"):
        deliveries, clients, used = (
            [figures.middle(figures.values(lines, figure, case, **point)) for case in CASES]
            for figure in ("deliveries_per_s", "cpu_client_share", "cpu_used_share"))
        rows.append((point["scenario"], *(figures.with_spread(tps.get(case, [])) for case in CASES),
                     figures.ratio(figures.ratios(lines, "tps", **point)), *deliveries,
                     *map(figures.percent, (*clients, *used))))
    return Table("NOTIFY from → to", (
        "", "tps (stock)", "tps (herald)", "ratio", "deliveries/s (stock)", "deliveries/s (herald)",
        "clients' CPU (stock)", "clients' CPU (herald)", "CPUs in use (stock)", "CPUs in use (herald)"), rows,
        f"tps: notifications per second until every listener has every one. {measure.CLIENTS_CPU_NOTE} "
        "CPUs in use: the share of all CPUs' time that these and the server used together.")


def _idle(lines: list[dict]) -> Table:
    rows = [(point["idle_listeners"], *(figures.with_spread(rates.get(case, [])) for case in CASES),
             figures.ratio(figures.ratios(lines, "round_trips_per_s", **point)),
             *(figures.middle(figures.values(lines, figure, case, **point))
               for figure in ("round_trip_us_p50", "round_trip_us_p99") for case in CASES))
            for point, rates in figures.group(lines, "round_trips_per_s")]
    return Table("Ping-pong of two connections beside idle listeners on other channels", (
        "idle listeners", "round trips/s (stock)", "round trips/s (herald)", "ratio", "p50 µs (stock)",
        "p50 µs (herald)", "p99 µs (stock)", "p99 µs (herald)"), rows,
        "A round trip is two notifications, each sent when the one before was received.")


def _profiles(lines: list[dict], scenario: str) -> list[Table]:
    """Groups, top functions and call tree of one scenario, stock and herald side by side."""
    by_case = {line["case"]: line["figures"]
               for line in figures.select(lines, scenario=scenario, profile=True)}
    shown = [by_case.get(case, {}) for case in CASES]
    if not any(shown):
        return []
    names = sorted({name for one in shown for name in one.get("groups", {})},
                   key=lambda name: (-max(one.get("groups", {}).get(name, 0) for one in shown), name))
    samples = ", ".join(f"{case} {by_case[case]['samples']:,} samples" for case in CASES if case in by_case)
    groups = Table(f"{scenario}: where the server's CPU time goes", ("", *CASES),
                   [(name, *(figures.percent(one["groups"].get(name, 0)) if one else None for one in shown))
                    for name in names],
                   f"Shares of the CPU time of all backends and workers, perf record; {samples}. A sample "
                   "counts for the innermost function on its stack that belongs to a group.")
    return [groups, _side_by_side(f"{scenario}: top functions", "itself", [
        [(name, share) for name, share in one.get("top", [])] for one in shown]),
        _side_by_side(f"{scenario}: drill-down", "with all that it calls", [
            [("  " * depth + name, share) for depth, name, share in one.get("tree", [])] for one in shown])]


def _side_by_side(title: str, what: str, columns: list[list[tuple[str, float]]]) -> Table:
    """Two lists of names and shares, side by side in one table."""
    height = max(map(len, columns))
    rows = []
    for number in range(height):
        cells: list[str] = []
        for column in columns:
            name, share = column[number] if number < len(column) else ("", None)
            cells += [name, "" if share is None else figures.percent(share)]
        rows.append(tuple(cells))
    return Table(title, tuple(text for case in CASES for text in (f"{case}: {what}", "CPU")), rows)


def tables(lines: list[dict]) -> list[Table]:
    """Throughput, idle listeners, and the profile of each scenario."""
    found = []
    if _topologies(lines):
        found.append(_throughput(_topologies(lines)))
    if _ping_pongs(lines):
        found.append(_idle(_ping_pongs(lines)))
    for scenario in SCENARIOS:
        found += _profiles(lines, scenario)
    return found


def _draw_profiles(lines: list[dict], axes) -> None:
    """A bar for each scenario and case, divided into the groups in PLOTTED_GROUPS and the rest."""
    profiled = [line for scenario in SCENARIOS for case in CASES
                for line in figures.select(lines, case, scenario=scenario, profile=True)]
    labels = [f"{line['point']['scenario']}, {line['case']}" for line in profiled]
    left = [0.0] * len(profiled)
    for number, name in enumerate([*PLOTTED_GROUPS, "everything else"]):
        widths = [100 * line["figures"]["groups"].get(name, 0) for line in profiled]
        if name not in PLOTTED_GROUPS:
            widths = [100 - start for start in left]
        axes.barh(labels, widths, left=left, label=name,
                  color=f"C{number}" if name in PLOTTED_GROUPS else "#a0a0a0")
        left = [start + width for start, width in zip(left, widths)]
    axes.invert_yaxis()
    axes.grid(False, axis="y")
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the server's CPU time, %")


def plots(lines: list[dict]) -> list[Plot]:
    """tps by scenario, ping-pong over idle listeners, and the profiles."""
    found = []
    if _topologies(lines):
        found.append(Plot("scalability", "NOTIFY from → to", lambda axes: marks_by_case(
            axes, _topologies(lines), "scenario", "tps", ylabel="tps",
            names=lambda name: name.replace(", ", ",\n"))))
    if _ping_pongs(lines):
        title = "Ping-pong beside idle listeners on other channels"
        found.append(Plot("idle_listeners", title, lambda axes: line_by_case(
            axes, _ping_pongs(lines), "idle_listeners", "round_trips_per_s", xlabel="idle listeners",
            ylabel="round trips/s")))
    if any(line["point"].get("profile") for line in lines):
        found.append(Plot("profiles", "Where the server's CPU time goes", partial(_draw_profiles, lines)))
    return found


FAMILY = Family(
    name="scalability", title="Scalability", points=points, tables=tables, plots=plots, seconds=1.4,
    question="How do many notifiers and many listeners get along, and where does the server's time go?")
