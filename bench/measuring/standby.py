"""Listeners on a standby, and the relay that reads the WAL for them.

One client holds the listeners on the standby and sends to the primary, so that all times are from one clock.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from bench.measuring.cpu import threads_s
from bench.measuring.logged import INSERT, LOGGED, PERCENTILES, TIMEOUT_S, make_table, received, set_logged
from bench.measuring.measure import DBNAME, MeasureError, pgbench, script_load
from harness.cluster import Cluster
from harness.listeners import run_once
from harness.standby import Standby, conninfo

CATCH_UP_TIMEOUT_S = 120
POLL_S = 0.02
SAMPLE_S = 0.05
BATCH_BYTES = 100_000  # of each transaction of bench/scripts/other_wal.sql
WRITERS = 2
NOTIFY_RATE = 50  # a second, beside other WAL
PROCESSES = {"relay": "pg_herald relay", "startup": "startup"}

# Prepared, and asked for again as soon as it is answered: a row is found at most one query after it is visible.
VISIBLE = "PREPARE pull(bigint) AS SELECT id, payload FROM noted WHERE id > $1 ORDER BY id"
REPLAY_BEHIND = "pg_wal_lsn_diff(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())"
NUMBERS = {"stock": f"SELECT {REPLAY_BEHIND}, 0", "herald": f"SELECT {REPLAY_BEHIND}, bytes_behind FROM herald.relay"}


def _wait_until(condition: Callable[[], bool], what: str) -> float:
    """Waits until the condition is true, and returns the time that this took."""
    began_s = time.monotonic()
    while not condition():
        if time.monotonic() - began_s > CATCH_UP_TIMEOUT_S:
            raise MeasureError(f"{what}: not within {CATCH_UP_TIMEOUT_S} s")
        time.sleep(POLL_S)
    return time.monotonic() - began_s


def catch_up(standby: Standby) -> float:
    """Waits until the standby has replayed what its primary has written, and returns the time that this took."""
    # Its commit is flushed, and with it everything before, also commits that did not wait for that.
    end = standby.primary.psql("SELECT pg_logical_emit_message(true, 'bench', '')")
    return _wait_until(lambda: standby.psql(f"SELECT pg_last_wal_replay_lsn() >= '{end}'") == "t",
                       "the standby replays what the primary has written")


def _sender(primary: Cluster) -> str:
    return f"{conninfo(primary)} dbname={DBNAME}"


def listen(standby: Standby, seconds: float, *, listeners: int, rate: float, on_primary: bool = False) -> dict:
    """A connection to the primary inserts rows at a rate; listeners on the standby are notified of them."""
    primary = standby.primary
    set_logged(primary)
    make_table(primary, LOGGED)
    catch_up(standby)
    return received(run_once(primary if on_primary else standby, listeners, LOGGED, dbname=DBNAME, timeout_s=TIMEOUT_S,
                             paced=f"{seconds:g}", rate=f"{rate:g}", send=INSERT, send_conninfo=_sender(primary)))


def visible(standby: Standby, seconds: float, *, rate: float) -> dict:
    """The same rows; one connection to the standby looks for them all the time: the lag of the replay."""
    primary = standby.primary
    set_logged(primary)
    make_table(primary, LOGGED)
    catch_up(standby)
    return received(run_once(standby, 1, LOGGED, dbname=DBNAME, timeout_s=TIMEOUT_S, paced=f"{seconds:g}",
                             rate=f"{rate:g}", send=INSERT, send_conninfo=_sender(primary), setup=VISIBLE,
                             pull="EXECUTE pull('%s')", pull_from=0))


def applied(standby: Standby, seconds: float, *, rate: float) -> dict:
    """The same rows; each commit waits until the standby has replayed it (remote_apply): the lag, and the way back.

    delivery_us_p50, ...    from when a row was due to be inserted until the writer has the commit's answer
    """
    primary = standby.primary
    set_logged(primary)
    make_table(primary, LOGGED)
    standby.make_synchronous()
    try:
        told = run_once(primary, 1, dbname=DBNAME, timeout_s=TIMEOUT_S, paced=f"{seconds:g}", rate=f"{rate:g}",
                        send=f"SET synchronous_commit = remote_apply; {INSERT}", setup="", deliveries=0)
    finally:
        primary.psql("ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()")
        _wait_until(lambda: primary.psql("SELECT sync_state FROM pg_stat_replication") == "async",
                    "the standby is asynchronous again")
    if told["committed"] != told["sent"] or not told["sent"]:
        raise MeasureError(f"{told['committed']:,} of {told['sent']:,} rows were committed")
    return {"sent": told["sent"]} | {f"delivery_us_{name}": told["commit_us"][name] for name in PERCENTILES}


def _pids(standby: Standby) -> dict[str, list[int]]:
    processes = standby.processes()
    return {name: [pid for pid, title in processes.items() if text in title] for name, text in PROCESSES.items()}


def _sample(standby: Standby, name: str, seconds: float) -> list[tuple[int, int]]:
    """How far replay and relay are behind, in bytes, again and again."""
    sql = f"SELECT pg_sleep({SAMPLE_S}) \\g /dev/null\n{NUMBERS[name]};\n"
    rows = standby.psql(sql * max(1, int(seconds / SAMPLE_S)), DBNAME).splitlines()
    return [tuple(int(float(number)) for number in row.split("|")) for row in rows]


def _lsn(cluster: Cluster) -> int:
    return int(cluster.psql("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')"))


def beside_other_wal(standby: Standby, name: str, seconds: float, *, mb_per_s: float,
                     row_bytes: int) -> dict:
    """The primary ("stock" or "herald") inserts rows at a rate; with herald a listener is notified meanwhile.

    wal_mb_per_s            WAL that the primary wrote
    replay_behind_mb_max    what the standby had received and not replayed, at most
    relay_behind_mb_max     what it had replayed and the relay had not read, at most
    caught_up_s             from the end of the load until all is replayed, and read by the relay
    relay_percent, startup_percent      their CPU time until then, in percent of one CPU
    delivery_us_p50, ...    see logged.received(); with herald only
    """
    primary, herald = standby.primary, name == "herald"
    rows = BATCH_BYTES // row_bytes
    primary.psql("DROP TABLE IF EXISTS other; CREATE TABLE other (body text); "
                 "ALTER TABLE other ALTER body SET STORAGE plain", DBNAME)
    if herald:
        set_logged(primary)
        make_table(primary, LOGGED)
    catch_up(standby)
    pids, written, began_s = _pids(standby), _lsn(primary), time.monotonic()
    used_s = {who: threads_s(found) for who, found in pids.items()}
    with ThreadPoolExecutor() as threads:
        samples = threads.submit(_sample, standby, name, seconds)
        told = threads.submit(run_once, standby, 1, LOGGED, dbname=DBNAME, timeout_s=TIMEOUT_S, paced=f"{seconds:g}",
                              rate=NOTIFY_RATE, send=INSERT, send_conninfo=_sender(primary)) if herald else None
        load = pgbench(primary, WRITERS, *script_load("other_wal", seconds),
                       f"--rate={mb_per_s * 1e6 / (row_bytes * rows):g}", f"--define=row_bytes={row_bytes}",
                       f"--define=rows={rows}")
        load_s = time.monotonic() - began_s
        written = _lsn(primary) - written
        catch_up(standby)
        if herald:
            _wait_until(lambda: standby.psql("SELECT bytes_behind = 0 FROM herald.relay", DBNAME) == "t",
                        "the relay reads what is replayed")
        took_s = time.monotonic() - began_s
        used_s = {who: threads_s(found) - used_s[who] for who, found in pids.items()}
        behind = samples.result()
        notified = received(told.result()) if told else {}
    figures = {"wal_mb_per_s": written / load_s / 1e6, "transactions": load["transactions"],
               "caught_up_s": took_s - load_s, "replay_behind_mb_max": max(row[0] for row in behind) / 1e6,
               "startup_percent": 100 * used_s["startup"] / took_s}
    if herald:
        figures |= {"relay_percent": 100 * used_s["relay"] / took_s,
                    "relay_behind_mb_max": max(row[1] for row in behind) / 1e6}
    return figures | notified
