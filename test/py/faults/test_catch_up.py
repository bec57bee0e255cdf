"""Sessions that are far behind with invalidations, and the holder of the turn to catch up: stopped, ended, or gone at
the worst moment.

The others are caught up all the same, and none of them is reset; what a session leaves behind reaches no other session.
"""

import os
import signal
import time
from contextlib import ExitStack, suppress

import psycopg
import pytest

from cache_scene import CHANGE, FAR_BEHIND, RING, ROWS, CacheScene
from faults import Doing, pid_of
from support import hear, notify, one, stopped, until, until_gone

STOPPED_S = float(os.environ.get("HERALD_STOPPED_S", "0.2"))
FLOOD = FAR_BEHIND + 1000  # up to the first check of the readers, not up to the second
TO_NEXT_CHECK = RING // 16

pytestmark = pytest.mark.timeout(60 + 3 * STOPPED_S)


def rescued(scene: CacheScene) -> int:
    """Number of turns that were taken back."""
    return one(scene.watcher, "SELECT turns_rescued FROM herald.cache_stats")


def holds_the_turn(scene: CacheScene) -> psycopg.Connection:
    """A session that is held with the turn to catch up, while all others are far behind as well."""
    victim = scene.reader()
    scene.points.arm("catch-up", "wait", pid_of(victim))
    scene.fall_behind()
    assert scene.points.waiter("catch-up") == pid_of(victim)
    return victim


# ---- the session that has the turn ----

def test_holder_stands_still(caches):
    """Guards: while a session is held with the turn, the next check of an inserter takes care of the others; only that
    session is reset, if any."""
    before = rescued(caches)
    victim = holds_the_turn(caches)
    caches.flood(TO_NEXT_CHECK)
    caches.catch_up(caches.readers)
    assert rescued(caches) > before
    end = time.monotonic() + STOPPED_S
    while True:
        caches.goes_on()
        if time.monotonic() > end:
            break
    assert caches.points.release("catch-up") == 1
    caches.catch_up([victim])
    assert caches.kept(victim) == 0 and caches.kept(victim) == ROWS and caches.resets(victim) <= 1
    caches.goes_on(also=[victim])


@pytest.mark.parametrize("laps", [0, 1])
def test_holder_is_stopped(caches, laps):
    """Guards: the same if the session does not run at all (SIGSTOP), and if it is overrun; it is no longer skipped once
    it has read something."""
    before = rescued(caches)
    victim = caches.reader()
    with stopped(pid_of(victim)):
        caches.fall_behind()
        caches.flood(TO_NEXT_CHECK)
        caches.catch_up(caches.readers)
        assert rescued(caches) > before
        for _ in range(2 * laps):
            caches.fall_behind()
            caches.catch_up(caches.readers)
        if laps:
            assert caches.behind(victim) is None
    caches.catch_up([victim])
    assert caches.kept(victim) == (0 if laps else ROWS) and caches.kept(victim) == ROWS
    assert caches.resets(victim) == laps
    assert [caches.resets(reader) for reader in caches.readers] == [0, 0, 0]
    caches.goes_on(also=[victim])


def test_all_but_one_are_stopped(caches):
    """Guards: one turn after another is taken back, until a session gets it that runs."""
    slowest = caches.readers[:2] + [caches.reader()]
    with ExitStack() as stack:
        for reader in slowest:
            stack.enter_context(stopped(pid_of(reader)))
        caches.flood(10)
        assert caches.kept(caches.readers[2]) == ROWS
        caches.flood(FLOOD)
        for _ in slowest:
            caches.flood(TO_NEXT_CHECK)
        caches.catch_up([caches.readers[2]])
        assert all(caches.behind(reader) >= FAR_BEHIND for reader in slowest)
    caches.catch_up(slowest)
    caches.goes_on(also=slowest)


def test_hands_the_turn_on(caches):
    """Guards: each session that has caught up hands the turn on, to all that are far behind, without another message."""
    readers = [*caches.readers, caches.reader(), caches.reader()]
    counted = one(caches.watcher, "SELECT catch_ups FROM herald.cache_stats")
    with ExitStack() as stack:
        for reader in readers:
            stack.enter_context(stopped(pid_of(reader)))
        caches.flood(FLOOD)
    caches.catch_up(readers)
    assert one(caches.watcher, "SELECT catch_ups FROM herald.cache_stats") == counted + len(readers)
    caches.goes_on(also=readers)


def test_nothing_is_sent(caches):
    """Guards: while a turn is not used and nothing is sent, no idle session is caught up, and none needs to be; no session
    finds anything stale because of that; with more messages all go on."""
    victim = holds_the_turn(caches)
    caches.writer.execute(CHANGE)
    assert [caches.behind(reader) >= FAR_BEHIND for reader in caches.readers] == [True] * 3
    assert caches.kept(caches.readers[0]) == ROWS - 1
    caches.flood(RING + 64)
    for reader in caches.readers:
        assert caches.kept(reader) in (0, ROWS - 1, ROWS) and caches.kept(reader) == ROWS
        assert caches.resets(reader) <= 1
    caches.writer.execute(CHANGE)
    caches.flood(FLOOD)
    caches.catch_up(caches.readers)
    caches.points.release()
    assert caches.kept(victim) == 0 and caches.kept(victim) == ROWS and caches.resets(victim) == 1
    caches.goes_on(also=[victim])


# ---- a session that hands a turn out ----

@pytest.mark.parametrize("how", ["released", "terminate", "cancel"])
def test_stands_still_before_the_signal(caches, how):
    """Guards: if a session stops between giving the turn and signalling, or exits there, the next check of an
    inserter gives the turn to another one."""
    sender, victim = caches.connect(), caches.reader()
    caches.points.arm("catch-up-handed-out", "wait" if how == "released" else how, pid_of(sender))
    caches.flood(10)
    for reader in caches.readers:
        assert caches.kept(reader) == ROWS
    doing = Doing(sender, f"SELECT flood({FLOOD})")
    if how == "released":
        assert caches.points.waiter("catch-up-handed-out") == pid_of(sender)
        caches.flood(TO_NEXT_CHECK)
        caches.catch_up(caches.readers)
        assert caches.behind(victim) >= FAR_BEHIND  # it has not been signalled
        caches.points.release()
        assert doing.end() is None
    else:
        caches.points.reached("catch-up-handed-out")
        doing.end()
        if how == "terminate":
            until_gone(caches.watcher, pid_of(sender))
    caches.catch_up([victim, *caches.readers])
    caches.goes_on(also=[victim])


@pytest.mark.parametrize("action", ["terminate", "cancel"])
def test_holder_is_ended(caches, action):
    """Guards: a session that is ended while it catches up hands the turn on, without another message; one that is
    cancelled there notices nothing."""
    victim = caches.reader()
    caches.points.arm("catch-up", action, pid_of(victim))
    caches.fall_behind()
    caches.points.reached("catch-up")
    caches.catch_up(caches.readers)
    if action == "terminate":
        until_gone(caches.watcher, pid_of(victim))
    caches.goes_on(also=[victim] if action == "cancel" else [])


@pytest.mark.parametrize("when", ["turn before", "turn after"])
def test_exits_with_the_turn(caches, when):
    """Guards: a session that is given the turn before or while it exits hands it on when it is gone; if it is held
    there, the next check takes the turn back."""
    victim = caches.reader()
    if when == "turn before":
        with stopped(pid_of(victim)):
            caches.fall_behind()
            caches.points.arm("invalidation-leave", "wait", pid_of(victim))
            os.kill(pid_of(victim), signal.SIGTERM)
    else:
        held_while_it_leaves(caches, victim)
        caches.fall_behind()
    caches.points.waiter("invalidation-leave")
    assert all(caches.behind(reader) >= FAR_BEHIND for reader in caches.readers)
    caches.points.release()
    caches.catch_up(caches.readers)
    until_gone(caches.watcher, pid_of(victim))
    victim = caches.reader()
    held_while_it_leaves(caches, victim)
    caches.fall_behind()
    caches.flood(TO_NEXT_CHECK)
    caches.catch_up(caches.readers)
    caches.goes_on()
    caches.points.release()
    until_gone(caches.watcher, pid_of(victim))


def held_while_it_leaves(scene: CacheScene, victim: psycopg.Connection) -> None:
    """Terminates a session, and holds it before it leaves the queue."""
    scene.points.arm("invalidation-leave", "wait", pid_of(victim))
    os.kill(pid_of(victim), signal.SIGTERM)
    scene.points.waiter("invalidation-leave")


# ---- a slot that is used again ----

def heirs_of_any_slot(scene: CacheScene) -> list[psycopg.Connection]:
    """As many new sessions as there is room for, so that one gets the slot that was freed last: from PostgreSQL 16 on
    it is given out last. (The second and third are closed again: other sessions need to connect.)"""
    heirs = []
    with suppress(psycopg.OperationalError):
        while True:
            heirs.append(scene.connect())
    for _ in range(2):
        scene.end_session(heirs.pop(1))
    return heirs


@pytest.mark.parametrize("kind", ["plain", "listens", "caches", "both"])
def test_slot_is_used_anew(caches, kind):
    """Guards: a signal that was meant for a session that has exited harms neither the one that has its slot now nor the
    next, and neither misses a signal of its own."""
    sender, victim = caches.connect(), caches.reader()
    slot = caches.points.slot(victim)
    caches.points.arm("catch-up-handed-out", "wait", pid_of(sender))
    caches.flood(10)
    for reader in caches.readers:
        assert caches.kept(reader) == ROWS
    doing = Doing(sender, f"SELECT flood({FLOOD})")
    caches.points.waiter("catch-up-handed-out")
    caches.end_session(victim)
    heirs = heirs_of_any_slot(caches)
    for heir in heirs:
        if kind in ("listens", "both"):
            heir.execute("LISTEN c")
        if kind in ("caches", "both"):
            assert caches.kept(heir) == 0
    caches.points.release()
    assert doing.end() is None
    assert kind == "plain" or slot in [caches.points.slot(heir) for heir in heirs]
    for _ in range(2):
        notify(caches.writer, "c", "to all listeners")
        for heir in heirs:
            assert one(heir, "SELECT 1") == 1
            if kind in ("listens", "both"):
                assert hear(heir, 1) == ["to all listeners"]
        caches.catch_up(caches.readers)
        caches.goes_on(also=heirs if kind in ("caches", "both") else [])
    for heir in heirs:
        assert caches.kept(heir) in (0, ROWS) and caches.kept(heir) == ROWS
    assert slot in [caches.points.slot(heir) for heir in heirs]
    caches.goes_on(also=heirs)


# ---- a session that is busy ----

def waits_for_the_lock(scene: CacheScene, connection: psycopg.Connection, sql: str) -> Doing:
    """Runs a statement that waits for advisory lock 1."""
    doing = Doing(connection, sql)
    until(lambda: one(scene.watcher, "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted",
                      pid_of(connection)), "it waits")
    return doing


def test_signal_is_used_up(caches):
    """Guards: a session that falls far behind while its statement waits, then processes the server's own invalidations,
    which consumes its signal, and fails, catches up when it is idle."""
    victim = caches.reader()
    victim.execute("""
        CREATE FUNCTION pg_temp.fails() RETURNS void LANGUAGE plpgsql AS $$
            DECLARE
                waited text := pg_advisory_xact_lock(1);
                size bigint := pg_relation_size('item'::regclass);
            BEGIN
                RAISE EXCEPTION 'failed';
            END $$""")
    with pytest.raises(psycopg.errors.RaiseException):
        victim.execute("SELECT pg_temp.fails()")  # so that the next run needs no planner
    caches.writer.execute("SELECT pg_advisory_lock(1)")
    doing = waits_for_the_lock(caches, victim, "SELECT pg_temp.fails()")
    caches.fall_behind_alone(victim)
    caches.writer.execute("SELECT pg_advisory_unlock(1)")
    assert isinstance(doing.end(), psycopg.errors.RaiseException)
    caches.catch_up([victim])
    caches.goes_on(also=[victim])


# ---- a session that also listens ----

@pytest.fixture
def both(caches):
    """A session that listens to c, and caches."""
    connection = caches.reader()
    connection.execute("LISTEN c")
    return connection


@pytest.mark.parametrize("first", ["notification", "invalidations"])
def test_both_signals(caches, both, first):
    """Guards: an idle session that is signalled for both at the same time does both, and its client gets the
    notification without running a statement."""
    for number in range(3):
        with stopped(pid_of(both)):
            if first == "notification":
                notify(caches.writer, "c", str(number))
            caches.fall_behind_alone(both)
            if first != "notification":
                notify(caches.writer, "c", str(number))
        assert hear(both, 1) == [str(number)]
        caches.catch_up([both])
    caches.goes_on(also=[both])


@pytest.mark.parametrize("point", ["deliver-called", "deliver-begin", "deliver-read", "deliver-message",
                                   "deliver-all-read", "deliver-done", "turn-given-back"])
def test_far_behind_while_it_delivers(caches, both, point):
    """Guards: a session that is held while it delivers, and then falls far behind, catches up when it has delivered,
    and its client receives all."""
    caches.points.arm(point, "wait", pid_of(both))
    notify(caches.writer, "c", "first")
    assert caches.points.waiter(point) == pid_of(both)
    caches.fall_behind_alone(both)
    notify(caches.writer, "c", "second")
    caches.catch_up(caches.readers)
    assert caches.points.release() == 1
    assert hear(both, 2) == ["first", "second"]
    caches.catch_up([both])
    caches.goes_on(also=[both])


@pytest.mark.parametrize("turns", ["there are turns", "there are none"])
def test_notified_while_it_catches_up(caches, both, turns):
    """Guards: a session that is notified while it catches up receives the notification afterwards; also if it has to
    wait for its turn to read notifications, which it gets later."""
    with ExitStack() as stack:
        if turns == "there are none":
            listeners = [caches.connect() for _ in range(2)]  # there are two turns
            for listener in listeners:
                listener.execute("LISTEN c")
            stack.enter_context(caches.without_watchdog())
            for listener in listeners:
                stack.enter_context(stopped(pid_of(listener)))
        caches.points.arm("catch-up", "wait", pid_of(both))
        caches.fall_behind()
        assert caches.points.waiter("catch-up") == pid_of(both)
        notify(caches.writer, "c", "heard")
        assert caches.points.release() == 1
        caches.catch_up([both])
    assert hear(both, 1) == ["heard"]
    caches.goes_on(also=[both])
    notify(caches.writer, "c", "again")
    assert hear(both, 1) == ["again"]


@pytest.mark.parametrize("state", ["in a transaction", "in a failed block", "in a statement"])
def test_both_signals_while_busy(caches, both, state):
    """Guards: a session that is busy when both signals arrive does both when it is idle again, without another
    statement."""
    doing = None
    caches.writer.execute("SELECT pg_advisory_lock(1)")
    if state == "in a statement":
        doing = waits_for_the_lock(caches, both, "SELECT pg_advisory_xact_lock(1)")
    else:
        both.execute("BEGIN; SELECT 1")
    if state == "in a failed block":
        with pytest.raises(psycopg.errors.DivisionByZero):
            both.execute("SELECT 1 / 0")
    for reader in caches.readers:
        assert caches.kept(reader) == ROWS
    caches.flood(FLOOD)
    if state == "in a failed block":
        for _ in range(2):  # it looks idle, and so has got the turn: at the last check, or from another one after that
            caches.flood(TO_NEXT_CHECK)
    notify(caches.writer, "c", "heard")
    caches.catch_up(caches.readers)
    assert caches.behind(both) >= FAR_BEHIND
    caches.writer.execute("SELECT pg_advisory_unlock(1)")
    if doing:
        assert doing.end() is None
    else:
        both.execute("COMMIT" if state == "in a transaction" else "ROLLBACK")
    assert hear(both, 1) == ["heard"]
    caches.catch_up([both])
    caches.goes_on(also=[both])
