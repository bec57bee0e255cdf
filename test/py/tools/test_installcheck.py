"""`make installcheck`, as packages are tested: on a given server, or on a temporary one."""

import os
import shutil
import subprocess

import pytest

from harness.cluster import Cluster
from harness.installation import find_installation
from harness.prefix import TOP
from servers import SETTINGS, started

pytestmark = pytest.mark.timeout(180)
NEED_MORE = ("prepare_transaction", "cache", "no_xid")  # than a server has by default


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A writable copy of what `make installcheck` needs."""
    folder = tmp_path_factory.mktemp("tree")
    for name in ("harness", "test/regress", "test/isolation"):
        shutil.copytree(TOP / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Makefile", "common.mk", "pg_herald.control", "test/given_server", "test/temporary_server", "test/run_sql.py"):
        shutil.copy(TOP / name, folder / name)
    return folder


def installcheck(tree, server: Cluster | None) -> tuple[int, str]:
    """Runs `make installcheck`; returns its status and its output."""
    environment = server.environment() if server else {
        name: value for name, value in os.environ.items() if not name.startswith("PG")}
    result = subprocess.run(["make", "installcheck", f"PG_CONFIG={find_installation().pg_config}"], cwd=tree,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    return result.returncode, result.stdout


def scheduled(tree) -> int:
    """The number of SQL tests."""
    lines = [line for path in tree.glob("test/*/schedule_*") for line in path.read_text(encoding="utf-8").splitlines()]
    return len([line for line in lines if line and not line.startswith("#")])


def passed(output: str) -> list[str]:
    """The passed tests, of both kinds; from PostgreSQL 16 on, pg_regress prints TAP."""
    return [line for line in output.splitlines()
            if line.startswith("test ") and "... ok" in line or line.startswith("ok ")]


def test_temporary_server(tree):
    """Guards: where the environment names no server, all SQL tests run on one that preloads both libraries."""
    status, output = installcheck(tree, None)
    assert status == 0, output
    assert len(passed(output)) == scheduled(tree)


def test_given_server(tree):
    """Guards: a server with default settings, which preloads both libraries, passes; tests that cannot run are named."""
    for server in started(preload=True, caches=True, settings=SETTINGS | {"autovacuum": True}):
        status, output = installcheck(tree, server)
        assert status == 0, output
        assert len(passed(output)) == scheduled(tree) - len(NEED_MORE)
        assert "left out: prepare_transaction cache (max_prepared_transactions is 0)" in output
        assert "left out: no_xid (others write WAL" in output


def test_stock_server(tree, stock):
    """Guards: a server that does not preload pg_herald is refused, with a message about what is missing."""
    status, output = installcheck(tree, stock)
    assert status != 0
    assert "does not preload pg_herald" in output and "unset PGHOST" in output
    assert passed(output) == []
