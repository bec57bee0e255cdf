"""A connection by libpq alone: nothing happens on it that was not asked for."""

import os
import select
import socket

from psycopg import pq

from harness.cluster import SUPERUSER, Cluster

RESULTS = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK, pq.ExecStatus.EMPTY_QUERY)


class Failed(Exception):
    """A statement that failed, and whatever it did is rolled back."""

    def __init__(self, sqlstate: str, message: str):
        super().__init__(f"{sqlstate}: {message}")
        self.sqlstate = sqlstate


class Lost(Exception):
    """The connection has ended; whether the last statement was committed, nobody knows."""


class Link:
    """One connection. Use it from one thread."""

    def __init__(self, cluster: Cluster, database: str):
        self._connection = pq.PGconn.connect(
            f"host={cluster.socket_folder} port={cluster.port} user={SUPERUSER} dbname={database}".encode())
        self._notice = ""
        if self._connection.status != pq.ConnStatus.OK:
            raise Lost(self._message())
        self._connection.notice_handler = self._note
        self.pid = self._connection.backend_pid

    def run(self, sql: str) -> list[tuple[str, ...]]:
        """Runs statements; the last one's rows."""
        result = self._connection.exec_(sql.encode())
        if result.status in RESULTS:
            return [tuple((result.get_value(row, column) or b"").decode() for column in range(result.nfields))
                    for row in range(result.ntuples)]
        state = result.error_field(pq.DiagnosticField.SQLSTATE)
        if self._connection.status != pq.ConnStatus.OK or state is None:  # then libpq says it, not the server
            raise Lost(self._message())
        raise Failed(state.decode(), (result.error_message or b"").decode(errors="replace").strip())

    def notifications(self, timeout_s: float = 0) -> list[tuple[str, str]]:
        """What has come, as (channel, payload); waits so long for the first."""
        found = self._at_hand()
        if not found and select.select([self._connection.socket], [], [], timeout_s)[0]:
            try:
                self._connection.consume_input()
            except Exception:
                found = self._at_hand()
                if not found:
                    raise Lost(self._message()) from None
            found += self._at_hand()
        return found

    def close(self, politely: bool = True) -> None:
        """Ends it."""
        if not politely and self._connection.status == pq.ConnStatus.OK:
            copy = socket.socket(fileno=os.dup(self._connection.socket))
            copy.shutdown(socket.SHUT_RDWR)
            copy.close()
        self._connection.finish()

    def _at_hand(self) -> list[tuple[str, str]]:
        found = []
        while one := self._connection.notifies():
            found.append((one.relname.decode(), one.extra.decode()))
        return found

    def _note(self, result: pq.abc.PGresult) -> None:
        """libpq takes the FATAL error that comes while nothing runs for a notice."""
        self._notice = (result.error_message or b"").decode(errors="replace")

    def _message(self) -> str:
        return self._notice + self._connection.error_message.decode(errors="replace").strip()
