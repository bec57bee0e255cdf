"""The programs that docs/resume.md shows: they run here as they stand. Those in other languages run in test/drivers."""

import sys

import pytest

from harness.tcp_cluster import TcpCluster
from servers import SETTINGS
from trial import EXAMPLES, Trial


@pytest.fixture(scope="module")
def site():
    """A server that the programs reach by TCP, so that their connections can be cut."""
    with TcpCluster(preload=True, settings=SETTINGS) as cluster:
        yield cluster
        assert not cluster.damage()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_consumer(site, tmp_path, driver):
    """Guards: a consumer that is cut off in every way, and killed, handles each notification once, in order; and when
    something is gone, it reads the state."""
    with Trial(site, driver) as trial:
        trial.run([sys.executable, str(EXAMPLES / f"consumer_{driver}.py")], tmp_path)
