"""A tiny client of the protocol, for tests of the order of messages."""

import socket
import struct
from select import select

from harness.cluster import SUPERUSER, Cluster

TIMEOUT_S = 20


class Wire:
    """One connection. Messages are (type, body) with the type as a letter."""

    def __init__(self, cluster: Cluster, dbname: str = "postgres", **parameters: str):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(TIMEOUT_S)
        self._path = str(cluster.socket_folder / f".s.PGSQL.{cluster.port}")
        self.socket.connect(self._path)
        self._buffer = b""
        pairs = {"user": SUPERUSER, "database": dbname, **parameters}
        body = struct.pack("!I", 196608) + b"".join(
            cstring(name) + cstring(value) for name, value in pairs.items()) + b"\0"
        self.socket.sendall(struct.pack("!I", len(body) + 4) + body)
        self._key = next(body for kind, body in self.until_ready() if kind == "K")
        self.pid = struct.unpack("!I", self._key[:4])[0]

    def close(self) -> None:
        """Closes the connection without Terminate: the server notices when it reads or writes next."""
        self.socket.close()

    def cancel(self) -> None:
        """Asks the server to cancel what it runs for this connection; returns when the server has processed that."""
        with socket.socket(socket.AF_UNIX) as another:
            another.settimeout(TIMEOUT_S)
            another.connect(self._path)
            another.sendall(struct.pack("!II", len(self._key) + 8, 80877102) + self._key)
            assert another.recv(1) == b""

    def send(self, *messages: tuple[str, bytes]) -> None:
        """Sends messages in one go."""
        self.socket.sendall(b"".join(kind.encode() + struct.pack("!I", len(body) + 4) + body
                                     for kind, body in messages))

    def receive(self) -> tuple[str, bytes]:
        """The next message; ("", b"") at the end of the connection."""
        while not self._has_message():
            data = self.socket.recv(65536)
            if not data:
                return "", b""
            self._buffer += data
        length = 1 + struct.unpack("!I", self._buffer[1:5])[0]
        message, self._buffer = self._buffer[:length], self._buffer[length:]
        return chr(message[0]), message[5:]

    def arrived(self, wait_s: float = 0) -> list[tuple[str, bytes]]:
        """The messages that have come unasked; waits up to wait_s for the first one, and not for more."""
        messages = []
        while self._has_message() or select([self.socket], [], [], 0 if messages else wait_s)[0]:
            messages.append(self.receive())
            if messages[-1][0] == "":
                break
        return messages

    def until_ready(self) -> list[tuple[str, bytes]]:
        """All messages up to and including ReadyForQuery."""
        messages = []
        while not messages or messages[-1][0] not in ("Z", ""):
            messages.append(self.receive())
        return messages

    def query(self, sql: str) -> list[tuple[str, bytes]]:
        """Runs a simple query; returns its messages."""
        self.send(("Q", cstring(sql)))
        return self.until_ready()

    def _has_message(self) -> bool:
        return len(self._buffer) > 4 and len(self._buffer) > struct.unpack("!I", self._buffer[1:5])[0]


def cstring(text: str) -> bytes:
    """Text in the protocol's format."""
    return text.encode() + b"\0"


def parse(sql: str, name: str = "") -> tuple[str, bytes]:
    """Parse, without types."""
    return "P", cstring(name) + cstring(sql) + struct.pack("!H", 0)


def bind(name: str = "") -> tuple[str, bytes]:
    """Bind of the unnamed portal, without parameters."""
    return "B", cstring("") + cstring(name) + struct.pack("!HHH", 0, 0, 0)


def describe(name: str = "") -> tuple[str, bytes]:
    """Describe of a statement."""
    return "D", b"S" + cstring(name)


def call(function: int, *arguments: str) -> tuple[str, bytes]:
    """FunctionCall, the fast path, with text arguments and a text result."""
    body = struct.pack("!IHH", function, 0, len(arguments))
    for argument in arguments:
        body += struct.pack("!I", len(argument.encode())) + argument.encode()
    return "F", body + struct.pack("!H", 0)


EXECUTE = ("E", cstring("") + struct.pack("!I", 0))
SYNC = ("S", b"")
FLUSH = ("H", b"")


def kinds(messages: list[tuple[str, bytes]]) -> str:
    """The types, as one string; e.g. "CAZ": CommandComplete, Notification, ReadyForQuery."""
    return "".join(kind for kind, _ in messages)


def payloads(messages: list[tuple[str, bytes]]) -> list[str]:
    """The payloads of the notifications among them."""
    return [body[4:].split(b"\0")[1].decode() for kind, body in messages if kind == "A"]


def fields(body: bytes) -> dict[str, str]:
    """The fields of an error, by their letters."""
    return {field[:1].decode(): field[1:].decode() for field in body.split(b"\0") if field}


def error(messages: list[tuple[str, bytes]]) -> str | None:
    """The first error among them, as "SQLSTATE: message"."""
    for kind, body in messages:
        if kind == "E":
            return "{C}: {M}".format_map(fields(body))
    return None


def fatal(messages: list[tuple[str, bytes]]) -> str | None:
    """The message of a FATAL error among them."""
    for kind, body in messages:
        if kind == "E" and fields(body)["V"] == "FATAL":
            return fields(body)["M"]
    return None
