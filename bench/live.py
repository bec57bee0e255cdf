"""Watches one topology under load while it runs; for the demo."""

import re
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.measuring import measure
from harness.cluster import Cluster
from harness.listeners import Listeners

TICK_S = 0.1
RATE_WINDOW_S = 1.0  # heard_per_s is the average over this time


@dataclass(frozen=True)
class Snapshot:
    """Progress of a running load."""

    elapsed_s: float
    notified_per_s: float | None  # pgbench's last report, one a second; None in the first second
    heard: int  # over all listeners
    heard_per_s: float


class _Pgbench:
    """A pgbench that runs in the background; `output` grows as it prints."""

    def __init__(self, cluster: Cluster, dbname: str, arguments: list[str]):
        self.output = ""
        self.process = subprocess.Popen([cluster.installation.program("pgbench"), "-P", "1", *arguments],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True,
                                        env=cluster.environment(dbname))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.output += line

    def tps(self) -> float | None:
        """The rate in the newest progress line, if there is one."""
        lines = re.findall(r"progress: [\d.]+ s, ([\d.]+) tps", self.output)
        return float(lines[-1]) if lines else None

    def running(self) -> bool:
        return self._reader.is_alive()

    def end(self) -> None:
        """Kills it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()


def watch_topology(cluster: Cluster, seconds: float, *, notifiers: int, listeners: int,
                   dbname: str, on_tick: Callable[[Snapshot], None]) -> dict:
    """Like measure.topology() on one channel, but calls on_tick ten times a second."""
    arguments = measure.pgbench_arguments(notifiers, *measure.script_load("notify_channel_1", seconds))
    with Listeners(cluster, listeners, dbname=dbname) as held:
        load = _Pgbench(cluster, dbname, arguments)
        try:
            begin = time.monotonic()
            history = [(0.0, 0)]
            while load.running():
                time.sleep(TICK_S)
                elapsed_s = time.monotonic() - begin
                heard = held.count()["notifications"]
                history.append((elapsed_s, heard))
                while len(history) > 2 and elapsed_s - history[0][0] > RATE_WINDOW_S:
                    history.pop(0)
                since_s, before = history[0]
                on_tick(Snapshot(elapsed_s, load.tps(), heard, (heard - before) / (elapsed_s - since_s)))
        finally:
            load.end()
        if load.process.returncode != 0:
            raise measure.MeasureError(f"pgbench failed:\n{load.output}")
        return measure.sustained(held, measure.parse_pgbench(load.output), listeners)
