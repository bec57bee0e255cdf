"""Servers for tests, with the settings that all of them have."""

from collections.abc import Iterator

from harness.cluster import Cluster

SETTINGS = {"autovacuum": False, "fsync": False, "max_connections": 150}


def has_herald(cluster: Cluster) -> bool:
    """Whether the cluster loads pg_herald."""
    return "pg_herald" in str(cluster.settings.get("shared_preload_libraries"))


def started(**options) -> Iterator[Cluster]:
    """Yields a cluster; afterwards its log must tell of no damage."""
    with Cluster(**options) as cluster:
        if options["preload"]:
            cluster.create_herald()
        yield cluster
        assert not cluster.damage()
