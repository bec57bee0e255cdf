"""Equal connections to both servers."""

import struct
import time
from pathlib import Path
from select import select
from zlib import crc32

from harness.cluster import Cluster, ClusterError
from schedule import SYNC, Step
from statements import CHANNELS, ROLES, SESSION_OF_OTHER_DATABASE, SESSIONS
from wire import EXECUTE, Wire, bind, cstring

SETTINGS = {"autovacuum": False, "fsync": False, "max_prepared_transactions": SESSIONS,
            "log_min_messages": "log", "log_min_error_statement": "panic"}
# The smallest ring that holds the largest transaction of a schedule, so that the ring wraps.
SETTINGS_HERALD = {"herald.queue_memory": "2MB"}
DATABASES = ("one", "two")
SETUP = Path(__file__).resolve().parent / "setup.sql"

# Every connection listens on it from the start. Its notifications end the waiting, and are not compared.
BARRIER = "barrier"
BEGINNING = ("ROLLBACK", "DISCARD ALL", "PREPARE kept(text, text) AS SELECT pg_notify($1, $2)",
             "PREPARE taking(text) AS SELECT $1", f"LISTEN {BARRIER}")

RECOVERY_S = 60
ENCODINGS = {"UTF8": "utf-8", "LATIN1": "latin-1", "SQL_ASCII": "utf-8"}
ERROR_FIELDS = "SVCMDHPWqpstcdn"  # without the location in the server's source


def prepare_server(cluster: Cluster, herald: bool) -> None:
    """Creates the roles and databases."""
    for role in ROLES:
        cluster.psql(f"CREATE ROLE {role}")
    for database in DATABASES:
        cluster.psql(f"CREATE DATABASE {database}")
        cluster.psql(SETUP.read_text(encoding="utf-8"), database)
        if herald:
            cluster.create_herald(database)


class Session(Wire):
    """One connection, which returns messages as tuples that can be compared between servers."""

    def __init__(self, side: "Side", database: str):
        super().__init__(side.cluster, database)
        self.side = side
        self.status = "I"
        self.encoding = "utf-8"
        self.prepared: set[str] = set()
        self.forgets = False  # whether the server may have forgotten these

    # ---- asking ----

    def start(self, step: Step) -> int:
        """Sends a step; returns the number of ReadyForQuery messages that will answer it."""
        messages = []
        if step.first and self.forgets:  # an error as the answer would be no encounter
            self.prepared.clear()
            self.forgets = False
        for statement in (*step.statements, *([] if step.how in ("simple", "herald") else [SYNC])):
            if statement is SYNC:
                messages.append(("S", b""))
            elif step.how == "pipeline":
                messages += [("P", b"\0" + self._bytes(statement.sql) + b"\0\0\0"),
                             self._bind("", statement.arguments), EXECUTE]
            elif step.how in ("extended", "prepared"):
                name = "" if step.how == "extended" else f"kept {crc32(statement.sql.encode())}"
                if not name or name not in self.prepared:
                    if name:
                        messages.append(("C", b"S" + cstring(name)))
                    messages.append(("P", cstring(name) + self._bytes(statement.sql) + b"\0\0\0"))
                messages += [self._bind(name, statement.arguments), EXECUTE]
                self._name = name
        if step.how in ("simple", "herald"):
            messages = [("Q", self._bytes("; ".join(s.text() for s in step.statements)) + b"\0")]
        self.send(*messages)
        return max(1, sum(kind == "S" for kind, _ in messages))

    def ask(self, sql: str) -> list[tuple]:
        """Runs a simple query for the player; returns its messages."""
        self.send(("Q", cstring(sql)))
        return self.answer(1)

    def answer(self, readies: int) -> list[tuple]:
        """All messages up to the given number of ReadyForQuery, or to the end of the connection."""
        messages = []
        while readies > 0:
            messages.append(self._next())
            if messages[-1][0] == "Z":
                readies -= 1
            elif messages[-1][0] == "end":
                break
        return messages

    def learn(self, step: Step, messages: list[tuple]) -> None:
        """Remembers which prepared statements the server has."""
        if any(statement.sql in ("DISCARD ALL", "DEALLOCATE ALL") for statement in step.statements):
            self.forgets = True
        if step.how != "prepared" or not self._name:
            return
        if any(message[0] == "1" for message in messages):
            self.prepared.add(self._name)
        if any(message[0] == "E" and ("C", "26000") in message[1] for message in messages):
            self.prepared.discard(self._name)

    def until_barriers(self, *names: str) -> list[tuple]:
        """The messages on an idle connection before the last of these barriers, all of which must arrive."""
        messages, awaited = [], set(names)
        while awaited:
            messages.append(self._next())
            if messages[-1][0] == "end":
                break
            if messages[-1][0] == "A" and messages[-1][2] == BARRIER:
                awaited.discard(messages.pop()[3])
        return messages

    def at_hand(self) -> list[tuple]:
        """The messages that have already arrived; does not wait."""
        while select([self.socket], [], [], 0)[0]:
            data = self.socket.recv(65536)
            if not data:
                return [("end",)]
            self._buffer += data
        messages = []
        while len(self._buffer) > 4 and len(self._buffer) > struct.unpack("!I", self._buffer[1:5])[0]:
            messages.append(self._next())
        return messages

    # ---- within ----

    def _bytes(self, text: str) -> bytes:
        return text.encode(self.encoding)

    def _bind(self, name: str, arguments: tuple[str | None, ...]) -> tuple[str, bytes]:
        if not arguments:
            return bind(name)
        body = cstring("") + cstring(name) + struct.pack("!HH", 0, len(arguments))
        for argument in arguments:
            data = None if argument is None else self._bytes(argument)
            body += struct.pack("!i", -1) if data is None else struct.pack("!i", len(data)) + data
        return "B", body + struct.pack("!H", 0)

    def _next(self) -> tuple:
        """The next message, without what always differs between two servers (pids, oids, source lines)."""
        kind, body = self.receive()
        if kind == "":
            return ("end",)
        if kind == "A":
            channel, payload, _ = body[4:].split(b"\0")
            sender = self.side.numbers.get(struct.unpack("!I", body[:4])[0], "unknown")
            return kind, sender, self._text(channel), self._text(payload)
        if kind in "EN":
            return kind, tuple((chr(field[0]), self._text(field[1:])) for field in body.split(b"\0")
                               if field and chr(field[0]) in ERROR_FIELDS)
        if kind == "Z":
            self.status = body.decode()
            return kind, self.status
        if kind == "T":
            columns, at = [], 2
            while at < len(body):
                end = body.index(b"\0", at)
                columns.append(self._text(body[at:end]))
                at = end + 19
            return kind, tuple(columns)
        if kind == "S":
            name, value, _ = body.decode().split("\0")
            if name == "client_encoding":
                self.encoding = ENCODINGS[value]
        return kind, self._text(body)

    def _text(self, data: bytes) -> str:
        return data.decode(self.encoding, "backslashreplace")


class Side:
    """One server's connections. In each database a control connection listens on all channels."""

    def __init__(self, name: str, cluster: Cluster):
        self.name = name
        self.cluster = cluster
        self.has_herald = name == "herald"
        self.sessions: list[Session] = []
        self.controls: list[Session] = []
        self.natives: list[Session] = []
        self.numbers: dict[int, object] = {}

    def connect(self) -> None:
        """Closes the connections that are open, and opens all again."""
        self.close()
        self._await_server()
        self.sessions = [Session(self, DATABASES[database_of(number)]) for number in range(SESSIONS)]
        self.controls = [Session(self, name) for name in DATABASES]
        self.natives = [Session(self, name) for name in DATABASES]
        self.numbers = {session.pid: number for number, session in enumerate(self.sessions)}
        for control, native in zip(self.controls, self.natives):
            control.ask(f"LISTEN {BARRIER}")
            for channel in CHANNELS:
                control.ask("LISTEN " + '"' + channel.replace('"', '""') + '"')
            if self.has_herald:
                native.ask("SET herald.enabled = off")

    def reconnect(self, number: int) -> None:
        """Closes one connection, without a Terminate message, and opens another in its place."""
        timeout_s = self.sessions[number].socket.gettimeout()
        self.sessions[number].close()
        self.sessions[number] = Session(self, DATABASES[database_of(number)])
        self.sessions[number].socket.settimeout(timeout_s)
        self.numbers[self.sessions[number].pid] = number

    def close(self) -> None:
        """Closes all connections."""
        for session in self._all():
            session.close()

    def limit(self, seconds: float) -> None:
        """Sets the time to wait for a message."""
        for session in self._all():
            session.socket.settimeout(seconds)

    def _await_server(self) -> None:
        """Waits for the server, which may be recovering from a crash."""
        end = time.monotonic() + RECOVERY_S
        while True:
            try:
                self.cluster.psql("SELECT 1")
                return
            except ClusterError:
                if time.monotonic() > end:
                    raise
            time.sleep(0.05)

    def _all(self) -> list[Session]:
        return self.sessions + self.controls + self.natives


def database_of(session: int) -> int:
    """The database of a session, as an index."""
    return 1 if session == SESSION_OF_OTHER_DATABASE else 0
