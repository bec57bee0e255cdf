"""Servers on the same machine that replicate a private cluster by streaming."""

import shutil
import time

from harness import server_user
from harness.cluster import START_TIMEOUT_S, SUPERUSER, Cluster, ClusterError

NAME = "standby"  # its application_name on the primary
SYNCHRONOUS_TIMEOUT_S = 30
POLL_S = 0.05


def conninfo(cluster: Cluster) -> str:
    """The server of a replication connection."""
    return f"host={cluster.socket_folder} port={cluster.port} user={SUPERUSER}"


class Member(Cluster):
    """A server that can be a primary and a standby in turn.

    source  the server whose data create() copies by a base backup; None: its data is new, and it is a primary
    name    its application_name where it is a standby
    """

    def __init__(self, name: str, settings: dict[str, object], source: Cluster | None = None):
        super().__init__(settings=settings)
        self.name = name
        self.source = source

    def follow(self, upstream: Cluster) -> None:
        """Makes it a standby of another server, from the next start() or, if it is a running standby, from now on."""
        self.settings["primary_conninfo"] = f"{conninfo(upstream)} application_name={self.name}"
        signal_file = self.data / "standby.signal"
        signal_file.touch()
        server_user.give(signal_file)
        if self.running():
            self.reload()

    def detach(self) -> None:
        """Ends the replication of a running standby, until it follows a server again."""
        self.settings["primary_conninfo"] = ""
        self.reload()

    def promote(self) -> None:
        """Makes a running standby a primary, with a checkpoint, without which others cannot be rewound to it."""
        self._server("pg_ctl", "promote", "--wait", f"--timeout={START_TIMEOUT_S}", "--silent", "--pgdata", str(self.data))
        self.psql("CHECKPOINT")

    def rewind(self, primary: Cluster) -> None:
        """Makes the data of this stopped server, an earlier primary, those of a primary; ClusterError if that fails."""
        self._server("pg_rewind", "--target-pgdata", str(self.data), "--no-sync",
                     "--source-server", f"{conninfo(primary)} dbname=postgres")

    def copy(self, primary: Cluster) -> None:
        """Replaces the data of this stopped server by a base backup of another one."""
        shutil.rmtree(self.data, ignore_errors=True)
        self._server("pg_basebackup", "--pgdata", str(self.data), "--dbname", conninfo(primary), "--no-sync",
                     "--checkpoint=fast", "--wal-method=stream")

    def _make_data(self) -> None:
        if self.source is None:
            super()._make_data()
        else:
            self.copy(self.source)


class Standby(Cluster):
    """A hot standby of a running primary, with the primary's settings; remove it before the primary.

    create() takes a base backup of the primary; start() starts replication.
    """

    def __init__(self, primary: Cluster):
        super().__init__(settings=primary.settings, pg_config=primary.installation.pg_config)
        self.primary = primary

    def make_synchronous(self) -> None:
        """Makes every later commit of the primary wait until the standby has flushed it."""
        self.primary.psql(f"ALTER SYSTEM SET synchronous_standby_names = '{NAME}'; SELECT pg_reload_conf()")
        end = time.monotonic() + SYNCHRONOUS_TIMEOUT_S
        while self.primary.psql("SELECT sync_state FROM pg_stat_replication") != "sync":
            if time.monotonic() > end:
                self.primary.psql("ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()")
                raise ClusterError(f"the standby is not synchronous after {SYNCHRONOUS_TIMEOUT_S} s: "
                                   f"{self.log()[-500:]}")
            time.sleep(POLL_S)

    def _make_data(self) -> None:
        """Copies the primary's data, and verifies the copy against its manifest."""
        self._server("pg_basebackup", "--pgdata", str(self.data), "--no-sync",
                     "--dbname", f"{conninfo(self.primary)} application_name={NAME}",
                     "--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf")
        self._server("pg_verifybackup", str(self.data))
