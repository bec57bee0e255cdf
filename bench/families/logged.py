"""Logged channels: what a notification in the WAL costs, beside rows, WAL messages and other durable ways."""

from functools import partial

from bench.family import Case, Context, Family, Plot, Point, Table
from bench.measuring import durable
from bench.measuring.logged import LOGGED, PATTERN, UNLOGGED, latency, set_logged
from bench.measuring.measure import insert
from bench.measuring.partitions import BATCH, GROUPS, PARTITIONS, PAYLOAD_BYTES, WRITERS, publish
from bench.reporting import figures, plots
from harness.cluster import Cluster

CLIENTS = 32
BESIDE_ROUNDS = 3  # of stock beside such a comparison
CLOSE_ROUNDS = 12  # where a few percent count, many short rounds give a narrower interval than a few long ones
SLOWER_FLUSH_US = 3000
FLUSHES = {"this machine's disk": 0, f"{SLOWER_FLUSH_US // 1000} ms longer": SLOWER_FLUSH_US}
RATE = 200  # a second
LISTENERS = (1, 100)
POLL_MS = 10
FASTEST, PACED = "as fast as it goes", 5_000  # messages a second

STOCK = "stock, NOTIFY"
PLAIN, UNLOGGED_CASE, LOGGED_CASE = "herald, without NOTIFY", "herald, unlogged", "herald, logged"
MESSAGE = "WAL message"
RECVLOGICAL = "stock, pg_recvlogical"
TAKEN, TAKEN_OFTEN = f"stock, table, every {POLL_MS} ms", "stock, table, all the time"
JETSTREAM = "JetStream"

# A server of its own: where a channel is logged, the server writes anchors, also beside other families' measurements.
HERALD_SETTINGS = {"herald.retain_size": "256MB"}
DECODING_SETTINGS = {"wal_level": "logical", "max_wal_senders": 4, "max_replication_slots": 4}


def _herald(context: Context) -> Cluster:
    cluster = context.cluster_with("herald", HERALD_SETTINGS)
    set_logged(cluster)
    return cluster


def _insert(context: Context, case: str, scripts: dict[str, str], clients: int, delay_us: int) -> dict:
    cluster = context.clusters["stock"] if case == STOCK else _herald(context)
    return insert(cluster, context.seconds / 2, script=scripts[case], clients=clients, commit_delay_us=delay_us,
                  channel=LOGGED if case == LOGGED_CASE else UNLOGGED)


def _throughput(what: str, flush: str, clients: int, scripts: dict[str, str], rounds_min: int) -> Point:
    return Point({"what": what, "flush": flush, "clients": clients}, tuple(
        Case(case, partial(_insert, case=case, scripts=scripts, clients=clients, delay_us=FLUSHES[flush]),
             BESIDE_ROUNDS if case == STOCK else None)
        for case in scripts), rounds_min=rounds_min)


ROWS, ALONE = "INSERT + NOTIFY", "NOTIFY alone"
ROW_SCRIPTS = {PLAIN: "insert", UNLOGGED_CASE: "insert_notify", LOGGED_CASE: "insert_notify_logged",
               STOCK: "insert_notify"}
ALONE_SCRIPTS = {MESSAGE: "emit_100_bytes", LOGGED_CASE: "notify_100_bytes_logged", UNLOGGED_CASE: "notify_100_bytes",
                 STOCK: "notify_100_bytes"}

ALONE_POINTS = [("this machine's disk", 1), *((flush, CLIENTS) for flush in FLUSHES)]


def _latency(context: Context, case: str, listeners: int) -> dict:
    cluster = context.clusters["stock"] if case == STOCK else _herald(context)
    return latency(cluster, context.seconds, channel=LOGGED if case == LOGGED_CASE else UNLOGGED, listeners=listeners,
                   rate=RATE)


def _recvlogical(context: Context) -> dict:
    return durable.recvlogical(context.cluster_with("stock", DECODING_SETTINGS), context.seconds, rate=RATE)


def _table(context: Context, every_ms: int | None) -> dict:
    return durable.table(context.clusters["stock"], context.seconds, rate=RATE, every_ms=every_ms)


def _jetstream(context: Context) -> dict:
    with durable.JetStream() as server:
        return durable.jetstream(server, context.seconds, rate=RATE) | {"version": server.version}


def _publish(context: Context, rate: float | None) -> dict:
    return publish(_herald(context), context.seconds, rate=rate)


def points(quick: bool) -> list[Point]:
    """Throughput with and without a row; latency; then other systems, and partitions read by groups."""
    rounds_min = 1 if quick else CLOSE_ROUNDS
    found = [_throughput(ROWS, flush, CLIENTS, ROW_SCRIPTS, rounds_min) for flush in FLUSHES]
    found += [_throughput(ALONE, flush, clients, ALONE_SCRIPTS, rounds_min)
              for flush, clients in ALONE_POINTS if not quick or clients == CLIENTS]
    found += [Point({"listeners": listeners}, tuple(
        Case(case, partial(_latency, case=case, listeners=listeners)) for case in (STOCK, UNLOGGED_CASE, LOGGED_CASE)))
              for listeners in (LISTENERS[:1] if quick else LISTENERS)]
    found.append(Point({"beside": "others"}, (
        Case(LOGGED_CASE, partial(_latency, case=LOGGED_CASE, listeners=1)), Case(RECVLOGICAL, _recvlogical),
        Case(TAKEN_OFTEN, partial(_table, every_ms=None)), Case(TAKEN, partial(_table, every_ms=POLL_MS)),
        Case(JETSTREAM, _jetstream))))
    return found + [Point({"load": load}, (Case(LOGGED_CASE, partial(_publish, rate=None if load == FASTEST else load)),))
                    for load in (FASTEST, PACED)]


def _throughput_table(lines: list[dict], what: str, title: str, note: str) -> Table:
    chosen = figures.select(lines, what=what)
    shown = list(ROW_SCRIPTS if what == ROWS else ALONE_SCRIPTS)
    rows = [(point["flush"], str(point["clients"]),
             *(figures.with_spread(figures.values(chosen, "tps", case, **point)) for case in shown),
             *(figures.ratio(figures.ratios(chosen, "tps", LOGGED_CASE, other, **point))
               for other in shown if other != LOGGED_CASE))
            for point in figures.points(chosen)]
    return Table(title, ("flush", "clients", *shown, *(f"logged / {other.removeprefix('herald, ')}"
                                                       for other in shown if other != LOGGED_CASE)), rows, note)


def _ms(lines: list[dict], figure: str, case: str, **point) -> str:
    return figures.with_spread([us / 1000 for us in figures.values(lines, figure, case, **point)])


def _later(lines: list[dict], figure: str, case: str, **point) -> str:
    """By how many ms a logged notification is received later than an unlogged one."""
    found = figures.differences(lines, figure, LOGGED_CASE, UNLOGGED_CASE, **point) if case == LOGGED_CASE else []
    return figures.with_spread([us / 1000 for us in found])


def _latency_table(lines: list[dict]) -> Table:
    chosen = [line for line in lines if "listeners" in line["point"]]
    rows = [(str(point["listeners"]), case, *(
        show(chosen, figure, case, **point) for figure in ("delivery_us_p50", "delivery_us_p99")
        for show in (_ms, _later)), _ms(chosen, "commit_us_p50", case, **point))
            for point in figures.points(chosen) for case in (STOCK, UNLOGGED_CASE, LOGGED_CASE)]
    return Table(f"One connection inserts {RATE} rows a second, a trigger notifies: ms until a listener has it",
                 ("listeners", "", "p50", "more than unlogged", "p99", "more than unlogged",
                  "until the writer knows its commit, p50"), rows,
                 "From when the row was to be inserted. Each commit waits for one flush, also with an unlogged channel.")


def _beside_table(lines: list[dict]) -> Table:
    chosen = figures.select(lines, beside="others")
    versions = {case: figures.values(chosen, "version", case)[:1] for case in figures.cases(chosen)}
    rows = [(" ".join([case, *versions[case]]), *(_ms(chosen, figure, case) for figure in ("delivery_us_p50", "delivery_us_p99", "commit_us_p50")))
            for case in figures.cases(chosen)]
    return Table(f"Durable messages, {RATE} a second to one receiver: ms until it has them",
                 ("", "p50", "p99", "until the sender has its answer, p50"), rows,
                 "From when a message was due. pg_recvlogical: until a line printed from pg_logical_emit_message() is "
                 "read, with test_decoding. table: DELETE of up to 100 rows, FOR UPDATE SKIP LOCKED, by one reader. "
                 "JetStream: sync_interval always, a consumer to which messages are pushed. Its client and the reader "
                 "of pg_recvlogical's lines are in Python, the other clients in C.")


def _partitions_table(lines: list[dict]) -> Table:
    chosen = [line for line in lines if "load" in line["point"]]
    rows = [(point["load"] if point["load"] == FASTEST else f"{point['load']:,}/s",
             *(figures.with_spread(figures.values(chosen, figure, LOGGED_CASE, **point))
               for figure in ("written_per_s", "read_per_s")),
             *(_ms(chosen, figure, LOGGED_CASE, **point) for figure in ("delivery_us_p50", "delivery_us_p99")))
            for point in figures.points(chosen)]
    return Table(f"{WRITERS} writers, {PARTITIONS} partitions, {GROUPS} groups of {PARTITIONS} readers",
                 ("messages", "written/s", "read/s", "until a reader has it, ms, p50", "p99"), rows,
                 f"Writers commit batches of {BATCH} messages of {PAYLOAD_BYTES:,} bytes; a partition is a logged "
                 "channel, and a reader calls herald.read() with the position of its last row, which it keeps itself. "
                 "After github.com/stanislavkozlovski/pg-queue-pubsub-benchmark, whose readers keep theirs in a table.")


def tables(lines: list[dict]) -> list[Table]:
    """Throughput, latency, other systems, partitions."""
    found = [
        _throughput_table(lines, ROWS, "INSERT of a row and NOTIFY in one transaction, tps",
                          f"Channels {PATTERN} are logged. One listener, which must have received all. ms longer: "
                          "commit_delay with commit_siblings = 0, set for the database, in place of a slower disk."),
        _throughput_table(lines, ALONE, "NOTIFY alone, 100 bytes, tps",
                          "WAL message: pg_logical_emit_message(true, 'x', …) with the same text, without a listener. "
                          "An unlogged NOTIFY, as with stock, writes no WAL and waits for no flush."),
        _latency_table(lines), _beside_table(lines), _partitions_table(lines)]
    return [table for table in found if table.rows]


def _draw(axes, lines: list[dict]) -> None:
    plots.marks_by_case(axes, figures.select(lines, what=ROWS), "flush", "tps", ylabel="transactions per second",
                        xlabel="a flush", cases=tuple(ROW_SCRIPTS))


def plots_of(lines: list[dict]) -> list[Plot]:
    """INSERT with and without NOTIFY, by the time of a flush."""
    return [Plot("logged_inserts", f"INSERT and NOTIFY, {CLIENTS} clients", partial(_draw, lines=lines))] \
        if figures.select(lines, what=ROWS) else []


FAMILY = Family(
    name="logged",
    title="Logged channels",
    question="What do notifications that are also written to the WAL cost senders and listeners?",
    points=points, tables=tables, plots=plots_of, seconds=2, quick_seconds=1)
