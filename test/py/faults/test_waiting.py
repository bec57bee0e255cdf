"""No wait of pg_herald's begins while its process holds the lock of the server's NOTIFY, or a lightweight lock: a holder
of one of these would wait for what the next process in its queue is to do.

The build with stop points checks it wherever a wait may begin (HERALD_MAY_WAIT() in src/base/waits.h), so each test that
runs on that build guards it.
"""

import psycopg
import pytest

from faults import FUNCTIONS, Points, pid_of
from harness.cluster import Cluster
from servers import SETTINGS
from support import hear, notify, reconnect, until, until_crashed

pytestmark = pytest.mark.seam

# What a bug would take before the sender waits for room, and what the server then logs.
LOCKS = {"lock": "the lock of the server's NOTIFY", "lwlock": "an LWLock, or something else that holds off interrupts"}


@pytest.fixture(scope="module")
def broken(stop_points):
    """A server with stop points that ends all sessions when the rule is broken."""
    with Cluster(preload=True, pg_config=stop_points, settings=SETTINGS) as cluster:
        cluster.create_herald()
        cluster.psql(FUNCTIONS)
        yield cluster


@pytest.mark.parametrize("action", LOCKS)
def test_the_check_of_waits_can_fail(broken, connect, action):
    """Guards: the check itself. A sender that takes such a lock before it looks for room stops the server, even if there
    is room."""
    watcher, sender = reconnect(broken, connect), reconnect(broken, connect)
    before = len(broken.log())
    Points(watcher).arm("publish-reserve", action, pid_of(sender))
    with pytest.raises(psycopg.Error):
        sender.execute("NOTIFY c")
    until(lambda: f"wait_while() in src/notify/dispatch/dispatch.c may wait under {LOCKS[action]}"
          in broken.log()[before:], "it is found")
    until_crashed(watcher)


def test_without_a_lock(broken, connect):
    """Guards: the same commit does not stop the server if it takes no lock there."""
    listener, sender = reconnect(broken, connect), reconnect(broken, connect)
    listener.execute("LISTEN c")
    before = len(broken.log())
    notify(sender, "c", "delivered")
    assert hear(listener, 1) == ["delivered"]
    assert "may wait under" not in broken.log()[before:]
