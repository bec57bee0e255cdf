"""Logged channels on one server: what a logged notification costs its sender and its listeners."""

from bench.measuring.measure import DBNAME, MeasureError
from harness.cluster import Cluster
from harness.listeners import run_once

PATTERN = "logged_*"  # the channels that are logged
LOGGED, UNLOGGED = "logged_1", "channel_1"
TIMEOUT_S = 120
PERCENTILES = ("p50", "p99")

INSERT = "INSERT INTO noted (payload) VALUES ('%s')"
# The sender's answer has no row: the client that pulls takes rows of any connection for notifications.
TABLE = """DROP TABLE IF EXISTS noted;
CREATE TABLE noted (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text);
CREATE OR REPLACE FUNCTION on_noted() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_notify('{channel}', NEW.payload); RETURN NULL; END $$;
CREATE TRIGGER on_noted AFTER INSERT ON noted FOR EACH ROW EXECUTE FUNCTION on_noted();
"""


def set_logged(cluster: Cluster) -> None:
    """Makes the channels of PATTERN logged; may be called again."""
    cluster.psql(f"SELECT herald.set_channel('{PATTERN}', logged => true)", DBNAME)


def make_table(cluster: Cluster, channel: str) -> None:
    """An empty table; a trigger notifies the channel of each row inserted by INSERT."""
    cluster.psql(TABLE.format(channel=channel) + "CHECKPOINT;", DBNAME)


def received(told: dict) -> dict:
    """The figures of a run with paced sends, all of which must have been received.

    delivery_us_p50, ...    from when a row was due to be inserted until a listener has its notification
    commit_us_p50, ...      from then until the sender has the commit's answer
    """
    if told["delivered"] != told["expected"] or told["committed"] != told["sent"] or not told["sent"]:
        raise MeasureError(f"{told['delivered']:,} of {told['expected']:,} notifications were delivered")
    figures = {"sent": told["sent"], "delivered": True}
    for name in ("delivery_us", "commit_us"):
        figures |= {f"{name}_{suffix}": told[name][suffix] for suffix in PERCENTILES}
    return figures


def latency(cluster: Cluster, seconds: float, *, channel: str, listeners: int, rate: float) -> dict:
    """One connection inserts rows at a rate, and `listeners` connections are notified of each."""
    make_table(cluster, channel)
    return received(run_once(cluster, listeners, channel, dbname=DBNAME, timeout_s=TIMEOUT_S, paced=f"{seconds:g}",
                             rate=f"{rate:g}", send=INSERT))
