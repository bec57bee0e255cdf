"""Connections that break in every way, while orders arrive: each order gets one bill, and no state is read for it."""

import os
import time
from collections.abc import Callable
from random import Random

import pytest

from crew import LISTENS, WORKS, Case, Flow

ROUNDS = int(os.environ.get("HERALD_CLIENTS_ROUNDS", "1"))  # how often each way is used
TORN_BYTES_MAX = 5000
LATE_S = 0.4
NOTICED_AFTER_S = 0.3
PAUSE_S_MAX = 0.3


def ways(case: Case, dice: Random) -> list[Callable[[], None]]:
    """The ways to break a connection, or both."""
    listening, work = case.listening.proxies[0], case.work.proxies[0]
    both = f"{LISTENS} OR {WORKS}"
    return [
        *(lambda which=which: case.terminate(which) for which in (LISTENS, WORKS, both)),
        *(wires.reset for wires in (case.listening, case.work)),
        *(wires.close for wires in (case.listening, case.work)),
        *(lambda proxy=proxy: proxy.desert(NOTICED_AFTER_S) for proxy in (listening, work)),
        lambda: listening.tear(dice.randrange(1, TORN_BYTES_MAX)),
        lambda: work.tear(dice.randrange(1, TORN_BYTES_MAX)),
        lambda: listening.delay_end(lambda: case.terminate(LISTENS), NOTICED_AFTER_S),
        lambda: work.delay_commit(b"bill", LATE_S),
        lambda: work.delay_commit(b"bill", LATE_S),
    ]


def break_often(case: Case) -> None:
    """Breaks the client's connections in all ways, in random order."""
    dice, is_connected = Random(case.kit.name), True
    for _ in range(ROUNDS):
        for way in dice.sample(every := ways(case, dice), len(every)):
            since = case.client.mark()
            way()
            if is_connected:
                case.client.wait("disconnected", since)
            if is_connected := dice.random() < 0.7:  # or else the next break comes while it connects
                until_connected(case, since)
            time.sleep(dice.uniform(0, PAUSE_S_MAX))


def until_connected(case: Case, since: int) -> None:
    """Waits until both connections are others than before the break at the mark `since`: an order of now has its bill, the client
    says that it listens, and has handled something after that. Its events come later than what they tell, so the next break must
    not be taken for this one."""
    order = case.order()
    case.until(lambda: case.billed_by(order), "it is connected again")
    case.until(lambda: ([event.name for event in case.client.seen[since:] if event.name in ("listening", "disconnected")]
                        or ["nothing"])[-1] == "listening", "it listens again")
    now = case.client.mark()
    case.order()
    case.client.wait("handled", now)


@pytest.mark.long
@pytest.mark.parametrize("site", ["herald", "stock"])
def test_connections_break(crew, request, site):
    """Guards: whatever breaks, on either connection, at any moment, and in the middle of a COMMIT, each order has one bill.
    With pg_herald nothing needs the state after the first start; on a stock server each connection reads it."""
    with crew(request.getfixturevalue(site)) as all_packages:
        def run(case: Case) -> None:
            case.wire()
            client = case.listen(backoff=[0.02, 0.3])
            with Flow(case, "cuts"):
                break_often(case)
            if site == "herald":
                assert client.reasons() == ["first start"]
            else:
                assert set(client.reasons()) == {"stock"}
            case.finish()

        all_packages.each(run)


def test_commit_is_not_done_twice(crew, herald):
    """Guards: a client whose connection breaks in a COMMIT waits until the server has ended it, and reads the position
    then; so the work is not done again, although the COMMIT comes later than the client."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            case.wire()
            client = case.listen()
            for _ in range(3):
                since = client.mark()
                case.work.reset()
                client.wait("listening", since)
                case.order()
                case.work.proxies[0].delay_commit(b"bill", LATE_S)
                case.until_billed()
            assert client.reasons() == ["first start"]
            case.finish()

        all_packages.each(run)


@pytest.mark.long
def test_pause_after_a_break(crew, herald):
    """Guards: a client whose server is away tries again with pauses that grow to their maximum, not in a loop."""
    with crew(herald) as all_packages:
        counts = {}

        def look(case: Case) -> None:
            pauses = [event["pause"] for event in case.client.events("disconnected")]
            counts[case.kit.name] = pauses
            assert all(0 <= pause <= 0.4 for pause in pauses), pauses
            assert max(pauses) > 0.1, f"its pauses do not grow: {pauses}"
            case.client.wait("listening", case.client.mark() - 1 if case.client.events("listening") else 0)

        all_packages.each(lambda case: case.listen(backoff=[0.1, 0.4]))
        herald.primary.stop()
        for _ in range(12):
            all_packages.each(lambda case: case.client.wait("disconnected", case.client.mark()))
        herald.primary.start()
        all_packages.each(look)
        all_packages.each(Case.order_and_bill)
        all_packages.each(Case.finish)
