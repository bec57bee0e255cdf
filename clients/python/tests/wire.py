"""A proxy before a server, whose connections can go silent."""

import socket
import threading

CHUNK_BYTES = 65536


class Wire:
    """Passes everything on, until it is silent: then nothing, in both directions, not even the end of a connection."""

    def __init__(self, address):
        self._server = (address["host"], address["port"])
        self._silent = set()
        self._sockets = []
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def mute(self):
        """The present connections pass nothing any more; later ones do."""
        self._silent.update(self._sockets)

    def unmute(self):
        """They end."""
        for each in self._silent:
            _end(each)

    def close(self):
        """All of them end."""
        for each in [self._door, *self._sockets]:
            _end(each)

    def _accept(self):
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:  # closed
                return
            server = socket.create_connection(self._server)
            self._sockets += [client, server]
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source, target):
        try:
            while (data := source.recv(CHUNK_BYTES)) and source not in self._silent:
                target.sendall(data)
        except OSError:
            pass
        if source not in self._silent:  # else it stays open
            _end(target)


def _end(each):
    try:
        each.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    each.close()
