"""A cluster for clients that cannot use unix sockets."""

import secrets

from harness.cluster import SUPERUSER, Cluster
from harness.ports import LOOPBACK, free_port


class TcpCluster(Cluster):
    """A cluster that also listens on the loopback interface.

    Every user of the machine can connect there, so connections there need a password.
    """

    def __init__(self, *, preload: bool = False, caches: bool = False, settings: dict[str, object] | None = None):
        super().__init__(preload=preload, caches=caches, port=free_port(),
                         settings={"listen_addresses": LOOPBACK} | (settings or {}))
        self.password = secrets.token_hex(16)

    def start(self) -> None:
        """Starts the server, and sets the password."""
        super().start()
        self.psql(f"ALTER ROLE {SUPERUSER} PASSWORD '{self.password}'")

    def tcp_environment(self, port: int, dbname: str = "postgres") -> dict[str, str]:
        """The environment for a client that connects to a port: the cluster's own, or that of a pooler before it."""
        return self.environment(dbname) | {"PGHOST": LOOPBACK, "PGPORT": str(port), "PGPASSWORD": self.password}

    def _make_data(self) -> None:
        super()._make_data()
        (self.data / "pg_hba.conf").write_text(
            f"local all all trust\nhost all all {LOOPBACK}/32 scram-sha-256\n", encoding="ascii")
