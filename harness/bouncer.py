"""A private PgBouncer in front of a cluster."""

from pathlib import Path

from harness.cluster import SUPERUSER, Cluster
from harness.ports import LOOPBACK
from harness.private_server import PrivateServer

POOL_OF_ONE = "pool_of_one"  # a database whose clients share one connection to the server

SETTINGS = """\
[databases]
postgres = host={server} port={server_port} dbname=postgres
{pool_of_one} = host={server} port={server_port} dbname=postgres pool_size=1
* = host={server} port={server_port}

[pgbouncer]
pool_mode = {pool_mode}
server_reset_query = {reset_query}
listen_addr = {address}
listen_port = {port}
unix_socket_dir = {folder}
auth_type = hba
auth_hba_file = {folder}/hba
auth_file = {folder}/users
; pgjdbc sets it when it connects
ignore_startup_parameters = extra_float_digits
"""


class Bouncer(PrivateServer):
    """PgBouncer. Like the cluster it trusts its unix socket, and asks for the password over TCP."""

    program_name = "pgbouncer"

    def __init__(self, cluster: Cluster, password: str, reset_query: str = "DISCARD ALL", pool_mode: str = "session"):
        super().__init__()
        self._pool_mode = pool_mode
        self._cluster = cluster
        self._password = password
        self._reset_query = reset_query

    @property
    def unix_socket(self) -> Path:
        return self.folder / f".s.PGSQL.{self.port}"

    def command(self) -> list[str]:
        self.write("hba", f"local all all trust\nhost all all {LOOPBACK}/32 scram-sha-256\n")
        self.write("users", f'"{SUPERUSER}" "{self._password}"\n')
        settings = self.write("ini", SETTINGS.format(
            server=self._cluster.socket_folder, server_port=self._cluster.port, address=LOOPBACK,
            port=self.port, folder=self.folder, pool_of_one=POOL_OF_ONE, pool_mode=self._pool_mode,
            reset_query=self._reset_query))
        return [self.program, str(settings)]
