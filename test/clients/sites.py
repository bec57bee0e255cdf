"""The servers: one with pg_herald, a stock one, and a primary with two standbys. Clients reach them by TCP, with a password."""

import secrets
from collections.abc import Callable

from harness.cluster import SUPERUSER, Cluster
from harness.ports import LOOPBACK, free_port
from harness.tcp_cluster import TcpCluster
from nodes import Chain, Node
from proxy import Proxy

SETTINGS = {"autovacuum": False, "fsync": False, "max_connections": 150}
PASSWORD = secrets.token_hex(16)


class Site:
    """What a test's clients connect to.

    nodes       its servers
    has_herald  whether they load pg_herald
    is_logged   whether channel "orders" is a logged one
    """

    def __init__(self, nodes: list[Cluster], has_herald: bool, is_logged: bool, password: str,
                 primary: Callable[[], Cluster]):
        self.nodes, self.has_herald, self.is_logged = nodes, has_herald, is_logged
        self.password = password
        self._primary = primary

    @property
    def primary(self) -> Cluster:
        """The server that is the primary now."""
        return self._primary()

    @property
    def ports(self) -> list[int]:
        """The ports of its servers."""
        return [node.port for node in self.nodes]

    def uri(self, dbname: str, ports: list[int], user: str = SUPERUSER, password: str | None = None) -> str:
        """A connection URI with one host or several."""
        hosts = ",".join(f"{LOOPBACK}:{port}" for port in ports)
        return f"postgresql://{user}:{password or self.password}@{hosts}/{dbname}"


class TcpNode(Node):
    """A server of a chain that also listens on the loopback interface."""

    def __init__(self, name: str, source: Node | None = None):
        super().__init__(name, source)
        self.port = free_port()
        self.settings |= {"listen_addresses": LOOPBACK, "max_connections": 150, "wal_keep_size": "512MB"}

    def _make_data(self) -> None:
        super()._make_data()
        (self.data / "pg_hba.conf").write_text(
            f"local all all trust\nlocal replication all trust\nhost all all {LOOPBACK}/32 scram-sha-256\n", encoding="ascii")


def single(cluster: TcpCluster, has_herald: bool) -> Site:
    """The site of one server."""
    return Site([cluster], has_herald, False, cluster.password, lambda: cluster)


def chained(chain: Chain) -> Site:
    """The site of a chain; sets the password."""
    chain.primary.psql(f"ALTER ROLE {SUPERUSER} PASSWORD '{PASSWORD}'")
    return Site(chain.nodes, True, True, PASSWORD, lambda: chain.primary)


class Wires:
    """A proxy before each server of a site; what is done to it is done to all of them."""

    def __init__(self, site: Site):
        self.proxies = [Proxy(port) for port in site.ports]

    @property
    def ports(self) -> list[int]:
        """The ports of the proxies, in the order of the servers."""
        return [proxy.port for proxy in self.proxies]

    def reset(self) -> None:
        """See Proxy."""
        for proxy in self.proxies:
            proxy.reset()

    def close(self) -> None:
        """See Proxy."""
        for proxy in self.proxies:
            proxy.close()

    def mute(self, to_server: bool = True, to_client: bool = True) -> None:
        """See Proxy."""
        for proxy in self.proxies:
            proxy.mute(to_server, to_client)

    def end_muted(self) -> None:
        """See Proxy."""
        for proxy in self.proxies:
            proxy.end_muted()

    def remove(self) -> None:
        """Resets all connections, and accepts no more."""
        for proxy in self.proxies:
            proxy.__exit__()
