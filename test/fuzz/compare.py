"""Sends random messages to a stock server and to one with pg_herald, and compares the answers.

One connection at a time sends a burst to both servers. The answers have to be the same, except for
the places of notifications among the other messages, which test/differential checks. Then every
connection that is not in a transaction block shows what it has received, and on which channels it
listens; a control connection in each database listens on all channels.

What a connection receives on a channel while it starts or stops listening there is not compared,
because that depends on the point in a pipeline at which the server delivers.
"""

import struct
import time
from contextlib import contextmanager
from itertools import chain
from random import Random

from harness.cluster import Cluster
from laggards import no_leak
from messages import ALL, Burst, Writer, cstring, fence
from player import CHANNELS_QUERY, notifications, shown
from sessions import BARRIER, BEGINNING, DATABASES, SETTINGS, Session, prepare_server
from statements import CHANNELS
from storm import connect, startup

CLIENTS = (0, 0, 0, 1)     # the database of each client
BURSTS_OF_A_ROUND = 60     # after which all connections are closed and opened again
FENCE_FIRST = 1_000_000    # greater than the oid of any type
ANSWER_S = 30
CANCEL_CODE = 80877102
CODES = (80877103, 80877104, 0x00030001, 0x00020000, 0x00040000, 0, 0xffffffff)  # SSL, GSS, versions


class Difference(AssertionError):
    """The servers differ."""


class Client(Session):
    """One connection. sessions.py makes its messages comparable."""

    def __init__(self, server: "Server", number: int):
        self.key = b""
        super().__init__(server, DATABASES[CLIENTS[number]])
        self.socket.settimeout(ANSWER_S)
        self.ended = False

    def until_ready(self) -> list[tuple[str, bytes]]:
        """As in Wire; also remembers the key for cancel requests."""
        messages = super().until_ready()
        self.key = self.key or next((body for kind, body in messages if kind == "K"), b"")
        if not self.key:
            raise Difference(f"cannot connect: {messages}")
        return messages

    def send_bytes(self, data: bytes) -> None:
        """Sends data; ignores an error if the server has ended the connection."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def until_fence(self, number: int) -> list[tuple]:
        """The answers up to the fence with that number, or to the end of the connection."""
        messages, awaited = [], [("t", self._text(struct.pack("!HI", 1, number))), ("3", "")]
        while awaited or messages[-1][0] != "Z":
            messages.append(self.next_or_end())
            if messages[-1] == ("end",):
                break
            if awaited and messages[-1] == awaited[0]:
                awaited.pop(0)
        return messages

    def until_end(self) -> list[tuple]:
        """The answers up to the end of the connection, which must come."""
        messages = [self.next_or_end()]
        while messages[-1] != ("end",):
            messages.append(self.next_or_end())
        return messages

    def next_or_end(self) -> tuple:
        """The next message; a reset of the connection counts as its end."""
        try:
            message = self._next()
        except ConnectionResetError:
            message = ("end",)
        self.ended = self.ended or message == ("end",)
        return message


class Server:
    """One of the two servers, with a connection for each client."""

    def __init__(self, name: str, cluster: Cluster, function: str):
        self.name = name
        self.cluster = cluster
        self.notify = [int(cluster.psql(f"SELECT '{function}'::regproc::oid", database))
                       for database in DATABASES]
        self.clients: list[Client] = []
        self.controls: list[Session] = []
        self.numbers: dict[int, object] = {}

    def connect(self) -> None:
        """Closes all connections, and opens them again."""
        self.close()
        self.controls = [Session(self, database) for database in DATABASES]
        for control in self.controls:
            control.socket.settimeout(ANSWER_S)
            for channel in (BARRIER, *CHANNELS):
                control.ask("LISTEN " + '"' + channel.replace('"', '""') + '"')
        self.clients = [Client(self, number) for number in range(len(CLIENTS))]
        self.numbers = {client.pid: number for number, client in enumerate(self.clients)}
        for client in self.clients:
            for sql in BEGINNING:
                client.ask(sql)

    def reconnect(self, number: int) -> None:
        """Closes one connection, and opens it again."""
        self.clients[number].close()
        self.clients[number] = Client(self, number)
        self.numbers[self.clients[number].pid] = number

    def close(self) -> None:
        """Closes all connections."""
        for one in chain(self.clients, self.controls):
            one.close()


class Comparison:
    """Plays bursts on both servers."""

    def __init__(self, *servers: Server):
        self.servers = servers
        self.bursts = 0
        self.notified = 0
        self.ends = 0
        self.fences = FENCE_FIRST

    def round(self, seed: int, end: float = float("inf"), bursts: int = BURSTS_OF_A_ROUND) -> None:
        """Plays bursts on new connections; Difference, with all that is needed to play them again."""
        random = Random(seed)
        self.touched: list[set[str]] = [set() for _ in CLIENTS]
        for server in self.servers:
            server.connect()
        for number in range(1, bursts + 1):
            if time.monotonic() > end:
                break
            self.played: list[str] = []
            try:
                self._burst(random, number)
            except (Difference, OSError) as problem:
                what = "" if isinstance(problem, Difference) else f"{type(problem).__name__}: "
                played = "\n  ".join(self.played)
                raise Difference(f"{what}{problem}\nseed {seed}, burst {number}:\n  {played}") from None

    # ---- a burst ----

    def _burst(self, random: Random, number: int) -> None:
        self.bursts += 1
        place = random.randrange(len(CLIENTS))
        database = CLIENTS[place]
        if random.random() < 0.1:
            self._knock(random, place)
        state = random.getstate()
        heard = [[] for _ in self.servers]
        answers = []
        for server in self.servers:
            random.setstate(state)  # the bursts differ in the function's oid only
            burst = Writer(random, number, server.notify[database]).burst()
            server.clients[place].send_bytes(burst.bytes() + fence(self.fences))
        self.touched[place] |= burst.touches
        self.played.append(f"connection {place}:")
        self.played += [f"  {one[:1]!r} {one[5:400]!r}" for one in burst.messages]

        for server, into in zip(self.servers, heard):
            answers.append(server.clients[place].until_fence(self.fences))
            into += notifications(answers[-1])
        self.fences += 1
        self._compare(answers, f"the answer to connection {place}")
        ended = [server.clients[place].ended for server in self.servers]
        if not ended[0] and burst.rest:
            self._leave_half(place, burst)
            ended = [True, True]
        if ended[0]:
            self.ends += 1
            for server in self.servers:
                server.reconnect(place)
            self.touched[place] = set()
            heard = [[], []]
        self._settle(database, place, heard)

    def _leave_half(self, place: int, burst: Burst) -> None:
        """Sends the rest, and ends the connection's input."""
        self.played.append(f"  and half: {burst.rest!r}")
        answers = []
        for server in self.servers:
            server.clients[place].send_bytes(burst.rest)
            server.clients[place].socket.shutdown(1)
        for server in self.servers:
            answers.append(server.clients[place].until_end())
        self._compare(answers, f"the answer to connection {place} that ends half way")

    def _knock(self, random: Random, place: int) -> None:
        """Sends a cancel request, with a right or wrong key, to an idle session; or a strange startup packet."""
        how = random.randrange(3)
        junk = random.choice(CODES), random.randbytes(random.randrange(30))
        answers = []
        for server in self.servers:
            key = server.clients[place].key
            if how == 0:
                key = key[:4] + bytes([key[4] ^ 1]) + key[5:]
            code, rest = junk if how == 2 else (CANCEL_CODE, key)
            with connect(server.cluster) as socket:
                socket.settimeout(ANSWER_S)
                socket.sendall(startup(code, rest))
                socket.shutdown(1)
                answers.append(_until_closed(socket))
        self.played.append(f"connection {place} is knocked at: {how} {junk}")
        self._compare([[("start", answer.split(b"\0F")[0])] for answer in answers], "the answer to a start")

    # ---- what was received ----

    def _settle(self, database: int, active: int, heard: list[list[tuple]]) -> None:
        """Checks that all that was committed has arrived everywhere, and is the same on both servers."""
        told = []
        for server in self.servers:
            server.controls[database].send(("Q", cstring(f"NOTIFY {BARRIER}, '{self.bursts}'")))
        for server in self.servers:
            told.append(notifications(server.controls[database].answer(1)))
        self._compare_notifications(told, set(), "all that was notified")
        self.notified += len(told[0])

        for place in range(len(CLIENTS)):
            if CLIENTS[place] != database:
                continue
            clients = [server.clients[place] for server in self.servers]
            if clients[0].status != "I":
                continue
            answers = [client.ask(CHANNELS_QUERY) for client in clients]
            self._compare(answers, f"what connection {place} listens to")
            before = heard if place == active else [[], []]
            both = [first + notifications(answer) for first, answer in zip(before, answers)]
            self._compare_notifications(both, self.touched[place], f"what connection {place} hears")
            self.touched[place] = set()

    def _compare(self, answers: list[list[tuple]], what: str) -> None:
        stock, herald = ([one for one in answer if one[0] != "A"] for answer in answers)
        if stock[-1] == herald[-1] == ("end",):
            # Unflushed messages are lost; a notification that is delivered just then makes the server flush.
            common = min(len(stock), len(herald)) - 1
            stock, herald = stock[:common], herald[:common]
        if stock != herald:
            raise Difference(f"{what} differs\n  stock:  {shown(stock)}\n  herald: {shown(herald)}")

    def _compare_notifications(self, heard: list[list[tuple]], touched: set[str], what: str) -> None:
        stock, herald = ([one for one in messages if ALL not in touched and one[2] not in touched]
                         for messages in heard)
        if stock != herald:
            raise Difference(f"{what} differs\n  stock:  {shown(stock)}\n  herald: {shown(herald)}")


def _until_closed(socket) -> bytes:
    data = b""
    try:
        while more := socket.recv(65536):
            data += more
    except ConnectionResetError:
        pass
    return data


@contextmanager
def comparison():
    """Yields a Comparison of two new servers. Afterwards neither server's log may report damage."""
    small = {"herald.queue_memory": "512kB", "herald.channel_memory": "1MB"}
    with Cluster(preload=False, settings=SETTINGS) as stock, \
            Cluster(preload=True, settings=SETTINGS | small) as herald:
        prepare_server(stock, False)
        prepare_server(herald, True)
        one = Comparison(Server("stock", stock, "pg_catalog.pg_notify"),
                         Server("herald", herald, "herald.pg_notify"))
        try:
            yield one
        finally:
            for server in one.servers:
                server.close()
        for cluster in (stock, herald):
            assert not cluster.damage(), cluster.damage()
        no_leak(herald)
