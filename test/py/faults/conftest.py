"""What the tests of faults around caches share."""

import pytest

from cache_scene import CacheScene


@pytest.fixture
def caches(faulty, connect):
    """Survivors of whatever the test does; afterwards nothing is left behind."""
    scene = CacheScene(faulty, connect)
    yield scene
    scene.end()
