"""A standby on the same machine that every commit of the primary waits for."""

import time

from harness import cleanup
from harness.cluster import Cluster, ClusterError

NAME = "bench_standby"
DEADLINE_S = 30
POLL_S = 0.05


class Standby(Cluster):
    """A hot standby of a running primary, with its settings; remove it before the primary."""

    def __init__(self, primary: Cluster):
        super().__init__(settings=primary.settings)
        self.primary = primary

    def create(self) -> None:
        """Copies the primary; ClusterError if that fails."""
        cleanup.at_end(self.remove)
        connection = (f"host={self.primary.socket_folder} port={self.primary.port} "
                      f"user={self.primary.environment()['PGUSER']} application_name={NAME}")
        with cleanup.deferred_signals():
            self.folder = self._make_folder()
            self.socket_folder = self._make_socket_folder()
            self._server("pg_basebackup", "--pgdata", str(self.data), "--dbname", connection, "--no-sync",
                         "--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf")


def wait_for_standby(primary: Cluster, standby: Cluster) -> None:
    """From here on every commit of the primary waits until the standby has flushed it."""
    primary.psql(f"ALTER SYSTEM SET synchronous_standby_names = '{NAME}'; SELECT pg_reload_conf()")
    deadline = time.monotonic() + DEADLINE_S
    while primary.psql("SELECT sync_state FROM pg_stat_replication") != "sync":
        if time.monotonic() > deadline:
            primary.psql("ALTER SYSTEM RESET synchronous_standby_names; SELECT pg_reload_conf()")
            raise ClusterError(f"the standby is not synchronous after {DEADLINE_S} s: {standby.log()[-500:]}")
        time.sleep(POLL_S)
