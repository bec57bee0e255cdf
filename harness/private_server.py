"""A private, throw-away server that is not PostgreSQL, such as PgBouncer or Redis.

    class Redis(PrivateServer):
        program_name = "redis-server"

        def command(self) -> list[str]:
            return [self.program, "--bind", LOOPBACK, "--port", str(self.port)]

    with Redis() as redis:
        print(redis.port)

Like a cluster it runs as an unprivileged user, in a folder of its own that other users cannot enter, and
is stopped and removed when the interpreter ends, in whatever way.
"""

import shutil
import socket
import subprocess
import time
from pathlib import Path

from harness import cleanup, server_user
from harness.installation import InstallationError, system_program
from harness.ports import LOOPBACK, free_port

START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 10
POLL_S = 0.02


class ServerError(RuntimeError):
    """The server did not start; the message contains its output."""


class PrivateServer:
    """One server; it runs from entering the context until leaving it. InstallationError if there is no program.

    folder      its own folder, for all files that it reads or writes
    port        its port on the loopback interface, which was free when the context was entered
    """

    program_name: str

    def __init__(self) -> None:
        program = system_program(self.program_name)
        if program is None:
            raise InstallationError(f"{self.program_name} is not installed")
        self.program: str = program
        self.folder: Path | None = None
        self.port: int | None = None
        self.process: subprocess.Popen | None = None

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_exception) -> None:
        self.stop()

    # ---- defined by each kind of server ----

    def command(self) -> list[str]:
        """The command that runs it in the foreground. Folder and port are set; write() makes files for it to read."""
        raise NotImplementedError

    @property
    def unix_socket(self) -> Path | None:
        """Its unix socket, if it listens on one."""
        return None

    # ---- for all ----

    def write(self, name: str, text: str) -> Path:
        """Writes a file in the folder that the server can read."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        server_user.give(path)
        return path

    def log(self) -> str:
        """All its output."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def crash(self) -> None:
        """Kills the server, and starts it again with the same folder and port."""
        with cleanup.deferred_signals():
            self.process.kill()
            self.process.wait()
            self._run()
        self._wait_until_it_answers()

    def stop(self) -> None:
        """Stops the server and deletes its folder. May be called again."""
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
        with cleanup.deferred_signals():
            self.folder = server_user.make_folder()
            self.port = free_port()
            self._run()
        self._wait_until_it_answers()

    def _run(self) -> None:
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                start_new_session=True, **server_user.identity())

    def _wait_until_it_answers(self) -> None:
        end = time.monotonic() + START_TIMEOUT_S
        while not self._answers():
            status = self.process.poll()
            if status is not None:
                raise ServerError(f"{self.program_name} ended with {status}: {self.log()[-2000:].strip()}")
            if time.monotonic() > end:
                raise ServerError(f"{self.program_name} does not answer within {START_TIMEOUT_S} s: "
                                  f"{self.log()[-2000:].strip()}")
            time.sleep(POLL_S)

    def _answers(self) -> bool:
        """Whether it accepts connections on its port and, if it has one, on its unix socket."""
        try:
            socket.create_connection((LOOPBACK, self.port), timeout=1).close()
            if self.unix_socket:
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(str(self.unix_socket))
        except OSError:
            return False
        return True
