"""Servers with logged channels, for tests that do not need one of their own kind."""

import pytest

from faults import FUNCTIONS, Points
from servers import SETTINGS, started


@pytest.fixture
def primary():
    """A server with a logged channel, c, and all that begin with log_."""
    for server in started(preload=True, settings=SETTINGS | {
            "wal_keep_size": "512MB", "wal_retrieve_retry_interval": "100ms"}):
        server.psql("SELECT herald.set_channel('c', logged => true); SELECT herald.set_channel('log_*', logged => true)")
        server.restart()  # so there is an anchor after that
        yield server


@pytest.fixture(scope="module")
def decoding(stop_points):
    """A server with stop points, logical decoding and prepared transactions."""
    for cluster in started(preload=True, pg_config=stop_points, settings=SETTINGS | {
            "wal_level": "logical", "max_prepared_transactions": 2, "wal_retrieve_retry_interval": "100ms"}):
        cluster.psql(FUNCTIONS)
        yield cluster


@pytest.fixture
def open_one(decoding, connect):
    """open_one() opens a session in a database of this test, which has the extension and no settings."""
    decoding.psql("CREATE DATABASE of_settings")
    decoding.create_herald("of_settings")
    decoding.psql(FUNCTIONS, "of_settings")
    yield lambda: connect(decoding, "of_settings")
    decoding.psql("DROP DATABASE of_settings WITH (FORCE)")


@pytest.fixture
def points(decoding, connect):
    """The stop points of that server."""
    points = Points(connect(decoding))
    yield points
    points.release()
