"""`state` is called exactly when something may be missing, with the reason, and before what comes later."""

import pytest

from crew import LISTENS, WORKS, Case


def test_first_start_and_resume(crew, herald):
    """Guards: the first start has a reason to read the state, and no later one has, neither after a stop nor after a break;
    what came while the client was away is handled, once."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            before = case.order(3)
            client = case.start()
            listening = client.wait("listening")
            assert (listening["resumed"], listening["stock"]) == (False, False), listening
            assert listening["server"].endswith(f":{herald.ports[0]}"), listening
            case.until_billed()
            assert (client.reasons(), case.billed_by(before)) == (["first start"], {"state"})
            assert case.position(), "the state was read, and its position is not stored"
            case.order_and_bill(2)
            assert client.wait("handled")["count"] == 2
            client.stop()
            away = case.order(4)
            client = case.listen()
            assert client.wait("listening")["resumed"]
            case.until_billed()
            assert (client.reasons(), case.billed_by(away)) == ([], {"handle"})
            since = client.mark()
            case.terminate(f"{LISTENS} OR {WORKS}")
            client.wait("listening", since, resumed=True)
            case.order_and_bill()
            assert not client.reasons()
            case.finish()
            assert client.events("active")[0]["epoch"] == 2
            assert client.events("active")[-1]["epoch"] == case.one("SELECT epoch FROM herald_consumer")

        all_packages.each(run)


@pytest.mark.long
def test_one_position_for_several_channels(crew, herald):
    """Guards: one position stands for all channels, also for one with an odd name."""
    odd = 'Ä "b" \\ \''
    with crew(herald) as all_packages:
        def notify(case: Case) -> None:
            first, second, third = case.order(3)
            case.sql("DELETE FROM bill")
            case.sql("SELECT pg_notify(%s, %s), pg_notify('other', %s), pg_notify('Orders', '0')", odd, str(first), str(second))
            case.until(lambda: case.billed_by([first, second]) == {"handle"}, "both are handled")
            assert not case.billed_by([third])

        def run(case: Case) -> None:
            client = case.listen(channels=["orders", odd, "other"])
            case.order_and_bill()
            client.stop()
            case.sql("ALTER TABLE orders DISABLE TRIGGER ALL")
            client = case.start(channels=["orders", odd, "other"])
            notify(case)
            client.wait("listening")
            notify(case)
            assert not client.reasons()
            client.stop()

        all_packages.each(run)


def test_position_is_gone(crew, herald):
    """Guards: after a restart of the server the state is read, exactly once, before what came after it; for a client that
    ran meanwhile, and for one that did not."""
    with crew(herald) as all_packages:
        marks = {}

        def begin(case: Case) -> None:
            case.start(name="not running").wait("listening")
            case.client.stop()
            case.listen()
            case.order_and_bill(3)
            marks[case.kit.name] = case.client.mark()

        def go_on(case: Case) -> None:
            client, since = case.client, marks[case.kit.name]
            client.wait("state", since, reason="gone")
            assert not client.wait("listening", since)["resumed"]
            case.until_billed()
            case.order_and_bill(5)
            break_at = client.mark()
            case.terminate(f"{LISTENS} OR {WORKS}")
            client.wait("listening", break_at, resumed=True)
            case.order_and_bill()
            assert client.reasons(since) == ["gone"]
            case.finish()
            for reasons in (["gone"], []):
                client = case.start(name="not running")
                client.wait("listening")
                client.stop()
                assert client.reasons() == reasons

        all_packages.each(begin)
        herald.primary.stop()
        all_packages.each(lambda case: case.client.wait("disconnected", marks[case.kit.name]))
        herald.primary.start()
        all_packages.each(Case.order)
        all_packages.each(go_on)


@pytest.mark.long
def test_state_is_called_again(crew, herald):
    """Guards: a state that was not committed is no state: it is called again after its connection breaks, and after an
    error; and an error that does not end ends the client."""
    with crew(herald) as all_packages:
        def run(case: Case) -> None:
            case.order(2)
            with case.session() as blocker:
                blocker.execute("BEGIN; LOCK TABLE bill")
                client = case.start()
                client.wait("state", reason="first start")
                case.until(f"SELECT count(*) > 0 {OTHERS_WAIT}", "the state waits for the table")
                since = client.mark()
                case.terminate(WORKS)
                client.wait("state", since, reason="first start")
                assert case.position() is None
            case.until_billed()
            case.order_and_bill()
            case.finish()
            case.sql(REFUSE)
            case.sql("UPDATE herald_consumer SET position = NULL; TRUNCATE bill")
            case.start(attempts=3).failed("HandlerError")
            assert len(case.client.events("failing")) >= 2
            assert case.position() is None
            case.sql("DROP TRIGGER refuse ON bill")
            case.listen()
            assert case.client.reasons() == ["first start"]
            case.finish()

        all_packages.each(run)


OTHERS_WAIT = "FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = 'relation'"
REFUSE = """
    CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no state today'; END $$;
    CREATE TRIGGER refuse BEFORE INSERT ON bill FOR EACH ROW WHEN (NEW.by = 'state') EXECUTE FUNCTION refuse()"""


def test_server_without_herald(crew, stock):
    """Guards: on a stock server the state is read at each connection, and no position is stored; what is notified of while the
    client listens is handled."""
    with crew(stock) as all_packages:
        def run(case: Case) -> None:
            case.order(3)
            client = case.start()
            listening = client.wait("listening")
            assert (listening["resumed"], listening["stock"]) == (False, True), listening
            case.until_billed()
            assert client.reasons() == ["stock"]
            case.order_and_bill(4)
            for which in (LISTENS, WORKS):
                since = client.mark()
                case.terminate(which)
                client.wait("disconnected", since)
                case.order()
                client.wait("listening", since, stock=True)
                case.until_billed()
                case.order_and_bill()
                assert client.reasons(since) == ["stock"]
            client.stop()
            away = case.order()
            client = case.listen()
            case.until_billed()
            assert (client.reasons(), case.billed_by(away)) == (["stock"], {"state"})
            assert case.position() is None
            case.finish()

        all_packages.each(run)


@pytest.mark.long
def test_module_is_installed_later(crew, herald):
    """Guards: a stock server that gets pg_herald later is a first start; and one that loses it is stock."""
    with crew(herald) as all_packages:
        def is_stock(case: Case) -> None:
            client = case.listen()
            case.order_and_bill()
            assert client.reasons() == ["stock"]

        def has_herald(case: Case) -> None:
            case.client.wait("state", reason="first start")
            case.until_billed()
            case.order_and_bill()
            assert case.client.reasons() == ["stock", "first start"]

        def is_stock_again(case: Case) -> None:
            case.until(lambda: case.client.reasons()[2:] == ["stock"], "the state is read again")
            case.order_and_bill()
            case.finish()

        settings = herald.primary.settings
        settings["shared_preload_libraries"] = ""
        try:
            herald.primary.restart()
            all_packages.each(is_stock)
            settings["shared_preload_libraries"] = "pg_herald"
            herald.primary.restart()
            all_packages.each(has_herald)
            settings["shared_preload_libraries"] = ""
            herald.primary.restart()
            all_packages.each(is_stock_again)
        finally:
            settings["shared_preload_libraries"] = "pg_herald"
            herald.primary.restart()
