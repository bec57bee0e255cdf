"""The programs: what each needs, how it is built, and how it is run."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from browser import NEEDS as BROWSER_NEEDS
from harness.installation import find_installation
from harness.prefix import TOP
from program import (CARGO_NEEDS, GO, GO_ENVIRONMENT, JAVA_NEEDS, NPM_CI, PYTHON_NEEDS, WITH_VENV, Program, cargo_build,
                     java_build, pip_install)

# The numbers of the scenario; each program has its own constants.
HEARD = 4 * (400 + 100) * 10 + 5  # large, own, committed, received again, after reconnecting
ISSUED = HEARD + 3  # rolled back, unheard, missed
STEPS = ["waiting", "busy", "large", "own", "rollback", "unlisten", "reconnect"]


@dataclass
class Driver(Program):
    """The scenario with one client library, and its example."""

    home = Path(__file__).resolve().parent
    shared = {name: TOP / name for name in ("examples", "clients")}

    example: list[str] = field(default_factory=list)  # the command that runs docs/resume.md's example for this driver
    by_hand: bool = False  # that example is not based on a client package
    tcp: bool = False  # the driver does not support unix sockets
    handover: bool = False  # runs two clients of a pool instead of the scenario
    pushes: bool = False  # runs an example server that pushes to a browser instead of the scenario
    heard: int = HEARD  # notifications
    issued: int = ISSUED
    steps: list[str] = field(default_factory=lambda: STEPS)

    def example_command(self) -> list[str]:
        """The command that runs its example."""
        return [self._fill(word) for word in self.example]


def _libpq() -> Driver:
    include, library = subprocess.run([find_installation().pg_config, "--includedir", "--libdir"], check=True,
                                      text=True, stdout=subprocess.PIPE).stdout.split()
    return Driver(
        "libpq", ["{build}/main"],
        [["gcc", "-O2", "-Wall", "-Wextra", "-std=c11", "-D_GNU_SOURCE", f"-I{include}", f"-L{library}",
          "-pthread", "-o", "main", "main.c", "-lpq"]],
        {"gcc": ["gcc", "--version"], "libc6-dev": ["test", "-e", "/usr/include/stdio.h"],
         "libpq-dev": ["test", "-e", f"{include}/libpq-fe.h"]})


def _python(name: str, script: str = "main.py", **others: object) -> Driver:
    if not others:
        others = {"example": ["{build}/venv/bin/python", f"{{build}}/examples/consumer_{name}.py"]}
    return Driver(name, ["{build}/venv/bin/python", f"{{build}}/{script}"], pip_install("-r", "requirements.txt", "./clients/python"),
                  dict(PYTHON_NEEDS), **others)


def programs() -> list[Driver]:
    """All programs, in the order in which they run."""
    browser = _python("browser", folder="psycopg", pushes=True,
                      example=["{build}/venv/bin/python", "{build}/examples/push_to_browser.py"])
    browser.needs |= BROWSER_NEEDS
    return [
        _libpq(),
        _python("psycopg"),
        _python("asyncpg"),
        Driver("pgjdbc", ["java", "-cp", "{build}:{build}/target/dependency/*", "Main"],
               java_build("Main.java", "examples/Consumer.java"), dict(JAVA_NEEDS), tcp=True,
               example=["java", "-cp", "{build}:{build}/target/dependency/*", "Consumer"], by_hand=True),
        Driver("node-postgres", ["node", "{build}/main.js"],
               [NPM_CI, ["npm", "install", "--no-save", "--install-links", *NPM_CI[2:], "./clients/javascript"]],
               {"nodejs": ["node", "--version"], "npm": ["npm", "--version"]},
               example=["node", "{build}/examples/consumer.js"]),
        Driver("pgx", ["{build}/main"],
               [*pip_install(GO), ["go", "build", "-o", "main", "."], ["go", "build", "-o", "consumer", "examples/consumer.go"]],
               dict(PYTHON_NEEDS), GO_ENVIRONMENT | WITH_VENV, example=["{build}/consumer"]),
        Driver("tokio-postgres", ["{build}/target/debug/drivers_tokio_postgres"], [cargo_build()],
               CARGO_NEEDS, {"CARGO_HOME": "{downloads}/cargo"}),
        _python("handover", "handover.py", folder="psycopg", handover=True,
                heard=50 * 2, issued=50 * (2 + 20), steps=["handover"]),
        browser,
    ]
