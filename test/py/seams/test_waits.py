"""Backends that wait: for a slow commit, for a client that does not read, for a turn."""

import os
import signal
import time
from contextlib import ExitStack

import pytest

from laggards import KILOBYTES_7
from servers import SETTINGS, started
from slow_commits import SLOW, send_behind, slow_commit
from support import cpu_s, hear, notify, one, state_of, stopped, until, watchdog_pid, watchdog_stopped
from wire import kinds, payloads

WAIT_EVENT = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s"
QUEUE_BYTES = 4 * 1024 * 1024


@pytest.fixture(scope="module")
def slow():
    """A server with two turns, and commits that can hang."""
    yield from started(preload=True, settings=SETTINGS | SLOW | {
        "herald.wakeup_concurrency": 2, "herald.queue_memory": f"{QUEUE_BYTES}B"})


def receive_payloads(client, count: int) -> list[str]:
    """The next `count` payloads, without running a statement."""
    messages = [client.receive() for _ in range(count)]
    assert kinds(messages) == "A" * count
    return payloads(messages)


# ---- a commit that takes long ----

def test_behind_a_slow_commit_uses_no_cpu(slow, connect, wire):
    """Guards: a session that waits for its own notification behind a slow commit sleeps, and receives it afterwards."""
    watcher, client = connect(slow), wire(slow)
    client.query("LISTEN c")
    with slow_commit(slow, wire, watcher, "slow") as let_go:
        send_behind(watcher, client, "NOTIFY c, 'own'")
        before = cpu_s(client.pid)
        time.sleep(0.5)
        used = cpu_s(client.pid) - before
        assert used < 0.1, f"{used:.2f} s of CPU time while waiting"
        let_go()
    messages = client.until_ready()
    assert kinds(messages) == "CAAZ" and payloads(messages) == ["slow", "own"]


def test_terminated_behind_a_slow_commit(slow, connect, wire):
    """Guards: a session that waits behind a slow commit can be terminated; others receive what it has committed."""
    watcher, client, listener = connect(slow), wire(slow), connect(slow)
    client.query("LISTEN c")
    listener.execute("LISTEN c")
    with slow_commit(slow, wire, watcher, "slow") as let_go:
        send_behind(watcher, client, "NOTIFY c, 'of the victim'")
        assert one(watcher, "SELECT pg_terminate_backend(%s, 20000)", client.pid), "it is still there"
        assert state_of(watcher, client.pid) is None
        let_go()
    notify(watcher, "c", "next")
    assert hear(listener, 3) == ["slow", "of the victim", "next"]


def test_canceled_behind_a_slow_commit(slow, connect, wire):
    """Guards: a session that has something to read, and waits behind a slow commit, can be cancelled meanwhile; it
    loses nothing, and goes on receiving."""
    watcher, client = connect(slow), wire(slow)
    client.query("LISTEN c")
    client.query("BEGIN")
    client.query("SELECT 1")
    notify(watcher, "c", "earlier")
    with slow_commit(slow, wire, watcher, "slow") as let_go:
        client.query("NOTIFY c, 'own'")
        send_behind(watcher, client, "COMMIT")
        assert one(watcher, "SELECT pg_cancel_backend(%s)", client.pid)
        heard = payloads(client.until_ready())
        assert (heard or receive_payloads(client, 1)) == ["earlier"]
        let_go()
    notify(watcher, "c", "later")
    assert receive_payloads(client, 3) == ["slow", "own", "later"]
    notify(watcher, "c", "last")
    assert receive_payloads(client, 1) == ["last"]
    until(lambda: state_of(watcher, client.pid) == "idle", "it waits for the next")


# ---- a client that does not read ----

def test_mute_client_terminated(slow, connect, wire):
    """Guards: a listener with a lot pending exits at once when it is terminated, although its client does not read, and
    although it has a temporary table, which it drops in a transaction while it exits."""
    mute, listener, sender = wire(slow), connect(slow), connect(slow)
    mute.query("LISTEN c")
    mute.query("CREATE TEMPORARY TABLE of_the_mute (number integer)")
    mute.query("BEGIN")
    mute.query("SELECT 1")
    for number in range(200):
        notify(sender, "c", f"{number} {KILOBYTES_7}")
    assert one(sender, "SELECT pg_terminate_backend(%s, 20000)", mute.pid), "it is still there"
    assert state_of(sender, mute.pid) is None
    listener.execute("LISTEN c")
    notify(sender, "c", "heard")
    assert hear(listener, 1) == ["heard"]


def test_database_dropped_beside_a_mute_client(slow, connect, wire):
    """Guards: what all processes must take part in, such as dropping a database, waits for no listener whose client does not
    read."""
    mute, sender = wire(slow), connect(slow)
    mute.query("LISTEN c")
    until(lambda: notify(sender, "c", KILOBYTES_7) or one(sender, WAIT_EVENT, mute.pid) == "ClientWrite", "its socket is full")
    for sql in ("SET statement_timeout = '20s'", "CREATE DATABASE dropped", "DROP DATABASE dropped"):
        sender.execute(sql)
    until(lambda: one(sender, WAIT_EVENT, mute.pid) == "ClientWrite", "it still waits for its client")


# ---- a turn ----

@pytest.mark.parametrize("watchdog", ["the first", "a new one"])
def test_stopped_with_every_turn(slow, connect, watchdog):
    """Guards: when stopped listeners have all turns, listeners that can use a turn get one from the watchdog; also from
    a watchdog that was terminated and started again."""
    stuck = [connect(slow) for _ in range(2)]
    listener, sender = connect(slow), connect(slow)
    for number, connection in enumerate(stuck):
        connection.execute(f"LISTEN stuck_{number}")
    listener.execute("LISTEN d")
    if watchdog == "a new one":
        before = watchdog_pid(slow)
        os.kill(before, signal.SIGTERM)
        until(lambda: watchdog_pid(slow) not in (None, before), "it is started again")
    rescued = one(sender, "SELECT turns_rescued FROM herald.stats")
    with ExitStack() as held:
        for connection in stuck:
            held.enter_context(stopped(connection.info.backend_pid))
        for number in range(10):
            notify(sender, "stuck_0", f"{number}")
            notify(sender, "stuck_1", f"{number}")
            notify(sender, "d", f"for the listener {number}")
            assert hear(listener, 1) == [f"for the listener {number}"]
        until(lambda: one(sender, "SELECT turns_rescued FROM herald.stats") >= rescued + 2,
              "turns were taken back")
    for connection in stuck:
        assert hear(connection, 10) == [f"{number}" for number in range(10)]


def test_own_batch_behind_a_slow_commit_takes_no_turn(slow, connect, wire):
    """Guards: a listener that waits for its own notification behind a hanging commit is given no turn for what is
    dispatched meanwhile: the other listener receives that without help from the watchdog, which is stopped."""
    own = [wire(slow) for _ in range(5)]
    watcher, listener = connect(slow), connect(slow)
    for client in own:
        client.query("LISTEN c")
    listener.execute("LISTEN c")
    for number in range(8):  # the listener might get the turn by chance
        with slow_commit(slow, wire, watcher, f"first {number}") as first, \
                slow_commit(slow, wire, watcher, f"second {number}") as second:
            for client in own:
                send_behind(watcher, client, f"NOTIFY c, 'own {number}'")
            with watchdog_stopped(slow):
                first()
                assert hear(listener, 1) == [f"first {number}"]
            second()
        expected = [f"second {number}", *[f"own {number}"] * len(own)]
        assert hear(listener, 1 + len(own)) == expected
        for client in own:
            heard = payloads(client.until_ready())
            while len(heard) < 2 + len(own):
                heard += payloads([client.receive()])
            assert heard == [f"first {number}", *expected]


def test_no_watchdog(connect, wire):
    """Guards: where the server has no slot for a watchdog, a client that does not read does not block other
    listeners."""
    for cluster in started(preload=True, settings=SETTINGS | {
            "max_worker_processes": 0, "herald.wakeup_concurrency": 4}):
        mute, listener, sender = wire(cluster), connect(cluster), connect(cluster)
        assert watchdog_pid(cluster) is None and one(sender, "SELECT herald.watchdog_pid()") is None
        for _ in range(3):
            mute.query("LISTEN c")
            listener.execute("LISTEN c")
            for number in range(100):
                notify(sender, "c", f"{number} {KILOBYTES_7}")
                assert len(hear(listener, 1)) == 1, f"message {number} did not come"
            receive_payloads(mute, 100)
            listener.execute("UNLISTEN *")
        mute.close()
        listener.close()
        sender.close()
