"""A proxy for a server's port that breaks connections in the ways in which networks break them."""

import re
import socket
import struct
import threading
import time
from collections.abc import Callable

from harness.ports import LOOPBACK

CHUNK_BYTES = 65536
CONNECT_TIMEOUT_S = 10
BREAK_TIMEOUT_S = 60
COMMIT = re.compile(rb"\bcommit\b|\0S_1\0", re.IGNORECASE)  # S_1 is the name of pgjdbc's prepared COMMIT

Pair = tuple[socket.socket, socket.socket]  # of the client, of the server


class Proxy:
    """Passes everything on, until it is asked to break connections. At the end of a `with` it resets all of them."""

    def __init__(self, port: int):
        self._server_port = port
        self._lock = threading.Lock()
        self._pairs: list[Pair] = []
        self._left: int | None = None  # the number of bytes to pass to the clients before the connections break
        self._late: tuple[bytes, float] | None = None  # see delay_commit()
        self._lingers_s = 0.0  # see delay_end()
        self._muted: set[socket.socket] = set()  # see mute()
        self._broken = threading.Event()
        self._door = socket.create_server((LOOPBACK, 0))
        self.port: int = self._door.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *_exception) -> None:
        _reset(self._door)
        self.reset()

    # ---- ways to break connections ----

    def reset(self) -> None:
        """Resets all connections, on both sides."""
        for pair in self._take():
            for side in pair:
                _reset(side)

    def tear(self, size: int) -> None:
        """Resets all connections after passing `size` more bytes to the clients, in the middle of a message."""
        self._broken.clear()
        self._left = size
        self._await_break()

    def desert(self, seconds: float) -> None:
        """Resets the clients' side; the server's side later, and until then nothing that it sends is read."""
        pairs = self._take()
        for client, _ in pairs:
            _reset(client)
        time.sleep(seconds)
        for _, server in pairs:
            _reset(server)

    def delay_commit(self, work: bytes, seconds: float) -> None:
        """Resets all connections, and then the next one that commits such work; the server still receives the COMMIT,
        but only after the client has reconnected."""
        self._broken.clear()
        self._late = (work, seconds)
        self.reset()
        self._await_break()

    def delay_end(self, end: Callable[[], None], seconds: float) -> None:
        """Calls `end`, with which the server ends connections: clients receive its last messages now, the end later."""
        self._lingers_s = seconds
        try:
            end()
            time.sleep(seconds)
        finally:
            self._lingers_s = 0

    def close(self) -> None:
        """Closes all connections, on both sides, as a pooler or a balancer does: with no reset."""
        for pair in self._take():
            for side in pair:
                _close(side)

    def mute(self, to_server: bool, to_client: bool) -> None:
        """From now on nothing passes in these directions on the present connections, not even their end, and no side is
        informed. Later connections are not affected."""
        with self._lock:
            for client, server in self._pairs:
                self._muted |= {server} if to_server else set()
                self._muted |= {client} if to_client else set()

    def end_muted(self) -> None:
        """Resets the connections that are mute, on both sides, as keepalives do after a while."""
        with self._lock:
            ended = [pair for pair in self._pairs if self._muted & set(pair)]
            self._pairs = [pair for pair in self._pairs if pair not in ended]
            self._muted.clear()
        for pair in ended:
            for side in pair:
                _reset(side)

    # ---- within ----

    def _await_break(self) -> None:
        broken = self._broken.wait(BREAK_TIMEOUT_S)
        self._left = self._late = None
        if not broken:
            raise TimeoutError(f"what was to break the connection did not come within {BREAK_TIMEOUT_S} s")

    def _take(self) -> list[Pair]:
        with self._lock:
            pairs, self._pairs = self._pairs, []
        return pairs

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:  # closed
                return
            try:
                server = socket.create_connection((LOOPBACK, self._server_port), CONNECT_TIMEOUT_S)
            except OSError:
                _reset(client)
                continue
            server.settimeout(None)
            threading.Thread(target=self._serve, args=((client, server),), daemon=True).start()

    def _serve(self, pair: Pair) -> None:
        with self._lock:
            self._pairs.append(pair)
        back = threading.Thread(target=self._pass_on, args=(pair, *pair[::-1]), daemon=True)
        back.start()
        self._pass_on(pair, *pair)
        back.join()
        with self._lock:
            if pair in self._pairs:
                self._pairs.remove(pair)
            else:
                return  # broken: the code that broke it closes each side
        for side in pair:
            side.close()

    def _pass_on(self, pair: Pair, source: socket.socket, target: socket.socket) -> None:
        worked = False
        try:
            while data := source.recv(CHUNK_BYTES):
                self._until_not_muted(pair, target)
                late = self._late
                worked = worked or late and late[0] in data
                if target is pair[0]:
                    data, last = self._until_torn(pair, data)
                    target.sendall(data)
                    if last:
                        time.sleep(0.01)  # a reset would overtake data that is still being sent
                        self.reset()
                        self._broken.set()
                elif late and worked and COMMIT.search(data):
                    self._send_late(target, data, late[1])
                else:
                    target.sendall(data)
            time.sleep(self._lingers_s)
            self._until_not_muted(pair, target)
            self._end(pair, target, socket.SHUT_WR)
        except OSError:  # one side has disconnected: disconnect the other one
            self._until_not_muted(pair, target)
            for side in pair:
                self._end(pair, side, socket.SHUT_RDWR)

    def _until_not_muted(self, pair: Pair, target: socket.socket) -> None:
        """Waits while nothing may pass to this side, unless the connection is broken meanwhile."""
        while target in self._muted and pair in self._pairs:
            time.sleep(0.02)

    def _until_torn(self, pair: Pair, data: bytes) -> tuple[bytes, bool]:
        """The part of the data that a client still receives, and whether it is the last."""
        with self._lock:
            if pair not in self._pairs:
                return b"", False
            if self._left is None:
                return data, False
            data = data[:self._left]
            self._left -= len(data)
            return data, self._left == 0

    def _send_late(self, server: socket.socket, data: bytes, late_s: float) -> None:
        """Breaks all connections, and sends data late, as delay_commit() describes."""
        self._late = None
        pairs = self._take()
        for client, _ in pairs:
            _reset(client)
        while not self._pairs:
            time.sleep(0.01)
        time.sleep(late_s)
        server.sendall(data)
        time.sleep(late_s)
        for _, server in pairs:
            _reset(server)
        self._broken.set()

    def _end(self, pair: Pair, side: socket.socket, how: int) -> None:
        """Shuts a side down, unless the pair was broken: then the other side must not notice yet."""
        with self._lock:
            if pair in self._pairs:
                try:
                    side.shutdown(how)
                except OSError:
                    pass


def _close(side: socket.socket) -> None:
    """Closes it, also for a thread that is reading from it."""
    try:
        side.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    side.close()


def _reset(side: socket.socket) -> None:
    """Closes it at once, also for a thread that is reading from it."""
    try:
        side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        side.shutdown(socket.SHUT_RD)
    except OSError:
        pass
    side.close()
