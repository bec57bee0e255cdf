"""Errors at the start are the caller's: a type for each cause. The same causes later are events."""

import socket

import pytest

from crew import LISTENS, SETUP, WAITS_FOR_TABLE, WORKS, Case
from harness.ports import LOOPBACK, free_port

FAIL_DEADLINE_S = 25  # with a work_timeout of two seconds; all packages start at the same time
LONGEST = "ä" * 31 + "x"  # 63 bytes

CONFIGURATIONS = {
    "no name": {"name": ""}, "name of 64 bytes": {"name": "ä" * 32},
    "empty channel": {"channels": ["orders", ""]}, "channel of 64 bytes": {"channels": ["ä" * 32]},
    "reserved channel": {"channels": ["herald_position"]}, "no channels": {"channels": []},
    "reserved name": {"name": "herald_billing"}, "short heartbeat": {"heartbeat": 0.09},
}


def fails(case: Case, kind: str, **options: object) -> str:
    """The message with which a client fails at its start, and ends."""
    client = case.start(**{"work_timeout": 2} | options)
    message = client.failed(kind, FAIL_DEADLINE_S)["message"]
    assert not client.events("listening"), "it listened before it failed"
    return message


def test_wrong_configuration(crew, herald):
    """Guards: a wrong name or channel is a ConfigurationError, before any server is asked; the longest name is not wrong."""
    with crew(herald) as all_packages:
        for options in CONFIGURATIONS.values():
            all_packages.each(lambda case, options=options: fails(
                case, "ConfigurationError", connection=herald.uri("x", [free_port()]), work_connection=None, **options))
        all_packages.each(lambda case: case.listen(name=LONGEST, channels=[LONGEST]).stop())


@pytest.mark.long
def test_no_server(crew, herald):
    """Guards: UnreachableError if no host answers, also if one accepts connections and says nothing; with one host of
    several that answers, the client starts."""
    with crew(herald) as all_packages, socket.create_server((LOOPBACK, 0), backlog=100) as mute:
        closed = [free_port(), free_port()]

        def begin(case: Case) -> None:
            nowhere = herald.uri(case.dbname, closed)
            fails(case, "UnreachableError", connection=nowhere, work_connection=None)
            fails(case, "UnreachableError", connection=nowhere)
            fails(case, "UnreachableError", work_connection=nowhere)
            fails(case, "UnreachableError", connection=herald.uri(case.dbname, [mute.getsockname()[1]]), work_connection=None)
            some = herald.uri(case.dbname, [*closed, *herald.ports])
            case.listen(connection=some, work_connection=some)
            case.order_and_bill()
            case.client.stop()

        all_packages.each(begin)


def test_refused(crew, herald, stock):
    """Guards: each other cause has its type of error, on each of the two connections where it can be on both."""
    herald.primary.psql("CREATE ROLE ordinary LOGIN PASSWORD 'ordinary'")
    with crew(herald) as all_packages:
        def begin(case: Case) -> None:
            secret = herald.uri(case.dbname, herald.ports, password="wrong")
            fails(case, "AuthenticationError", connection=secret, work_connection=None)
            fails(case, "AuthenticationError", connection=secret)
            assert herald.password not in fails(case, "AuthenticationError", work_connection=secret)
            fails(case, "AuthenticationError", connection=herald.uri(case.dbname, herald.ports, "nobody_at_all"), work_connection=None)
            absent = herald.uri("no_such_database", herald.ports)
            fails(case, "DatabaseMissingError", connection=absent, work_connection=None)
            fails(case, "StoreError", table="no_such_table")
            ordinary = herald.uri(case.dbname, herald.ports, "ordinary", "ordinary")
            fails(case, "StoreError", connection=ordinary, work_connection=None)
            case.sql("GRANT ALL ON herald_consumer TO ordinary; REVOKE EXECUTE ON FUNCTION herald.listen FROM PUBLIC")
            assert "permission denied" in fails(case, "ConfigurationError", connection=ordinary, work_connection=None)
            case.sql("DROP EXTENSION pg_herald")
            fails(case, "ExtensionMissingError")

        all_packages.each(begin)
    herald.primary.psql("DROP ROLE ordinary")
    with crew(stock) as all_packages:
        all_packages.each(lambda case: fails(case, "StockServerError", require=True))
        all_packages.each(lambda case: fails(case, "StockServerError", require=True, mode="shared"))


@pytest.mark.long
def test_connection_breaks_at_the_start(crew, herald):
    """Guards: a connection that was made, and breaks before the client has started, is no server that can be reached."""
    with crew(herald) as all_packages:
        def begin(case: Case) -> None:
            with case.session() as blocker:
                blocker.execute("BEGIN; LOCK TABLE herald_consumer")
                client = case.start()
                case.until(WAITS_FOR_TABLE, "it waits for the table")
                case.terminate("true")
                client.failed("UnreachableError")

        all_packages.each(begin)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["own", "shared"])
def test_no_table_needed(crew, herald, tmp_path, mode):
    """Guards: only the transactional store needs the table; with another name it is found."""
    with crew(herald) as all_packages:
        def begin(case: Case) -> None:
            case.sql("ALTER TABLE herald_consumer RENAME TO progress_of_consumers")
            case.listen(mode=mode, store_file=str(tmp_path / case.kit.name)).stop()
            case.listen(table="progress_of_consumers").stop()
            assert case.one("SELECT position IS NOT NULL FROM progress_of_consumers")

        all_packages.each(begin)


@pytest.mark.long
def test_causes_after_the_start(crew, herald):
    """Guards: what would be an error at the start is an event later, and the client goes on as soon as the cause has gone."""
    with crew(herald) as all_packages:
        def lose(case: Case) -> None:
            client = case.listen()
            case.order_and_bill()
            for cause, cure in (("ALTER TABLE herald_consumer RENAME TO away", "ALTER TABLE away RENAME TO herald_consumer"),
                                ("DROP EXTENSION pg_herald", "CREATE EXTENSION pg_herald")):
                since = client.mark()
                case.sql(cause)
                case.terminate(f"{LISTENS} OR {WORKS}")
                for _ in range(3):
                    assert client.wait("disconnected", since)["error"]
                    since = client.mark()
                case.order()
                case.sql(cure)
                client.wait("listening", since)
                case.until_billed()
            case.finish()

        all_packages.each(lose)


@pytest.mark.long
def test_store_is_documented(crew, herald):
    """Guards: the table of clients/README.md is the one that these tests make."""
    from harness.prefix import TOP
    page = (TOP / "clients/README.md").read_text(encoding="utf-8")
    statement = page.partition("```sql\n")[2].partition("```")[0]
    columns = "SELECT array_agg(attname || ' ' || atttypid::regtype ORDER BY attnum) FROM pg_attribute" \
              " WHERE attrelid = 'herald_consumer'::regclass AND attnum > 0 AND NOT attisdropped"
    with crew(herald) as all_packages:
        case = all_packages.cases[0]
        ours = case.one(columns)
        case.sql("DROP TABLE herald_consumer")
        case.sql(statement)
        assert case.one(columns) == ours
    assert "herald_consumer" in SETUP
