#!/usr/bin/env python3
"""Runs the pg_regress or isolation tests against a private cluster.

    test/run_sql.py regress herald [TEST...]
    test/run_sql.py isolation stock [TEST...]

Each folder has two lists. What is in `schedule_same_as_stock` must give the very same output with pg_herald
and without it; on a stock cluster only those tests run. `schedule_herald_only` has the others.
"""

import argparse
import subprocess
import sys
from pathlib import Path

TEST = Path(__file__).resolve().parent
sys.path.insert(0, str(TEST.parent))

from harness.cluster import SUPERUSER, Cluster, ClusterError  # noqa: E402
from harness.installation import InstallationError  # noqa: E402

DBNAME = "contrib_regression"
# Quiet: nothing but the tests writes WAL.
SETTINGS = {"max_prepared_transactions": 4, "autovacuum": False, "fsync": False,
            "wal_level": "minimal", "max_wal_senders": 0}

# The program, below the folder of PGXS's makefiles, and the suffix and folder of its tests.
PROGRAMS = {
    "regress": ("test/regress/pg_regress", "sql", "sql"),
    "isolation": ("test/isolation/pg_isolation_regress", "spec", "specs"),
}


def scheduled(kind: str, name: str) -> list[str]:
    """The tests of one list, in its order."""
    lines = (TEST / kind / f"schedule_{name}").read_text(encoding="utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def unscheduled(kind: str) -> list[str]:
    """Test files that no list names, and names without a file."""
    _, suffix, folder = PROGRAMS[kind]
    files = {path.stem for path in (TEST / kind / folder).glob(f"*.{suffix}")}
    return sorted(files ^ set(scheduled(kind, "same_as_stock") + scheduled(kind, "herald_only")))


def command(kind: str, cluster: Cluster, output: Path, tests: list[str]) -> list[str]:
    """The call of pg_regress, which takes the cluster and the database as they are."""
    pgxs = subprocess.run([cluster.installation.pg_config, "--pgxs"], check=True, text=True,
                          capture_output=True).stdout.strip()
    call = [str(Path(pgxs).parent.parent / PROGRAMS[kind][0]), "--use-existing",
            f"--bindir={cluster.installation.bindir}", f"--host={cluster.socket_folder}",
            f"--port={cluster.port}", f"--user={SUPERUSER}", f"--dbname={DBNAME}",
            f"--inputdir={TEST / kind}", f"--outputdir={output}"]
    if kind == "regress":
        call.append(f"--launcher={TEST / kind / 'without_pids'}")
    return call + tests


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("kind", choices=PROGRAMS)
    parser.add_argument("on", choices=("herald", "stock"))
    parser.add_argument("tests", nargs="*", metavar="TEST", help="default: all that are scheduled")
    arguments = parser.parse_args()
    kind, herald = arguments.kind, arguments.on == "herald"
    tests = arguments.tests or (scheduled(kind, "same_as_stock") +
                                (scheduled(kind, "herald_only") if herald else []))
    output = TEST / "results" / f"{kind}_{arguments.on}"
    output.mkdir(parents=True, exist_ok=True)
    with Cluster(preload=herald, caches=herald, settings=SETTINGS) as cluster:
        cluster.psql(f"CREATE DATABASE {DBNAME}")
        if herald:
            cluster.psql("CREATE EXTENSION pg_herald", DBNAME)
        status = subprocess.run(command(kind, cluster, output, tests)).returncode
        differences = output / "regression.diffs"
        if status != 0 and differences.exists():
            print(differences.read_text(encoding="utf-8", errors="replace"))
        if cluster.damage():
            print(cluster.damage())
            status = 1
    return status


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ClusterError, InstallationError) as problem:
        sys.exit(str(problem))
