"""Once the sender's client has its answer, the notification is at the listener's socket about as often as on
the stock server: a client that looks there without waiting notices."""

import time
from select import select

import pytest

from wire import cstring, kinds, payloads

ROUNDS = 300
REST_S = 0.004  # the server takes itself for calm


@pytest.mark.alone
def test_at_the_socket_with_the_answer(cluster, stock, wire):
    """Guards: on an idle server the notification is there with the sender's answer, mostly."""
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
    rates = {server: count / ROUNDS for server, count in there.items()}
    assert rates[cluster] > rates[stock] - 0.25, f"{rates[cluster]:.0%}, on stock {rates[stock]:.0%}"
