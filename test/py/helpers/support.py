"""What the tests share: waiting, receiving, and signals to backends."""

import os
import platform
import re
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakKeyDictionary

import psycopg
import pytest

from harness.cluster import Cluster, stop_process

DEADLINE_S = 20

# The numbers of epoll_wait(), epoll_pwait(), select(), pselect(), nanosleep() and clock_nanosleep(), where they exist.
SLEEPS = {"x86_64": {"232", "281", "23", "270", "35", "230"}, "aarch64": {"22", "72", "101", "115"}}


def until(condition: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> object:
    """Calls `condition` until it is true, and returns what it returned; fails at the deadline."""
    end = time.monotonic() + deadline_s
    while not (result := condition()):
        assert time.monotonic() < end, f"not within {deadline_s} s: {what}"
        time.sleep(0.005)
    return result


def one(connection: psycopg.Connection, sql: str, *parameters: object) -> object:
    """The only column of the only row of a result."""
    (value,), = connection.execute(sql, parameters or None).fetchall()
    return value


def outcome(connection: psycopg.Connection, sql: str, *parameters: object) -> object:
    """The outcome of a statement: its rows, None if it has none, or its error as "SQLSTATE: message"."""
    try:
        cursor = connection.execute(sql, parameters or None)
        return cursor.fetchall() if cursor.description else None
    except psycopg.Error as error:
        return f"{error.sqlstate}: {error.diag.message_primary}"


# Payloads that psycopg returned beyond the requested number: it returns all that one packet held.
_surplus: WeakKeyDictionary[psycopg.Connection, list[str]] = WeakKeyDictionary()


def hear(connection: psycopg.Connection, count: int, deadline_s: float = DEADLINE_S) -> list[str]:
    """The next `count` payloads, without running any statement; fewer if none comes for as long as the deadline says."""
    heard = _surplus.pop(connection, [])
    while len(heard) < count and (got := [n.payload for n in connection.notifies(timeout=deadline_s, stop_after=1)]):
        heard += got
    _surplus[connection] = heard[count:]
    return heard[:count]


def hear_until(connection: psycopg.Connection, last: str) -> list[str]:
    """The payloads before `last`, which must come."""
    heard = []
    while True:
        got = hear(connection, 1)
        assert got, f"{last!r} did not come; heard {[word[:40] for word in heard[-5:]]}"
        if got == [last]:
            return heard
        heard += got


def reset(connection: psycopg.Connection, setting: str) -> None:
    """Resets a timeout, which may cancel the RESET itself: tries until it succeeds."""
    until(lambda: outcome(connection, f"RESET {setting}") is None, f"{setting} is reset")


def notify(connection: psycopg.Connection, channel: str, *payloads: str) -> None:
    """Notifies a channel, each payload in a transaction of its own."""
    for payload in payloads:
        connection.execute("SELECT pg_notify(%s, %s)", (channel, payload))


def state_of(watcher: psycopg.Connection, pid: int) -> str | None:
    """A listener's state, or None if the process is no listener."""
    row = watcher.execute("SELECT state FROM herald.listeners WHERE pid = %s", (pid,)).fetchone()
    return row and row[0]


def wait_event(watcher: psycopg.Connection, pid: int) -> str | None:
    """What a backend waits for."""
    return one(watcher, "SELECT wait_event FROM pg_stat_activity WHERE pid = %s", pid)


def until_gone(watcher: psycopg.Connection, pid: int) -> None:
    """Waits until a session has ended."""
    until(lambda: not one(watcher, "SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid), "it has gone")


@contextmanager
def stopped(pid: int):
    """Within the block, the backend does not run at all: it keeps what it is given."""
    stop_process(pid)
    try:
        yield
    finally:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


def left_nothing(watcher: psycopg.Connection) -> bool:
    """Whether no session listens, and nothing waits to be read."""
    return watcher.execute("SELECT (SELECT count(*) FROM herald.listeners),"
                           " (SELECT count(*) FROM herald.channels),"
                           " (SELECT used FROM herald.queue)").fetchone() == (0, 0, 0)


@contextmanager
def load(cluster: Cluster, script: str, clients: int, *options: str):
    """Within the block, pgbench's clients run the script in a loop; yields its process."""
    running = subprocess.Popen(
        [cluster.installation.program("pgbench"), "-n", f"-c{clients}", "-T600", *options, "-f", "/dev/stdin"],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=cluster.environment())
    try:
        running.stdin.write(script.encode() + b"\n")
        running.stdin.close()
        yield running
        assert running.poll() is None, "the load ended by itself"
    finally:
        running.kill()
        running.wait()


def watchdog_pid(cluster: Cluster) -> int | None:
    """The pid of the watchdog; None: there is none."""
    return _worker_pid(cluster, b"pg_herald watchdog")


def housekeeper_pid(cluster: Cluster) -> int | None:
    """The pid of the housekeeper; None: there is none."""
    return _worker_pid(cluster, b"pg_herald housekeeper")


def _worker_pid(cluster: Cluster, name: bytes) -> int | None:
    """The workers are in no view of the server: they are connected to no database."""
    postmaster = cluster.postmaster_pid()
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text(encoding="ascii")
    for pid in children.split():
        try:
            if name in Path(f"/proc/{pid}/cmdline").read_bytes():
                return int(pid)
        except FileNotFoundError:
            pass
    return None


@contextmanager
def watchdog_stopped(cluster: Cluster):
    """Within the block, the watchdog does not run. It is stopped in its sleep: at work it holds what others need."""
    pid = watchdog_pid(cluster)

    def stop() -> bool:
        stop_process(pid)
        if _sleeps(pid):
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    try:
        until(stop, "the watchdog is stopped while it sleeps")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _sleeps(pid: int) -> bool:
    """Whether a stopped process is in a sleep. True as well if the kernel does not show that."""
    try:
        call = Path(f"/proc/{pid}/syscall").read_text(encoding="ascii").split()[0]
    except (FileNotFoundError, PermissionError):
        return True
    return call in SLEEPS.get(platform.machine(), {call})


def until_crashed(watcher: psycopg.Connection) -> None:
    """Waits until the server has ended this session with all others, as it does when one process was killed."""
    with pytest.raises(psycopg.OperationalError):
        until(lambda: watcher.execute("SELECT pg_sleep(0.01)") and False, "the server crashes")


def reconnect(cluster: Cluster, connect: Callable) -> psycopg.Connection:
    """Connects as soon as the server accepts connections."""
    def attempt():
        try:
            return connect(cluster)
        except psycopg.OperationalError:
            return None
    return until(attempt, "the server takes connections")


def works_from_the_start(cluster: Cluster, connect: Callable) -> None:
    """Checks that nothing is left from before the server's crash or restart, and that notifications arrive."""
    watcher, listener = reconnect(cluster, connect), reconnect(cluster, connect)
    assert left_nothing(watcher)
    assert watcher.execute("SELECT notifications, delivered, head = dispatched"
                           " FROM herald.stats, herald.queue").fetchone() == (0, 0, True)
    listener.execute("LISTEN c")
    notify(watcher, "c", "1", "2")
    assert hear(listener, 2) == ["1", "2"]
    until(lambda: watchdog_pid(cluster), "the watchdog runs")


def cpu_s(pid: int) -> float:
    """Seconds of CPU time that the process has used."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9


def read_bytes(pid: int) -> int | None:
    """How much the process has read from files and sockets so far, or None if it has ended."""
    return _counted_by_kernel(pid, "rchar")


def reads(pid: int) -> int | None:
    """How often the process has read from files and sockets so far, or None if it has ended."""
    return _counted_by_kernel(pid, "syscr")


def _counted_by_kernel(pid: int, what: str) -> int | None:
    try:
        io = Path(f"/proc/{pid}/io").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(re.search(rf"^{what}: (\d+)", io, re.MULTILINE)[1])


def context_switches(pid: int) -> int:
    """How often the process has gone to sleep."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", status, re.MULTILINE)[1])


def let_watchdog_fall_asleep(cluster: Cluster) -> Callable[[], bool]:
    """Waits until the watchdog has slept for a while. Returns a function: whether it has been signalled to wake up since
    then.

    A process that is signalled reads that from its signalfd; one that wakes because its time is over reads nothing.
    """
    pid = until(lambda: watchdog_pid(cluster), "there is a watchdog")
    since, before = time.monotonic(), context_switches(pid)

    def sleeps() -> bool:
        nonlocal since, before
        # A process that waits for the CPU does not switch, either.
        if (now := context_switches(pid)) != before or ") S " not in Path(f"/proc/{pid}/stat").read_text(encoding="ascii"):
            since, before = time.monotonic(), now
        return time.monotonic() - since > 0.3

    until(sleeps, "the watchdog sleeps")
    so_far = reads(pid)
    return lambda: reads(pid) > so_far
