"""Patroni on three hosts, which are folders and ports here; its store is Raft, so there is nothing else to run."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

import yaml

from harness import cleanup, server_user
from harness.cluster import SEGMENT_LINE, START_TIMEOUT_S, SUPERUSER, Cluster, ClusterError, process_runs
from harness.installation import system_program
from harness.ports import LOOPBACK, free_port
from support import until

SCOPE = "shop"
NAMES = ("a", "b", "c")
REPLICATOR = "replicator"
LOOK_S = 0.2
ANSWER_S = 60            # for a request, or a command that waits for nothing
SETTLED_S = 300          # for a host to start or to rejoin; they take seconds
TTL_S, LOOP_WAIT_S, RETRY_S = 20, 3, 8  # the lowest ttl that Patroni accepts, so that a failover is soon
ROLES_OF_PRIMARY = ("leader", "primary")


class Host(Cluster):
    """One host: Patroni, and the server that it makes, starts and stops. start() starts Patroni, and does not wait."""

    def __init__(self, name: str, ports: list[int], site: "Patroni"):
        self.api_port, self.raft_port, port = ports
        super().__init__(port=port)
        self.name, self.site = name, site
        self.patroni: subprocess.Popen | None = None

    @property
    def config(self) -> Path:
        """Patroni's configuration of this host."""
        return self.folder / "patroni.yml"

    def start(self) -> None:
        """Starts Patroni, after writing its configuration if necessary."""
        if self.folder is None:
            self.create()
        with cleanup.deferred_signals(), open(self.log_file, "ab") as log:
            self.patroni = subprocess.Popen([*self.site.program("patroni"), str(self.config)], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, cwd=self.folder, start_new_session=True,
                                            env=self.site.clean_environment(), **server_user.identity())

    def kill(self) -> None:
        """Ends the host as a power failure does: kill -9 of Patroni and of all processes of the server."""
        self._kill_patroni()
        super().kill()

    def remove(self) -> None:
        """Ends everything that runs here, at once, and deletes the folders."""
        if self.folder is None:
            return
        with cleanup.deferred_signals():
            self._kill_patroni()
            try:
                super().remove()
            finally:
                cleanup.cancel(self.remove)

    def ask(self, path: str, content: dict | None = None) -> bytes:
        """The answer of Patroni's REST API; OSError if there is none, or it is an error."""
        request = Request(f"http://{LOOPBACK}:{self.api_port}/{path}", json.dumps(content).encode() if content else None)
        request.add_header("Authorization", f"Basic {b64encode(self.site.password_text.encode()).decode()}")
        with build_opener(ProxyHandler({})).open(request, timeout=ANSWER_S) as answer:
            return answer.read()

    def _kill_patroni(self) -> None:
        """With what it runs itself, such as initdb and pg_basebackup. The server is a session of its own."""
        if self.patroni:
            try:
                os.killpg(self.patroni.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            group = _group(self.patroni.pid)
            self.patroni.wait()
            self.patroni = None
            until(lambda: not any(map(process_runs, group)), "the killed processes have ended", START_TIMEOUT_S)
            self._remove_traces_of_single_user()
            until(lambda: (self.data / "postmaster.pid").exists() or not self._processes_here(),
                  "what still runs is a server", START_TIMEOUT_S)

    def _remove_traces_of_single_user(self) -> None:
        """initdb and Patroni's crash recovery run a server without a postmaster. Killed, it leaves its file of the process ID, and
        a piece of memory that the system keeps."""
        path = self.data / "postmaster.pid"
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except FileNotFoundError:
            return
        if lines[0].startswith("-"):
            if len(lines) >= SEGMENT_LINE and lines[SEGMENT_LINE - 1].strip():
                subprocess.run([system_program("ipcrm") or "ipcrm", "-m", lines[SEGMENT_LINE - 1].split()[1]], check=False)
            path.unlink()

    def _processes_here(self) -> list[int]:
        """The processes whose commands name this host's folder, which has a name of its own."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if os.fsencode(self.folder) in path.read_bytes():
                    found.append(int(path.parent.name))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        return found

    def _make_data(self) -> None:
        """Patroni makes the data folder itself, by initdb or by pg_basebackup."""
        self.config.write_text(yaml.safe_dump(self._configuration()), encoding="utf-8")
        self.config.chmod(0o600)
        server_user.give(self.config)
        (self.folder / "raft").mkdir()
        server_user.give(self.folder / "raft")

    def _configuration(self) -> dict:
        others = [f"{LOOPBACK}:{host.raft_port}" for host in self.site.hosts if host is not self]
        user, password = self.site.password_text.split(":")
        return {
            "scope": SCOPE, "name": self.name,
            "restapi": {"listen": f"{LOOPBACK}:{self.api_port}", "authentication": {"username": user, "password": password}},
            "raft": {"data_dir": str(self.folder / "raft"), "self_addr": f"{LOOPBACK}:{self.raft_port}", "partner_addrs": others,
                     "password": password},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL_S, "loop_wait": LOOP_WAIT_S, "retry_timeout": RETRY_S,
                    "postgresql": {
                        "use_pg_rewind": True,
                        # A process that is killed loses nothing by fsync; the memory in the last one goes with the folder.
                        "parameters": {"fsync": False, "shared_buffers": "32MB", "max_connections": 60,
                                       "dynamic_shared_memory_type": "mmap"}}},
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "no-sync"]},
            "postgresql": {
                "listen": f"{LOOPBACK}:{self.port}", "connect_address": f"{LOOPBACK}:{self.port}",
                "data_dir": str(self.data), "bin_dir": str(self.installation.bindir), "pgpass": str(self.folder / "pgpass"),
                "basebackup": [{"checkpoint": "fast"}, "no-sync"],
                "authentication": {"superuser": {"username": SUPERUSER, "password": password},
                                   "replication": {"username": REPLICATOR, "password": password}},
                "parameters": {"unix_socket_directories": str(self.socket_folder), "log_line_prefix": "%m [%p] "},
                "pg_hba": ["local all all trust", f"host all all {LOOPBACK}/32 scram-sha-256",
                           f"host replication {REPLICATOR} {LOOPBACK}/32 scram-sha-256"]}}


def _group(leader: int) -> list[int]:
    """The processes of a group."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[2] == str(leader):
                found.append(int(path.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


class Patroni:
    """The hosts, from entering the context until leaving it."""

    def __init__(self, environment: Path):
        self._environment = environment  # a virtual environment with Patroni, perhaps out of the servers' user's reach
        self.password_text = f"{SUPERUSER}:{secrets.token_hex(16)}"
        self.folder: Path | None = None
        ports: dict[int, None] = {}
        while len(ports) < 3 * len(NAMES):
            ports[free_port()] = None
        numbers = list(ports)
        self.hosts: list[Host] = []
        self.hosts += [Host(name, numbers[3 * i:3 * i + 3], self) for i, name in enumerate(NAMES)]

    def __enter__(self) -> "Patroni":
        cleanup.at_end(self.close)
        try:
            with cleanup.deferred_signals():
                self.folder = server_user.make_folder()
                shutil.copytree(self._environment, self.folder / "venv", symlinks=True, ignore=shutil.ignore_patterns("pip", "setuptools"))
            for host in self.hosts:
                host.create()
            for host in self.hosts:
                host.start()
            self.until_settled()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exception) -> None:
        self.close()

    def close(self) -> None:
        """Ends and removes everything. May be called again."""
        cleanup.cancel(self.close)
        with cleanup.deferred_signals():
            for host in self.hosts:
                host.remove()
            if self.folder:
                shutil.rmtree(self.folder, ignore_errors=True)
                self.folder = None

    def program(self, name: str) -> list[str]:
        """The command for one of Patroni's programs."""
        return [str(self.folder / "venv/bin/python"), str(self.folder / "venv/bin" / name)]

    @staticmethod
    def clean_environment() -> dict[str, str]:
        """An environment that says nothing about any server."""
        return {name: value for name, value in os.environ.items() if not name.startswith(("PG", "PATRONI"))} | {
            "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}

    def uri(self, dbname: str, hosts: list[Host] | None = None, more: str = "") -> str:
        """A connection URI with all hosts."""
        places = ",".join(f"{LOOPBACK}:{host.port}" for host in hosts or self.hosts)
        return f"postgresql://{self.password_text}@{places}/{dbname}?connect_timeout=10{more}"

    # ---- what an administrator does ----

    def ctl(self, command: str, *arguments: str) -> str:
        """Runs patronictl, and returns what it prints."""
        runs = next(host for host in self.hosts if host.patroni)
        result = subprocess.run([*self.program("patronictl"), "-c", str(runs.config), command, *arguments], text=True, cwd="/",
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                timeout=SETTLED_S, env=self.clean_environment(), **server_user.identity())
        if result.returncode != 0:
            raise ClusterError(f"patronictl {command} failed ({result.returncode}): {result.stdout}")
        return result.stdout

    def edit_config(self, text: str) -> None:
        """Merges a piece of YAML into the configuration of the cluster."""
        path = self.folder / "change.yml"
        path.write_text(text, encoding="utf-8")
        server_user.give(path)
        self.ctl("edit-config", SCOPE, "--apply", str(path), "--force")

    def members(self) -> dict[str, dict]:
        """By name: what Patroni shows of each member that runs, or has until a moment ago. Empty if no Patroni answers."""
        for host in self.hosts:
            if host.patroni:
                try:
                    return {member["name"]: member for member in json.loads(host.ask("cluster"))["members"]}
                except OSError:
                    continue
        return {}

    def host(self, name: str) -> Host:
        """The host of that name."""
        return self.hosts[NAMES.index(name)]

    def in_role(self, role: str) -> Host | None:
        """The first host with that role, such as sync_standby."""
        return next((self.host(name) for name, member in self.members().items() if member["role"] == role), None)

    def primary(self) -> Host:
        """The present primary; waits until there is one."""
        return self.until(lambda: self.in_role("leader"), "there is a primary")

    def standbys(self) -> list[Host]:
        """The others."""
        primary = self.primary()
        return [host for host in self.hosts if host is not primary]

    def until_settled(self) -> None:
        """Waits until one host is the primary, and the others replicate from it."""
        def is_settled() -> bool:
            members = self.members().values()
            states = sorted(member["state"] for member in members)
            return states == ["running", "streaming", "streaming"] and len({member["timeline"] for member in members}) == 1
        self.until(is_settled, "one primary, two standbys that replicate")

    def until(self, condition: Callable[[], object], what: str, deadline_s: float = SETTLED_S):
        """Waits for a condition, and returns what it says."""
        end = time.monotonic() + deadline_s
        while not (found := condition()):
            if time.monotonic() > end:
                logs = "\n".join(f"{host.name}: {host.log()[-1500:]}" for host in self.hosts)
                raise ClusterError(f"not within {deadline_s:g} s: {what}; {self.members()}\n{logs}")
            time.sleep(LOOK_S)
        return found
