"""Networks that go silent: a client is not deaf for longer than two heartbeats, whatever the connection says."""

import os
import signal
import time

import pytest

from crew import HEARTBEAT_S, LISTENS, NOTICE_DEADLINE_S, Case, Flow

WORK_TIMEOUT_S = 2
MISSED, MISSED_BYTES = 10_000, 3000
DIRECTIONS = {"to_server": (True, False), "to_client": (False, True), "both": (True, True)}
IN_EACH_DIRECTION = pytest.mark.parametrize("direction", [
    *(pytest.param(name, marks=pytest.mark.long) for name in ("to_server", "to_client")), "both"])


@IN_EACH_DIRECTION
def test_listening_connection_is_mute(crew, herald, direction):
    """Guards: where nothing arrives any more the client notices within two heartbeats, without an error of the network.
    Where it cannot send any more it has nothing to send, and what comes is handled."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            case.wire()
            client = case.listen()
            case.order_and_bill()
            since, began = client.mark(), time.monotonic()
            case.listening.mute(*DIRECTIONS[direction])
            if direction == "to_server":
                end = began + 3 * HEARTBEAT_S
                while time.monotonic() < end:
                    case.order_and_bill()
                assert not client.events("disconnected", since), client.events("disconnected", since)[0].fields
            else:
                case.order()
                case.leaves(since, began, NOTICE_DEADLINE_S, "a mute listening connection")
                case.until_billed()
            case.order_and_bill()
            assert client.reasons() == ["first start"]
            case.finish()

        all_packages.each(run)


@pytest.mark.long
@IN_EACH_DIRECTION
def test_listening_connection_is_mute_on_stock(crew, stock, direction):
    """Guards: on a stock server the client asks, and notices within two heartbeats that no answer comes."""
    with crew(stock) as all_packages:
        def run(case: Case) -> None:
            case.wire()
            client = case.listen()
            case.order_and_bill()
            since, began = client.mark(), time.monotonic()
            case.listening.mute(*DIRECTIONS[direction])
            case.leaves(since, began, NOTICE_DEADLINE_S, "a mute listening connection")
            case.order()
            client.wait("state", since, reason="stock")
            case.until_billed()
            case.order_and_bill()
            case.finish()

        all_packages.each(run)


@IN_EACH_DIRECTION
def test_work_connection_is_mute(crew, herald, direction):
    """Guards: a statement on a mute work connection ends with work_timeout. What the server has committed meanwhile is not
    done again, and the client goes on when the server has ended the session that has the lock."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            case.wire()
            client = case.listen(work_timeout=WORK_TIMEOUT_S)
            case.order_and_bill()
            for _ in range(2):
                since = client.mark()
                case.work.mute(*DIRECTIONS[direction])
                began = time.monotonic()
                case.order(2)
                case.leaves(since, began, WORK_TIMEOUT_S + NOTICE_DEADLINE_S, "a mute work connection")
                case.work.end_muted()
                client.wait("listening", since)
                case.until_billed()
            case.order_and_bill()
            assert client.reasons() == ["first start"]
            case.finish()

        all_packages.each(run)


@pytest.mark.long
def test_silent_and_no_false_alarm(crew, herald, stock):
    """Guards: a channel on which nothing comes is no reason to leave a connection."""
    for site in (herald, stock):
        with crew(site) as all_packages:
            def run(case: Case) -> None:
                client = case.listen()
                time.sleep(4 * HEARTBEAT_S)  # nothing happens, and nothing may
                assert not client.events("disconnected"), client.events("disconnected")[0].fields
                case.order_and_bill()
                case.finish()

            all_packages.each(run)


@pytest.mark.long
def test_slow_server_resumes(crew, herald):
    """Guards: a server that pauses in the middle of what it sends of the past, before it answers COMMIT, is not left after two
    heartbeats: it sends none there, and may have to read much."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            case.listen().stop()
            for _ in range(MISSED // 500):  # more than the network's buffers take
                case.sql(f"SELECT pg_notify('orders', format('%s %s', n, repeat('x', {MISSED_BYTES}))) FROM generate_series(1, 500) n")
            order = case.order()
            client = case.start(handler={"delay": 0.05}, batch=200)
            client.wait("handled")
            session, = case.pids(f"{LISTENS} AND state = 'active'")  # in COMMIT
            os.kill(session, signal.SIGSTOP)
            try:
                silent, count = time.monotonic(), -1
                while time.monotonic() < silent + 3 * HEARTBEAT_S:
                    if count != (count := len(client.events("handled"))):  # what the network's buffers have
                        silent = time.monotonic()
                    assert not client.events("disconnected"), client.events("disconnected")[0].fields
                    time.sleep(0.1)
                assert not case.billed_by(order), "the server had sent all before it was stopped"
            finally:
                os.kill(session, signal.SIGCONT)
            case.until_billed()
            assert not client.reasons() and not client.events("disconnected")
            case.finish()

        all_packages.each(run)


@pytest.mark.long
def test_all_is_mute_for_a_while(crew, herald):
    """Guards: a client whose whole network was silent, for new connections as well, comes back by itself."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            case.wire()
            client = case.listen(work_timeout=WORK_TIMEOUT_S)
            with Flow(case, "mute"):
                client.wait("handled")
                since, end = client.mark(), time.monotonic() + 5 * HEARTBEAT_S
                while time.monotonic() < end:  # connections that are made meanwhile become mute at their first bytes
                    for wires in (case.listening, case.work):
                        wires.mute()
                    time.sleep(0.02)
                client.wait("disconnected", since)
                for wires in (case.listening, case.work):
                    wires.end_muted()
                client.wait("handled", since)
            assert client.reasons() == ["first start"]
            case.finish()

        all_packages.each(run)
