"""Clients that reconnect all at once after an outage: the time until they are up to date, and the cost to the others.

They call herald.listen() with a position from before the outage, or query a table with an index, and check
that every number arrives once and in order. The others notify each other on a channel of their own, and
share only the server with them.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median

from bench.measuring.measure import DBNAME, MeasureError, heard_exactly
from harness.cluster import Cluster
from harness.listeners import Listeners

SENDERS = OTHERS = 2
OTHERS_CHANNEL = "others"
OUTAGE_CHANNEL = "outage"
PAYLOAD_BYTES = 60
BATCH = 1_000  # notifications or rows per transaction
CATCH_UP_TIMEOUT_S = 600
SETUP_TIMEOUT_S = 300
MB = 1e6

# The payload of number n, in the form that listen --check-sequence reads, padded to PAYLOAD_BYTES.
PAYLOAD = f"rpad('0:' || n || ' ', {PAYLOAD_BYTES}, 'x')"
BATCHES = f"""DO $$ BEGIN
FOR begins IN 1 .. {{number}} BY {BATCH} LOOP
    {{send}} FROM generate_series(begins, least(begins + {BATCH} - 1, {{number}})) n;
    COMMIT;
END LOOP; END $$;
"""
TABLE = """DROP TABLE IF EXISTS outage;
CREATE TABLE outage (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text);
"""


class Reconnecting(Listeners):
    """Open connections that do not listen yet."""

    def __init__(self, cluster: Cluster, connections: int):
        super().__init__(cluster, connections, dbname=DBNAME, setup="", check_sequence=1)

    def catch_up(self, sql: str, missed: int) -> dict:
        """Sends `sql` on each at the same time; each must then receive `missed` notifications, or MeasureError.

        The answer's waited_us is from before the first statement is sent until the last client has everything.
        """
        self._ask("reset")
        count = self._ask(f"ask {missed * self.connections} {CATCH_UP_TIMEOUT_S * 1000} {sql}")
        if not heard_exactly(count, missed):
            raise MeasureError(f"of {missed:,} notifications a client has received {count['min']:,} to "
                               f"{count['max']:,}, or not in order: {count}")
        return count

    def forget(self) -> None:
        """Makes all of them stop listening."""
        self._ask(f"query {CATCH_UP_TIMEOUT_S * 1000} UNLISTEN *")


class Others(Listeners):
    """Clients that did not miss anything: they notify and listen during the catch-up."""

    def __init__(self, cluster: Cluster):
        super().__init__(cluster, OTHERS, OTHERS_CHANNEL, dbname=DBNAME, paced_senders=SENDERS)

    def notify(self, seconds: float, rate: float | None) -> dict:
        """As the latency family's steady load, at a rate or as fast as possible; tps is until all is delivered."""
        told = self._ask(f"paced {seconds:g} {rate or 0:g}")
        if told["delivered"] != told["expected"] or told["committed"] != told["sent"] or not told["sent"]:
            raise MeasureError(f"others: {told['delivered']:,} of {told['expected']:,} notifications were delivered")
        return {"tps": told["sent"] / told["elapsed_s"], "delivery_us_p50": told["delivery_us"]["p50"],
                "delivery_us_p99": told["delivery_us"]["p99"], "commit_us_p99": told["commit_us"]["p99"]}


@contextmanager
def _outage(cluster: Cluster, way: str, missed: int) -> Iterator[str]:
    """Sends `missed` notifications, or inserts this number of rows; yields the statement that asks for all of them."""
    if way == "table":
        cluster.psql(TABLE + BATCHES.format(number=missed, send=f"INSERT INTO outage (payload) SELECT {PAYLOAD}")
                     + "VACUUM ANALYZE outage; CHECKPOINT;", DBNAME, SETUP_TIMEOUT_S)
        yield "SELECT id, payload FROM outage WHERE id > 0 ORDER BY id"
        cluster.psql("DROP TABLE outage", DBNAME)
        return
    position = cluster.psql("SELECT herald.position()", DBNAME)
    cluster.psql(BATCHES.format(number=missed, send=f"PERFORM pg_notify('{OUTAGE_CHANNEL}', {PAYLOAD})"),
                 DBNAME, SETUP_TIMEOUT_S)
    ask = f"SELECT herald.listen('{OUTAGE_CHANNEL}', '{position}')"
    if cluster.psql(f"BEGIN; {ask}; ROLLBACK", DBNAME) != "t":
        raise MeasureError("the outage is not kept: herald.retain_size is too small")
    if way == "read":
        ask = f"SELECT position, payload FROM herald.read('{OUTAGE_CHANNEL}', '{position}', {missed})"
    yield ask


def alone(cluster: Cluster, seconds: float, *, missed: int, rate: float | None) -> dict:
    """The others' figures after an outage, while no client reconnects."""
    with _outage(cluster, "herald", missed), Others(cluster) as others:
        return others.notify(seconds, rate)


def reconnect(cluster: Cluster, seconds: float, *, way: str, clients: int, missed: int,
              rate: float | None) -> dict:
    """`clients` clients come back at once after an outage, repeatedly while the others notify.

    way     "herald": herald.listen() with a position; "read": herald.read() with a position;
            "table": a query for the rows with higher numbers

    tps, ...            of the others, as in alone()
    caught_up_s         from the clients' statement until the last one has everything; the median of all
                        catch-ups
    caught_up           number of catch-ups
    caught_up_per_s     notifications per second, all clients together
    mb_per_s            megabytes received per second, all clients together
    """
    times, sizes = [], []
    with _outage(cluster, way, missed) as ask, Reconnecting(cluster, clients) as held, \
            Others(cluster) as others, ThreadPoolExecutor(1) as beside:
        held.forget()  # so that the cost of a session's first statement is not measured
        notifying = beside.submit(others.notify, seconds, rate)
        while not times or not notifying.done():
            count = held.catch_up(ask, missed)
            times.append(count["waited_us"] / 1e6)
            sizes.append(count["bytes"])
            if way == "herald":
                held.forget()
        figures = notifying.result()
    took_s = median(times)
    return figures | {"caught_up_s": took_s, "caught_up": len(times), "caught_up_per_s": clients * missed / took_s,
                      "mb_per_s": median(sizes) / MB / took_s, "delivered": True}
