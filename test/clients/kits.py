"""The packages: how each is built, and the conformance program that drives it."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from harness.prefix import TOP
from program import GO_ENVIRONMENT, NPM_CI, PYTHON_NEEDS, Program, pip_install


@dataclass
class Kit(Program):
    """A package with one of its drivers.

    driver  which of the package's drivers; "" if it has one
    own     the command that runs the package's own tests, in its folder in clients/, from where they find the project's harness
    suits   a command that tells by its exit status whether the tools are there and new enough, where no package of the system is
            installed for them; none: any are
    needed  in words, what that is
    """

    home: ClassVar[Path] = Path(__file__).resolve().parent

    driver: str = ""
    own: list[str] = field(default_factory=list)
    suits: list[str] = field(default_factory=list)
    needed: str = ""

    @property
    def lacks(self) -> str:
        """Why it cannot be built here: in words; "" if it can. Debian's own tools may be older than the package's driver needs."""
        if not self.suits or subprocess.run(self.suits, stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return ""
        return f"{self.name} is not tested: {self.needed} is needed, and not here"

    @property
    def sources(self) -> Path:
        """The folder of the package."""
        return TOP / "clients" / self.folder

    def own_command(self) -> list[str]:
        """The command that runs its own tests."""
        return [self._fill(word) for word in self.own]


def _python(driver: str, *own: str) -> Kit:
    return Kit(driver, ["{build}/venv/bin/python", "{build}/conformance.py"],
               [*pip_install("-r", "requirements.txt"), ["venv/bin/python", "-m", "compileall", "-q", "pg_herald"]],
               dict(PYTHON_NEEDS), folder="python", driver=driver, own=list(own))


def kits() -> list[Kit]:
    """All packages, each with all of its drivers."""
    return [
        Kit("javascript", ["node", "{build}/conformance.js"], [NPM_CI],
            {"nodejs": ["node", "--version"], "npm": ["npm", "--version"]}, folder="javascript",
            own=["bash", "-c", f"[ -d node_modules ] || {' '.join(NPM_CI)} && npm test"]),
        _python("psycopg", "{build}/venv/bin/python", "-m", "pytest", "-q"),
        _python("psycopg-async"),
        _python("asyncpg"),
        Kit("go", ["{build}/conformance/conformance"],
            [["go", "vet", "./..."], ["go", "build", "-o", "conformance/conformance", "./conformance"]],
            environment=GO_ENVIRONMENT, folder="go", own=["./run_tests"],
            suits=["sh", "-c", "printf '%s\\n' go1.25 \"$(go env GOVERSION)\" | sort -C -V"], needed="Go 1.25"),
    ]
