"""Senders of all kinds: small and large transactions, subtransactions, rollbacks; floods in another database."""

import random
import threading

import psycopg

CHANNELS = [f"c{number}" for number in range(4)]
LARGE = 400  # notifications of 2,000 bytes: more than a segment of the smallest ring


class Sender(threading.Thread):
    """Sends until it is told to stop; each payload once."""

    def __init__(self, connection: psycopg.Connection, name: str, seed: int):
        super().__init__(name=name)
        self.connection, self.random = connection, random.Random(seed)
        self.number, self.stopped, self.problem = 0, threading.Event(), None

    def run(self) -> None:
        try:
            while not self.stopped.wait(self.pause_s()):
                self.transaction()
        except psycopg.Error as problem:
            self.problem = problem

    def transaction(self) -> None:
        """One of them, and perhaps it is rolled back."""
        kind = self.random.choices(["small", "many", "savepoint", "large", "rollback"], [60, 20, 10, 2, 8])[0]
        self.connection.execute("BEGIN")
        if kind == "savepoint":
            self.notify(1)
            self.connection.execute("SAVEPOINT s")
            self.notify(2)
            self.connection.execute(self.random.choice(["ROLLBACK TO s", "RELEASE s"]))
        self.notify({"many": 50, "large": LARGE}.get(kind, 1), 2000 if kind == "large" else self.random.randrange(200))
        self.connection.execute("ROLLBACK" if kind == "rollback" else "COMMIT")

    def pause_s(self) -> float:
        """How long until the next one."""
        return self.random.random() * 0.02

    def notify(self, count: int, length: int = 0) -> None:
        """So many, on channels as they come."""
        channels = [self.random.choice(CHANNELS) for _ in range(count)]
        self.connection.execute(
            "SELECT count(pg_notify(channel, %s || ' ' || (%s + number) || repeat('.', %s)))"
            " FROM unnest(%s::text[]) WITH ORDINALITY AS sent(channel, number)",
            (self.name, self.number, length, channels))
        self.number += count


class Elsewhere(Sender):
    """One in another database, on the same channels: now and then it fills some segments alone."""

    def pause_s(self) -> float:
        return self.random.random()

    def transaction(self) -> None:
        for _ in range(self.random.randrange(40)):
            self.notify(10, 2000)
