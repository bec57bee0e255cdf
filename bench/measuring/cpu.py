"""The CPU time of the server's processes, and of the programs that make the load.

Load and server share the machine, so a figure is the server's own limit only where the clients
took little. Times come from /proc in nanoseconds (schedstat): rounded to the clock's 10 ms in
hundreds of backends, they would lose whole seconds.
"""

import os
import time
from pathlib import Path

NANOSECONDS = 1e9
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def _thread_s(folder: Path) -> float:
    """The CPU seconds of a thread, by its folder in /proc; 0 if it is gone."""
    try:
        return int((folder / "schedstat").read_text(encoding="utf-8").split()[0]) / NANOSECONDS
    except (OSError, IndexError):
        return 0.0


def _run_s(pid: int) -> float:
    """The CPU seconds of a process of one thread; 0 if it is gone."""
    return _thread_s(Path(f"/proc/{pid}"))


def threads_s(pids: list[int]) -> float:
    """The CPU seconds of processes, all their threads together; 0 for those that are gone."""
    return sum(_thread_s(task) for pid in pids for task in Path(f"/proc/{pid}/task").glob("*"))


def _reaped_s(pid: int) -> float:
    """The CPU seconds of the children that a process has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / TICKS_PER_S


def server_processes(postmaster: int) -> list[int]:
    """The postmaster and its running child processes."""
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text(encoding="utf-8")
    return [postmaster, *map(int, children.split())]


class CpuClock:
    """Counts from its creation. The time of a backend that has ended is in the postmaster's _reaped_s()."""

    def __init__(self, postmaster: int, listen: int):
        self._postmaster = postmaster
        self._listen = listen
        self._began_s = time.monotonic()
        self._server_began_s = self._server_s()
        self._listen_began_s = _run_s(listen)

    def _server_s(self) -> float:
        running = sum(map(_run_s, server_processes(self._postmaster)))
        return running + _reaped_s(self._postmaster)

    def read(self, pgbench_s: float) -> dict[str, float]:
        """The CPU seconds since creation, and the clients' share of those used.

        pgbench_s   the CPU seconds of pgbench, measured by the caller
        """
        server_s = self._server_s() - self._server_began_s
        listen_s = _run_s(self._listen) - self._listen_began_s
        clients_s = pgbench_s + listen_s
        whole_s = (time.monotonic() - self._began_s) * (os.cpu_count() or 1)
        return {
            "cpu_server_s": round(server_s, 3),
            "cpu_pgbench_s": round(pgbench_s, 3),
            "cpu_listen_s": round(listen_s, 3),
            "cpu_client_share": clients_s / (clients_s + server_s) if server_s > 0 else 1.0,
            "cpu_used_share": (clients_s + server_s) / whole_s,
        }
