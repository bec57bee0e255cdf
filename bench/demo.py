"""The demo: the stock server and pg_herald side by side, live, in about a minute. Run by ./demo.

Both servers run all the time, but get the load in turn: under load together they would share the
CPUs, and both figures would be too low.

    demo.py start | stop

Both clusters live under .demo/ at the top of the tree; herald's is left running.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP))

from bench import demo_view  # noqa: E402
from bench.live import watch_topology  # noqa: E402
from bench.measuring import measure  # noqa: E402
from harness.cluster import Cluster, ClusterError  # noqa: E402
from harness.installation import InstallationError  # noqa: E402
from harness.listeners import ListenersError, probe  # noqa: E402

FOLDER = TOP / ".demo"
SETTINGS = {"max_connections": 300, "autovacuum": False}
DBNAME = "postgres"
TOPOLOGIES = ((1, 100), (100, 100))  # notifiers, listeners; all on one channel
LOAD_S = 5
PROBE_LISTENERS = 100
PROBE_COUNT = 75  # one every 20 ms
PROBE_ROUNDS = 3
PROBE_S = PROBE_COUNT * measure.PROBE_INTERVAL_MS / 1000


def stop() -> bool:
    """Stops and removes the clusters of an earlier demo; returns whether there were any."""
    found = False
    for name in ("stock", "herald"):
        cluster = Cluster.attach(FOLDER / name)
        if cluster:
            cluster.remove()
            found = True
    shutil.rmtree(FOLDER, ignore_errors=True)
    return found


def show(view, clusters: dict[str, Cluster]) -> dict[str, dict]:
    """Runs every topology and the latency probe, with stock and herald in turn."""
    results = {side: {"loads": {}, "probes": []} for side in clusters}
    for topology in TOPOLOGIES:
        for side, cluster in clusters.items():
            view.begin(side, demo_view.topology_name(topology), LOAD_S)
            result = watch_topology(cluster, LOAD_S, notifiers=topology[0], listeners=topology[1],
                                    dbname=DBNAME, on_tick=view.tick)
            view.end(result)
            results[side]["loads"][topology] = result
    for _ in range(PROBE_ROUNDS):
        for side, cluster in clusters.items():
            view.begin(side, demo_view.probe_name(PROBE_LISTENERS), PROBE_S)
            probes = results[side]["probes"]
            probes.append(probe(cluster, PROBE_LISTENERS, PROBE_COUNT, dbname=DBNAME,
                                interval_ms=measure.PROBE_INTERVAL_MS))
            view.end_probe(probes)
    return results


def print_hints(view, herald: Cluster) -> None:
    """Prints how to try pg_herald by hand, and how to stop the server."""
    sudo = "sudo " if os.geteuid() == 0 and os.environ.get("SUDO_USER") else ""
    view.print_lines([
        "",
        "The server with pg_herald goes on running. Try it, in two terminals:",
        "",
        f"  {sudo}psql -h {herald.socket_folder} -p {herald.port} -U postgres",
        "",
        "  first:   LISTEN news;",
        "  second:  NOTIFY news, 'hello';",
        "  first:   SELECT 1;      -- psql shows what came with the next command",
        "  either:  SELECT notifications, delivered FROM herald.stats;",
        "",
        "Stop it and remove it:  ./demo stop",
        "",
    ])


def what_stays() -> None:
    """Prints what the demo leaves on the machine."""
    sys.stdout.flush()
    subprocess.run([TOP / "scripts/what-stays"], check=False)


def start() -> None:
    """The whole demo. Any failure or interrupt removes both clusters."""
    stop()
    FOLDER.mkdir()
    (FOLDER / ".gitignore").write_text("*\n", encoding="utf-8")
    try:
        with Cluster(FOLDER / "herald", preload=True, settings=SETTINGS) as herald:
            with Cluster(FOLDER / "stock", settings=SETTINGS) as stock:
                herald.create_herald(DBNAME)
                seconds = 2 * (len(TOPOLOGIES) * LOAD_S + PROBE_ROUNDS * PROBE_S)
                with demo_view.open_view(seconds, herald.installation.version) as view:
                    results = show(view, {"stock": stock, "herald": herald})
                view.closing_table(results)
            print_hints(view, herald)
            herald.leave_running()
        what_stays()
    except BaseException:
        shutil.rmtree(FOLDER, ignore_errors=True)
        raise


def main() -> int:
    command = sys.argv[1] if len(sys.argv) == 2 else ""
    if command == "stop":
        print("stopped and removed" if stop() else "nothing to stop")
        what_stays()
        return 0
    if command != "start":
        print(__doc__, file=sys.stderr)
        return 2
    try:
        start()
    except KeyboardInterrupt:
        print("interrupted; everything is stopped", file=sys.stderr)
        return 130
    except (measure.MeasureError, ClusterError, ListenersError, InstallationError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
