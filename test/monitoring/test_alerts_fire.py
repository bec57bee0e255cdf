"""Each alert fires in the state that it is there for, on real servers: a primary and a standby, whose alerts compare kB
instead of MB, and wait for seconds instead of minutes."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
import yaml

from faults import FUNCTIONS, Doing, Points
from harness.cluster import Cluster
from harness.prefix import STOP_POINTS, kept
from harness.standby import Standby
from laggards import KILOBYTES_7, SMALLEST
from monitors import MONITORING, ROLE, PostgresExporter, Prometheus
from servers import SETTINGS
from support import one, stopped, until, watchdog_stopped
from test_monitoring import connect, dashboard, eventually

PRIMARY = "postgres_exporter"  # the job whose exporter asks the primary
SENDERS = 9
CACHES = 8
KEYS = 1000  # that one transaction invalidates one by one

fired: set[str] = set()


@pytest.fixture(scope="module")
def primary() -> Iterator[Cluster]:
    """A server with little memory, where channels that begin with logged are logged."""
    pg_config = kept(STOP_POINTS, "STOP_POINTS=1").pg_config
    with Cluster(preload=True, caches=True, pg_config=pg_config, settings=SETTINGS | SMALLEST | {
            "herald.max_queue_size": "8MB", "max_worker_processes": 8,
            "synchronous_standby_names": "there_is_none", "synchronous_commit": "local"}) as cluster:
        cluster.create_herald()
        cluster.psql(f"CREATE ROLE {ROLE} LOGIN; GRANT pg_monitor TO {ROLE}; {FUNCTIONS}")
        cluster.psql("SELECT herald.set_channel('logged*', logged => true)")
        yield cluster


@pytest.fixture(scope="module")
def standby(primary) -> Iterator[Standby]:
    """A standby of it, which relays."""
    with Standby(primary) as standby:
        until(lambda: relay_pid(standby), "there is a relay")
        yield standby


@pytest.fixture(scope="module")
def prometheus(primary, standby) -> Iterator[Prometheus]:
    """A Prometheus with an exporter for each server; no alert fires yet."""
    with PostgresExporter(primary) as one_exporter, PostgresExporter(standby) as other, \
            Prometheus(one_exporter, other, thousandth=True) as server:
        eventually(lambda: server.value("count(herald_watchdog_up)") == 2 and server.query("herald_relay_gaps_total"),
                   "both servers are asked")
        yield server


@contextmanager
def fires(prometheus: Prometheus, *names: str, job: str = "") -> Iterator[None]:
    """The alerts, or those of this job, do not fire yet, and do in the state that the block has made."""
    assert not prometheus.alerts(job) & set(names)
    yield
    eventually(lambda: set(names) <= prometheus.alerts(job), f"{names} fire: {prometheus.alerts(job)}")
    fired.update(names)


def relay_pid(standby: Standby) -> int:
    """The process of its relay; 0 if there is none."""
    return int(standby.psql("SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE backend_type = 'pg_herald relay'"))


def send(sender: psycopg.Connection, count: int) -> None:
    """Sends notifications of 7 kB on channel c, in one transaction."""
    sender.execute("SELECT pg_notify('c', %s || n) FROM generate_series(1, %s) AS n", (KILOBYTES_7, count))


def test_alert_forged_messages(primary, prometheus):
    """Guards: the alert for messages that only look like pg_herald's."""
    with fires(prometheus, "HeraldForgedMessages"):
        primary.psql("SELECT pg_logical_emit_message(true, 'pg_herald', 'forged')")


def test_relay_is_behind(primary, standby, prometheus):
    """Guards: the alert for a relay that has not read what was replayed."""
    relay = relay_pid(standby)
    os.kill(relay, signal.SIGSTOP)
    try:
        with connect(primary) as sender, fires(prometheus, "HeraldRelayBehind"):
            for _ in range(20):
                sender.execute("SELECT pg_notify('logged', %s)", (KILOBYTES_7,))
    finally:
        os.kill(relay, signal.SIGCONT)


def test_relay_gap(primary, standby, prometheus):
    """Guards: the alert for notifications that a standby could not relay."""
    with connect(standby) as watcher, connect(standby) as listener, fires(prometheus, "HeraldRelayGap"):
        listener.execute("LISTEN herald_reset; LISTEN logged")
        Points(watcher).arm("relay-send", "error", relay_pid(standby))
        primary.psql("NOTIFY logged, 'lost'")


def test_dashboard_of_a_standby(prometheus):
    """Guards: each line of the dashboard about a relay has data."""
    assert (expressions := dashboard(of_relay=True))
    for expression in expressions:
        eventually(lambda expression=expression: prometheus.query(expression), expression)


def test_senders_wait(primary, prometheus):
    """Guards: the alert for senders that wait behind a commit that waits for a standby."""
    watcher, holder = connect(primary), connect(primary)
    with fires(prometheus, "HeraldSendersWait"):
        holder.execute("SET synchronous_commit = on")
        held = Doing(holder, "CREATE TABLE held (); NOTIFY c")
        until(lambda: one(watcher, "SELECT wait_event FROM pg_stat_activity WHERE pid = %s", holder.info.backend_pid) == "SyncRep",
              "a commit waits for a standby")
        senders = [connect(primary) for _ in range(SENDERS)]
        doing = [held] + [
            Doing(sender, f"DO $$BEGIN FOR n IN 1..10 LOOP NOTIFY c, '{KILOBYTES_7}'; COMMIT; END LOOP; END$$")
            for sender in senders]
    primary.psql(f"SELECT pg_cancel_backend({holder.info.backend_pid})")
    assert [each.end() for each in doing] == [None] * (1 + SENDERS)
    for session in [watcher, holder, *senders]:
        session.close()


def test_alert_large_transaction(primary, prometheus):
    """Guards: the alert for a transaction with many notifications that stays open."""
    with connect(primary) as sender, fires(prometheus, "HeraldLargeTransactionOpen"):
        sender.execute("BEGIN")
        send(sender, 300)


def test_caches_are_reset(primary, prometheus):
    """Guards: the alert for sessions that miss invalidations, since they are in transactions."""
    sessions = [connect(primary) for _ in range(CACHES)]
    with fires(prometheus, "HeraldCachesReset"):
        for session in sessions:
            session.execute("BEGIN")
            session.execute("SELECT herald.cache_through('prices', 'SELECT $1', 1)")
        with connect(primary) as writer:
            for _ in range(20):
                writer.execute("SELECT herald.cache_invalidate('prices', n) FROM generate_series(1, %s) AS n", (KEYS,))
        for session in sessions:
            session.execute("SELECT herald.cache_through('prices', 'SELECT $1', 1)")
            session.execute("COMMIT")
    for session in sessions:
        session.close()


def test_laggard(primary, prometheus):
    """Guards: the alerts for a listener that lags, for the queue that fills up then, and for what is missed at last."""
    with connect(primary) as laggard, connect(primary) as sender:
        laggard.execute("LISTEN c; LISTEN herald_reset")
        laggard.execute("BEGIN")
        laggard.execute("SELECT 1")
        with fires(prometheus, "HeraldListenerLags", "HeraldQueueFillingUp"):
            while one(sender, "SELECT usage FROM herald.queue") < 0.7:
                send(sender, 10)
        with fires(prometheus, "HeraldNotificationsMissed", job=PRIMARY):  # a listener of the standby has, at the gap
            while one(sender, "SELECT overruns FROM herald.stats") == 0:
                send(sender, 10)


def test_no_anchor(primary, prometheus):
    """Guards: the alert for WAL without an anchor."""
    housekeeper, = (pid for pid, title in primary.processes().items() if "housekeeper" in title)
    with connect(primary) as writer, stopped(housekeeper), fires(prometheus, "HeraldNoAnchor"):
        for _ in range(4):
            writer.execute("SELECT pg_logical_emit_message(false, 'not ours', repeat('x', 1000000))")


def test_consumer_without_heartbeat(primary, prometheus):
    """Guards: the alert for a session that can resume, and has no heartbeat; not for one that has."""
    with connect(primary) as consumer, fires(prometheus, "HeraldConsumersWithoutHeartbeat"):
        consumer.execute("LISTEN herald_position; LISTEN c")
        assert one(consumer, "SELECT heartbeat = '0' FROM herald.listeners WHERE pid = pg_backend_pid()")
    with connect(primary) as consumer:
        consumer.execute("SET herald.heartbeat = '10s'; LISTEN herald_position; LISTEN c")
        assert one(consumer, "SELECT heartbeat = '10s' FROM herald.listeners WHERE pid = pg_backend_pid()")
        eventually(lambda: "HeraldConsumersWithoutHeartbeat" not in prometheus.alerts(), "it ends")


def test_alert_switched_off(primary, prometheus):
    """Guards: the alert for herald.enabled."""
    with fires(prometheus, "HeraldSwitchedOff"):
        primary.psql("ALTER SYSTEM SET herald.enabled = off")
        primary.psql("SELECT pg_reload_conf()")
    primary.psql("ALTER SYSTEM RESET herald.enabled")
    primary.psql("SELECT pg_reload_conf()")


def test_alert_forgotten_extension(primary, prometheus):
    """Guards: the alert for a database where it was forgotten to create the extension, and whose sessions notify."""
    primary.psql("CREATE DATABASE forgotten")
    with fires(prometheus, "HeraldServerQueueInUse", job=PRIMARY):
        primary.psql(f"SELECT pg_notify('c', '{KILOBYTES_7}' || n) FROM generate_series(1, 10) AS n", "forgotten")


def test_damaged(primary, prometheus):
    """Guards: the alert for a queue whose memory was overwritten."""
    with connect(primary) as watcher, connect(primary) as sender, fires(prometheus, "HeraldQueueDamaged"):
        points = Points(watcher)
        points.arm("publish-reserved", "wait", sender.info.backend_pid)
        with watchdog_stopped(primary):
            doing = Doing(sender, "NOTIFY c, 'lost'")
            points.waiter("publish-reserved")
            watcher.execute("SELECT stop_damage('length')")
            points.release("publish-reserved")
            assert doing.end() is None


def test_alert_no_watchdog(primary, prometheus):
    """Guards: the alert for a server that had no place for the watchdog."""
    primary.settings["max_worker_processes"] = 0
    with fires(prometheus, "HeraldWatchdogDown"):
        primary.restart()


def test_no_metrics(primary, standby, prometheus):
    """Guards: the alert for a database without the extension, first of one server, then of all."""
    standby.stop()
    eventually(lambda: prometheus.value("count(herald_watchdog_up)") == 1, "one server has gone")
    eventually(lambda: "HeraldNoMetrics" in prometheus.alerts(), "the alert fires")
    eventually(lambda: "HeraldNoMetrics" not in prometheus.alerts(), "it ends with the time for which it looks back")
    with fires(prometheus, "HeraldNoMetrics"):
        primary.psql("DROP EXTENSION pg_herald CASCADE")


def test_each_alert_has_fired():
    """Guards: there is a test here for each alert."""
    rules = yaml.safe_load((MONITORING / "alerts.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
    assert {rule["alert"] for rule in rules} == fired


def test_alerts_lead_to_their_pages():
    """Guards: the page that each alert names has that section."""
    alerts = (MONITORING / "alerts.yml").read_text(encoding="utf-8")
    pages = re.findall(r"runbook_url: \S+/docs/(\S+)\.html#(\S+)", alerts)
    assert len(pages) == alerts.count("- alert:")
    for page, section in pages:
        heads = re.findall(r"^##+ (.*)$", (MONITORING.parent / f"docs/{page}.md").read_text(encoding="utf-8"), re.MULTILINE)
        assert section in [re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in heads], section
