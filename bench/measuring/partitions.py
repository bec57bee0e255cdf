"""A public benchmark of publishing and subscribing, with one logged channel for each of its partitions.

github.com/stanislavkozlovski/pg-queue-pubsub-benchmark: 10 writers send batches of 100 messages of 1 kB to 4
partitions; 5 groups of 4 readers each read everything, each reader one partition.
"""

from bench.measuring.logged import TIMEOUT_S, received, set_logged
from bench.measuring.measure import DBNAME
from harness.cluster import Cluster
from harness.listeners import run_once

WRITERS = 10
BATCH = 100
PAYLOAD_BYTES = 1000
PARTITIONS = 4
GROUPS = 5
WAIT_S = 20
# A batch goes to one partition, at random. The payload begins with the moment at which the batch was due.
PUBLISH = f"""CREATE OR REPLACE FUNCTION publish(moment text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  partition text := 'logged_part_' || floor(random() * {PARTITIONS})::int;
BEGIN
  PERFORM pg_notify(partition, rpad(moment || ' ' || n || ' ', {PAYLOAD_BYTES}, 'x'))
    FROM generate_series(1, {BATCH}) n;
END $$"""
# %d: the reader's number, so the readers of a group have all partitions.
READ = ("PREPARE pull(text) AS SELECT position, payload "
        f"FROM herald.read('logged_part_' || (%d % {PARTITIONS}), $1, 1000, '{WAIT_S}s')")


def publish(cluster: Cluster, seconds: float, *, rate: float | None = None) -> dict:
    """Writes batches, at `rate` messages a second or as fast as it goes, until each group has read all.

    written_per_s, read_per_s   messages, over the time until the last reader has the last one
    delivery_us_p50, ...        from when a batch was due until a reader has a message of it
    commit_us_p50, ...          from then until the writer has the commit's answer
    """
    set_logged(cluster)
    cluster.psql(PUBLISH, DBNAME)
    options: dict[str, object] = {"rate": f"{rate / BATCH:g}"} if rate else {}
    told = run_once(cluster, GROUPS * PARTITIONS, dbname=DBNAME, timeout_s=TIMEOUT_S, paced=f"{seconds:g}",
                    paced_senders=WRITERS, send="SELECT publish('%s')", deliveries=GROUPS * BATCH, setup=READ,
                    pull="EXECUTE pull('%s')", pull_from=cluster.psql("SELECT herald.position()", DBNAME), **options)
    return received(told) | {"written_per_s": told["committed"] * BATCH / told["elapsed_s"],
                             "read_per_s": told["delivered"] / told["elapsed_s"]}
