"""A proxy for a server's port that passes on everything but notifications."""

import socket
import socketserver
import struct
import threading

from harness.ports import LOOPBACK

NOTIFICATION = b"A"
CHUNK_BYTES = 65536


class Mute(socketserver.ThreadingTCPServer):
    """Accepts connections within a `with`; they must begin with a StartupMessage: no TLS, no GSSAPI."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, server_port: int):
        super().__init__((LOOPBACK, 0), _Connection)
        self.server_to_mute = (LOOPBACK, server_port)
        self.port: int = self.server_address[1]
        self.dropped = 0  # notifications
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *exception) -> None:
        self.shutdown()
        super().__exit__(*exception)

    def handle_error(self, request, client_address) -> None:
        """Ignores a side that has disconnected."""


class _Connection(socketserver.BaseRequestHandler):

    def handle(self) -> None:
        with socket.create_connection(self.server.server_to_mute) as server:
            for side in (self.request, server):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.pass_on_requests, args=(server,), daemon=True).start()
            try:
                self.pass_on_answers(server)
            finally:
                self.request.shutdown(socket.SHUT_RDWR)

    def pass_on_requests(self, server: socket.socket) -> None:
        """Passes on all that the client sends."""
        try:
            while data := self.request.recv(CHUNK_BYTES):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # handle() sees the end

    def pass_on_answers(self, server: socket.socket) -> None:
        """Passes on the server's messages, each with a type, a length that includes itself, and the rest."""
        with server.makefile("rb") as answers:
            while len(head := answers.read(5)) == 5:
                rest = answers.read(struct.unpack("!xI", head)[0] - 4)
                if head[:1] == NOTIFICATION:
                    self.server.dropped += 1
                else:
                    self.request.sendall(head + rest)
