"""A change of settings beside transactions that notify: on which side of it each of them is, and which of them wait."""

import psycopg
import pytest

from faults import Doing, Points, pid_of
from servers import need_library
from settings import ALTER, SET, is_logged, put
from support import hear, notify, one, outcome, until, until_gone
from wal import Wal, pairs

pytestmark = pytest.mark.seam


@pytest.fixture
def wal(open_one):
    """The WAL of the server, from the beginning of the test on."""
    need_library("pg_walinspect")
    watcher = open_one()
    watcher.execute("CREATE EXTENSION pg_walinspect")
    return Wal(watcher)


def logged(wal: Wal) -> list[tuple[str, str]]:
    """The notifications and settings in the WAL, in their order; of settings, the channel and "set"."""
    found = []
    for message in wal.messages():
        if message.kind() == "notifications":
            found += pairs(message.content())
        elif message.kind() == "setting":
            found.append((message.content()["channel"], "set"))
    return found


def waits(watcher: psycopg.Connection, session: psycopg.Connection, kind: str = "Extension") -> bool:
    """Whether a session waits; a wait event of ours has its own name from PostgreSQL 17 on."""
    found = watcher.execute("SELECT wait_event_type, wait_event FROM pg_stat_activity WHERE pid = %s",
                            (pid_of(session),)).fetchone()
    return found[0] == kind and (kind == "Lock" or found[1] in ("HeraldSettings", "Extension"))


def held(points: Points, point: str, session: psycopg.Connection, sql: str) -> Doing:
    """A statement that is held at a point."""
    points.arm(point, "wait", pid_of(session))
    doing = Doing(session, sql)
    assert points.waiter(point) == pid_of(session)
    return doing


def is_certain(session: psycopg.Connection, wal: Wal) -> bool:
    """Whether a notification on a channel that is not logged is not logged: no change is under way."""
    before = len(logged(wal))
    notify(session, "never_logged", "x")
    return len(logged(wal)) == before


# ---- waits ----

@pytest.mark.parametrize("point", ["settings-announced", "publish-reserve", "publish-logged"])
def test_change_waits_for_senders(open_one, points, wal, point):
    """Guards: [X5] a change waits before its commit for transactions that are committing by older settings, wherever they
    stand; those that come meanwhile do not wait, and log everything."""
    setter, early, late, watcher = (open_one() for _ in range(4))
    sending = held(points, point, early, "NOTIFY a, 'early'")
    changing = Doing(setter, "SELECT herald.set_channel('a', true)")
    until(lambda: waits(watcher, setter), "the change waits for the sender")
    for session in (late, open_one(), late):
        session.execute("SET statement_timeout = '15s'")
        notify(session, "a", "late")
        notify(session, "b", "late")
    assert is_logged(watcher, "a") == [False] and changing.runs()
    assert logged(wal) == [("a", "late"), ("b", "late")] * 3
    points.release()
    assert sending.end() is None and changing.end() is None
    for session in (early, late, open_one()):
        notify(session, "a", "new")
        notify(session, "b", "new")
    if point == "settings-announced":  # it looks again, and finds that the version has moved
        assert sorted(logged(wal)[6:8]) == [("a", "early"), ("a", "set")]
    else:
        assert logged(wal)[6:7] == [("a", "set")]
    assert logged(wal)[-3:] == [("a", "new")] * 3


def test_change_waits_for_all(decoding, connect, open_one, points, wal):
    """Guards: [X5] for each of several, also for those that fail, and not for those of another database."""
    setter, watcher, *senders = (open_one() for _ in range(5))
    elsewhere = held(points, "publish-committed", connect(decoding), "NOTIFY a, 'x'")
    places = ("settings-announced", "publish-reserve", "publish-logged")
    sending = [held(points, point, session, "NOTIFY a, 'early'") for point, session in zip(places, senders)]
    changing = Doing(setter, "SELECT herald.set_channel('a', true)")
    until(lambda: waits(watcher, setter), "the change waits")
    for point, session, doing in zip(places, senders, sending):
        assert changing.runs() and waits(watcher, setter)
        session.cancel()
        points.release(point)
        assert isinstance(doing.end(), psycopg.errors.QueryCanceled)
    assert changing.end() is None
    assert elsewhere.runs()
    points.release()
    assert elsewhere.end() is None
    assert logged(wal) == [("a", "set")]


def test_sender_in_another_version(open_one, points, wal):
    """Guards: [X5] a change waits for a sender that announced an odd version, of a change before this one."""
    first, second, sender, watcher = (open_one() for _ in range(4))
    changing = held(points, "settings-alone", first, "SELECT herald.set_channel('a', true)")
    sending = held(points, "publish-logged", sender, "NOTIFY a, 'between'")
    points.release("settings-alone")
    assert changing.end() is None
    again = Doing(second, "SELECT herald.set_channel('a', false)")
    until(lambda: waits(watcher, second), "the second change waits")
    points.release()
    assert sending.end() is None and again.end() is None
    assert [what for _, what in logged(wal)] in (["between", "set", "set"], ["set", "between", "set"])


def test_open_transactions_do_not_wait(open_one, wal):
    """Guards: a change waits neither for a transaction that has notified, and is not committing, nor one that has changed
    settings and is not committing makes others log."""
    setter, sender, other = (open_one() for _ in range(3))
    sender.execute("BEGIN; NOTIFY a, 'old'; NOTIFY b, 'b'")
    setter.execute("BEGIN")
    put(setter, a=True)
    assert is_certain(other, wal)
    setter.execute("SET LOCAL statement_timeout = '15s'; COMMIT")
    sender.execute("COMMIT")
    assert logged(wal)[0] == ("a", "set") and ("a", "old") in logged(wal)
    notify(sender, "b", "certain again")
    assert ("b", "certain again") not in logged(wal)


# ---- how it ends ----

@pytest.mark.parametrize("how", ["cancel", "terminate"])
def test_wait_is_ended(open_one, points, wal, how):
    """Guards: the wait for senders can be cancelled; then the settings are as before, for all, and no change is under
    way."""
    setter, sender, other, watcher = (open_one() for _ in range(4))
    sending = held(points, "publish-logged", sender, "NOTIFY a, 'old'")
    changing = Doing(setter, "SELECT herald.set_channel('a', true)")
    until(lambda: waits(watcher, setter), "the change waits")
    watcher.execute(f"SELECT pg_{how}_backend({pid_of(setter)})")
    assert changing.end().sqlstate == {"terminate": "57P01", "cancel": "57014"}[how]
    if how == "terminate":
        until_gone(watcher, pid_of(setter))
    assert is_certain(other, wal) and is_logged(other, "a") == [False]
    points.release()
    assert sending.end() is None
    put(other, a=True)
    assert logged(wal) == [("a", "set")] and is_logged(other, "a") == [True]


@pytest.mark.parametrize("action", ["error", "cancel", "terminate"])
@pytest.mark.parametrize("point", ["settings-odd", "settings-alone"])
def test_change_fails(open_one, points, wal, point, action):
    """Guards: a change that fails in the middle of its commit leaves the settings as they were, and no change under way."""
    setter, other, watcher = (open_one() for _ in range(3))
    put(other, z=True)
    points.arm(point, action, pid_of(setter))
    assert outcome(setter, SET, "a", True) != [("",)]
    points.reached(point)
    if action == "terminate":
        until_gone(watcher, pid_of(setter))
        setter = open_one()
    for session in (setter, other):
        assert is_certain(session, wal) and is_logged(session, "a", "z") == [False, True]
    put(setter, a=True)
    assert is_certain(setter, wal) and is_certain(other, wal)
    assert is_logged(other, "a", "z") == [True, True]


def test_commit_fails_after_the_wait(open_one, wal):
    """Guards: the same for a transaction that fails after that, as by another module's callback: by a deferred constraint."""
    setter, other = open_one(), open_one()
    setter.execute("CREATE TABLE parent (id int PRIMARY KEY);"
                   "CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED)")
    setter.execute("BEGIN; INSERT INTO child VALUES (1)")
    put(setter, a=True)
    assert outcome(setter, "COMMIT").startswith("23503")
    assert is_certain(other, wal) and is_logged(other, "a") == [False]


# ---- several changes ----

def test_changes_come_one_by_one(open_one):
    """Guards: a second transaction that changes settings waits for the first at once, so neither fails nor deadlocks;
    whatever settings there are."""
    first, second, third, watcher = (open_one() for _ in range(4))
    for settings in ({"a": True}, {"a": False}, {"a": None}):
        first.execute("BEGIN")
        put(first, settings)
        second.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT")
        changing = [Doing(second, "SELECT herald.set_channel('b', true)"), Doing(third, "SELECT herald.set_channel('d', true)")]
        until(lambda: waits(watcher, second, "Lock") and waits(watcher, third, "Lock"), "the others wait")
        put(first, c=True)
        first.execute("COMMIT")
        if changing[0].runs():
            until(lambda: not changing[0].runs() or not changing[1].runs(), "one of them goes on")
        if not changing[0].runs():
            second.execute("COMMIT")
        assert [doing.end() for doing in changing] == [None, None]
        outcome(second, "COMMIT")
        assert is_logged(watcher, "b", "c", "d") == [True, True, True]
        put(watcher, b=None, c=None, d=None)


def test_many_change_at_once(open_one, wal):
    """Guards: sessions that change settings at the same time, beside senders: all succeed; afterwards no change is under
    way."""
    setters, sender = [open_one() for _ in range(4)], open_one()
    doing = [Doing(session, f"DO $$ BEGIN FOR n IN 1..20 LOOP PERFORM herald.set_channel('{name}', n % 2 = 0);"
                            " COMMIT; END LOOP; END $$") for session, name in zip(setters, "abcd")]
    while any(each.runs() for each in doing):
        sender.execute("NOTIFY never_logged, 'x'")
    assert [each.end() for each in doing] == [None] * 4
    assert is_logged(sender, *"abcd") == [True] * 4
    assert is_certain(sender, wal)


def test_next_change_does_not_overtake(open_one, points, wal):
    """Guards: [X5] a change that begins when the one before is committed, but has not ended, leaves no moment at which
    senders are certain of the settings from before it."""
    first, second, watcher = (open_one() for _ in range(3))
    put(watcher, z=True)
    ending = held(points, "settings-end", first, "SELECT herald.set_channel('y', true)")
    points.arm("settings-alone", "wait", pid_of(second))
    changing = Doing(second, "SELECT herald.set_channel('a', true)")
    until(lambda: points.standing("settings-alone") or waits(watcher, second, "Lock"), "the second waits")
    assert not is_certain(watcher, wal)
    points.release("settings-end")
    assert ending.end() is None
    points.waiter("settings-alone")
    assert not is_certain(watcher, wal)
    points.release()
    assert changing.end() is None
    assert is_certain(watcher, wal) and is_logged(watcher, "a", "y", "z") == [True] * 3


def test_change_does_not_wait_for_delivery(open_one, points, wal):
    """Guards: a change does not wait for a commit that is visible, and is not delivered yet; nor do senders."""
    setter, sender, other = (open_one() for _ in range(3))
    sending = held(points, "publish-committed", sender, "NOTIFY a, 'old'")
    changing = Doing(setter, "SELECT herald.set_channel('a', true)")
    assert changing.end() is None and sending.runs()
    assert is_certain(other, wal)
    points.release()
    assert sending.end() is None
    assert logged(wal) == [("a", "set")]


def test_alter_waits_as_well(open_one, points, wal):
    """Guards: a change by a statement on the server waits for senders, and for another change."""
    setter, sender, other, watcher = (open_one() for _ in range(4))
    put(watcher, a=True)
    sending = held(points, "publish-logged", sender, "NOTIFY b, 'old'")
    changing = Doing(setter, f"{ALTER} OPTIONS (SET logged '{{b}}')")
    until(lambda: waits(watcher, setter), "it waits for the sender")
    again = Doing(other, "SELECT herald.set_channel('c', true)")
    until(lambda: waits(watcher, other, "Lock"), "the next one waits for it")
    points.release()
    assert sending.end() is None and changing.end() is None and again.end() is None
    assert is_logged(watcher, "a", "b", "c") == [False, True, True]


# ---- a transaction that does both ----

def test_own_notifications_follow_a_change(open_one, wal):
    """Guards: a transaction that changes a setting and notifies commits both, in one statement too, and logs everything."""
    session, listener = open_one(), open_one()
    listener.execute("LISTEN a")
    session.execute("SELECT herald.set_channel('a', true), pg_notify('a', 'one')")
    session.execute("BEGIN; NOTIFY a, 'two'; SELECT herald.set_channel('a', false); COMMIT")
    session.execute("BEGIN; SELECT herald.set_channel('x', true); NOTIFY a, 'three'; COMMIT")
    assert hear(listener, 3) == ["one", "two", "three"]
    assert [payload for _, payload in logged(wal)] == ["set", "one", "set", "two", "set", "three"]


def test_sender_read_older_settings(open_one, points, wal):
    """Guards: [X5] a session that read the settings while they were changed logs what it is not sure of."""
    setter, sender = open_one(), open_one()
    reading = held(points, "settings-read", sender, "NOTIFY a, 'x'")
    put(setter, a=True)
    points.release()
    assert reading.end() is None
    sender.execute("BEGIN; NOTIFY b, 'y'")
    put(setter, b=True)
    sender.execute("COMMIT")
    assert [(channel, what) for channel, what in logged(wal) if what != "set"] == [("a", "x"), ("b", "y")]
