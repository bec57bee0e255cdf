"""Races between two processes, at the one moment at which they could go wrong."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic

import psycopg
import pytest

from faults import Doing, pid_of
from laggards import files
from support import hear, notify, one, until, until_gone, wait_event

MANY = 5000  # notifications that do not fit into a segment
COMMIT_WAIT_S = 0.99  # of an UNLISTEN, for commits that are under way: HERALD_COMMIT_WAIT_MS of whole milliseconds


@contextmanager
def without_watchdog(scene):
    """Within the block, the background worker is held, so that no process but the intended one does the work."""
    scene.points.arm("watchdog-look", "wait")
    scene.goes_on()  # this wakes it
    scene.points.waiter("watchdog-look")
    yield
    scene.points.release("watchdog-look")


def test_another_dispatcher_in_its_place(scene):
    """Guards: a dispatcher that has marked listeners, released the lock, seen at its last look that there is more [D1],
    and then finds another dispatcher in its place, wakes the listeners that it has marked. No other process does."""
    first, second, third = (scene.connect() for _ in range(3))
    with without_watchdog(scene):
        doing = scene.stand_still("dispatch-unlock", first, "NOTIFY c, 'first'")
        second.execute("NOTIFY nobody, 'left to the first, which has the lock'")
        scene.points.arm("dispatch-try", "wait", pid_of(first))
        scene.points.release("dispatch-unlock")
        assert scene.points.waiter("dispatch-try") == pid_of(first)
        other = scene.stand_still("dispatch-locked", third, "NOTIFY nobody, 'by another'")
        scene.points.release("dispatch-try")
        assert doing.end() is None
        for listener in scene.listeners:
            assert hear(listener, 1) == ["first"]
        assert other.runs()
        scene.points.release("dispatch-locked")
        assert other.end() is None
    scene.goes_on()


@pytest.mark.parametrize("point", ["dispatch-locked", "dispatch-published", "dispatch-marked",
                                   "dispatch-unlock", "dispatch-unlocked"])
def test_left_to_the_dispatcher(scene, point):
    """Guards: a batch that is finished while another process dispatches is dispatched by that process, or by its owner
    [D1]."""
    with without_watchdog(scene):
        doing = scene.stand_still(point, scene.connect(), "NOTIFY c, 'first'")
        notify(scene.sender, "c", "second")
        scene.points.release(point)
        assert doing.end() is None
        for listener in scene.listeners:
            assert hear(listener, 2) == ["first", "second"]


@pytest.mark.parametrize("point", ["dispatch-published", "dispatch-marked", "dispatch-done"])
def test_listen_meanwhile(scene, point):
    """Guards: a session that begins to listen while a batch is dispatched may or may not receive it, but receives
    everything after it [W1, C1]."""
    doing = scene.stand_still(point, scene.connect(), "NOTIFY c, 'first'")
    late = scene.listener()
    sent = scene.send()
    scene.points.release(point)
    assert doing.end() is None
    scene.goes_on(["first", *sent])
    heard = hear(late, 10)
    assert heard[:5] == sent and len(heard) == 10


@pytest.mark.parametrize("new_owner", [False, True], ids=["slot is free", "slot has a new owner"])
@pytest.mark.parametrize("point", ["turn-taken", "turn-in-slot", "turn-handed-out", "reason-added"])
def test_listener_goes_while_it_is_woken(scene, point, new_owner):
    """Guards: a listener that exits while another process hands it a turn takes no turn with it, and if its slot has a
    new owner by then, that one still receives [W2, S2]."""
    gone = scene.listener("d")
    slot = scene.points.slot(gone)
    doing = scene.stand_still(point, scene.connect(), "NOTIFY d, 'too late'")
    gone.close()
    until(lambda: one(scene.watcher, "SELECT count(*) FROM herald.listeners") == 3, "it has gone")
    also = []
    while new_owner and slot not in map(scene.points.slot, also[-1:]):
        also.append(scene.listener())
    scene.points.release(point)
    assert doing.end() is None
    scene.goes_on(also=also)


def test_listener_begins_by_itself_while_it_is_woken(scene):
    """Guards: a listener that runs a statement, and so reads by itself, while another process hands it a turn, gives
    that turn back and receives what comes next [W2]."""
    for point in ("turn-taken", "turn-in-slot", "turn-handed-out", "reason-added"):
        client = scene.listener("d")
        doing = scene.stand_still(point, scene.connect(), f"NOTIFY d, '{point}'")
        client.execute("SELECT 1")
        assert hear(client, 1) == [point]
        scene.points.release(point)
        assert doing.end() is None
        notify(scene.sender, "d", "next")
        assert hear(client, 1) == ["next"]
        client.close()
        until(lambda: one(scene.watcher, "SELECT count(*) FROM herald.listeners") == 3, "it has gone")
    scene.goes_on()


def test_failure_uses_up_a_late_signal(scene):
    """Guards: if a signal comes late, for something that the listener has read by itself, and what the signal starts
    fails at once, the next signal is sent all the same [S1]."""
    client = scene.listener("d")
    doing = scene.stand_still("turn-handed-out", scene.connect(), "NOTIFY d, 'first'")
    client.execute("SELECT 1")
    assert hear(client, 1) == ["first"]
    scene.watcher.execute("SELECT pg_advisory_lock(1)")
    busy = Doing(client, "SELECT pg_advisory_xact_lock(1)")
    until(lambda: wait_event(scene.watcher, pid_of(client)) == "advisory", "it is busy")
    scene.points.arm("deliver-called", "error", pid_of(client))
    scene.points.release("turn-handed-out")
    assert doing.end() is None
    scene.watcher.execute("SELECT pg_advisory_unlock(1)")
    assert isinstance(busy.end(), psycopg.errors.InternalError_)
    for payload in ("second", "third"):
        notify(scene.sender, "d", payload)
        assert hear(client, 1) == [payload]


@pytest.mark.parametrize("point", ["deliver-begin", "deliver-read", "deliver-message-sent", "deliver-done",
                                   "turn-given-back"])
def test_turns_come_back(scene, point):
    """Guards: a listener that exits, at whatever point, gives its turn back itself [W2]; the watchdog, which would find
    it, is held."""
    with without_watchdog(scene):
        for number in range(2):  # as many as there are turns
            victim = scene.listener("d")
            scene.points.arm(point, "terminate", pid_of(victim))
            notify(scene.sender, "d", "for the victim")
            until(lambda: one(scene.watcher, "SELECT count(*) FROM herald.listeners") == 3, "it has gone")
        until(lambda: scene.points.state().startswith("turns 0, "), "the turns are given back")
        scene.goes_on()


def test_message_at_the_last_look(scene):
    """Guards: what comes between a listener's last look at the queue and its sleep is received without a new signal."""
    with without_watchdog(scene):
        victim = scene.listener("d")
        scene.points.arm("deliver-all-read", "wait", pid_of(victim))
        notify(scene.sender, "d", "first")
        scene.points.waiter("deliver-all-read")
        notify(scene.sender, "d", "second")
        scene.points.release("deliver-all-read")
        assert hear(victim, 2) == ["first", "second"]


def test_requeued(scene):
    """Guards: a listener that has read its share and goes back into the wakeup set is found there; what comes in
    between is received."""
    victim = scene.listener("d")
    victim.execute("BEGIN; SELECT 1")
    sent = [f"{number} {'x' * 7000}" for number in range(45)]  # more than a turn's worth
    notify(scene.sender, "d", *sent)
    scene.points.arm("requeued", "wait", pid_of(victim))
    doing = Doing(victim, "COMMIT")
    scene.points.waiter("requeued")
    scene.goes_on()
    notify(scene.sender, "d", "last")
    scene.points.release("requeued")
    assert doing.end() is None
    assert hear(victim, 46) == [*sent, "last"]


# ---- commits in another order ----

def test_notified_while_an_earlier_one_commits(scene):
    """Guards: a transaction that has its place in the queue, and is still committing, delays what comes behind it, so
    that all listeners receive it in one order; also a listener that runs a statement."""
    slow, quick = scene.connect(), scene.connect()
    doing = scene.stand_still("publish-reserved", slow, "NOTIFY c, 'slow'")
    quick.execute("NOTIFY c, 'quick'")
    listener = scene.listeners[0]
    listener.execute("SELECT 1")
    assert hear(listener, 1, 0.1) == []
    scene.points.release("publish-reserved")
    assert doing.end() is None
    scene.goes_on(["slow", "quick"])


def waits_in_vain_s(scene, leave: int, another_ends: bool) -> float:
    """How long the first of `leave` sessions waits, each of which has an UNLISTEN behind a commit that is held: from before
    it begins, so a machine under load only lengthens it."""
    first, second = scene.connect(), scene.connect()
    leaving = [scene.listener("other") for _ in range(leave)]
    doing = [scene.stand_still("publish-reserved", first, "NOTIFY c, 'first'"),
             scene.stand_still("publish-committed", second, "NOTIFY c, 'second'")]
    scene.sender.execute("NOTIFY other")
    began = monotonic()
    unlistening = [Doing(listener, "UNLISTEN other") for listener in leaving]
    for listener in leaving:
        until(lambda: wait_event(scene.watcher, pid_of(listener)) in ("HeraldDispatch", "Extension"), "it waits")
    if another_ends:
        scene.points.release("publish-reserved")
    until(lambda: not all(one.runs() for one in unlistening), "it is over")
    waited_s = monotonic() - began
    scene.points.release()
    assert [one.end() for one in [*doing, *unlistening]] == [None] * (2 + leave)
    scene.goes_on(["first", "second"])
    return waited_s


def test_unlisten_waits_as_long_beside_others_that_wait(scene):
    """Guards: an UNLISTEN waits its full time for a commit that is under way, however often it is woken meanwhile, by
    the end of another commit or for another session that waits as well: else it would miss what was answered before."""
    assert waits_in_vain_s(scene, 1, another_ends=False) >= COMMIT_WAIT_S
    for _ in range(4):
        assert waits_in_vain_s(scene, 2, another_ends=True) >= COMMIT_WAIT_S


# ---- files ----

def large(sender: psycopg.Connection, prefix: str = "") -> str:
    """A statement that sends MANY notifications."""
    return f"SELECT count(pg_notify('c', '{prefix}' || n)) FROM generate_series(1, {MANY}) n"


def test_large_transaction_fails_late(scene):
    """Guards: no harm is done if a large transaction fails after it has got its place in the queue, and another process
    deletes its file before it does so itself."""
    victim = scene.connect()
    scene.points.arm("publish-reserved", "wait", pid_of(victim))
    doing = Doing(victim, large(victim, "never sent "))
    scene.points.waiter("publish-reserved")
    assert len(files(scene.cluster.data)) == 1
    scene.points.arm("publish-dispatched", "wait", pid_of(victim))
    scene.watcher.execute("SELECT pg_cancel_backend(%s)", (pid_of(victim),))
    scene.points.waiter("publish-dispatched")
    scene.goes_on()  # the watchdog is woken, and finds a file that is not needed
    until(lambda: not files(scene.cluster.data), "the file is deleted")
    scene.points.release("publish-dispatched")
    assert isinstance(doing.end(), psycopg.errors.QueryCanceled)
    victim.execute(large(victim))
    scene.goes_on([str(n) for n in range(1, MANY + 1)])


@pytest.fixture
def little_room(scene):
    """Sets the queue's limit to 1 MB: the files have room for one large transaction."""
    def set_limit(sql: str, value: str) -> None:
        scene.watcher.execute(sql)
        scene.watcher.execute("SELECT pg_reload_conf()")
        until(lambda: one(scene.watcher, "SHOW herald.max_queue_size") == value, "the setting is known")

    set_limit("ALTER SYSTEM SET herald.max_queue_size = '1MB'", "1MB")
    yield
    set_limit("ALTER SYSTEM RESET herald.max_queue_size", "8GB")


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_file_of_a_transaction_in_its_commit(scene, little_room, end):
    """Guards: when the files exceed the limit, that of a transaction that is just committing is not discarded: no
    session has been able to read it yet. The transaction that comes too late fails."""
    count = 8000  # about 330 kB, twice of which exceeds the limit
    first, second = scene.connect(), scene.connect()
    statement = f"SELECT count(pg_notify('c', '%s ' || n)) FROM generate_series(1, {count}) n"
    doing = scene.stand_still("publish-reserved", first, statement % "first")
    with pytest.raises(psycopg.errors.ConfigurationLimitExceeded):
        second.execute(statement % "second")
    if end == "rollback":
        scene.watcher.execute("SELECT pg_cancel_backend(%s)", (pid_of(first),))
        assert isinstance(doing.end(), psycopg.errors.QueryCanceled)
    scene.points.release("publish-reserved")
    if end == "commit":
        assert doing.end() is None
    scene.goes_on([f"first {n}" for n in range(1, count + 1)] if end == "commit" else [])
    second.execute(statement % "second")
    scene.goes_on([f"second {n}" for n in range(1, count + 1)])


@pytest.mark.parametrize("point", ["spill-saved", "spill-published", "tail-moved"])
def test_reader_while_its_segment_is_spilled(scene, point):
    """Guards: a laggard that reads while the segment that it needs goes from memory to its file reads it from the one
    or the other [F1]."""
    laggard, spiller = scene.listener("d"), scene.connect()
    laggard.execute("BEGIN; SELECT 1")
    sent, doing = scene.send_until_standing(point, spiller, "d")
    laggard.execute("COMMIT")
    assert hear(laggard, len(sent) - 1) == sent[:-1]
    scene.points.release(point)
    assert doing.end() is None
    assert hear(laggard, 1) == sent[-1:]
    scene.goes_on()


def test_reader_while_its_file_is_deleted(scene, little_room):
    """Guards: a laggard whose file is discarded just when it is about to open it is notified that it has missed
    something; the others go on receiving."""
    laggard = scene.listener("d")
    laggard.execute("LISTEN herald_reset")
    laggard.execute("BEGIN; SELECT 1")
    for number in range(120):
        notify(scene.sender, "d", f"{number} {'x' * 7000}")
    its_files = files(scene.cluster.data)
    assert its_files
    scene.points.arm("files-open", "wait", pid_of(laggard))
    doing = Doing(laggard, "COMMIT")
    scene.points.waiter("files-open")
    for number in range(200):
        notify(scene.sender, "d", f"later {number} {'x' * 7000}")
    until(lambda: not any(file.exists() for file in its_files), "they are deleted")
    scene.points.release("files-open")
    assert doing.end() is None
    heard = hear(laggard, 1)
    assert heard == ["notifications were missed"], heard[:1]
    notify(scene.sender, "d", "next")
    until(lambda: hear(laggard, 1) == ["next"], "it hears what comes next")
    scene.goes_on()


def test_empty_transactions_that_always_fail(scene):
    """Guards: a listener to which nothing can be delivered, because each of the server's empty transactions fails, is
    disconnected after a few, instead of trying again for ever; the others receive."""
    victim = scene.listener()
    victim.execute("BEGIN; SELECT 1")
    scene.points.arm("deliver-called", "error", pid_of(victim), 1_000_000)
    scene.send()
    with pytest.raises(psycopg.Error):
        victim.execute("COMMIT")
        victim.execute("SELECT 1")
    until_gone(scene.watcher, pid_of(victim))
    assert 1 < scene.cluster.log().count('error at stop point "deliver-called"') < 6
    for listener in scene.listeners:
        assert len(hear(listener, 5)) == 5
    scene.goes_on()


def test_a_stranger_in_the_slot(scene):
    """Guards: herald.channels does not show another role's channel if that role's session takes over a slot during the
    scan."""
    scene.watcher.execute("CREATE ROLE visitor LOGIN")
    own, reader = scene.connect(), scene.connect()
    try:
        for session in (own, reader):
            session.execute("SET SESSION AUTHORIZATION visitor")
            session.execute("LISTEN own")
        slot, pid = scene.points.slot(own), pid_of(own)
        own.close()
        until_gone(scene.watcher, pid)
        scene.points.arm("view-channels", "wait", pid_of(reader))
        with ThreadPoolExecutor() as pool:
            rows = pool.submit(lambda: reader.execute("SELECT channel, listeners FROM herald.channels").fetchall())
            try:
                scene.points.waiter("view-channels")
                for _ in range(100):  # the server may give out other slots first
                    stranger = scene.listener("of_a_stranger")
                    if is_there := scene.points.slot(stranger) == slot:
                        break
                    stranger.close()
            finally:
                scene.points.release("view-channels")
            assert is_there and rows.result() == [("own", 1)]
    finally:
        reader.close()
        scene.watcher.execute("DROP ROLE visitor")
