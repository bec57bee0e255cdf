"""Random messages from a client: as drivers send them, as they could send them, and as none should.

A Burst is what one connection sends at once. It depends only on a random.Random, so that the same
seed gives the same bytes. Broken messages have correct lengths, so that the server finds the beginning
of the next one, except if a burst ends with a message that must end the connection.
"""

import struct
from dataclasses import dataclass, field
from random import Random

from statements import CHANNELS

NAMES = ("", "", "one", "two", "it's")           # of prepared statements, portals and cursors
CHANNELS_OFTEN = ("a",) * 4 + ("b",) * 2 + CHANNELS
ALL = "*"                                         # in Burst.touches: all channels
LENGTHS = (0,) * 20 + (10, 100, 1000, 7900, 8100)  # of the text after a payload's number
KINDS = b"BCDEFHPQSdcf"
UNKNOWN_KINDS = b"\0 AGZaz\xff"

# Statements with a channel as an identifier {c} or a literal {l}, and a payload {p}.
NOTIFYING = (
    "NOTIFY {c}, '{p}'",
    "SELECT pg_notify({l}, '{p}')",
    "SELECT pg_notify({l}, '{p} ' || n) FROM generate_series(1, 5) n",
    "INSERT INTO immediate VALUES ({l}, '{p}')",
    "INSERT INTO deferred VALUES ({l}, '{p}')",
    "SELECT performs({l}, '{p}')",
    "DO $$ BEGIN PERFORM pg_notify({l}, '{p}'); BEGIN PERFORM pg_notify({l}, '{p} lost'), 1 / 0;"
    " EXCEPTION WHEN division_by_zero THEN NULL; END; END $$",
    "COPY (SELECT pg_notify({l}, '{p}')) TO STDOUT",
    "DECLARE one CURSOR FOR SELECT pg_notify({l}, '{p} ' || n) FROM generate_series(1, 9) n",
    "DECLARE two CURSOR WITH HOLD FOR SELECT pg_notify({l}, '{p} ' || n) FROM generate_series(1, 3) n",
)
TOUCHING = ("LISTEN {c}",) * 6 + ("UNLISTEN {c}",) * 2 + ("UNLISTEN *", "DISCARD ALL")
BLOCKS = ("BEGIN",) * 3 + ("COMMIT",) * 4 + ("ROLLBACK", "SAVEPOINT s", "ROLLBACK TO s", "RELEASE s",
                                               "COMMIT AND CHAIN", "END")
OTHERS = ("SELECT 1", "", "-- nothing", "SELECT 1 / 0", "SELEC", "FETCH 2 FROM one", "FETCH ALL FROM two",
          "CLOSE two", "SELECT repeat('x', 20000)", "SELECT * FROM pg_listening_channels() ORDER BY 1",
          "DEALLOCATE ALL", "TABLE nothing", "SELECT n FROM generate_series(1, 100) n")
# Only if answers are not compared.
WILD = ("SET herald.enabled = off", "RESET ALL", "SET client_encoding = LATIN1", "SELECT pg_sleep(0.05)",
        "SELECT count(pg_notify('a', 'wild ' || n)) FROM generate_series(1, 3000) n",
        "SELECT pg_notify('a', repeat('x', 7000) || n) FROM generate_series(1, 50) n",
        "CALL commits('a', 'x')", "CALL rolls_back('b', 'x')", "PREPARE TRANSACTION 'one'",
        "ROLLBACK PREPARED 'one'", "SELECT * FROM herald.listeners", "SELECT * FROM herald.queue",
        "SET statement_timeout = 20", "INSERT INTO defaulted (n) VALUES (1), (2)",
        "DO $$ BEGIN FOR i IN 1..50 LOOP EXECUTE 'LISTEN c' || i; END LOOP; END $$",
        "BEGIN; LOCK TABLE nothing IN SHARE MODE")


@dataclass
class Burst:
    """The data that is sent at once.

    messages    complete messages
    touches     channels on which it may execute LISTEN or UNLISTEN; ALL for all channels
    rest        sent after the messages: the beginning of another one, after which the connection is closed
    """

    messages: list[bytes] = field(default_factory=list)
    touches: set[str] = field(default_factory=set)
    rest: bytes = b""

    def bytes(self) -> bytes:
        """All of the messages."""
        return b"".join(self.messages)


def message(kind: str, body: bytes = b"") -> bytes:
    """A message with its length."""
    return kind.encode() + struct.pack("!I", len(body) + 4) + body


def cstring(text: str) -> bytes:
    """Text as the protocol encodes it."""
    return text.encode() + b"\0"


def fence(number: int) -> bytes:
    """Messages whose answer marks the end of all earlier answers, in whatever state the session is.

    They describe a statement with that number as the type of its parameter. They end a COPY in progress,
    and an extended query, but no transaction, prepared statement or portal.
    """
    return b"".join([message("f", b"fence\0"), message("S"),
                     message("P", cstring("the fence") + b"\0" + struct.pack("!HI", 1, number)),
                     message("D", b"S" + cstring("the fence")), message("C", b"S" + cstring("the fence")),
                     message("S")])


def without_crash_of_stock(messages: list[bytes]) -> list[bytes]:
    """The messages without those that crash stock servers (seen with 15.20) by executing a simple query's portal.

    If such a query fails in a transaction block, its unnamed portal remains, with a pointer to freed memory.
    So that portal is executed only if the same extended query has bound it, and no COPY is in progress.
    """
    kept, bound, copying = [], False, False
    for one in messages:
        kind, body = one[:1], one[5:]
        if kind == b"E" and body[:1] == b"\0" and (copying or not bound):
            continue
        kept.append(one)
        if kind in b"QSF":
            bound = False
        elif kind == b"B":
            bound = bound or body[:1] == b"\0"
        copying = (copying or b"FROM STDIN" in body) and kind not in b"cf"
    return kept


class Writer:
    """Writes bursts.

    number      the number with which payloads begin
    notify      the oid of the function for the fast path
    wild        whether to include messages whose results differ between two servers
    """

    def __init__(self, random: Random, number: int, notify: int, wild: bool = False):
        self.random = random
        self.number = number
        self.notify = notify
        self.wild = wild
        self.payloads = 0
        self.touches: set[str] = set()

    def burst(self) -> Burst:
        """A random burst."""
        burst = Burst(touches=self.touches)
        for _ in range(self.random.choice((1, 1, 2, 3, 6))):
            burst.messages += self.random.choice(
                (self._simple,) * 4 + (self._extended,) * 4 + (self._copy, self._call, self._rows) +
                (self._strange,) * 2)()
        if self.random.random() < 0.25:
            self._break(burst.messages)
        burst.messages = without_crash_of_stock(burst.messages)
        end = self.random.random()
        if end < 0.03:
            burst.messages.append(self._fatal())
        elif end < 0.06:
            burst.messages += [message("X"), *self._simple()]
        elif end < 0.12:
            burst.rest = self._half()
        return burst

    # ---- SQL ----

    def _payload(self) -> str:
        self.payloads += 1
        return f"{self.number}.{self.payloads} " + "x" * self.random.choice(LENGTHS)

    def _sql(self) -> str:
        pools = (NOTIFYING,) * 6 + (TOUCHING,) + (BLOCKS,) * 3 + (OTHERS,) * 2 + (WILD,) * 3 * self.wild
        sql = self.random.choice(self.random.choice(pools))
        channel = self.random.choice(CHANNELS_OFTEN)
        if "LISTEN *" in sql or sql == "DISCARD ALL":
            self.touches.add(ALL)
        elif "LISTEN {c}" in sql:
            self.touches.add(channel)
        return sql.replace("{c}", '"' + channel.replace('"', '""') + '"') \
            .replace("{l}", "'" + channel + "'").replace("{p}", self._payload())

    # ---- messages as drivers send them ----

    def _simple(self) -> list[bytes]:
        sql = "; ".join(self._sql() for _ in range(self.random.choice((1, 1, 1, 2, 4))))
        return [message("Q", cstring(sql))]

    def _extended(self) -> list[bytes]:
        messages = []
        for _ in range(self.random.choice((1, 1, 2, 5))):
            name, portal = self._name(), self._name()
            if name:
                messages.append(message("C", b"S" + cstring(name)))
            messages.append(self._parse(name, self._sql()))
            if self.random.random() < 0.5:
                messages.append(message("D", b"S" + cstring(name)))
            messages += [self._bind(portal, name), self._execute(portal)]
            if self.random.random() < 0.3:
                messages.append(self.random.choice((message("S"), message("H"))))
        return [*messages, message("S")]

    def _rows(self) -> list[bytes]:
        """Reads a portal a few rows at a time."""
        sql = f"SELECT pg_notify('a', '{self._payload()} ' || n), n FROM generate_series(1, 9) n"
        messages = [self._parse("", sql), self._bind("rows", ""), message("D", b"P" + cstring("rows"))]
        for _ in range(self.random.randrange(5)):
            messages.append(self._execute("rows", self.random.randrange(5)))
        return [*messages, message("C", b"P" + cstring("rows")), message("S")]

    def _copy(self) -> list[bytes]:
        """COPY from the client, into a table whose trigger notifies; with or without an end."""
        sql = "COPY immediate FROM STDIN"
        begin = [message("Q", cstring(sql))] if self.random.random() < 0.6 else \
            [self._parse("", sql), self._bind("", ""), self._execute("")]
        rows = [f"{self.random.choice('ab')}\t{self._payload()}\n".encode()
                for _ in range(self.random.randrange(5))]
        if self.random.random() < 0.2:
            rows.append(self.random.choice((b"\\.\n", b"a\n", b"a\tb\tc\n", b"\xff\t\xff\n", b"")))
        data = [message("d", row) for row in rows]
        if self.random.random() < 0.2:
            data.insert(self.random.randrange(len(data) + 1), self.random.choice(
                (message("S"), message("H"), *self._simple())))
        end = self.random.choice((message("c"),) * 4 + (message("f", cstring("fails")), b""))
        return [*begin, *data, *([end] if end else []), message("S")]

    def _call(self) -> list[bytes]:
        arguments = [b"a", self._payload().encode()][:self.random.choice((2, 2, 2, 1, 0))]
        body = struct.pack("!IHH", self.notify, 0, len(arguments)) + \
            b"".join(struct.pack("!i", len(one)) + one for one in arguments)
        return [message("F", body + struct.pack("!H", self.random.choice((0, 0, 1))))]

    # ---- messages as drivers could send them ----

    def _strange(self) -> list[bytes]:
        """Complete messages, in an order that makes little sense."""
        makers = (lambda: self._parse(self._name(), self._sql()),
                  lambda: self._bind(self._name(), self._name()),
                  lambda: self._execute(self._name(), self.random.randrange(3)),
                  lambda: message("D", self.random.choice((b"S", b"P", b"x")) + cstring(self._name())),
                  lambda: message("C", self.random.choice((b"S", b"P", b"x")) + cstring(self._name())),
                  lambda: message("S"), lambda: message("H"), lambda: message("d", b"a\tdata\n"),
                  lambda: message("c"), lambda: message("f", cstring("no copy")), lambda: self._simple()[0],
                  lambda: self._call()[0])
        return [self.random.choice(makers)() for _ in range(self.random.randrange(1, 12))]

    def _name(self) -> str:
        return self.random.choice(NAMES)

    def _parse(self, name: str, sql: str) -> bytes:
        types = [self.random.choice((0, 25, 23, 4_000_000))] if self.random.random() < 0.1 else []
        return message("P", cstring(name) + cstring(sql) +
                       struct.pack(f"!H{len(types)}I", len(types), *types))

    def _bind(self, portal: str, name: str) -> bytes:
        formats = [self.random.choice((0, 1, 1, 2))] if self.random.random() < 0.2 else []
        values = [self.random.choice((b"", b"1", b"\xff\0", b"text"))] if self.random.random() < 0.1 else []
        return message("B", cstring(portal) + cstring(name) + struct.pack("!HH", 0, len(values)) +
                       b"".join(struct.pack("!i", len(value)) + value for value in values) +
                       struct.pack(f"!H{len(formats)}H", len(formats), *formats))

    def _execute(self, portal: str, rows: int = 0) -> bytes:
        return message("E", cstring(portal) + struct.pack("!I", rows))

    # ---- messages as no driver should send them ----

    def _break(self, messages: list[bytes]) -> None:
        """Changes some of the messages; their lengths remain correct."""
        for _ in range(self.random.choice((1, 1, 3))):
            place = self.random.randrange(len(messages))
            if messages[place][:1] == b"F":  # its oid differs between two servers
                continue
            kind, body = messages[place][:1], bytearray(messages[place][5:])
            how = self.random.randrange(5)
            if how == 0:
                body = body[:self.random.randrange(len(body) + 1)]
            elif how == 1:
                body += self.random.randbytes(self.random.randrange(1, 9))
            elif how == 2 and body:
                for _ in range(self.random.choice((1, 1, 4))):
                    body[self.random.randrange(len(body))] = self.random.choice((0, 1, 39, 127, 128, 255))
            elif how == 3:
                kind = bytes([self.random.choice(KINDS)])
            else:
                body = bytearray(self.random.randbytes(self.random.randrange(40)))
                kind = bytes([self.random.choice(KINDS)])
            messages[place] = message(kind.decode(), bytes(body))
        self.touches.add(ALL)  # the changed statement may concern any channel

    def _fatal(self) -> bytes:
        """A message after which the server cannot know where the next one begins."""
        how = self.random.randrange(3)
        if how == 0:
            return bytes([self.random.choice(UNKNOWN_KINDS)]) + struct.pack("!I", 8) + b"1234"
        if how == 1:
            return self.random.choice((b"Q", b"P", b"S")) + struct.pack("!i", self.random.choice((0, 3, -1)))
        return b"S" + struct.pack("!I", 1_000_000)  # more than this message may have

    def _half(self) -> bytes:
        """Messages whose last one is incomplete: their transaction must not be committed."""
        messages = self._extended()[:-1] if self.random.random() < 0.7 else []
        messages = [one for one in messages if one[:1] != b"S"] + self._simple()
        whole = b"".join(messages)
        return whole[:len(whole) - self.random.randrange(1, len(messages[-1]) + 1)]
