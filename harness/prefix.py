"""A PostgreSQL installation with a pg_herald of its own.

    with Prefix() as prefix:
        prefix.install("STOP_POINTS=1")
        with Cluster(pg_config=prefix.pg_config, preload=True) as cluster:
            ...

A server finds its libraries by where its own program is. So the programs are copied to a new folder,
and all else is there as symbolic links; but what belongs to pg_herald is left out, and made anew.
"""

import os
import shutil
import subprocess
from pathlib import Path

from harness import cleanup, server_user
from harness.installation import find_installation

TOP = Path(__file__).resolve().parent.parent
SOURCES = ("Makefile", "pg_herald.control", "sql", "src")
OURS = "pg_herald"
PROGRAMS = ("initdb", "pg_config", "pg_ctl", "pgbench", "postgres", "psql")
FOLDERS = ("bindir", "pkglibdir", "sharedir", "includedir", "pkgincludedir", "includedir-server")


class PrefixError(RuntimeError):
    """The module could not be built; the message holds what the compiler said."""


class Prefix:
    """One of them, from entering the context until leaving it.

    pg_config   the installation to take after; within the context, the path of the new one's
    """

    def __init__(self, pg_config: str | None = None):
        self.pg_config = find_installation(pg_config).pg_config
        self.folder: Path | None = None
        self._folders: set[Path] = set()

    def __enter__(self) -> "Prefix":
        cleanup.at_end(self.remove)
        try:
            self.folder = server_user.make_folder()
            self._make()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_exception) -> None:
        self.remove()

    def install(self, *options: str) -> Path:
        """Builds pg_herald from the tree's sources, with options of make's, and installs it; the library."""
        build = self.folder / "build"
        shutil.rmtree(build, ignore_errors=True)
        build.mkdir()
        for name in SOURCES:
            source = TOP / name
            if source.is_dir():
                shutil.copytree(source, build / name, ignore=shutil.ignore_patterns("*.o", "*.bc"))
            else:
                shutil.copy(source, build)
        result = subprocess.run(
            ["make", "-s", f"-j{os.cpu_count()}", f"PG_CONFIG={self.pg_config}", "with_llvm=no", *options,
             "install"], cwd=build, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if result.returncode != 0:
            raise PrefixError(result.stdout[-4000:])
        return self._ask("pkglibdir") / f"{OURS}.so"

    def remove(self) -> None:
        """Deletes it. May be called again."""
        cleanup.cancel(self.remove)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None

    def _make(self) -> None:
        there = {name: self._ask(name) for name in FOLDERS}
        self._folders = set(there.values())
        for name in FOLDERS[1:]:
            self._link(there[name])
        own_bin = self._own(there["bindir"])
        own_bin.mkdir(parents=True)
        for name in PROGRAMS:
            if (there["bindir"] / name).exists():
                shutil.copy(there["bindir"] / name, own_bin)
        self.pg_config = str(own_bin / "pg_config")

    def _link(self, folder: Path) -> None:
        """Links to what is in a folder, at the same place under ours; once, and not if it is there
        already. Where something of ours is to be installed the folder is our own."""
        own = self._own(folder)
        if own.exists():
            return
        own.mkdir(parents=True)
        for path in folder.iterdir():
            if path.name == "extension" or any(other.is_relative_to(path) for other in self._folders):
                self._link(path)
            elif not path.name.startswith(OURS):
                (own / path.name).symlink_to(path)

    def _own(self, folder: Path) -> Path:
        return self.folder / folder.relative_to("/")

    def _ask(self, name: str) -> Path:
        answer = subprocess.run([self.pg_config, f"--{name}"], check=True, stdout=subprocess.PIPE, text=True)
        return Path(answer.stdout.strip())
