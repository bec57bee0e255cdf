"""A small disk, which is soon full."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness import server_user
from harness.cluster import Cluster
from laggards import RING_BYTES, files
from support import until

DISK_BYTES = 3 * 1024 * 1024
NAME = "small_disk"  # of its tablespace


@contextmanager
def small_disk() -> Iterator[Path]:
    """A disk of DISK_BYTES, which the server may use; skips the test if it cannot be mounted."""
    path = server_user.make_folder()
    try:
        result = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(path)],
                                capture_output=True, text=True) if shutil.which("mount") else None
        if result is None or result.returncode != 0:
            pytest.skip(f"a small disk cannot be mounted here: {result.stderr.strip() if result else 'no mount'}")
        try:
            path.chmod(0o700)
            server_user.give(path)
            yield path
        finally:
            subprocess.run(["umount", "--lazy", str(path)], check=True)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def use(cluster: Cluster, disk: Path) -> None:
    """Creates on the disk the tablespace that the cluster's temp_tablespaces names."""
    cluster.psql(f"CREATE TABLESPACE {NAME} LOCATION '{disk}'")


def until_empty(disk: Path) -> None:
    """Waits until the queue has no file there, and no process has a deleted one open, which would still take room."""
    until(lambda: files(disk) == [] and shutil.disk_usage(disk).used < RING_BYTES, "the files have gone, and their room is free")
