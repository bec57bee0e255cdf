"""Session caches: a row-security policy with an expensive look-up, while the permissions change."""

from functools import partial

from bench.family import Case, Context, Family, Plot, Point, Table
from bench.measuring.caches import DOCUMENTS, PROJECTS, READ_PROJECTS, policy_tps, stale_answers
from bench.reporting import figures, plots
from harness.cluster import Cluster

SERVERS = {"no cache": "stock", "dummy relcache": "stock", "herald": "caches"}
NAMES = {"no cache": "no cache", "dummy relcache": "dummy relcache", "herald": "herald's cache"}

# Reading backends, invalidating commits a second; --smoke measures the first.
CELLS = ((10, 1_000), (10, 0), (10, 100), (10, 10_000), (100, 0), (100, 1_000), (100, 10_000), (1, 1_000))
QUICK_CELLS = ((10, 1_000),)
RATE = 1_000  # while the number of backends varies
BACKENDS = (10, 100)  # while the rate varies
CHECKED = "stale answers"
CHECKED_CELL = (4, 100)


def _server(context: Context, way: str) -> Cluster:
    name = SERVERS[way]
    return context.clusters[name] if name in context.clusters else context.cluster_with(name, {})


def _tps(context: Context, way: str, backends: int, rate: int) -> dict:
    return policy_tps(_server(context, way), context.seconds, way=way, backends=backends, rate=rate)


def _stale(context: Context, way: str, backends: int, rate: int) -> dict:
    return stale_answers(_server(context, way), context.seconds, way=way, backends=backends, rate=rate)


def points(quick: bool) -> list[Point]:
    """Backends and rates of invalidations; then a check for stale answers."""
    found = []
    for backends, rate in QUICK_CELLS if quick else CELLS:
        cases = [Case(way, partial(_tps, way=way, backends=backends, rate=rate)) for way in SERVERS]
        found.append(Point({"backends": backends, "invalidations": rate}, tuple(cases)))
    backends, rate = CHECKED_CELL
    cases = [Case(way, partial(_stale, way=way, backends=backends, rate=rate))
             for way in ("dummy relcache", "herald")]
    return found + [Point({"checked": CHECKED, "backends": backends, "invalidations": rate}, tuple(cases),
                          rounds=1)]


def _measured(lines: list[dict]) -> list[dict]:
    return [line for line in lines if "checked" not in line["point"]]


def _by_rate(lines: list[dict]) -> list[dict]:
    return sorted(figures.points(lines), key=lambda point: (point["backends"], point["invalidations"]))


def _tps_row(lines: list[dict], point: dict) -> tuple:
    def tps(way: str) -> str:
        return figures.with_spread(figures.values(lines, "tps", way, **point))

    def gain(over: str) -> str:
        return figures.ratio(figures.ratios(lines, "tps", subject="herald", baseline=over, **point))

    return (str(point["backends"]), f"{point['invalidations']:,}", tps("no cache"), tps("dummy relcache"),
            tps("herald"), gain("no cache"), gain("dummy relcache"))


def _lookup_row(lines: list[dict], point: dict) -> tuple:
    def middle(figure: str, way: str) -> float | None:
        return figures.middle(figures.values(lines, figure, way, **point))

    return (str(point["backends"]), f"{point['invalidations']:,}",
            *(middle("invalidations_per_s", way) for way in SERVERS),
            *(middle("lookups_per_query", way) for way in SERVERS), middle("lookup_us", "no cache"),
            middle("resets", "herald"), middle("catch_ups", "herald"))


def _stale_row(lines: list[dict], way: str) -> tuple:
    checked = figures.select(lines, way, checked=CHECKED)
    answers, stale = (sum(figures.values(checked, figure)) for figure in ("answers", "stale"))
    return (NAMES[way], answers, stale, figures.middle(figures.values(checked, "invalidations_per_s")))


def tables(lines: list[dict]) -> list[Table]:
    """Queries a second; invalidations and look-ups; stale answers."""
    measured = _measured(lines)
    rows = _by_rate(measured)
    found = []
    if measured:
        found += [
            Table(f"A query over {DOCUMENTS} rows whose policy looks up permissions, tps",
                  ("backends", "invalidations/s", "no cache", "dummy relcache", "herald's cache",
                   "herald / no cache", "herald / dummy"),
                  [_tps_row(measured, point) for point in rows],
                  f"Each row belongs to one of {READ_PROJECTS} projects of {PROJECTS:,}; who may read a "
                  "project's rows, a recursive query finds. Each invalidation is the commit of a change to a "
                  "project chosen at random. Dummy relcache: a session cache in C that invalidates the "
                  "relation cache entry of an empty table, as extensions do it today; all of it is "
                  "forgotten, in every backend, at each invalidation; its key is a number, herald's is text. "
                  "No cache, and dummy relcache: stock server."),
            Table("Of these: invalidations that were really made, and look-ups that were computed",
                  ("backends", "offered/s", *(f"{NAMES[way]}, made/s" for way in SERVERS),
                   *(f"{NAMES[way]}, per query" for way in SERVERS), "a look-up, µs", "herald's resets",
                   "catch-ups"),
                  [_lookup_row(measured, point) for point in rows],
                  "Who reads and who writes share the CPUs: where more is offered than there is room for, "
                  "less is made. Per query: with the first ones, which fill the cache. A look-up's time: "
                  "with nothing else running. Resets: of backends that had missed invalidations; catch-ups: "
                  "signals to those who were far behind."),
        ]
    if len(measured) < len(lines):
        found.append(Table(
            "Stale answers", ("cache", "answers compared", "stale", "invalidations/s"),
            [_stale_row(lines, way) for way in ("dummy relcache", "herald")],
            "What is cached against what the same statement finds without a cache; half of the statements "
            "in a transaction at REPEATABLE READ. The dummy relcache has races that it cannot close: a "
            "commit is visible before its invalidation is sent, and who has an older snapshot may keep the "
            "old value after it. So its throughput is that of a cache which is sometimes wrong."))
    return found


def _draw_rates(axes, lines: list[dict], backends: int) -> None:
    plots.line_by_case(axes, figures.select(lines, backends=backends), "invalidations", "tps",
                       xlabel="invalidations per second, offered", ylabel="queries per second", cases=SERVERS,
                       label=NAMES.get)


def _draw_backends(axes, lines: list[dict]) -> None:
    plots.line_by_case(axes, figures.select(lines, invalidations=RATE), "backends", "tps", cases=SERVERS,
                       xlabel="backends", ylabel="queries per second", label=NAMES.get)


def plots_of(lines: list[dict]) -> list[Plot]:
    """Over the rate of invalidations, and over backends."""
    measured = _measured(lines)
    if not measured:
        return []
    found = [Plot(f"caches_rates_{backends}", f"A query with an expensive policy, {backends} backends",
                  partial(_draw_rates, lines=measured, backends=backends))
             for backends in BACKENDS if figures.select(measured, backends=backends)]
    return [*found, Plot("caches_backends", f"The same, {RATE:,} invalidations per second",
                         partial(_draw_backends, lines=measured))]


FAMILY = Family(
    name="caches",
    title="Session caches",
    question="What does a cache in a row-security policy buy, while what it caches changes?",
    points=points, tables=tables, plots=plots_of, seconds=1, quick_seconds=1)
