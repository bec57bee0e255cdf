"""Readers that do not listen: herald.read(), beside LISTEN and a polled table."""

from functools import partial

from bench.family import Case, Context, Family, Plot, Point, Table
from bench.measuring.readers import POLL_MS, WAIT_S, read
from bench.reporting import figures, plots

READERS = (10, 100, 1_000)
QUICK_READERS = (10,)
RATE = 9.7  # a second; 10 would always meet a client that polls every 100 ms at the same moment of its interval
NOTHING, SOME = "nothing is sent", "10/s"
IDLE_TIMES = WAIT_S / 2  # with the family's 2 s: each reader's wait ends once in this time
QUICK_IDLE_TIMES = 2
READ, LISTEN, POLL = "herald.read()", "LISTEN", f"table, every {POLL_MS} ms"
WAYS = {READ: "read", LISTEN: "listen", POLL: "poll"}


def _read(context: Context, case: str, readers: int, load: str) -> dict:
    cluster = context.clusters["herald"]
    if load == SOME:
        return read(cluster, context.seconds, way=WAYS[case], readers=readers, rate=RATE)
    seconds = context.seconds * (QUICK_IDLE_TIMES if context.quick else IDLE_TIMES)
    return read(cluster, seconds, way=WAYS[case], readers=readers, rate=None, wait_s=min(seconds, WAIT_S))


def points(quick: bool) -> list[Point]:
    """10 to 1,000 readers, with and without notifications to read."""
    return [Point({"readers": readers, "load": load},
                  tuple(Case(case, partial(_read, case=case, readers=readers, load=load)) for case in WAYS),
                  rounds=1 if load == NOTHING else None)
            for readers in (QUICK_READERS if quick else READERS) for load in (SOME, NOTHING)]


def _row(lines: list[dict], readers: int, case: str) -> tuple:
    def values(figure: str, load: str) -> list[float]:
        return figures.values(lines, figure, case, readers=readers, load=load)

    def ms(figure: str) -> str:
        return figures.with_spread([us / 1000 for us in values(figure, SOME)])

    return (f"{readers:,}", case, ms("delivery_us_p50"), ms("delivery_us_p99"),
            figures.with_spread(values("cpu_server_percent", SOME)), figures.middle(values("cpu_us", SOME)),
            figures.middle(values("cpu_server_percent", NOTHING)), figures.middle(values("cpu_clients_percent", SOME)))


def tables(lines: list[dict]) -> list[Table]:
    """Latency and CPU time, by the number of readers and the way they read."""
    readers = sorted({point["readers"] for point in figures.points(lines)})
    return [Table(
        "One connection sends 10 a second to readers that wait in herald.read(), LISTEN, or poll a table",
        ("readers", "how they read", "until a reader has it, ms, p50", "p99", "server's CPU, % of one",
         "µs a delivery", "nothing is sent: server's CPU, % of one", "clients' CPU, % of one"),
        [_row(lines, number, case) for number in readers for case in WAYS
         if figures.select(lines, case, readers=number)],
        "From when it was to be sent. herald.read() waits for up to "
        f"{WAIT_S} s and is called again with the position of its last row; the table has an index on its number and "
        "is asked for rows with a higher one. Both statements are prepared. The server's CPU time is that of all its "
        "processes; while nothing is sent, each herald.read() ends and is called again once.")]


def _draw(axes, lines: list[dict]) -> None:
    busy = [line | {"figures": line["figures"] | {"ms": line["figures"]["delivery_us_p50"] / 1000}}
            for line in figures.select(lines, load=SOME) if "delivery_us_p50" in line.get("figures", {})]
    plots.line_by_case(axes, busy, "readers", "ms", xlabel="readers", ylabel="ms until a reader has it, median",
                       cases=tuple(WAYS))


def plots_of(lines: list[dict]) -> list[Plot]:
    """The median latency over the number of readers."""
    return [Plot("readers_latency", "10 notifications a second", partial(_draw, lines=lines))]


FAMILY = Family(
    name="readers",
    title="Readers without a session",
    question="What do readers that call herald.read() wait and cost, beside LISTEN and beside polling a table?",
    points=points, tables=tables, plots=plots_of, seconds=2, quick_seconds=1)
