"""Two instances of a consumer at once: one is active."""

import signal
import time

import pytest

from crew import HEARTBEAT_S, NOTICE_DEADLINE_S, WAITS_FOR_TABLE, Case, Flow



def takes_over(case: Case, successor, since: int, began: float) -> None:
    """The successor must become active in time."""
    event = successor.wait("active", since)
    if not event.at - began < NOTICE_DEADLINE_S:
        successor.fail(f"it became active after {event.at - began:.1f} s, and the deadline is {NOTICE_DEADLINE_S:g} s")


def test_two_instances(crew, herald):
    """Guards: of two instances one is active, and the other says that it waits; it takes over when the first stops, when that
    is killed, and when that has lost its session; each order has one bill."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            first = case.listen()
            with Flow(case, "instances"):
                second = case.start()
                second.wait("waiting")
                assert not second.events("active") and not first.events("disconnected")
                first.wait("handled", first.mark())
                began = time.monotonic()
                first.signal(signal.SIGTERM)
                takes_over(case, second, 0, began)
                first.has_stopped()
                second.wait("handled")
                third = case.start()
                third.wait("waiting")
                began = time.monotonic()
                second.kill()
                takes_over(case, third, 0, began)
                third.wait("handled")
                fourth = case.start()
                fourth.wait("waiting")
                since = third.mark()
                case.sql("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND database ="
                         " (SELECT oid FROM pg_database WHERE datname = current_database())")
                third.wait("disconnected", since)
                case.until(lambda: fourth.events("active") or third.events("active", since), "one of them is active")
            case.until_billed()
            for client in (third, fourth):
                client.stop()
            case.check_ledger()
            epochs = [event["epoch"] for client in (first, second, third, fourth) for event in client.events("active")]
            assert len(set(epochs)) == len(epochs), epochs
            assert first.reasons() + second.reasons() + third.reasons() + fourth.reasons() == ["first start"]

        all_packages.each(run)


@pytest.mark.long
def test_killed_in_a_statement(crew, herald):
    """Guards: an instance that is killed while its statement waits does not keep the lock until that ends: the server looks whether
    its client is still there."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            first = case.listen()
            second = case.start()
            second.wait("waiting")
            with case.session() as blocker:
                blocker.execute("BEGIN; LOCK TABLE bill")
                case.order(2)
                case.until(WAITS_FOR_TABLE, "the handler waits for the table")
                began = time.monotonic()
                first.kill()
                takes_over(case, second, 0, began)
            case.finish()
            assert not second.reasons()

        all_packages.each(run)


@pytest.mark.long
def test_instance_waits_in_silence(crew, herald):
    """Guards: one that waits can be stopped at once, and one that is behind a silent connection does not wait for ever."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            first = case.listen()
            second = case.start()
            second.wait("waiting")
            second.stop()
            case.wire()
            third = case.start(work_timeout=2)
            third.wait("waiting")
            since, began = third.mark(), time.monotonic()
            case.work.mute()
            case.leaves(since, began, 2 + HEARTBEAT_S + NOTICE_DEADLINE_S, "a mute connection of one that waits")
            first.stop()
            third.wait("active", since)
            case.order_and_bill()
            case.finish()

        all_packages.each(run)


def test_superseded(crew, herald):
    """Guards: one that another has superseded without its noticing undoes its batch, says so, and waits for the lock again."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            client = case.listen()
            case.order_and_bill()
            since = client.mark()
            case.sql("UPDATE herald_consumer SET epoch = epoch + 1")
            case.order(3)
            client.wait("superseded", since)
            active = client.wait("active", since)
            assert active["epoch"] == 3
            case.until_billed()
            case.order_and_bill()
            assert client.reasons() == ["first start"]
            case.finish()

        all_packages.each(run)


@pytest.mark.long
def test_two_names(crew, herald):
    """Guards: consumers with different names do not wait for each other."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            first = case.listen()
            second = case.listen(name="auditing", channels=["audit"])
            case.order_and_bill()
            for client in (first, second):
                assert not client.events("waiting")
                client.stop()

        all_packages.each(run)
