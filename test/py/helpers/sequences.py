"""Notifications that pgbench numbers for each of its clients, and listeners that check the numbers (check_sequence)."""

from harness.cluster import Cluster


def send_sequences(cluster: Cluster, clients: int, transactions: int, each: int, dbname: str = "postgres") -> None:
    """Each client notifies channel_1 of its next `each` numbers in each of its transactions; all must succeed."""
    script = (rf"\set n :n + {each}" "\n"
              f"SELECT count(pg_notify('channel_1', :client_id || ':' || :n - {each} + g))"
              f" FROM generate_series(1, {each}) g;\n")
    cluster.client("pgbench", "-n", f"-c{clients}", f"-t{transactions}", "-D", "n=0", "-f", "/dev/stdin",
                   dbname=dbname, stdin=script, timeout_s=100)


def nothing_wrong(received: int) -> dict[str, int]:
    """What the listeners report of a sequence of `received` notifications without an error."""
    return {"received": received, "out_of_order": 0, "duplicated": 0, "missing": 0, "malformed": 0}
