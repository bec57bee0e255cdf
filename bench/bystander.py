#!/usr/bin/env python3
"""Counts the instructions that pg_herald adds to transactions that have nothing to do with it.

  bench/bystander.py [--pg-config PG_CONFIG]

A server in single-user mode runs a number of transactions, and then twice as many, each under callgrind: the
difference, divided by their number, is what one takes. Instructions are the same in each run, whatever else the machine does.
Needs valgrind. Prints a table: each statement, with the module not loaded; loaded, in a database without the
extension; with it; and with logged channels. Takes some minutes.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness import server_user  # noqa: E402
from harness.cluster import Cluster  # noqa: E402
from harness.prefix import Prefix  # noqa: E402

COUNT = 1000
STATEMENTS = {
    "SELECT 1": "SELECT 1;",
    "INSERT of a row": "INSERT INTO t VALUES (1);",
}
STATES = {
    "not loaded": (False, ""),
    "loaded": (True, ""),
    "with the extension": (True, "CREATE EXTENSION pg_herald"),
    "with logged channels": (True, "CREATE EXTENSION pg_herald; SELECT herald.set_channel('orders', true)"),
}


def count(cluster: Cluster, loaded: bool, statement: str, number: int) -> int:
    """The instructions of a server that executes a statement this many times."""
    out = Path(tempfile.mkdtemp(prefix="bystander-", dir=cluster.folder)) / "out"
    server_user.give(out.parent)
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--quiet",
               str(cluster.installation.program("postgres")), "--single", "-D", str(cluster.data), "-c", "fsync=off",
               "-c", "jit=off", "-c", f"shared_preload_libraries={'pg_herald' if loaded else ''}", "postgres"]
    # Each statement is a transaction; its tag, and a first one of each kind, are in both counts.
    subprocess.run(command, input=f"{statement}\n" * number, text=True, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, cwd="/", **server_user.identity())
    return int(re.search(r"^(?:summary|totals): (\d+)", out.read_text(encoding="utf-8"), re.MULTILINE)[1])


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pg-config")
    arguments = parser.parse_args()
    print("| statement | " + " | ".join(STATES) + " |\n|---|" + "---:|" * len(STATES))
    with Prefix(arguments.pg_config) as prefix:
        prefix.install()
        rows: dict[str, list[int]] = {name: [] for name in STATEMENTS}
        for loaded, preparation in STATES.values():
            with Cluster(pg_config=prefix.pg_config, preload=True) as cluster:
                cluster.psql("CREATE TABLE t (i int)")
                if preparation:
                    cluster.psql(preparation)
                cluster.stop()
                for name, statement in STATEMENTS.items():
                    once, twice = (count(cluster, loaded, statement, number) for number in (COUNT, 2 * COUNT))
                    rows[name].append((twice - once) // COUNT)
    for name, counts in rows.items():
        print(f"| {name} | {counts[0]:,} | " + " | ".join(f"+{counted - counts[0]:,}" for counted in counts[1:]) + " |")


if __name__ == "__main__":
    main()
