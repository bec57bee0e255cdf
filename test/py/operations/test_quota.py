"""The limit on the channel memory that the sessions of one role may use."""

import re
from random import Random

import psycopg
import pytest

from faults import Doing, listen_to
from servers import SETTINGS, started
from support import hear, left_nothing, notify, one, outcome, until

ROLES = ["greedy", "modest", "third"]
CROWDS = [5, 6, 43, 44, 65]  # numbers of listeners of one channel: in its entry, in one block more, in two
CHANNEL, BLOCK, IN_ENTRY, IN_BLOCK = 208, 160, 5, 38  # bytes; listeners
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


def bytes_of(listeners: int) -> int:
    """What a channel takes of the memory."""
    return CHANNEL + BLOCK * -(-max(0, listeners - IN_ENTRY) // IN_BLOCK)


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
    alone = 1 + some + fill(first, "full")
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded) as caught:
        second.execute("LISTEN another")
    assert caught.value.diag.message_primary == 'too many channels for role "greedy"'
    used, allowed = (int(found) for found in re.findall(r"(\d+) kB", caught.value.diag.message_detail))
    assert used == allowed + 1 and 0 <= allowed * 1024 - alone * CHANNEL - sum(map(bytes_of, CROWDS)) < CHANNEL
    assert "herald.max_channel_memory_per_role" in caught.value.diag.message_hint
    assert one(second, "SELECT count(*) FROM pg_listening_channels()") == some
    assert outcome(of_role("greedy", "without"), "LISTEN c").startswith(BEYOND)
    notify(sender, "mine", "heard")
    assert hear(first, 1) == ["heard"]

    modest, third = of_role("modest"), of_role("third")
    assert fill(modest, "modest") == allowed * 1024 // CHANNEL
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
    superuser.execute("ALTER ROLE modest SET herald.max_channel_memory_per_role = '2kB'")
    try:
        session, other = of_role("modest"), of_role("modest")
        assert outcome(session, "SET herald.max_channel_memory_per_role = '3kB'") == \
            '42501: permission denied to set parameter "herald.max_channel_memory_per_role"'
        session.execute(listen_to("m", 0, 6))
        other.execute(listen_to("other", 0, 3))
        session.execute("LISTEN m_0; UNLISTEN m_0; LISTEN m_0")
        assert outcome(session, "LISTEN m_6").startswith(BEYOND)
        assert outcome(session, "BEGIN; UNLISTEN m_0; LISTEN m_6; COMMIT").startswith(BEYOND)
        session.execute("ROLLBACK")
        session.execute("BEGIN; SAVEPOINT s; LISTEN m_6; ROLLBACK TO s; UNLISTEN m_0; COMMIT")
        session.execute("LISTEN m_6")
        assert session.execute("SELECT * FROM pg_listening_channels() ORDER BY 1").fetchall() == \
            [(f"m_{n}",) for n in range(1, 7)]
        assert outcome(other, "LISTEN other_3").startswith(BEYOND)
        notify(superuser, "m_6", "heard")
        assert hear(session, 1) == ["heard"]
        assert superuser.execute("SELECT channels FROM herald.listeners ORDER BY 1").fetchall() == [(3,), (6,)]
        other.close()
        until(lambda: outcome(session, "LISTEN m_7") is None, "the other has gone")
        superuser.execute("ALTER ROLE modest SET herald.max_channel_memory_per_role = 0")
        assert outcome(of_role("modest"), "LISTEN c").startswith(BEYOND)
        superuser.execute("SET herald.max_channel_memory_per_role = 0")
        superuser.execute("LISTEN superusers_are_exempt; UNLISTEN *")
    finally:
        superuser.execute("ALTER ROLE modest RESET ALL")


def test_at_the_same_time(shared_by_roles, connect, of_role):
    """Guards: sessions that LISTEN at the same time do not exceed the limit together."""
    superuser = connect(shared_by_roles)
    superuser.execute("ALTER ROLE modest SET herald.max_channel_memory_per_role = '1kB'")
    try:
        sessions = [of_role("modest") for _ in range(10)]
        for number in range(30):
            doing = [Doing(session, f"LISTEN c_{number}_{i}") for i, session in enumerate(sessions)]
            errors = [one_of_them.end() for one_of_them in doing]
            assert sum(error is None for error in errors) <= 1024 // CHANNEL
            assert all(isinstance(error, psycopg.errors.ConfigurationLimitExceeded) for error in errors if error)
            assert one(superuser, "SELECT coalesce(sum(channels), 0) FROM herald.listeners") == errors.count(None)
            for session in sessions:
                session.execute("UNLISTEN *")
    finally:
        superuser.execute("ALTER ROLE modest RESET ALL")


def test_shared_channels_at_the_same_time(shared_by_roles, of_role):
    """Guards: many sessions of a role that LISTEN to the same channels at the same time, and leave them, are not refused
    while the channels' memory is within the limit; and afterwards nothing counts."""
    sessions = [of_role("modest") for _ in range(60)]
    for _ in range(3):
        doing = [Doing(session, listen_to("shared", 0, 1000)) for session in sessions]
        assert [one_of_them.end() for one_of_them in doing] == [None] * len(sessions)
        doing = [Doing(session, "UNLISTEN *") for session in sessions]
        assert [one_of_them.end() for one_of_them in doing] == [None] * len(sessions)
    allowed = fill(sessions[0], "alone")
    assert allowed == fill(of_role("third"), "third")


def test_channels_that_are_left_to_others(shared_by_roles, connect, of_role):
    """Guards: all that channels take counts for some of their listeners, nothing twice, whichever of them leave, in
    whatever order; each listener that stays is still notified."""
    superuser, random = connect(shared_by_roles), Random(7)
    allowed = 100 * 1024
    for role in ("modest", "third"):
        superuser.execute(f"ALTER ROLE {role} SET herald.max_channel_memory_per_role = '100kB'")
    try:
        sessions = [of_role("modest") for _ in range(50)] + [of_role("third") for _ in range(50)]
        alone = {role: of_role(role) for role in ("modest", "third")}
        random.shuffle(sessions)
        for session in sessions:
            session.execute(listen_to("c", 0, 60))
        while sessions:
            free = sum(fill(session, role) for role, session in alone.items()) * CHANNEL
            assert 0 <= 2 * allowed - free - 60 * bytes_of(len(sessions)) < 2 * CHANNEL
            for session in alone.values():
                session.execute("UNLISTEN *")
            leave = random.sample(sessions, min(len(sessions), 19))
            sessions = [session for session in sessions if session not in leave]
            doing = [Doing(session, "UNLISTEN *") for session in leave]
            assert [one_of_them.end() for one_of_them in doing] == [None] * len(leave)
            notify(superuser, "c_7", "heard")
            assert all(hear(session, 1) == ["heard"] for session in sessions)
        assert {fill(session, role) for role, session in alone.items()} == {allowed // CHANNEL}
    finally:
        for role in ("modest", "third"):
            superuser.execute(f"ALTER ROLE {role} RESET ALL")


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
