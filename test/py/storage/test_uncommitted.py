"""How much of the queue the uncommitted notifications of one role may take."""

import psycopg
import pytest

from laggards import KILOBYTES_7, SMALLEST, files
from servers import SETTINGS, started
from support import one, outcome, until

BEYOND = '53400: too many uncommitted notifications of role "greedy"'
MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def small_queue():
    """A server with a queue of 64 MB, a second database, and two roles."""
    for cluster in started(preload=True, settings=SETTINGS | SMALLEST | {"herald.max_queue_size": "64MB"}):
        cluster.psql("CREATE DATABASE another")
        cluster.create_herald("another")
        for role in ("greedy", "modest"):
            cluster.psql(f"CREATE ROLE {role} LOGIN")
        yield cluster


@pytest.fixture
def of_role(small_queue):
    """of_role(role, dbname) opens a session of that role; after the test all are closed, and no file is left."""
    opened = []

    def open_one(role: str, dbname: str = "postgres") -> psycopg.Connection:
        opened.append(psycopg.connect(host=str(small_queue.socket_folder), port=small_queue.port, user=role, dbname=dbname,
                                      autocommit=True))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()
    until(lambda: not files(small_queue.data), "no file is left")


def notify_megabytes(connection: psycopg.Connection, count: int) -> str:
    """Notifies c of `count` megabytes in the open transaction; returns an error as "SQLSTATE: message"."""
    return outcome(connection, f"SELECT count(pg_notify('c', n || '{KILOBYTES_7}'))"
                               f" FROM generate_series(1, {count * MEGABYTE // len(KILOBYTES_7)}) n")


def test_others_have_room(small_queue, of_role, connect):
    """Guards: sessions of one role can have at most half of the queue uncommitted, in all databases together; another
    role's large transaction finds room, as does a superuser's, and the role's own once it has freed room."""
    first, second, third = of_role("greedy"), of_role("greedy", "another"), of_role("greedy")
    stranger, superuser = of_role("modest"), connect(small_queue)
    for session in (first, second, third):
        session.execute("BEGIN")
    assert notify_megabytes(first, 16) != BEYOND and notify_megabytes(second, 14) != BEYOND
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded) as error:
        third.execute(f"SELECT count(pg_notify('c', n || '{KILOBYTES_7}')) FROM generate_series(1, 1000) n")
    assert f"53400: {error.value.diag.message_primary}" == BEYOND
    assert "herald.max_uncommitted_per_role allows 32768 kB." in error.value.diag.message_detail
    for other in (stranger, superuser):
        assert not isinstance(notify_megabytes(other, 12), str)
    first.execute("ROLLBACK")
    third.execute("ROLLBACK; BEGIN")
    assert not isinstance(notify_megabytes(third, 12), str)
    third.execute("COMMIT")
    assert not isinstance(notify_megabytes(second, 12), str), "what is committed does not count"


def test_setting(small_queue, of_role, connect):
    """Guards: only superusers can set it, for a role; 0 refuses large transactions, and no others."""
    superuser = connect(small_queue)
    superuser.execute("ALTER ROLE greedy SET herald.max_uncommitted_per_role = 0")
    session = of_role("greedy")
    assert one(session, "SHOW herald.max_uncommitted_per_role") == "0"
    assert outcome(session, "SET herald.max_uncommitted_per_role = -1").startswith("42501: ")
    assert notify_megabytes(session, 2) == BEYOND
    session.execute("NOTIFY c")
    superuser.execute("ALTER ROLE greedy RESET herald.max_uncommitted_per_role")
    assert not isinstance(notify_megabytes(of_role("greedy"), 2), str)
