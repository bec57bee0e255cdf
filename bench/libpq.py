"""A connection by libpq, PostgreSQL's own client library, which is there wherever psql is; for the demo.

It needs no driver, and does nothing that was not requested.
"""

import ctypes
import select
import subprocess
from functools import cache
from pathlib import Path

from harness.cluster import SUPERUSER, Cluster
from harness.installation import Installation

NAME = "libpq.so.5"
CONNECTION_OK = 0
RESULTS = (1, 2)  # PGRES_COMMAND_OK, PGRES_TUPLES_OK


class Lost(Exception):
    """There is no connection, or it has ended."""


class Failed(Exception):
    """A statement failed."""


class _Notify(ctypes.Structure):
    """struct pgNotify, as far as it is read."""

    _fields_ = [("relname", ctypes.c_char_p), ("be_pid", ctypes.c_int), ("extra", ctypes.c_char_p)]


def servers(*clusters: Cluster) -> dict[str, str]:
    """The parameters with which a client finds the one of these servers that is a primary."""
    return {"host": ",".join(str(cluster.socket_folder) for cluster in clusters),
            "port": ",".join(str(cluster.port) for cluster in clusters),
            "user": SUPERUSER, "dbname": "postgres", "target_session_attrs": "read-write"}


class Connection:
    """One connection, to the server that the parameters say; Lost if there is none."""

    def __init__(self, installation: Installation, parameters: dict[str, str]):
        self._libpq = _library(installation.pg_config)
        words = " ".join(f"{name}='{value}'" for name, value in parameters.items())
        self._connection = ctypes.c_void_p(self._libpq.PQconnectdb(words.encode()))
        if not self._is_up():
            message = self._message()
            self.close()
            raise Lost(message)

    def run(self, sql: str) -> list[tuple[str, ...]]:
        """Runs statements; returns the rows of the last one. An answer that is null is an empty text."""
        result = ctypes.c_void_p(self._libpq.PQexec(self._connection, sql.encode()))
        try:
            if self._libpq.PQresultStatus(result) not in RESULTS:
                raise (Failed if self._is_up() else Lost)(self._message())
            columns = range(self._libpq.PQnfields(result))
            return [tuple(self._libpq.PQgetvalue(result, row, column).decode() for column in columns)
                    for row in range(self._libpq.PQntuples(result))]
        finally:
            self._libpq.PQclear(result)

    def notifications(self, timeout_s: float) -> list[tuple[str, str]]:
        """The notifications that have arrived, as (channel, payload); waits up to timeout_s for the first.

        Lost once there are no more of them.
        """
        found = self._at_hand()
        if not found and select.select([self._libpq.PQsocket(self._connection)], [], [], timeout_s)[0]:
            is_up = self._libpq.PQconsumeInput(self._connection)
            found = self._at_hand()
            if not is_up and not found:
                raise Lost(self._message())
        return found

    def close(self) -> None:
        """Closes it. May be called again."""
        self._libpq.PQfinish(self._connection)
        self._connection = ctypes.c_void_p(None)

    def _at_hand(self) -> list[tuple[str, str]]:
        found = []
        while address := self._libpq.PQnotifies(self._connection):
            one = _Notify.from_address(address)
            found.append((one.relname.decode(), one.extra.decode()))
            self._libpq.PQfreemem(ctypes.c_void_p(address))
        return found

    def _is_up(self) -> bool:
        return self._libpq.PQstatus(self._connection) == CONNECTION_OK

    def _message(self) -> str:
        return self._libpq.PQerrorMessage(self._connection).decode(errors="replace").strip()


@cache
def _library(pg_config: str) -> ctypes.CDLL:
    """libpq: that of the installation, else the system's."""
    folder = subprocess.run([pg_config, "--libdir"], check=True, capture_output=True, text=True).stdout.strip()
    path = Path(folder, NAME)
    libpq = ctypes.CDLL(str(path) if path.exists() else NAME)
    for name in ("PQconnectdb", "PQexec", "PQnotifies"):
        getattr(libpq, name).restype = ctypes.c_void_p
    for name in ("PQgetvalue", "PQerrorMessage"):
        getattr(libpq, name).restype = ctypes.c_char_p
    return libpq
