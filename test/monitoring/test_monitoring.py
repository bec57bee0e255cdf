"""The files in monitoring/ for Prometheus and Grafana, with Debian's exporters and Prometheus, under load."""

import json
import re
import subprocess
import sys
import threading
import time
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

import psycopg
import pytest
import yaml

from harness import cleanup
from harness.cluster import SUPERUSER, Cluster
from harness.installation import system_program
from monitors import MONITORING, ROLE, PostgresExporter, Prometheus, SqlExporter, copy_for_promtool, whole
from servers import SETTINGS

DEADLINE_S = 60
POLL_S = 0.2

cleanup.interrupt_by_signals()


@pytest.fixture(scope="module")
def site():
    """A server under load: senders, listeners, a cache."""
    with Cluster(preload=True, caches=True, settings=SETTINGS) as cluster:
        cluster.create_herald()
        cluster.psql(f"CREATE ROLE {ROLE} LOGIN; GRANT pg_monitor TO {ROLE}")
        with Load(cluster):
            yield cluster
        assert not cluster.damage()


@pytest.fixture(scope="module")
def exporters(site):
    """Both of Debian's exporters."""
    with PostgresExporter(site) as one, SqlExporter(site) as other:
        yield one, other


@pytest.fixture(scope="module")
def prometheus(exporters):
    """A Prometheus that scrapes both exporters."""
    with Prometheus(*exporters) as server:
        yield server


class Load:
    """Two listeners and a sender that uses a cache, until the end of the `with`."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.stopped = threading.Event()
        self.threads = [threading.Thread(target=work) for work in (self.listen, self.listen, self.send)]

    def __enter__(self) -> None:
        for thread in self.threads:
            thread.start()

    def __exit__(self, *_exception) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join()

    def listen(self) -> None:
        """Listens, as a client that can resume, and reads everything."""
        with connect(self.cluster) as connection:
            connection.execute("SET herald.heartbeat = '10s'; LISTEN orders; LISTEN herald_position")
            while not self.stopped.is_set():
                for _ in connection.notifies(timeout=POLL_S):
                    pass

    def send(self) -> None:
        """Sends some hundred notifications each second."""
        with connect(self.cluster) as connection:
            while not self.stopped.wait(0.005):
                connection.execute("SELECT pg_notify('orders', n::text) FROM (VALUES (1), (2), (2)) AS v (n)")
                connection.execute("SELECT herald.cache_through('prices', 'SELECT $1', 1)")
                connection.execute("SELECT herald.cache_invalidate('prices', 1)")


def connect(cluster: Cluster, user: str = SUPERUSER) -> psycopg.Connection:
    """A connection in autocommit mode."""
    return psycopg.connect(host=str(cluster.socket_folder), port=cluster.port, user=user, dbname="postgres",
                           autocommit=True)


def eventually(condition, what: str) -> None:
    """Waits for a condition."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(POLL_S)


def read(name: str) -> str:
    """A file of monitoring/."""
    return (MONITORING / name).read_text(encoding="utf-8")


def generator():
    """The module monitoring/generate."""
    loader = SourceFileLoader("generate", str(MONITORING / "generate"))
    module = module_from_spec(spec_from_loader("generate", loader))
    sys.modules["generate"] = module
    loader.exec_module(module)
    return module


def metrics() -> set[str]:
    """The names of all metrics of a primary."""
    return {query.metric(column) for query in generator().QUERIES + generator().OF_CACHES for column in query.values
            if query.name != "herald_relay"}


def dashboard(*, of_relay: bool) -> list[str]:
    """What the lines of the dashboard show: on a standby about its relay, or everything else."""
    panels = json.loads((MONITORING / "grafana-dashboard.json").read_text(encoding="utf-8"))["panels"]
    return [target["expr"].replace("$instance", ".*").replace("$__rate_interval", "4s")
            for panel in panels for target in panel.get("targets", []) if ("herald_relay" in target["expr"]) == of_relay]


def test_files_are_as_generated():
    """Guards: the files for the four exporters are those that monitoring/generate writes."""
    subprocess.run([MONITORING / "generate", "--check"], check=True)


@pytest.fixture(scope="module")
def without_caches():
    """A server that has only pg_herald."""
    with Cluster(preload=True, settings=SETTINGS) as cluster:
        cluster.create_herald()
        cluster.psql(f"CREATE ROLE {ROLE} LOGIN; GRANT pg_monitor TO {ROLE}")
        yield cluster


@pytest.mark.parametrize("text, queries_of, caches_too", [
    (read("postgres_exporter.yml"), lambda file: file.values(), False),
    (whole("postgres_exporter"), lambda file: file.values(), True),
    (read("pg_exporter.yml"), lambda file: file.values(), True),
    (read("pg_herald.collector.yml"), lambda file: file["queries"], False),
    (read("pg_herald.collector.yml") + read("pg_herald_cache.collector.yml").replace("collector_name", "---\ncollector_name"),
     lambda *files: [query for file in files for query in file["queries"]], True),
    (read("prometheus-sql-exporter.yml"), lambda file: file["jobs"][0]["queries"], False),
    (whole("prometheus-sql-exporter"), lambda file: file["jobs"][0]["queries"], True)],
    ids=["postgres_exporter", "postgres_exporter and caches", "pg_exporter", "sql_exporter", "sql_exporter and caches",
         "prometheus-sql-exporter", "prometheus-sql-exporter and caches"])
def test_queries(site, without_caches, text, queries_of, caches_too):
    """Guards: each file is YAML, and its queries run for a role that has only pg_monitor; those of caches apart, they need
    only pg_herald."""
    expected = generator().QUERIES + generator().OF_CACHES * caches_too
    queries = list(queries_of(*yaml.safe_load_all(text)))
    assert len(queries) == len(expected)
    with connect(site if caches_too else without_caches, ROLE) as connection:
        for query, ours in zip(queries, expected):
            columns = [column.name for column in connection.execute(query["query"]).description]
            assert columns == [*ours.labels, *ours.values]


def test_tags():
    """Guards: pg_exporter asks pg_herald_cache only where that is."""
    tags = {name: query["tags"] for name, query in yaml.safe_load(read("pg_exporter.yml")).items()}
    assert [name for name, of in tags.items() if of == ["extension:pg_herald_cache"]] == ["pg_herald_cache", "pg_herald_caches"]


def test_exporters_have_all(exporters):
    """Guards: Debian's exporters accept the files, and export each metric."""
    one, other = exporters
    eventually(lambda: one.names() == metrics(), f"{metrics() ^ one.names()}: {one.log()}")
    found = re.compile(r'^sql_(herald\w*)\{.*\bcol="(\w+)"', re.MULTILINE)
    eventually(lambda: {f"{query}_{column}" for query, column in found.findall(other.metrics())} == metrics(),
               other.log())


def test_alert_rules(tmp_path):
    """Guards: each alert fires when it should, and not earlier."""
    subprocess.run([system_program("promtool"), "test", "rules", copy_for_promtool(tmp_path)], check=True)


def test_dashboard_moves(prometheus):
    """Guards: each line of the dashboard has data from either exporter, and shows the load."""
    eventually(lambda: prometheus.value('count(herald_delivered_total)') == 2, "both exporters are asked")
    time.sleep(5)

    def from_both(expression: str) -> bool:
        jobs = {series["metric"].get("job") for series in prometheus.query(expression)}
        return jobs - {None} in ({"postgres_exporter", "sql_exporter"}, set()) and bool(jobs)

    for expression in dashboard(of_relay=False):
        eventually(lambda expression=expression: from_both(expression), expression)
    # Two listeners receive two of three notifications of each transaction; roughly: the counters are read one by one.
    for expression in ("rate(herald_notifications_total[5s]) > 0",
                       "rate(herald_delivered_total[5s]) > rate(herald_notifications_total[5s])",
                       "rate(herald_duplicates_removed_total[5s]) > 0", "rate(herald_cache_invalidations_total[5s]) > 0",
                       'rate(herald_channel_sent_total{channel="orders"}[5s]) > 0',
                       'rate(herald_channel_delivered_total{channel="orders"}[5s])'
                       ' > rate(herald_channel_sent_total{channel="orders"}[5s])',
                       'time() - herald_channel_last_sent_timestamp_seconds{channel="orders"} < 10',
                       'sum by (job) (herald_listeners_sessions{datname="postgres"}) == 2', "herald_caches_sessions == 1",
                       "herald_watchdog_up == 1"):
        eventually(lambda expression=expression: len(prometheus.query(expression)) == 2, expression)
    assert prometheus.alerts() == set()


def test_alert_fires_and_ends(site, prometheus):
    """Guards: the alert for a listener in a transaction fires on a real server, and ends with the transaction."""
    with connect(site) as laggard:
        laggard.execute("LISTEN orders")
        with laggard.transaction():
            laggard.execute("SELECT 1")
            site.psql("SELECT pg_notify('orders', repeat('x', 7000) || n) FROM generate_series(1, 10000) AS n")
            eventually(lambda: prometheus.alerts() == {"HeraldListenerLags"}, "the alert fires")
        eventually(lambda: prometheus.alerts() == set(), "the alert ends")
