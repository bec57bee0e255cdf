"""Private servers of Redis and NATS."""

import functools
import re
import subprocess
from pathlib import Path

from bench.family import Skipped
from harness.installation import InstallationError
from harness.ports import LOOPBACK
from harness.private_server import PrivateServer

CONNECTIONS_MAX = 2000

# The output that a server may buffer for a subscriber that reads too slowly, before it disconnects it. With the
# defaults (Redis: 32 MB, or 8 MB for a minute; NATS: 64 MB) a burst would disconnect subscribers.
SUBSCRIBER_BUFFER_MB = 1024


class Peer(PrivateServer):
    """Redis or NATS. Skipped if it is not installed; Debian's package has the program's name."""

    def __init__(self) -> None:
        try:
            super().__init__()
        except InstallationError as error:
            raise Skipped(f"{error} (Debian's package {self.program_name})") from error

    def pids(self) -> list[int]:
        """The server's processes."""
        return [self.process.pid]

    @functools.cached_property
    def version(self) -> str:
        """The server's version, as in "7.0.15"."""
        result = subprocess.run([self.program, "--version"], capture_output=True, text=True, check=False)
        found = re.search(r"\d+\.\d+[\w.]*", result.stdout + result.stderr)
        return found.group() if found else "of unknown version"


class Redis(Peer):
    """Redis with its defaults, but without writing to disk, and with a larger output buffer for subscribers."""

    program_name = "redis-server"

    @property
    def unix_socket(self) -> Path:
        return self.folder / "socket"

    def command(self) -> list[str]:
        limit = SUBSCRIBER_BUFFER_MB * 1024 * 1024
        return [self.program, "--bind", LOOPBACK, "--port", str(self.port),
                "--unixsocket", str(self.unix_socket), "--unixsocketperm", "777", "--save", "",
                "--appendonly", "no", "--dir", str(self.folder), "--maxclients", str(CONNECTIONS_MAX),
                "--client-output-buffer-limit", f"pubsub {limit} 0 0"]


class Nats(Peer):
    """NATS with its defaults (no JetStream), but with a larger output buffer for subscribers."""

    program_name = "nats-server"

    def command(self) -> list[str]:
        config = self.write("config", f'max_pending: {SUBSCRIBER_BUFFER_MB}MB\nwrite_deadline: "60s"\n')
        return [self.program, "--addr", LOOPBACK, "--port", str(self.port), "--config", str(config)]
