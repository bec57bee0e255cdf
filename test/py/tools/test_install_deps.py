"""Ctrl-C while ./demo installs packages, with apt and dpkg, on the test's own package database and archive."""

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness.installation import find_installation
from harness.prefix import TOP

STEP_S = 2  # how long a package's installation takes
SLOW = "gcc"


class Handler(SimpleHTTPRequestHandler):
    """Serves the archive; a package is held back until the test releases it."""

    asked = threading.Event()
    go = threading.Event()
    given = threading.Event()

    def do_GET(self):
        if self.path.endswith(".deb"):
            self.asked.set()
            self.go.wait(60)
            self.given.set()
        super().do_GET()

    def log_message(self, *_arguments):
        pass


def make_package(archive: Path, name: str, begun: Path) -> str:
    """Puts an empty package into the archive; returns its entry in the archive's index."""
    folder = archive / name
    (folder / "DEBIAN").mkdir(parents=True)
    control = f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: none <none@localhost>\nDescription: none\n"
    (folder / "DEBIAN/control").write_text(control, encoding="ascii")
    if name == SLOW:
        script = folder / "DEBIAN/postinst"
        script.write_text(f"#!/bin/sh\nset -e\ntouch {begun}\nsleep {STEP_S}\n", encoding="ascii")
        script.chmod(0o755)
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", str(folder), str(archive / f"{name}.deb")],
                   check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(folder)
    content = (archive / f"{name}.deb").read_bytes()
    return f"{control}Filename: ./{name}.deb\nSize: {len(content)}\nSHA256: {sha256(content).hexdigest()}\n"


class Machine:
    """A package database without any package, and ./demo on it."""

    def __init__(self, folder: Path, port: int):
        self.root = folder / "root"
        self.begun = folder / "begun"
        self.tree = folder / "tree"
        archive = folder / "archive"
        archive.mkdir()
        (self.tree / "scripts").mkdir(parents=True)
        for name in ("demo", "scripts/install-deps"):
            shutil.copy(TOP / name, self.tree / name)
        source = (TOP / "scripts/install-deps").read_text(encoding="utf-8")
        self.packages = [*re.search(r"^packages=\((.*)\)", source, re.MULTILINE)[1].split(), "python3-rich"]
        index = "\n".join(make_package(archive, name, self.begun) for name in self.packages)
        (archive / "Packages").write_text(index, encoding="ascii")
        for name in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "lists/partial", "cache/archives/partial", "etc",
                     "log"):
            (self.root / name).mkdir(parents=True)
        for name in ("var/lib/dpkg/status", "var/lib/dpkg/available", "etc/preferences"):
            (self.root / name).touch()
        (self.root / "etc/sources.list").write_text(f"deb [trusted=yes] http://127.0.0.1:{port} ./\n",
                                                    encoding="ascii")
        config = folder / "apt.conf"
        config.write_text(f"""
            Dir::Etc "{self.root}/etc"; Dir::Etc::parts "none"; Dir::Etc::sourceparts "none";
            Dir::Etc::preferencesparts "none"; Dir::State::Lists "{self.root}/lists"; Dir::Cache "{self.root}/cache";
            Dir::State::status "{self.root}/var/lib/dpkg/status"; Dir::Log "{self.root}/log";
            Dir::State::extended_states "{self.root}/extended_states";
            APT::Sandbox::User "root"; Acquire::http::Proxy "DIRECT"; Debug::NoLocking "true";
            DPkg::Options {{ "--root={self.root}"; "--force-script-chrootless"; "--force-not-root";
                            "--force-depends"; }};
            """, encoding="ascii")
        self.environment = os.environ | {"APT_CONFIG": str(config), "DPKG_ROOT": str(self.root),
                                         "PG_CONFIG": find_installation().pg_config}

    def installed(self) -> set[str]:
        """The packages, each with its state."""
        answer = subprocess.run(["dpkg-query", f"--root={self.root}", "-W", "-f", "${Package} ${db:Status-Status}\\n"],
                                check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        return set(answer.splitlines())

    def demo(self) -> subprocess.Popen:
        """Starts ./demo as from a terminal: all that it starts is in its process group, and is interrupted by Ctrl-C,
        although we may be the background job of a script, which ignores SIGINT."""
        command = [str(self.tree / "demo")]
        if os.geteuid() != 0:
            command = ["unshare", "--map-root-user", *command]
        return subprocess.Popen(command, env=self.environment, start_new_session=True, text=True,
                                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def files_that_forbid(self) -> list[Path]:
        return [path for path in (self.root / "usr/sbin/policy-rc.d",
                                  self.root / "etc/postgresql-common/createcluster.d/pg_herald.conf") if path.exists()]


@pytest.fixture
def machine(tmp_path):
    Handler.asked.clear()
    Handler.go.clear()
    Handler.given.clear()
    with serving(tmp_path / "archive") as port:
        yield Machine(tmp_path, port)


@contextmanager
def serving(folder: Path):
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            Handler.go.set()
            server.shutdown()
            thread.join()


def wait_until(condition, process: subprocess.Popen | None = None) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert process is None or process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.02)


def interrupt(process: subprocess.Popen) -> str:
    """Sends Ctrl-C; returns all that was printed."""
    os.killpg(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    return output


def test_interrupt_while_downloading(machine):
    process = machine.demo()
    wait_until(Handler.asked.is_set, process)
    output = interrupt(process)
    assert process.returncode == 130, output
    assert not Handler.given.is_set(), "it has waited for the package"
    assert "interrupted; nothing was installed" in output
    assert "building" not in output
    assert machine.installed() == set() and machine.files_that_forbid() == []


def test_interrupt_while_installing(machine):
    """dpkg completes all that it has begun: no package is left half installed."""
    Handler.go.set()
    process = machine.demo()
    wait_until(machine.begun.exists, process)
    assert machine.files_that_forbid() != []
    output = interrupt(process)
    assert process.returncode == 130, output
    assert "ends when dpkg is through" in output
    assert "building" not in output
    assert machine.installed() == {f"{name} installed" for name in machine.packages}, output
    assert machine.files_that_forbid() == []
    assert set((machine.tree / ".installed-packages").read_text(encoding="ascii").split()) == set(machine.packages)


def test_killed_while_installing(machine):
    """As ./check does if a stage does not end: dpkg goes on alone, and nothing forbids services afterwards."""
    Handler.go.set()
    process = machine.demo()
    wait_until(machine.begun.exists, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)
    wait_until(lambda: machine.files_that_forbid() == [])
    assert machine.installed() == {f"{name} installed" for name in machine.packages}


def test_nothing_is_installed_twice(machine):
    Handler.go.set()
    command = [str(machine.tree / "scripts/install-deps"), "demo"]
    said = []
    for _ in range(2):
        result = subprocess.run(command, env=machine.environment, check=False, text=True, timeout=60,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert result.returncode == 0, result.stdout
        said.append(result.stdout)
    assert "Setting up" not in said[0] and ".install-deps.log" in said[0], "apt's words are in the log"
    assert "Setting up" in (machine.tree / ".install-deps.log").read_text(encoding="utf-8")
    assert said[1] == ""
    assert machine.installed() == {f"{name} installed" for name in machine.packages}


def test_who_may_not_install_is_told(machine):
    """Guards: a user that sudo refuses is shown what to run as root, and nothing about the network."""
    refusing = machine.root / "refusing"
    refusing.mkdir()
    (refusing / "sudo").symlink_to("/bin/false")
    for folder in machine.tree.parents:
        if folder.stat().st_mode & 0o007 == 0:
            folder.chmod(0o711)
    result = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                             str(machine.tree / "scripts/install-deps"), "demo"],
                            env=machine.environment | {"PATH": f"{refusing}:{os.environ['PATH']}"}, check=False,
                            text=True, timeout=60, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert result.returncode == 1
    assert result.stdout == ("install-deps: packages are missing, and only root may install them; "
                             "as root, run: scripts/install-deps demo\n")
