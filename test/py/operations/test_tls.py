"""Listeners over TCP with TLS that log in with a password by SCRAM; on a stock server as well."""

import shutil
import subprocess
import threading

import psycopg
import pytest

from harness.cluster import Cluster
from harness.ports import free_port
from servers import SETTINGS, need_tls, started
from support import hear, load, notify, one, outcome

pytestmark = pytest.mark.seam

PASSWORD = "not so secret"
NOTIFICATIONS = 10_000


def secure(cluster: Cluster) -> None:
    """Gives the server a key and a certificate, and allows a role to log in over TLS with a password only."""
    certificate, key = cluster.data / "server.crt", cluster.data / "server.key"
    subprocess.run(["openssl", "req", "-new", "-x509", "-days", "2", "-nodes", "-newkey", "rsa:2048",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
                    "-keyout", key, "-out", certificate], check=True, capture_output=True)
    owner = cluster.data.stat()
    for path in (certificate, key):
        shutil.chown(path, owner.st_uid, owner.st_gid)
        path.chmod(0o600)
    cluster.psql(f"CREATE ROLE remote LOGIN PASSWORD '{PASSWORD}'")
    (cluster.data / "pg_hba.conf").write_text(
        "local all postgres trust\nhostssl all remote 127.0.0.1/32 scram-sha-256\n", encoding="ascii")
    cluster.settings.update(ssl=True, listen_addresses="127.0.0.1")
    cluster.restart()


@pytest.fixture(scope="module", params=[True, False], ids=["pg_herald", "stock"])
def secured(request):
    """A server that accepts connections by TCP with TLS and a password, with pg_herald or without."""
    need_tls()
    for cluster in started(preload=request.param, settings=SETTINGS, port=free_port()):
        secure(cluster)
        yield cluster


@pytest.fixture
def dial(secured):
    """dial(**options): a connection over TLS that has verified the server's certificate."""
    opened = []

    def open_one(**options: str) -> psycopg.Connection:
        parameters = {"host": "127.0.0.1", "port": secured.port, "user": "remote", "password": PASSWORD,
                      "dbname": "postgres", "sslmode": "verify-full", "channel_binding": "require",
                      "sslrootcert": str(secured.data / "server.crt"), **options}
        opened.append(psycopg.connect(autocommit=True, prepare_threshold=None, **parameters))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()


def test_connections_are_checked(dial):
    """Guards: connections of the other tests use TLS and TCP, and the server accepts no others."""
    listener = dial()
    assert one(listener, "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
    assert one(listener, "SELECT host(inet_client_addr())") == "127.0.0.1"
    for options in ({"password": "wrong"}, {"sslmode": "disable", "channel_binding": "disable"}):
        with pytest.raises(psycopg.OperationalError):
            dial(**options)


def test_ten_thousand_over_tls(secured, dial, connect):
    """Guards: a stream of notifications of many sizes arrives whole, in order, once, over TLS."""
    listeners, sender = [dial() for _ in range(3)], connect(secured)
    for listener in listeners:
        listener.execute("LISTEN c")
    words = [f"{number} " + "x" * (number * 37 % 700) for number in range(NOTIFICATIONS)]

    def send() -> None:
        for start in range(0, NOTIFICATIONS, 10):
            with sender.transaction():
                notify(sender, "c", *words[start:start + 10])

    sending = threading.Thread(target=send)
    sending.start()
    try:
        for listener in listeners:
            heard = hear(listener, NOTIFICATIONS)
            assert len(heard) == NOTIFICATIONS and heard == words
    finally:
        sending.join()


def test_both_ways_over_tls(dial):
    """Guards: notifications sent over TLS arrive over TLS, also at the sender, between answers of every length."""
    clients = [dial() for _ in range(2)]
    for client in clients:
        client.execute("LISTEN c")
    for number in range(200):
        length = number * 997 % 40000
        answer = one(clients[number % 2], f"SELECT repeat('x', {length}) FROM pg_notify('c', '{number}')")
        assert len(answer) == length
    for client in clients:
        assert hear(client, 200) == [str(number) for number in range(200)]


def test_statements_between_notifications(secured, dial):
    """Guards: a listener over TLS can run statements while notifications arrive."""
    listener = dial()
    listener.execute("LISTEN load")
    with load(secured, "NOTIFY load, 'x';", clients=2):
        heard = 0
        for number in range(300):
            assert outcome(listener, f"SELECT {number}") == [(number,)]
            heard += len(hear(listener, 5))
    assert heard == 1500
