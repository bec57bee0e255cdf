"""Standbys that come to where their primary is."""

from time import sleep

import psycopg

from harness.cluster import Cluster
from harness.standby import Standby
from support import notify

ANCHOR_S = 1.5  # the housekeeper writes one each second, if it is due


def has_replayed(standby: Standby) -> bool:
    """Whether the standby has replayed all that the primary has flushed."""
    return standby.psql(f"SELECT pg_last_wal_replay_lsn() >= '{_flushed(standby.primary)}'") == "t"


def has_delivered(standby: Standby) -> bool:
    """Whether the standby has delivered all that the primary has flushed."""
    return standby.psql(f"SELECT read_position >= '{_flushed(standby.primary)}' FROM herald.relay") == "t"


def _flushed(primary: Cluster) -> str:
    return primary.psql("SELECT pg_current_wal_flush_lsn()")


def anchored(primary: Cluster, sender: psycopg.Connection) -> None:
    """Waits until the primary has written an anchor since its standbys were copied, which have no WAL from before."""
    primary.psql("SELECT pg_switch_wal()")
    notify(sender, "c", "since the copy")
    sleep(ANCHOR_S)
