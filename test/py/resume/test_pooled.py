"""herald.read() through PgBouncer in transaction mode, where each call can run in another session."""

import threading
import time

import psycopg
import pytest

from harness.bouncer import POOL_OF_ONE, Bouncer
from harness.cluster import SUPERUSER
from resume import position, read
from support import left_nothing, notify, one, state_of, until

CLIENTS = 12
NOTIFICATIONS = 500


@pytest.fixture(scope="module")
def bouncer(cluster):
    """PgBouncer in front of a server, with fewer sessions than clients."""
    with Bouncer(cluster, "no password by a unix socket", pool_mode="transaction") as running:
        yield running


@pytest.fixture
def pooled(bouncer):
    """Opens clients of the pool, which are closed at the end."""
    clients = []

    def make(database: str = "postgres") -> psycopg.Connection:
        clients.append(psycopg.connect(host=str(bouncer.folder), port=bouncer.port, dbname=database, user=SUPERUSER,
                                       autocommit=True, prepare_threshold=None))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def test_every_client_reads_everything(cluster, connect, pooled):
    """Guards: clients that share sessions, and may use another one for each call, each read all that was sent after
    their position, once and in order; nothing is left in the sessions."""
    sender, first = connect(cluster), position(pooled())
    found, pids, problems = [[] for _ in range(CLIENTS)], set(), []

    def reads(number: int, client: psycopg.Connection) -> None:
        token = first
        try:
            while len(found[number]) < NOTIFICATIONS:
                rows = client.execute("SELECT payload, position, pg_backend_pid()"
                                      " FROM herald.read('c', %s, 40, '50ms')", (token,)).fetchall()
                found[number] += [payload for payload, _, _ in rows if payload is not None]
                _, token, pid = rows[-1]
                pids.add(pid)
        except psycopg.Error as problem:
            problems.append(problem)

    readers = [threading.Thread(target=reads, args=(number, pooled())) for number in range(CLIENTS)]
    for reader in readers:
        reader.start()
    for number in range(NOTIFICATIONS):
        notify(sender, "c", str(number))
        time.sleep(number % 3 / 1000)
    for reader in readers:
        reader.join(60)
    assert not problems
    assert found == [[str(number) for number in range(NOTIFICATIONS)]] * CLIENTS
    assert len(pids) > 1
    until(lambda: left_nothing(sender), "nobody listens")


def test_one_session_for_two(cluster, connect, pooled):
    """Guards: a client that reads in the session in which another has waited before receives its own channel's."""
    sender, one_client, other = connect(cluster), pooled(POOL_OF_ONE), pooled(POOL_OF_ONE)
    token = position(one_client)
    notify(sender, "c", "c1")
    notify(sender, "d", "d1")
    for client, channel in ((one_client, "c"), (other, "d"), (one_client, "c")):
        payloads, after = read(client, channel, token, 10, "1s")
        assert payloads == [f"{channel}1"]
        assert read(client, channel, after, 10, "10ms")[0] == []
    assert len({one(client, "SELECT pg_backend_pid()") for client in (one_client, other)}) == 1


def test_client_that_goes(cluster, connect, pooled):
    """Guards: when a waiting client of the pool disconnects, the wait ends."""
    watcher, client = connect(cluster), pooled(POOL_OF_ONE)
    pid = one(client, "SELECT pg_backend_pid()")
    cursor = client.pgconn
    cursor.send_query(b"SELECT * FROM herald.read('c', wait => '60s')")
    cursor.flush()
    until(lambda: state_of(watcher, pid) == "idle", "it waits")
    client.close()
    until(lambda: left_nothing(watcher), "nobody listens")
