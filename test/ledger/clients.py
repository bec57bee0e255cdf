"""Clients that are cut off again and again, and keep a ledger of what they have received."""

import random
import threading
import time

from harness.cluster import Cluster
from wire import Wire, cstring, error, fatal

POSITION = "herald_position"

# One channel more, from a position that may be ahead of what this session has been told of on the others.
ANOTHER = "SELECT herald.listen('another', (SELECT position FROM herald.read('another') LIMIT 1))"


class Missing(Exception):
    """The server says that something is not kept any more."""


def notification(body: bytes) -> tuple[str, str]:
    """Channel and payload of a NotificationResponse."""
    channel, payload, _ = body[4:].split(b"\0")
    return channel.decode(), payload.decode().rstrip(".")


class Client(threading.Thread):
    """What is common to both kinds: what is behind the last position does not count."""

    def __init__(self, cluster: Cluster, name: str, seed: int, channels: list[str], token: str):
        super().__init__(name=name)
        self.cluster, self.random, self.channels = cluster, random.Random(seed), channels
        self.token, self.ledger, self.sure = token, [], 0
        self.last, self.ended, self.problem = None, threading.Event(), None
        self.pid, self.cuts, self.repeated = 0, 0, 0

    def run(self) -> None:
        try:
            while not self.has_ended():
                self.session()
                self.cuts += 1
                self.repeated += len(self.ledger) - self.sure
                del self.ledger[self.sure:]
        except Exception as problem:  # pylint: disable=broad-exception-caught
            self.problem = problem

    def has_ended(self) -> bool:
        """It has the last notification of each channel, and a position after them."""
        return self.last is not None and \
            {channel for channel, payload in self.ledger[:self.sure] if payload == self.last} == set(self.channels)

    def connect(self) -> Wire:
        wire = Wire(self.cluster)
        self.pid = wire.pid
        return wire

    def session(self) -> None:
        raise NotImplementedError


class Pushed(Client):
    """Listens, also to its position; its socket is closed, or its server process ended, at any moment."""

    def session(self) -> None:
        wire = self.connect()
        try:
            wire.send(("Q", cstring("BEGIN; LISTEN herald_position; "
                                    + " ".join(f"SELECT herald.listen('{channel}', '{self.token}');"
                                               for channel in self.random.sample(self.channels, len(self.channels)))
                                    + "COMMIT")))
            self.take(wire.until_ready())
            end = time.monotonic() + self.random.expovariate(1 / 1.5)
            while time.monotonic() < end and not self.has_ended():
                if self.random.random() < 0.3:
                    wire.send(("Q", cstring(ANOTHER)))
                if self.random.random() < 0.02:
                    time.sleep(self.random.random())  # the network is slow, and what the server sends waits
                self.take(wire.arrived(0.05))
        except (ConnectionError, EOFError, StopIteration):  # cut off
            pass
        finally:
            self.pid = 0
            wire.socket.close()  # without a word, and with what has arrived unread

    def take(self, messages: list[tuple[str, bytes]]) -> None:
        """What the server has sent, in its order."""
        for kind, body in messages:
            if kind == "A":
                channel, payload = notification(body)
                if channel == POSITION:
                    self.token, self.sure = payload, len(self.ledger)
                else:
                    self.ledger.append((channel, payload))
            elif kind == "D" and body[6:] != b"t":
                raise Missing(f"herald.listen() says {body[6:]!r}")
            elif kind == "E" and (state := error([(kind, body)]) or fatal([(kind, body)])) and \
                    not state.startswith("57P01"):
                raise Missing(state)


class Pulled(Client):
    """Reads its one channel by herald.read(), each time in another session."""

    def session(self) -> None:
        wire = self.connect()
        try:
            for _ in range(self.random.randrange(1, 20)):
                wait_ms = self.random.choice([0, 0, 20, 300])
                messages = wire.query("SELECT position, payload FROM herald.read('{}', '{}', {}, '{} ms')".format(
                    self.channels[0], self.token, self.random.choice([1, 10, 1000]), wait_ms))
                if state := error(messages) or fatal(messages):
                    if state.startswith("57P01"):
                        break
                    raise Missing(state)
                self.take([body for kind, body in messages if kind == "D"])
                if self.has_ended():
                    break
        except (ConnectionError, EOFError, StopIteration):  # cut off
            pass
        finally:
            self.pid = 0
            wire.socket.close()

    def take(self, rows: list[bytes]) -> None:
        """A position, of 84 characters, and a payload in each."""
        for row in rows:
            self.token = row[6:90].decode()
            if row[90:94] != b"\xff" * 4:
                self.ledger.append((self.channels[0], row[94:].decode().rstrip(".")))
        self.sure = len(self.ledger)
