"""Fixtures for the tests of the C interface."""

import pytest

from c_api import install_client


@pytest.fixture(scope="session")
def pg_config(stop_points):
    """The pg_config of a server with pg_herald and herald_client; both were built with what is installed."""
    install_client(stop_points)
    return stop_points
