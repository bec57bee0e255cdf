"""Senders: each transaction inserts orders, and a trigger notifies of each, on whichever host is the primary."""

import threading
import time
from random import Random

import psycopg

PAUSE_S = 0.05  # of a sender, at most
ROWS_MAX = 3
ORDER = "INSERT INTO orders SELECT FROM generate_series(1, %s) RETURNING id"
RETRY_S = 0.05


class Sender(threading.Thread):
    """Sends from start() to end().

    acknowledged  the orders whose commits the server has confirmed, and `times` when it did so
    unanswered    the number of transactions of which it never said whether they are committed
    """

    def __init__(self, uri: str, number: int):
        super().__init__(name=f"sender {number}", daemon=True)
        self._uri, self._random = uri, Random(number)
        self.acknowledged: list[int] = []
        self.times: list[float] = []
        self.unanswered = 0
        self.problem: Exception | None = None
        self._asked_to_end = threading.Event()

    def run(self) -> None:
        """Connects again as long as it is not to end."""
        try:
            while not self._asked_to_end.is_set():
                try:
                    self._send()
                except psycopg.OperationalError:  # there is no primary for a moment
                    time.sleep(RETRY_S)
        except Exception as problem:  # pylint: disable=broad-exception-caught
            self.problem = problem

    def end(self, deadline_s: float) -> None:
        """Lets it end; raises what has gone wrong."""
        self._asked_to_end.set()
        self.join(deadline_s)
        if self.is_alive():
            raise TimeoutError(f"{self.name} has not ended within {deadline_s:g} s")
        if self.problem:
            raise self.problem

    def _send(self) -> None:
        with psycopg.connect(self._uri, autocommit=True) as connection:
            while not self._asked_to_end.wait(self._random.uniform(0, PAUSE_S)):
                self.unanswered += 1
                rows = connection.execute(ORDER, [self._random.randint(1, ROWS_MAX)]).fetchall()
                self.unanswered -= 1
                self.times.append(time.time())
                self.acknowledged += [number for number, in rows]
