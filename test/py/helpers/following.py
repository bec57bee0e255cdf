"""Standbys that come to where their primary is, and servers that write an anchor."""

import psycopg

from harness.cluster import Cluster
from harness.standby import Standby
from support import context_switches, housekeeper_pid, notify, until

ANCHOR_LOOKS = 2  # the housekeeper writes an anchor when it looks, if one is due; it may wait within a look


def has_replayed(standby: Standby) -> bool:
    """Whether the standby has replayed all that the primary has flushed."""
    return standby.psql(f"SELECT pg_last_wal_replay_lsn() >= '{_flushed(standby.primary)}'") == "t"


def has_delivered(standby: Standby) -> bool:
    """Whether the standby has delivered all that the primary has flushed."""
    return standby.psql(f"SELECT read_position >= '{_flushed(standby.primary)}' FROM herald.relay") == "t"


def _flushed(primary: Cluster) -> str:
    return primary.psql("SELECT pg_current_wal_flush_lsn()")


def looks(cluster: Cluster, count: int) -> bool:
    """Waits until the housekeeper has looked this number of times; it sleeps after each."""
    pid = until(lambda: housekeeper_pid(cluster), "there is a housekeeper")
    before = context_switches(pid)
    return until(lambda: context_switches(pid) > before + count, "it looks")


def anchored(primary: Cluster, sender: psycopg.Connection) -> None:
    """Waits until the primary has written an anchor since its standbys were copied, which have no WAL from before."""
    primary.psql("SELECT pg_switch_wal()")
    notify(sender, "c", "since the copy")
    looks(primary, ANCHOR_LOOKS)
