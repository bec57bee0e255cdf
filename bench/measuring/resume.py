"""Clients that reconnect at once after an outage: how soon they are up to date, and what it costs the others.

They ask herald.listen() with a position from before the outage, or a table with an index, and check the
numbers in what comes: every one, once and in order. The others notify each other on a channel of their
own, and share nothing with them but the server.
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
BATCH = 1_000  # notifications or rows a transaction
CATCH_UP_TIMEOUT_S = 600
SETUP_TIMEOUT_S = 300
MB = 1e6

# The payload of number n: as listen --check-sequence takes it, filled up to its size.
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
    """Connections that are open, and listen to nothing so far."""

    def __init__(self, cluster: Cluster, connections: int):
        super().__init__(cluster, connections, dbname=DBNAME, setup="", check_sequence=1)

    def catch_up(self, sql: str, missed: int) -> dict:
        """Each sends this at the same time, and has then to receive so many; MeasureError if one does not.

        The answer's waited_us is from before the first is sent until the last one has everything.
        """
        self._ask("reset")
        count = self._ask(f"ask {missed * self.connections} {CATCH_UP_TIMEOUT_S * 1000} {sql}")
        if not heard_exactly(count, missed):
            raise MeasureError(f"of {missed:,} notifications a client has received {count['min']:,} to "
                               f"{count['max']:,}, or not in order: {count}")
        return count

    def forget(self) -> None:
        """None of them listens any more."""
        self._ask(f"query {CATCH_UP_TIMEOUT_S * 1000} UNLISTEN *")


class Others(Listeners):
    """Those who have nothing to do with the outage: they notify, and they listen."""

    def __init__(self, cluster: Cluster):
        super().__init__(cluster, OTHERS, OTHERS_CHANNEL, dbname=DBNAME, paced_senders=SENDERS)

    def notify(self, seconds: float, rate: float | None) -> dict:
        """As the latency family's steady load: a rate, or as fast as it goes; tps counts until all is delivered."""
        told = self._ask(f"paced {seconds:g} {rate or 0:g}")
        if told["delivered"] != told["expected"] or told["committed"] != told["sent"] or not told["sent"]:
            raise MeasureError(f"others: {told['delivered']:,} of {told['expected']:,} notifications were delivered")
        return {"tps": told["sent"] / told["elapsed_s"], "delivery_us_p50": told["delivery_us"]["p50"],
                "delivery_us_p99": told["delivery_us"]["p99"], "commit_us_p99": told["commit_us"]["p99"]}


@contextmanager
def _outage(cluster: Cluster, way: str, missed: int) -> Iterator[str]:
    """Sends so many notifications, or inserts as many rows; gives the statement that asks for all of them."""
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
    """The others, after an outage; nobody comes back."""
    with _outage(cluster, "herald", missed), Others(cluster) as others:
        return others.notify(seconds, rate)


def reconnect(cluster: Cluster, seconds: float, *, way: str, clients: int, missed: int,
              rate: float | None) -> dict:
    """So many clients come back at once after an outage, again and again for as long as the others notify.

    way     "herald": herald.listen() with a position; "read": herald.read() with one;
            "table": a query of what has a higher number

    tps, ...            of the others, as alone() measures it
    caught_up_s         from when the clients ask until the last one has everything; the median, if they
                        did it several times
    caught_up           how often
    caught_up_per_s     notifications, of all clients together
    mb_per_s            what they received
    """
    times, sizes = [], []
    with _outage(cluster, way, missed) as ask, Reconnecting(cluster, clients) as held, \
            Others(cluster) as others, ThreadPoolExecutor(1) as beside:
        held.forget()  # what a session's first statement costs is not the catch-up's
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
