"""Sessions that request every message, and a client that does not read one of them."""

import psycopg

from harness.cluster import Cluster
from support import until
from wire import Wire, cstring

# What the build with stop points logs before the server restarts.
UNDER_A_LOCK = "a message is sent to the client under "

# More than any socket takes of a result that is not read; and the precision with which its capacity is found out.
FILL_BYTES_MAX = 8 * 1024 * 1024
STEP_BYTES = 256

QUERY_MAX = 500  # characters of it are compared; pg_stat_activity has more
WITHIN_S = 30  # others finish by then, on a busy machine too; what waits for the client never ends


class Mute:
    """A client that reads nothing."""

    def __init__(self, cluster: Cluster, watcher: psycopg.Connection, **parameters: str):
        self._watcher = watcher
        self.wire = Wire(cluster, **parameters)
        self.pid = self.wire.pid

    def stick(self, sql: str, fill_bytes: int) -> bool:
        """Requests a result of fill_bytes, and then runs the statement. Whether its backend gets to the latter, and is
        blocked there because the socket is full: at its first message, or if it has none, at its end."""
        self.send(fill_bytes, sql)
        until(lambda: self._stands(), "it stands still, or is through")
        query, _, wait_event = self._activity()
        return query == self._last and wait_event == "ClientWrite"

    def send(self, fill_bytes: int, sql: str) -> None:
        """Requests a result of fill_bytes, and then runs the statement."""
        fill = f"SELECT repeat('x', {fill_bytes})"
        self._last = sql[:QUERY_MAX]
        self.wire.send(("Q", cstring(fill)), ("Q", cstring(sql)))

    def is_in_statement(self) -> bool:
        """Whether its backend has not finished the statement yet."""
        return self._activity()[1] == "active"

    def is_through(self) -> bool:
        """Whether its backend has sent everything."""
        return self._activity()[1:] == ("idle", "ClientRead")

    def close(self) -> None:
        """Closes the connection without Terminate; its backend ends as well."""
        self.wire.close()

    def _stands(self) -> bool:
        """Whether its backend waits for the client, which never reads and so blocks it for ever, or is at its end."""
        query, state, wait_event = self._activity()
        return wait_event == "ClientWrite" or query == self._last and state != "active" and wait_event == "ClientRead"

    def _activity(self) -> tuple[str, str, str] | None:
        return self._watcher.execute("SELECT left(query, %s), state, wait_event FROM pg_stat_activity"
                                     " WHERE pid = %s", (QUERY_MAX, self.pid)).fetchone()


def full(cluster: Cluster, watcher: psycopg.Connection) -> int:
    """The size of a result that a socket just takes, with no message after it."""
    fits, too_much = 0, FILL_BYTES_MAX
    while too_much - fits > STEP_BYTES:
        middle = (fits + too_much) // 2
        client = Mute(cluster, watcher)
        if client.stick("SELECT 1 / 0", middle) and client.is_in_statement():
            client.close()
            return middle
        if client.is_through():
            fits = middle
        else:
            too_much = middle
        client.close()
    raise AssertionError("no client's socket could be filled")
