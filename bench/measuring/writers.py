"""INSERT with a trigger that notifies: the writers' throughput with and without NOTIFY."""

from bench.measuring.measure import DBNAME, DRAIN_TIMEOUT_S, MeasureError, pgbench, script_load
from harness.cluster import Cluster
from harness.listeners import Listeners

TABLE = """
DROP TABLE IF EXISTS events;
CREATE TABLE events (id bigint GENERATED ALWAYS AS IDENTITY, body text);
"""
TRIGGER = """
CREATE OR REPLACE FUNCTION on_event() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM {call}; RETURN NULL; END $$;
CREATE TRIGGER on_event AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION on_event();
"""
CALLS = {  # the statement in the trigger
    "none": None,
    "notify": "pg_notify('channel_1', NEW.id::text)",
    "no_op": "octet_length(NEW.id::text)",
}


def insert_with_trigger(cluster: Cluster, seconds: float, *, clients: int, trigger: str,
                        settings: dict[str, object]) -> dict:
    """`clients` clients insert a row per transaction, and one listener receives what the trigger sends.

    trigger     one of CALLS
    settings    of the database, during the measurement
    """
    call = CALLS[trigger]
    cluster.psql(TABLE + (TRIGGER.format(call=call) if call else "") + "CHECKPOINT;", DBNAME)
    try:
        for name, value in settings.items():
            cluster.psql(f"ALTER DATABASE {DBNAME} SET {name} = {value}")
        with Listeners(cluster, 1, dbname=DBNAME) as held:
            load = pgbench(cluster, clients, *script_load("insert", seconds))
            expected = load["transactions"] if trigger == "notify" else 0
            heard = held.wait(expected, DRAIN_TIMEOUT_S)
    finally:
        for name in settings:
            cluster.psql(f"ALTER DATABASE {DBNAME} RESET {name}")
    if heard["notifications"] != expected or heard["closed"]:
        raise MeasureError(f"{heard['notifications']:,} of {expected:,} notifications were delivered")
    return {"tps": load["tps"], "latency_ms": load["latency_ms"], "transactions": load["transactions"],
            "drain_ms": heard["waited_us"] / 1000}
