"""A private copy of a PostgreSQL installation, with its own pg_herald.

    with Prefix() as prefix:
        prefix.install("STOP_POINTS=1")
        with Cluster(pg_config=prefix.pg_config, preload=True) as cluster:
            ...

`python3 -m harness.prefix [FOLDER]` makes a permanent copy, by default in .installation at the top of the tree,
or updates it, and prints its pg_config. It copies the installation of $PG_CONFIG, else the system's. With
--stop-points it also makes one for tests, whose module has stop points, in a folder inside the first, and prints that
one's. Several processes may run it at once.

A server finds its libraries relative to its own program. So the programs are copied to a new folder, and
all other files are symbolic links there; files of pg_herald are left out, and built again.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from contextlib import contextmanager
from pathlib import Path

from harness import cleanup, server_user
from harness.installation import OWN, InstallationError, find_installation, system_pg_config

TOP = Path(__file__).resolve().parent.parent
STOP_POINTS = OWN / "stop-points"
SOURCES = ("Makefile", "cache.mk", "common.mk", "pg_herald.control", "pg_herald_cache.control", "sql", "src")
BUILT = (".o", ".so")
OURS = "pg_herald"
SHARED = ("extension",)  # folders where pg_herald installs files beside those of other extensions
FOLDERS = ("bindir", "pkglibdir", "sharedir", "includedir", "pkgincludedir", "includedir-server")
UMASK = 0o022  # the server's user must read files made by another user


class PrefixError(RuntimeError):
    """The module could not be built; the message contains the compiler's output."""


class Prefix:
    """A copied installation; it exists from entering the context until leaving it.

    pg_config   of the installation to copy; inside the context, of the copy
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

    def keep(self, folder: Path) -> None:
        """Instead of entering the context: makes the copy in a folder where it stays.

        A copy that is there is used again, unless the server it was copied from has changed. Call this inside
        locked() if other processes may call it at the same time.
        """
        installation = find_installation(self.pg_config)
        if installation.bindir.resolve().is_relative_to(folder.resolve()):
            self.folder = folder.resolve()
            return
        built = os.stat(installation.program("postgres")).st_mtime
        server = f"{installation.pg_config}, {installation.version}, {built}\n"
        note = folder / "made-of"
        if note.exists() and note.read_text(encoding="utf-8") == server:
            self.folder = folder.resolve()
            self.pg_config = str(self._own(installation.bindir) / "pg_config")
            return
        if folder.is_symlink():
            shutil.rmtree(folder.resolve(), ignore_errors=True)
            folder.unlink()
        elif folder.exists():
            shutil.rmtree(folder)
        self.folder = server_user.make_folder_at(folder).resolve()
        self.folder.chmod(0o755)
        self._folders = set()
        self._make()
        note.write_text(server, encoding="utf-8")

    def install(self, *options: str) -> Path:
        """Builds pg_herald from the tree's sources, with options for make, and installs it; returns the library.

        Does nothing if the same build is installed already: a server may just be loading it.
        """
        library = self._ask("pkglibdir") / f"{OURS}.so"
        note, wanted = self.folder / "installed", _fingerprint(options)
        if note.exists() and note.read_text(encoding="utf-8") == wanted and library.exists():
            return library
        build = self.folder / "-".join(("build", *options)).replace("=", "-")
        _copy_sources(build)
        # While the library is newer than all sources, make does not notice a missing object file.
        for built in build.glob(f"{OURS}*.so"):
            built.unlink()
        result = subprocess.run(
            ["make", "-s", f"-j{os.cpu_count()}", f"PG_CONFIG={self.pg_config}", *options,
             "install"], cwd=build, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, umask=UMASK)
        if result.returncode != 0:
            raise PrefixError(result.stdout[-4000:])
        note.write_text(wanted, encoding="utf-8")
        return library

    def remove(self) -> None:
        """Deletes the copy. May be called again."""
        cleanup.cancel(self.remove)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None

    def _make(self) -> None:
        before = os.umask(UMASK)
        try:
            there = {name: self._ask(name) for name in FOLDERS}
            self._folders = set(there.values())
            shutil.copytree(there["bindir"], self._own(there["bindir"]))
            for name in FOLDERS[1:]:
                self._link(there[name])
            self._link_libpq(self._ask("libdir"))
            self._link_libraries_of_a_wheel(there["bindir"])
        finally:
            os.umask(before)
        self.pg_config = str(self._own(there["bindir"]) / "pg_config")

    def _link_libpq(self, folder: Path) -> None:
        own = self._own(folder)
        own.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("libpq.*"):
            if not (own / path.name).exists():
                (own / path.name).symlink_to(path)

    def _link_libraries_of_a_wheel(self, bindir: Path) -> None:
        """Links the folders of libraries beside a Python package: its programs find them relative to themselves."""
        beside = bindir.parents[2] if len(bindir.parents) > 2 else bindir
        for path in beside.glob("*.libs"):
            self._own(path).symlink_to(path.resolve())

    def _link(self, folder: Path) -> None:
        """Makes links to a folder's entries, at the same place in the copy; does nothing if the place exists
        already. Folders where pg_herald will be installed become real folders, not links."""
        own = self._own(folder)
        if own.exists():
            return
        own.mkdir(parents=True)
        for path in folder.iterdir():
            if path.name in SHARED or any(other.is_relative_to(path) for other in self._folders):
                self._link(path)
            elif not path.name.startswith(OURS):
                (own / path.name).symlink_to(path)

    def _own(self, folder: Path) -> Path:
        return self.folder / folder.relative_to("/")

    def _ask(self, name: str) -> Path:
        answer = subprocess.run([self.pg_config, f"--{name}"], check=True, stdout=subprocess.PIPE, text=True)
        return Path(answer.stdout.strip())


@contextmanager
def locked():
    """A context that only one process using this tree can be in at a time."""
    tree = os.open(TOP, os.O_RDONLY)
    try:
        fcntl.flock(tree, fcntl.LOCK_EX)
        yield
    finally:
        os.close(tree)


def kept(folder: Path, *options: str, pg_config: str | None = None) -> Prefix:
    """The permanent copy in a folder, created or updated, with pg_herald."""
    with locked():
        prefix = Prefix(pg_config)
        prefix.keep(folder)
        prefix.install(*options)
    return prefix


def _fingerprint(options: tuple[str, ...]) -> str:
    """A hash of the options and the sources: identifies a build."""
    states = [f"{name} {hashlib.sha256((TOP / name).read_bytes()).hexdigest()}" for name in sorted(_sources())]
    return hashlib.sha256("\n".join([*options, *states]).encode()).hexdigest()


def _sources() -> set[Path]:
    """The files that the module is built from, relative to the tree."""
    return {path.relative_to(TOP) for name in SOURCES for path in (TOP / name, *(TOP / name).rglob("*"))
            if path.is_file() and path.suffix not in BUILT}


def _copy_sources(build: Path) -> None:
    """Copies the files that have changed since the last copy, with the current time, so that make compiles them.

    The last copy may be of another tree, with files that are newer than ours.
    """
    sources = _sources()
    for name in sources:
        copy = build / name
        if not copy.exists() or copy.read_bytes() != (TOP / name).read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(TOP / name, copy)
    for path in build.rglob("*"):
        if path.is_file() and path.suffix not in BUILT and path.relative_to(build) not in sources:
            path.unlink()


def main() -> str | int:
    """The command; returns its exit status, or an error message."""
    parser = ArgumentParser(prog="python3 -m harness.prefix", description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=OWN)
    parser.add_argument("--stop-points", action="store_true")
    options = parser.parse_args()
    folder = options.folder.absolute()
    try:
        prefix = kept(folder, pg_config=os.environ.get("PG_CONFIG") or system_pg_config())
        if options.stop_points:
            prefix = kept(STOP_POINTS, "STOP_POINTS=1", pg_config=prefix.pg_config)
    except (InstallationError, PrefixError) as problem:
        return str(problem)
    except OSError as problem:
        return f"{folder} cannot be made or changed; remove it, or let its owner run this: {problem}"
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print(prefix.pg_config)
    return 0


if __name__ == "__main__":
    sys.exit(main())
