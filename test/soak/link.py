"""A connection by libpq alone, which does nothing that was not requested."""

import os
import select
import socket

from psycopg import OperationalError, pq

from harness.cluster import SUPERUSER, Cluster

RESULTS = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK, pq.ExecStatus.EMPTY_QUERY)


class Failed(Exception):
    """A statement failed, and was rolled back."""

    def __init__(self, sqlstate: str, message: str):
        super().__init__(f"{sqlstate}: {message}")
        self.sqlstate = sqlstate


class Lost(Exception):
    """The connection has ended; it is not known whether the last statement was committed."""


class Link:
    """One connection, to be used by one thread.

    further  what libpq is to know in addition
    """

    def __init__(self, cluster: Cluster, database: str, further: str = ""):
        self._connection = _connect(
            f"host={cluster.socket_folder} port={cluster.port} user={SUPERUSER} dbname={database} {further}")
        self.notices: list[str] = []  # all that the server has said beside its results
        if self._connection.status != pq.ConnStatus.OK:
            raise Lost(self._message())
        self._connection.notice_handler = self._note
        self.pid = self._connection.backend_pid
        self.major = self._connection.server_version // 10000

    def run(self, sql: str) -> list[tuple[str, ...]]:
        """Runs statements; returns the rows of the last one."""
        try:
            result = self._connection.exec_(sql.encode())
        except OperationalError:  # PQexec() gives no result if it finds the connection lost
            raise Lost(self._message()) from None
        if result.status in RESULTS:
            return [tuple((result.get_value(row, column) or b"").decode() for column in range(result.nfields))
                    for row in range(result.ntuples)]
        state = result.error_field(pq.DiagnosticField.SQLSTATE)
        if self._connection.status != pq.ConnStatus.OK or state is None:  # no SQLSTATE: libpq's own error
            raise Lost(self._message())
        raise Failed(state.decode(), (result.error_message or b"").decode(errors="replace").strip())

    def notifications(self, timeout_s: float = 0) -> list[tuple[str, str]]:
        """The notifications that have arrived, as (channel, payload); waits up to timeout_s for the first."""
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
        """Closes the connection."""
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
        """The last one may be the FATAL error of an idle connection, which libpq reports as a notice."""
        self.notices.append((result.error_message or b"").decode(errors="replace"))

    def _message(self) -> str:
        return "".join(self.notices[-1:]) + self._connection.error_message.decode(errors="replace").strip()


def _connect(parameters: str) -> pq.PGconn:
    """As PGconn.connect(), in which no other thread can run, even if the server is stopped."""
    connection = pq.PGconn.connect_start(parameters.encode())
    while (status := connection.connect_poll()) in (pq.PollingStatus.READING, pq.PollingStatus.WRITING):
        sockets = [connection.socket]
        writes = status == pq.PollingStatus.WRITING
        select.select([] if writes else sockets, sockets if writes else [], [])
    return connection
