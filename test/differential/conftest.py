"""The two servers."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent), str(HERE.parent / "py/helpers")]

from pair import pair  # noqa: E402


@pytest.fixture(scope="session")
def player():
    """Plays schedules on a stock server and on one with pg_herald."""
    with pair() as one:
        yield one
