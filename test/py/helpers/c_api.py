"""Builds the modules in test/modules. For herald_client also: servers that load it, and queries for tests."""

import re
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

import psycopg

from harness.cluster import Cluster
from harness.installation import find_installation
from harness.prefix import TOP, locked
from servers import SETTINGS, started
from support import one

SOURCE = TOP / "test/modules/herald_client"
HEADERS = ("extension/pg_herald/pg_herald_api.h", "extension/pg_herald_cache/pg_herald_cache_api.h")

# How a server loads it; herald_client's callbacks run before those of libraries that were loaded earlier.
LOADED = {
    "preloaded first": "herald_client, pg_herald, pg_herald_cache",
    "preloaded last": "pg_herald, pg_herald_cache, herald_client",
    "by the session": "pg_herald, pg_herald_cache",
}


def include_folder(pg_config: str) -> Path:
    """The folder with the server's headers."""
    return Path(subprocess.run([pg_config, "--includedir-server"], check=True, capture_output=True,
                               text=True).stdout.strip())


@contextmanager
def build_folder(source: Path = SOURCE):
    """A copy of an extension, in a new folder that the server's user can read."""
    with tempfile.TemporaryDirectory(prefix="herald-", dir="/var/tmp") as name:
        folder = Path(name) / source.name
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.o", "*.bc", "*.so"))
        for path in (folder.parent, folder):
            path.chmod(0o755)
        yield folder


def make(folder: Path, pg_config: str, *goals: str) -> None:
    """Builds a copy of the extension, away from our sources; a warning is an error."""
    result = subprocess.run(["make", "-s", f"PG_CONFIG={pg_config}", "with_llvm=no", *goals], cwd=folder,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert result.returncode == 0, result.stdout


@contextmanager
def built(name: str):
    """The path, for LOAD, of the module of this name, built without a warning in a folder that is deleted again."""
    with build_folder(TOP / "test/modules" / name) as folder:
        make(folder, find_installation().pg_config, "COPT=-Werror")
        (folder / f"{name}.so").chmod(0o755)
        yield str(folder / name)


def install_client(pg_config: str) -> None:
    """Builds the extension with what is installed, and installs it there, unless another process has just done so."""
    library = Path(subprocess.run([pg_config, "--pkglibdir"], check=True, capture_output=True,
                                  text=True).stdout.strip()) / "herald_client.so"
    with locked():
        made_from = [*SOURCE.iterdir(), *(include_folder(pg_config) / header for header in HEADERS)]
        if library.exists() and all(library.stat().st_mtime > path.stat().st_mtime for path in made_from):
            return
        with build_folder() as folder:
            make(folder, pg_config, "COPT=-Werror", "install")


def with_client(pg_config: str, libraries: str, **settings: object):
    """Yields a cluster that has both extensions, or only the client if pg_herald is not loaded."""
    has_herald = "pg_herald" in libraries
    for cluster in started(preload=has_herald, pg_config=pg_config,
                           settings=SETTINGS | settings | {"shared_preload_libraries": libraries}):
        cluster.psql("CREATE EXTENSION herald_client")
        yield cluster


def opener(connect, cluster: Cluster):
    """opener(...)() opens a connection that has the client loaded."""
    def open_one(dbname: str = "postgres", **options) -> psycopg.Connection:
        connection = connect(cluster, dbname, **options)
        connection.execute("LOAD 'herald_client'")
        return connection

    return open_one


def get(connection: psycopg.Connection, key: str) -> tuple[str | None, bool]:
    """A setting, and whether it came from this session's cache."""
    before = one(connection, "SELECT hits FROM client.cached()")
    value = one(connection, "SELECT client.get(%s)", key)
    return value, one(connection, "SELECT hits FROM client.cached()") > before


def cached(connection: psycopg.Connection, column: str) -> int:
    """One of the figures entries, hits, kept, not_kept, resets."""
    return one(connection, f"SELECT {column} FROM client.cached()")


def handled_in(cluster: Cluster, pid: int, name: str = "herald_client") -> int:
    """How often a backend has run the reason's handler, according to the server's log: without querying the backend."""
    states = re.findall(rf"\[{pid}\] LOG:  herald_client: {re.escape(name)} (.*)", cluster.log())
    assert set(states) <= {"in a transaction"}
    return len(states)
