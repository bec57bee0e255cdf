"""Many connections at once that send random messages to one server with pg_herald, in pieces.

They break off within messages, do not read the answers, cancel each other's queries, and disappear.
Nothing is compared, but the server must not crash or hang; afterwards a new connection must receive
what it notifies, and no listener, file or queue entry may be left over.
"""

import select
import socket
import struct
import time
from contextlib import contextmanager
from random import Random

from harness.cluster import SUPERUSER, Cluster
from laggards import files, no_leak
from messages import Writer, fence
from sessions import DATABASES, SETTINGS, prepare_server
from support import until
from wire import Wire, payloads

CONNECTIONS = 14
DEAF_ONE_IN = 4            # one connection in this number reads nothing
UNSENT_MAX = 1_000_000     # bytes
REST_S = 60                # the time in which all backends must end
CANCEL_CODE = 80877102
VERSION_3 = 196608
ACTIONS = ("send",) * 12 + ("read",) * 8 + ("cancel", "cancel", "close", "half close", "terminate")


class Storm:
    """Random actions on connections to one server."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.notify = int(cluster.psql("SELECT 'herald.pg_notify'::regproc::oid", DATABASES[0]))
        self.actions = 0
        self.bursts = 0
        self.ends = 0

    def blow(self, seed: int, seconds: float) -> None:
        """Performs random actions for `seconds`, and then closes all connections."""
        random = Random(seed)
        connections: list[Connection | None] = [None] * CONNECTIONS
        control = Wire(self.cluster, DATABASES[0])
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.actions += 1
            place = random.randrange(CONNECTIONS)
            connection = connections[place]
            if connection is None or connection.ended:
                self.ends += connection is not None
                connections[place] = Connection(self.cluster, random)
            else:
                self._act(random, connection, control)
        for connection in filter(None, connections):
            connection.close()
        control.close()

    def _act(self, random: Random, connection: "Connection", control: Wire) -> None:
        action = random.choice(ACTIONS)
        if action == "send":
            self.bursts += 1
            writer = Writer(random, self.bursts, self.notify, wild=True)
            connection.pend(writer.burst().bytes() + fence(1_000_000))
            connection.send(None if random.random() < 0.8 else random.randrange(1, 30))
        elif action == "read":
            connection.send(None)
            connection.read()
        elif action == "cancel" and connection.key:
            with connect(self.cluster) as other:
                other.sendall(startup(CANCEL_CODE, connection.key))
        elif action == "terminate" and connection.key and random.random() < 0.2:
            control.query(f"SELECT pg_terminate_backend({struct.unpack('!I', connection.key[:4])[0]})")
        elif action == "half close":
            connection.shutdown()
        elif action == "close" and random.random() < 0.3:
            connection.close()

    def check(self) -> None:
        """Checks that nothing is left over, and that the server works."""
        connected = "SELECT count(*) FROM pg_stat_activity" \
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        queued = "SELECT (SELECT count(*) FROM herald.listeners), used, spilled FROM herald.queue"
        until(lambda: self._ask(connected) == "0", "all backends have gone", REST_S)
        until(lambda: self._ask(queued) == "0|0|0", "nobody listens, nothing is to be read", REST_S)
        until(lambda: not files(self.cluster.data), "no file is left")
        for database in DATABASES:
            assert self.cluster.psql("SELECT count(*) FROM herald.channels", database) == "0"
            client = Wire(self.cluster, database)
            client.query("LISTEN a")
            for number in range(20):
                assert payloads(client.query(f"NOTIFY a, '{number}'")) == [str(number)]
            client.close()
        no_leak(self.cluster)
        assert not self.cluster.damage(), self.cluster.damage()

    def _ask(self, sql: str) -> str:
        return self.cluster.psql(sql, DATABASES[0], timeout_s=REST_S)


class Connection:
    """A connection on which nothing waits."""

    def __init__(self, cluster: Cluster, random: Random):
        self.socket = connect(cluster)
        self.socket.setblocking(False)
        self.deaf = random.randrange(DEAF_ONE_IN) == 0
        self.ended = False
        self.key = b""
        self.received = b""
        parameters = b"".join(part.encode() + b"\0" for part in
                              ("user", SUPERUSER, "database", random.choice(DATABASES), ""))
        self.unsent = startup(VERSION_3, parameters)
        if random.random() < 0.05:
            self.unsent = self.unsent[:random.randrange(len(self.unsent))] + random.randbytes(9)
        self.send(None)

    def pend(self, data: bytes) -> None:
        """Adds data to be sent, unless the server has not accepted much lately."""
        if len(self.unsent) < UNSENT_MAX:
            self.unsent += data

    def send(self, limit: int | None) -> None:
        """Sends as much as the socket accepts, but at most `limit` bytes."""
        try:
            sent = self.socket.send(self.unsent[:limit]) if self.unsent else 0
            self.unsent = self.unsent[sent:]
        except BlockingIOError:
            pass
        except OSError:
            self.close()

    def read(self) -> None:
        """Reads and discards all that has arrived, except the key."""
        while not self.ended and not (self.deaf and self.key) and select.select([self.socket], [], [], 0)[0]:
            try:
                data = self.socket.recv(65536)
            except OSError:
                data = b""
            if not data:
                self.close()
            elif not self.key:
                self.received += data
                place = self.received.find(b"K\0\0\0\x0c")
                if place >= 0 and len(self.received) >= place + 13:
                    self.key = self.received[place + 5:place + 13]
                    self.received = b""

    def shutdown(self) -> None:
        """Ends the connection's input; answers may still be read."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.close()

    def close(self) -> None:
        """Closes the connection at once."""
        self.ended = True
        self.socket.close()


def connect(cluster: Cluster) -> socket.socket:
    """A connection on which nothing has been sent yet."""
    one = socket.socket(socket.AF_UNIX)
    one.connect(str(cluster.socket_folder / f".s.PGSQL.{cluster.port}"))
    return one


def startup(code: int, body: bytes) -> bytes:
    """The first packet of a connection."""
    return struct.pack("!II", len(body) + 8, code) + body


@contextmanager
def storm():
    """Yields a Storm on a new server."""
    settings = SETTINGS | {"herald.queue_memory": "512kB", "herald.channel_memory": "1MB", "herald.retain_size": 0,
                           "deadlock_timeout": "100ms", "authentication_timeout": "5s"}
    with Cluster(preload=True, settings=settings) as cluster:
        prepare_server(cluster, True)
        yield Storm(cluster)
