"""Private, throw-away servers of Redis and NATS, started like harness.cluster's: unprivileged, in a
folder of their own, ended and removed however the program ends."""

import functools
import os
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from bench.family import Skipped
from bench.measure import MeasureError
from harness import cleanup
from harness.cluster import SERVER_USERS, TEMPORARY_FOLDER

START_TIMEOUT_S = 20
STOP_TIMEOUT_S = 10
CONNECTIONS_MAX = 2000
LOOPBACK = "127.0.0.1"
SYSTEM_PROGRAMS = "/usr/local/sbin:/usr/sbin:/sbin"  # not on every user's PATH

# What a server may hold back for one subscriber that reads too slowly, before it cuts it off. The
# defaults (Redis: 32 MB, or 8 MB for a minute; NATS: 64 MB) would count a burst as a failure.
SUBSCRIBER_BUFFER_MB = 1024


def free_port() -> int:
    """A TCP port of the loopback interface that nobody uses at this moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return probe.getsockname()[1]


def _identity() -> dict:
    """What makes subprocess start a program as an unprivileged user."""
    if os.geteuid() != 0:
        return {}
    for name in SERVER_USERS:
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise MeasureError(f"root must become another user to run a server: none of {SERVER_USERS} exists")


class Server:
    """A server that listens on a TCP port of the loopback interface, and on a unix socket if it can.

    Enter the context to start it. Skipped if its program is not installed.
    """

    name: str
    package: str
    has_unix_socket = False

    def __init__(self) -> None:
        self.program = shutil.which(self.package, path=f"{os.environ.get('PATH', '')}:{SYSTEM_PROGRAMS}")
        if self.program is None:
            raise Skipped(f"{self.package} is not installed (Debian's package {self.package})")
        self.folder: Path | None = None
        self.process: subprocess.Popen | None = None

    def __enter__(self) -> "Server":
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_exception) -> None:
        self.stop()

    def command(self) -> list[str]:
        """The command that runs the server in the foreground."""
        raise NotImplementedError

    @property
    def tcp(self) -> str:
        """Where it listens, as IP:PORT."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def unix_socket(self) -> str:
        """Where it listens, as a path."""
        return str(self.folder / "socket")

    def pids(self) -> list[int]:
        """The server's processes."""
        return [self.process.pid]

    @functools.cached_property
    def version(self) -> str:
        """Its version, as in "7.0.15"."""
        result = subprocess.run([self.program, "--version"], capture_output=True, text=True, check=False)
        found = re.search(r"\d+\.\d+[\w.]*", result.stdout + result.stderr)
        return found.group() if found else "of unknown version"

    def stop(self) -> None:
        """Ends the server and deletes its folder. May be called again."""
        cleanup.cancel(self.stop)
        with cleanup.deferred_signals():
            if self.process is not None:
                self.process.terminate()
                try:
                    self.process.wait(STOP_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()
                self.process = None
            if self.folder is not None:
                shutil.rmtree(self.folder, ignore_errors=True)
                self.folder = None

    def _start(self) -> None:
        cleanup.at_end(self.stop)
        identity = _identity()
        with cleanup.deferred_signals():
            self.folder = Path(tempfile.mkdtemp(prefix="herald-", dir=TEMPORARY_FOLDER))
            if identity:
                os.chown(self.folder, identity["user"], identity["group"])
            self.port = free_port()
            with open(self.folder / "log", "wb") as log:
                self.process = subprocess.Popen(
                    self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                    start_new_session=True, **identity)
        self._wait_until_up()

    def _wait_until_up(self) -> None:
        """Until it takes connections on its port; it has its unix socket by then, if it has one."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection((LOOPBACK, self.port), timeout=1).close()
                if not self.has_unix_socket or os.path.exists(self.unix_socket):
                    return
            except OSError:
                pass
            time.sleep(0.02)
        log = (self.folder / "log").read_text(encoding="utf-8", errors="replace")
        raise MeasureError(f"{self.package} did not start: {log[-500:].strip()}")


class Redis(Server):
    """Redis as it is by default, but that it writes nothing to disk and cuts nobody off early."""

    name = "redis"
    package = "redis-server"
    has_unix_socket = True

    def command(self) -> list[str]:
        limit = SUBSCRIBER_BUFFER_MB * 1024 * 1024
        return [self.program, "--bind", LOOPBACK, "--port", str(self.port), "--unixsocket", self.unix_socket,
                "--unixsocketperm", "777", "--save", "", "--appendonly", "no", "--dir", str(self.folder),
                "--maxclients", str(CONNECTIONS_MAX), "--client-output-buffer-limit", f"pubsub {limit} 0 0"]


class Nats(Server):
    """NATS as it is by default (no JetStream), but that it cuts nobody off early."""

    name = "nats"
    package = "nats-server"

    def command(self) -> list[str]:
        config = self.folder / "config"
        config.write_text(f'max_pending: {SUBSCRIBER_BUFFER_MB}MB\nwrite_deadline: "60s"\n', encoding="utf-8")
        config.chmod(0o644)
        return [self.program, "--addr", LOOPBACK, "--port", str(self.port), "--config", str(config)]
