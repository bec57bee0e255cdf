"""The servers, and the packages that the tests drive."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from crew import Crew
from harness import cleanup
from harness.tcp_cluster import TcpCluster
from kits import Kit, kits
from nodes import Chain
from servers import started
from sites import SETTINGS, Site, TcpNode, chained, single

cleanup.interrupt_by_signals()

_numbers = itertools.count(1)


def pytest_addoption(parser):
    """--client NAME, also several times: only these packages."""
    parser.addoption("--client", action="append", choices=[kit.name for kit in kits()], help="only this package")


def pytest_terminal_summary(terminalreporter):
    """Says which packages are not tested here."""
    for kit in kits():
        if kit.lacks:
            terminalreporter.write_line(kit.lacks)


@pytest.fixture(scope="session")
def packages(request) -> list[Kit]:
    """The packages, which test/clients/prepare has built."""
    wanted = request.config.option.client
    found = [kit for kit in kits() if (not wanted or kit.name in wanted) and not kit.lacks]
    missing = {kit.folder for kit in found if not (kit.built / ".built_from").exists()}
    assert not missing, f"{', '.join(sorted(missing))}: not built; run test/clients/prepare"
    return found


@pytest.fixture
def crew(packages, tmp_path) -> Callable[..., Crew]:
    """crew(site) has all packages, or those with the names, take part in the test, in databases of that site."""
    def make(site: Site, *names: str) -> Crew:
        return Crew([kit for kit in packages if not names or kit.name in names], site, f"t{next(_numbers)}", tmp_path)

    return make


@pytest.fixture(scope="session")
def herald() -> Iterator[Site]:
    """A server with pg_herald. Tests restart it."""
    for cluster in started(TcpCluster, preload=True, settings=SETTINGS):
        yield single(cluster, True)


@pytest.fixture(scope="session")
def stock() -> Iterator[Site]:
    """A server without pg_herald. Tests restart it."""
    for cluster in started(TcpCluster, preload=False, settings=SETTINGS):
        yield single(cluster, False)


@pytest.fixture
def chain() -> Iterator[Chain]:
    """A primary and two standbys, of which the second follows the first; a commit waits for one of them."""
    with Chain(True, TcpNode) as chain:
        yield chain
        for node in chain.nodes:
            assert not node.damage(), node.damage()


@pytest.fixture
def trio(chain) -> Site:
    """The site of these servers. Channel "orders" is logged."""
    return chained(chain)
