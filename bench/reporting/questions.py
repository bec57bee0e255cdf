"""The questions of docs/performance/ and README: for each the tables and plots of a run that answer it.

Tables show medians, in brackets the range of the rounds; see figures.py. A figure is bold if it is
behind the one that it is compared with, or misses its target.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from bench.families import (
    caches, duplicates, huge, invalidation, laggard, latency, logged, memory, micro, mute, outbox, peers,
    readers, resume, retain, scalability, signalling, standby, strangers, targets, wakeups, writers)
from bench.family import Table
from bench.reporting import figures, raw

TablesOf = Callable[[list[dict]], list[Table]]
SERVERS = ("stock", "herald")
HERALD = "pg_herald"
PEER_NAMES = {"herald": HERALD, "redis": "Redis", "nats": "NATS"}
SHARE_MIN = 0.01  # of the CPU time
MORE, LESS = "more", "less"


@dataclass(frozen=True)
class Question:
    """A question: the name of its block, the tables of each family, and the plots beside them."""

    name: str
    parts: tuple[tuple[str, TablesOf], ...]  # (family, its lines -> tables)
    plots: tuple[tuple[int, str], ...] = ()  # (the number of the table that it follows, from 1, its name)


@dataclass(frozen=True)
class Page:
    """docs/performance/FAMILY.md: it is written by each run that measures the family."""

    family: str
    questions: tuple[Question, ...]

    def families(self) -> set[str]:
        """All families whose figures the page shows."""
        return {family for question in self.questions for family, _ in question.parts}


def bold(text: str, behind: bool) -> str:
    """The text, in bold if it is behind."""
    return f"**{text}**" if behind else text


def _judged(ratio: figures.Ratio, *, less: bool = False) -> str:
    """A ratio to stock or to a peer, bold if below 1, or above 1 where less is better."""
    at = ratio.middle
    return bold(ratio, at is not None and (at > 1 if less else at < 1))


def _columns(table: Table, *chosen: tuple[str, ...], title: str = "") -> Table:
    """Some columns of a family's table, in its order, each given by its heading there and its heading here.

    A third text marks a column of ratios, which are better above 1 (MORE) or below 1 (LESS).
    """
    places = []
    for heading, *_ in chosen:
        places.append(table.columns.index(heading, places[-1] + 1 if places else 0))

    def shown(value: object, judged: list[str]) -> object:
        if judged:
            return _judged(value, less=judged == [LESS])
        return figures.public_name(value) if isinstance(value, str) else value

    return Table(title, tuple(heading for _, heading, *_ in chosen), [
        tuple(shown(row[place], judged) for place, (_, _, *judged) in zip(places, chosen)) for row in table.rows])


def _whole(table: Table) -> Table:
    """A family's table with all its columns, without its note; every ratio is better above 1."""
    def shown(value: object) -> object:
        if isinstance(value, figures.Ratio):
            return _judged(value)
        return figures.public_name(value) if isinstance(value, str) else value

    return Table(table.title, tuple(map(figures.public_name, table.columns)),
                 [tuple(map(shown, row)) for row in table.rows])


def _spread(lines: list[dict], figure: str, case: str, **point) -> str:
    return figures.with_spread(figures.values(lines, figure, case, **point))


# ---- targets ----

TOPOLOGIES = {
    "one_to_one": "1 → 1", "eight_to_one": "8 → 1", "thirtytwo_to_one": "32 → 1", "hundred_to_one": "100 → 1",
    "one_to_hundred": "1 → 100", "hundred_to_hundred": "100 → 100", "eight_to_three_hundred": "8 → 300",
    "thousand_listeners": "1 → 1,000", "hundred_to_hundred_own_channels": "100 → 100, a channel for each",
    "seventy_thousand_channels": "8 → 100 of 700 channels each, a random one",
}
MANY_TO_ONE = ("one_to_one", "eight_to_one", "thirtytwo_to_one", "hundred_to_one")
ONE_TO_MANY = ("one_to_hundred", "hundred_to_hundred", "eight_to_three_hundred", "thousand_listeners")
OWN_CHANNELS = ("hundred_to_hundred_own_channels", "seventy_thousand_channels")


def _scenarios(lines: list[dict], names: Iterable[str]) -> list[tuple[targets.Scenario, list[dict], list[float]]]:
    by_name = {found[0].name: found for found in targets.measured(lines)}
    return [by_name[name] for name in names if name in by_name]


def _held(scenario: targets.Scenario, own: list[dict], ratios: list[float]) -> tuple[str, str]:
    """The ratio, bold if it is behind stock or misses the target, and the target."""
    if not ratios:
        return figures.NOTHING, str(scenario.target or figures.NOTHING)
    at = figures.middle(ratios)
    behind = scenario.baseline in ("stock", "not loaded") and (at < 1 if scenario.unit == "tps" else at > 1)
    if scenario.target:
        reached = figures.middle(figures.values(own, scenario.figure, scenario.subject)) if scenario.target.unit else at
        behind = behind or not scenario.target.met(reached)
    return bold(figures.ratio(ratios), behind), str(scenario.target or figures.NOTHING)


def _topologies(lines: list[dict], names: Iterable[str]) -> list[Table]:
    rows = [(TOPOLOGIES[scenario.name], *(_spread(own, "tps", case) for case in SERVERS),
             *_held(scenario, own, ratios)) for scenario, own, ratios in _scenarios(lines, names)]
    return [Table("", ("NOTIFY from → to", "stock, tps", "pg_herald, tps", "ratio", "target"), rows)]


def _listen(lines: list[dict]) -> list[Table]:
    rows = [("LISTEN to 30,000 channels in one transaction, ms", *(_spread(own, "value", case) for case in SERVERS),
             *_held(scenario, own, ratios))
            for scenario, own, ratios in _scenarios(lines, ("thirty_thousand_channels_one_backend",))]
    return [Table("", ("", "stock", HERALD, "ratio", "target"), rows)]


def _last_listener(lines: list[dict]) -> list[Table]:
    """Times of commit, first and last of 300 listeners, from the same measurements; the target is for the last."""
    rows = []
    for scenario, own, ratios in _scenarios(lines, ("last_listener_latency",)):
        for time, until in (("commit_us", "commit"), ("first_us", "the first receives it"), ("last_us", "the last does")):
            timed = [line | {"figures": {"us": line["figures"]["probe"][time]["p50"]}} for line in own]
            judged = _held(scenario, own, ratios) if time == "last_us" else (
                _judged(figures.ratio(figures.ratios(timed, "us")), less=True), figures.NOTHING)
            rows.append((until, *(_spread(timed, "us", case) for case in SERVERS), *judged))
    return [Table("", ("300 listeners, both servers at the same time: until", "stock, µs", "pg_herald, µs", "ratio",
                       "target"), rows)]


def _commits(lines: list[dict]) -> list[Table]:
    names = {"commit_latency": "sleeps between", "busy_client": "is busy between"}
    rows = [(names[scenario.name], *(_spread(own, "value", f"{count}, {server}")
                                     for server in SERVERS for count in ("1 listener", "300 listeners")),
             *_held(scenario, own, ratios)) for scenario, own, ratios in _scenarios(lines, names)]
    return [Table("", ("the client", "stock, 1 listener, µs", "stock, 300", "pg_herald, 1 listener, µs",
                       "pg_herald, 300", "pg_herald, 300 / 1", "target"), rows)]


def _bystanders(lines: list[dict]) -> list[Table]:
    names = {"bystander": "median", "bystander_p90": "p90", "bystander_p99": "p99"}
    cases = (targets.NOBODY_LISTENS, *SERVERS)
    rows = [(names[scenario.name], *(_spread(own, scenario.figure, case) for case in cases),
             *_held(scenario, own, ratios)) for scenario, own, ratios in _scenarios(lines, names)]
    alone = [("median, 300 listeners / none", "", "", "", *_held(*found))
             for found in _scenarios(lines, ("bystander_alone",))]
    return [Table("", ("a `SELECT 1` of another session takes", "without listeners, µs", "stock, µs", "pg_herald, µs",
                       "pg_herald / stock", "target"), rows + alone)]


def _inserts(lines: list[dict]) -> list[Table]:
    names = {"insert_notify": "a flush takes 3 ms longer", "insert_notify_this_disk": "this machine's disk"}
    rows = []
    for scenario, own, ratios in _scenarios(lines, names):
        no_op = figures.ratios(own, "tps", "INSERT + a statement that does nothing, herald", scenario.baseline)
        held, target = _held(scenario, own, ratios)
        if not scenario.target:
            held = bold(held, bool(ratios) and figures.middle(ratios) < 1)
        rows.append((names[scenario.name],
                     *(_spread(own, "tps", case) for case in (scenario.baseline, scenario.subject)), held, target,
                     figures.ratio(no_op), _spread(own, "tps", "INSERT + NOTIFY, stock")))
    return [Table("", ("disk", "INSERT, tps", "INSERT + NOTIFY, tps", "ratio", "target",
                       "with a statement that does nothing", "INSERT + NOTIFY on stock, tps"), rows)]


def _idle_target(lines: list[dict]) -> list[Table]:
    names = {"idle_cost": "`pgbench -S`", "idle_cost_tpcb": "`pgbench`, TPC-B-like"}
    rows = [(names[scenario.name], str(len(ratios)), _spread(own, "value", scenario.baseline),
             _spread(own, "value", scenario.subject), *_held(scenario, own, ratios))
            for scenario, own, ratios in _scenarios(lines, names)]
    return [Table("", ("load", "rounds", "not loaded, tps", "loaded, tps", "ratio", "target"), rows)]


# ---- the other families ----

def _signalling(lines: list[dict]) -> list[Table]:
    rows = []
    for point, tps in figures.group(lines, "tps"):
        rows.append((str(point["notifiers"]), *(figures.with_spread(tps.get(case, [])) for case in SERVERS),
                     _judged(figures.ratio(figures.ratios(lines, "tps", **point)))))
    return [Table("", ("connections", "stock, tps", "pg_herald, tps", "ratio"), rows)]


def _heartbeats(lines: list[dict]) -> list[Table]:
    shown = [line for line in lines
             if "profile" not in line["point"] and line["point"]["scenario"] != scalability.PING_PONG]
    rows = [(point["scenario"], *(figures.with_spread(tps.get(case, [])) for case in SERVERS),
             _judged(figures.ratio(figures.ratios(shown, "tps", **point))))
            for point, tps in figures.group(shown, "tps")]
    return [Table("", ("NOTIFY from → to, each listener sends a `SELECT 1` a second", "stock, tps", "pg_herald, tps",
                       "ratio"), rows)]


def _ping_pong(lines: list[dict]) -> list[Table]:
    shown = figures.select(lines, scenario=scalability.PING_PONG)
    rows = [(f"{point['idle_listeners']:,}", *(figures.with_spread(rates.get(case, [])) for case in SERVERS),
             _judged(figures.ratio(figures.ratios(shown, "round_trips_per_s", **point))))
            for point, rates in figures.group(shown, "round_trips_per_s")]
    return [Table("", ("idle listeners", "stock, round trips/s", "pg_herald, round trips/s", "ratio"), rows)]


def _profile(lines: list[dict]) -> list[Table]:
    """The shares of the groups, for each profiled scenario."""
    found = []
    for scenario in scalability.SCENARIOS:
        shown = {line["case"]: line["figures"]["groups"]
                 for line in figures.select(lines, scenario=scenario, profile=True)}
        if len(shown) == len(SERVERS):
            found.append((scenario, shown))
    names = {name for _, shown in found for groups in shown.values() for name in groups}
    shares = [(name, [shown[case].get(name, 0) for _, shown in found for case in SERVERS]) for name in names]
    rows = [(name, *(f"{100 * share:.0f} %" for share in of))
            for name, of in sorted(shares, key=lambda one: (-max(one[1]), one[0])) if max(of) >= SHARE_MIN]
    return [Table("", ("share of the server's CPU time",
                       *(f"{scenario}: {name}" for scenario, _ in found for name in ("stock", HERALD))), rows)]


def _single(lines: list[dict]) -> list[Table]:
    single = figures.select(lines, load="single")
    rows = [(f"{point['listeners']:,}", latency.NAMES[time],
             *(_spread(single, f"{time}_p50", case, **point) for case in SERVERS),
             _judged(figures.ratio(figures.ratios(single, f"{time}_p50", **point)), less=True))
            for point in figures.points(single) for time in latency.NAMES]
    return [Table("", ("listeners", "until", "stock, µs", "pg_herald, µs", "ratio"), rows)]


def _steady(lines: list[dict]) -> list[Table]:
    steady = figures.select(lines, load="steady")
    shown = ("offered_per_s", "delivery_us_p50", "delivery_us_p99")
    rows = [(f"{point['senders']} → {point['listeners']}", f"{point['load_percent']} %",
             *(figures.middle(figures.values(steady, figure, case, **point)) for case in SERVERS for figure in shown))
            for point in figures.points(steady)]
    return [Table("", ("from → to", "of its limit", "stock: offered/s", "median, µs", "p99, µs",
                       "pg_herald: offered/s", "median, µs", "p99, µs"), rows)]


def _same_load(lines: list[dict]) -> list[Table]:
    same = figures.select(lines, load="same")
    rows = [(f"{point['senders']} → {point['listeners']}", figures.number(point["per_s"]),
             *(_spread(same, f"delivery_us_{suffix}", case, **point) for case in SERVERS for suffix in ("p50", "p99")))
            for point in figures.points(same)]
    return [Table("The same load for both", ("from → to", "offered/s", "stock: median, µs", "p99, µs",
                                             "pg_herald: median, µs", "p99, µs"), rows)]


def _writers(lines: list[dict]) -> list[Table]:
    return [_columns(writers.tables(lines)[0], ("commit", "commit"), ("clients", "clients"),
                     ("stock, NOTIFY", "stock, NOTIFY, tps"), ("kept", "of it without"),
                     ("herald, NOTIFY", "pg_herald, NOTIFY, tps"), ("kept", "of it without"),
                     ("herald / stock", "ratio", MORE))]


def _outbox(lines: list[dict]) -> list[Table]:
    fastest, paced = outbox.tables(lines)
    return [_columns(fastest, ("readers", "readers"), ("writers", "writers"), (outbox.TRIGGER, "stock, rows/s"),
                     (outbox.BATCHED, "stock, outside of the transaction, rows/s"), (outbox.HERALD, "pg_herald, rows/s"),
                     ("herald / trigger", "ratio", MORE), ("herald / batched", "to the one before", MORE)),
            _columns(paced, ("readers", "readers"), ("", ""), ("p50", "median, ms"), ("p99", "p99, ms"),
                     ("until the writer knows its commit, p50", "the writer knows its commit after, ms"),
                     title=paced.title)]


def _duplicates(lines: list[dict]) -> list[Table]:
    plain, _memory, *nested = duplicates.tables(lines)
    times = (("n", "notifications"), ("m", "to channels"), ("stock, µs", "stock, µs each"),
             ("herald, µs", "pg_herald, µs each"), ("herald / stock", "ratio", LESS))
    found = [_columns(plain, *times)]
    if nested:
        found += [_columns(nested[0], *times, title="Each in a subtransaction of its own"),
                  _columns(nested[1], ("n", "notifications"), ("stock, MB", "stock, MB"),
                           ("herald, MB", "pg_herald, MB"), title="Memory of the sending backend for these")]
    return found


def _huge(lines: list[dict]) -> list[Table]:
    return [_columns(huge.tables(lines)[0], ("notifications", "notifications"), ("server", "server"),
                     ("pg_notify() in a loop, s", "the calls, s"), ("commit, s", "commit, s"),
                     ("arrived after, s", "arrived after, s"), ("of that its own, MB", "sender's memory, MB"),
                     ("listening backend's own peak, MB", "listening backend's, MB"),
                     ("once each and in order", "received, once each and in order"))]


def _memory(lines: list[dict]) -> list[Table]:
    found = []
    for table in memory.tables(lines):
        if "channels" in table.columns:
            found.append(_columns(table, ("channels", "channels of one backend"),
                                  ("per channel, bytes: stock", "stock, bytes a channel"),
                                  ("herald", "pg_herald, bytes a channel"),
                                  ("shared, bytes per channel: stock", "shared memory touched: stock"),
                                  ("herald", HERALD), title="Memory of a backend that listens"))
        else:
            found.append(Table("Shared memory that is set aside at the start", table.columns, table.rows))
    return found


def _laggards(lines: list[dict]) -> list[Table]:
    compared = [line for line in lines if laggard.AFTERWARDS not in line["point"]]
    rows = []
    for point in figures.points(compared):
        row = [str(point["behind"]), point["load"]]
        for case in SERVERS:
            kept = figures.ratios(compared, "tps", subject=case, baseline=laggard.ALONE[case], **point)
            aim = laggard.AIMS[point["behind"]]
            missed = case == "herald" and bool(kept) and figures.middle(kept) < aim
            row += [_spread(compared, "tps", case, **point), bold(figures.ratio(kept), missed)]
        rows.append((*row, f"≥ {laggard.AIMS[point['behind']]:g}"))
    afterwards = laggard.tables(lines)[-1]
    return [Table("", ("listeners behind", "load", "stock, tps", "kept", "pg_herald, tps", "kept", "target"), rows),
            _afterwards(afterwards)]


def _afterwards(table: Table) -> Table:
    behind = table.columns[0]
    return _columns(table, (behind, behind), ("server", "server"), ("notifications", "notifications"),
                    ("in the queue, MB", "in the queue, MB"), ("on disk, MB", "on disk, MB"),
                    ("caught up in, s", "caught up in, s"),
                    ("once each and in order", "received, once each and in order"), title="When they go on")


def _mute(lines: list[dict]) -> list[Table]:
    cost, afterwards = mute.tables(lines)
    return [_columns(cost, ("pending, MB", "to be read, MB"), ("server", "server"),
                     ("NOTIFY/s, all read", "all read, tps"), ("NOTIFY/s", "one does not, tps"),
                     ("kept", "kept", MORE)),
            _afterwards(afterwards)]


def _strangers(lines: list[dict]) -> list[Table]:
    return [_columns(strangers.tables(lines)[0], ("meanwhile others do", "meanwhile others do"),
                     ("received, ms, p50: stock", "received after, ms, p50: stock"), ("herald", HERALD), ("p99: stock", "p99: stock"),
                     ("herald", HERALD), ("herald / stock: received, p50", "/ stock: received, p50", LESS),
                     ("p99", "p99", LESS), ("committed, p50", "committed, p50", LESS), ("p99", "p99", LESS))]


def _resume(lines: list[dict]) -> list[Table]:
    caught_up, _kept = resume.tables(lines)
    rows = []
    for point in figures.points(lines):
        kept = {case: figures.ratios(lines, "tps", subject=case, baseline=resume.NOBODY, **point)
                for case in resume.COMPARED}
        aimed = point["load"] == resume.STEADY
        missed = aimed and bool(kept["herald"]) and figures.middle(kept["herald"]) < resume.AIM
        late = (figures.middle(figures.values(lines, "delivery_us_p99", case, **point))
                for case in (resume.NOBODY, *resume.COMPARED))
        rows.append((f"{point['clients']:,}", f"{point['missed']:,}", point["load"],
                     bold(figures.ratio(kept["herald"]), missed), f"≥ {resume.AIM:g}" if aimed else figures.NOTHING,
                     figures.ratio(kept[resume.TABLE]), *(us and us / 1000 for us in late)))
    return [_columns(caught_up, ("clients", "clients"), ("missed by each", "missed by each"),
                     ("herald.listen(), ms", "`herald.listen()`, ms"), ("table, ms", "table, ms"),
                     ("herald.read(), ms", "`herald.read()`, ms"),
                     ("herald / table", "`herald.listen()` / table", LESS),
                     ("notifications/s: herald.listen()", "`herald.listen()`, notifications/s"),
                     ("MB/s: herald.listen()", "MB/s"), title="Until the last client is up to date"),
            Table("What the others keep of their throughput meanwhile", (
                "clients", "missed by each", "the others' load", "`herald.listen()`: kept", "target", "table: kept",
                "delivery to the others, p99, ms: without reconnections", "`herald.listen()`", "table"), rows)]


def _retain(lines: list[dict]) -> list[Table]:
    [table] = retain.tables(lines)
    return [_columns(table, *((heading, heading) for heading in table.columns[:-1]), ("ratio", "ratio", MORE),
                     title=table.title)]


def _readers(lines: list[dict]) -> list[Table]:
    return [_columns(readers.tables(lines)[0], ("readers", "readers"), ("how they read", "how they read"),
                     ("until a reader has it, ms, p50", "median, ms"), ("p99", "p99, ms"),
                     ("server's CPU, % of one", "server, % of a CPU"), ("µs a delivery", "µs a delivery"),
                     ("nothing is sent: server's CPU, % of one", "nothing is sent: % of a CPU"))]


def _logged(lines: list[dict]) -> list[Table]:
    return [_whole(table) for table in logged.tables(lines)]


def _standby(lines: list[dict]) -> list[Table]:
    return [_whole(table) for table in standby.tables(lines)]


def _wakeups(lines: list[dict]) -> list[Table]:
    return [_columns(table, ("server", "server"), ("woken at a time", "woken at a time"), ("NOTIFY/s", "tps"),
                     ("last listener, µs, p50", "the last receives it after, µs"),
                     ("signals sent per NOTIFY", "signals for each NOTIFY"),
                     ("messages per wakeup", "messages for each wakeup"), title=table.title)
            for table in wakeups.tables(lines)]


def _caches(lines: list[dict]) -> list[Table]:
    found = []
    for table in caches.tables(lines):
        if "herald / dummy" in table.columns:
            found.append(_columns(table, ("backends", "backends"), ("invalidations/s", "changes/s"),
                                  ("no cache", "no cache, tps"), ("dummy relcache", "dummy relcache, tps"),
                                  ("herald's cache", "pg_herald, tps"), ("herald / no cache", "/ no cache", MORE),
                                  ("herald / dummy", "/ dummy relcache", MORE)))
        elif "stale" in table.columns:
            found.append(_columns(table, ("cache", "cache"), ("answers compared", "answers compared"),
                                  ("stale", "stale"), title="Stale answers"))
    return found


def _invalidation(lines: list[dict]) -> list[Table]:
    return [_columns(invalidation.tables(lines)[0], ("load", "load"), ("old", "old, tps"),
                     ("as published", "as published, tps"), ("/ old", "/ old", MORE), ("herald", "pg_herald, tps"),
                     ("/ old", "/ old", MORE))]


def _peers(lines: list[dict]) -> list[Table]:
    found = []
    for transport, systems in peers.TRANSPORTS.items():
        shown = figures.select(lines, transport=transport)
        others = [system for system in systems if system != "herald"]
        rows = [(f"{point['publishers']} → {point['subscribers']}", point["mode"],
                 *(figures.with_spread(rates.get(system, [])) for system in systems),
                 *(_judged(figures.ratio(figures.ratios(shown, "publishes_per_s", "herald", system, **point)))
                   for system in others)) for point, rates in figures.group(shown, "publishes_per_s")]
        names = [PEER_NAMES.get(system, system) for system in systems]
        found.append(Table(f"{peers.HEADINGS[transport]}, publishes a second", (
            "publishers → subscribers", "requests", *names,
            *(f"/ {name}" for name in names if name != HERALD)), rows))
    limits = [line for line in lines if "nobody hears" in line["point"]]
    rows = [(str(point["publishers"]), point["mode"],
             *(figures.with_spread(rates.get(name, [])) for name in peers.LIMITS))
            for point, rates in figures.group(limits, "publishes_per_s")]
    return [*found, Table("The limit: pg_herald without listeners", (
        "publishers", "requests", *(f"`{name}`, a second" for name in peers.LIMITS)), rows)]


def _micro(lines: list[dict]) -> list[Table]:
    table = micro.tables(lines)[0]
    return [Table("", table.columns, table.rows)]


PAGES = (
    Page("signalling", (
        Question("throughput", (("targets", partial(_topologies, names=MANY_TO_ONE)), ("signalling", _signalling)),
                 ((2, "signalling"),)),)),
    Page("scalability", (
        Question("one_to_many", (("targets", partial(_topologies, names=ONE_TO_MANY)), ("scalability", _heartbeats)),
                 ((2, "scalability"),)),
        Question("own_channels", (("targets", partial(_topologies, names=OWN_CHANNELS)), ("targets", _listen))),
        Question("idle_listeners", (("scalability", _ping_pong),), ((1, "idle_listeners"),)),
        Question("profile", (("scalability", _profile),), ((1, "profiles"),)))),
    Page("latency", (
        Question("latency", (("targets", _last_listener), ("latency", _single)), ((2, "latency_single"),)),
        Question("latency_load", (("latency", _same_load), ("latency", _steady)),
                 ((2, "latency_load_8_1"), (2, "latency_load_1_100"))),
        Question("commits", (("targets", _commits),)),
        Question("bystanders", (("targets", _bystanders),)))),
    Page("wakeups", (Question("wakeups", (("wakeups", _wakeups),), ((2, "wakeups_throughput"),)),)),
    Page("writers", (Question("inserts", (("targets", _inserts), ("writers", _writers)), ((2, "writers_clients"),)),)),
    Page("outbox", (Question("outbox", (("outbox", _outbox),), ((1, "outbox_writes"),)),)),
    Page("memory", (Question("idle", (("targets", _idle_target), ("memory", _memory))),)),
    Page("laggard", (Question("laggards", (("laggard", _laggards),), ((1, "laggard"),)),)),
    Page("mute", (Question("mute", (("mute", _mute),)),)),
    Page("strangers", (Question("strangers", (("strangers", _strangers),)),)),
    Page("resume", (Question("resume", (("resume", _resume), ("retain", _retain))),)),
    Page("readers", (Question("readers", (("readers", _readers),), ((1, "readers_latency"),)),)),
    Page("logged", (Question("logged", (("logged", _logged),), ((1, "logged_inserts"),)),)),
    Page("standby", (Question("standby", (("standby", _standby),), ((1, "standby_latency"),)),)),
    Page("duplicates", (Question("duplicates", (("duplicates", _duplicates),), ((1, "duplicates_time"),)),)),
    Page("huge", (Question("huge", (("huge", _huge),)),)),
    Page("caches", (Question("caches", (("caches", _caches),), ((1, "caches_rates_10"),)),)),
    Page("invalidation", (Question("invalidation", (("invalidation", _invalidation),), ((1, "invalidation_loads"),)),)),
    Page("peers", (Question("peers", (("peers", _peers),), ((2, "peers_unix_single"), (2, "peers_unix_pipelined"))),)),
    Page("micro", (Question("micro", (("micro", _micro),), ((1, "micro_listeners_ns"),)),)),
)


# ---- the machine, and README ----

def _options(run: raw.Run) -> str:
    parameters = run.description.get("parameters", {})
    return "".join(f", --{name}" for name in ("full", "quick", "smoke") if parameters.get(name))


def _hardware(told: dict) -> str:
    kernel = re.match(r"\w+ \d+\.\d+", str(told.get("kernel")))
    return f"{told.get('cpus')} CPUs ({told.get('cpu')}), {kernel[0] if kernel else told.get('kernel')}"


def _memory_size(told: dict) -> str:
    return f"{int(str(told.get('memory', '0 kB')).split()[0]) / 1024 ** 2:.0f} GB"


def _server(told: dict) -> str:
    """The server's version without the packager's part."""
    return " ".join(str(told.get("postgres")).split()[:2])


def machine(run: raw.Run, page: Page) -> str:
    """Machine, versions and date of the run, and what of the page failed."""
    told = run.description
    rows = [("measured", f"{told.get('time', '')[:10]}{_options(run)}"),
            (HERALD, f"{told.get('pg_herald')}, commit {told.get('git')}"),
            ("server", str(told.get("postgres"))),
            ("machine", f"{_hardware(told)}, {_memory_size(told)} of memory; the clients run on it as well"),
            ("settings", ", ".join(f"{name} = {value}" for name, value in told.get("settings", {}).get(
                "stock", {}).items()) or "as they are by default")]
    lines = ["", "| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]
    lines += [f"\nNot in order: {text}" for text in run.failures() if text.partition(":")[0] in page.families()]
    return "\n".join([*lines, ""])


def summary_machine(run: raw.Run) -> str:
    """The same in one sentence."""
    told = run.description
    return (f"{_server(told)}, pg_herald {told.get('pg_herald')}, {_hardware(told)}, {told.get('time', '')[:10]}; "
            "medians; the last column says how many times as fast, with the range in brackets.")


def summary(run: raw.Run) -> Table:
    """README's rows, including those that are slower; a row that the run did not measure has no figures."""
    lines = run.measured("targets")

    def row(name: str, text: str, cases: tuple[str, str], unit: str, *, faster: bool = True) -> tuple:
        own = figures.select(lines, scenario=name)
        if faster:
            ratio = figures.ratio(figures.ratios(own, "value", cases[1], cases[0]))
        else:
            ratio = figures.ratio(figures.ratios(own, "value", cases[0], cases[1]))
        return (text, *(figures.number(figures.middle(figures.values(own, "value", case)), unit) for case in cases),
                bold(f"{ratio} ×" if ratio.middle else ratio, ratio.middle is not None and ratio.middle < 1))

    return Table("", ("", "stock", HERALD, ""), [
        row("hundred_to_one", "100 connections notify 1 listener", SERVERS, "tps"),
        row("eight_to_three_hundred", "8 connections notify 300 listeners", SERVERS, "tps"),
        row("insert_notify", "INSERT + NOTIFY, 32 clients, a slower disk (a flush takes 3 ms longer)",
            ("INSERT + NOTIFY, stock", "INSERT + NOTIFY, herald"), "tps"),
        row("commit_latency", "commit of a NOTIFY with 300 listeners, of a client that sleeps between",
            ("300 listeners, stock", "300 listeners, herald"), "µs", faster=False),
        row("last_listener_latency", "until the last of 300 listeners receives a single NOTIFY", SERVERS, "µs",
            faster=False),
    ])
