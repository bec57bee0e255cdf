"""Many notifications in one transaction: the cost of each, and their memory.

The server takes the times: compared with a round trip to the client ten notifications are too short.
"""

import time
from pathlib import Path

from bench.measuring.measure import DBNAME, PGBENCH_TIMEOUT_S, SETTLE_S, MeasureError, heard_exactly
from harness.cluster import Cluster
from harness.listeners import Listeners

ARRIVE_TIMEOUT_S = 300

# us: duration of the loop. ended_us: when it ended, to compute the duration of the commit.
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
# To one channel, with numbers that listen --check-sequence can check.
NUMBERED_FUNCTION = """
CREATE OR REPLACE FUNCTION notify_numbered(notifications int, OUT us float8, OUT ended_us float8)
LANGUAGE plpgsql AS $$
DECLARE
    started timestamptz := clock_timestamp();
    ended timestamptz;
BEGIN
    FOR i IN 1 .. notifications LOOP
        PERFORM pg_notify('channel_1', '0.' || i);
    END LOOP;
    ended := clock_timestamp();
    us := extract(epoch FROM ended - started) * 1e6;
    ended_us := extract(epoch FROM ended) * 1e6;
END $$;
"""
WARM_UP = "SELECT FROM notify_many(10, 10, false);\n"
# In kB, of this backend. The peak (VmHWM) includes the shared memory that it has touched.
MEMORY = """SELECT 'memory', substring(status FROM 'VmHWM:\\s+(\\d+)'),
       substring(status FROM 'RssShmem:\\s+(\\d+)'), substring(status FROM 'RssFile:\\s+(\\d+)')
  FROM pg_read_file('/proc/self/status') status;
"""
TRANSACTION = """BEGIN;
SELECT 'loop', us, ended_us FROM {call};
COMMIT;
SELECT 'committed', extract(epoch FROM clock_timestamp()) * 1e6;
"""


def notify_many(cluster: Cluster, notifications: int, channels: int, *, savepoints: bool = False,
                repeat: int = 1) -> dict:
    """`notifications` pg_notify() in one transaction, to `channels` different channels; repeated `repeat` times.

    notify_us           time of one pg_notify(), including the loop around it
    commit_us           time of the whole transaction's commit
    peak_mb             the backend's peak memory in total
    peak_private_mb     growth of that peak without shared memory
    peak_shared_mb      growth of the shared memory that it has touched
    """
    transaction = TRANSACTION.format(call=f"notify_many({notifications}, {channels}, {savepoints})")
    loops, commits, memory = _run(
        cluster, FUNCTION + WARM_UP + MEMORY + repeat * transaction + MEMORY, repeat)
    return {
        "notify_us": sum(us for us, _ in loops) / repeat / notifications,
        "commit_us": sum(end - ended for (_, ended), (end,) in zip(loops, commits)) / repeat,
        **memory,
        "transactions": repeat,
    }


def notify_huge(cluster: Cluster, notifications: int) -> dict:
    """`notifications` different notifications in one transaction, to one listener that checks their numbers.

    notify_s, commit_s      the server's times for the loop and for the commit
    arrived_s               from the beginning of the commit until the listener has received the last one
    peak_mb ...             of the backend that sends, see notify_many()
    listener_peak_mb        peak memory of the listening backend, without shared memory
    """
    with Listeners(cluster, 1, dbname=DBNAME, check_sequence=1) as held:
        transaction = TRANSACTION.format(call=f"notify_numbered({notifications})")
        [(us, ended_us)], [(committed_us,)], memory = _run(
            cluster, NUMBERED_FUNCTION + MEMORY + transaction + MEMORY, 1)
        held.wait(notifications, ARRIVE_TIMEOUT_S)
        arrived_us = time.time() * 1e6  # the server uses the same clock
        listener_peak_mb = _peak_of_listener(cluster)
        time.sleep(SETTLE_S)
        exact = heard_exactly(held.count(), notifications)
    return {
        "notify_s": us / 1e6, "commit_s": (committed_us - ended_us) / 1e6,
        "arrived_s": (arrived_us - ended_us) / 1e6, **memory, "listener_peak_mb": listener_peak_mb,
        "exact": exact, "delivered": exact,
    }


def _run(cluster: Cluster, sql: str, repeat: int) -> tuple[list, list, dict]:
    """The output of the statements above: the loops, the commits, and the growth of memory in between."""
    rows = {}
    for line in cluster.psql(sql, DBNAME, timeout_s=PGBENCH_TIMEOUT_S).splitlines():
        name, *numbers = line.split("|")
        rows.setdefault(name, []).append([float(number) for number in numbers if number])
    loops, commits, (before, after) = rows["loop"], rows["committed"], rows["memory"]
    if len(loops) != repeat or len(commits) != repeat:
        raise MeasureError(f"{len(loops)} of {repeat} transactions were done")
    peak_kb, shared_kb, file_kb = (end - begin for begin, end in zip(before, after))
    return loops, commits, {
        "peak_mb": after[0] / 1024,
        "peak_private_mb": max(0, peak_kb - shared_kb - file_kb) / 1024,
        "peak_shared_mb": shared_kb / 1024,
    }


def _peak_of_listener(cluster: Cluster) -> float:
    pid = cluster.psql("SELECT pid FROM pg_stat_activity WHERE application_name = 'bench/listen'", DBNAME)
    status = dict(line.split(":", 1) for line in
                  Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines())
    peak_kb, shared_kb, file_kb = (int(status[key].split()[0]) for key in ("VmHWM", "RssShmem", "RssFile"))
    return (peak_kb - shared_kb - file_kb) / 1024
