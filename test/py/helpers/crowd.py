"""Other sessions that keep the server busy, so that the tested ones have to wait for turns and CPUs."""

from contextlib import contextmanager

from harness.cluster import Cluster
from harness.listeners import Listeners
from support import load

CHANNEL = "crowd"


@contextmanager
def crowd(cluster: Cluster, listeners: int = 50, senders: int = 2, rate: int = 0):
    """Within the block, senders notify the crowd's channel in a loop, and listeners listen to it.

    rate        how often per second each sender notifies, at most; 0: as often as it can
    """
    limit = [f"-R{rate * senders}"] if rate else []
    with Listeners(cluster, listeners, CHANNEL) as heard, \
            load(cluster, f"NOTIFY {CHANNEL}, 'x';", senders, *limit):
        heard.wait(10 * listeners)  # all of them are busy
        yield
