"""pg_herald's cost for sessions that do not use it, and its memory in sessions that do."""

import re

from bench.measuring.measure import DBNAME, PGBENCH_TIMEOUT_S, MeasureError, parse_pgbench, pgbench_arguments
from harness.cluster import Cluster

DATABASE = "bench_idle"
SCALE = 10
# Rough number of transactions per second on one core; determines the length of a run.
LOADS = {"select": (("-S", "-M", "prepared"), 25_000), "tpcb": (("-b", "tpcb-like", "-M", "prepared"), 2_500)}

# In kB, of this backend: its own memory, the shared memory that it has touched, and all of it.
MEMORY = """SELECT substring(status FROM 'RssAnon:\\s+(\\d+)'), substring(status FROM 'RssShmem:\\s+(\\d+)'),
       substring(status FROM 'VmRSS:\\s+(\\d+)') FROM pg_read_file('/proc/self/status') status;
"""
# The first LISTEN of a session allocates the memory common to all LISTENs, and loads the code.
LISTEN = """BEGIN;
DO $$ BEGIN FOR i IN {first} .. {last} LOOP EXECUTE 'LISTEN channel_' || i; END LOOP; END $$;
COMMIT;
"""


def _prepare(cluster: Cluster) -> None:
    """pgbench's tables in a database of their own, once for each cluster."""
    if cluster.psql(f"SELECT count(*) FROM pg_database WHERE datname = '{DATABASE}'") == "1":
        return
    cluster.psql(f"CREATE DATABASE {DATABASE}; ALTER DATABASE {DATABASE} SET synchronous_commit = off")
    if "shared_preload_libraries" in cluster.settings:
        cluster.create_herald(DATABASE)
    cluster.client("pgbench", "-i", "-q", "-s", str(SCALE), dbname=DATABASE)
    cluster.psql("CHECKPOINT")


def unused(cluster: Cluster, seconds: float, *, load: str) -> dict:
    """One of pgbench's own scripts, one client, prepared, without waiting for the disk (synchronous_commit off).

    A run has a number of transactions, not of seconds: pgbench takes whole seconds only, and many short
    runs, in turn, show a difference of a percent best.
    """
    _prepare(cluster)
    options, per_s = LOADS[load]
    arguments = pgbench_arguments(1, *options, "-t", str(max(100, round(seconds * per_s))))
    output = cluster.client("pgbench", *arguments, dbname=DATABASE, timeout_s=PGBENCH_TIMEOUT_S)
    return {"value": parse_pgbench(output)["tps"]}


def listening_memory(cluster: Cluster, _seconds: float, *, channels: int) -> dict:
    """The memory of one backend before and after LISTEN to `channels` further channels in one transaction.

    private_kb          growth of its own memory
    shared_kb           growth of the shared memory that it has touched
    first_private_kb    growth of its own memory by its first LISTEN
    """
    rest = LISTEN.format(first=2, last=channels + 1)
    output = cluster.psql(MEMORY + MEMORY + LISTEN.format(first=1, last=1) + MEMORY + rest + MEMORY +
                          "SELECT 'channels', count(*) FROM pg_listening_channels();",
                          DBNAME, timeout_s=PGBENCH_TIMEOUT_S)
    rows = [line.split("|") for line in output.splitlines() if line]
    memory = [[int(kb) for kb in row] for row in rows if row[0] != "channels"]
    if len(memory) != 4 or rows[-1] != ["channels", str(channels + 1)]:
        raise MeasureError(f"psql printed {output!r}")
    _, before, first, after = memory
    return {
        "private_kb": after[0] - first[0], "shared_kb": after[1] - first[1], "backend_kb": after[2],
        "private_bytes_per_channel": (after[0] - first[0]) * 1024 / channels,
        "shared_bytes_per_channel": (after[1] - first[1]) * 1024 / channels,
        "first_private_kb": first[0] - before[0],
    }


def shared_memory(cluster: Cluster) -> dict:
    """pg_herald's shared memory, in kB by name, and the bytes of it for each backend."""
    rows = cluster.psql("SELECT name, allocated_size FROM pg_shmem_allocations WHERE name LIKE 'pg_herald %'"
                        " ORDER BY name", DBNAME)
    sizes = {re.sub("^pg_herald ", "", name): int(size) / 1024
             for name, size in (line.split("|") for line in rows.splitlines())}
    backends = int(cluster.psql("SELECT setting::int + current_setting('autovacuum_max_workers')::int + 1"
                                " + current_setting('max_worker_processes')::int"
                                " + current_setting('max_wal_senders')::int"
                                " FROM pg_settings WHERE name = 'max_connections'"))
    if not sizes:
        raise MeasureError("pg_herald has no shared memory")
    return {"sizes_kb": sizes, "backends": backends,
            "bytes_per_backend": 1024 * (sizes["slots"] + sizes["wakeup"]) / backends}
