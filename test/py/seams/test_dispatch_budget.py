"""Limits on what a commit dispatches itself: the listeners of each channel count, not only bytes."""

import pytest

from faults import listen_to
from servers import SETTINGS, started
from support import cpu_s, hear, left_nothing, one, until
from timing import as_fast

LISTENERS = 280
NOTIFICATIONS = 40_000
TIMES_MAX = 4  # factor of CPU time; visiting each of the listeners for each notification would take much more


@pytest.fixture(scope="module")
def crowd():
    """A server with room for many listeners."""
    yield from started(preload=True, settings=SETTINGS | {"max_connections": LISTENERS + 20})


@pytest.mark.parametrize("channels", [2, 200], ids=["2 channels in turn", "200 channels in turn"])
def test_cost_of_a_commit(crowd, connect, channels):
    """Guards: a commit that notifies channels in turn, each with many listeners, does not visit all of them for each
    notification, whether the channels are few or more than are remembered; all notifications arrive."""
    listeners = [connect(crowd) for _ in range(LISTENERS)]
    hearing, sender, watcher = connect(crowd), connect(crowd), connect(crowd)
    for listener in [*listeners, hearing]:
        listener.execute(listen_to("m", 0, channels))
    hearing.execute(listen_to("its", 0, channels))
    for listener in listeners:  # so that their notifications stay in the queue
        listener.execute("BEGIN")
        listener.execute("SELECT 1")

    def commit(prefix: str) -> float:
        sender.execute("BEGIN")
        sender.execute(f"SELECT count(pg_notify('{prefix}_' || n % {channels}, n::text))"
                       f" FROM generate_series(1, {NOTIFICATIONS}) n")
        before = cpu_s(sender.info.backend_pid)
        sender.execute("COMMIT")
        used_s = cpu_s(sender.info.backend_pid) - before
        assert hear(hearing, NOTIFICATIONS) == [str(n) for n in range(1, NOTIFICATIONS + 1)]
        return used_s

    as_fast(lambda: commit("m"), lambda: commit("its"), TIMES_MAX)

    assert one(watcher, "SELECT count(*) FROM herald.listeners WHERE state = 'busy' AND pending_bytes > 0") == LISTENERS
    for listener in listeners:
        listener.close()
    hearing.execute("UNLISTEN *")
    until(lambda: left_nothing(watcher), "nobody listens")
