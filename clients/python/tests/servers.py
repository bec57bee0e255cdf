"""Runs the two servers of the tests: one with pg_herald, and a stock one. Ends at the end of its input.

It is a process of its own, since the project's harness needs a newer Python than the package. It answers each line of its
input by a line: the server whose name that is restarts.
"""

import json
import sys
from pathlib import Path

top = next(folder for folder in Path(__file__).resolve().parents if (folder / "harness/tcp_cluster.py").exists())
sys.path.insert(0, str(top))
sys.dont_write_bytecode = True

from harness import cleanup  # noqa: E402
from harness.ports import LOOPBACK  # noqa: E402
from harness.tcp_cluster import TcpCluster  # noqa: E402

SETTINGS = {"autovacuum": False, "fsync": False, "max_connections": 60}

cleanup.at_end(lambda: None)  # from now on cleanup runs on SIGTERM and SIGHUP
with TcpCluster(preload=True, settings=SETTINGS) as herald, TcpCluster(settings=SETTINGS) as stock:
    clusters = {"herald": herald, "stock": stock}
    print(json.dumps({name: {"host": LOOPBACK, "port": cluster.port, "user": "postgres", "password": cluster.password}
                      for name, cluster in clusters.items()}), flush=True)
    for line in sys.stdin:
        clusters[line.strip()].restart()
        print("restarted", flush=True)
    for cluster in clusters.values():
        if cluster.damage():
            sys.exit(cluster.damage())
