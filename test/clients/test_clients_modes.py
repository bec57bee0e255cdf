"""A store of the user's own, and shared consumers."""

from random import Random

import pytest

from crew import LISTENS, Case, Flow

pytestmark = pytest.mark.long

KILLS = 3


def test_own_store(crew, herald, tmp_path):
    """Guards: with a store of its own each notification is handled at least once, also when the client is killed; with no
    position it is a first start."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            path = tmp_path / f"store of {case.kit.name}"
            options = {"mode": "own", "store_file": str(path)}
            client = case.listen(**options)
            assert client.reasons() == ["first start"]
            assert path.read_text(encoding="utf-8")
            dice, handled = Random(case.kit.name), []
            with Flow(case, "own"):
                for _ in range(KILLS):
                    client.wait("notification")
                    case.until(lambda since=client.mark(): client.events("handled", since), "it handles more")
                    if dice.random() < 0.4:
                        client.stop()
                    client.kill()
                    handled += client.payloads()
                    client = case.listen(**options)
                    assert not client.reasons()
                since = client.mark()
                case.terminate("true")
                client.wait("listening", since, resumed=True)
            ordered = {str(number) for number, in case.sql("SELECT id FROM orders")}
            case.until(lambda: ordered <= {*handled, *client.payloads()}, "each order was handled")
            assert {*handled, *client.payloads()} <= ordered
            client.stop()

        all_packages.each(run)


def test_own_store_and_poison(crew, herald, tmp_path):
    """Guards: also without a transaction a notification that always fails is given to `poison`, and stops the client where
    there is none; the stored position is that from before."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            path = tmp_path / f"store of {case.kit.name}"
            options = {"mode": "own", "store_file": str(path), "attempts": 2}
            client = case.listen(**options, poison="skip", handler={"fail_always": "2"})
            case.order(3)
            assert client.wait("poison")["payload"] == "2"
            later = str(case.order()[0])
            client.wait("notification", payload=later)
            client.stop()
            assert {"1", "3", later} <= set(client.payloads())
            before = path.read_text(encoding="utf-8")
            client = case.listen(**options, poison="none", handler={"fail_always": "6"})
            case.order(2)
            client.failed("HandlerError")
            client = case.listen(**options)
            client.wait("notification", payload="6")
            assert not client.reasons()
            client.stop()
            assert path.read_text(encoding="utf-8") != before

        all_packages.each(run)


def test_shared(crew, herald):
    """Guards: each of several processes receives everything since its own start, in order, also over a break; for each its
    start is a first start, and a restart of the server a gap."""
    with crew(herald) as all_packages:
        def start(case: Case) -> None:
            case.order()
            options = {"mode": "shared"}
            first, second = case.listen(**options), case.listen(**options)
            orders = case.order(3)
            for _ in range(3):
                since = [client.mark() for client in (first, second)]
                case.terminate(LISTENS)
                orders += case.order(2)
                for client, mark in zip((first, second), since):
                    client.wait("listening", mark, resumed=True)
                orders += case.order()
            wanted = list(map(str, orders))
            for client in (first, second):
                case.until(lambda client=client: len(client.payloads()) >= len(wanted), "all have come")
                assert list(dict.fromkeys(client.payloads())) == wanted
                assert client.reasons() == ["first start"]
            assert not case.sql("SELECT FROM herald_consumer")

        def gap(case: Case) -> None:
            first, second = case.clients
            for client in (first, second):
                client.wait("state", reason="gone")
            last = str(case.order()[0])
            for client in (first, second):
                client.wait("notification", payload=last)
                assert client.reasons() == ["first start", "gone"]
                client.stop()

        all_packages.each(start)
        herald.primary.restart()
        all_packages.each(gap)


def test_shared_on_stock(crew, stock):
    """Guards: a shared consumer on a stock server reads the state at each connection, and receives what comes between."""
    with crew(stock) as all_packages:
        def run(case: Case) -> None:
            client = case.listen(mode="shared")
            client.wait("notification", payload=str(case.order()[0]))
            since = client.mark()
            case.terminate(LISTENS)
            client.wait("listening", since)
            client.wait("notification", payload=str(case.order()[0]))
            assert client.reasons() == ["stock", "stock"]
            client.stop()

        all_packages.each(run)


def test_shared_on_a_standby(crew, chain, trio):
    """Guards: a shared consumer needs no primary at all."""
    with crew(trio) as all_packages:
        chain.until_all_follow()

        def run(case: Case) -> None:
            standby = trio.uri(case.dbname, [chain.standbys[0].port])
            client = case.listen(mode="shared", connection=standby)
            client.wait("notification", payload=str(case.order()[0]))
            client.stop()

        all_packages.each(run)
