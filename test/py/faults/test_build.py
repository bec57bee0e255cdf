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
    """The stop points in the sources."""
    return {name for path in SOURCES.rglob("*.c")
            for name in re.findall(r'HERALD_[A-Z]+_POINT\("([^"]+)"\)', path.read_text(encoding="utf-8"))}


def library(pg_config: str) -> Path:
    """The installed module."""
    folder = subprocess.run([pg_config, "--pkglibdir"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return Path(folder.strip()) / "pg_herald.so"


def traces(path: Path) -> set[str]:
    """What in a file tells of stop points: their names, and the symbols."""
    content = path.read_bytes()
    return {name for name in [*names(), "stop_point", "herald_stop"]
            if (b"\0%b\0" % name.encode() if name in names() else name.encode()) in content}


def test_release_has_none(stop_points):
    """Guards: in the module as it is installed, and in its SQL script, there is no name of a stop point, no
    symbol, and no function; in the build for tests all of them are found."""
    assert len(names()) > 40
    assert traces(library(find_installation().pg_config)) == set()
    for script in (TOP / "sql").iterdir():
        assert "stop" not in script.read_text(encoding="utf-8")
    assert traces(library(stop_points)) >= {*names(), "stop_point", "herald_stop"}


def test_release_has_no_functions(cluster):
    """Guards: nobody can arm anything in a release build."""
    with pytest.raises(ClusterError, match='could not find function "herald_stop_arm"'):
        cluster.psql(FUNCTIONS)


def test_every_stop_point_is_tested():
    """Guards: no stop point is left of a test that is no more."""
    tests = "".join(path.read_text(encoding="utf-8")
                    for path in (TOP / "test/py").rglob("test_*.py"))
    assert [name for name in sorted(names()) if f'"{name}"' not in tests] == []
