"""The scenario of ../README.md with psycopg 3: notifies(), and its backlog between statements."""

import json
import os
import sys
import threading
from collections import deque

import psycopg

WRITERS = 4
ROWS_PER_TRANSACTION = 10
WAITING_TRANSACTIONS = 400  # of each writer, while the listener only waits
BUSY_TRANSACTIONS = 100  # of each writer, while the listener runs statements
DEADLINE_S = 60
LARGE = "ä€😀" * 888 + "x" * 7  # 7,999 bytes


def fail(message: str) -> None:
    """Ends the program, whatever its threads do."""
    print(f"psycopg: {message}", file=sys.stderr, flush=True)
    os._exit(1)


def connect() -> psycopg.Connection:
    """A connection with the parameters of the environment."""
    return psycopg.connect(autocommit=True, client_encoding="UTF8")


class Listener:
    """A connection that listens, and a count of what it has received."""

    def __init__(self):
        self.heard = 0
        self.last_seq = dict.fromkeys(range(1, WRITERS + 1), 0)
        self.connect()

    def connect(self) -> None:
        """Connects, or reconnects, and listens."""
        self.connection = connect()
        self.surplus: deque[psycopg.Notify] = deque()
        (self.pid,), = self.connection.execute("SELECT pg_backend_pid()").fetchall()
        self.connection.execute("LISTEN events")

    def next(self) -> psycopg.Notify:
        """The next notification, without running a statement."""
        if not self.surplus:  # notifies() returns all that arrived in one packet
            self.surplus.extend(self.connection.notifies(timeout=DEADLINE_S, stop_after=1))
        if not self.surplus:
            fail(f"nothing came within {DEADLINE_S} s; heard {self.heard} so far")
        return self.surplus.popleft()

    def expect(self, payload: str) -> int:
        """Checks the payload of the next notification; returns its sender."""
        notify = self.next()
        if (notify.channel, notify.payload) != ("events", payload):
            fail(f"heard {notify.payload[:40]!r} on {notify.channel} instead of {payload[:40]!r}")
        self.heard += 1
        return notify.pid

    def take_row(self, notify: psycopg.Notify) -> None:
        """Checks that each writer's rows arrive in order, none lost and none doubled."""
        try:
            writer, seq = map(int, notify.payload.split())
            last = self.last_seq[writer]
        except (ValueError, KeyError):
            fail(f"heard {notify.payload[:40]!r} during the load")
        if seq != last + 1:
            fail(f"writer {writer}: heard row {seq} after row {last}")
        self.last_seq[writer] = seq
        self.heard += 1

    def run_a_transaction(self) -> list[psycopg.Notify]:
        """Runs statements; returns the notifications that arrived with their results."""
        with self.connection.transaction():
            self.connection.execute("SELECT count(*) FROM pg_class").fetchall()
        return list(self.connection.notifies(timeout=0))


def write_rows(writer: int, seq: int, transactions: int) -> None:
    """One writer's part of a load, from row `seq` on."""
    try:
        with connect() as connection:
            for first in range(seq, seq + transactions * ROWS_PER_TRANSACTION, ROWS_PER_TRANSACTION):
                with connection.transaction():
                    connection.execute(
                        "INSERT INTO event SELECT %s, s FROM generate_series(%s::int, %s::int) s",
                        (writer, first, first + ROWS_PER_TRANSACTION - 1))
    except psycopg.Error as error:
        fail(f"writer {writer}: {error}")


def load(listener: Listener, transactions: int, busy: bool) -> None:
    """Runs all writers at once, each on its own connection, and the listener meanwhile."""
    wanted = listener.heard + WRITERS * transactions * ROWS_PER_TRANSACTION
    threads = [threading.Thread(target=write_rows, args=(writer, last + 1, transactions))
               for writer, last in listener.last_seq.items()]
    for thread in threads:
        thread.start()
    while listener.heard < wanted:
        for notify in listener.run_a_transaction() if busy else [listener.next()]:
            listener.take_row(notify)
    for thread in threads:
        thread.join()


def main() -> None:
    listener = Listener()
    other = connect()
    load(listener, WAITING_TRANSACTIONS, busy=False)
    load(listener, BUSY_TRANSACTIONS, busy=True)

    other.execute("SELECT pg_notify('events', %s)", (LARGE,))
    listener.expect(LARGE)

    listener.connection.execute("NOTIFY events, 'own'")
    if listener.expect("own") != listener.pid:
        fail("the notification of its own has another sender")

    with other.transaction(force_rollback=True):
        other.execute("NOTIFY events, 'rolled back'")
    other.execute("NOTIFY events, 'committed'")
    listener.expect("committed")

    listener.connection.execute("UNLISTEN events")
    other.execute("NOTIFY events, 'unheard'")
    listener.connection.execute("LISTEN events")
    other.execute("NOTIFY events, 'heard again'")
    listener.expect("heard again")

    other.execute("SELECT pg_terminate_backend(%s)", (listener.pid,))
    try:
        fail(f"heard {listener.next().payload[:40]!r} instead of the end of the connection")
    except psycopg.OperationalError:
        pass
    other.execute("NOTIFY events, 'missed'")
    listener.connect()
    other.execute("NOTIFY events, 'after reconnecting'")
    listener.expect("after reconnecting")
    listener.connection.close()
    other.close()

    print(json.dumps({"driver": "psycopg", "version": psycopg.__version__, "heard": listener.heard,
                      "steps": ["waiting", "busy", "large", "own", "rollback", "unlisten", "reconnect"]}))


if __name__ == "__main__":
    try:
        main()
    except psycopg.Error as problem:
        fail(str(problem))
