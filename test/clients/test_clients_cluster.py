"""A primary and its standbys: failover, switchover, listening on a standby. Channel "orders" is logged, and no commit is lost."""

import pytest

from crew import LISTENS, Case, Flow
from nodes import Node

pytestmark = pytest.mark.long


def test_failover_and_switchover(crew, chain, trio):
    """Guards: a client with a list of hosts finds the new primary after kill -9 and promotion, and after a switchover; it
    resumes, so nothing is read for it but notifications, and each order has one bill."""
    with crew(trio) as all_packages:
        flows, marks = [], {}

        def begin(case: Case) -> None:
            client = case.listen()
            assert client.reasons() == ["first start"]
            flows.append(Flow(case, "failover").__enter__())
            client.wait("handled")

        def mark(case: Case) -> None:
            marks[case.kit.name] = case.client.mark()

        def goes_on(case: Case) -> None:
            since = marks[case.kit.name]
            case.client.wait("disconnected", since)
            case.client.wait("handled", since)
            now = case.client.mark()
            case.order()
            case.client.wait("handled", now)

        try:
            all_packages.each(begin)
            for end in (Node.kill, Node.stop):
                chain.until_safe()
                all_packages.each(mark)
                end(chain.primary)
                chain.promote(False)
                all_packages.each(goes_on)
        finally:
            for flow in flows:
                flow.__exit__()

        def finish(case: Case) -> None:
            assert case.client.reasons() == ["first start"]
            case.finish()

        all_packages.each(finish)


def test_listening_on_standbys(crew, chain, trio):
    """Guards: the listening connection may be to a standby: what is committed on the primary arrives; when the standby is
    killed, the client goes on at the other one, with its position; and when the other one is promoted, it goes on there."""
    with crew(trio) as all_packages:
        first, second = chain.standbys

        def begin(case: Case) -> None:
            client = case.start(connection=trio.uri(case.dbname, [first.port, second.port]))
            assert client.wait("listening")["server"].endswith(f":{first.port}")
            case.until_billed()
            case.order_and_bill(5)

        def is_on(node) -> None:
            def look(case: Case) -> None:
                client = case.client
                case.until(lambda: client.events("listening")[-1]["server"].endswith(f":{node.port}"), f"it listens on {node.name}")
                case.order_and_bill(3)
                assert client.reasons() == ["first start"]

            all_packages.each(look)

        all_packages.each(begin)
        chain.until_all_follow()
        second.detach()
        first.kill()
        second.follow(chain.primary)
        is_on(second)
        first.start()
        second.kill()
        is_on(first)
        second.follow(first)
        second.start()
        chain.until_safe()
        chain.primary.kill()
        chain.promote(False)
        all_packages.each(lambda case: case.order_and_bill(3))
        all_packages.each(Case.finish)


def test_killed_primary_comes_back(crew, chain, trio):
    """Guards: a primary that is killed and started again is no reason to read the state: the channel is logged."""
    with crew(trio) as all_packages:
        marks = {}

        def begin(case: Case) -> None:
            case.listen()
            case.order_and_bill(2)
            marks[case.kit.name] = case.client.mark()

        def go_on(case: Case) -> None:
            case.client.wait("listening", marks[case.kit.name], resumed=True)
            case.order_and_bill()
            assert case.client.reasons() == ["first start"]
            case.finish()

        all_packages.each(begin)
        chain.primary.kill()
        all_packages.each(lambda case: case.client.wait("disconnected", marks[case.kit.name]))
        chain.primary.start()
        all_packages.each(go_on)


def test_standby_is_no_place_for_work(crew, chain, trio):
    """Guards: the work connection passes over standbys, wherever they are in the list; with standbys alone there is none."""
    with crew(trio) as all_packages:
        standbys = [node.port for node in chain.standbys]

        def run(case: Case) -> None:
            case.listen(work_connection=trio.uri(case.dbname, [*standbys, chain.primary.port]))
            case.order_and_bill()
            case.finish()
            case.start(work_connection=trio.uri(case.dbname, standbys), work_timeout=2).failed("UnreachableError")

        all_packages.each(run)


def test_standby_has_no_channel_that_is_not_logged(crew, chain, trio):
    """Guards: a standby that refuses a channel, since it is not logged, is passed over: the client listens on the primary,
    wherever that is in the list; with standbys alone there is no server for it."""
    with crew(trio) as all_packages:
        chain.until_all_follow()
        standbys = [node.port for node in chain.standbys]

        def run(case: Case) -> None:
            case.sql("SELECT herald.set_channel('orders', false)")
            chain.until_all_follow()
            client = case.listen(connection=trio.uri(case.dbname, [*standbys, chain.primary.port]))
            assert client.wait("listening")["server"].endswith(f":{chain.primary.port}")
            case.order_and_bill()
            since = client.mark()
            case.terminate(LISTENS)
            assert client.wait("listening", since)["server"].endswith(f":{chain.primary.port}")
            case.order_and_bill()
            assert client.reasons() == ["first start"]
            case.finish()
            case.start(connection=trio.uri(case.dbname, standbys), work_timeout=2).failed("UnreachableError")

        all_packages.each(run)
