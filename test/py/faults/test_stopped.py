"""Processes that are stopped as by a debugger (SIGSTOP), at the worst moment.

They are stopped for a moment, or for HERALD_STOPPED_S seconds; see docs/internals/TESTING.md.
"""

import os
import time
from contextlib import ExitStack, contextmanager

import pytest

from faults import Doing, pid_of
from support import DEADLINE_S, hear, let_watchdog_fall_asleep, notify, one, stopped, until, watchdog_stopped

STOPPED_S = float(os.environ.get("HERALD_STOPPED_S", "1"))
PAUSE_S = 0.02

pytestmark = pytest.mark.timeout(60 + 3 * STOPPED_S)


@contextmanager
def stopped_at(scene, point: str, victim, sql: str | None = None):
    """Within the block, the victim is stopped at this point, while it runs the statement if one is given."""
    scene.points.arm(point, "wait", pid_of(victim))
    with watchdog_stopped(scene.cluster):  # it could be the one to hand out the turn
        doing = Doing(victim, sql) if sql else None
        if not sql:
            notify(scene.sender, "c", "of the victim")
        time.sleep(PAUSE_S)
    # If the watchdog was stopped with the turn claimed and not handed out, it hands it out now.
    scene.points.waiter(point)
    with stopped(pid_of(victim)):
        scene.points.release(point)
        yield
    assert doing is None or doing.end() is None


def send_meanwhile(scene, heard_by: list) -> list[str]:
    """Notifies for as long as the process is to be stopped, and more than three times; these listeners must receive each
    message at once."""
    sent = []
    end = time.monotonic() + STOPPED_S
    while time.monotonic() < end or len(sent) <= 3:
        sent += scene.send(1)
        for listener in heard_by:
            assert hear(listener, 1, DEADLINE_S) == sent[-1:]
        time.sleep(PAUSE_S)
    return sent


@pytest.mark.parametrize("point", ["dispatch-published", "dispatch-marked"])
def test_dispatcher(scene, point):
    """Guards: while the dispatcher is stopped with the dispatch lock senders go on; when it goes on everything is
    received. (What is in the queue waits meanwhile: the lock cannot be taken from it.)"""
    with stopped_at(scene, point, scene.connect(), "NOTIFY c, 'of the victim'"):
        sent = send_meanwhile(scene, [])
        scene.listener("d").close()  # LISTEN and exit need no dispatcher
    assert len(sent) > 3
    scene.goes_on(["of the victim", *sent])


@pytest.mark.parametrize("point", ["dispatch-unlocked", "dispatch-done", "turn-taken"])
def test_waker(scene, point):
    """Guards: while a dispatcher is stopped after it has marked listeners, and before it wakes one, others wake them;
    soon, although the watchdog was asleep."""
    is_told = let_watchdog_fall_asleep(scene.cluster)
    with stopped_at(scene, point, scene.connect(), "NOTIFY c, 'of the victim'"):
        sent = scene.send(1)
        for listener in scene.listeners:
            assert hear(listener, 2) == ["of the victim", *sent]
        assert is_told(), "the watchdog looked when its time was over"
        send_meanwhile(scene, scene.listeners)
    scene.goes_on()


@pytest.mark.parametrize("point", ["deliver-begin", "deliver-read", "deliver-message", "deliver-done"])
def test_listener_with_a_turn(scene, point):
    """Guards: while a listener is stopped with a turn the others receive at once; it receives all when it goes on."""
    victim = scene.listener()
    with stopped_at(scene, point, victim):
        for listener in scene.listeners:
            assert hear(listener, 1) == ["of the victim"]
        sent = send_meanwhile(scene, scene.listeners)
    assert hear(victim, 1 + len(sent)) == ["of the victim", *sent]
    scene.goes_on(also=[victim])


def test_every_turn(scene):
    """Guards: while stopped listeners have all the turns, the others receive."""
    victims = [scene.listener() for _ in range(2)]
    with stopped_at(scene, "deliver-read", victims[0]):
        with stopped_at(scene, "deliver-read", victims[1]):
            for listener in scene.listeners:
                assert hear(listener, 2) == ["of the victim"] * 2
            sent = send_meanwhile(scene, scene.listeners)
    for victim in victims:
        assert hear(victim, 2 + len(sent)) == ["of the victim"] * 2 + sent
    scene.goes_on(also=victims)


def test_watchdog(scene):
    """Guards: while the background worker is stopped, notifications are delivered; afterwards it works again."""
    with watchdog_stopped(scene.cluster):
        send_meanwhile(scene, scene.listeners)
    scene.goes_on()
    victims = [scene.listener() for _ in range(2)]
    rescued = one(scene.watcher, "SELECT turns_rescued FROM herald.stats")
    with stopped(pid_of(victims[0])), stopped(pid_of(victims[1])):
        scene.goes_on()
        until(lambda: one(scene.watcher, "SELECT turns_rescued FROM herald.stats") > rescued,
              "it takes turns back")


def test_sender_in_its_commit(scene):
    """Guards: while a sender is stopped in its commit, later notifications wait, but their senders do not."""
    with stopped_at(scene, "publish-reserved", scene.connect(), "NOTIFY c, 'of the victim'"):
        sent = send_meanwhile(scene, [])
    scene.goes_on(["of the victim", *sent])
