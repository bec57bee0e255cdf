#!/usr/bin/env python3
"""Runs some of the SQL tests on a server under valgrind.

    test/analysis/valgrind.py [regress/TEST | isolation/TEST]...

A finding is whatever valgrind.supp does not explain, wherever it shows: bytes that we forgot to set
are noticed only when the server sends them. Each process of the server has its own log.
"""

import argparse
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ANALYSIS = Path(__file__).resolve().parent
TEST = ANALYSIS.parent
sys.path.insert(0, str(TEST))

import run_sql  # noqa: E402
from harness.cluster import Cluster, ClusterError  # noqa: E402
from harness.installation import InstallationError  # noqa: E402

# Every way of a notification once; under valgrind everything takes some 30 times as long.
TESTS = ("regress/notify", "regress/listen", "regress/duplicates", "regress/subtransactions",
         "regress/retarget", "regress/views", "isolation/order", "isolation/listen_in_transaction")
START_TIMEOUT_S = 300


class ValgrindCluster(Cluster):
    """A cluster whose server runs under valgrind."""

    @property
    def findings_folder(self) -> Path:
        """Holds a log for each process."""
        return self.folder / "findings"

    def findings(self) -> str:
        """What valgrind has to say; a process has said everything when it has ended."""
        return "".join(log.read_text(encoding="utf-8", errors="replace")
                       for log in sorted(self.findings_folder.iterdir()))

    def _server(self, name: str, *arguments: str) -> None:
        if arguments[0] == "start":
            arguments += ("-p", str(self._wrapper()), f"--timeout={START_TIMEOUT_S}")
        super()._server(name, *arguments)

    def _wrapper(self) -> Path:
        """A program that pg_ctl takes for the server."""
        self.run_as_server_user(shutil.which("mkdir"), "-p", str(self.findings_folder))
        suppressions = self.folder / "valgrind.supp"  # a copy, which the server's user can read
        shutil.copyfile(ANALYSIS / "valgrind.supp", suppressions)
        valgrind = ["valgrind", "--quiet", "--trace-children=yes", "--leak-check=no", "--track-origins=yes",
                    "--num-callers=30", "--gen-suppressions=all", f"--suppressions={suppressions}",
                    f"--log-file={self.findings_folder}/%p", self.installation.program("postgres")]
        wrapper = self.folder / "postgres"
        wrapper.write_text(f'#!/bin/sh\nexec {shlex.join(valgrind)} "$@"\n', encoding="utf-8")
        wrapper.chmod(0o755)
        return wrapper


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("tests", nargs="*", metavar="KIND/TEST", default=TESTS)
    tests = parser.parse_args().tests
    status = 0
    with ValgrindCluster(preload=True, settings=run_sql.SETTINGS) as cluster:
        cluster.psql(f"CREATE DATABASE {run_sql.DBNAME}")
        cluster.create_herald(run_sql.DBNAME)
        for kind in run_sql.PROGRAMS:
            chosen = [name.split("/")[1] for name in tests if name.startswith(kind + "/")]
            output = TEST / "results" / f"{kind}_valgrind"
            output.mkdir(parents=True, exist_ok=True)
            if chosen:
                status |= subprocess.run(run_sql.command(kind, cluster, output, chosen)).returncode
        cluster.stop()
        print(cluster.findings(), end="")
        return 1 if status or cluster.findings() else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ClusterError, InstallationError) as problem:
        sys.exit(str(problem))
