"""The limit on the channels to which the sessions of one role may listen."""

import psycopg
import pytest

from faults import Doing, listen_to
from servers import SETTINGS, started
from support import hear, left_nothing, notify, one, outcome, until

ROLES = ["greedy", "modest", "third"]
CROWDS = [9, 17, 33, 65]  # numbers of listeners of one channel, for which the array of listeners has different sizes
BEYOND = "53400: too many channels for role"


@pytest.fixture(scope="module")
def shared_by_roles():
    """A server with little memory for channels, two databases, one of them without the extension, and three roles."""
    for cluster in started(preload=True, settings=SETTINGS | {"herald.channel_memory": "1536kB"}):
        cluster.psql("CREATE DATABASE without")
        for role in ROLES:
            cluster.psql(f"CREATE ROLE {role} LOGIN")
        yield cluster


@pytest.fixture
def of_role(shared_by_roles, connect):
    """of_role(role, dbname, options) opens a session of that role; all of them are closed afterwards."""
    opened = []

    def open_one(role: str, dbname: str = "postgres", options: str = "") -> psycopg.Connection:
        opened.append(psycopg.connect(host=str(shared_by_roles.socket_folder), port=shared_by_roles.port, user=role,
                                      dbname=dbname, autocommit=True, prepare_threshold=None, options=options))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()
    watcher = connect(shared_by_roles)
    until(lambda: left_nothing(watcher), "nobody listens")


def fill(connection: psycopg.Connection, prefix: str) -> int:
    """Listens on as many channels as are allowed; returns their number."""
    count, step = 0, 4096
    while step > 0:
        result = outcome(connection, listen_to(prefix, count, step))
        if result is None:
            count += step
        else:
            assert result.startswith(BEYOND), result
            step //= 2
    return count


def test_one_role_cannot_take_all(shared_by_roles, connect, of_role):
    """Guards: by default a role gets half of the memory for channels, for all its sessions and databases together. Then
    its LISTEN fails, with the reason, and changes nothing; other roles can listen. Two such roles fit, however many of
    their sessions share channels; superusers can use the rest; memory that is given back does not count."""
    first, second, sender = of_role("greedy"), of_role("greedy", "without"), connect(shared_by_roles)
    crowd = [of_role("greedy") for _ in range(CROWDS[-1])]
    first.execute("LISTEN mine")
    some = 1000
    second.execute(listen_to("elsewhere", 0, some))
    for listeners in CROWDS:
        for session in crowd[:listeners]:
            session.execute(f"LISTEN crowd_of_{listeners}")
    allowed = 1 + some + sum(CROWDS) + fill(first, "full")
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded) as caught:
        second.execute("LISTEN another")
    assert caught.value.diag.message_primary == 'too many channels for role "greedy"'
    assert f"would listen to {allowed + 1} channels" in caught.value.diag.message_detail
    assert f"herald.max_channels_per_role allows {allowed}." in caught.value.diag.message_detail
    assert "herald.max_channels_per_role" in caught.value.diag.message_hint
    assert one(second, "SELECT count(*) FROM pg_listening_channels()") == some
    assert outcome(of_role("greedy", "without"), "LISTEN c").startswith(BEYOND)
    notify(sender, "mine", "heard")
    assert hear(first, 1) == ["heard"]

    modest, third = of_role("modest"), of_role("third")
    assert fill(modest, "modest") == allowed
    sender.execute("LISTEN superuser")
    assert outcome(third, "LISTEN third") is None
    second.execute("UNLISTEN elsewhere_0")
    first.execute("LISTEN another")
    assert outcome(first, "LISTEN one_more").startswith(BEYOND)
    notify(sender, "another", "heard, too")
    assert hear(first, 1) == ["heard, too"]
    sender.execute("UNLISTEN *")


def test_limit_for_a_role(shared_by_roles, connect, of_role):
    """Guards: the limit can be set for a role, by superusers only, and applies to a transaction as a whole: channels
    that it unlistens count until it has committed, channels that it rolls back do not count; 0 forbids LISTEN."""
    superuser = connect(shared_by_roles)
    superuser.execute("ALTER ROLE modest SET herald.max_channels_per_role = 10")
    try:
        session, other = of_role("modest"), of_role("modest")
        assert outcome(session, "SET herald.max_channels_per_role = 11") == \
            '42501: permission denied to set parameter "herald.max_channels_per_role"'
        session.execute(listen_to("m", 0, 6))
        other.execute(listen_to("m", 0, 4))  # a channel counts for each session that listens on it
        session.execute("LISTEN m_0; UNLISTEN m_0; LISTEN m_0")
        assert outcome(session, "LISTEN m_6").startswith(BEYOND)
        assert outcome(session, "BEGIN; UNLISTEN m_0; LISTEN m_6; COMMIT").startswith(BEYOND)
        session.execute("ROLLBACK")
        session.execute("BEGIN; SAVEPOINT s; LISTEN m_6; ROLLBACK TO s; UNLISTEN m_0; COMMIT")
        session.execute("LISTEN m_6")
        assert session.execute("SELECT * FROM pg_listening_channels() ORDER BY 1").fetchall() == \
            [(f"m_{n}",) for n in range(1, 7)]
        notify(superuser, "m_6", "heard")
        assert hear(session, 1) == ["heard"]
        assert superuser.execute("SELECT channels FROM herald.listeners ORDER BY 1").fetchall() == [(4,), (6,)]
        other.close()
        until(lambda: outcome(session, "LISTEN m_7") is None, "the other has gone")
        superuser.execute("ALTER ROLE modest SET herald.max_channels_per_role = 0")
        assert outcome(of_role("modest"), "LISTEN c").startswith(BEYOND)
        superuser.execute("SET herald.max_channels_per_role = 0")
        superuser.execute("LISTEN superusers_are_exempt; UNLISTEN *")
    finally:
        superuser.execute("ALTER ROLE modest RESET ALL")


def test_at_the_same_time(shared_by_roles, connect, of_role):
    """Guards: sessions that LISTEN at the same time do not exceed the limit together."""
    superuser = connect(shared_by_roles)
    superuser.execute("ALTER ROLE modest SET herald.max_channels_per_role = 5")
    try:
        sessions = [of_role("modest") for _ in range(10)]
        for number in range(30):
            doing = [Doing(session, f"LISTEN c_{number}") for session in sessions]
            errors = [one_of_them.end() for one_of_them in doing]
            assert sum(error is None for error in errors) <= 5
            assert all(isinstance(error, psycopg.errors.ConfigurationLimitExceeded) for error in errors if error)
            assert one(superuser, "SELECT coalesce(sum(channels), 0) FROM herald.listeners") == errors.count(None)
            for session in sessions:
                session.execute("UNLISTEN *")
    finally:
        superuser.execute("ALTER ROLE modest RESET ALL")


def test_room_of_listeners_that_have_left(shared_by_roles, connect):
    """Guards: when listeners of a channel leave, their memory is given back, although one remains: a role's memory is
    bounded by the channels to which it listens."""
    stays, *leave = [connect(shared_by_roles) for _ in range(17)]
    for number in range(12):
        for session in [stays, *leave]:
            session.execute(listen_to(f"round_{number}", 0, 300))
        for session in leave:
            session.execute("UNLISTEN *")
    assert one(leave[0], "SELECT count(*) FROM herald.channels WHERE listeners = 1") == 3600
    notify(leave[0], "round_11_299", "heard")
    assert hear(stays, 1) == ["heard"]
    stays.execute("UNLISTEN *")
    until(lambda: left_nothing(stays), "nobody listens")
