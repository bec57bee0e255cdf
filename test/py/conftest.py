"""The clusters and connections that the tests use."""

import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from faults import FUNCTIONS, Scene
from harness import cleanup
from harness.cluster import SUPERUSER, Cluster
from harness.prefix import STOP_POINTS, kept
from laggards import SMALLEST
from servers import SETTINGS, started
from wire import Wire

cleanup.interrupt_by_signals()

PG_CONFIG = pytest.StashKey[str]()
EXIT_S = 2


def pytest_configure(config):
    """Declares the markers by which tests are selected."""
    config.addinivalue_line("markers", "alone: compares times; no other test runs beside it")
    config.addinivalue_line("markers", "long: takes ten seconds or more of a CPU for a limit that seldom changes; runs at length")
    config.addinivalue_line("markers", "seam: what another major version of the server can change; on the oldest and the newest, "
                                       "at length on all")


def pytest_collection_finish(session):
    """Builds the module with stop points, if a test needs it, before the tests, so that no test's time includes
    this."""
    if not session.config.option.collectonly and any("stop_points" in item.fixturenames for item in session.items):
        session.config.stash[PG_CONFIG] = kept(STOP_POINTS, "STOP_POINTS=1").pg_config


@pytest.fixture(scope="session")
def cluster():
    """A server with pg_herald's default settings; the extension exists in database postgres."""
    yield from started(preload=True, settings=SETTINGS)


@pytest.fixture(scope="session")
def caching():
    """A server with the default settings of pg_herald and pg_herald_cache; both extensions exist in database postgres."""
    yield from started(preload=True, caches=True, settings=SETTINGS)


@pytest.fixture(scope="module")
def small():
    """A server with the smallest memory settings that pg_herald accepts."""
    yield from started(preload=True, settings=SETTINGS | {
        "herald.queue_memory": "512kB", "herald.channel_memory": "1MB"})


@pytest.fixture(scope="session")
def stock():
    """The server without pg_herald."""
    yield from started(preload=False, settings=SETTINGS)


@pytest.fixture(scope="session", params=["stock", "pg_herald"])
def server(request):
    """Runs the test on the stock server, and on the one with pg_herald: the same must hold on both."""
    return request.getfixturevalue("stock" if request.param == "stock" else "cluster")


@pytest.fixture(scope="session")
def stop_points(request):
    """The pg_config of a server whose module was built with stop points."""
    return request.config.stash[PG_CONFIG]


@pytest.fixture(scope="session")
def faulty(stop_points):
    """A server with stop points, the smallest memory settings, and two turns; it has pg_herald_cache as well."""
    for cluster in started(preload=True, caches=True, pg_config=stop_points, settings=SETTINGS | SMALLEST | {
            "herald.wakeup_concurrency": 2, "max_connections": 40}):
        cluster.psql(FUNCTIONS)
        yield cluster


@pytest.fixture
def scene(faulty, connect):
    """Sessions that must survive whatever the test does to others; afterwards nothing may be left over."""
    scene = Scene(faulty, connect)
    yield scene
    scene.end()


@pytest.fixture
def both(cluster, stock):
    """both(function) returns the function's result, which must be the same with pg_herald and on the stock server."""
    def run(function: Callable[[Cluster], object]) -> object:
        theirs = function(stock)
        assert function(cluster) == theirs
        return theirs

    return run


@pytest.fixture
def connect():
    """connect(cluster, dbname, **options) opens a connection that is closed at the end of the test."""
    opened = []

    def open_one(cluster: Cluster, dbname: str = "postgres", **options) -> psycopg.Connection:
        connection = psycopg.connect(host=str(cluster.socket_folder), port=cluster.port, user=SUPERUSER,
                                     dbname=dbname, autocommit=True, prepare_threshold=None, **options)
        opened.append((connection, connection.info.backend_pid))
        return connection

    yield open_one
    for connection, _ in opened:
        connection.close()
    _let_exit([pid for _, pid in opened])


@pytest.fixture
def wire():
    """wire(cluster, dbname, **parameters) opens a connection with our own protocol client."""
    opened = []

    def open_one(cluster: Cluster, dbname: str = "postgres", **parameters: str) -> Wire:
        opened.append(Wire(cluster, dbname, **parameters))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()
    _let_exit([connection.pid for connection in opened])


def _let_exit(pids: list[int]) -> None:
    """Waits until these sessions have gone, so that the next test does not find them; not for long, since a test may hold
    one."""
    end = time.monotonic() + EXIT_S
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < end:
        time.sleep(0.002)


@pytest.fixture
def database(cluster):
    """A database of its own for one test, without pg_herald."""
    cluster.psql("CREATE DATABASE of_a_test")
    yield "of_a_test"
    cluster.psql("DROP DATABASE of_a_test WITH (FORCE)")
