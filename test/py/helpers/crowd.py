"""Others who are busy on the server, so that whoever is looked at has to wait for turns and CPUs."""

from contextlib import contextmanager

from harness.cluster import Cluster
from harness.listeners import Listeners
from support import load

CHANNEL = "crowd"


@contextmanager
def crowd(cluster: Cluster, listeners: int = 50, senders: int = 2, rate: int = 0):
    """Within, some notify the crowd's channel over and over, and some listen to that.

    rate        how often per second each of them does, at most; 0: as often as it can
    """
    limit = [f"-R{rate * senders}"] if rate else []
    with Listeners(cluster, listeners, CHANNEL) as heard, \
            load(cluster, f"NOTIFY {CHANNEL}, 'x';", senders, *limit):
        heard.wait(10 * listeners)  # all are at it
        yield
