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


def library(pg_config: str) -> Path:
    """The path of the installed module."""
    folder = subprocess.run([pg_config, "--pkglibdir"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return Path(folder.strip()) / "pg_herald.so"


def traces(path: Path) -> set[str]:
    """The names and symbols of stop points that a file contains."""
    content = path.read_bytes()
    whole = {name.encode() for name in names()}
    strings = {match[1] for match in re.finditer(rb"(?<![ -~])([ -~]+)\0", content)}
    return {name.decode() for name in whole & strings} | \
        {name for name in ("stop_point", "herald_stop") if name.encode() in content}


def test_release_has_none(stop_points):
    """Guards: the module as it is installed, and its SQL script, contain no name of a stop point, no symbol, and no
    function; the build for tests contains all of them."""
    assert len(names()) > 40
    assert traces(library(find_installation().pg_config)) == set()
    for script in (TOP / "sql").iterdir():
        assert "stop" not in script.read_text(encoding="utf-8")
    assert traces(library(stop_points)) >= {*names(), "stop_point", "herald_stop"}


def test_release_has_no_functions(cluster):
    """Guards: no user can arm a stop point in a release build."""
    with pytest.raises(ClusterError, match='could not find function "herald_stop_arm"'):
        cluster.psql(FUNCTIONS)


def test_every_stop_point_is_tested():
    """Guards: each stop point is used by a test."""
    tests = "".join(path.read_text(encoding="utf-8")
                    for path in (TOP / "test/py").rglob("test_*.py"))
    assert [name for name in sorted(names()) if f'"{name}"' not in tests] == []
