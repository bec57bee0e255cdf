"""Listeners and senders in transactions and procedures, and behind poolers."""

import threading
from contextlib import suppress

import psycopg
import pytest

from support import hear, hear_until, left_nothing, notify, one, stopped, until, watchdog_stopped

pytestmark = pytest.mark.seam


def test_listener_in_a_failed_block(cluster, connect):
    """Guards: a failed transaction block holds notifications back until ROLLBACK, and no longer."""
    listener, sender = connect(cluster), connect(cluster)
    listener.execute("LISTEN c")
    for number in range(5):
        listener.execute("BEGIN")
        with pytest.raises(psycopg.errors.DivisionByZero):
            listener.execute("SELECT 1 / 0")
        notify(sender, "c", f"within {number}")
        assert hear(listener, 1, 0.05) == []
        listener.execute("ROLLBACK")
        notify(sender, "c", f"after {number}")
        assert hear(listener, 2) == [f"within {number}", f"after {number}"]


FAILURES = {
    "in a statement": (["BEGIN", "SELECT 1 / 0"], "ROLLBACK"),
    "before a statement is known": (["BEGIN", "SELEC 1"], "ROLLBACK"),
    "ended by COMMIT": (["BEGIN", "SELECT 1 / 0"], "COMMIT"),
    "in a subtransaction": (["BEGIN", "SAVEPOINT s", "SELECT 1 / 0"], "ROLLBACK TO s; COMMIT"),
    "in a subtransaction, all rolled back": (["BEGIN", "SAVEPOINT s", "SELECT 1 / 0"], "ROLLBACK"),
    "in a chain": (["BEGIN", "COMMIT AND CHAIN", "SELECT 1 / 0"], "ROLLBACK"),
    "in a chain, before a statement": (["BEGIN", "COMMIT AND CHAIN", "SELEC 1"], "ROLLBACK"),
    "idle in a chain": (["BEGIN", "COMMIT AND CHAIN"], "COMMIT"),
    "idle in a chain after ROLLBACK": (["BEGIN", "ROLLBACK AND CHAIN"], "COMMIT"),
    "ended by a chain": (["BEGIN", "SELECT 1 / 0"], "ROLLBACK AND CHAIN; SELECT 1; COMMIT"),
    "failed again": (["BEGIN", "SELECT 1 / 0", "SELECT 1"], "ROLLBACK"),
}


@pytest.mark.parametrize("statements, end", FAILURES.values(), ids=FAILURES)
def test_failed_block_takes_no_turn(cluster, connect, statements, end):
    """Guards: listeners whose block has failed are given no turn, as they could not use it, so that no listener waits
    for the watchdog, which is stopped. They receive everything once the block ends."""
    failed = [connect(cluster) for _ in range(8)]
    listener, sender = connect(cluster), connect(cluster)
    for connection in failed:
        connection.execute("LISTEN c")
        for statement in statements:
            with suppress(psycopg.Error):
                connection.execute(statement)
    listener.execute("LISTEN c")
    with watchdog_stopped(cluster):
        for number in range(20):
            notify(sender, "c", str(number))
            assert hear(listener, 1) == [str(number)]
        for connection in failed:
            connection.execute(end)
            assert hear(connection, 20) == [str(number) for number in range(20)]


@pytest.mark.parametrize("failure", [
    "BEGIN; INSERT INTO parent DEFAULT VALUES; SET CONSTRAINTS ALL DEFERRED; INSERT INTO child VALUES (0); COMMIT",
    "SELECT 1; SELECT 1 / 0",
    "BEGIN; SELECT 1; ROLLBACK; SELECT 1 / 0",
    "BEGIN; SELECT 1; ROLLBACK AND CHAIN; ROLLBACK",
    "CALL pg_temp.fails()",
], ids=["COMMIT fails", "implicit block", "after a block", "chain", "procedure"])
def test_failure_that_leaves_no_block(cluster, connect, failure):
    """Guards: after a failure that leaves no block, a listener still receives notifications, without waiting for the
    watchdog."""
    listener, sender = connect(cluster), connect(cluster)
    listener.execute("""
        CREATE TEMPORARY TABLE parent (id integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY);
        CREATE TEMPORARY TABLE child (id integer REFERENCES parent DEFERRABLE);
        CREATE OR REPLACE PROCEDURE pg_temp.fails() LANGUAGE plpgsql AS
        $$BEGIN COMMIT; PERFORM 1 / 0; END$$
    """)
    listener.execute("LISTEN c")
    with watchdog_stopped(cluster):
        for number in range(5):
            with suppress(psycopg.Error):
                listener.execute(failure)
            assert listener.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
            notify(sender, "c", str(number))
            assert hear(listener, 1) == [str(number)]


def test_listener_in_a_chain(cluster, connect):
    """Guards: between the transactions of a chain nothing is delivered; at its end everything is, in order."""
    listener, sender = connect(cluster), connect(cluster)
    listener.execute("LISTEN c")
    listener.execute("BEGIN")
    for number in range(5):
        notify(sender, "c", str(number))
        listener.execute("COMMIT AND CHAIN")
        assert hear(listener, 1, 0.02) == []
    listener.execute("COMMIT")
    assert hear(listener, 5) == [str(number) for number in range(5)]


def test_listen_in_an_aborted_subtransaction(cluster, connect):
    """Guards: a LISTEN that was rolled back leaves nothing behind in the session or in shared memory."""
    listener, sender = connect(cluster), connect(cluster)
    with listener.transaction():
        with listener.transaction() as savepoint:
            listener.execute("LISTEN c")
            raise psycopg.Rollback(savepoint)
    assert left_nothing(sender)
    with listener.transaction():
        listener.execute("LISTEN d")
        with listener.transaction() as savepoint:
            listener.execute("LISTEN c")
            listener.execute("UNLISTEN d")
            raise psycopg.Rollback(savepoint)
    assert sender.execute("SELECT channel FROM herald.channels").fetchall() == [("d",)]
    notify(sender, "c", "not heard")
    notify(sender, "d", "heard")
    assert hear(listener, 1) == ["heard"]


def test_discard_all_as_poolers_do(cluster, connect):
    """Guards: after DISCARD ALL a session receives nothing, has no row, and can listen again; many times."""
    pooled, sender = connect(cluster), connect(cluster)
    for number in range(20):
        pooled.execute("LISTEN c")
        pooled.execute(f"LISTEN channel_{number}")
        notify(sender, "c", f"{number}")
        assert hear(pooled, 1) == [f"{number}"]
        pooled.execute("DISCARD ALL")
        assert left_nothing(sender)
        notify(sender, "c", "not heard")
    pooled.execute("LISTEN c")
    notify(sender, "c", "end")
    assert hear_until(pooled, "end") == []


def test_procedure_with_commits(cluster, connect):
    """Guards: other sessions receive each transaction of a procedure when it commits, not at the procedure's end."""
    listener, sender, gate = connect(cluster), connect(cluster), connect(cluster)
    listener.execute("LISTEN c")
    sender.execute("""CREATE OR REPLACE PROCEDURE steps() LANGUAGE plpgsql AS $$
        BEGIN
            PERFORM pg_notify('c', 'first');
            COMMIT;
            PERFORM pg_advisory_lock(1);
            PERFORM pg_advisory_unlock(1);
            PERFORM pg_notify('c', 'lost');
            ROLLBACK;
            NOTIFY c, 'last';
        END $$""")
    gate.execute("SELECT pg_advisory_lock(1)")
    running = threading.Thread(target=sender.execute, args=("CALL steps()",))
    running.start()
    try:
        assert hear(listener, 1) == ["first"]
        assert hear(listener, 1, 0.05) == []
    finally:
        gate.execute("SELECT pg_advisory_unlock(1)")
        running.join()
    assert hear(listener, 1) == ["last"]
    notify(sender, "c", "end")
    assert hear_until(listener, "end") == []


def test_order_across_senders(cluster, connect):
    """Guards: if a session has seen a commit before it notifies, every listener receives that commit's notification
    first."""
    listeners = [connect(cluster) for _ in range(4)]
    first, second = connect(cluster), connect(cluster)
    first.execute("CREATE TABLE IF NOT EXISTS step (number integer)")
    first.execute("TRUNCATE step")
    for listener in listeners:
        listener.execute("LISTEN c")

    def answer() -> None:
        for number in range(200):
            until(lambda: one(second, "SELECT count(*) FROM step") > number, f"step {number}")
            notify(second, "c", f"{number} answer")

    answering = threading.Thread(target=answer)
    answering.start()
    for number in range(200):
        with first.transaction():
            first.execute("INSERT INTO step VALUES (%s)", (number,))
            first.execute("SELECT pg_notify('c', %s)", (f"{number} question",))
    answering.join()
    heard = [hear(listener, 400) for listener in listeners]
    assert all(len(one_heard) == 400 for one_heard in heard)
    for number in range(200):
        assert heard[0].index(f"{number} question") < heard[0].index(f"{number} answer")
    assert all(one_heard == heard[0] for one_heard in heard)


def test_many_listeners_and_senders(cluster, connect):
    """Guards: if all sessions send to each other, all receive the same, in one order, and the statistics add up."""
    clients = [connect(cluster) for _ in range(30)]
    watcher = connect(cluster)
    for client in clients:
        client.execute("LISTEN c")
    watcher.execute("SELECT herald.reset_stats()")

    def send(number: int) -> None:
        for repeat in range(20):
            clients[number].execute("SELECT pg_notify('c', %s), pg_notify('c', %s)",
                                    (f"{number} {repeat}", f"{number} {repeat}"))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    heard = [hear(client, 600) for client in clients]
    assert sorted(heard[0]) == sorted(f"{number} {repeat}" for number in range(30) for repeat in range(20))
    assert all(one_heard == heard[0] for one_heard in heard)

    # A listener updates its counters after delivery, when its client may already have everything.
    listeners = "SELECT count(*), sum(delivered), max(channels), sum(pending_bytes) FROM herald.listeners"
    until(lambda: watcher.execute(listeners).fetchone() == (30, 18000, 1, 0), "all listeners have counted")
    assert watcher.execute("SELECT notifications, batches, duplicates_removed, delivered, overruns"
                           " FROM herald.stats").fetchone() == (600, 600, 600, 18000, 0)
    assert watcher.execute("SELECT channel, listeners FROM herald.channels").fetchall() == [("c", 30)]
    assert one(watcher, "SELECT signals_sent + signals_saved > 0 FROM herald.stats")
