"""Servers for tests, with the settings that all of them have."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.cluster import Cluster
from harness.installation import choose_pg_config

SETTINGS = {"autovacuum": False, "fsync": False, "max_connections": 150}


def has_herald(cluster: Cluster) -> bool:
    """Whether the cluster loads pg_herald."""
    return "pg_herald" in str(cluster.settings.get("shared_preload_libraries"))


def need_library(*names: str) -> None:
    """Skips the test if this PostgreSQL lacks one of these contrib modules."""
    folder = Path(_asked("--pkglibdir"))
    for name in names:
        if not (folder / f"{name}.so").exists():
            pytest.skip(f"this PostgreSQL comes without {name}")


def need_tls() -> None:
    """Skips the test if this PostgreSQL was built without OpenSSL."""
    if "openssl" not in _asked("--configure"):
        pytest.skip("this PostgreSQL was built without TLS")


def need_xml() -> None:
    """Skips the test if this PostgreSQL was built without libxml."""
    if "libxml" not in _asked("--configure"):
        pytest.skip("this PostgreSQL was built without XML")


def _asked(what: str) -> str:
    return subprocess.run([choose_pg_config(), what], check=True, capture_output=True, text=True).stdout.strip()


def started(kind: type[Cluster] = Cluster, **options) -> Iterator[Cluster]:
    """Yields a cluster; afterwards its log must show no damage."""
    with kind(**options) as cluster:
        if options["preload"]:
            cluster.create_herald()
        yield cluster
        assert not cluster.damage(), cluster.damage()
