"""A private PgBouncer in session mode in front of a cluster."""

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

from harness import cleanup
from harness.cluster import SUPERUSER, Cluster
from packages import SYSTEM_PATH

START_TIMEOUT_S = 30
END_TIMEOUT_S = 10
POOL_OF_ONE = "pool_of_one"  # a database whose clients share one connection to the server

SETTINGS = """\
[databases]
postgres = host={server} port={server_port} dbname=postgres
{pool_of_one} = host={server} port={server_port} dbname=postgres pool_size=1

[pgbouncer]
pool_mode = session
server_reset_query = {reset_query}
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir = {folder}
auth_type = hba
auth_hba_file = {folder}/hba
auth_file = {folder}/users
; pgjdbc sets it when it connects
ignore_startup_parameters = extra_float_digits
"""


class BouncerError(RuntimeError):
    """PgBouncer did not start; the message holds what it said."""


class Bouncer:
    """PgBouncer, from entering the context until leaving it.

    Like the cluster it trusts its unix socket, which is within the cluster's folder, and wants the
    password by TCP. It runs as the user that the server runs as.
    """

    def __init__(self, cluster: Cluster, port: int, password: str, reset_query: str = "DISCARD ALL"):
        self.folder: Path = cluster.folder / "pgbouncer"
        self.port = port
        self._files = {
            "ini": SETTINGS.format(server=cluster.socket_folder, server_port=cluster.port, port=port,
                                   folder=self.folder, pool_of_one=POOL_OF_ONE, reset_query=reset_query),
            "hba": "local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n",
            "users": f'"{SUPERUSER}" "{password}"\n',
        }
        self._owner = cluster.data.stat()
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> "Bouncer":
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_exception) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends it. May be called again."""
        cleanup.cancel(self.stop)
        if self._process is None:
            return
        with cleanup.deferred_signals():
            self._process.terminate()
            try:
                self._process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def log(self) -> str:
        """All it has said."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def _start(self) -> None:
        program = shutil.which("pgbouncer", path=SYSTEM_PATH)
        if not program:
            raise BouncerError("there is no program pgbouncer")
        self.folder.mkdir(mode=0o700)
        for name, text in self._files.items():
            (self.folder / name).write_text(text, encoding="utf-8")
        identity = {}
        if os.geteuid() == 0:
            for path in (self.folder, *self.folder.iterdir()):
                os.chown(path, self._owner.st_uid, self._owner.st_gid)
            identity = {"user": self._owner.st_uid, "group": self._owner.st_gid, "extra_groups": []}
        with cleanup.deferred_signals(), open(self.folder / "log", "w", encoding="utf-8") as log:
            self._process = subprocess.Popen([program, str(self.folder / "ini")], stdin=subprocess.DEVNULL,
                                             stdout=log, stderr=log, cwd="/", start_new_session=True,
                                             **identity)
            cleanup.at_end(self.stop)
        self._wait_until_it_accepts()

    def _wait_until_it_accepts(self) -> None:
        end = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                with socket.socket(socket.AF_UNIX) as client:
                    client.connect(str(self.folder / f".s.PGSQL.{self.port}"))
                return
            except OSError:
                pass
            if self._process.poll() is not None:
                raise BouncerError(f"pgbouncer ended with {self._process.returncode}:\n{self.log()[-2000:]}")
            if time.monotonic() > end:
                raise BouncerError(f"pgbouncer does not accept within {START_TIMEOUT_S} s:\n"
                                   f"{self.log()[-2000:]}")
            time.sleep(0.01)
