"""No message is sent to a client while a lock of pg_herald's is held: if the client does not read it, all others wait.

The build with stop points checks each message just before it is sent (src/testing/armed_points.c); the first part runs
every place that sends a message. In the second part there is a client that does not read, and a release build.
"""

import time
from contextlib import closing, contextmanager, nullcontext

import psycopg
import pytest

from cache_scene import RING, SETUP
from faults import CHANNELS, FUNCTIONS, Doing, Points, listen_to, pid_of
from harness.cluster import Cluster
from laggards import KILOBYTES_7, RING_BYTES, SEGMENT_BYTES, SMALLEST, fall_behind, files, send
from servers import SETTINGS, started
from support import hear, notify, one, outcome, reconnect, state_of, until, until_crashed
from talkative import UNDER_A_LOCK, WITHIN_S, Mute, full

pytestmark = pytest.mark.seam

TALKATIVE = {"log_temp_files": 0, "trace_notify": True, "max_connections": 40, "max_prepared_transactions": 2,
             "herald.wakeup_concurrency": 2, "herald.max_queue_size": "2MB"}
MANY = 5000  # notifications that do not fit into a segment
LARGE = f"SELECT count(pg_notify('c', 'of many ' || n)) FROM generate_series(1, {MANY}) n"
TOO_MANY = "DO $$ BEGIN FOR n IN 1..400 LOOP PERFORM pg_notify('c', n || repeat('x', 7000)); END LOOP; END $$"
TOO_LONG = "x" * 8000
VIEWS = "SELECT " + ", ".join(f"(SELECT count(*) FROM herald.{view})" for view in (
    "channels", "listeners", "queue", "stats", "caches", "cache_stats"))

# Points at which a sender, a listener, and a session that begins or ceases to listen can fail, be cancelled or
# terminated.
POINTS = ["activation-look-up", "pending-arena", "pending-hash", "pending-level", "large-transaction-write",
          "large-transaction-written", "large-entered", "large-transaction-complete", "large-transaction-referenced",
          "files-choose-place", "publish-reserve", "publish-reserved", "listen-joined", "listen-entered",
          "deliver-called", "deliver-begin", "await-dispatch", "invalidate-reserve"]


# ---- every message is checked ----

class Talk:
    """Sessions that get and log every message, on a server that stops if one is sent under a lock."""

    def __init__(self, cluster: Cluster, connect):
        self.cluster = cluster
        self._connect = connect
        self._opened: list[psycopg.Connection] = []
        self.watcher = reconnect(cluster, connect)
        self.points = Points(self.watcher)
        self.expected: str | None = None
        self._before = len(cluster.log())

    def connect(self, *statements: str) -> psycopg.Connection:
        """Opens one more session, which runs these statements."""
        self._opened.append(self._connect(self.cluster))
        for statement in statements:
            self._opened[-1].execute(statement)
        return self._opened[-1]

    def laggard(self, *statements: str) -> psycopg.Connection:
        """Opens a session that runs these statements, listens to c, and stays in a transaction."""
        laggard = self.connect(*statements)
        fall_behind(laggard)
        return laggard

    def violations(self) -> list[str]:
        """The log lines about messages sent under a lock since the test began."""
        return [line for line in self.cluster.log()[self._before:].splitlines() if UNDER_A_LOCK in line]

    def says(self, text: str) -> None:
        """Checks that this text was logged since the test began: the place was reached."""
        until(lambda: text in self.cluster.log()[self._before:], f"the log has {text}")

    def end(self) -> None:
        """Checks that the server has not restarted, and that all works."""
        self.points.release()
        listener = self.connect("LISTEN the_end")
        notify(self.watcher, "the_end", "still here")
        assert hear(listener, 1) == ["still here"]
        for connection in self._opened:
            connection.close()


@pytest.fixture(scope="module")
def talkative(stop_points):
    """A server with stop points that logs everything, and sends everything to its clients."""
    with Cluster(preload=True, caches=True, pg_config=stop_points, settings=SETTINGS | SMALLEST | TALKATIVE | {
            "log_min_messages": "debug5", "client_min_messages": "debug5"}) as cluster:
        cluster.create_herald()
        cluster.psql(FUNCTIONS)
        cluster.psql(SETUP)
        yield cluster


@pytest.fixture
def talk(talkative, connect):
    """The sessions of a test, during which no message may be sent under a lock."""
    talk = Talk(talkative, connect)
    try:
        yield talk
    finally:
        violations = talk.violations()
        if not violations:
            talk.end()
    assert [line for line in violations if talk.expected is None or talk.expected not in line] == []


def test_the_check_can_fail(talk):
    """Guards: the check itself. A message that is sent under a lock of pg_herald's stops the server."""
    victim = talk.connect()
    talk.points.arm("tail-moved", "message", pid_of(victim))
    with pytest.raises(psycopg.Error):
        send(victim, 2)
    until(talk.violations, "it is found")
    talk.expected = "under spill_lock: message at stop point"
    until_crashed(talk.watcher)  # otherwise it would end the next test's session, too


def test_notify_with_all_messages(talk):
    """Guards: NOTIFY, with its trace, its errors, and a session's own notifications, in transactions of all kinds."""
    session = talk.connect("LISTEN c")
    assert outcome(session, "NOTIFY c, 'x'") is None
    for statement, error in [
            ("SELECT pg_notify('', 'x')", "22023: channel name cannot be empty"),
            (f"SELECT pg_notify('{'x' * 64}', 'x')", "22023: channel name too long"),
            (f"SELECT pg_notify('c', '{TOO_LONG}')", "22023: payload string too long"),
            (TOO_MANY, "54000: too many notifications in one transaction")]:
        assert outcome(session, statement) == error
    session.execute("BEGIN; NOTIFY c, 'x'; SAVEPOINT s; NOTIFY c, 'y'; ROLLBACK TO s; NOTIFY c, 'x'")
    assert outcome(session, "PREPARE TRANSACTION 'p'").startswith("0A000")
    session.execute("BEGIN; NOTIFY c, 'z'; LISTEN d; UNLISTEN c; COMMIT")
    session.execute("DISCARD ALL")
    talk.says("herald_notify(c)")


def test_channels_out_of_memory(talk):
    """Guards: LISTEN that finds no memory, for a new channel and for one more listener of an existing one."""
    greedy = talk.connect()
    assert outcome(greedy, listen_to("alone", 0, CHANNELS)) == "53200: out of memory"
    count = 0
    while outcome(greedy, f"LISTEN full_{count}") is None:
        count += 1
    others = [outcome(talk.connect(), "LISTEN c") for _ in range(8)]
    assert set(others) <= {None, "53200: out of memory"}
    talk.says("out of memory")
    greedy.execute("UNLISTEN *")  # the end of the test needs room for its channel


def test_segments(talk, connect):
    """Guards: senders that write segments to files, and delete them when they have been read."""
    sender, laggard = talk.connect(), talk.laggard()
    sent = send(sender, 2)
    laggard.execute("COMMIT")
    assert hear(laggard, len(sent)) == sent
    laggard.close()
    until(lambda: not files(talk.cluster.data), "all are deleted")
    with files_to_delete(talk.cluster, connect):
        notify(sender, "c", KILOBYTES_7)
    talk.says("temporary file")


def test_overruns(talk):
    """Guards: senders that discard what laggards have not read; the laggards are informed."""
    sender, told, ended = talk.connect(), talk.laggard("LISTEN herald_reset"), talk.laggard()
    send(sender, 6)
    talk.says("has missed notifications because of herald.max_queue_size")
    told.execute("COMMIT")
    assert hear(told, 1) == ["notifications were missed"]
    outcome(ended, "COMMIT")
    talk.says("terminating connection because it has missed notifications")


def test_large(talk):
    """Guards: large transactions that commit, roll back, fail, and whose files are discarded or deleted."""
    sender, laggard = talk.connect(), talk.laggard()
    for statement in ("BEGIN", LARGE, "ROLLBACK", LARGE, LARGE):
        assert not str(outcome(sender, statement)).startswith("5")
    for _ in range(2):
        assert outcome(sender, f"{LARGE}; SELECT 1 / 0").startswith("22012")
    laggard.execute("COMMIT")
    assert len(hear(laggard, 2 * MANY)) == 2 * MANY
    until(lambda: not files(talk.cluster.data), "all are deleted")
    laggard = talk.laggard()
    for _ in range(8):
        sender.execute(LARGE)
    outcome(laggard, "COMMIT")
    talk.says("temporary file")


def test_caches(talk):
    """Guards: invalidations, readers that are reset, and the errors of caches."""
    reader, writer = talk.connect(), talk.connect()
    for statement in ("SELECT look()", "SELECT look()"):
        reader.execute(statement)
    writer.execute("UPDATE item SET v = v + 1 WHERE k = 1; SELECT herald.cache_clear('item')")
    reader.execute("BEGIN; SELECT 1")
    writer.execute(f"SELECT flood({RING + 1000})")
    writer.execute("SELECT herald.cache_clear()")
    reader.execute("COMMIT; SELECT look()")
    for statement in ("SELECT herald.cache_through(NULL, 'SELECT 1')",
                      "SELECT herald.cache_through('c', 'SELECT 1, 2')",
                      "SELECT herald.cache_through('c', 'SELECT generate_series(1, 2)')",
                      "SELECT herald.cache_through('c', 'DELETE FROM item RETURNING k')"):
        assert ": " in outcome(reader, statement), statement
    if outcome(writer, "BEGIN; UPDATE item SET v = v + 1; PREPARE TRANSACTION 'p'") is None:
        writer.execute("COMMIT PREPARED 'p'")
    outcome(writer, "ROLLBACK")
    one(reader, "SELECT count(*) FROM herald.caches")


def test_views_with_all_messages(talk):
    """Guards: the views, and resetting what they show."""
    session = talk.connect("LISTEN d")
    session.execute(VIEWS)
    session.execute("SELECT herald.reset_stats(), herald.watchdog_pid(), pg_notification_queue_usage()")
    assert state_of(session, pid_of(session)) == "busy"


@pytest.mark.parametrize("action", ["error", "cancel", "terminate"])
def test_ends(talk, action):
    """Guards: sessions that fail, are cancelled, or terminated, wherever that is possible."""
    for point in POINTS:
        victim = talk.connect("LISTEN c")
        laggard = talk.laggard()
        talk.points.arm(point, action, pid_of(victim))
        for statement in ("NOTIFY c, '1'", "LISTEN d", "BEGIN; SAVEPOINT s; NOTIFY c, '2'; COMMIT", LARGE,
                          *[f"NOTIFY c, '{n} {KILOBYTES_7}'" for n in range(20)], "UNLISTEN *",
                          "SELECT herald.cache_invalidate('item', '1')"):
            if not victim.closed:
                outcome(victim, statement)
                outcome(victim, "ROLLBACK") if not victim.closed else None
        talk.points.release()
        victim.close()
        laggard.close()
    talk.says("stop point" if action == "error" else "canceling" if action == "cancel" else "terminating")


def test_damage(stop_points, connect):
    """Guards: a damaged queue, which is switched off, and pending notifications that go to the server's own queue."""
    with Cluster(preload=True, pg_config=stop_points, settings=SETTINGS | SMALLEST | TALKATIVE | {
            "log_min_messages": "debug5", "client_min_messages": "debug5"}) as cluster:
        cluster.create_herald()
        cluster.psql(FUNCTIONS)
        watcher, sender, before, ended = (connect(cluster) for _ in range(4))
        before.execute("LISTEN c; LISTEN herald_reset")
        ended.execute("LISTEN c")
        before.execute("BEGIN; NOTIFY c, 'pending'")
        points = Points(watcher)
        points.arm("publish-reserved", "wait", pid_of(sender))
        doing = Doing(sender, "NOTIFY c, 'lost'")
        points.waiter("publish-reserved")
        watcher.execute("SELECT stop_damage('length')")
        points.release()
        assert doing.end() is None
        before.execute("COMMIT")
        assert set(hear(before, 2)) == {"pending", "notifications were missed"}
        until(lambda: "terminating connection because" in cluster.log(), "the other one is told")
        assert UNDER_A_LOCK not in cluster.log()


# ---- a client that does not read ----

@pytest.fixture(scope="module")
def release():
    """A server as it is installed, with little memory."""
    yield from started(preload=True, caches=True, settings=SETTINGS | SMALLEST | TALKATIVE)


@pytest.fixture(scope="module")
def unwatched():
    """The same without a watchdog: the senders delete files."""
    yield from started(preload=True, settings=SETTINGS | SMALLEST | TALKATIVE | {"max_worker_processes": 0})


@pytest.fixture(scope="module")
def fill_bytes(release):
    """The size of a result that fills a client's socket."""
    with psycopg.connect(host=str(release.socket_folder), port=release.port, user="postgres",
                         dbname="postgres", autocommit=True) as watcher:
        return full(release, watcher)


# The level of messages, what is set up before, the statement whose first message is not read, and what the server has
# logged by then.
SILENCES = {
    "overrun": ("error", "laggard", "COMMIT", "terminating connection because it has missed notifications"),
    "listen": ("error", None, listen_to("mute", 0, CHANNELS), "out of memory"),
    "segments deleted": ("log", "files", f"NOTIFY c, '{KILOBYTES_7}'", "temporary file"),
    "too long": ("error", None, f"NOTIFY c, '{TOO_LONG}'", "payload string too long"),
    "too many": ("error", None, TOO_MANY, "too many notifications in one transaction"),
    "trace": ("debug1", None, "NOTIFY c, 'traced'", None),
    "prepare": ("error", None, "BEGIN; NOTIFY c; PREPARE TRANSACTION 'p'", "cannot PREPARE"),
    "cache": ("error", None, "SELECT herald.cache_through(NULL, 'SELECT 1')", "must not be null"),
}


@contextmanager
def files_to_delete(cluster: Cluster, connect):
    """Within the block, the next sender has to write a segment to a file, and deletes files that are no longer needed.

    A laggard that has exited needed these; another one needs what is in memory. There is no watchdog.
    """
    gone, laggard, sender = connect(cluster), connect(cluster), connect(cluster)

    def send_until(condition) -> None:
        while not condition(*sender.execute("SELECT head, tail, spilled FROM herald.queue").fetchone()):
            notify(sender, "c", KILOBYTES_7)

    fall_behind(gone)
    send_until(lambda head, tail, spilled: spilled > 4 * SEGMENT_BYTES)
    fall_behind(laggard)
    needed = one(sender, "SELECT head FROM herald.queue")
    send_until(lambda head, tail, spilled: tail + SEGMENT_BYTES > needed and
               tail + RING_BYTES - head < SEGMENT_BYTES)
    gone.close()
    until(lambda: one(sender, "SELECT count(*) FROM herald.listeners WHERE state = 'busy'") == 1,
          "one of them has gone")
    yield


@pytest.mark.parametrize("name", SILENCES)
def test_client_does_not_read(release, unwatched, connect, fill_bytes, name):
    """Guards: while a client does not read a message of ours, other sessions notify, receive, listen, query views, and
    terminate it, as if it were not there."""
    level, before, sql, logged = SILENCES[name]
    cluster = unwatched if "deleted" in name else release
    watcher, listener, sender, large, other, looks = (connect(cluster) for _ in range(6))
    listener.execute("LISTEN heard")
    so_far = len(cluster.log())
    client = Mute(cluster, watcher, client_min_messages=level)
    if before == "laggard":
        fall_behind(client.wire)
        send(sender, 6)
    with closing(client), files_to_delete(cluster, connect) if before == "files" else nullcontext():
        assert client.stick(sql, fill_bytes)
        assert logged is None or logged in cluster.log()[so_far:]
        doing = {"NOTIFY": Doing(sender, "NOTIFY heard, 'goes on'"),
                 "many": Doing(large, LARGE),
                 "LISTEN": Doing(other, "LISTEN heard"),
                 "views": Doing(looks, VIEWS)}
        assert all_within(WITHIN_S, doing) == []
        assert hear(listener, 1, WITHIN_S) == ["goes on"]
        assert one(watcher, "SELECT pg_terminate_backend(%s)", client.pid)


def all_within(seconds: float, doing: dict[str, Doing]) -> list[str]:
    """The names of those statements that have not ended after this time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(one_of_them.runs() for one_of_them in doing.values()):
        time.sleep(0.005)
    return [what for what, one_of_them in doing.items() if one_of_them.runs()]
