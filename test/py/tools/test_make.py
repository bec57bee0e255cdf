"""The module is built with nothing but the server's development files, and says which package is missing."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.installation import find_installation
from harness.prefix import SOURCES, TOP

SERVER_SOURCES = sorted(path for path in (TOP / "src").rglob("*.c") if "core" not in path.parts)


@pytest.fixture
def build(tmp_path):
    """build(*arguments) runs make in a copy of the sources, and returns its status and all that it printed."""
    for name in SOURCES:
        copy = shutil.copytree if (TOP / name).is_dir() else shutil.copy
        copy(TOP / name, tmp_path / name)
    for path in tmp_path.rglob("*.o"):
        path.unlink()

    def make(*arguments: str) -> tuple[int, str]:
        result = subprocess.run(["make", *arguments], cwd=tmp_path, text=True, timeout=60,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return result.returncode, result.stdout

    return make


def headers(source: Path) -> list[str]:
    """All headers that the compiler reads for a source file."""
    server = subprocess.run([find_installation().pg_config, "--includedir-server"], check=True, text=True,
                            stdout=subprocess.PIPE).stdout.strip()
    rule = subprocess.run(["gcc", "-std=gnu11", "-M", f"-I{server}", f"-I{TOP / 'src'}", str(source)], check=True,
                          text=True, stdout=subprocess.PIPE).stdout
    return rule.replace("\\\n", " ").split()[1:]


def test_no_header_of_kerberos():
    """The server's header files for Kerberos are not needed: no development package of the server depends on them."""
    read = {header: source for source in SERVER_SOURCES for header in headers(source)}
    assert any(header.endswith("/libpq/libpq-be.h") for header in read)  # which would include them
    assert [f"{source}: {header}" for header, source in read.items() if re.search(r"/(gssapi|krb5)[./]", header)] == []


def test_missing_header(build):
    status, output = build(f"PG_CONFIG={find_installation().pg_config}", "CPPFLAGS=-nostdinc", "src/hooks.o")
    assert status != 0 and re.search(r"<?\w+\.h>?: No such file", output) and "libc6-dev" in output
    assert "-c -o src/hooks.o" not in output  # reported before anything is compiled


def test_missing_development_files(build, tmp_path):
    client_only = tmp_path / "pg_config"
    client_only.write_text("#!/bin/sh\necho /nowhere/pgxs.mk\n", encoding="ascii")
    client_only.chmod(0o755)
    status, output = build(f"PG_CONFIG={client_only}")
    assert status != 0 and "postgresql-server-dev-" in output
