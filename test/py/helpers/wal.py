"""The messages that pg_herald writes into the WAL, read with pg_walinspect."""

import json
import re
from dataclasses import dataclass

import psycopg

from support import one

# As logicalmsg_desc() of the server writes it.
DESCRIPTION = re.compile(r'(non-)?transactional, prefix "pg_herald"; payload \(\d+ bytes\): ([0-9A-F ]*)')


@dataclass
class Message:
    """A message, and its record."""

    start: int
    xid: str
    transactional: bool
    text: bytes

    def kind(self) -> str | None:
        """Its kind; None if pg_herald has not written it."""
        match = re.match(rb'{"version":1,"kind":"(\w+)"', self.text)
        return match and match[1].decode()

    def content(self, encoding: str = "utf-8") -> dict:
        """What it says; it must be in the only form that pg_herald writes."""
        text = self.text.decode(encoding)
        content = json.loads(text)
        assert json.dumps(content, ensure_ascii=False, separators=(",", ":")) == text
        return content


class Wal:
    """The WAL of a server from now on, through a connection to a database with pg_walinspect."""

    def __init__(self, watcher: psycopg.Connection):
        self._watcher = watcher
        self.begin = one(watcher, "SELECT pg_current_wal_flush_lsn()")

    def messages(self, kind: str | None = None) -> list[Message]:
        """All messages since the beginning; or only those of one kind."""
        if one(self._watcher, "SELECT %s::pg_lsn = pg_current_wal_flush_lsn()", self.begin):
            return []  # the function needs at least one record
        try:
            rows = self._watcher.execute(
                "SELECT start_lsn - '0/0', xid::text, description"
                " FROM pg_get_wal_records_info(%s, pg_current_wal_flush_lsn())"
                " WHERE resource_manager = 'LogicalMessage' ORDER BY start_lsn", (self.begin,)).fetchall()
        except psycopg.errors.InternalError_ as error:
            if "could not find a valid record after" not in str(error):
                raise
            return []  # the server's WAL writer flushes whole pages, so also the first part of the first record alone
        found = [Message(int(start), xid, match[1] is None, bytes.fromhex(match[2]))
                 for start, xid, description in rows if (match := DESCRIPTION.match(description))]
        return [message for message in found if kind is None or message.kind() == kind]

    def logged(self) -> list[dict]:
        """The contents of the messages with notifications."""
        return [message.content() for message in self.messages("notifications")]

    def commit_end(self, xid: str) -> str:
        """Where the commit record of a transaction ends."""
        return one(self._watcher, "SELECT end_lsn FROM pg_get_wal_records_info(%s, pg_current_wal_flush_lsn())"
                   " WHERE resource_manager = 'Transaction' AND xid::text = %s AND record_type LIKE 'COMMIT%%'",
                   self.begin, xid)


def pairs(content: dict) -> list[tuple[str, str]]:
    """The notifications in a message."""
    return [(notification["channel"], notification["payload"]) for notification in content["notifications"]]
