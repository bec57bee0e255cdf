"""The pages of docs/resume/ that have a reader install a driver, followed as by a reader. Those in other languages are
followed in test/drivers."""

import pytest

from harness.tcp_cluster import TcpCluster
from page import follow
from servers import SETTINGS, started


@pytest.fixture(scope="module")
def site():
    """A server that the programs reach by TCP."""
    yield from started(TcpCluster, preload=True, settings=SETTINGS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", ["psycopg", "asyncpg", "browser"])
def test_page(site, tmp_path, page):
    """Guards: a user who follows a page to the letter sees the order's bill, or the order in the browser."""
    follow(site, page, tmp_path, site.tcp_environment(site.port))
