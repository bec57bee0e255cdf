"""A private, throw-away PostgreSQL cluster in a folder of its own.

    with Cluster(preload=True) as cluster:
        cluster.create_herald()
        print(cluster.psql("SELECT * FROM herald.stats"))

It listens on a unix socket only, and trusts every connection that reaches the socket. Only the
owner can enter the folder: the current user, or for root another user (server_user.py).
"""

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from harness import cleanup, server_user
from harness.installation import OWN, Installation, find_installation, system_program

SOCKET_PATH_BYTES_MAX = 100  # the kernel's limit is 107
SUPERUSER = "postgres"
POLL_S = 0.01
SEGMENT_LINE = 7  # of postmaster.pid, the second word: the id of its shared memory of System V
START_TIMEOUT_S = 180  # starting and stopping are much faster, except on very slow machines

# Texts in a server's log after overwritten memory, failed assertions and the like.
SIGNS_OF_DAMAGE = ("PANIC", "TRAP:", "signal 11", "signal 6", "is damaged", "problem in alloc set",
                   "runtime error:", "AddressSanitizer")


class ClusterError(RuntimeError):
    """A server program failed; the message contains its output."""


class Cluster:
    """One cluster; created by start() or by entering the context.

    folder      its folder; default: a new one that is removed with the cluster
    preload     load pg_herald
    caches      load pg_herald_cache, too
    settings    further lines of postgresql.conf, as a dict
    """

    def __init__(self, folder: str | os.PathLike | None = None, *, preload: bool = False, caches: bool = False,
                 settings: dict[str, object] | None = None, port: int = 5432,
                 pg_config: str | None = None):
        self.installation: Installation = find_installation(pg_config)
        self.wanted_folder = Path(os.path.abspath(folder)) if folder else None
        self.folder: Path | None = None
        self.socket_folder: Path | None = None
        self.port = port
        libraries = ["pg_herald"] * (preload or caches) + ["pg_herald_cache"] * caches
        self.settings: dict[str, object] = {"shared_preload_libraries": ", ".join(libraries)} if libraries else {}
        self.settings.update(settings or {})

    def __enter__(self) -> "Cluster":
        try:
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_exception) -> None:
        self.remove()

    # ---- life ----

    def create(self) -> None:
        """Makes the folders and the data folder; ClusterError if that fails."""
        cleanup.at_end(self.remove)
        with cleanup.deferred_signals():  # an interrupted initdb leaves a server behind
            self.folder = (server_user.make_folder_at(self.wanted_folder) if self.wanted_folder
                           else server_user.make_folder())
            self.socket_folder = self._make_socket_folder()
            self._make_data()

    def start(self) -> None:
        """Starts the server, after creating the cluster if necessary, and waits until it answers."""
        if self.folder is None:
            self.create()
        self._write_settings()
        with cleanup.deferred_signals():
            try:
                self._server("pg_ctl", "start", "--wait", f"--timeout={START_TIMEOUT_S}", "--silent",
                             "--pgdata", str(self.data), "--log", str(self.log_file))
            except ClusterError as error:
                raise ClusterError(f"{error}\n{self.log()[-2000:]}") from error

    def stop(self, mode: str = "fast") -> None:
        """Stops the server, if it runs, and waits until it has stopped; mode as for pg_ctl."""
        if self.running():
            self._server("pg_ctl", "stop", "--wait", f"--timeout={START_TIMEOUT_S}", "--silent",
                         f"--mode={mode}", "--pgdata", str(self.data))

    def crash(self) -> None:
        """Stops without a checkpoint, so that the next start() has to recover."""
        self.stop("immediate")

    def kill(self) -> None:
        """Kills all processes of the running server at once (kill -9), and waits until they have ended."""
        postmaster = self.postmaster_pid()
        segment = (self.data / "postmaster.pid").read_text(encoding="utf-8").split("\n")[SEGMENT_LINE - 1].split()[1]
        with cleanup.deferred_signals():
            stop_process(postmaster)  # so that it neither replaces a process nor reacts to the end of one
            pids = [*self.processes(), postmaster]
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
        end = time.monotonic() + START_TIMEOUT_S
        while any(map(process_runs, pids)):
            if time.monotonic() > end:
                raise ClusterError(f"killed processes have not ended within {START_TIMEOUT_S} s")
            time.sleep(POLL_S)
        # The system keeps this piece of memory; a later server in this folder would remove it, but there may be none.
        subprocess.run([system_program("ipcrm") or "ipcrm", "-m", segment], check=True)
        # A server that starts believes its lock files while the system has an entry for the process.
        (self.data / "postmaster.pid").unlink()
        (self.socket_folder / f".s.PGSQL.{self.port}.lock").unlink(missing_ok=True)

    def reload(self) -> None:
        """Applies changed settings in the running server, those that need no restart."""
        self._write_settings()
        self._server("pg_ctl", "reload", "--silent", "--pgdata", str(self.data))

    def restart(self, mode: str = "fast") -> None:
        """stop() and start(); applies changed settings."""
        self.stop(mode)
        self.start()

    def running(self) -> bool:
        """Whether the server runs."""
        if self.folder is None or not (self.data / "postmaster.pid").exists():
            return False
        return self.run_as_server_user("pg_ctl", "status", "--pgdata", str(self.data)).returncode == 0

    def remove(self) -> None:
        """Ends the server and deletes every folder of the cluster. May be called again."""
        cleanup.cancel(self.remove)
        if self.folder is None:
            return
        with cleanup.deferred_signals():
            try:
                self.stop("immediate")
            finally:
                for folder in {self.folder, self.socket_folder}:
                    shutil.rmtree(folder, ignore_errors=True)
                if self.wanted_folder and self.wanted_folder.is_symlink():
                    self.wanted_folder.unlink()
                self.folder = None

    def leave_running(self) -> None:
        """Detaches from the cluster, which outlives this process. See attach()."""
        cleanup.cancel(self.remove)
        self.folder = None

    @classmethod
    def attach(cls, folder: str | os.PathLike) -> "Cluster | None":
        """The cluster that another process left in `folder`; None if there is none."""
        cluster = cls(folder)
        real = cluster.wanted_folder.resolve()
        if not (real / "data" / "PG_VERSION").exists():
            return None
        cluster.folder = real
        cluster.socket_folder = Path((real / "socket").read_text(encoding="utf-8"))
        return cluster

    # ---- use ----

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    @property
    def log_file(self) -> Path:
        """The server's log."""
        return self.folder / "log"

    def log(self) -> str:
        """The whole log of the server."""
        return self.log_file.read_text(encoding="utf-8", errors="replace") if self.log_file.exists() else ""

    def damage(self) -> str:
        """The lines of the log with a sign of damage, and its end; an empty text if there is none."""
        log = self.log()
        lines = [line for line in log.splitlines() if any(sign in line for sign in SIGNS_OF_DAMAGE)]
        return "\n".join((*lines[:10], "...", log[-3000:])) if lines else ""

    def postmaster_pid(self) -> int:
        """The process id of the running server."""
        return int((self.data / "postmaster.pid").read_text(encoding="utf-8").split("\n", 1)[0])

    def processes(self) -> dict[int, str]:
        """The server's processes except the postmaster: their ids, and what the server has them called."""
        postmaster = self.postmaster_pid()
        found = {}
        for pid in Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text(encoding="ascii").split():
            try:
                title = Path(f"/proc/{pid}/cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            found[int(pid)] = title.replace(b"\0", b" ").decode(errors="replace").strip()
        return found

    def environment(self, dbname: str = "postgres") -> dict[str, str]:
        """The environment for a client that connects to this cluster without further options."""
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith("PG") or key == "PG_CONFIG"}
        environment.update(PGHOST=str(self.socket_folder), PGPORT=str(self.port),
                           PGUSER=SUPERUSER, PGDATABASE=dbname)
        return environment

    def client(self, name: str, *arguments: str, dbname: str = "postgres",
               stdin: str | None = None, timeout_s: float | None = None) -> str:
        """Runs a client program of the installation and returns what it printed.

        ClusterError if it fails, or has to be killed because it runs longer than timeout_s.
        """
        try:
            result = subprocess.run([self.installation.program(name), *arguments], text=True,
                                    input=stdin or "", capture_output=True, timeout=timeout_s,
                                    env=self.environment(dbname))
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"{name} did not end within {timeout_s:g} s") from error
        if result.returncode != 0:
            raise ClusterError(f"{name} failed ({result.returncode}): {result.stderr.strip()}")
        return result.stdout

    def psql(self, sql: str, dbname: str = "postgres", timeout_s: float | None = None) -> str:
        """Runs statements, each in a transaction of its own; returns unaligned rows, `|` between columns."""
        return self.client("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-f", "-",
                           dbname=dbname, stdin=sql, timeout_s=timeout_s).rstrip("\n")

    def create_herald(self, dbname: str = "postgres") -> None:
        """Creates the extensions of the loaded libraries in a database."""
        self.psql("CREATE EXTENSION pg_herald", dbname)
        if "pg_herald_cache" in str(self.settings["shared_preload_libraries"]):
            self.psql("CREATE EXTENSION pg_herald_cache", dbname)

    def run_as_server_user(self, name: str, *arguments: str) -> subprocess.CompletedProcess:
        """Runs a program of the installation, or one by its path, as the user that the server runs as.

        The result's stderr has the whole output. The caller must check whether it failed.
        """
        program = name if os.path.isabs(name) else self.installation.program(name)
        environment = self.environment() | {"LC_ALL": _locale()}
        # Output goes to a file: a server inherits it, and would keep a pipe open as long as it runs. The
        # program has a session of its own, so that a Ctrl-C in the terminal does not interrupt it.
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            result = subprocess.run([program, *arguments], stdin=subprocess.DEVNULL, stdout=output,
                                    stderr=output, cwd="/", env=environment,
                                    start_new_session=True, **server_user.identity())
            output.seek(0)
            result.stderr = output.read()
        return result

    # ---- within ----

    def _make_socket_folder(self) -> Path:
        socket_folder = self.folder
        if len(os.fsencode(self.folder / f".s.PGSQL.{self.port}.lock")) > SOCKET_PATH_BYTES_MAX:
            socket_folder = server_user.make_folder()
        (self.folder / "socket").write_text(str(socket_folder), encoding="utf-8")
        return socket_folder

    def _make_data(self) -> None:
        """Makes the data folder; a subclass may make it in another way.

        Where the tree has an installation of its own (prefix.py), initdb runs once for each server, and its result is
        copied. So all these clusters have the same system identifier.
        """
        template = self._template()
        if template is None:
            self._initdb(self.data)
        else:
            if not template.exists():
                new = template.with_name(f"{template.name}-{os.getpid()}")
                self._initdb(new)
                try:
                    new.rename(template)
                except OSError:  # another process was faster
                    shutil.rmtree(new)
            self._server("/bin/cp", "-a", "--reflink=auto", "-T", str(template), str(self.data))
        with open(self.data / "postgresql.conf", "a", encoding="utf-8") as config:
            config.write("include = 'harness.conf'\n")

    def _initdb(self, folder: Path) -> None:
        self._server("initdb", "--pgdata", str(folder), "--no-sync", "--auth=trust",
                     "--encoding=UTF8", f"--locale={_locale()}", "--username", SUPERUSER)

    def _template(self) -> Path | None:
        """The data folder that those of this server's new clusters are copied from; None: they are not copied."""
        if not OWN.exists():
            return None
        server = os.stat(self.installation.program("postgres"))
        number = hashlib.sha256(f"{self.installation.version} {server.st_size} {server.st_mtime_ns}".encode())
        return OWN.resolve() / f"data-{number.hexdigest()[:12]}"

    def _write_settings(self) -> None:
        settings = {"listen_addresses": "", "unix_socket_directories": self.socket_folder,
                    "port": self.port, "log_line_prefix": "%m [%p] ", **self.settings}
        lines = []
        for name, value in settings.items():
            text = ("on" if value else "off") if isinstance(value, bool) else str(value)
            quoted = text.replace("'", "''")
            lines.append(f"{name} = '{quoted}'\n")
        path = self.data / "harness.conf"
        path.write_text("".join(lines), encoding="utf-8")
        server_user.give(path)  # its programs write in the whole data folder

    def _server(self, name: str, *arguments: str) -> None:
        result = self.run_as_server_user(name, *arguments)
        if result.returncode != 0:
            raise ClusterError(f"{name} failed ({result.returncode}): {result.stderr.strip()}")


def stop_process(pid: int) -> None:
    """Stops a process as a debugger does, and waits until it has stopped: SIGSTOP is a request, and a fork, for example, may
    still be finished."""
    os.kill(pid, signal.SIGSTOP)
    end = time.monotonic() + START_TIMEOUT_S
    while _state(pid) not in ("T", "Z", ""):
        if time.monotonic() > end:
            raise ClusterError(f"process {pid} has not stopped within {START_TIMEOUT_S} s")
        time.sleep(POLL_S)


def process_runs(pid: int) -> bool:
    """Whether a process has not ended. The system may have an entry for one that has."""
    return _state(pid) not in ("Z", "")


def _state(pid: int) -> str:
    """The state that the system shows of a process, empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _locale() -> str:
    """C.UTF-8, or C where the system does not have that."""
    import locale
    before = locale.setlocale(locale.LC_CTYPE)
    try:
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
        return "C.UTF-8"
    except locale.Error:
        return "C"
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
