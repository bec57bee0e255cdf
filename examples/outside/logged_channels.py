"""Reads notifications on logged channels from a replication slot, by logical decoding."""

import json
from collections.abc import Iterator
from typing import NamedTuple

import psycopg

ROWS = 1000  # read at once; the rest of a transaction in addition
PEEK = {
    "pgoutput": "SELECT lsn, data FROM pg_logical_slot_peek_binary_changes(%s, %s, %s,"
                " 'proto_version', '1', 'publication_names', 'logged', 'messages', 'true')",
    "wal2json": "SELECT lsn, data FROM pg_logical_slot_peek_changes(%s, %s, %s,"
                " 'format-version', '2', 'filter-tables', '*.*', 'add-msg-prefixes', 'pg_herald')",
}


class Notification(NamedTuple):
    """The first two say where it is in the WAL, in the order of the commits."""

    lsn: str  # where the commit of its transaction ends
    index: int  # 0, 1, 2, ... in this transaction
    run: str
    place: str
    channel: str
    payload: str

    def position(self) -> tuple[int, int]:
        """For comparisons."""
        return number(self.lsn), self.index


def number(lsn: str) -> int:
    """An LSN as a number."""
    high, low = lsn.split("/")
    return int(high, 16) << 32 | int(low, 16)


def row_of_pgoutput(data: bytes) -> tuple[str, str]:
    """What a row is: B (begin), C (commit), M (message) or another letter; and the text, if pg_herald has written it."""
    kind = chr(data[0])
    prefix, _, content = data[10:].partition(b"\0")  # after flags and an LSN; then come 4 bytes of length
    return kind, content[4:].decode() if kind == "M" and prefix == b"pg_herald" else ""


def row_of_wal2json(data: str) -> tuple[str, str]:
    """The same."""
    row = json.loads(data)
    return row["action"], row.get("content", "")


def notifications(lsn: str, texts: list[str]) -> list[Notification]:
    """The notifications of a transaction, from all parts of its message."""
    messages = list(map(json.loads, texts))
    if any(message["version"] != 1 for message in messages):
        raise SystemExit("pg_herald has written a newer version of the message")
    messages = [message for message in messages if message["kind"] == "notifications"]
    return [Notification(lsn, index, messages[-1]["run"], messages[-1]["place"], one["channel"], one["payload"])
            for index, one in enumerate(one for message in messages for one in message["notifications"])]


def batches(connection: psycopg.Connection, slot: str, after: tuple[int, int]) -> Iterator[list[Notification]]:
    """Yields what comes after a position, list by list; an empty list if there is nothing new. A list must be stored
    before the next one is asked for: then the server is free to remove its WAL."""
    (plugin,), = connection.execute("SELECT plugin FROM pg_replication_slots WHERE slot_name = %s", [slot])
    row_of = row_of_pgoutput if plugin == "pgoutput" else row_of_wal2json
    while True:
        (end,), = connection.execute("SELECT pg_current_wal_flush_lsn()")
        if after[0] > number(end):
            raise SystemExit("what was stored last is not in this server's WAL")
        rows = connection.execute(PEEK[plugin], [slot, end, ROWS]).fetchall()
        found, texts = [], []
        for lsn, data in rows:
            kind, text = row_of(data)
            if text:
                texts.append(text)
            elif kind == "C":
                found += notifications(lsn, texts)
                texts = []
        new = [notification for notification in found if notification.position() > after]
        yield new
        after = new[-1].position() if new else after
        connection.execute("SELECT pg_replication_slot_advance(%s, %s)", [slot, rows[-1][0] if len(rows) >= ROWS else end])
