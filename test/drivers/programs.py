"""The programs: what each needs, how it is built, and how it is run."""

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from browser import NEEDS as BROWSER_NEEDS
from harness.installation import find_installation
from harness.prefix import TOP
from processes import call

HERE = Path(__file__).resolve().parent
EXAMPLES = TOP / "examples"
BUILD = HERE / "build"
BUILD_TIMEOUT_S = 600
PYTHON = "/usr/bin/python3"  # Debian's

# The scenario's figures; each program has its own.
HEARD = 4 * (400 + 100) * 10 + 5  # large, own, committed, heard again, after reconnecting
ISSUED = HEARD + 3  # rolled back, unheard, missed
STEPS = ["waiting", "busy", "large", "own", "rollback", "unlisten", "reconnect"]


@dataclass
class Program:
    """One program. `{build}` in a command is its folder in build/, with a copy of its sources."""

    name: str
    run: list[str]
    build: list[list[str]] = field(default_factory=list)
    needs: dict[str, list[str]] = field(default_factory=dict)  # package: a command that needs it
    environment: dict[str, str] = field(default_factory=dict)  # when it is built
    folder: str = ""  # if it is not the name
    example: list[str] = field(default_factory=list)  # runs what docs/resume.md shows of this driver
    tcp: bool = False  # knows no unix sockets
    handover: bool = False  # not the scenario, but two clients of a pool
    pushes: bool = False  # not the scenario: its example is a server that pushes to a browser
    heard: int = HEARD  # notifications
    issued: int = ISSUED
    steps: list[str] = field(default_factory=lambda: STEPS)

    @property
    def sources(self) -> Path:
        """Where it is in the tree."""
        return HERE / (self.folder or self.name)

    @property
    def built(self) -> Path:
        """Where it is built."""
        return BUILD / (self.folder or self.name)

    def make(self) -> None:
        """Builds it, unless it was built from the same sources before; CommandError if that fails."""
        done = self.built / ".built_from"
        digest = _digest(self.sources, EXAMPLES)
        if done.exists() and done.read_text(encoding="ascii") == digest:
            return
        shutil.rmtree(self.built, ignore_errors=True)
        shutil.copytree(self.sources, self.built)
        shutil.copytree(EXAMPLES, self.built / "examples")
        environment = os.environ | {key: self._fill(value) for key, value in self.environment.items()}
        for command in self.build:
            call([self._fill(word) for word in command], timeout_s=BUILD_TIMEOUT_S,
                 environment=environment, folder=self.built)
        done.write_text(digest, encoding="ascii")

    def command(self) -> list[str]:
        """How it is run."""
        return [self._fill(word) for word in self.run]

    def example_command(self) -> list[str]:
        """How its example is run."""
        return [self._fill(word) for word in self.example]

    def _fill(self, word: str) -> str:
        return word.replace("{build}", str(self.built)).replace("{downloads}", str(BUILD / "downloads"))


def _digest(*folders: Path) -> str:
    """Of the names and contents of all files."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _libpq() -> Program:
    include, library = subprocess.run([find_installation().pg_config, "--includedir", "--libdir"], check=True,
                                      text=True, stdout=subprocess.PIPE).stdout.split()
    return Program(
        "libpq", ["{build}/main"],
        [["gcc", "-O2", "-Wall", "-Wextra", "-std=c11", "-D_GNU_SOURCE", f"-I{include}", f"-L{library}",
          "-pthread", "-o", "main", "main.c", "-lpq"]],
        {"gcc": ["gcc", "--version"], "libc6-dev": ["test", "-e", "/usr/include/stdio.h"],
         "libpq-dev": ["test", "-e", f"{include}/libpq-fe.h"]})


def _python(name: str, script: str = "main.py", **others: object) -> Program:
    if not others:
        others = {"example": ["{build}/venv/bin/python", f"{{build}}/examples/consumer_{name}.py"]}
    return Program(
        name, ["{build}/venv/bin/python", f"{{build}}/{script}"],
        [[PYTHON, "-m", "venv", "venv"],
         ["venv/bin/pip", "install", "--quiet", "--disable-pip-version-check",
          "--cache-dir", "{downloads}/pip", "-r", "requirements.txt"]],
        {"python3-venv": [PYTHON, "-c", "import ensurepip"]}, **others)


def programs() -> list[Program]:
    """All of them, in the order in which they run."""
    cargo = []
    own_settings = Path.home() / ".cargo" / "config.toml"  # which CARGO_HOME makes cargo forget
    if own_settings.exists():
        cargo = ["--config", str(own_settings)]
    browser = _python("browser", folder="psycopg", pushes=True,
                      example=["{build}/venv/bin/python", "{build}/examples/push_to_browser.py"])
    browser.needs |= BROWSER_NEEDS
    return [
        _libpq(),
        _python("psycopg"),
        _python("asyncpg"),
        Program("pgjdbc", ["java", "-cp", "{build}:{build}/target/dependency/*", "Main"],
                [["mvn", "--batch-mode", "--quiet", "-Dmaven.repo.local={downloads}/maven",
                  "dependency:copy-dependencies"],
                 ["javac", "-encoding", "UTF-8", "-Xlint:all,-serial", "-Werror",
                  "-cp", "target/dependency/*", "-d", ".", "Main.java", "examples/Consumer.java"]],
                {"default-jdk-headless": ["javac", "-version"], "maven": ["mvn", "--version"]}, tcp=True,
                example=["java", "-cp", "{build}:{build}/target/dependency/*", "Consumer"]),
        Program("node-postgres", ["node", "{build}/main.js"],
                [["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts",
                  "--cache", "{downloads}/npm"]],
                {"nodejs": ["node", "--version"], "npm": ["npm", "--version"]},
                example=["node", "{build}/examples/consumer.js"]),
        Program("pgx", ["{build}/main"],
                [["go", "build", "-o", "main", "."], ["go", "build", "-o", "consumer", "examples/consumer.go"]],
                {"golang-go": ["go", "version"]},
                {"GOPATH": "{downloads}/go", "GOCACHE": "{downloads}/go-build",
                 "GOFLAGS": "-mod=readonly -modcacherw -buildvcs=false"},
                example=["{build}/consumer"]),
        Program("tokio-postgres", ["{build}/target/debug/drivers_tokio_postgres"],
                [["cargo", *cargo, "build", "--quiet", "--locked"]],
                # cargo-web is Debian 12's newer one; its older one cannot read this Cargo.lock.
                {"cargo-web|cargo": ["cargo", "--version"]}, {"CARGO_HOME": "{downloads}/cargo"}),
        _python("handover", "handover.py", folder="psycopg", handover=True,
                heard=50 * 2, issued=50 * (2 + 20), steps=["handover"]),
        browser,
    ]
