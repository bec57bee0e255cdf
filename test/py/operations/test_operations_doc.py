"""The commands in docs/operations.md work. Its SQL blocks run unchanged, in order, in psql; together with those of
docs/removing.md they lead from a stock server back to one. The alert query reports problems, and nothing else. The
quick start of README.md works."""

import re
import threading
from pathlib import Path

import psycopg
import pytest

from harness.cluster import Cluster
from harness.prefix import TOP
from laggards import SMALLEST, fall_behind, send_large
from servers import SETTINGS, started
from slow_commits import SLOW
from support import hear, one, until

PAGE = TOP / "docs/operations.md"
MEGABYTE = 1024 * 1024
BLOCK = re.compile(r"^```sql\n(?P<sql>.*?)^```\n(?:```\n(?P<shown>.*?)^```\n)?", re.MULTILINE | re.DOTALL)
WITH_A_RESTART = re.compile(r"^ALTER SYSTEM (?:SET|RESET) shared_preload_libraries", re.MULTILINE)
ALERTS = re.compile(r"^SELECT 'no watchdog'.*?;$", re.MULTILINE | re.DOTALL)
STOCKS_LOCK = "SELECT count(*) FROM pg_locks WHERE database = 0 AND classid = 1262 AND objid = 0 AND granted"


@pytest.fixture(scope="module")
def limited():
    """A server with a queue of 120 MB, and commits that can hang."""
    yield from started(preload=True, settings=SETTINGS | SMALLEST | SLOW | {
        "herald.max_queue_size": "120MB"})


def blocks(page: Path = PAGE) -> list[re.Match]:
    """A page's SQL blocks, each with the output that the page shows, if any."""
    return list(BLOCK.finditer(page.read_text(encoding="utf-8")))


def alerts(session: psycopg.Connection) -> set[str]:
    """The alerts that the page's query reports."""
    return {alert for alert, _ in session.execute(ALERTS.search(PAGE.read_text(encoding="utf-8"))[0]).fetchall()}


def lines(text: str) -> list[str]:
    """The lines without the trailing blanks that psql prints, and with the same PID in all."""
    return [re.sub(r"PID \d+", "PID 1", line.rstrip()) for line in text.rstrip().split("\n")]


def run(cluster: Cluster, block: re.Match) -> None:
    """Runs a block in psql, which must print what the page shows."""
    printed = cluster.client("psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-f", "-", stdin=block["sql"])
    if block["shown"]:
        assert lines(printed) == lines(block["shown"]), block["sql"]


def herald_is_gone(cluster: Cluster) -> bool:
    """Whether the module, its schema and all its settings are gone."""
    return cluster.psql("""SELECT current_setting('shared_preload_libraries') = '' AND to_regnamespace('herald') IS NULL
        AND NOT EXISTS (SELECT FROM pg_settings WHERE name ~ '^herald(_cache)?[.]')
        AND NOT EXISTS (SELECT FROM pg_db_role_setting WHERE setconfig::text LIKE '%herald%')""") == "t"


def test_blocks_of_the_operations_page():
    """Guards: every SQL block of the page runs without an error and prints what the page shows; after the blocks of
    the page on removal the server has no pg_herald."""
    with Cluster(settings={"fsync": False, "autovacuum": False}) as cluster:
        assert herald_is_gone(cluster)
        restarts = 0
        steps = [*blocks(), *blocks(TOP / "docs/removing.md")]
        for block in steps:
            run(cluster, block)
            if WITH_A_RESTART.search(block["sql"]):
                cluster.restart()
                restarts += 1
        assert len(steps) > 12 and restarts == 2
        assert herald_is_gone(cluster)
        assert not (cluster.data / "postgresql.auto.conf").read_text(encoding="utf-8").count("herald")
        assert not cluster.damage(), cluster.damage()


def test_quick_start():
    """Guards: the four statements of README.md print what it shows, in a database without the extension."""
    quick_start, = blocks(TOP / "README.md")
    with Cluster(preload=True, settings={"fsync": False, "autovacuum": False}) as cluster:
        run(cluster, quick_start)


def test_alerts_of_laggards(limited, connect):
    """Guards: no alert while all is well; a laggard, and the queue that it fills, are reported until it has read."""
    limited.psql("CREATE ROLE watch LOGIN; GRANT pg_monitor TO watch")
    watch, laggard, sender = connect(limited), connect(limited, application_name="report worker"), connect(limited)
    watch.execute("SET ROLE watch")
    assert alerts(watch) == set()
    fall_behind(laggard)
    sent = send_large(sender, 35 * MEGABYTE) + send_large(sender, 35 * MEGABYTE)
    until(lambda: alerts(watch) == {"queue filling up", "laggard"}, "the laggard is found")
    laggard.execute("COMMIT")
    assert len(hear(laggard, len(sent))) == len(sent)
    until(lambda: alerts(watch) == set(), "all is well again")


def test_alert_of_the_servers_own_lock(limited, connect):
    """Guards: sessions that wait for the lock of the server's own NOTIFY are reported."""
    watch, first, second = connect(limited), connect(limited), connect(limited)
    for session in (first, second):
        session.execute("SET herald.enabled = off")
    watch.execute("CREATE TABLE written (number integer)")
    first.execute("SET synchronous_commit = on")  # the commit waits for a standby that does not exist
    waiting = [threading.Thread(target=session.execute, args=("INSERT INTO written VALUES (1); NOTIFY c",))
               for session in (first, second)]
    waiting[0].start()
    until(lambda: one(watch, STOCKS_LOCK) == 1, "the first one has the lock")
    none = alerts(watch)
    waiting[1].start()
    try:
        assert none == set()  # no session waits for a session that is alone
        until(lambda: alerts(watch) == {"server's own NOTIFY lock"}, "the other waits for it")
    finally:
        watch.execute("SELECT pg_cancel_backend(%s)", (first.info.backend_pid,))
        for thread in waiting:
            thread.join()
    until(lambda: alerts(watch) == set(), "nobody waits")


def test_alert_without_a_watchdog(connect):
    """Guards: a server without a slot for the background worker is reported."""
    for cluster in started(preload=True, settings=SETTINGS | {"max_worker_processes": 0}):
        assert alerts(connect(cluster)) == {"no watchdog"}
