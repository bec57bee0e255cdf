"""Stop points are in the build for tests, and in no other."""

import re
import subprocess
from pathlib import Path

import pytest

from faults import FUNCTIONS
from harness.cluster import ClusterError
from harness.installation import find_installation
from harness.prefix import TOP

SOURCES = TOP / "src"


def names() -> set[str]:
    """The names of the stop points in the sources."""
    return {name for path in SOURCES.rglob("*.c")
            for name in re.findall(r'HERALD_[A-Z]+_POINT\("([^"]+)"\)', path.read_text(encoding="utf-8"))}


def libraries(pg_config: str) -> list[Path]:
    """The paths of the installed libraries."""
    folder = subprocess.run([pg_config, "--pkglibdir"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return [Path(folder.strip()) / name for name in ("pg_herald.so", "pg_herald_cache.so")]


def traces(pg_config: str) -> set[str]:
    """The names and symbols of stop points that the libraries contain."""
    content = b"".join(path.read_bytes() for path in libraries(pg_config))
    whole = {name.encode() for name in names()}
    strings = {match[1] for match in re.finditer(rb"(?<![ -~])([ -~]+)\0", content)}
    return {name.decode() for name in whole & strings} | \
        {name for name in ("stop_point", "herald_stop") if name.encode() in content}


def test_release_has_none(stop_points):
    """Guards: the libraries as they are installed, and their SQL scripts, contain no name of a stop point, no symbol, and
    no function; the build for tests contains all of them."""
    assert len(names()) > 40
    assert traces(find_installation().pg_config) == set()
    for script in (TOP / "sql").iterdir():
        assert "stop" not in script.read_text(encoding="utf-8")
    assert traces(stop_points) >= {*names(), "stop_point", "herald_stop"}


def test_release_has_no_functions(cluster):
    """Guards: no user can arm a stop point in a release build."""
    with pytest.raises(ClusterError, match='could not find function "herald_stop_arm"'):
        cluster.psql(FUNCTIONS)


def test_every_stop_point_is_tested():
    """Guards: each stop point is used by a test."""
    tests = "".join(path.read_text(encoding="utf-8")
                    for path in (TOP / "test/py").rglob("test_*.py"))
    assert [name for name in sorted(names()) if f'"{name}"' not in tests] == []


def test_exports(stop_points):
    """Guards: a library exports what the server looks up by name, and nothing else: both are loaded into one process,
    with some objects in common, and names of one must not stand for those of the other."""
    for pg_config in (find_installation().pg_config, stop_points):
        for library in libraries(pg_config):
            exported = subprocess.run(["nm", "-D", "--defined-only", library], check=True, stdout=subprocess.PIPE, text=True).stdout
            found = {line.split()[-1] for line in exported.splitlines()}
            functions = {name.removeprefix("pg_finfo_") for name in found if name.startswith("pg_finfo_")}
            workers = {name for name in found if re.fullmatch(r"herald_\w+_main", name)}
            assert len(functions) > 5 and functions <= found
            assert len(workers) == (3 if library.name == "pg_herald.so" else 0)
            assert found - functions - workers - {f"pg_finfo_{name}" for name in functions} == {"_PG_init", "Pg_magic_func"}
