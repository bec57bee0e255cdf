"""Figures of the server during a soak, and checks that nothing is left over afterwards."""

import re
from collections import Counter
from pathlib import Path

from harness.cluster import Cluster
from laggards import SIGNS_OF_A_LEAK, files
from link import Failed, Link
from support import until, watchdog_pid

LEFT_S = 60
PROBED_AT_A_TIME = 50
SHARING = 40               # sessions: more than listen on one channel at any other time
CROWD = 60                # sessions that listen together at the end
OUT_OF_MEMORY = "53200"


class Figures:
    """The maximum of each figure since the last line, and the totals for rates."""

    def __init__(self, cluster: Cluster, database: str):
        self.cluster = cluster
        self.link = Link(cluster, database)
        self.lag = self.spilled = self.files = 0

    def look(self) -> None:
        """Updates the maxima; called once a second."""
        (lag, spilled), = self.link.run(
            "SELECT max(pending_bytes), (SELECT spilled FROM herald.queue) FROM herald.listeners")
        self.lag = max(self.lag, int(lag or 0))
        self.spilled = max(self.spilled, int(spilled))
        self.files = max(self.files, len(files(self.cluster.data)))

    def line(self, pids: list[int]) -> str:
        """The maxima since the last line."""
        text = f"lag {self.lag >> 20} MB, spilled {self.spilled >> 20} MB in {self.files} files," \
               f" rss {sum(map(resident_kb, pids)) >> 10} MB in {len(pids)} backends"
        self.lag = self.spilled = self.files = 0
        return text

    def stats(self) -> dict[str, int]:
        """The counters of herald.stats."""
        names = ("notifications", "delivered", "wakeups", "signals_sent", "turns_rescued",
                 "segments_spilled", "segments_dropped", "overruns")
        (row,) = self.link.run(f"SELECT {', '.join(names)} FROM herald.stats")
        return dict(zip(names, map(int, row)))


def resident_kb(pid: int) -> int:
    """The private memory of a process; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return 0
    found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) if found else 0


def use_registry(cluster: Cluster, database: str) -> None:
    """Lets many sessions listen on the same channels, and leave, because the server's allocator keeps memory for each
    size of a list of listeners that was ever used."""
    links = [Link(cluster, database) for _ in range(SHARING)]
    for link in links:
        link.run("; ".join(f"LISTEN shared_{i}" for i in range(PROBED_AT_A_TIME)))
    for link in links:
        link.close()


def registry_room(cluster: Cluster, database: str) -> int:
    """The number of channels on which one session can listen until the registry is full."""
    link = Link(cluster, database)
    done = 0
    try:
        while True:
            link.run("; ".join(f"LISTEN probe_{done + i}" for i in range(PROBED_AT_A_TIME)))
            done += PROBED_AT_A_TIME
    except Failed as failed:
        assert failed.sqlstate == OUT_OF_MEMORY, failed
    link.run("UNLISTEN *")
    link.close()
    return done


def nothing_is_left(cluster: Cluster, watcher: Link, databases: list[str]) -> None:
    """Checks that no listener, channel, byte of the queue, file, or other connection is left."""
    connected = "SELECT count(*) FROM pg_stat_activity" \
        " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    queued = "SELECT (SELECT count(*) FROM herald.listeners), used, spilled FROM herald.queue"
    until(lambda: watcher.run(connected) == [("0",)], "all backends have gone", LEFT_S)
    until(lambda: watcher.run(queued) == [("0", "0", "0")], "nobody listens, nothing is to be read", LEFT_S)
    until(lambda: not files(cluster.data), "no file is left", LEFT_S)
    for database in databases:
        assert cluster.psql("SELECT count(*) FROM herald.channels", database) == "0"


def turns_are_all_there(cluster: Cluster, watcher: Link, database: str) -> None:
    """Checks that with one turn a crowd receives what is notified: no turn and no slot was lost."""
    watcher.run("ALTER SYSTEM SET herald.wakeup_concurrency = 1")
    watcher.run("SELECT pg_reload_conf()")
    until(lambda: watcher.run("SHOW herald.wakeup_concurrency") == [("1",)], "the setting is there")
    crowd = [Link(cluster, database) for _ in range(CROWD)]
    for link in crowd:
        link.run("LISTEN crowd")
    for number in range(5):
        watcher.run(f"NOTIFY crowd, '{number}'")
        for link in crowd:
            assert link.notifications(LEFT_S) == [("crowd", str(number))], "one did not hear"
    for link in crowd:
        link.close()


def log_is_clean(cluster: Cluster) -> str:
    """Checks that the log has no damage and nothing left open; returns a summary of the log."""
    assert not cluster.damage(), cluster.damage()
    log = cluster.log()
    leaks = [line for line in log.splitlines() if any(sign in line for sign in SIGNS_OF_A_LEAK)]
    assert not leaks, leaks[:3]
    found = Counter(re.findall(r"\] ((?:WARNING|ERROR|FATAL|PANIC):  .*)", re.sub(r"\d+", "N", log)))
    return "\n".join(f"  {count:7} {text}" for text, count in found.most_common(12))


def watched_pids(cluster: Cluster, pids: list[int]) -> list[int]:
    """These PIDs, the postmaster's and the watchdog's."""
    return [pid for pid in (*pids, cluster.postmaster_pid(), watchdog_pid(cluster)) if pid]
