"""Backends that exit, in every way and at any moment."""

import os
import signal
import threading

import psycopg
import pytest

from faults import pid_of
from support import (
    hear, hear_until, left_nothing, notify, one, state_of, until, until_crashed, wait_event, works_from_the_start,
)

pytestmark = pytest.mark.seam


def test_normal_exit(cluster, connect):
    """Guards: a listener that exits leaves no row and no channel, and keeps no session waiting."""
    watcher = connect(cluster)
    listeners = [connect(cluster) for _ in range(10)]
    for number, listener in enumerate(listeners):
        listener.execute("LISTEN c")
        listener.execute(f"LISTEN own_{number}")
    assert one(watcher, "SELECT count(*) FROM herald.channels") == 11
    for listener in listeners[:9]:
        listener.close()
    until(lambda: one(watcher, "SELECT count(*) FROM herald.listeners") == 1, "9 are gone")
    assert watcher.execute("SELECT channel, listeners FROM herald.channels ORDER BY 1"
                           ).fetchall() == [("c", 1), ("own_9", 1)]
    notify(watcher, "c", "still heard")
    assert hear(listeners[9], 1) == ["still heard"]
    listeners[9].close()
    until(lambda: left_nothing(watcher), "nothing is left")


@pytest.mark.parametrize("doing", ["idle", "in a block", "in a failed block", "in a statement"])
def test_terminated(cluster, connect, doing):
    """Guards: a listener that is terminated with something pending leaves nothing, and others go on receiving."""
    watcher, victim, listener = connect(cluster), connect(cluster), connect(cluster)
    victim.execute("LISTEN c")
    listener.execute("LISTEN c")
    if doing != "idle":
        victim.execute("BEGIN")
        victim.execute("LISTEN d")
        victim.execute("NOTIFY c, 'of the victim'")
    if doing == "in a failed block":
        with pytest.raises(psycopg.errors.DivisionByZero):
            victim.execute("SELECT 1 / 0")
    running = None
    if doing == "in a statement":
        running = threading.Thread(target=lambda: pytest.raises(psycopg.Error, victim.execute, "SELECT pg_sleep(60)"))
        running.start()
        until(lambda: wait_event(watcher, pid_of(victim)) == "PgSleep", "the statement runs")
    notify(watcher, "c", "1")
    assert one(watcher, "SELECT pg_terminate_backend(%s, 20000)", pid_of(victim))
    if running:
        running.join()
    notify(watcher, "c", "2")
    assert hear(listener, 2) == ["1", "2"]
    assert one(watcher, "SELECT count(*) FROM herald.listeners") == 1
    assert watcher.execute("SELECT channel, listeners FROM herald.channels").fetchall() == [("c", 1)]
    until(lambda: one(watcher, "SELECT used FROM herald.queue") == 0, "the listener is idle again")


def test_terminated_with_a_turn(cluster, connect):
    """Guards: listeners that are given all the turns, and exit without using them, block no other session."""
    watcher, listener = connect(cluster), connect(cluster)
    for _ in range(5):
        victims = [connect(cluster) for _ in range(4)]
        for victim in victims:
            victim.execute("LISTEN c")
        pids = [pid_of(victim) for victim in victims]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            notify(watcher, "c", "for the victims")
            until(lambda: "signalled" in [state_of(watcher, pid) for pid in pids], "one has a turn")
            for pid in pids:
                watcher.execute("SELECT pg_terminate_backend(%s)", (pid,))
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        until(lambda: left_nothing(watcher), "the victims are gone")
        listener.execute("LISTEN c")
        notify(watcher, "c", "heard")
        assert hear(listener, 1) == ["heard"]
        listener.execute("UNLISTEN c")


def test_sender_terminated_in_a_transaction(cluster, connect):
    """Guards: pending notifications of a terminated sender are discarded."""
    listener, victim, watcher = connect(cluster), connect(cluster), connect(cluster)
    listener.execute("LISTEN c")
    victim.execute("BEGIN")
    notify(victim, "c", *[f"lost {number}" for number in range(100)])
    assert one(watcher, "SELECT pg_terminate_backend(%s, 20000)", pid_of(victim))
    notify(watcher, "c", "heard")
    assert hear(listener, 1) == ["heard"]


def test_terminated_at_random(cluster, connect):
    """Guards: while listeners and senders are terminated at any moment, the remaining listeners receive all of the
    remaining senders' notifications."""
    watcher, listener, sender = connect(cluster), connect(cluster), connect(cluster)
    listener.execute("LISTEN c")
    done = threading.Event()

    def come_and_be_ended() -> None:
        while not done.is_set():
            try:
                with psycopg.connect(host=str(cluster.socket_folder), port=cluster.port, user="postgres",
                                     dbname="postgres", autocommit=True) as victim:
                    victim.execute("LISTEN c")
                    victim.execute("LISTEN d")
                    for number in range(50):
                        victim.execute("BEGIN; NOTIFY c, 'noise'; NOTIFY d, 'noise'; COMMIT")
                    victim.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            except psycopg.OperationalError:
                pass

    threads = [threading.Thread(target=come_and_be_ended) for _ in range(6)]
    for thread in threads:
        thread.start()
    try:
        for number in range(500):
            notify(sender, "c", f"kept {number}")
            if number % 5 == 0:
                watcher.execute("SELECT pg_terminate_backend(pid) FROM herald.listeners WHERE pid <> %s LIMIT 1",
                                (pid_of(listener),))
    finally:
        done.set()
        for thread in threads:
            thread.join()
    notify(sender, "c", "end")
    heard = hear_until(listener, "end")
    assert [word for word in heard if word.startswith("kept")] == [f"kept {number}" for number in range(500)]
    until(lambda: one(watcher, "SELECT count(*) FROM herald.listeners") == 1, "only one is left")
    assert watcher.execute("SELECT channel, listeners FROM herald.channels").fetchall() == [("c", 1)]


def test_killed_client(cluster, connect):
    """Guards: after an idle listener was killed the server restarts, nothing of the queue survives, and all works.
    (faults/ covers every other place at which a backend can be killed, and restarts under load.)"""
    watcher, victim, busy, sender = (connect(cluster) for _ in range(4))
    victim.execute("LISTEN c")
    busy.execute("LISTEN c")
    busy.execute("BEGIN")
    busy.execute("SELECT 1")
    notify(watcher, "c", *map(str, range(20)))
    sender.execute("BEGIN")
    notify(sender, "c", "never sent")
    os.kill(pid_of(victim), signal.SIGKILL)
    until_crashed(watcher)
    works_from_the_start(cluster, connect)
