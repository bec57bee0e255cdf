"""Stop points, as tests use them, and sessions that must survive faults at them.

A stop point (src/core/stop_point.h) is a named place in the module. If it is armed, the next process that reaches it
waits, throws an error, or is cancelled, terminated or killed there.
"""

import threading
from collections.abc import Callable, Iterable

import psycopg

from harness.cluster import Cluster
from laggards import KILOBYTES_7, files, no_leak
from support import DEADLINE_S, hear, left_nothing, notify, one, until, watchdog_stopped

FUNCTIONS = """
    CREATE FUNCTION stop_arm(name text, action text, pid integer, times integer) RETURNS void
        LANGUAGE C STRICT AS '$libdir/pg_herald', 'herald_stop_arm';
    CREATE FUNCTION stop_release(name text) RETURNS integer
        LANGUAGE C STRICT AS '$libdir/pg_herald', 'herald_stop_release';
    CREATE FUNCTION stop_waiter(name text) RETURNS integer
        LANGUAGE C STRICT AS '$libdir/pg_herald', 'herald_stop_waiter';
    CREATE FUNCTION stop_armed(name text) RETURNS boolean
        LANGUAGE C STRICT AS '$libdir/pg_herald', 'herald_stop_armed';
    CREATE FUNCTION stop_state() RETURNS text
        LANGUAGE C STRICT AS '$libdir/pg_herald', 'herald_stop_state';
    CREATE FUNCTION stop_turns() RETURNS integer
        LANGUAGE C STRICT AS '$libdir/pg_herald', 'herald_stop_turns';
    CREATE FUNCTION stop_lose_large(number bigint) RETURNS void
        LANGUAGE C STRICT AS '$libdir/pg_herald', 'herald_stop_lose_large';
    CREATE FUNCTION stop_logged() RETURNS text
        LANGUAGE C STRICT AS '$libdir/pg_herald', 'herald_stop_logged';
    CREATE FUNCTION stop_anchor(place bigint) RETURNS pg_lsn
        LANGUAGE C STRICT AS '$libdir/pg_herald', 'herald_stop_anchor';
    CREATE FUNCTION stop_write_anchor() RETURNS void
        LANGUAGE C STRICT AS '$libdir/pg_herald', 'herald_stop_write_anchor';
    CREATE FUNCTION stop_forget_anchors() RETURNS void
        LANGUAGE C STRICT AS '$libdir/pg_herald', 'herald_stop_forget_anchors';
    CREATE FUNCTION stop_slot(pid integer) RETURNS integer
        LANGUAGE C STRICT AS '$libdir/pg_herald', 'herald_stop_slot';
    CREATE FUNCTION stop_damage(what text) RETURNS void
        LANGUAGE C STRICT AS '$libdir/pg_herald', 'herald_stop_damage';
    CREATE FUNCTION stop_is_logged(channel text) RETURNS boolean
        LANGUAGE C STRICT AS '$libdir/pg_herald', 'herald_stop_is_logged';
    CREATE FUNCTION stop_any_logged() RETURNS boolean
        LANGUAGE C STRICT AS '$libdir/pg_herald', 'herald_stop_any_logged';
"""

CHANNELS = 10_000  # more than fit into the 1 MB that laggards.SMALLEST leaves for them

AT_REST = ("turns 0, to be woken 0, dispatching 0, waiting for dispatch 0, room awaited 0, large files 0,"
           " any to be deleted 0")


class Points:
    """The stop points of a server, through a connection that reaches none of them itself."""

    def __init__(self, watcher: psycopg.Connection):
        self.watcher = watcher

    def arm(self, point: str, action: str = "wait", pid: int = 0, times: int = 1) -> None:
        """Has the next process at the point (or only the one with this pid) do the action there, `times` times."""
        self.watcher.execute("SELECT stop_arm(%s, %s, %s, %s)", (point, action, pid, times))

    def release(self, point: str = "") -> int:
        """Disarms this point, or all of them; processes that wait there go on. Returns their number."""
        return one(self.watcher, "SELECT stop_release(%s)", point)

    def standing(self, point: str) -> int | None:
        """The pid of a process that waits there, if there is one."""
        return one(self.watcher, "SELECT stop_waiter(%s)", point)

    def waiter(self, point: str) -> int:
        """Waits until a process waits there; returns its pid."""
        return until(lambda: self.standing(point), f"somebody waits at {point}")

    def reached(self, point: str) -> None:
        """Waits until the point has been reached as often as it was armed for."""
        until(lambda: not one(self.watcher, "SELECT stop_armed(%s)", point), f"somebody comes by {point}")

    def slot(self, listener: psycopg.Connection) -> int | None:
        """A listener's slot in shared memory."""
        return one(self.watcher, "SELECT stop_slot(%s)", pid_of(listener))

    def state(self) -> str:
        """Resources in use that no view shows."""
        return one(self.watcher, "SELECT stop_state()")

    def turns(self) -> int:
        """How many turns there are at present."""
        return one(self.watcher, "SELECT stop_turns()")


class Doing:
    """A statement that runs in a thread of its own; it may fail."""

    def __init__(self, connection: psycopg.Connection, sql: str):
        self.error: psycopg.Error | None = None
        self._thread = threading.Thread(target=self._run, args=(connection, sql), daemon=True)
        self._thread.start()

    def _run(self, connection: psycopg.Connection, sql: str) -> None:
        try:
            connection.execute(sql)
        except psycopg.Error as error:
            self.error = error

    def runs(self) -> bool:
        """Whether it has not ended yet."""
        return self._thread.is_alive()

    def end(self, deadline_s: float = DEADLINE_S) -> psycopg.Error | None:
        """Waits until it has ended; returns its error."""
        until(lambda: not self.runs(), "the statement ends", deadline_s)
        self._thread.join()
        return self.error


class Actors:
    """Threads that act until they are asked to end; an exception in one of them fails the test."""

    def __init__(self):
        self.done = threading.Event()
        self.problems: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def start(self, *actors: Callable[[], None]) -> None:
        """Starts each in a thread of its own."""
        for actor in actors:
            self._threads.append(threading.Thread(target=self._run, args=(actor,), daemon=True))
            self._threads[-1].start()

    def end(self) -> None:
        """Asks the threads to end, and waits for that."""
        self.done.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "a client hangs"
        assert not self.problems, self.problems

    def _run(self, actor: Callable[[], None]) -> None:
        try:
            actor()
        except BaseException as error:
            self.problems.append(error)


class Scene:
    """A sender and three listeners to c, which must go on working whatever happens to a victim."""

    def __init__(self, cluster: Cluster, connect: Callable[[Cluster], psycopg.Connection]):
        self.cluster = cluster
        self._connect = connect
        self._opened: list[psycopg.Connection] = []
        self.watcher = connect(cluster)
        self.points = Points(self.watcher)
        self.sender = self.connect()
        self.listeners = [self.listener() for _ in range(3)]
        self._number = 0

    def connect(self) -> psycopg.Connection:
        """Opens one more connection, which is closed at the end."""
        self._opened.append(self._connect(self.cluster))
        return self._opened[-1]

    def listener(self, channel: str = "c") -> psycopg.Connection:
        """Opens one more session, which listens."""
        connection = self.connect()
        connection.execute(f"LISTEN {channel}")
        return connection

    def stand_still(self, point: str, connection: psycopg.Connection, sql: str) -> Doing:
        """Starts a statement, and waits until it is held at this point.

        The watchdog, which could be faster to hand out a turn, does not run until then.
        """
        self.points.arm(point, "wait", pid_of(connection))
        with watchdog_stopped(self.cluster):
            doing = Doing(connection, sql)
            assert self.points.waiter(point) == pid_of(connection)
        return doing

    def send_until_standing(self, point: str, connection: psycopg.Connection,
                            channel: str) -> tuple[list[str], Doing]:
        """Sends payloads, each in a transaction of its own, until a sender is held at this point.

        Returns the payloads, of which the last is not sent yet, and its statement.
        """
        self.points.arm(point, "wait", pid_of(connection))
        sent = []
        while True:
            sent.append(f"{len(sent)} {KILOBYTES_7}")
            doing = Doing(connection, f"NOTIFY {channel}, '{sent[-1]}'")
            until(lambda: not doing.runs() or self.points.standing(point), "it is sent, or stands still")
            if doing.runs():
                return sent, doing
            assert doing.end() is None and len(sent) < 1000

    def send(self, count: int = 5) -> list[str]:
        """Notifies c of the next numbers; returns the payloads."""
        sent = [f"number {self._number + number}" for number in range(count)]
        self._number += count
        notify(self.sender, "c", *sent)
        return sent

    def goes_on(self, before: Iterable[str] = (), also: Iterable[psycopg.Connection] = ()) -> None:
        """All listeners (and also these) receive what was sent before, and what is sent now, once and in order."""
        expected = [*before, *self.send()]
        for listener in [*self.listeners, *also]:
            heard = hear(listener, len(expected))
            assert heard == expected

    def end(self) -> None:
        """Closes the sessions; then no slot, channel, turn or file may be left, and no process may be waiting."""
        self.points.release()
        pids = [pid_of(connection) for connection in self._opened if not connection.closed]
        for connection in self._opened:
            connection.close()

        # A session that exits hands out turns once more: without this wait, that could happen in the next scene.
        until(lambda: not one(self.watcher, "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(%s)", pids),
              "the sessions have ended")
        until(lambda: self.points.state() == AT_REST, "all is given back")
        until(lambda: left_nothing(self.watcher), "nobody listens, and the queue is empty")
        until(lambda: not files(self.cluster.data), "the files are deleted")
        assert one(self.watcher, "SELECT spilled FROM herald.queue") == 0
        no_leak(self.cluster)


def pid_of(connection: psycopg.Connection) -> int:
    """The process id of the backend."""
    return connection.info.backend_pid


def listen_to(prefix: str, first: int, count: int) -> str:
    """A statement that listens to `count` channels in one transaction."""
    return (f"DO $$ BEGIN FOR n IN {first}..{first + count - 1} LOOP"
            f" EXECUTE format('LISTEN {prefix}_%s', n); END LOOP; END $$")
