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

# What a server may hold back for one subscriber that reads too slowly, before it cuts it off. The
# defaults (Redis: 32 MB, or 8 MB for a minute; NATS: 64 MB) would count a burst as a failure.
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
        """Its version, as in "7.0.15"."""
        result = subprocess.run([self.program, "--version"], capture_output=True, text=True, check=False)
        found = re.search(r"\d+\.\d+[\w.]*", result.stdout + result.stderr)
        return found.group() if found else "of unknown version"


class Redis(Peer):
    """Redis as it is by default, but that it writes nothing to disk and cuts nobody off early."""

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
    """NATS as it is by default (no JetStream), but that it cuts nobody off early."""

    program_name = "nats-server"

    def command(self) -> list[str]:
        config = self.write("config", f'max_pending: {SUBSCRIBER_BUFFER_MB}MB\nwrite_deadline: "60s"\n')
        return [self.program, "--addr", LOOPBACK, "--port", str(self.port), "--config", str(config)]
