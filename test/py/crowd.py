"""Others who are busy on the server, so that whoever is looked at has to wait for turns and CPUs."""

from contextlib import contextmanager

from harness.cluster import Cluster
from harness.listeners import Listeners
from support import load

CHANNEL = "crowd"


@contextmanager
def crowd(cluster: Cluster, listeners: int = 50, senders: int = 2):
    """Within, some notify the crowd's channel over and over, and some listen to that."""
    with Listeners(cluster, listeners, CHANNEL) as heard, \
            load(cluster, f"NOTIFY {CHANNEL}, 'x';", clients=senders):
        heard.wait(10 * listeners)  # all are at it
        yield
