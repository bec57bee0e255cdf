"""What an administrator can see: which listeners lag, by how much and since when; what a backend waits for. Also
checks docs/troubleshooting.md."""

import os
import re
import signal
from datetime import datetime, timezone
from itertools import pairwise

import psycopg
import pytest

from harness.prefix import TOP
from laggards import RING_BYTES, SEGMENT_BYTES, SMALLEST, fall_behind, hear_all, send
from servers import SETTINGS, started
from slow_commits import SLOW
from support import hear, left_nothing, let_watchdog_fall_asleep, notify, one, until, wait_event, watchdog_pid
from wire import cstring, payloads

MEGABYTE = 1024 * 1024
LIMIT_BYTES = MEGABYTE  # herald.log_min_lag
LAPS = 1.2 * LIMIT_BYTES / RING_BYTES  # the number of rings to send, to exceed the limit
SEGMENTS = RING_BYTES // SEGMENT_BYTES
TROUBLESHOOTING = TOP / "docs/troubleshooting.md"

LOGGED = re.compile(r"""LOG:  listener with PID (?P<pid>\d+) is (?P<kilobytes>\d+) kB of notifications behind
.* DETAIL:  Application "(?P<application>.*)" has not read notifications committed since (?P<since>.*)\+00\. (?P<why>.*)
.* HINT:  (?P<hint>.*)""")

IN_A_TRANSACTION = ("The session is in a transaction.", "It reads when the transaction ends."
                    " A listening session should not stay in a transaction.")
NO_PROGRESS = ("The session makes no progress.", "Its client may not be reading from the connection."
               " Check the client, or end the session with pg_terminate_backend().")


@pytest.fixture(scope="module")
def watched():
    """A small queue, and a low limit; commits can hang."""
    yield from started(preload=True, settings=SETTINGS | SMALLEST | SLOW | {
        "herald.log_min_lag": f"{LIMIT_BYTES}B", "timezone": "UTC", "log_timezone": "UTC"})


@pytest.fixture
def watcher(watched, connect):
    """A session that does not listen. When the test begins, no session does."""
    watcher = connect(watched)
    until(lambda: left_nothing(watcher), "the last test's listeners are gone")
    return watcher


@pytest.fixture
def logged(watched):
    """logged() returns the log entries about laggards since the test began."""
    before = len(watched.log())
    return lambda: [match.groupdict() for match in LOGGED.finditer(watched.log()[before:])]


def behind(watcher: psycopg.Connection, pid: int) -> int:
    """How far the listener is behind, in bytes."""
    return one(watcher, "SELECT pending_bytes FROM herald.listeners WHERE pid = %s", pid)


def lagging_since(watcher: psycopg.Connection, pid: int) -> datetime | None:
    """Since when the listener lags."""
    return one(watcher, "SELECT lagging_since FROM herald.listeners WHERE pid = %s", pid)


# ---- laggards ----

def test_laggard_is_logged_once(watched, connect, watcher, logged):
    """Guards: a listener beyond herald.log_min_lag is logged, once, with its PID, how far behind it is, since when and
    why; the view shows the same. A listener that keeps up is not logged; one that falls behind again is, again."""
    laggard, listener, sender = (connect(watched, application_name=name)
                                 for name in ("slow worker", "fast worker", "sender"))
    listener.execute("LISTEN c")
    pid = laggard.info.backend_pid
    for times in (1, 2):
        fall_behind(laggard)
        began = datetime.now(timezone.utc)
        sent = send(sender, LAPS, heard_by=listener)
        until(lambda: lagging_since(watcher, pid), "it is seen")
        line = until(lambda: of(pid, logged())[times - 1:], "it is logged")[0]
        assert line["application"] == "slow worker"
        assert LIMIT_BYTES < int(line["kilobytes"]) * 1024 <= behind(watcher, pid)
        assert (line["why"], line["hint"]) == IN_A_TRANSACTION

        since = datetime.strptime(line["since"], "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=timezone.utc)
        assert abs((lagging_since(watcher, pid) - since).total_seconds()) < 0.001
        assert began <= lagging_since(watcher, pid) < datetime.now(timezone.utc)
        assert one(watcher, "SELECT lagging_since + pending_age BETWEEN statement_timestamp() - interval '0.1 s'"
                   " AND clock_timestamp() + interval '0.1 s'"
                   " FROM herald.listeners WHERE pid = %s", pid), "it is of the first that it has not read"
        assert lagging_since(watcher, listener.info.backend_pid) is None

        sent += send(sender, LAPS, heard_by=listener)
        marker(watched, connect, sender, logged)
        assert len(of(pid, logged())) == times and not of(listener.info.backend_pid, logged())
        laggard.execute("COMMIT")
        hear_all(laggard, sent)
        until(lambda: behind(watcher, pid) == 0 and not lagging_since(watcher, pid), "it has caught up")


def of(pid: int, lines: list[dict[str, str]]) -> list[dict[str, str]]:
    """The lines about this listener."""
    return [line for line in lines if int(line["pid"]) == pid]


def marker(cluster, connect, sender, logged) -> None:
    """Lets another listener fall behind, until it is logged: by then earlier laggards would have been logged, too."""
    other = connect(cluster)
    for sql in ("LISTEN marker", "BEGIN", "SELECT 1"):
        other.execute(sql)
    for _ in range(int(LAPS * RING_BYTES / 7000)):
        notify(sender, "marker", "x" * 7000)
    until(lambda: of(other.info.backend_pid, logged()), "the other one is logged")
    other.close()


def test_client_that_does_not_read_is_shown(watched, connect, wire, watcher, logged):
    """Guards: the log distinguishes a client that does not read from a listener in a transaction."""
    mute, sender = wire(watched, application_name="mute"), connect(watched)
    mute.query("LISTEN c")
    sent = send(sender, 1)
    until(lambda: wait_event(watcher, mute.pid) == "ClientWrite", "it is blocked")
    sent += send(sender, LAPS + 1)
    line = until(logged, "it is logged")[0]
    assert (int(line["pid"]), line["application"]) == (mute.pid, "mute")
    assert (line["why"], line["hint"]) == NO_PROGRESS
    heard = []
    while len(heard) < len(sent):
        heard += payloads([mute.receive()])
    assert heard == sent


def test_hovering_about_the_limit(watched, connect, wire, watcher, logged):
    """Guards: a listener that catches up a little, and falls behind again, is logged once."""
    mute, sender = wire(watched), connect(watched)
    mute.query("LISTEN c")
    sent = send(sender, LAPS + 1)
    since = until(lambda: lagging_since(watcher, mute.pid), "it lags")
    heard = []
    while behind(watcher, mute.pid) > LIMIT_BYTES * 0.9:
        heard += payloads([mute.receive()])
    assert behind(watcher, mute.pid) > LIMIT_BYTES / 2
    while behind(watcher, mute.pid) < LIMIT_BYTES * 1.2:
        sent += send(sender, 0.05)
    marker(watched, connect, sender, logged)
    assert lagging_since(watcher, mute.pid) == since
    assert len(of(mute.pid, logged())) == 1
    while len(heard) < len(sent):
        heard += payloads([mute.receive()])
    assert heard == sent


def test_laggard_that_goes(watched, connect, watcher, logged):
    """Guards: if a listener ends while it lags, the next one that uses its slot does not lag."""
    for times in (1, 2, 3):
        laggard, sender = connect(watched), connect(watched)
        fall_behind(laggard)
        assert lagging_since(watcher, laggard.info.backend_pid) is None
        send(sender, LAPS)
        until(lambda: lagging_since(watcher, laggard.info.backend_pid), "it lags")
        until(lambda: of(laggard.info.backend_pid, logged()), "it is logged")
        assert len(logged()) == times
        laggard.close()
        until(lambda: left_nothing(watcher), "it is gone")
        sender.close()


def test_watchdog_that_goes(watched, connect, watcher, logged):
    """Guards: a new watchdog does not log again what its predecessor has logged."""
    laggard, sender = connect(watched), connect(watched)
    fall_behind(laggard)
    send(sender, LAPS)
    until(logged, "it is logged")
    before = watchdog_pid(watched)
    assert one(watcher, "SELECT herald.watchdog_pid()") == before
    os.kill(before, signal.SIGTERM)
    until(lambda: one(watcher, "SELECT herald.watchdog_pid()") not in (None, before), "there is a new one")
    assert one(watcher, "SELECT herald.watchdog_pid()") == watchdog_pid(watched)
    marker(watched, connect, sender, logged)
    assert len(of(laggard.info.backend_pid, logged())) == 1


def test_watchdog_that_sleeps(watched, connect, watcher, logged):
    """Guards: a watchdog that sleeps, since no listener has a turn, is woken up when a listener falls behind."""
    laggard, sender = connect(watched), connect(watched)
    fall_behind(laggard)
    is_told = let_watchdog_fall_asleep(watched)
    send(sender, LAPS)
    until(logged, "it is logged")
    assert is_told(), "it looked when its time was over"


def test_large_transaction_counts(watched, connect, watcher, logged):
    """Guards: a large transaction's notifications in a file count as lag, in the views and in the log."""
    laggard, sender = connect(watched), connect(watched)
    fall_behind(laggard)
    pid = laggard.info.backend_pid
    usage_before = one(watcher, "SELECT usage FROM herald.queue")
    sender.execute("SELECT count(pg_notify('c', n || repeat('x', 7000))) FROM generate_series(1, 300) n")
    assert behind(watcher, pid) > 300 * 7000
    used, usage = watcher.execute("SELECT used, usage FROM herald.queue").fetchone()
    assert used > 300 * 7000 and usage > usage_before
    line = until(logged, "it is logged")[0]
    assert int(line["pid"]) == pid and int(line["kilobytes"]) * 1024 > 300 * 7000 - 1024
    laggard.execute("COMMIT")
    assert len(hear(laggard, 300)) == 300
    until(lambda: one(watcher, "SELECT used FROM herald.queue") == 0, "the file is deleted")


def test_log_lag_takes_effect(watched, connect, watcher, logged):
    """Guards: -1 disables the log, and listeners are not marked as lagging either; a new limit applies from the reload
    on, also to a listener that is already behind."""
    def limit(value: str) -> None:
        watcher.execute(f"ALTER SYSTEM SET herald.log_min_lag = '{value}'")
        watcher.execute("SELECT pg_reload_conf()")

    laggard, listener, sender = connect(watched), connect(watched), connect(watched)
    pid = laggard.info.backend_pid
    listener.execute("LISTEN d")
    watcher.execute("ALTER SYSTEM RESET herald.log_min_lag")
    try:
        fall_behind(laggard)
        send(sender, LAPS)
        until(logged, "it is logged")
        limit("-1")
        until(lambda: lagging_since(watcher, pid) is None, "it is not looked at any more")
        limit("100kB")
        until(lambda: len(logged()) == 2, "it is logged anew")
        assert lagging_since(watcher, pid) is not None
        limit("1GB")
        until(lambda: lagging_since(watcher, pid) is None, "that is no lag now")
        assert len(logged()) == 2
    finally:
        watcher.execute("ALTER SYSTEM RESET herald.log_min_lag")
        watcher.execute("SELECT pg_reload_conf()")


# ---- what a backend waits for ----

def event(watcher: psycopg.Connection, pid: int) -> tuple[str, str]:
    """Type and name of the backend's wait event."""
    return watcher.execute("SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE pid = %s",
                           (pid,)).fetchone()


def ours(watcher: psycopg.Connection, name: str) -> tuple[str, str]:
    """One of our wait events, as this server shows it: custom names exist from 17 on."""
    return "Extension", name if watcher.info.server_version >= 170000 else "Extension"


def test_waits_behind_a_commit(watched, connect, wire, watcher):
    """Guards: pg_stat_activity shows that a session waits for its own notification, behind a slow commit."""
    watcher.execute("CREATE TABLE IF NOT EXISTS written (number integer)")
    first, second = wire(watched, synchronous_commit="on"), wire(watched)
    second.query("LISTEN c")
    first.send(("Q", cstring("INSERT INTO written VALUES (1); NOTIFY c, 'first'")))
    until(lambda: event(watcher, first.pid) == ("IPC", "SyncRep"), "the commit hangs")
    second.send(("Q", cstring("NOTIFY c, 'second'")))
    until(lambda: event(watcher, second.pid) == ours(watcher, "HeraldDispatch"), "it waits")
    watcher.execute("SELECT pg_cancel_backend(%s)", (first.pid,))
    assert payloads(second.until_ready()) == ["first", "second"]
    first.until_ready()


def test_waits_for_room(watched, connect, wire, watcher):
    """Guards: pg_stat_activity shows that a sender waits, because the queue is full behind a commit that hangs."""
    watcher.execute("CREATE TABLE IF NOT EXISTS written (number integer)")
    first, sender = wire(watched, synchronous_commit="on"), wire(watched)
    first.send(("Q", cstring("INSERT INTO written VALUES (1); NOTIFY c, 'first'")))
    until(lambda: event(watcher, first.pid) == ("IPC", "SyncRep"), "the commit hangs")
    segment_full = "SELECT count(pg_notify('c', n || repeat('x', 7000))) FROM generate_series(1, 8) n"
    for _ in range(SEGMENTS + 1):
        sender.send(("Q", cstring(segment_full)))
    until(lambda: event(watcher, sender.pid) == ours(watcher, "HeraldDispatch"), "it waits")
    watcher.execute("SELECT pg_cancel_backend(%s)", (first.pid,))
    first.until_ready()
    for _ in range(SEGMENTS + 1):
        sender.until_ready()


def documented_waits() -> set[str]:
    """The names of the wait events that docs/troubleshooting.md explains."""
    return set(re.findall(r"^\| `(Herald\w+)` \|", TROUBLESHOOTING.read_text(encoding="utf-8"), re.MULTILINE))


def test_wait_events_are_documented(watched, watcher):
    """Guards: docs/troubleshooting.md explains each wait event; from 17 on, the server lists the same ones."""
    source = TROUBLESHOOTING.parent.parent / "src/base/waits.c"
    names = set(re.findall(r'"(Herald\w+)"', source.read_text(encoding="utf-8")))
    assert documented_waits() == names
    if watcher.info.server_version >= 170000:
        known = watcher.execute("SELECT name FROM pg_wait_events WHERE name LIKE 'Herald%'").fetchall()
        assert {name for name, in known} == names


# ---- docs/troubleshooting.md ----

def queries() -> list[str]:
    """The statements of the page's SQL blocks: each ends with a semicolon at the end of a line."""
    blocks = re.findall(r"^```sql\n(.*?)^```", TROUBLESHOOTING.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [sql for block in blocks for sql in re.split(r"(?<=;)\n", block) if sql.strip()]


def test_queries_of_the_troubleshooting_page(watched, connect, watcher):
    """Guards: each query on docs/troubleshooting.md runs, also while a listener lags."""
    laggard, sender = connect(watched), connect(watched)
    fall_behind(laggard)
    send(sender, LAPS)
    assert len(queries()) > 5
    for sql in queries():
        watcher.execute("BEGIN")
        try:
            watcher.execute(sql)
        finally:
            watcher.execute("ROLLBACK")
