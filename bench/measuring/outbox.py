"""An outbox: writers insert rows, and readers are notified of each one.

One client holds all connections, so that all times are from one clock.
"""

from bench.measuring.measure import DBNAME, MeasureError
from harness.cluster import Cluster
from harness.listeners import run_once

BATCH_MS = 10
TIMEOUT_S = 300
INSERT = "INSERT INTO outbox (payload) VALUES ('%s')"
TABLE = """DROP TABLE IF EXISTS outbox;
CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text);
"""
TRIGGER = """
CREATE OR REPLACE FUNCTION outbox_told() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_notify('outbox', NEW.payload); RETURN NULL; END $$;
CREATE TRIGGER outbox_told AFTER INSERT ON outbox FOR EACH ROW EXECUTE FUNCTION outbox_told();
"""


def write(cluster: Cluster, seconds: float, *, writers: int, readers: int, batched: bool,
          rate: float | None = None) -> dict:
    """`writers` writers insert one row per transaction, as fast as possible or at a rate; `readers` readers LISTEN.

    batched     the transaction does not notify: every BATCH_MS the application notifies of all committed rows

    writes_per_s            over the time until the last reader has been notified of the last row
    delivery_us_p50, ...    from when a row was due to be inserted until a reader is notified
    commit_us_p50, ...      from then until the writer has the commit's answer
    """
    cluster.psql(TABLE + ("" if batched else TRIGGER) + "CHECKPOINT;", DBNAME)
    options: dict[str, object] = {"paced": f"{seconds:g}", "paced_senders": writers, "send": INSERT}
    if batched:
        options["batch"] = BATCH_MS
    if rate:
        options["rate"] = f"{rate:g}"
    told = run_once(cluster, readers, "outbox", dbname=DBNAME, timeout_s=TIMEOUT_S, **options)
    if told["delivered"] != told["expected"] or told["committed"] != told["sent"] or not told["sent"]:
        raise MeasureError(f"{told['delivered']:,} of {told['expected']:,} notifications were delivered")
    figures = {"writes_per_s": told["committed"] / told["elapsed_s"], "writes": told["committed"]}
    for name in ("delivery_us", "commit_us"):
        figures |= {f"{name}_{suffix}": told[name][suffix] for suffix in ("p50", "p99")}
    return figures
