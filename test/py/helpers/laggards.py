"""Listeners that fall behind, and the temporary files with their unread notifications."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import psycopg

from harness.cluster import Cluster
from support import hear, left_nothing, notify, one, until
from wire import Wire

RING_BYTES = 512 * 1024
# The smallest memory settings, and only files that are needed.
SMALLEST = {"herald.queue_memory": f"{RING_BYTES}B", "herald.channel_memory": "1MB", "herald.retain_size": 0}
KILOBYTES_7 = "x" * 7000
SEGMENT_BYTES = RING_BYTES // 8

# The log line about a listener that has missed something: its PID, and why.
LOGGED = re.compile(r"LOG:  listener with PID (\d+) has missed notifications because of (.*)")

# What the server logs when it had to close files that a transaction had forgotten.
SIGNS_OF_A_LEAK = ("temporary file leak", "resource was not closed")


def fall_behind(*listeners: psycopg.Connection | Wire, failed: bool = False) -> None:
    """Has each listen to c and stay in a transaction block, which has failed if asked for."""
    for listener in listeners:
        run = listener.query if isinstance(listener, Wire) else listener.execute
        run("LISTEN c")
        run("BEGIN")
        try:
            run("SELECT 1 / 0" if failed else "SELECT 1")
        except psycopg.errors.DivisionByZero:
            assert failed


def send(sender: psycopg.Connection, laps: float, prefix: str = "", *,
         heard_by: psycopg.Connection | None = None) -> list[str]:
    """Notifies c, each payload in a transaction of its own, `laps` rings full; returns the payloads.

    If heard_by is given, that session must receive each before the next is sent.
    """
    sent = []
    for number in range(int(laps * RING_BYTES / len(KILOBYTES_7))):
        sent.append(f"{prefix}{number} {KILOBYTES_7}")
        notify(sender, "c", sent[-1])
        if heard_by:
            assert hear(heard_by, 1) == sent[-1:]
    return sent


def large(size: int) -> str:
    """A statement that notifies c of `size` bytes in one transaction."""
    return f"SELECT count(pg_notify('c', n || '{KILOBYTES_7}')) FROM generate_series(1, {size // len(KILOBYTES_7)}) n"


def send_large(sender: psycopg.Connection, size: int) -> list[str]:
    """Notifies c of `size` bytes in one transaction; returns the payloads."""
    sender.execute(large(size))
    return [f"{n}{KILOBYTES_7}" for n in range(1, size // len(KILOBYTES_7) + 1)]


def hear_all(listener: psycopg.Connection, sent: list[str]) -> None:
    """The listener must receive these, once each and in order."""
    compare(hear(listener, len(sent)), sent)


def compare(heard: list[str], sent: list[str]) -> None:
    """If they differ, fails with a short message, not with megabytes."""
    if heard != sent:
        differ = [i for i, pair in enumerate(zip(heard, sent)) if pair[0] != pair[1]]
        place = differ[0] if differ else min(len(heard), len(sent))
        raise AssertionError(f"heard {len(heard)} of {len(sent)}; from {place} on heard"
                             f" {[word[:20] for word in heard[place:place + 3]]}, sent"
                             f" {[word[:20] for word in sent[place:place + 3]]}")


def spilled(watcher: psycopg.Connection) -> int:
    """Bytes of the queue in temporary files."""
    return one(watcher, "SELECT spilled FROM herald.queue")


def counted(watcher: psycopg.Connection) -> tuple[int, int, int]:
    """From herald.stats: segments spilled, segments dropped, listeners that were overrun."""
    return watcher.execute("SELECT segments_spilled, segments_dropped, overruns FROM herald.stats").fetchone()


def files(folder: Path) -> list[Path]:
    """The queue's temporary files in a data folder or in that of a tablespace."""
    # os.walk skips a folder that is deleted meanwhile; Path.rglob fails there.
    found = (Path(inside, name) for inside, _, names in os.walk(folder) if inside.endswith(".fileset")
             for name in names if name.startswith("herald."))
    return sorted(found, key=lambda path: int(path.suffix[1:]))


def no_files_left(cluster: Cluster, watcher: psycopg.Connection) -> None:
    """Waits until the files have been deleted, which the housekeeper does when it looks next."""
    until(lambda: spilled(watcher) == 0, "nothing is in files")
    until(lambda: files(cluster.data) == [], "the last one is deleted")  # it is deleted after it has ceased to count


def watcher_at_rest(cluster: Cluster, connect: Callable[[Cluster], psycopg.Connection]) -> psycopg.Connection:
    """A session that listens to nothing, once the previous test's listeners and files are gone; all counters are 0."""
    watcher = connect(cluster)
    until(lambda: left_nothing(watcher), "the last test's listeners are gone")
    no_files_left(cluster, watcher)
    watcher.execute("SELECT herald.reset_stats()")
    return watcher


def no_leak(cluster: Cluster) -> None:
    """Checks that the server has not found anything that was left open, or could not be deleted."""
    log = cluster.log()
    assert not [line for line in log.splitlines() if any(sign in line for sign in SIGNS_OF_A_LEAK)]


def open_spill_files(pid: int) -> list[str]:
    """Which of these files a backend has open."""
    links = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()]
    return [link for link in links if ".fileset/herald." in link]
