"""NOTIFY and LISTEN where the hooks see few statements, or none; and delivery to the sending session itself."""

import psycopg
import pytest

from servers import SETTINGS, started
from support import hear, left_nothing, load, notify, one, reset
from wire import EXECUTE, SYNC, bind, call, kinds, parse, payloads

pytestmark = pytest.mark.seam


@pytest.fixture(scope="module")
def preparing():
    """A server that allows prepared transactions."""
    yield from started(preload=True, settings=SETTINGS | {"max_prepared_transactions": 4})


# ---- no statement is seen by the hooks ----

@pytest.fixture
def steps(cluster, connect):
    """Procedure steps(): three transactions that each notify c by an expression only."""
    connect(cluster).execute("""CREATE OR REPLACE PROCEDURE steps() LANGUAGE plpgsql AS $$
        DECLARE nothing text;
        BEGIN
            FOR i IN 1..3 LOOP
                IF i > 1 THEN COMMIT; END IF;
                nothing := pg_notify('c', i::text);
            END LOOP;
        END $$""")


@pytest.mark.parametrize("listens", [False, True], ids=["sender", "listener"])
@pytest.mark.parametrize("protocol", ["simple", "extended"])
def test_procedure_that_notifies_by_expressions(cluster, connect, wire, steps, protocol, listens):
    """Guards: transactions of a procedure that run only a PL/pgSQL expression do not count as idle: their notifications
    are sent, and arrive at the session itself before ReadyForQuery."""
    client, listener = wire(cluster), connect(cluster)
    listener.execute("LISTEN c")
    if listens:
        client.query("LISTEN c")
    for _ in range(3):
        if protocol == "simple":
            messages = client.query("CALL steps()")
        else:
            client.send(parse("CALL steps()"), bind(), EXECUTE, SYNC)
            messages = client.until_ready()
        assert "E" not in kinds(messages)
        assert payloads(messages) == ["1", "2", "3"] * listens
        assert hear(listener, 3) == ["1", "2", "3"]
    notify(listener, "c", "end")
    assert hear(listener, 1) == ["end"]


@pytest.mark.parametrize("function", ["herald.pg_notify", "pg_catalog.pg_notify"])
def test_fast_path_of_a_listener(cluster, connect, wire, function):
    """Guards: a notification of a listener by the fast path, of our function or the built-in, is sent to all listeners,
    and arrives at the session itself before ReadyForQuery."""
    client, listener = wire(cluster), connect(cluster)
    client.query("LISTEN c")
    listener.execute("LISTEN c")
    oid = one(listener, "SELECT %s::regproc::oid", function)
    for number in range(5):
        client.send(call(oid, "c", str(number)))
        messages = client.until_ready()
        assert kinds(messages) == "VAZ" and payloads(messages) == [str(number)]
        assert hear(listener, 1) == [str(number)]
    assert payloads(client.query("NOTIFY c, 'end'")) == ["end"]
    assert hear(listener, 1) == ["end"]


# ---- own notifications, before ReadyForQuery ----

def test_own_notifications_of_many(cluster, wire):
    """Guards: of many sessions that notify their own channels at once, and dispatch for each other, each receives its
    own notification before ReadyForQuery, and no other."""
    clients = [wire(cluster) for _ in range(8)]
    for number, client in enumerate(clients):
        client.query(f"LISTEN own_{number}")
    with load(cluster, "NOTIFY load, 'x';", clients=2):
        for count in range(2500):
            for number, client in enumerate(clients):
                client.send(("Q", f"NOTIFY own_{number}, '{number} {count}'\0".encode()))
            for number, client in enumerate(clients):
                messages = client.until_ready()
                assert kinds(messages) == "CAZ", f"round {count}"
                assert payloads(messages) == [f"{number} {count}"]


# ---- PREPARE TRANSACTION ----

@pytest.mark.parametrize("outcome", ["COMMIT", "ROLLBACK"])
def test_prepare_after_a_listen_rolled_back(preparing, connect, outcome):
    """Guards: a transaction that is prepared after its LISTENs were rolled back leaves none of them behind, and the
    session can listen, and receives, afterwards."""
    listener, sender = connect(preparing), connect(preparing)
    for count in (1, 200):
        rolled_back = ";".join(f"LISTEN lost_{number}" for number in range(count))
        listener.execute(f"BEGIN; SAVEPOINT s; {rolled_back}; ROLLBACK TO s; PREPARE TRANSACTION 'x'")
        sender.execute(f"{outcome} PREPARED 'x'")
        assert left_nothing(sender)
        kept = [f"kept_{number}" for number in range(3 * count)]
        listener.execute("BEGIN;" + "".join(f"LISTEN {channel}; SAVEPOINT s_{channel};" for channel in kept)
                         + "COMMIT")
        assert one(listener, "SELECT count(*) FROM pg_listening_channels()") == len(kept)
        assert one(sender, "SELECT channels FROM herald.listeners") == len(kept)
        notify(sender, "lost_0", "not heard")
        notify(sender, kept[-1], "heard")
        assert hear(listener, 1) == ["heard"]
        listener.execute("UNLISTEN *")
        assert left_nothing(sender)


def test_prepare_by_a_listener(preparing, connect):
    """Guards: what is sent while a listener prepares a transaction is delivered afterwards, without a query."""
    listener, sender = connect(preparing), connect(preparing)
    listener.execute("LISTEN c")
    for number in range(3):
        listener.execute("BEGIN")
        listener.execute("SELECT 1")
        notify(sender, "c", f"within {number}")
        listener.execute("PREPARE TRANSACTION 'x'")
        sender.execute("ROLLBACK PREPARED 'x'")
        notify(sender, "c", f"after {number}")
        assert hear(listener, 2) == [f"within {number}", f"after {number}"]


# ---- does the database have the extension? ----

@pytest.mark.parametrize("statement", ["SELECT pg_notify('c', 'x')", "NOTIFY c, 'x'"], ids=["function", "statement"])
@pytest.mark.parametrize("known", [False, True], ids=["first", "again"])
def test_look_up_fails(cluster, connect, statement, known):
    """Guards: the look-up of the extension waits for no lock of an administrator on catalogs, and leaves nothing behind:
    each statement notifies through pg_herald."""
    listener, sender, locker = connect(cluster), connect(cluster), connect(cluster)
    listener.execute("LISTEN c")
    if known:
        sender.execute(statement)
        assert hear(listener, 1) == ["x"]
    else:
        listener.execute("SELECT 1")
    before = one(listener, "SELECT notifications FROM herald.stats")
    sender.execute("SET statement_timeout = '10s'")
    locker.execute("CREATE FUNCTION announced() RETURNS integer LANGUAGE sql RETURN 1")
    locker.execute("DROP FUNCTION announced()")  # every session has to look again
    with locker.transaction():
        locker.execute("LOCK TABLE pg_extension, pg_depend, pg_foreign_server IN ACCESS EXCLUSIVE MODE")
        for _ in range(2):
            sender.execute(statement)
    reset(sender, "statement_timeout")
    for _ in range(3):
        sender.execute(statement)
    assert hear(listener, 5) == ["x"] * 5
    assert one(listener, "SELECT notifications FROM herald.stats") == before + 5


def test_default_privileges_taken_away(cluster, connect, database):
    """Guards: all users can use pg_herald, even where default privileges exclude functions: ordinary users notify
    through it, receive, and see the views; they cannot reset the counters."""
    owner, ordinary = connect(cluster, database), connect(cluster, database)
    owner.execute("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
    owner.execute("CREATE EXTENSION pg_herald")
    owner.execute("CREATE ROLE ordinary_user")
    try:
        ordinary.execute("SET SESSION AUTHORIZATION ordinary_user")
        before = one(ordinary, "SELECT notifications FROM herald.stats")
        ordinary.execute("LISTEN c")
        ordinary.execute("SELECT pg_notify('c', '1')")
        ordinary.execute("NOTIFY c, '2'")
        assert hear(ordinary, 2) == ["1", "2"]
        assert one(ordinary, "SELECT notifications FROM herald.stats") == before + 2
        assert one(ordinary, "SELECT pg_notification_queue_usage()") >= 0
        assert one(ordinary, "SELECT size FROM herald.queue") > 0
        assert ordinary.execute("SELECT channel, listeners FROM herald.channels").fetchall() == [("c", 1)]
        assert one(ordinary, "SELECT channels FROM herald.listeners") == 1
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            ordinary.execute("SELECT herald.reset_stats()")
    finally:
        ordinary.close()
        owner.execute("DROP ROLE ordinary_user")
