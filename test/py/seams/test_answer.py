"""Once the sender's client has its answer, the notification is at the listener's socket about as often as on
the stock server: a client that looks there without waiting notices."""

import time
from select import select

import pytest

from wire import cstring, kinds, payloads

ROUNDS = 100
ATTEMPTS = 5  # each with connections of its own: where these run decides more than anything else
REST_S = 0.004  # the server takes itself for calm


@pytest.mark.alone
def test_at_the_socket_with_the_answer(cluster, stock, wire):
    """Guards: on an idle server the notification is there with the sender's answer, mostly."""
    measured = []
    while len(measured) < ATTEMPTS:
        ours, theirs = rates(cluster, stock, wire)
        if ours > theirs - 0.25:
            return
        measured.append(f"{ours:.0%} and {theirs:.0%}")
    raise AssertionError(f"in no attempt about as often as on stock: {', '.join(measured)}")


def rates(cluster, stock, wire) -> tuple[float, float]:
    """How often it is there with pg_herald, and on stock."""
    pairs = {server: (wire(server), wire(server)) for server in (stock, cluster)}
    there = dict.fromkeys(pairs, 0)
    for listener, _ in pairs.values():
        listener.query("LISTEN c")
    for number in range(ROUNDS):
        for server, (listener, sender) in pairs.items():  # by turns: the machine may have other work
            time.sleep(REST_S)
            sender.send(("Q", cstring(f"NOTIFY c, '{number}'")))
            select([sender.socket], [], [])
            there[server] += bool(select([listener.socket], [], [], 0)[0])
            assert kinds(sender.until_ready()) == "CZ"
            assert payloads([listener.receive()]) == [str(number)]
    return there[cluster] / ROUNDS, there[stock] / ROUNDS
