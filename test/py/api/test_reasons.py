"""Signal reasons registered by other modules (test/modules/herald_client)."""

import os
import signal

import pytest

from c_api import LOADED, build_folder, handled_in, make, opener, with_client
from faults import Doing
from harness.cluster import Cluster, ClusterError
from servers import SETTINGS
from support import context_switches, hear, notify, one, outcome, reconnect, stopped, until, until_gone

pytestmark = pytest.mark.seam

REASONS_MAX = 31
STAND_STILL = "pg_advisory_xact_lock(1)"
TOO_MANY = "54000: too many reasons to signal are registered"


@pytest.fixture(scope="module")
def preloaded(pg_config):
    """A server in whose postmaster the reason is registered."""
    yield from with_client(pg_config, LOADED["preloaded last"])


@pytest.fixture(scope="module")
def server(pg_config):
    """A server in which each session registers the reason itself."""
    yield from with_client(pg_config, LOADED["by the session"])


@pytest.fixture
def session(server, connect):
    """session() opens a connection to the server that has registered the reason."""
    return opener(connect, server)


@pytest.fixture
def sender(session):
    """A session that sends; it holds advisory lock 1, for which other sessions can wait."""
    connection = session()
    connection.execute("SELECT pg_advisory_lock(1)")
    return connection


def send(sender, target) -> bool:
    """Sends reason herald_client to a session; returns whether it was sent."""
    return one(sender, "SELECT client.send(%s)", target.info.backend_pid)


def handles(cluster: Cluster, target, times: int = 1) -> None:
    """Waits until the target has run the handler `times` times in all, without running a statement there."""
    until(lambda: handled_in(cluster, target.info.backend_pid) >= times, "the handler runs")
    assert handled_in(cluster, target.info.backend_pid) == times


def stand_still(sender, target, sql: str) -> Doing:
    """Lets the target run a statement in which it waits for the sender's lock."""
    doing = Doing(target, sql)
    until(lambda: one(sender, "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted",
                      target.info.backend_pid), "the target stands still")
    return doing


def let_go(sender, doing: Doing) -> object:
    """Releases the lock; returns how the target's statement ends."""
    sender.execute("SELECT pg_advisory_unlock(1)")
    return doing.end()


def signal_arrived(target) -> None:
    """Waits until an idle target, in whatever state, has woken up for an earlier signal, and sleeps again."""
    pid = target.info.backend_pid
    before = context_switches(pid)
    os.kill(pid, signal.SIGUSR1)
    until(lambda: context_switches(pid) > before, "the target has been awake")


def test_idle(server, session, sender):
    """Guards: an idle session runs the handler at once, each time, and its client receives nothing."""
    target = session()
    for times in range(1, 4):
        assert send(sender, target) is True
        handles(server, target, times)
    assert one(target, "SELECT client.handled()") == 3


def test_registered_in_the_postmaster(preloaded, connect):
    """Guards: a reason registered while preloading reaches sessions that have not used the module."""
    target, sender = connect(preloaded), connect(preloaded)
    assert send(sender, target) is True
    handles(preloaded, target)


def test_busy_next_statement(server, session, sender):
    """Guards: a session that is running a statement runs the handler with its next one, in the same transaction."""
    target = session()
    target.execute("CREATE TEMP TABLE seen (handled integer)")
    doing = stand_still(sender, target, f"INSERT INTO seen SELECT client.handled() FROM {STAND_STILL};"
                                        "INSERT INTO seen SELECT client.handled()")
    assert send(sender, target) is True
    assert let_go(sender, doing) is None
    assert target.execute("SELECT handled FROM seen").fetchall() == [(0,), (1,)]


def test_busy_commit(server, session, sender):
    """Guards: a session that is running its only statement runs the handler with the commit."""
    target = session()
    doing = stand_still(sender, target, f"SELECT {STAND_STILL}")
    assert send(sender, target) is True
    assert handled_in(server, target.info.backend_pid) == 0
    assert let_go(sender, doing) is None
    handles(server, target)


@pytest.mark.parametrize("end", ["SELECT 1", "COMMIT", "ROLLBACK"])
def test_idle_in_transaction(server, session, sender, end):
    """Guards: in an idle transaction block the handler does not run; it does with the next statement of the block."""
    target = session()
    target.execute("BEGIN; SELECT 1")
    assert send(sender, target) is True
    signal_arrived(target)
    assert handled_in(server, target.info.backend_pid) == 0
    target.execute(end)
    handles(server, target)


@pytest.mark.parametrize("sent", ["before", "after"])
@pytest.mark.parametrize("begin, end", [
    ("BEGIN", "ROLLBACK"), ("BEGIN", "COMMIT"),
    ("BEGIN; SAVEPOINT s", "ROLLBACK"), ("BEGIN; SAVEPOINT s", "ROLLBACK TO s; COMMIT")])
def test_failed_block(server, session, sender, sent, begin, end):
    """Guards: in a failed block no handler runs, even if the reason was sent before the failure; it runs when the
    client has ended the block, without another statement."""
    target = session()
    target.execute(begin)
    doing = stand_still(sender, target, f"DO $$ BEGIN PERFORM {STAND_STILL}; RAISE 'failed'; END $$")
    if sent == "before":
        assert send(sender, target) is True
    assert "failed" in str(let_go(sender, doing))
    if sent == "after":
        assert send(sender, target) is True
    signal_arrived(target)
    assert outcome(target, "SELECT 1").startswith("25P02")
    assert handled_in(server, target.info.backend_pid) == 0
    target.execute(end)
    handles(server, target)
    assert one(sender, "SELECT backend_xmin IS NULL FROM pg_stat_activity WHERE pid = %s",
               target.info.backend_pid)


@pytest.mark.parametrize("sql", [
    f"DO $$ BEGIN PERFORM {STAND_STILL}; RAISE 'an error'; END $$",
    # Locking a table processes the server's own invalidations, which uses up the signal.
    f"SELECT CASE WHEN {STAND_STILL} IS NOT NULL THEN 1 / (pg_relation_size('client.setting') * 0) END",
], ids=["signalled", "signal used up"])
def test_aborted(server, session, sender, sql):
    """Guards: a session whose transaction fails at that moment runs the handler when it is idle."""
    target = session()
    doing = stand_still(sender, target, sql)
    assert send(sender, target) is True
    assert let_go(sender, doing) is not None
    handles(server, target)


def test_cancelled(server, session, sender):
    """Guards: a session whose statement is cancelled at that moment runs the handler when it is idle."""
    target = session()
    doing = stand_still(sender, target, f"SELECT {STAND_STILL}")
    assert send(sender, target) is True
    sender.execute("SELECT pg_cancel_backend(%s)", (target.info.backend_pid,))
    assert "canceling" in str(doing.end())
    handles(server, target)


def test_coalesced(server, session, sender):
    """Guards: a reason sent several times before the handler runs makes it run once; sent afterwards, once more."""
    target = session()
    with stopped(target.info.backend_pid):
        assert [send(sender, target) for _ in range(5)] == [True] * 5
    handles(server, target)
    assert send(sender, target) is True
    handles(server, target, 2)


def test_two_reasons(server, session, sender):
    """Guards: two reasons that arrive together each run their own handler."""
    target = session()
    for connection in (sender, target):
        connection.execute("SELECT client.register_reason('second')")
    with stopped(target.info.backend_pid):
        assert send(sender, target) is True
        assert one(sender, "SELECT client.send(%s, 'second')", target.info.backend_pid) is True
    handles(server, target)
    until(lambda: handled_in(server, target.info.backend_pid, "second") == 1, "the other handler runs")


def test_no_such_receiver(server, session, sender, connect):
    """Guards: the answer is false for a process that has ended, or has registered no reason, or not this one."""
    gone, registered, never = session(), session(), connect(server)
    pid = gone.info.backend_pid
    assert send(sender, gone) is True
    gone.close()
    until_gone(sender, pid)
    for nobody in (pid, 0, -1, 2**31 - 1, server.postmaster_pid(), never.info.backend_pid):
        assert one(sender, "SELECT client.send(%s)", nobody) is False
    sender.execute("SELECT client.register_reason('of the sender alone')")
    assert one(sender, "SELECT client.send(%s, 'of the sender alone')", registered.info.backend_pid) is False
    assert send(sender, registered) is True


def test_next_owner_of_the_slot(server, session, sender):
    """Guards: a reason sent to a session that has ended does not reach the session that takes its slot. (That is the
    next session, since the first free slot is used.)"""
    for _ in range(5):
        target = session()
        target.execute("BEGIN; SELECT 1")
        assert handled_in(server, target.info.backend_pid) == 0
        assert one(target, "SELECT client.handled()") == 0
        with stopped(target.info.backend_pid):
            assert send(sender, target) is True
            os.kill(target.info.backend_pid, signal.SIGTERM)
        until_gone(sender, target.info.backend_pid)


def test_exit_with_temporary_tables(session, sender):
    """Guards: a session that has to catch up as it ends, and drops its temporary tables after it has left the queue of
    invalidations, does not join the queue again: it would never leave it."""
    target = session()
    target.execute("CREATE TEMP TABLE mine (k integer)")
    target.execute("SELECT herald.cache_through('some', 'SELECT 1')")
    pid = target.info.backend_pid
    with stopped(pid):
        sender.execute("SELECT count(herald.cache_invalidate('c' || n / 1000, n::text))"
                       " FROM generate_series(1, 9000) n")
        os.kill(pid, signal.SIGTERM)
    until_gone(sender, pid)
    assert one(sender, "SELECT count(*) FROM herald.caches") == 0


def test_to_itself(server, session):
    """Guards: a session can send to itself, and runs the handler at its commit, or with its next statement."""
    target = session()
    assert send(target, target) is True
    handles(server, target)
    with target.transaction():
        assert send(target, target) is True
        assert one(target, "SELECT client.handled()") == 2
    assert one(target, "SELECT client.handled()") == 2


def test_registered_twice(server, session):
    """Guards: if a reason is registered again, only the new handler runs."""
    target = session()
    for _ in range(2):
        target.execute("SELECT client.register_reason('twice')")
    assert one(target, "SELECT client.send(pg_backend_pid(), 'twice')") is True
    until(lambda: handled_in(server, target.info.backend_pid, "twice") == 1, "the handler runs")
    assert one(target, "SELECT client.handled('twice')") == 0  # the first handler's count


def test_names(session):
    """Guards: invalid names are refused; the longest valid one is not, and names are compared to their end."""
    connection = session()
    wrong = "42602: name of a reason must have 1 to 63 bytes"
    for name in ("", "x" * 64, "ä" * 32):
        assert outcome(connection, "SELECT client.register_reason(%s)", name) == wrong
    for end in "12":
        connection.execute("SELECT client.register_reason(%s)", ("x" * 62 + end,))
    assert one(connection, "SELECT client.send(pg_backend_pid(), %s)", "x" * 62 + "2") is True
    assert [one(connection, "SELECT client.handled(%s)", "x" * 62 + end) for end in "12"] == [0, 1]


@pytest.mark.parametrize("libraries", [LOADED["preloaded last"], LOADED["by the session"]],
                         ids=["preloaded", "by the session"])
def test_too_many(pg_config, connect, libraries):
    """Guards: a server accepts 31 reasons, one of which is pg_herald_cache's, from any sessions; it refuses the next one until it restarts; registered
    reasons keep working."""
    for cluster in with_client(pg_config, libraries):
        session = opener(connect, cluster)
        first, second = session(), session()
        for number in range(1, REASONS_MAX - 1):  # those of herald_client and pg_herald_cache are registered already
            (first, second)[number % 2].execute("SELECT client.register_reason(%s)", (f"reason {number}",))
        for connection in (first, second, session()):
            assert outcome(connection, "SELECT client.register_reason('one more')") == TOO_MANY
            assert outcome(connection, "SELECT client.register_reason('reason 1')") == [("",)]
        assert send(first, second) is True
        handles(cluster, second)
        cluster.restart()
        assert outcome(session(), "SELECT client.register_reason('one more')") == [("",)]


@pytest.fixture
def with_reasons(pg_config):
    """with_reasons(count): a cluster, not started, and a module that registers `count` reasons while preloading."""
    with build_folder() as folder:
        def make_cluster(count: int) -> tuple[Cluster, str]:
            make(folder, pg_config, f"COPT=-DREASONS_AT_START={count}")
            library = str(folder / "herald_client")
            return Cluster(pg_config=pg_config, settings=SETTINGS | {
                "shared_preload_libraries": f"pg_herald, {library}"}), library

        yield make_cluster


def test_as_many_as_possible_in_the_postmaster(with_reasons, connect):
    """Guards: 31 reasons can be registered while preloading, and each session has all of them."""
    cluster, library = with_reasons(REASONS_MAX)
    with cluster:
        target, sender = connect(cluster), connect(cluster)
        for function, result in (("send(integer, text)", "boolean"), ("register_reason(text)", "void")):
            sender.execute(f"CREATE FUNCTION pg_temp.{function} RETURNS {result} LANGUAGE C"
                           f" AS '{library}', 'client_{function.split('(')[0]}'")
        for name in ("herald_client", "reason 2", "reason 31"):
            assert one(sender, "SELECT pg_temp.send(%s, %s)", target.info.backend_pid, name) is True
            until(lambda: handled_in(cluster, target.info.backend_pid, name) == 1, "the handler runs")
        assert outcome(sender, "SELECT pg_temp.register_reason('one more')") == TOO_MANY
        assert not cluster.damage(), cluster.damage()


def test_too_many_in_the_postmaster(with_reasons):
    """Guards: with one more the server does not start, and reports why; it must not start and then refuse every
    connection."""
    cluster, _ = with_reasons(REASONS_MAX + 1)
    with pytest.raises(ClusterError, match="FATAL:  too many reasons to signal are registered"), cluster:
        pass


@pytest.mark.parametrize("first", ["notification", "reason"])
def test_reason_of_a_listener(server, session, sender, first):
    """Guards: an idle listener receives a notification and a reason, in either order: its client gets the notification
    without a query, and the handler runs."""
    target = session()
    target.execute("LISTEN c")
    for times in range(1, 4):
        with stopped(target.info.backend_pid):
            if first == "notification":
                notify(sender, "c", str(times))
            assert send(sender, target) is True
            if first == "reason":
                notify(sender, "c", str(times))
        assert hear(target, 1) == [str(times)]
        handles(server, target, times)
    with target.transaction():
        one(target, "SELECT 1")
        notify(sender, "c", "end")
        assert send(sender, target) is True
    assert hear(target, 1) == ["end"]
    handles(server, target, 4)


@pytest.mark.parametrize("connects", [True, False], ids=["connected", "without a database"])
def test_background_worker(server, session, connects):
    """Guards: a background worker can register a reason and send it; it can only receive one if it has transactions, in
    which the handler runs."""
    target, launcher = session(), session()
    launcher.execute("SELECT client.launch_sender(%s, %s)", (target.info.backend_pid, connects))
    handles(server, target)
    said = [line for line in server.log().splitlines() if "a background worker has sent" in line]
    assert said[-1].endswith(f"has sent: 1, to itself: {int(connects)}")


def test_after_a_crash(preloaded, connect):
    """Guards: reasons registered while preloading exist again after the server has recovered from a crash; others do
    not."""
    victim = connect(preloaded)
    victim.execute("SELECT client.register_reason('of the victim')")
    os.kill(victim.info.backend_pid, signal.SIGKILL)
    until(lambda: "all server processes terminated" in preloaded.log(), "the server crashes")
    target, sender = reconnect(preloaded, connect), reconnect(preloaded, connect)
    for number in range(1, REASONS_MAX - 1):
        sender.execute("SELECT client.register_reason(%s)", (f"reason {number}",))
    assert outcome(sender, "SELECT client.register_reason('one more')") == TOO_MANY
    assert send(sender, target) is True
    handles(preloaded, target)


def test_commit_that_fails(preloaded, connect):
    """Guards: if another module makes the empty transaction fail in which the handler was to run, the session ends, as
    it does if the server's own processing fails there; it does not retry for ever."""
    target, sender = connect(preloaded), connect(preloaded)
    target.execute("SELECT client.at_commit('next', 'fail')")
    pid = target.info.backend_pid
    send(sender, target)  # the target may end before this has checked that it was there
    until_gone(sender, pid)
    said = [line.split(f"[{pid}] ")[1] for line in preloaded.log().splitlines() if f"[{pid}]" in line]
    assert said[-2:] == ["ERROR:  herald_client was told to fail",
                         "FATAL:  terminating connection because protocol synchronization was lost"]
    assert said.count(said[-2]) == 1
    assert handled_in(preloaded, pid) == 0
