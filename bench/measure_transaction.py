"""Many notifications in one transaction: what each costs, and what memory they take.

The server times itself: over a round trip to the client ten notifications would not be seen.
"""

import re

from bench.measure import DBNAME, PGBENCH_TIMEOUT_S, MeasureError
from harness.cluster import Cluster, ClusterError

# us: what the loop took. ended_us: when it ended, to tell what the commit took.
FUNCTION = """
CREATE OR REPLACE FUNCTION notify_many(notifications int, channels int, savepoints boolean,
                                       OUT us float8, OUT ended_us float8)
LANGUAGE plpgsql AS $$
DECLARE
    started timestamptz := clock_timestamp();
    ended timestamptz;
BEGIN
    IF savepoints THEN
        FOR i IN 1 .. notifications LOOP
            BEGIN
                PERFORM pg_notify('channel_' || i % channels, '');
            EXCEPTION WHEN division_by_zero THEN NULL;  -- what makes it a subtransaction
            END;
        END LOOP;
    ELSE
        FOR i IN 1 .. notifications LOOP
            PERFORM pg_notify('channel_' || i % channels, '');
        END LOOP;
    END IF;
    ended := clock_timestamp();
    us := extract(epoch FROM ended - started) * 1e6;
    ended_us := extract(epoch FROM ended) * 1e6;
END $$;
"""
WARM_UP = "SELECT FROM notify_many(10, 10, false);\n"
# In kB; of the backend that is asked. Peak (VmHWM) includes the shared memory that it has touched.
MEMORY = """SELECT 'memory', substring(status FROM 'VmHWM:\\s+(\\d+)'),
       substring(status FROM 'RssShmem:\\s+(\\d+)'), substring(status FROM 'RssFile:\\s+(\\d+)')
  FROM pg_read_file('/proc/self/status') status;
"""
TRANSACTION = """BEGIN;
SELECT 'loop', us, ended_us FROM notify_many({notifications}, {channels}, {savepoints});
COMMIT;
SELECT 'committed', extract(epoch FROM clock_timestamp()) * 1e6;
"""


def notify_many(cluster: Cluster, notifications: int, channels: int, *, savepoints: bool = False,
                repeat: int = 1) -> dict:
    """So many pg_notify() in one transaction, to so many different channels, `repeat` times over.

    notify_us           of one pg_notify(), the loop around it included
    commit_us           of the whole transaction's commit
    peak_mb             what the backend has used at most, all in all
    peak_private_mb     how much that has grown, without shared memory
    peak_shared_mb      how much more shared memory it has touched
    """
    transaction = TRANSACTION.format(notifications=notifications, channels=channels, savepoints=savepoints)
    output = cluster.psql(FUNCTION + WARM_UP + MEMORY + repeat * transaction + MEMORY, DBNAME,
                          timeout_s=PGBENCH_TIMEOUT_S)
    rows = {}
    for line in output.splitlines():
        name, *numbers = line.split("|")
        rows.setdefault(name, []).append([float(number) for number in numbers if number])
    loops, commits, (before, after) = rows["loop"], rows["committed"], rows["memory"]
    if len(loops) != repeat or len(commits) != repeat:
        raise MeasureError(f"{len(loops)} of {repeat} transactions were done")
    peak_kb, shared_kb, file_kb = (end - begin for begin, end in zip(before, after))
    return {
        "notify_us": sum(us for us, _ in loops) / repeat / notifications,
        "commit_us": sum(end - ended for (_, ended), (end,) in zip(loops, commits)) / repeat,
        "peak_mb": after[0] / 1024,
        "peak_private_mb": max(0, peak_kb - shared_kb - file_kb) / 1024,
        "peak_shared_mb": shared_kb / 1024,
        "transactions": repeat,
    }


def refusal(cluster: Cluster, notifications: int, channels: int) -> dict:
    """The error (refused, message) of a transaction that is too large for the server, which goes on after it.

    MeasureError if it takes the transaction.
    """
    try:
        notify_many(cluster, notifications, channels)
    except ClusterError as error:
        found = re.search(r"ERROR: .*", str(error), re.DOTALL)
        if found and notify_many(cluster, 10, 10):
            return {"refused": 1, "message": re.sub(r"\s+", " ", found[0])}
        raise
    raise MeasureError(f"{notifications:,} notifications in one transaction were not refused")
