"""Faults of a backend at each stage of a notification, which other sessions do not notice."""

import psycopg
import pytest

from faults import Doing, Points, pid_of
from laggards import files
from support import hear, notify, one, reconnect, stopped, until, until_crashed, watchdog_stopped, works_from_the_start

pytestmark = pytest.mark.seam

# A sender's stop points before its commit: an error may be thrown there.
BEFORE_COMMIT = ["activation-look-up", "pending-arena", "pending-hash", "pending-level", "publish-reserve",
                 "publish-reserved"]

# A sender's stop points after its commit: no error may be thrown. For each, how many of three listeners receive nothing
# more while the sender is held there.
AFTER_COMMIT = {
    "publish-committed": 3,  # later batches in the queue wait for it
    "publish-finished": 0,  # others dispatch its batch
    "dispatch-try": 0,
    "dispatch-locked": 3,  # there is one dispatcher at a time
    "dispatch-published": 3,
    "dispatch-marked": 3,
    "dispatch-unlock": 3,
    "dispatch-unlocked": 0,
    "dispatch-done": 0,  # others, or the watchdog, wake the listeners that it has marked
    "publish-dispatched": 0,
    "turn-taken": 0,  # there is another turn
    "turn-in-slot": 1,  # only the sender knows whose turn that is
    "turn-handed-out": 1,
    "reason-added": 1,
}

# A listener's stop points, and whether an error may be thrown there. If so it ends the connection; at the first point
# for the server's own reason: it was about to read a message from the client.
LISTENING = {"deliver-begin": True, "deliver-read": True, "deliver-message": True,
             "deliver-message-sent": True, "deliver-all-read": False, "deliver-done": False,
             "turn-given-back": False}


def with_actions(points: dict[str, bool] | list[str]) -> list[tuple[str, str]]:
    """Each point with each action that is possible there."""
    throws = points if isinstance(points, dict) else dict.fromkeys(points, True)
    return [(point, action) for point in points for action in ("terminate", "cancel", "error")
            if throws[point] or action != "error"]


def ids(value: object) -> str:
    """The text for a parameter in a test's name."""
    return str(value)


# ---- a sender ----

@pytest.mark.parametrize("point, action", with_actions(BEFORE_COMMIT), ids=ids)
def test_sender_before_commit(scene, point, action):
    """Guards: a sender that fails or exits before its commit sends nothing and blocks no other session; if it still
    exists, it can send again."""
    victim = scene.connect()
    scene.points.arm(point, action, pid_of(victim))
    with pytest.raises(psycopg.Error):
        victim.execute("NOTIFY c, 'never sent'")
    scene.points.reached(point)
    scene.goes_on()
    if action != "terminate":
        notify(victim, "c", "sent now")
        scene.goes_on(["sent now"])


@pytest.mark.parametrize("point", ["pending-arena", "pending-hash", "pending-level"])
def test_sender_in_a_subtransaction(scene, point):
    """Guards: an error while a notification is recorded, in a savepoint that is rolled back, costs only that
    savepoint."""
    victim = scene.connect()
    victim.execute("BEGIN")
    notify(victim, "c", *(f"before {number}" for number in range(20)))
    victim.execute("SAVEPOINT s")
    notify(victim, "c", "rolled back")
    scene.points.arm(point, "error", pid_of(victim))
    with pytest.raises(psycopg.errors.InternalError_):
        notify(victim, "c", *(f"rolled back {number} {'x' * 1000}" for number in range(5)))
    victim.execute("ROLLBACK TO s")
    notify(victim, "c", "rolled back", "after")
    victim.execute("COMMIT")
    scene.goes_on([*(f"before {number}" for number in range(20)), "rolled back", "after"])


def test_cancelled_while_it_forgets(scene):
    """Guards: after a rollback the next notification finds out which earlier ones are gone, and can be cancelled
    meanwhile; what is repeated later is sent once all the same."""
    victim = scene.connect()
    kept, gone = [f"kept {number}" for number in range(20)], [f"gone {number}" for number in range(20)]
    victim.execute("BEGIN")
    notify(victim, "c", *kept)
    victim.execute("SAVEPOINT s")
    notify(victim, "c", *gone)
    victim.execute("ROLLBACK TO s")
    doing = scene.stand_still("pending-forget", victim, "NOTIFY c, 'cancelled'")
    assert one(scene.watcher, "SELECT pg_cancel_backend(%s)", pid_of(victim))
    scene.points.release("pending-forget")
    assert isinstance(doing.end(), psycopg.errors.QueryCanceled)
    victim.execute("ROLLBACK TO s")
    notify(victim, "c", *kept, gone[3], "after", gone[3])
    victim.execute("COMMIT")
    scene.goes_on([*kept, gone[3], "after"])


@pytest.mark.parametrize("point, action", with_actions(dict.fromkeys(AFTER_COMMIT, False)), ids=ids)
def test_sender_after_commit(scene, point, action):
    """Guards: a sender that is cancelled or exits after its commit has sent its notifications."""
    victim = scene.connect()
    scene.points.arm(point, action, pid_of(victim))
    with watchdog_stopped(scene.cluster):  # it could be the one to hand out the turn
        try:
            victim.execute("NOTIFY c, 'sent'")
        except psycopg.Error:
            pass
        scene.points.reached(point)
    scene.goes_on(["sent"])


@pytest.mark.parametrize("point, deaf", AFTER_COMMIT.items(), ids=ids)
def test_sender_stands_still(scene, point, deaf):
    """Guards: while a sender is held after its commit, other senders go on, as do the listeners that do not depend on
    it; when it goes on, all receive everything once and in order."""
    victim = scene.connect()
    doing = scene.stand_still(point, victim, "NOTIFY c, 'of the victim'")
    sent = scene.send()
    heard = {}

    def hears(listener: psycopg.Connection) -> bool:
        heard[listener] = heard.get(listener, []) + hear(listener, 6 - len(heard.get(listener, [])), 0.02)
        return len(heard[listener]) == 6

    until(lambda: sum(map(hears, scene.listeners)) >= 3 - deaf, f"all but {deaf} of the listeners hear")
    assert scene.points.waiter(point) == pid_of(victim)
    scene.points.release(point)
    assert doing.end() is None
    until(lambda: all(map(hears, scene.listeners)), "all listeners hear")
    assert all(words == ["of the victim", *sent] for words in heard.values())
    scene.goes_on()


def test_reserved_stands_still(scene):
    """Guards: batches behind a transaction that is held in its commit wait for it, as long as it takes; a sender can be
    cancelled meanwhile when the queue is full of them; nothing else is lost."""
    victim, impatient = scene.connect(), scene.connect()
    scene.points.arm("publish-reserved", "wait", pid_of(victim))
    doing = Doing(victim, "NOTIFY c, 'of the victim'")
    scene.points.waiter("publish-reserved")
    (*sent, _), waits = scene.send_until_standing("publish-no-room", impatient, "c")
    assert len(sent) > 50, "the queue was not full"
    scene.points.release("publish-no-room")
    scene.watcher.execute("SELECT pg_cancel_backend(%s)", (pid_of(impatient),))
    assert isinstance(waits.end(), psycopg.errors.QueryCanceled)
    patient = f"has waited {'x' * 7000}"
    waits = Doing(scene.sender, f"NOTIFY c, '{patient}'")
    assert hear(scene.listeners[0], 1, 0.1) == [] and waits.runs()
    scene.points.release("publish-reserved")
    assert doing.end() is None and waits.end() is None
    scene.goes_on(["of the victim", *sent, patient])


@pytest.mark.parametrize("ending", ["pg_cancel_backend", "pg_terminate_backend"])
def test_first_that_waits_for_room(scene, ending):
    """Guards: when the sender that waits for room first is cancelled or terminated, the next takes its place."""
    victim, first, second = (scene.connect() for _ in range(3))
    scene.points.arm("publish-reserved", "wait", pid_of(victim))
    doing = Doing(victim, "NOTIFY c, 'of the victim'")
    scene.points.waiter("publish-reserved")
    (*sent, _), waits = scene.send_until_standing("await-room", first, "c")
    patient = f"has waited {'x' * 7000}"
    behind = Doing(second, f"NOTIFY c, '{patient}'")
    until(lambda: one(scene.watcher, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1262 AND"
                                     " objsubid = 1 AND NOT granted") == 1, "the second waits behind it")
    scene.watcher.execute(f"SELECT {ending}(%s)", (pid_of(first),))
    scene.points.release("await-room")
    assert isinstance(waits.end(), psycopg.errors.QueryCanceled if ending == "pg_cancel_backend" else psycopg.OperationalError)
    assert behind.runs()
    scene.points.release("publish-reserved")
    assert doing.end() is None and behind.end() is None
    scene.goes_on(["of the victim", *sent, patient])


# ---- a listener ----

@pytest.mark.parametrize("point, action", with_actions(LISTENING), ids=ids)
def test_stages_of_a_listener(scene, point, action):
    """Guards: a listener that fails or exits while it delivers takes nothing from the others, nor a turn; one that
    still exists receives all."""
    victim = scene.listener()
    scene.points.arm(point, action, pid_of(victim))
    notify(scene.sender, "c", "first")
    scene.points.reached(point)
    if action == "cancel":
        scene.goes_on(["first"], also=[victim])
        return
    scene.goes_on(["first"])
    with pytest.raises(psycopg.OperationalError):
        hear(victim, 10)
        victim.execute("SELECT 1")
    until(lambda: one(scene.watcher, "SELECT count(*) FROM herald.listeners") == 3, "it has gone")


def test_listener_fails_at_the_end_of_its_transaction(scene):
    """Guards: a listener that fails before it could deliver what came during its transaction delivers it next; it does
    not wait for a signal that no process will send."""
    victim = scene.listener()
    for number in range(3):
        victim.execute("BEGIN; SELECT 1")
        notify(scene.sender, "c", "first")
        scene.points.arm("deliver-begin", "error", pid_of(victim))
        with pytest.raises(psycopg.errors.InternalError_):
            victim.execute("COMMIT")
        scene.goes_on(["first"], also=[victim])


@pytest.mark.parametrize("point", LISTENING)
def test_listener_stands_still(scene, point):
    """Guards: while a listener is held at any point, with a turn or without, the others receive; it receives everything
    when it goes on."""
    victim = scene.listener()
    scene.points.arm(point, "wait", pid_of(victim))
    notify(scene.sender, "c", "first")
    scene.points.waiter(point)
    for listener in scene.listeners:
        assert hear(listener, 1) == ["first"]
    sent = scene.send()
    for listener in scene.listeners:
        assert hear(listener, 5) == sent
    scene.points.release(point)
    assert hear(victim, 6) == ["first", *sent]
    scene.goes_on(also=[victim])


@pytest.mark.parametrize("point", ["exit", "exit-without-channels", "exit-word-free"])
def test_listener_on_its_way_out(scene, point):
    """Guards: a listener that is held while it exits, with something pending, blocks no other session; nothing of it is
    left."""
    victims = [scene.listener() for _ in range(3)]
    for victim in victims:
        scene.points.arm(point, "wait", pid_of(victim))
        scene.watcher.execute("SELECT pg_terminate_backend(%s)", (pid_of(victim),))
        scene.points.waiter(point)
        scene.goes_on()
    scene.points.release(point)
    until(lambda: one(scene.watcher, "SELECT count(*) FROM herald.listeners") == 3, "they have gone")
    scene.goes_on()


@pytest.mark.parametrize("action", ["terminate", "cancel", "error"])
@pytest.mark.parametrize("point", ["listen-joined", "listen-entered"])
def test_listen_fails(scene, point, action):
    """Guards: a LISTEN that fails leaves nothing, whether it would have been the backend's first or not; it can be
    tried again."""
    for first in (True, False):
        victim = scene.connect()
        if not first:
            victim.execute("LISTEN c")
        scene.points.arm(point, action, pid_of(victim))
        with pytest.raises(psycopg.Error):
            victim.execute("LISTEN d")
        if action == "terminate":
            until(lambda: one(scene.watcher, "SELECT count(*) FROM herald.listeners") == 3, "it has gone")
        assert one(scene.watcher, "SELECT count(*) FROM herald.channels") == 1
        scene.goes_on(also=[victim] if not first and action != "terminate" else [])
        if action != "terminate":
            assert one(scene.watcher, "SELECT count(*) FROM herald.listeners") == (3 if first else 4)
            victim.execute("LISTEN d")
            notify(scene.sender, "d", "heard")
            assert hear(victim, 1) == ["heard"]
            victim.close()
            until(lambda: one(scene.watcher, "SELECT count(*) FROM herald.listeners") == 3, "it has gone")


@pytest.mark.parametrize("action", ["terminate", "cancel", "error"])
@pytest.mark.parametrize("point", ["publish-reserve", "publish-reserved"])
def test_listen_and_notify_fails(scene, point, action):
    """Guards: a transaction that begins to listen, notifies and fails leaves nothing, in the server either; it can be
    tried again, and then receives its own notification once."""
    both = "BEGIN; LISTEN d; NOTIFY d, 'own'; COMMIT"
    victim = scene.connect()
    scene.points.arm(point, action, pid_of(victim))
    with pytest.raises(psycopg.Error):
        victim.execute(both)
    if action == "terminate":
        until(lambda: one(scene.watcher, "SELECT count(*) FROM herald.listeners") == 3, "it has gone")
    else:
        victim.execute("ROLLBACK")
        assert victim.execute("SELECT * FROM pg_listening_channels()").fetchall() == []
    scene.goes_on()
    if action != "terminate":
        victim.execute(both)
        notify(scene.sender, "d", "others'")
        assert hear(victim, 2) == ["own", "others'"]
        victim.close()
        until(lambda: one(scene.watcher, "SELECT count(*) FROM herald.listeners") == 3, "it has gone")


@pytest.mark.parametrize("point", ["listen-joined", "listen-entered"])
def test_listen_stands_still(scene, point):
    """Guards: a LISTEN that is held before its commit blocks no other session; what was committed by then is not mixed
    up with what comes afterwards."""
    victim = scene.connect()
    scene.points.arm(point, "wait", pid_of(victim))
    doing = Doing(victim, "LISTEN c")
    scene.points.waiter(point)
    scene.goes_on()
    scene.points.release(point)
    assert doing.end() is None
    # It may have been signalled in between: it was entered, but its start is taken afterwards.
    scene.goes_on(also=[victim])


@pytest.mark.parametrize("action", ["terminate", "cancel", "error"])
def test_awaits_own_batch(scene, action):
    """Guards: a listener whose wait for its own notification ends by an error has sent it, and receives it if it still
    exists; no session stays counted as waiting."""
    victim, slow = scene.listener(), scene.connect()
    scene.points.arm("publish-reserved", "wait", pid_of(slow))
    doing = Doing(slow, "NOTIFY c, 'slow'")
    scene.points.waiter("publish-reserved")
    scene.points.arm("await-dispatch", action, pid_of(victim))
    try:
        victim.execute("NOTIFY c, 'own'")
    except psycopg.Error:
        pass
    scene.points.reached("await-dispatch")
    scene.points.release("publish-reserved")
    assert doing.end() is None
    scene.goes_on(["slow", "own"], also=[] if action == "terminate" else [victim])


# ---- kill -9 ----

# When a backend is killed the server restarts, so that little depends on where it was.
KILLED = ["publish-reserved", "publish-committed", "publish-finished", "dispatch-published", "dispatch-done",
          "reason-added", "deliver-begin", "deliver-read", "deliver-message-sent", "turn-given-back",
          "listen-entered", "watchdog-look"]


@pytest.fixture
def mortal(faulty, connect):
    """The cluster, for tests in which it crashes; afterwards it must work from the start, and no file may be left."""
    yield faulty
    works_from_the_start(faulty, connect)
    assert files(faulty.data) == []


@pytest.mark.parametrize("point", KILLED)
def test_killed_in_each_stage(mortal, connect, point):
    """Guards: after kill -9 of a backend at any stage the server restarts, and all works."""
    watcher, listener, victim = connect(mortal), connect(mortal), connect(mortal)
    listener.execute("LISTEN c")
    try:
        Points(watcher).arm(point, "kill")  # a worker may reach it before the answer
        for sql in ("NOTIFY c, 'the last'", "LISTEN d"):
            victim.execute(sql)
    except psycopg.OperationalError:
        pass
    until_crashed(watcher)
    reconnect(mortal, connect)
