"""The thread that watches the time, and what wakes a thread that waits."""

import threading
import time

import pytest

from pg_herald import Consumer
from pg_herald._threads import Waker, Watchdog, complete

DEADLINE_S = 60


@pytest.fixture
def watchdog():
    """One watchdog."""
    watchdog = Watchdog()
    yield watchdog
    watchdog.close()


def test_it_ends_what_takes_too_long(watchdog):
    ended = threading.Event()
    with watchdog.limit(0.01, ended.set) as limit:
        assert ended.wait(DEADLINE_S)
    assert limit.over


def test_it_does_not_end_what_has_ended(watchdog):
    ended, other = [], threading.Event()
    for _ in range(100):
        with watchdog.limit(0.05, lambda: ended.append(1)) as limit:
            pass
        assert not limit.over
    with watchdog.limit(0.1, other.set):  # later than all of those
        assert other.wait(DEADLINE_S)
    assert not ended


def test_a_shorter_limit_after_a_longer_one(watchdog):
    ended = threading.Event()
    with watchdog.limit(1000, ended.set):
        pass
    with watchdog.limit(0.01, ended.set):
        assert ended.wait(DEADLINE_S)


def test_limits_within_limits(watchdog):
    inner, outer = threading.Event(), threading.Event()
    with watchdog.limit(0.05, outer.set):
        with watchdog.limit(0.01, inner.set):
            assert inner.wait(DEADLINE_S)
        assert outer.wait(DEADLINE_S)


def test_waker():
    waker = Waker()
    assert waker.wait(0.001) == []
    threading.Timer(0.05, waker.wake).start()
    waker.wait(1000)
    for _ in range(100_000):  # never blocks, however full it is
        waker.wake()
    began = time.monotonic()
    waker.wait(1000)
    waker.close()
    waker.wake()
    assert time.monotonic() - began < DEADLINE_S


def test_coroutines_must_not_suspend():
    class Suspends:
        """Something that asyncio would have to wait for."""

        def __await__(self):
            yield

    async def suspends():
        await Suspends()

    async def works():
        threads = Consumer("", name="billing", channels=["orders"], handle=lambda batch, connection: None)._make_runtime()
        try:
            return await threads.call(lambda a, b: a + b, 1, 2)
        finally:
            threads.close()

    assert complete(works()) == 3
    with pytest.raises(AssertionError):
        complete(suspends())
