"""Fixtures for the tests of faults around caches."""

import pytest

from cache_scene import CacheScene


@pytest.fixture
def caches(faulty, connect):
    """Sessions that must survive whatever the test does to others; afterwards nothing may be left over."""
    scene = CacheScene(faulty, connect)
    yield scene
    scene.end()
