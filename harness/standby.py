"""A standby on the same machine, which replicates a private cluster by streaming."""

import time

from harness.cluster import SUPERUSER, Cluster, ClusterError

NAME = "standby"  # its application_name on the primary
SYNCHRONOUS_TIMEOUT_S = 30
POLL_S = 0.05


class Standby(Cluster):
    """A hot standby of a running primary, with the primary's settings; remove it before the primary.

    create() takes a base backup of the primary; start() starts replication.
    """

    def __init__(self, primary: Cluster):
        super().__init__(settings=primary.settings)
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
        connection = (f"host={self.primary.socket_folder} port={self.primary.port} user={SUPERUSER} "
                      f"application_name={NAME}")
        self._server("pg_basebackup", "--pgdata", str(self.data), "--dbname", connection, "--no-sync",
                     "--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf")
        self._server("pg_verifybackup", str(self.data))
