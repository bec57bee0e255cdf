"""How long a stranger's notification takes while others do what any role may do."""

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench.measuring.laggard import Laggards
from bench.measuring.latency import percentile
from bench.measuring.measure import (
    DBNAME, DRAIN_TIMEOUT_S, PGBENCH_TIMEOUT_S, PROBE_INTERVAL_MS, MeasureError, pgbench_arguments, script_load)
from harness.cluster import Cluster
from harness.listeners import Listeners, probe

SENDERS = 85
FEW = 4
HOLDERS = 90
CHANNELS = 400  # of bench/scripts/notify_many_channels.sql
MUTE = 20
SETTLES_S = 1
PROBES_AT_ONCE = 10
TIMES_AS_LONG = 3  # that a stranger may take: an attack of some minutes fills stock's queue, and no session can notify then
POLL_S = 0.02
READS_S, RESTS_S = 0.02, 0.2
OTHERS = "backend_type = 'client backend' AND pid <> pg_backend_pid()"
LISTEN_TO_ALL = """
CREATE OR REPLACE FUNCTION listen_to_all() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR n IN 0 .. {} LOOP EXECUTE format('LISTEN channel_%s', n); END LOOP;
END $$;
"""


@contextmanager
def _pgbench(cluster: Cluster, script: str, clients: int) -> Iterator[None]:
    """Within, this number of sessions run one of bench/scripts again and again."""
    command = [cluster.installation.program("pgbench"), *pgbench_arguments(clients, *script_load(
        script, PGBENCH_TIMEOUT_S))]
    load = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            env=cluster.environment(DBNAME))
    try:
        yield
        if load.poll() is not None:
            raise MeasureError(f"pgbench, which runs {script}, has ended by itself")
    finally:
        load.kill()
        load.wait()


@contextmanager
def _senders(cluster: Cluster, script: str, senders: int = SENDERS) -> Iterator[None]:
    with Listeners(cluster, 1, dbname=DBNAME), _pgbench(cluster, script, senders):
        yield


@contextmanager
def _to_listeners_in_a_transaction(cluster: Cluster) -> Iterator[None]:
    cluster.psql(LISTEN_TO_ALL.format(CHANNELS - 1), DBNAME)
    with _pgbench(cluster, "listen_to_all_and_begin", HOLDERS):
        _until(cluster, f"state = 'idle in transaction' AND application_name = 'pgbench'", HOLDERS)
        with _pgbench(cluster, "notify_many_channels", FEW):
            yield


@contextmanager
def _behind_a_laggard(cluster: Cluster, script: str) -> Iterator[None]:
    """The same as _senders(), beside one more listener, which is in a transaction: what it has not read goes to files."""
    with _pgbench(cluster, "listen_and_begin", 1):
        _until(cluster, "state = 'idle in transaction' AND application_name = 'pgbench'", 1)
        with _senders(cluster, script):
            yield


@contextmanager
def _to_listeners_that_wait_for_a_lock(cluster: Cluster) -> Iterator[None]:
    cluster.psql("CREATE TABLE IF NOT EXISTS locked (number integer)", DBNAME)
    with _pgbench(cluster, "lock_a_table", 1):
        _until(cluster, "state = 'idle in transaction' AND application_name = 'pgbench'", 1)
        with _pgbench(cluster, "listen_and_wait_for_lock", HOLDERS):
            _until(cluster, "wait_event_type = 'Lock' AND query LIKE '%locked%'", HOLDERS)
            with _pgbench(cluster, "notify_channel_1", FEW):
                yield


@contextmanager
def _to_clients_that_do_not_read(cluster: Cluster) -> Iterator[None]:
    with Laggards(cluster, MUTE) as mute:
        mute.stop()
        with _pgbench(cluster, "notify_large_batch", FEW):
            yield


@contextmanager
def _to_clients_that_read_in_steps(cluster: Cluster) -> Iterator[None]:
    ended = threading.Event()

    def read_in_steps() -> None:
        while not ended.is_set():
            slow.stop()
            ended.wait(RESTS_S)
            slow.start()
            time.sleep(READS_S)

    with Laggards(cluster, MUTE) as slow:
        reader = threading.Thread(target=read_in_steps)
        reader.start()
        try:
            with _pgbench(cluster, "notify_large_batch", FEW):
                yield
        finally:
            ended.set()
            reader.join()


@contextmanager
def _commits_that_hang(cluster: Cluster) -> Iterator[None]:
    """They wait for a synchronous standby, which does not exist, until another session ends the wait."""
    def configure(*settings: str) -> None:
        for setting in settings:
            cluster.psql(f"ALTER SYSTEM {setting}", DBNAME)
        cluster.psql("SELECT pg_reload_conf()", DBNAME)
        time.sleep(SETTLES_S)

    cluster.psql("CREATE TABLE IF NOT EXISTS written (number integer)", DBNAME)
    configure("SET synchronous_commit = local", "SET synchronous_standby_names = nobody")
    try:
        with _pgbench(cluster, "cancel_hung_commits", 1), _senders(cluster, "notify_and_hang", FEW):
            yield
    finally:
        configure("RESET synchronous_standby_names", "RESET synchronous_commit")


# What the others do, by a text for people: each is a context in which they do it.
ATTACKS = {
    "nothing": lambda cluster: ExitStack(),
    "a NOTIFY in each transaction": lambda cluster: _senders(cluster, "notify_channel_1"),
    "the same, to 90 listeners that wait for a table's lock": _to_listeners_that_wait_for_a_lock,
    "loops of NOTIFY and COMMIT on the server": lambda cluster: _senders(cluster, "notify_in_a_loop"),
    "31 kB in each transaction, with a laggard": lambda cluster: _behind_a_laggard(cluster, "notify_31_kb"),
    "100 × 7,000 bytes in each transaction": lambda cluster: _senders(cluster, "notify_large_batch"),
    "the same, to 20 clients that do not read": _to_clients_that_do_not_read,
    "the same, to 20 clients that read 20 ms of each 220": _to_clients_that_read_in_steps,
    "the same, with a laggard": lambda cluster: _behind_a_laggard(cluster, "notify_large_batch"),
    "2,000 notifications to 400 channels in each transaction":
        lambda cluster: _senders(cluster, "notify_many_channels"),
    "these, to 90 listeners that are in a transaction": _to_listeners_in_a_transaction,
    "commits that hang, for up to 50 ms": _commits_that_hang,
    "20 MB in each transaction": lambda cluster: _senders(cluster, "notify_20_mb", FEW),
}


def _until(cluster: Cluster, condition: str, count: int) -> None:
    """Wait until this number of sessions are in that state."""
    end_s = time.monotonic() + DRAIN_TIMEOUT_S
    while int(cluster.psql(f"SELECT count(*) FROM pg_stat_activity WHERE {condition}", DBNAME)) < count:
        if time.monotonic() > end_s:
            raise MeasureError(f"fewer than {count} sessions: {condition}")
        time.sleep(POLL_S)


def stranger(cluster: Cluster, seconds: float, *, attack: str) -> dict:
    """A NOTIFY every 20 ms to one listener, on a channel of their own, beside one of ATTACKS; µs.

    Where it takes longer, fewer are sent: `count` says how many. Both open new connections after each PROBES_AT_ONCE.

    received_us_p50, _p99   from the NOTIFY until the listener has it
    commit_us_p50, _p99     until the sender's commit is known
    """
    try:
        with ATTACKS[attack](cluster):
            time.sleep(SETTLES_S)
            probes = list(_probes(cluster, seconds))
    finally:
        # A session whose client is gone keeps what it has pending in the queue.
        _until(cluster, f"NOT EXISTS (SELECT FROM pg_stat_activity WHERE {OTHERS})", 1)
        # A stock queue that a laggard has filled stays full when it is gone, until this is asked.
        cluster.psql("SELECT pg_notification_queue_usage()", DBNAME)
    count = PROBES_AT_ONCE * len(probes)
    found = {"delivered": sum(times["complete"] for times in probes) == count, "count": count}
    for name, of in (("received", "last_us"), ("commit", "commit_us")):
        raw = [us for times in probes for us in times[of]["raw"]]
        found |= {f"{name}_us_p50": percentile(raw, 0.5), f"{name}_us_p99": percentile(raw, 0.99)}
    return found


def _probes(cluster: Cluster, seconds: float) -> Iterator[dict]:
    """What probe() returns, some at a time, until there are as many as fit into this time, or it is long over."""
    wanted = max(1, int(seconds * 1000 / PROBE_INTERVAL_MS / PROBES_AT_ONCE))
    end_s = time.monotonic() + TIMES_AS_LONG * seconds
    for number in range(wanted):
        if number > 0 and time.monotonic() > end_s:
            return
        yield probe(cluster, 1, PROBES_AT_ONCE, interval_ms=PROBE_INTERVAL_MS, channel="stranger", dbname=DBNAME)
