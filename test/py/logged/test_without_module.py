"""A physical standby that does not load the module: it replays whatever is done with the extension, and is a stock server."""

import pytest

from following import has_replayed
from harness.standby import Standby
from owner import set_channels, settings_of
from servers import SETTINGS, started
from support import hear, notify, one, outcome, until

NOT_LOADED = "55000: pg_herald must be loaded via shared_preload_libraries"
TABLE = """
    CREATE TABLE item (id integer);
    CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_notify('c', 'trigger'); RETURN NEW; END $$;
    CREATE TRIGGER tell AFTER INSERT ON item FOR EACH ROW EXECUTE FUNCTION tell()"""
PREPARE = "PREPARE tell AS SELECT pg_notify('c', 'prepared')"
STATEMENTS = [
    "LISTEN c", PREPARE, "EXECUTE tell", "SELECT pg_notify('c', 'select')", "NOTIFY c, 'statement'", "INSERT INTO item VALUES (1)",
    "SELECT * FROM pg_listening_channels()", "SELECT pg_notification_queue_usage()",
    "BEGIN; LISTEN d; NOTIFY d, 'own'; ROLLBACK", "UNLISTEN d", "CREATE TEMP TABLE gone (id integer)", "DISCARD TEMP",
]
HEARD = ["prepared", "select", "statement", "trigger"]


@pytest.fixture(scope="module")
def primary():
    """A server with the extension in two databases, one of which has settings."""
    for cluster in started(preload=True, settings=SETTINGS | {"wal_retrieve_retry_interval": "100ms"}):
        cluster.psql("CREATE DATABASE other")
        cluster.create_herald("other")
        cluster.psql(TABLE + "; SELECT herald.set_channel('c', true)")
        yield cluster


@pytest.fixture
def standby(primary):
    """A standby of it that loads no module."""
    standby = Standby(primary)
    del standby.settings["shared_preload_libraries"]
    with standby:
        yield standby
        assert not standby.damage(), standby.damage()


def everything(primary, connect) -> None:
    """Whatever can be done with the extension, on the primary."""
    session = connect(primary)
    listener = connect(primary)
    listener.execute("LISTEN c")
    set_channels(session, c=True, job_prefix_=True, job_debug=False)
    for number in range(50):
        notify(session, "c", f"{number} {'x' * 5000}")
    session.execute("BEGIN; SELECT herald.set_channel('late', true); NOTIFY late, 'x'; SAVEPOINT s; SELECT herald.set_channel('never', true);"
                    " ROLLBACK TO s; COMMIT")
    session.execute("ALTER SERVER pg_herald OPTIONS (SET logged '{c}', SET unlogged '{job_debug}')")
    session.execute("SELECT herald.position(), herald.listen('c', herald.position())")
    other = connect(primary, "other")
    other.execute("SELECT herald.set_channel('c', true)")
    other.execute("DROP SERVER pg_herald")
    other.execute("SELECT herald.set_channel('d', true)")
    for table in ("pg_foreign_server", "pg_extension"):
        other.execute(f"VACUUM FULL {table}")
    other.execute("DROP EXTENSION pg_herald CASCADE; CREATE EXTENSION pg_herald")
    other.close()
    session.execute("CREATE DATABASE copy TEMPLATE other STRATEGY wal_log")
    session.execute("DROP DATABASE copy")
    session.execute("CHECKPOINT")


def test_replays_and_is_promoted(primary, standby, stock, connect):
    """Guards: it replays all that, is a hot standby as a stock server, and, promoted, does what a stock server does."""
    early = connect(standby)
    everything(primary, connect)
    until(lambda: has_replayed(standby), "it has replayed everything")
    assert outcome(early, "LISTEN c") == "25006: cannot execute LISTEN during recovery"
    assert outcome(early, "SELECT pg_notify('c', 'x')") == "25006: cannot execute NOTIFY during recovery"
    assert one(early, "SELECT srvoptions FROM pg_foreign_server") == ["logged={c}", "unlogged={job_debug}"]
    assert settings_of(early) == {"c": True, "job_debug": False}
    early.execute("SELECT pg_promote()")
    stock.psql(TABLE)
    try:
        session = connect(stock)
        expected = [outcome(session, sql) for sql in STATEMENTS]
        assert hear(session, len(HEARD)) == HEARD
    finally:
        stock.psql("DROP TABLE item; DROP FUNCTION tell")
    for session in (early, connect(standby)):
        assert [outcome(session, sql) for sql in STATEMENTS] == expected
        assert hear(session, len(HEARD)) == HEARD
        session.execute("UNLISTEN *")
    assert "pg_herald" not in standby.log()


def test_leaves_no_trouble(primary, standby, connect):
    """Guards: once promoted, what is ours says why it does not work, and all of it can be dumped and removed there."""
    session = connect(standby)
    until(lambda: has_replayed(standby), "it has replayed everything")
    session.execute("SELECT pg_promote()")
    for sql in ("SELECT herald.set_channel('d', true)", "SELECT herald.position()", "SELECT herald.pg_notify('c', 'x')",
                "ALTER SERVER pg_herald OPTIONS (SET logged '{d}')"):
        assert outcome(session, sql) == NOT_LOADED, sql
    assert "CREATE SERVER pg_herald FOREIGN DATA WRAPPER pg_herald OPTIONS" in standby.client("pg_dump", "postgres")
    assert str(outcome(session, "DROP EXTENSION pg_herald")).startswith("2BP01: ")
    session.execute("DROP SERVER pg_herald")
    session.execute("DROP EXTENSION pg_herald")
    session.execute("LISTEN c; INSERT INTO item VALUES (1)")
    assert hear(session, 1) == ["trigger"]
    assert one(session, "SELECT count(*) FROM pg_proc WHERE proname LIKE '%herald%'") == 0
