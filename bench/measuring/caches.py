"""A query whose row-security policy looks up permissions, with and without a cache, while they change.

A project's permissions are a tree: an account has access if an account with access granted it. Each
document belongs to a project, and its policy looks up the accounts that may read the project.
Commits, at the given rate, revoke and grant the access of a leaf: this changes the result of a
look-up, but not its cost.
"""

import re
import shutil
import subprocess
import time
from pathlib import Path

from bench.measuring.laggard import is_herald
from bench.measuring.measure import (
    BENCH, DBNAME, PGBENCH_TIMEOUT_S, MeasureError, parse_pgbench, pgbench_arguments, script_load)
from harness.cluster import Cluster

MODULE = BENCH / "dummy_relcache"
READER = "bench_reader"
PROJECTS = 1_000
DOCUMENTS = 200
READ_PROJECTS = 40  # projects that these documents belong to
CHECKED_PROJECTS = 4
WRITERS = 8
WARM_UP_S = 1  # until each backend has filled its cache
START_TIMEOUT_S = 30
POLL_S = 0.02

SCHEMA = f"""
CREATE TABLE grants (project int, account int, granted_by int, active boolean NOT NULL DEFAULT true,
                     PRIMARY KEY (project, account)) WITH (fillfactor = 50);
INSERT INTO grants SELECT project, account, account / 2
    FROM generate_series(1, {PROJECTS}) project, generate_series(1, 63) account;
CREATE INDEX ON grants (project, granted_by);
CREATE TABLE documents (id int PRIMARY KEY, project int NOT NULL);
INSERT INTO documents SELECT id, 1 + id % {READ_PROJECTS} FROM generate_series(1, {DOCUMENTS}) id;
CREATE UNLOGGED SEQUENCE stale_answers;
CREATE FUNCTION readers(of_project int) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (WITH RECURSIVE reader(account) AS (
                SELECT 1
                UNION ALL
                SELECT grants.account FROM grants JOIN reader ON grants.granted_by = reader.account
                WHERE grants.project = of_project AND grants.active)
            SELECT ',' || string_agg(account::text, ',') || ',' FROM reader);
END $$;
ALTER TABLE documents ENABLE ROW LEVEL SECURITY;
CREATE ROLE {READER} LOGIN;
GRANT SELECT ON grants, documents TO {READER};
GRANT USAGE ON stale_answers TO {READER};
ALTER ROLE {READER} SET bench.account = '40';
ALTER ROLE {READER} SET track_functions = 'pl';
VACUUM ANALYZE grants;
VACUUM ANALYZE documents;
CHECKPOINT;
"""
DUMMY_SCHEMA = """
CREATE TABLE dummy_relcache ();
CREATE FUNCTION dummy_through(int, text) RETURNS text LANGUAGE C STRICT STABLE AS '{module}';
CREATE FUNCTION dummy_invalidate() RETURNS trigger LANGUAGE C AS '{module}';
"""

# For each way to cache: the expression that looks up a project's readers, and the trigger's function.
LOOKUPS = {
    "no cache": ("readers({0})", None),
    "herald": ("herald.cache_through('readers', 'SELECT readers($1)', {0})",
               "herald.invalidate_cache('readers', 'project')"),
    "dummy relcache": ("dummy_through({0}, 'SELECT readers($1)')", "dummy_invalidate()"),
}
USE = """
SET client_min_messages = warning;
DROP POLICY IF EXISTS readable ON documents;
DROP TRIGGER IF EXISTS invalidate ON grants;
CREATE POLICY readable ON documents
    USING ({lookup} LIKE '%,' || current_setting('bench.account') || ',%');
CREATE OR REPLACE VIEW answers AS
    SELECT {lookup} AS cached, readers(project) AS computed FROM generate_series(1, {checked}) project;
GRANT SELECT ON answers TO {reader};
SELECT pg_stat_reset_single_function_counters('readers'::regproc);
"""
TRIGGER = """
CREATE TRIGGER invalidate AFTER INSERT OR UPDATE OR DELETE ON grants
    FOR EACH ROW EXECUTE FUNCTION {function};
"""
LOOKUP_US = f"""
SELECT 1e6 * extract(epoch FROM clock_timestamp() - statement_timestamp()) / count(readers(project))
FROM generate_series(1, {DOCUMENTS}) project
"""


def prepare(cluster: Cluster, way: str) -> None:
    """Creates the tables if they are missing, and sets the policy to this way of looking up."""
    if cluster.psql("SELECT to_regclass('grants')", DBNAME) == "":
        cluster.psql(SCHEMA, DBNAME)
    if way == "dummy relcache" and cluster.psql("SELECT to_regclass('dummy_relcache')", DBNAME) == "":
        cluster.psql(DUMMY_SCHEMA.format(module=_build_module(cluster)), DBNAME)
    lookup, function = LOOKUPS[way]
    cluster.psql(USE.format(lookup=lookup.format("project"), checked=CHECKED_PROJECTS, reader=READER)
                 + (TRIGGER.format(function=function) if function else ""), DBNAME)


def _build_module(cluster: Cluster) -> Path:
    """Builds it in the cluster's folder, where the server's user can read it; returns its path without a suffix."""
    folder = cluster.folder / MODULE.name
    folder.mkdir(exist_ok=True)
    for source in ("Makefile", f"{MODULE.name}.c"):
        shutil.copy(MODULE / source, folder)
    result = subprocess.run(["make", "-s", f"PG_CONFIG={cluster.installation.pg_config}", "with_llvm=no"],
                            cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise MeasureError(f"{MODULE} cannot be built: {result.stderr.strip()[-500:]}")
    for path in (folder, folder / f"{MODULE.name}.so"):
        path.chmod(0o755)
    return folder / MODULE.name


class Writers:
    """Commits that change a project's permissions, while the context lasts."""

    def __init__(self, cluster: Cluster, rate: int, projects: int):
        self._cluster = cluster
        self._rate = rate
        self._projects = projects
        self._began = (0, 0.0)
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> "Writers":
        try:
            if self._rate > 0:
                self._start()
        except BaseException:
            self.__exit__()
            raise
        self._began = (self._transactions(), time.monotonic())
        return self

    def __exit__(self, *_exception) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            _wait_until(lambda: self._cluster.psql(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'") == "0",
                "writers do not end")

    def per_s(self) -> float:
        """Commits per second actually made since the context was entered."""
        transactions, began_s = self._began
        made, elapsed_s = self._transactions() - transactions, time.monotonic() - began_s
        if self._process and self._process.poll() is not None:
            raise MeasureError("the writers' pgbench has ended by itself")
        return made / elapsed_s

    def _start(self) -> None:
        command = [self._cluster.installation.program("pgbench"), *pgbench_arguments(
            WRITERS, *script_load("change_grant", PGBENCH_TIMEOUT_S)), "-j", "1", "-M", "prepared",
            "--rate", str(self._rate), "-D", f"projects={self._projects}"]
        environment = self._cluster.environment(DBNAME) | {"PGOPTIONS": "-c synchronous_commit=off"}
        before = self._transactions()
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                         stderr=subprocess.DEVNULL, env=environment)
        _wait_until(lambda: self._transactions() > before + WRITERS, "nothing is written")

    def _transactions(self) -> int:
        """The next transaction id, which counts the commits: only writers take one."""
        return int(self._cluster.psql("SELECT pg_snapshot_xmax(pg_current_snapshot())", DBNAME))


def _wait_until(condition, what: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise MeasureError(what)
        time.sleep(POLL_S)


def _read(cluster: Cluster, backends: int, script: str, seconds: float) -> tuple[dict, str]:
    """pgbench's figures, and its progress reports."""
    command = [cluster.installation.program("pgbench"), *pgbench_arguments(
        backends, *script_load(script, seconds)), "-P", "1", "-U", READER]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            env=cluster.environment(DBNAME), timeout=PGBENCH_TIMEOUT_S, check=False)
    if result.returncode != 0:
        raise MeasureError((result.stderr.strip().splitlines() or ["pgbench failed"])[-1])
    return parse_pgbench(result.stdout), result.stderr


def _without_warm_up(load: dict, told: str) -> float:
    """Transactions a second after the first line of progress."""
    first = re.search(r"progress: ([\d.]+) s, ([\d.]+) tps", told)
    if not first:
        raise MeasureError(f"pgbench has told no progress: {told}")
    first_s = float(first[1])
    elapsed_s = load["transactions"] / load["tps"]
    return (load["transactions"] - first_s * float(first[2])) / (elapsed_s - first_s)


def policy_tps(cluster: Cluster, seconds: float, *, way: str, backends: int, rate: int) -> dict:
    """`backends` backends read the documents, while commits change permissions at `rate`.

    way     one of LOOKUPS

    tps                     queries a second; with a cache, without the first second, which fills it
    invalidations_per_s     commits actually made; also without a cache
    resets, catch_ups       their growth in herald.cache_stats
    lookups_per_query       look-ups computed
    lookup_us               time of one look-up, when nothing else runs
    latency_ms              time of a query
    """
    cached = way != "no cache"
    prepare(cluster, way)
    lookup_us = float(cluster.psql(LOOKUP_US, DBNAME))
    before = _counted(cluster)
    with Writers(cluster, rate, PROJECTS) as writers:
        load, told = _read(cluster, backends, "read_documents", seconds + (WARM_UP_S if cached else 0))
        per_s = writers.per_s()
    return {
        "tps": _without_warm_up(load, told) if cached else load["tps"],
        "invalidations_per_s": per_s,
        "lookups_per_query": _lookups(cluster) / load["transactions"],
        "lookup_us": lookup_us,
        "latency_ms": load["latency_ms"],
        "pgbench": load,
    } | {name: count - before[name] for name, count in _counted(cluster).items()}


def _counted(cluster: Cluster) -> dict[str, int]:
    if not is_herald(cluster):
        return {}
    resets, catch_ups = cluster.psql("SELECT cache_resets, catch_ups FROM herald.cache_stats", DBNAME).split("|")
    return {"resets": int(resets), "catch_ups": int(catch_ups)}


def _lookups(cluster: Cluster) -> int:
    """Calls of readers(), after all backends have reported their counts."""
    _wait_until(lambda: cluster.psql("SELECT count(*) FROM pg_stat_activity "
                                     f"WHERE usename = '{READER}'") == "0", "readers do not end")
    return int(cluster.psql("SELECT coalesce(pg_stat_get_function_calls('readers'::regproc), 0)", DBNAME))


def stale_answers(cluster: Cluster, seconds: float, *, way: str, backends: int, rate: int) -> dict:
    """Compares the cached with the computed value in one statement, for each project, repeatedly.

    Half of the statements run as the second one of a REPEATABLE READ transaction, whose snapshot is a
    millisecond old. All commits concern the projects that are looked up.
    """
    prepare(cluster, way)
    cluster.psql("SELECT setval('stale_answers', 1, false)", DBNAME)
    with Writers(cluster, rate, CHECKED_PROJECTS) as writers:
        load, _ = _read(cluster, backends, "check_cache", WARM_UP_S + seconds)
        per_s = writers.per_s()
    stale = int(cluster.psql("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM stale_answers",
                             DBNAME))
    if way == "herald" and stale:
        raise MeasureError(f"{stale} stale answers")
    return {"answers": 2 * CHECKED_PROJECTS * load["transactions"], "stale": stale,
            "invalidations_per_s": per_s}
