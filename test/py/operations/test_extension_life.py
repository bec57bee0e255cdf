"""The extension is created and dropped under load; databases are dropped, renamed and copied."""

import threading
from collections import Counter

import psycopg
import pytest

from faults import Doing
from support import hear, hear_until, left_nothing, notify, one, outcome, until

pytestmark = pytest.mark.seam

SWITCHES = 12
SENDING = [
    "SELECT pg_notify('c', '{}')", "NOTIFY c, '{}'", "EXECUTE send('{}')", "SELECT by_plpgsql('{}')",
    "DO $$ DECLARE nothing text; BEGIN nothing := pg_notify('c', '{}'); END $$", "SELECT inlined('{}')",
    "WITH sent AS MATERIALIZED (SELECT pg_notify('c', '{}')) SELECT count(*) FROM sent", "CALL steps('{}')",
]
FUNCTIONS = """
    CREATE FUNCTION by_plpgsql(text) RETURNS void LANGUAGE plpgsql AS
        $$ BEGIN PERFORM pg_notify('c', $1); END $$;
    CREATE FUNCTION inlined(text) RETURNS void LANGUAGE sql AS $$ SELECT pg_notify('c', $1) $$;
    CREATE PROCEDURE steps(text) LANGUAGE plpgsql AS
        $$ BEGIN COMMIT; PERFORM pg_notify('c', $1); END $$"""


def test_create_and_drop_under_load(cluster, database, connect):
    """Guards: while the extension is created and dropped, no sender sees an error, and each listener, whenever it
    began, receives each notification from then on once."""
    ddl, busy = connect(cluster, database), connect(cluster, database)
    early = [connect(cluster, database) for _ in range(3)]
    senders = [connect(cluster, database) for _ in range(4)]
    ddl.execute(FUNCTIONS)
    for listener in (*early, busy):
        listener.execute("LISTEN c")
    sent: Counter[str] = Counter()
    counts = [0] * len(senders)
    errors = []
    done = threading.Event()

    def send(number: int) -> None:
        senders[number].execute("SET plan_cache_mode = force_generic_plan;"
                                "PREPARE send(text) AS SELECT pg_notify('c', $1)")
        count = 0
        while not done.is_set() and not errors:
            try:
                senders[number].execute(SENDING[count % len(SENDING)].format(f"{number} {count}"))
            except psycopg.Error as error:
                errors.append(error)
            sent[f"{number} {count}"] += 1
            count += 1
            counts[number] = count

    threads = [threading.Thread(target=send, args=(number,)) for number in range(len(senders))]
    for thread in threads:
        thread.start()
    late, begun = [], []
    try:
        for switch in range(SWITCHES):
            ddl.execute("CREATE EXTENSION pg_herald" if switch % 2 == 0 else "DROP EXTENSION pg_herald")
            late.append(connect(cluster, database))
            late[-1].execute("LISTEN c")
            begun.append(list(counts))
            busy.execute("BEGIN; SELECT 1")
            reached = len(sent)
            until(lambda: errors or len(sent) > reached + 100, "senders go on")
            busy.execute("COMMIT")
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert errors == []
    # One end through each queue: natively, then by pg_herald.
    for end in ("end of the first", "end of the second"):
        for name in ("by the server", "by pg_herald"):
            ddl.execute(f"SET herald.enabled = {name == 'by pg_herald'}")
            notify(ddl, "c", f"{end} {name}")
        ddl.execute("CREATE EXTENSION IF NOT EXISTS pg_herald")
    for listener in (*early, busy, *late):
        heard = [word for word in hear_until_all(listener) if not word.startswith("end")]
        assert len(heard) == len(set(heard)), "something came twice"
        if listener not in late:
            assert Counter(heard) == sent
        else:
            missing = Counter(sent) - Counter(heard)
            for number, count in enumerate(begun[late.index(listener)]):
                # It may miss what was sent before its LISTEN returned, but nothing later. (Until then it may receive
                # from one queue and not from the other.) The notification being sent then is not counted yet.
                assert [word for word in missing if word.startswith(f"{number} ") and int(word.split()[1]) > count] == []


def hear_until_all(listener: psycopg.Connection) -> list[str]:
    """The payloads that a listener receives until both ends of the second kind have arrived."""
    heard = hear_until(listener, "end of the second by pg_herald")
    if "end of the second by the server" not in heard:
        heard += hear_until(listener, "end of the second by the server")
    return heard


RUNNING = {
    "plan": "SELECT gate(i), pg_notify('c', i::text) FROM generate_series(1, 3) i",
    "plpgsql": "DO $$ BEGIN PERFORM gate(2); FOR i IN 1..3 LOOP PERFORM pg_notify('c', i::text); END LOOP;"
               " END $$",
    "expression": "DO $$ DECLARE nothing text; BEGIN FOR i IN 1..3 LOOP nothing := pg_notify('c', i::text);"
                  " PERFORM gate(i); END LOOP; END $$",
    "sql function": "SELECT by_sql()",
    "sql function for each row": "SELECT gate(i), by_sql_each(i) FROM generate_series(1, 3) i",
}
GATES = """
    CREATE FUNCTION gate(i integer) RETURNS integer LANGUAGE plpgsql AS $$
        BEGIN
            IF i = 2 THEN
                PERFORM pg_advisory_lock(1);
                PERFORM pg_advisory_unlock(1);
            END IF;
            RETURN i;
        END $$;
    CREATE FUNCTION by_sql() RETURNS bigint LANGUAGE sql AS $$
        SELECT gate(2);
        SELECT count(pg_notify('c', i::text)) FROM generate_series(1, 3) i $$;
    CREATE FUNCTION by_sql_each(i integer) RETURNS SETOF integer LANGUAGE sql VOLATILE AS $$
        SELECT pg_notify('c', i::text);
        SELECT i $$"""


@pytest.mark.parametrize("running", RUNNING)
def test_drop_while_a_statement_runs(cluster, database, connect, running):
    """Guards: a statement that began before DROP EXTENSION, and notifies after it, succeeds."""
    ddl, sender, listener, gate = (connect(cluster, database) for _ in range(4))
    ddl.execute("CREATE EXTENSION pg_herald")
    ddl.execute(GATES)
    listener.execute("LISTEN c")
    for _ in range(2):
        gate.execute("SELECT pg_advisory_lock(1)")
        results = []
        sending = threading.Thread(target=lambda: results.append(outcome(sender, RUNNING[running])))
        sending.start()
        until(lambda: one(ddl, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"),
              "the sender waits at the gate")
        ddl.execute("DROP EXTENSION pg_herald")
        gate.execute("SELECT pg_advisory_unlock(1)")
        sending.join()
        assert not isinstance(results[0], str), results[0]
        assert sorted(hear(listener, 3)) == ["1", "2", "3"]
        ddl.execute("CREATE EXTENSION pg_herald")


@pytest.mark.parametrize("call", ["SELECT herald.position()", "SELECT * FROM herald.read('c', NULL)",
                                  "SELECT * FROM herald.read(ARRAY['c', 'd'], NULL)", "SELECT herald.listen('c')",
                                  "SELECT pg_notify('c', '')", "BEGIN; LISTEN c; SELECT herald.position(); COMMIT"])
def test_drop_commits_during_a_call(cluster, database, connect, call):
    """Guards: a function of the extension that is running when its DROP EXTENSION commits finds no table or function that is
    gone: it succeeds."""
    ddl, watcher, session = (connect(cluster, database) for _ in range(3))
    ddl.execute("CREATE EXTENSION pg_herald")
    ddl.execute("BEGIN; DROP EXTENSION pg_herald")
    doing = Doing(session, call)
    until(lambda: not doing.runs() or one(watcher, "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted",
                                          session.info.backend_pid), "it waits for the DROP EXTENSION, or has ended")
    ddl.execute("COMMIT")
    assert doing.end() is None


def test_schema_that_was_first_is_dropped(cluster, database, connect):
    """Guards: the extension is in no schema of the user's: dropping the first one on the path does not affect it."""
    session = connect(cluster, database)
    session.execute("CREATE SCHEMA app; SET search_path = app; CREATE EXTENSION pg_herald")
    session.execute("DROP SCHEMA app CASCADE")
    assert one(session, "SELECT count(*) FROM pg_extension WHERE extname = 'pg_herald'") == 1


def test_no_schema_on_the_path(cluster, database, connect):
    """Guards: the extension can be created by a session whose search_path is empty."""
    session = connect(cluster, database)
    session.execute("SET search_path = ''; CREATE EXTENSION pg_herald")
    session.execute("LISTEN c; SELECT pg_notify('c', 'x')")
    assert hear(session, 1) == ["x"]


# ---- databases ----

def test_database_of_the_same_name(cluster, connect):
    """Guards: if a database is dropped under its listeners, with notifications pending, nothing is left behind, and a
    new database of the same name receives none of them."""
    watcher = connect(cluster)
    for number in range(4):
        watcher.execute("CREATE DATABASE again")
        cluster.create_herald("again")
        idle, busy, sender = (connect(cluster, "again") for _ in range(3))
        for listener in (idle, busy):
            listener.execute("LISTEN c")
        assert hear(idle, 1, 0) == []
        busy.execute("BEGIN; SELECT 1")
        notify(sender, "c", f"of number {number}")
        assert hear(idle, 1) == [f"of number {number}"]
        if number % 2:
            watcher.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
                            " WHERE datname = 'again'")
            watcher.execute("DROP DATABASE again")
        else:
            watcher.execute("DROP DATABASE again WITH (FORCE)")
        assert left_nothing(watcher)
        for gone in (idle, busy, sender):
            with pytest.raises(psycopg.OperationalError):
                gone.execute("SELECT 1")


def test_renamed_and_copied_databases(cluster, connect):
    """Guards: a renamed database, and one copied from it as a template, have the extension, and work."""
    watcher = connect(cluster)
    watcher.execute("CREATE DATABASE before")
    try:
        cluster.create_herald("before")
        watcher.execute("ALTER DATABASE before RENAME TO after")
        watcher.execute("CREATE DATABASE copied TEMPLATE after")
        sessions = [(connect(cluster, name), connect(cluster, name)) for name in ("after", "copied")]
        for listener, _ in sessions:
            listener.execute("LISTEN c")
        before = one(watcher, "SELECT notifications FROM herald.stats")
        for listener, sender in sessions:
            sender.execute("SELECT pg_notify('c', current_database())")
            sender.execute("NOTIFY c, 'end'")
            assert hear_until(listener, "end") == [one(sender, "SELECT current_database()")]
        assert one(watcher, "SELECT notifications FROM herald.stats") - before == 4
        assert watcher.execute("SELECT datname FROM herald.listeners ORDER BY 1").fetchall() == \
            [("after",), ("copied",)]
    finally:
        for name in ("before", "after", "copied"):
            watcher.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
