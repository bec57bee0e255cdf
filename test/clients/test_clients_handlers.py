"""Handlers that fail: always, sometimes, slowly, and with their connection."""

import signal
import time

import pytest

from crew import HEARTBEAT_S, NOTICE_DEADLINE_S, WAITS_FOR_TABLE, WORKS, Case



def poisoned(case: Case) -> str:
    """Inserts five orders at once; returns the third as a payload."""
    return str(case.order(5)[2])


def third_of_next_five(case: Case) -> str:
    """The payload of the third of the next five orders, which have not been inserted yet."""
    return str(case.one("SELECT last_value FROM orders_id_seq") + 3)


@pytest.mark.parametrize("how", ["fail_always", "hide_failure"])
def test_poison_is_skipped(crew, herald, how):
    """Guards: a notification whose handler always fails, or hides that a statement of its has failed, is given to `poison` after
    the attempts, alone; what that writes is committed, the others of its batch are handled, and the client goes on."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            case.order(2)
            bad = third_of_next_five(case)
            client = case.listen(attempts=3, poison="skip", handler={how: bad})
            assert poisoned(case) == bad
            poison = client.wait("poison")
            assert (poison["channel"], poison["payload"], poison["decision"]) == ("orders", bad, "skip"), poison.fields
            assert poison["error"]
            case.until(lambda: case.one("SELECT count(*) FROM bill") == 6, "the other four are billed")
            assert case.sql("SELECT payload FROM dead_letter") == [(bad,)]
            attempts = [event["attempt"] for event in client.events("failing")]
            assert attempts == [1, 2, 3], attempts
            before = case.position()
            later = case.order(3)
            case.until(lambda: case.billed_by(later) == {"handle"}, "later orders are billed")
            case.until(lambda: case.position() != before, "the position moves on")
            assert len(client.events("poison")) == 1
            client.stop()
            case.check_bills()
            assert case.sql(f"SELECT id FROM orders EXCEPT SELECT order_id FROM bill") == [(int(bad),)]

        all_packages.each(run)


@pytest.mark.parametrize("poison", ["stop", pytest.param("none", marks=pytest.mark.long)])
def test_poison_stops(crew, herald, poison):
    """Guards: with the decision to stop, and without `poison`, the client ends with HandlerError, and neither its batch nor
    its position is stored. When the cause has gone, everything is handled, once."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            case.order(2)
            bad = third_of_next_five(case)
            client = case.listen(attempts=2, poison=poison, handler={"fail_always": bad})
            before = case.position()
            poisoned(case)
            client.failed("HandlerError")
            assert case.position() == before
            assert case.one("SELECT count(*) FROM bill") == 2
            assert len(client.events("failing")) == 2
            assert not case.sql("SELECT FROM dead_letter")
            if poison == "stop":
                assert client.events("poison")[0]["decision"] == "stop"
            case.listen()
            assert not case.client.reasons()
            case.finish()

        all_packages.each(run)


@pytest.mark.long
def test_handler_fails_sometimes(crew, herald):
    """Guards: a batch that fails is tried again after pauses, and its notifications are handled once."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            bad = third_of_next_five(case)
            client = case.listen(attempts=5, poison="stop", handler={"fail_times": {bad: 3}})
            poisoned(case)
            case.until_billed()
            case.order_and_bill()
            assert [event["attempt"] for event in client.events("failing")] == [1, 2, 3]
            assert not client.events("poison") and not client.events("disconnected")
            case.finish()

        all_packages.each(run)


@pytest.mark.long
@pytest.mark.parametrize("site", ["herald", "stock"])
def test_handler_is_slow(crew, request, site):
    """Guards: a handler that takes longer than two heartbeats is no reason to leave the listening connection."""
    with crew(request.getfixturevalue(site)) as all_packages:
        def run(case: Case) -> None:
            client = case.listen(handler={"delay": 3 * HEARTBEAT_S})
            first = case.order()
            client.wait("handled")
            second = case.order()
            case.until_billed()
            assert case.billed_by(first + second) == {"handle"}
            assert not client.events("disconnected"), client.events("disconnected")[0].fields
            case.finish()

        all_packages.each(run)


@pytest.mark.long
def test_handler_kills_its_connection(crew, herald):
    """Guards: a handler whose connection breaks each time does not have the client reconnect for ever."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            bad = third_of_next_five(case)
            client = case.listen(attempts=2, poison="skip", handler={"kill_connection": bad})
            before = case.position()
            poisoned(case)
            client.failed("HandlerError")
            assert len(client.events("disconnected")) in (3, 4), "twice the attempts"
            assert case.position() == before
            case.listen()
            case.finish()

        all_packages.each(run)


@pytest.mark.long
def test_handler_takes_too_long(crew, herald):
    """Guards: work that takes longer than work_timeout is left, and undone; it is tried again, and then done once."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            client = case.listen(work_timeout=1)
            with case.session() as blocker:
                blocker.execute("BEGIN; LOCK TABLE bill")
                since = client.mark()
                case.order(2)
                case.until(WAITS_FOR_TABLE, "the handler waits for the table")
                case.leaves(since, time.monotonic(), 1 + NOTICE_DEADLINE_S, "work that takes too long")
            case.until_billed()
            case.order_and_bill()
            case.finish()

        all_packages.each(run)


@pytest.mark.long
def test_unhandled_before_the_break(crew, herald):
    """Guards: a batch in work whose listening connection breaks is committed first, also if that takes long, and not done again
    beside what the next connection sends; one whose work connection breaks is undone."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            client = case.listen()
            for which in ("listening", "work"):
                with case.session() as blocker:
                    blocker.execute("BEGIN; LOCK TABLE bill")
                    since = client.mark()
                    case.order(3)
                    case.until(WAITS_FOR_TABLE, "the handler waits for the table")
                    case.terminate(WORKS if which == "work" else f"NOT {WORKS} AND wait_event_type <> 'Lock'")
                    case.order(2)
                    end = time.monotonic() + 3 * HEARTBEAT_S
                    while which == "listening" and time.monotonic() < end:
                        assert not client.events("disconnected", since), client.events("disconnected", since)[0].fields
                        time.sleep(0.1)
                case.until_billed()
                client.wait("disconnected", since)
                first = next(event.name for event in client.seen[since:] if event.name in ("handled", "disconnected"))
                assert first == {"listening": "handled", "work": "disconnected"}[which], first
            assert client.reasons() == ["first start"]
            case.finish()

        all_packages.each(run)


@pytest.mark.long
def test_stop_while_failing(crew, herald):
    """Guards: SIGTERM ends a client that is in a pause between attempts."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            bad = third_of_next_five(case)
            client = case.listen(attempts=100, poison="stop", handler={"fail_always": bad}, backoff=[5, 30])
            before = case.position()
            poisoned(case)
            client.wait("failing")
            client.signal(signal.SIGTERM)
            client.has_stopped()
            assert case.position() == before
            case.listen()
            case.finish()

        all_packages.each(run)
