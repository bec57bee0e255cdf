"""When the sender's client has its answer, the notification is already at the listener's socket about as often as on
the stock server. A client that looks at its socket without waiting would notice a difference."""

import time
from select import select

import pytest

from wire import cstring, kinds, payloads

ROUNDS = 100
ATTEMPTS = 5  # each with new connections: the CPUs on which these run matter most
REST_S = 0.004  # long enough for the server to count as idle


@pytest.mark.alone
def test_at_the_socket_with_the_answer(cluster, stock, wire):
    """Guards: on an idle server the notification has mostly arrived when the sender gets its answer."""
    measured = []
    while len(measured) < ATTEMPTS:
        ours, theirs = rates(cluster, stock, wire)
        if ours > theirs - 0.25:
            return
        measured.append(f"{ours:.0%} and {theirs:.0%}")
    raise AssertionError(f"in no attempt about as often as on stock: {', '.join(measured)}")


def rates(cluster, stock, wire) -> tuple[float, float]:
    """The share of notifications that had arrived by then, with pg_herald and on the stock server."""
    pairs = {server: (wire(server), wire(server)) for server in (stock, cluster)}
    there = dict.fromkeys(pairs, 0)
    for listener, _ in pairs.values():
        listener.query("LISTEN c")
    for number in range(ROUNDS):
        for server, (listener, sender) in pairs.items():  # alternating, because the machine may have other work
            time.sleep(REST_S)
            sender.send(("Q", cstring(f"NOTIFY c, '{number}'")))
            select([sender.socket], [], [])
            there[server] += bool(select([listener.socket], [], [], 0)[0])
            assert kinds(sender.until_ready()) == "CZ"
            assert payloads([listener.receive()]) == [str(number)]
    return there[cluster] / ROUNDS, there[stock] / ROUNDS
