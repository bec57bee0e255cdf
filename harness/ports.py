"""TCP ports of the loopback interface, for private servers."""

import socket

LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """A port of the loopback interface that no process uses at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]
