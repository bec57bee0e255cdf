"""Sessions that change cached data, or begin to cache: stopped, ended, or failing at the worst moment.

No session finds a stale value; and values that must not be kept meanwhile are kept again afterwards.
"""

import os
import time
from contextlib import contextmanager

import psycopg
import pytest

from cache_scene import CHANGE, LOOK, RING, ROWS, CacheScene, look
from faults import Doing, pid_of
from harness.cluster import Cluster
from slow_commits import commit_slowly
from support import one, stopped, until

STOPPED_S = float(os.environ.get("HERALD_STOPPED_S", "0.2"))

pytestmark = pytest.mark.timeout(60 + 3 * STOPPED_S)

COMMITTER = ["invalidate-announced", "invalidate-published"]
JOINER = ["invalidation-joined", "invalidation-joined-and-asked"]
REPEATABLE = "BEGIN ISOLATION LEVEL REPEATABLE READ"


def end_writer(scene: CacheScene, point: str, writer: psycopg.Connection, doing: Doing, how: str) -> None:
    """A writer that is held before its commit goes on, or is ended."""
    if how == "commit":
        scene.points.release(point)
        assert doing.end() is None
    elif how == "cancel":
        scene.watcher.execute("SELECT pg_cancel_backend(%s)", (pid_of(writer),))
        assert isinstance(doing.end(), psycopg.errors.QueryCanceled)
    else:
        scene.end_session(writer)
        assert isinstance(doing.end(), psycopg.OperationalError)


# ---- a session that changes something ----

@pytest.mark.parametrize("action", ["terminate", "cancel", "error"])
@pytest.mark.parametrize("point", COMMITTER)
def test_committer_fails(caches, point, action):
    """Guards: a transaction that fails, or is ended, while it announces its changes has changed nothing; what was
    forgotten for it is kept again; if its session still exists, it can try again."""
    victim = caches.reader()
    caches.points.arm(point, action, pid_of(victim))
    with pytest.raises(psycopg.Error):
        victim.execute(CHANGE)
    caches.points.reached(point)
    for reader in caches.readers:
        assert caches.kept(reader) == ROWS - (point == "invalidate-published")
        assert caches.kept(reader) == ROWS
    caches.goes_on()
    if action != "terminate":
        assert caches.kept(victim) < ROWS and caches.kept(victim) == ROWS
        victim.execute(CHANGE)
        caches.goes_on(also=[victim])


@pytest.mark.parametrize("how", ["commit", "cancel", "terminate"])
@pytest.mark.parametrize("point", COMMITTER)
def test_committer_stands_still(caches, point, how):
    """Guards: while a writer is held before its commit, no session keeps what may be old then; all keep it when the
    commit is over, however it ends."""
    victim, joiner, old = caches.connect(), caches.connect(), caches.reader()
    old.execute(f"{REPEATABLE}; {LOOK}")
    doing = caches.stand_still(point, victim, CHANGE)
    known = 1 if point == "invalidate-published" else 0
    for _ in range(2):
        for reader in caches.readers:
            assert caches.kept(reader) == ROWS - known
        assert caches.kept(joiner) == 0  # it cannot know which keys are announced
    end_writer(caches, point, victim, doing, how)
    forgotten = 1 if how == "commit" else known
    for reader in caches.readers:
        assert caches.kept(reader) == ROWS - forgotten and caches.kept(reader) == ROWS
    assert caches.kept(joiner) == 0 and caches.kept(joiner) == ROWS
    look(old)
    old.execute("COMMIT")
    assert caches.kept(old) == ROWS - forgotten and caches.kept(old) == ROWS
    caches.goes_on(also=[joiner, old])


@pytest.mark.parametrize("point", COMMITTER)
def test_committer_is_stopped(caches, point):
    """Guards: the same if the process does not run at all (SIGSTOP), while other sessions change data, and join."""
    victim = caches.connect()
    doing = caches.stand_still(point, victim, CHANGE)
    known = 1 if point == "invalidate-published" else 0
    with stopped(pid_of(victim)):
        caches.points.release(point)
        end = time.monotonic() + STOPPED_S
        while True:
            caches.writer.execute("UPDATE item SET v = v + 1 WHERE k > 1")
            for reader in caches.readers:
                assert caches.kept(reader) == 1 - known and caches.kept(reader) == ROWS - known
            with caches.connect() as joiner:
                assert caches.kept(joiner) == 0 and caches.kept(joiner) == 0
            if time.monotonic() > end:
                break
    assert doing.end() is None
    caches.goes_on(also=[caches.reader()])


@contextmanager
def nobody_confirms(cluster: Cluster, connection: psycopg.Connection):
    """Within the block, commits wait for a standby that does not exist."""
    connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    connection.execute("SELECT pg_reload_conf()")
    try:
        yield
    finally:
        connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
        connection.execute("SELECT pg_reload_conf()")


@pytest.mark.parametrize("how", ["confirmed", "canceled"])
def test_commit_waits_for_a_standby(caches, how):
    """Guards: a committed change that waits for its standby before it becomes visible is seen by no session; what is
    computed meanwhile is not kept; afterwards all sessions see the change, and keep it."""
    victim, joiner, old = caches.connect(), caches.connect(), caches.reader()
    old.execute(f"{REPEATABLE}; {LOOK}")
    with nobody_confirms(caches.cluster, caches.watcher):
        until(lambda: one(victim, "SHOW synchronous_standby_names") == "nobody", "it waits for a standby")
        doing = commit_slowly(caches.watcher, victim, CHANGE)
        for _ in range(3):
            for reader in caches.readers:
                assert caches.kept(reader) == ROWS - 1
            assert caches.kept(joiner) == 0
            look(old)
        if how == "canceled":
            caches.watcher.execute("SELECT pg_cancel_backend(%s)", (pid_of(victim),))
            assert doing.end() is None  # with a warning: it is committed locally
    assert doing.end() is None
    for reader in caches.readers:
        assert caches.kept(reader) == ROWS - 1 and caches.kept(reader) == ROWS
    assert caches.kept(joiner) == 0 and caches.kept(joiner) == ROWS
    look(old)
    old.execute("COMMIT")
    assert caches.kept(old) == ROWS - 1 and caches.kept(old) == ROWS
    until(lambda: one(caches.writer, "SHOW synchronous_standby_names") == "", "nobody waits any more")
    caches.goes_on(also=[joiner, old])


# ---- a session that begins to cache ----

@pytest.mark.parametrize("how", ["commit", "cancel", "terminate"])
@pytest.mark.parametrize("joining_at", JOINER)
@pytest.mark.parametrize("committing_at", COMMITTER)
def test_joins_while_one_commits(caches, committing_at, joining_at, how):
    """Guards: a session that joins while another is between announcing its change and having committed it, and whose
    snapshot does not see the change, does not keep what it finds, even if the commit is finished first."""
    victim, joiner = caches.connect(), caches.connect()
    writing = caches.stand_still(committing_at, victim, CHANGE)
    joining = caches.stand_still(joining_at, joiner, LOOK)
    end_writer(caches, committing_at, victim, writing, how)
    caches.writer.execute("UPDATE item SET v = v + 1 WHERE k = 2")
    caches.points.release(joining_at)
    assert joining.end() is None
    assert caches.kept(joiner) == 0 and caches.kept(joiner) == ROWS
    caches.goes_on(also=[joiner])


@pytest.mark.parametrize("how", ["commit", "cancel"])
@pytest.mark.parametrize("joining_at", JOINER)
@pytest.mark.parametrize("committing_at", COMMITTER)
def test_joins_anew_while_one_commits(caches, committing_at, joining_at, how):
    """Guards: an overrun session does not cache values older than the reset, in a transaction whose only snapshot is older."""
    victim, joiner = caches.connect(), caches.reader()
    joiner.execute(f"{REPEATABLE}; {LOOK}")
    writing = caches.stand_still(committing_at, victim, CHANGE)
    caches.flood(RING + 64)
    joining = caches.stand_still(joining_at, joiner, LOOK)
    end_writer(caches, committing_at, victim, writing, how)
    caches.writer.execute("UPDATE item SET v = v + 1 WHERE k = 2")
    caches.points.release(joining_at)
    assert joining.end() is None
    assert caches.resets(joiner) == 1
    look(joiner)
    joiner.execute("COMMIT")
    assert caches.kept(joiner) == 0 and caches.kept(joiner) == ROWS
    caches.goes_on(also=[joiner])


@pytest.mark.parametrize("committing_at", COMMITTER)
@pytest.mark.parametrize("joining_at", JOINER)
def test_commits_after_one_has_joined(caches, joining_at, committing_at):
    """Guards: a session that is held while it joins learns of all changes that are announced meanwhile, or were
    announced before and are committed afterwards; also if they are more than the queue holds."""
    for messages in (0, RING + 64):
        victim, joiner = caches.connect(), caches.connect()
        joining = caches.stand_still(joining_at, joiner, LOOK)
        writing = caches.stand_still(committing_at, victim, CHANGE)
        caches.flood(messages)
        caches.points.release(joining_at)
        assert joining.end() is None
        # If it does not know what is announced, it keeps nothing until that transaction is over.
        knows = joining_at == "invalidation-joined-and-asked" and messages == 0
        known = 1 if committing_at == "invalidate-published" else 0
        assert caches.kept(joiner) == (ROWS - known if knows else 0)
        caches.points.release(committing_at)
        assert writing.end() is None
        assert caches.kept(joiner) == (ROWS - 1 if knows else 0) and caches.kept(joiner) == ROWS
        assert caches.resets(joiner) == (1 if messages > 0 else 0)
    caches.goes_on(also=[joiner])


@pytest.mark.parametrize("action", ["terminate", "cancel"])
@pytest.mark.parametrize("point", JOINER)
def test_joiner_is_ended(caches, point, action):
    """Guards: a session that is ended, or cancelled, while it joins leaves nothing, or can try again."""
    victim = caches.connect()
    caches.points.arm(point, action, pid_of(victim))
    with pytest.raises(psycopg.Error):
        look(victim)
    caches.points.reached(point)
    caches.goes_on()
    if action == "cancel":
        assert caches.kept(victim) < ROWS and caches.kept(victim) == ROWS
        caches.goes_on(also=[victim])


@pytest.mark.parametrize("committing_at", COMMITTER)
def test_joiner_fails(caches, committing_at):
    """Guards: a session that fails in the middle of joining, e.g. for lack of memory for a snapshot, has not joined:
    when it tries again, it does not keep what another session is changing."""
    victim, joiner = caches.connect(), caches.connect()
    writing = caches.stand_still(committing_at, victim, CHANGE)
    caches.points.arm("invalidation-joined-and-asked", "error", pid_of(joiner))
    with pytest.raises(psycopg.errors.InternalError_):
        look(joiner)
    assert caches.kept(joiner) == 0 and caches.kept(joiner) == 0
    caches.points.release(committing_at)
    assert writing.end() is None
    assert caches.kept(joiner) == 0 and caches.kept(joiner) == ROWS
    caches.goes_on(also=[joiner])


@pytest.mark.parametrize("point", JOINER)
def test_joiner_is_stopped(caches, point):
    """Guards: a session that does not run at all while it joins (SIGSTOP) blocks no other session."""
    victim = caches.connect()
    doing = caches.stand_still(point, victim, LOOK)
    with stopped(pid_of(victim)):
        caches.points.release(point)
        end = time.monotonic() + STOPPED_S
        while time.monotonic() < end:
            caches.goes_on()
    assert doing.end() is None
    caches.goes_on(also=[victim])
