"""Servers for the tests: a primary with pg_herald, a standby of it, and a stock server.

    python3 servers.py NAME...      primary, standby, stock

Prints where they are, as a line of JSON; obeys lines of stdin; ends with stdin. The lines: `stop NAME`, `start NAME`,
`kill NAME`, `restart NAME`, `promote standby`. Each is answered with a line: "done", or what went wrong.
"""

import json
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

TOP = next(folder for folder in Path(__file__).resolve().parents if (folder / "harness" / "cluster.py").exists())
sys.path.insert(0, str(TOP))
sys.dont_write_bytecode = True

from harness.cluster import Cluster, ClusterError  # noqa: E402
from harness.ports import LOOPBACK, free_port  # noqa: E402
from harness.standby import Standby  # noqa: E402
from harness.tcp_cluster import TcpCluster  # noqa: E402

SETTINGS = {"fsync": False, "autovacuum": False, "max_connections": 60, "wal_keep_size": "256MB"}
LOGGED = "SELECT herald.set_channel('logged_*', logged => true)"


class Primary(TcpCluster):
    """A server with pg_herald that a standby can replicate, and that also accepts TLS."""

    def _make_data(self) -> None:
        super()._make_data()
        certificate, key = self.data / "server.crt", self.data / "server.key"
        subprocess.run(["openssl", "req", "-new", "-x509", "-days", "2", "-nodes", "-newkey", "rsa:2048", "-subj", f"/CN={LOOPBACK}",
                        "-addext", f"subjectAltName=IP:{LOOPBACK}", "-keyout", key, "-out", certificate], check=True, capture_output=True)
        owner = self.data.stat()
        for path in (certificate, key):
            shutil.chown(path, owner.st_uid, owner.st_gid)
            path.chmod(0o600)
        self.settings["ssl"] = True
        with open(self.data / "pg_hba.conf", "a", encoding="ascii") as rules:
            rules.write("local replication all trust\n")


class TcpStandby(Standby):
    """A standby with a port of its own; it takes the primary's pg_hba.conf and password with the data."""

    def __init__(self, primary: Primary):
        super().__init__(primary)
        self.port = free_port()
        self.settings = primary.settings | {"listen_addresses": LOOPBACK}

    def promote(self) -> None:
        """Makes it a primary."""
        self._server("pg_ctl", "promote", "--wait", "--silent", "--pgdata", str(self.data))


def place(cluster: Cluster, password: str) -> dict:
    """Where a server is."""
    return {"host": LOOPBACK, "port": cluster.port, "socket": str(cluster.socket_folder), "password": password,
            "data": str(cluster.data)}


def obey(servers: dict, line: str) -> str:
    """Executes a line, and returns the answer."""
    action, name = line.split()
    try:
        getattr(servers[name], action)()
    except (ClusterError, OSError) as problem:
        return " ".join(str(problem).split())
    return "done"


def main() -> None:
    """Starts the servers that are wanted, and obeys."""
    wanted = sys.argv[1:]
    servers: dict[str, TcpCluster] = {}
    passwords = {}
    with ExitStack() as stack:
        if "primary" in wanted:
            primary = servers["primary"] = stack.enter_context(Primary(preload=True, settings=SETTINGS))
            passwords["primary"] = passwords["standby"] = primary.password
            primary.create_herald()
            primary.psql("CREATE DATABASE bare")  # without the extension
            primary.psql(LOGGED)
        if "standby" in wanted:
            servers["standby"] = stack.enter_context(TcpStandby(primary))
        if "stock" in wanted:
            stock = servers["stock"] = stack.enter_context(TcpCluster(settings=SETTINGS))
            passwords["stock"] = stock.password
        print(json.dumps({name: place(server, passwords[name]) for name, server in servers.items()}), flush=True)
        for line in sys.stdin:
            print(obey(servers, line), flush=True)


if __name__ == "__main__":
    main()
