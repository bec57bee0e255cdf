"""A primary with logged channels, for tests that do not need one of their own kind."""

import pytest

from servers import SETTINGS, started


@pytest.fixture
def primary():
    """A server with a logged channel, c, and all that begin with log_."""
    for server in started(preload=True, settings=SETTINGS | {
            "wal_keep_size": "512MB", "wal_retrieve_retry_interval": "100ms"}):
        server.psql("SELECT herald.set_channel('c', logged => true); SELECT herald.set_channel('log_*', logged => true)")
        server.restart()  # so there is an anchor after that
        yield server
