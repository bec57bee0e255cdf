"""Chooses the PostgreSQL installation, and finds programs.

`python3 -m harness.installation` prints the chosen pg_config.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

DEBIAN_PREFIX = Path("/usr/lib/postgresql")
OWN = Path(__file__).resolve().parent.parent / ".installation"  # made by prefix.py
SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"  # not on every user's PATH


class InstallationError(RuntimeError):
    """Something is missing on this machine: PostgreSQL, another program, or a user to run servers as."""


@dataclass(frozen=True)
class Installation:
    """One PostgreSQL installation."""

    pg_config: str
    bindir: Path
    version: str  # as in "PostgreSQL 15.14 (Debian ...)"
    major: int

    def program(self, name: str) -> str:
        """The path of a program of this installation; InstallationError if it has none."""
        path = self.bindir / name
        if not path.exists():
            raise InstallationError(f"{self.pg_config}: there is no {name} in {self.bindir}")
        return str(path)


def system_program(name: str) -> str | None:
    """The path of a program on PATH, or in the folders that only root has on PATH; None if there is none."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}")


def choose_pg_config() -> str:
    """$PG_CONFIG, else the tree's own copy (prefix.py) of the system's installation, else system_pg_config()."""
    given = os.environ.get("PG_CONFIG")
    if given:
        return given
    system = find_installation(system_pg_config())
    own = OWN / system.bindir.relative_to("/") / "pg_config"
    return str(own) if own.exists() else system.pg_config


def system_pg_config() -> str:
    """The pg_config of Debian's newest installed server, else the one on PATH.

    A Debian installation with only the client programs does not count. $PG_MAJOR selects one major
    version of Debian's.
    """
    wanted = os.environ.get("PG_MAJOR")
    candidates = [
        (int(folder.name), folder / "bin" / "pg_config")
        for folder in DEBIAN_PREFIX.glob(wanted or "*")
        if folder.name.isdigit() and (folder / "bin" / "postgres").exists()
    ]
    for _, pg_config in sorted(candidates, reverse=True):
        if pg_config.exists():
            return str(pg_config)
    if wanted:
        raise InstallationError(f"there is no server of PostgreSQL {wanted} in {DEBIAN_PREFIX}")
    found = shutil.which("pg_config")
    if not found:
        raise InstallationError("no PostgreSQL server found; set PG_CONFIG to its pg_config")
    return found


def find_installation(pg_config: str | None = None) -> Installation:
    """Asks pg_config (default: choose_pg_config()) for its folders and version."""
    pg_config = pg_config or choose_pg_config()
    try:
        answer = subprocess.run(
            [pg_config, "--bindir", "--version"], check=True, capture_output=True, text=True
        ).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError) as error:
        raise InstallationError(f"cannot run {pg_config}: {error}") from error
    major = re.search(r"\d+", answer[1])
    if not major:
        raise InstallationError(f"{pg_config} names no version: {answer[1]}")
    return Installation(pg_config, Path(answer[0]), answer[1], int(major.group()))


if __name__ == "__main__":
    try:
        print(choose_pg_config())
    except InstallationError as problem:
        sys.exit(str(problem))
