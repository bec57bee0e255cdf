"""Clients that are stopped, and clients that are killed."""

import os
import signal
import socket
import time
from random import Random

import pytest

from crew import WAITS_FOR_TABLE, Case, Flow
from harness.ports import LOOPBACK

pytestmark = pytest.mark.long

KILLS = 4 * int(os.environ.get("HERALD_CLIENTS_ROUNDS", "1"))
SOON_S = 0.4


def test_stop_within_a_batch(crew, herald):
    """Guards: a client that is to stop ends its batch, and commits it with its position; the rest comes at the next start."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            client = case.listen()
            case.order_and_bill()
            before = case.position()
            with case.session() as blocker:
                blocker.execute("BEGIN; LOCK TABLE bill")
                batch = case.order(5)
                case.until(WAITS_FOR_TABLE, "the handler waits for the table")
                rest = [number for _ in range(20) for number in case.order(3)]
                client.signal(signal.SIGTERM)
                time.sleep(SOON_S)  # the batch cannot end before the table is free
                client.check()
            client.has_stopped()
            assert case.billed_by(batch) == {"handle"}
            assert case.position() != before
            case.check_bills()
            client = case.listen()
            case.until_billed()
            assert not client.reasons() and case.billed_by(rest) == {"handle"}
            case.finish()

        all_packages.each(run)


def test_stop_anywhere(crew, herald):
    """Guards: SIGTERM ends a client soon wherever it is: while it connects, waits for the lock, backs off, or listens."""
    with crew(herald) as all_packages, socket.create_server((LOOPBACK, 0), backlog=100) as mute:
        silent = mute.getsockname()[1]

        def run(case: Case) -> None:
            case.listen().stop()
            case.wire()
            client = case.listen(backoff=[20, 30])
            case.listening.remove()
            case.work.remove()
            client.wait("disconnected")
            client.stop()
            case.listening = case.work = None
            client = case.start(connection=herald.uri(case.dbname, [silent]), work_connection=None)
            time.sleep(SOON_S)
            client.signal(signal.SIGTERM)
            client.ended()  # its start has not succeeded: it may as well say that it has failed

        all_packages.each(run)


def test_client_is_killed(crew, herald):
    """Guards: a client that is killed at any moment, and started again, bills each order once, and resumes."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            dice = Random(case.kit.name)
            reasons = []
            with Flow(case, "kills"):
                for number in range(KILLS):
                    client = case.start(handler={"delay": dice.choice((0, 0, 0.05))})
                    if number % 3 == 0:
                        client.wait("handled")
                    else:
                        client.wait("active")
                    time.sleep(dice.uniform(0, SOON_S))
                    client.kill()
                    reasons += client.reasons()
            case.listen()
            assert reasons == ["first start"]
            case.finish()

        all_packages.each(run)
