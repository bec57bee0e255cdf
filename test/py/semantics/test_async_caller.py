"""A C function that calls the server's LISTEN, UNLISTEN and NOTIFY by itself (test/modules/async_caller)."""

import psycopg
import pytest

from c_api import built
from harness.cluster import Cluster
from support import hear, hear_until, notify, one, outcome, state_of

pytestmark = pytest.mark.seam


@pytest.fixture(scope="module")
def module():
    with built("async_caller") as path:
        yield path


@pytest.fixture
def connect(connect, module):
    """connect(cluster, dbname) opens a connection with the module's functions, in pg_temp."""
    def open_one(cluster: Cluster, dbname: str = "postgres") -> psycopg.Connection:
        connection = connect(cluster, dbname)
        for name, parameters in (("listen", "text"), ("unlisten", "text"), ("notify", "text, text")):
            connection.execute(f"CREATE FUNCTION pg_temp.async_{name}({parameters}) RETURNS void"
                               f" LANGUAGE C STRICT AS '{module}'")
        return connection

    return open_one


def send_every_way(sender: psycopg.Connection, channel: str) -> None:
    """Sends four notifications; with pg_herald the first two go through its queue."""
    sender.execute(f"NOTIFY {channel}, 'statement'")
    notify(sender, channel, "function")
    sender.execute(f"SELECT pg_temp.async_notify('{channel}', 'C')")
    sender.execute("SET herald.enabled = off")  # a stock server accepts this setting, too
    sender.execute(f"NOTIFY {channel}, 'switched off'")
    sender.execute("RESET herald.enabled")


def heard_with_end(listener: psycopg.Connection, sender: psycopg.Connection) -> list[str]:
    """The listener's payloads, once a notification sent after all others has arrived through each of the two queues."""
    listener.execute("LISTEN ends")
    sender.execute("SELECT pg_temp.async_notify('ends', 'end of the native')")
    native = hear_until(listener, "end of the native")
    sender.execute("NOTIFY ends, 'end'")
    heard = native + hear_until(listener, "end")
    listener.execute("UNLISTEN ends")
    return sorted(heard)


ALL = ["C", "function", "statement", "switched off"]
NATIVE = ["C", "switched off"]


@pytest.mark.parametrize("has_herald", [False, True], ids=["stock", "pg_herald"])
def test_listen_from_c(cluster, stock, connect, has_herald):
    """Guards: with pg_herald, a session that listens by Async_Listen() alone receives only native notifications, not
    even its own NOTIFY; LISTEN on another channel does not change that; LISTEN on this channel does."""
    server = cluster if has_herald else stock
    listener, sender = connect(server), connect(server)
    listener.execute("SELECT pg_temp.async_listen('c')")
    assert listener.execute("SELECT pg_listening_channels()").fetchall() == [("c",)]
    if has_herald:
        assert state_of(sender, listener.info.backend_pid) is None

    send_every_way(sender, "c")
    listener.execute("NOTIFY c, 'own'")
    assert heard_with_end(listener, sender) == (NATIVE if has_herald else sorted([*ALL, "own"]))

    listener.execute("LISTEN d")
    send_every_way(sender, "c")
    assert heard_with_end(listener, sender) == (NATIVE if has_herald else ALL)

    listener.execute("LISTEN c")
    send_every_way(sender, "c")
    listener.execute("NOTIFY c, 'own'")
    assert heard_with_end(listener, sender) == sorted([*ALL, "own"])


def test_notify_from_c(both, cluster, connect):
    """Guards: a C function's notifications are sent natively: to every listener, by whatever means it listens, and to
    the sender itself, if its transaction commits; pg_herald does not count them."""
    def run(server: Cluster) -> list:
        by_statement, switched_off, by_c, sender = (connect(server) for _ in range(4))
        switched_off.execute("SET herald.enabled = off")
        by_c.execute("SELECT pg_temp.async_listen('c')")
        for session in (by_statement, switched_off, sender):
            session.execute("LISTEN c")
        with sender.transaction():
            sender.execute("SELECT pg_temp.async_notify('c', g::text) FROM generate_series(1, 3) g")
            sender.execute("SELECT pg_temp.async_notify('c', '1')")
        with sender.transaction() as failing:
            sender.execute("SELECT pg_temp.async_notify('c', 'rolled back')")
            raise psycopg.Rollback(failing)
        sender.execute("SELECT pg_temp.async_notify('c', 'end')")
        return [hear(session, 4) for session in (by_statement, switched_off, by_c, sender)]

    before = cluster.psql("SELECT notifications FROM herald.stats")
    assert both(run) == [["1", "2", "3", "end"]] * 4
    assert cluster.psql("SELECT notifications FROM herald.stats") == before


@pytest.mark.parametrize("has_herald", [False, True], ids=["stock", "pg_herald"])
def test_unlisten_from_c(cluster, stock, connect, has_herald):
    """Guards: with pg_herald, Async_Unlisten() stops only native notifications; UNLISTEN stops the others."""
    server = cluster if has_herald else stock
    listener, sender = connect(server), connect(server)
    listener.execute("LISTEN c")
    listener.execute("LISTEN d")
    listener.execute("SELECT pg_temp.async_unlisten('c')")
    assert listener.execute("SELECT pg_listening_channels()").fetchall() == [("d",)]
    send_every_way(sender, "c")
    assert heard_with_end(listener, sender) == (["function", "statement"] if has_herald else [])
    listener.execute("UNLISTEN c")
    send_every_way(sender, "c")
    assert heard_with_end(listener, sender) == []


@pytest.mark.parametrize("cure", ["LISTEN d", "UNLISTEN *"])
def test_unlisten_of_the_last_channel_from_c(cluster, connect, cure):
    """Guards: a session whose only channel was removed by a C function is not woken up any more, and keeps pg_herald's
    queue from being truncated, until it executes LISTEN or UNLISTEN."""
    listener, sender = connect(cluster), connect(cluster)
    pid = listener.info.backend_pid
    listener.execute("LISTEN c")
    listener.execute("SELECT pg_temp.async_unlisten('c')")
    notify(sender, "c", "1")
    for _ in range(2):
        assert one(sender, "SELECT pending_bytes FROM herald.listeners WHERE pid = %s", pid) > 0
        listener.execute("SELECT 1")
    listener.execute(cure)
    if cure.startswith("LISTEN"):
        assert hear(listener, 1) == ["1"]
        listener.execute("UNLISTEN *")
    assert state_of(sender, pid) is None


@pytest.mark.parametrize("channel", ["herald_position", "herald_reset"])
def test_own_channels_cannot_be_forged(cluster, connect, channel):
    """Guards: on the channels by which pg_herald notifies one session, no other session can send, not even by a path
    that no hook sees; UNLISTEN removes these channels."""
    listener, stranger = connect(cluster), connect(cluster)
    listener.execute(f"LISTEN {channel}")
    listener.execute("LISTEN c")
    for statement, error in ((f"NOTIFY {channel}, 'forged'", True), (f"SELECT pg_notify('{channel}', 'forged')", True),
                             (f"SELECT pg_temp.async_notify('{channel}', 'forged')", False)):
        assert (outcome(stranger, statement) == f'42939: channel name "{channel}" is reserved') is error
    notify(stranger, "c", "end")
    heard: set[tuple[str, int, str]] = set()
    while not any(name == "c" for name, _, _ in heard):
        heard |= {(told.channel, told.pid, told.payload) for told in listener.notifies(timeout=20, stop_after=1)}
    assert "forged" not in {payload for _, _, payload in heard}
    assert {pid for name, pid, _ in heard if name != "c"} <= {listener.info.backend_pid}
    listener.execute("UNLISTEN c")
    assert one(listener, "SELECT count(*) FROM pg_listening_channels()") == 1
    listener.execute(f"UNLISTEN {channel}")
    assert one(listener, "SELECT count(*) FROM pg_listening_channels()") == 0


@pytest.fixture
def laggard_elsewhere(cluster, connect):
    """laggard_elsewhere(count) leaves count pages in the server's own queue, for a session of another database."""
    cluster.psql("CREATE DATABASE busy_queue")  # has no extension
    laggard, stranger = connect(cluster, "busy_queue"), connect(cluster, "busy_queue")
    for statement in ("LISTEN c", "BEGIN", "SELECT 1"):
        laggard.execute(statement)
    yield lambda count: stranger.execute(
        f"SELECT count(pg_notify('c', n || repeat('x', 7000))) FROM generate_series(1, {count}) n")
    laggard.close()
    stranger.close()
    cluster.psql("DROP DATABASE busy_queue WITH (FORCE)")


def test_in_order_beside_a_first_listen(cluster, connect, laggard_elsewhere):
    """Guards: a session's transactions arrive in order, including one that executes the session's first LISTEN, while
    a session in another database uses a little of the server's own queue."""
    listener = connect(cluster)
    listener.execute("LISTEN c")
    laggard_elsewhere(5)
    for number in range(20):
        with connect(cluster) as beginner:
            beginner.execute(f"NOTIFY c, '{number} first'")
            beginner.execute(f"BEGIN; LISTEN c; NOTIFY c, '{number} second'; COMMIT")
            assert hear(listener, 2) == [f"{number} first", f"{number} second"]


def test_once_beside_the_first_listen(cluster, connect, laggard_elsewhere):
    """Guards: a native notification that no hook sees, sent in the transaction of the session's first LISTEN, arrives
    once, while a session in another database fills the server's own queue."""
    beginner, sender = connect(cluster), connect(cluster)
    laggard_elsewhere(150)
    with beginner.transaction():
        beginner.execute("LISTEN d")
        notify(beginner, "d", "seen")
        beginner.execute("SELECT pg_temp.async_notify('d', 'unseen')")
        notify(beginner, "d", "seen, too")
    assert one(sender, "SELECT pg_notification_queue_usage() > 0.0001")
    notify(sender, "d", "end")
    assert hear_until(beginner, "end") == ["unseen", "seen", "seen, too"]
