"""Faults while a session resumes a channel, or waits in herald.read()."""

import psycopg
import pytest

from faults import Doing, pid_of
from laggards import KILOBYTES_7, RING_BYTES
from resume import position, read, resume
from support import hear, hear_until, notify, one

RESUMING = ["resume-joined", "resume-held"]


def reads_all(connection: psycopg.Connection, token: str, sent: list[str]) -> bool:
    """Whether herald.read() returns all that was sent."""
    return read(connection, "c", token)[0] == sent


@pytest.mark.parametrize("action", ["terminate", "cancel", "error"])
@pytest.mark.parametrize("point", RESUMING)
def test_resume_fails(scene, point, action):
    """Guards: a session that fails or exits while it resumes holds nothing for long and blocks no other session; if it
    still exists it can resume afterwards, and receives everything."""
    victim = scene.connect()
    token = position(scene.watcher)
    scene.goes_on()
    scene.points.arm(point, action, pid_of(victim))
    with pytest.raises(psycopg.Error):
        resume(victim, "c", token)
    scene.points.reached(point)
    scene.goes_on()
    if action != "terminate":
        assert resume(victim, "c", token)
        assert hear(victim, 10) == [f"number {n}" for n in range(10)]
        scene.goes_on(also=[victim])


@pytest.mark.parametrize("point", RESUMING)
def test_resume_stands_still(scene, point):
    """Guards: while a session that resumes is held, others go on for laps of the queue; once it holds its position, the
    notifications after that are kept; if it is held before that, it is informed that they are gone."""
    victim = scene.connect()
    token = position(scene.watcher)
    scene.goes_on()
    scene.points.arm(point, "wait", pid_of(victim))
    doing = Doing(victim, f"CREATE TEMP TABLE came AS SELECT herald.listen('c', '{token}')")
    assert scene.points.waiter(point) == pid_of(victim)
    sent = [f"{n} {KILOBYTES_7}" for n in range(2 * RING_BYTES // len(KILOBYTES_7))]
    for payload in sent:
        notify(scene.sender, "c", payload)
        for listener in scene.listeners:
            assert hear(listener, 1) == [payload]
    scene.points.release(point)
    assert doing.end() is None
    is_held = point == "resume-held"
    assert one(victim, "SELECT listen FROM came") is is_held
    scene.goes_on()
    expected = [f"number {n}" for n in range(5)] + sent if is_held else []
    assert hear(victim, len(expected) + 5) == [*expected, *(f"number {n}" for n in range(5, 10))]


@pytest.mark.parametrize("is_own", [True, False])
def test_position_ahead(scene, is_own):
    """Guards: herald.read() can return a position after batches that are published but have not reached their listeners
    yet; a session that resumes a channel there still receives those on its other channels."""
    victim, sender = scene.connect(), scene.connect()
    victim.execute("LISTEN other")
    doing = scene.stand_still("dispatch-published", sender, "NOTIFY other, 'before'")
    token = read(victim if is_own else scene.sender, "c", None)[1]
    assert resume(victim, "c", token)
    scene.points.release("dispatch-published")
    assert doing.end() is None
    notify(scene.sender, "other", "after")
    notify(scene.sender, "c", "after, too")
    assert hear(victim, 3) == ["before", "after", "after, too"]


@pytest.mark.parametrize("action", ["terminate", "cancel", "error"])
def test_reader_fails(scene, action):
    """Guards: a reader that fails or exits when it begins to wait is no longer a listener."""
    victim = scene.connect()
    token = position(scene.watcher)
    scene.points.arm("read-watches", action, pid_of(victim))
    with pytest.raises(psycopg.Error):
        read(victim, "c", token, 10, "20s")
    scene.points.reached("read-watches")
    assert one(scene.watcher, "SELECT count(*) FROM herald.listeners") == len(scene.listeners)
    scene.goes_on()
    if action != "terminate":
        assert reads_all(victim, token, [f"number {n}" for n in range(5)])


def test_reader_stands_still(scene):
    """Guards: what comes while a reader is about to begin its first wait is not lost, and no session waits for that
    reader."""
    victim = scene.connect()
    scene.points.arm("read-watches", "wait", pid_of(victim))
    doing = Doing(victim, f"CREATE TEMP TABLE came AS SELECT * FROM herald.read('c', '{position(victim)}', 10, '20s')")
    assert scene.points.waiter("read-watches") == pid_of(victim)
    scene.goes_on()
    scene.points.release("read-watches")
    assert doing.end() is None
    assert [row[0] for row in victim.execute("SELECT payload FROM came")] == [f"number {n}" for n in range(5)]


@pytest.mark.parametrize("asks", ["herald.listen", "herald.read", "the commit"])
def test_seen_and_not_counted(scene, asks):
    """Guards: a transaction that bypassed the queue can be visible, but not counted yet. A session that comes back at
    that moment waits until it is counted, and is informed that it missed something."""
    sender, victim = scene.connect(), scene.connect()
    if asks == "the commit":
        victim.execute("LISTEN herald_reset")
    token = position(scene.watcher)
    sender.execute("SET herald.enabled = off")
    scene.points.arm("bypass-count", "wait", pid_of(sender))
    if asks == "the commit":
        victim.execute(f"BEGIN; SELECT herald.listen('d', '{token}')")
    counting = Doing(sender, "NOTIFY d, 'past'")
    assert scene.points.waiter("bypass-count") == pid_of(sender)
    scene.points.arm("bypass-await", "wait", pid_of(victim))
    doing = Doing(victim, {"herald.listen": f"CREATE TEMP TABLE came AS SELECT herald.listen('d', '{token}')",
                           "herald.read": f"SELECT * FROM herald.read('d', '{token}')", "the commit": "COMMIT"}[asks])
    assert scene.points.waiter("bypass-await") == pid_of(victim)
    scene.points.release("bypass-await")
    scene.points.release("bypass-count")
    assert counting.end() is None
    error = doing.end()
    if asks == "herald.read":
        assert error is not None and error.sqlstate == "55000"
        return
    assert error is None
    if asks == "herald.listen":
        assert one(victim, "SELECT listen FROM came") is False
    else:
        assert hear_until(victim, "notifications were missed") in ([], ["past"])
    scene.goes_on()
