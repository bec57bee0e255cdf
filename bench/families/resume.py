"""Clients that reconnect all at once after an outage: time until all are up to date, and the others' throughput."""

from functools import partial

from bench.family import Case, Context, Family, Point, Table
from bench.measuring.resume import OTHERS, PAYLOAD_BYTES, SENDERS, alone, reconnect
from bench.reporting import figures

CLIENTS = (1, 100, 1_000)
MISSED = (1_000, 100_000, 1_000_000)  # by each of them
LOADS = {"5,000/s": 5_000, "full speed": None}  # NOTIFY per second, all the others together
STEADY, FULL_SPEED = LOADS
DELIVERIES_MAX = 10_000_000  # at one point
FULL_DELIVERIES_MAX = 100_000_000  # with --full; takes half a minute. A billion is not measured.
AIMED = ((100, 100_000), (1_000, 1_000))  # decide about the aim, and are measured at full speed as well
QUICK = ((1, 1_000), (100, 1_000))
# The time to deliver the rest after the others' last send counts; the longer they send, the smaller its share.
AIMED_TIMES = 2
AIM = 0.9  # the share of their throughput that the others keep
ROUNDS = figures.INTERVAL_ROUNDS_MIN
SETTINGS = {"herald.retain_size": "1GB"}  # a cluster of its own
NOBODY = "herald, nobody reconnects"
TABLE = "table, with an index"
READ = "herald.read()"
READ_MAX = 100_000  # deliveries at one point; herald.read()'s rows cost more
WAYS = {"herald": "herald", TABLE: "table", READ: "read"}
COMPARED = ("herald", TABLE)


def _seconds(context: Context, clients: int, missed: int) -> float:
    return context.seconds * (AIMED_TIMES if (clients, missed) in AIMED else 1)


def _nobody(context: Context, clients: int, missed: int, load: str) -> dict:
    return alone(context.cluster_with("herald", SETTINGS), _seconds(context, clients, missed), missed=missed,
                 rate=LOADS[load])


def _reconnect(context: Context, case: str, clients: int, missed: int, load: str) -> dict:
    return reconnect(context.cluster_with("herald", SETTINGS), _seconds(context, clients, missed),
                     way=WAYS[case], clients=clients, missed=missed, rate=LOADS[load])


def _cases(deliveries: int) -> tuple[str, ...]:
    return tuple(WAYS) if deliveries <= READ_MAX else COMPARED


def _point(clients: int, missed: int, load: str, rounds: int | None = None, rounds_min: int = 1) -> Point:
    cases = [Case(NOBODY, partial(_nobody, clients=clients, missed=missed, load=load))]
    cases += [Case(case, partial(_reconnect, case=case, clients=clients, missed=missed, load=load))
              for case in _cases(clients * missed)]
    return Point({"clients": clients, "missed": missed, "load": load}, tuple(cases), rounds=rounds,
                 rounds_min=rounds_min)


def _pairs() -> list[tuple[int, int]]:
    return [(clients, missed) for clients in CLIENTS for missed in MISSED]


def points(quick: bool) -> list[Point]:
    """All points that take seconds, beside a steady load; two of them also beside others at full speed."""
    if quick:
        return [_point(*pair, STEADY, rounds=1) for pair in QUICK]
    short = [pair for pair in _pairs() if pair[0] * pair[1] <= DELIVERIES_MAX]
    return [_point(*pair, STEADY, rounds_min=ROUNDS if pair in AIMED else 1) for pair in short] + [
        _point(*pair, FULL_SPEED) for pair in AIMED]


def full_points() -> list[Point]:
    """The points that take half a minute."""
    return [_point(*pair, STEADY, rounds=1) for pair in _pairs()
            if DELIVERIES_MAX < pair[0] * pair[1] <= FULL_DELIVERIES_MAX]


def _caught_up_rows(lines: list[dict]) -> list[tuple]:
    found = []
    for clients, missed in _pairs():
        point = {"clients": clients, "missed": missed, "load": STEADY}
        row = [f"{clients:,}", f"{missed:,}"]
        row += [figures.with_spread([1000 * took for took in figures.values(lines, "caught_up_s", case, **point)])
                for case in (*COMPARED, READ)]
        row.append(figures.ratio(figures.ratios(lines, "caught_up_s", baseline=TABLE, **point)))
        row += [figures.middle(figures.values(lines, figure, case, **point))
                for figure in ("caught_up_per_s", "mb_per_s") for case in COMPARED]
        found.append(tuple(row))
    return found


def _kept_row(lines: list[dict], point: dict) -> tuple:
    def kept(case: str) -> list[float]:
        return figures.ratios(lines, "tps", subject=case, baseline=NOBODY, **point)

    def late(case: str) -> float | None:
        times = figures.values(lines, "delivery_us_p99", case, **point)
        return figures.middle(times) / 1000 if times else None

    aim = result = ""
    if point["load"] == STEADY and kept("herald"):
        aim, result = f"≥ {AIM:g}", figures.verdict(kept("herald"), lambda share: share >= AIM)
    return (f"{point['clients']:,}", f"{point['missed']:,}", point["load"],
            figures.with_spread(figures.values(lines, "tps", NOBODY, **point)),
            figures.ratio(kept("herald")), aim, result, figures.ratio(kept(TABLE)),
            late(NOBODY), late("herald"), late(TABLE))


def tables(lines: list[dict]) -> list[Table]:
    """The time to catch up; the cost to the others."""
    return [
        Table("Clients reconnect at once after an outage: ms until the last one is up to date",
              ("clients", "missed by each", "herald.listen(), ms", "table, ms", "herald.read(), ms", "herald / table",
               "notifications/s: herald.listen()", "table", "MB/s: herald.listen()", "table"),
              _caught_up_rows(lines),
              "From when all of them send their statement, on connections that are open; of several times in a "
              f"measurement the median. {PAYLOAD_BYTES} bytes of payload. Each client checks that every one comes, "
              "once and in order. table: the same payloads in a table with an index on the number, and SELECT … "
              "WHERE id > … ORDER BY id, one statement for all; herald.read(): the same, up to 100,000 "
              "deliveries. What lies above 10,000,000 is measured with --full only, a billion not at all."),
        Table(f"Meanwhile {SENDERS} other connections notify {OTHERS} listeners on another channel",
              ("clients", "missed by each", "load", "NOTIFY/s, without reconnections", "kept, herald.listen()", "aim", "",
               "kept, table", "delivery, p99, ms: without reconnections", "herald.listen()", "table"),
              [_kept_row(lines, point) for point in figures.points(lines)],
              "The clients come back again and again while the others notify, and UNLISTEN between. All of it is "
              "one server, so that the table shows what the CPUs allow: at full speed they are used up before "
              "any client reconnects, and what is kept is the scheduler's share. A delivery's time begins when the "
              "notification was due. NOTIFY/s: until the last one is delivered."),
    ]


FAMILY = Family(
    name="resume",
    title="Clients that come back",
    question="How soon are clients up to date that reconnect at once, and what does it cost the others?",
    points=points, tables=tables, seconds=3, quick_seconds=0.5)
