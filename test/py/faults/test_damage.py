"""A notification queue whose memory was overwritten: it is switched off, and the server goes on."""

import re

import psycopg
import pytest

from faults import FUNCTIONS, Doing, Points, pid_of
from harness.cluster import Cluster
from laggards import SMALLEST
from resume import position, why_not
from servers import SETTINGS
from support import hear, hear_until, notify, one, outcome, state_of, until, watchdog_stopped, works_from_the_start
from wire import cstring, fatal, payloads

LOGGED = re.compile(r"LOG:  the notification queue of pg_herald is damaged at position (\d+)\n"
                    r"[^\n]*DETAIL:  Shared memory was overwritten\. [^\n]*\n"
                    r"[^\n]*HINT:  Restart the server when convenient\.\n")
MISSED = "notifications were missed"
ENDED = "terminating connection because it has missed notifications"
TOO_LONG = "x" * 8000
MANY = 5000  # notifications that do not fit into a segment

# The point at which a sender is held, and the part of its batch that is overwritten meanwhile.
DAMAGES = [("publish-finished", "word"), ("publish-reserved", "length"), ("publish-reserved", "entry")]


class Damaged:
    """A server, its postmaster's pid before the damage, and a watcher and a sender."""

    def __init__(self, cluster: Cluster, connect):
        self.cluster = cluster
        self.connect = lambda: connect(cluster)
        self.postmaster = cluster.postmaster_pid()
        self.watcher = self.connect()
        self.points = Points(self.watcher)
        self.sender = self.connect()

    def listener(self, *channels: str) -> psycopg.Connection:
        """A new session that listens to these channels."""
        connection = self.connect()
        for channel in channels:
            connection.execute(f"LISTEN {channel}")
        return connection

    def damage(self, point: str = "publish-reserved", part: str = "length") -> None:
        """Has a sender find its own batch overwritten; the sender commits all the same."""
        self.points.arm(point, "wait", pid_of(self.sender))
        with watchdog_stopped(self.cluster):  # it could be faster to dispatch, and all would be notified twice
            doing = Doing(self.sender, "NOTIFY c, 'lost'")
            self.points.waiter(point)
            self.watcher.execute("SELECT stop_damage(%s)", (part,))
            self.points.release(point)
            assert doing.end() is None
        assert self.is_known()

    def is_known(self) -> bool:
        """Whether the queue is switched off."""
        return one(self.watcher, "SELECT is_damaged FROM herald.queue")

    def goes_on(self, *listeners: psycopg.Connection, sender: psycopg.Connection | None = None) -> None:
        """Listeners to c, old and new, receive what is sent now, through the server's own queue."""
        listeners = [*listeners, self.listener("c")]
        before = one(self.watcher, "SELECT notifications FROM herald.stats")
        notify(sender or self.sender, "c", "1", "2")
        (sender or self.sender).execute("NOTIFY c, '3'")
        for listener in listeners:
            assert hear(listener, 3) == ["1", "2", "3"]
        assert one(self.watcher, "SELECT notifications FROM herald.stats") == before
        assert self.cluster.postmaster_pid() == self.postmaster
        assert "PANIC" not in self.cluster.log() and "terminated by signal" not in self.cluster.log()


@pytest.fixture
def damaged(stop_points, connect):
    """A separate server for each test, not damaged yet; it must neither crash nor restart by itself."""
    with Cluster(preload=True, pg_config=stop_points, settings=SETTINGS | SMALLEST | {
            "max_connections": 40, "herald.wakeup_concurrency": 2}) as cluster:
        cluster.create_herald()
        cluster.psql(FUNCTIONS)
        yield Damaged(cluster, connect)


@pytest.mark.parametrize("point, part", DAMAGES)
def test_damaged_queue_is_switched_off(damaged, connect, wire, point, part):
    """Guards: a queue whose memory was overwritten crashes no process. Idle listeners are informed at once, on
    herald_reset or by disconnection; notifications go on through the server's own queue; the view and the log show the
    damage, once; a restart ends it."""
    clients = [wire(damaged.cluster) for _ in range(3)]
    for client in clients:
        client.query("LISTEN c")
    resets = [damaged.listener("c", "herald_reset") for _ in range(3)]
    elsewhere = damaged.listener("herald_reset", "nothing_of_this")
    assert not damaged.is_known()
    notify(damaged.sender, "c", "before")
    assert [hear(listener, 1) for listener in resets] == [["before"]] * 3
    assert [payloads([client.receive()]) for client in clients] == [["before"]] * 3
    damaged.damage(point, part)
    for listener in [*resets, elsewhere]:
        assert hear(listener, 1) == [MISSED]
    assert [fatal(client.until_ready()) for client in clients] == [ENDED] * 3
    damaged.goes_on(*resets)
    damaged.goes_on(*resets)
    assert len(LOGGED.findall(damaged.cluster.log())) == 1
    assert damaged.cluster.log().count("is damaged at position") == 1

    damaged.cluster.restart()
    works_from_the_start(damaged.cluster, connect)
    assert not one(connect(damaged.cluster), "SELECT is_damaged FROM herald.queue")


def test_in_a_transaction(damaged, wire):
    """Guards: listeners in a transaction are informed when the transaction ends."""
    reset, client = damaged.listener("c", "herald_reset"), wire(damaged.cluster)
    client.query("LISTEN c")
    for run in (reset.execute, client.query):
        run("BEGIN")
        run("SELECT 1")
    damaged.damage()
    until(lambda: state_of(damaged.watcher, client.pid) == "busy", "it is marked")
    client.send(("Q", cstring("COMMIT")))
    assert fatal(client.until_ready()) == ENDED
    reset.execute("COMMIT")
    assert hear(reset, 1) == [MISSED]
    damaged.goes_on(reset)


def test_resuming(damaged):
    """Guards: no channel resumes in a damaged queue, and the reason is said."""
    token = position(damaged.sender)
    damaged.damage()
    detail, _ = why_not(damaged.connect(), "c", token)
    assert detail == "The notification queue of pg_herald is damaged, and was switched off."


def test_pending_before(damaged):
    """Guards: notifications of a transaction from before the damage was found go through the server's own queue at its
    commit: in order, once each, without those rolled back; its later notifications follow."""
    reset, sender = damaged.listener("c", "herald_reset"), damaged.connect()
    sender.execute("BEGIN")
    for statement in ("NOTIFY c, '1'", "NOTIFY c, '2'", "SAVEPOINT s", "NOTIFY c, 'rolled back'",
                      "ROLLBACK TO s", "NOTIFY c, '3'"):
        sender.execute(statement)
    damaged.damage()
    assert hear(reset, 1) == [MISSED]
    for statement in ("SAVEPOINT t", "SELECT pg_notify('c', '4')", "RELEASE t", "NOTIFY c, '2'", "NOTIFY c"):
        sender.execute(statement)
    sender.execute("COMMIT")
    assert hear(reset, 5) == ["1", "2", "3", "4", ""]
    damaged.goes_on(reset, sender=sender)


def test_pending_in_a_file(damaged):
    """Guards: the same for notifications that exceed memory and are in a file."""
    reset, sender = damaged.listener("c", "herald_reset"), damaged.connect()
    sender.execute("BEGIN")
    sender.execute(f"SELECT count(pg_notify('c', n::text)) FROM generate_series(1, {MANY}) n")
    damaged.damage()
    assert hear(reset, 1) == [MISSED]
    sender.execute("COMMIT")
    assert hear(reset, MANY) == [str(n) for n in range(1, MANY + 1)]
    damaged.goes_on(reset, sender=sender)


@pytest.mark.parametrize("how", ["error", "terminate"])
def test_handing_over_fails(damaged, how):
    """Guards: a sender that fails while it hands pending notifications to the server is rolled back, and sends none."""
    reset, sender = damaged.listener("c", "herald_reset"), damaged.connect()
    sender.execute("BEGIN")
    sender.execute("NOTIFY c, 'never'")
    damaged.damage()
    assert hear(reset, 1) == [MISSED]
    damaged.points.arm("publish-natively", how, pid_of(sender))
    with pytest.raises(psycopg.Error):
        sender.execute("COMMIT")
    damaged.goes_on(reset)


def test_longer_than_the_server_takes(damaged):
    """Guards: a payload that only herald.max_payload allows is refused with the server's own message: a pending one at
    the commit, which is rolled back, a later one at once."""
    reset, sender = damaged.listener("c", "herald_reset"), damaged.connect()
    damaged.watcher.execute("ALTER SYSTEM SET herald.max_payload = '1MB'")
    damaged.watcher.execute("SELECT pg_reload_conf()")
    until(lambda: one(sender, "SHOW herald.max_payload") == "1MB", "it is read")
    sender.execute("BEGIN")
    sender.execute("CREATE TABLE not_there()")
    sender.execute("SELECT pg_notify('c', 'never')")
    sender.execute(f"SELECT pg_notify('c', '{TOO_LONG}')")
    damaged.damage()
    refused = "22023: payload string too long"
    assert outcome(sender, "COMMIT") == refused
    assert one(sender, "SELECT to_regclass('not_there') IS NULL")
    assert outcome(sender, f"SELECT pg_notify('c', '{TOO_LONG}')") == refused
    assert hear(reset, 1) == [MISSED]
    damaged.goes_on(reset, sender=sender)


def test_reserved_before(damaged):
    """Guards: a transaction whose batch was reserved before the damage was found commits; as the batch is not
    delivered, all listeners are notified once more, because they may have looked before it was visible. One that fails
    has no such effect."""
    reset, commits, fails = damaged.listener("c", "herald_reset"), damaged.connect(), damaged.connect()
    for point, connection in (("publish-finished", damaged.sender), ("publish-reserved", commits),
                              ("publish-reserved", fails)):
        damaged.points.arm(point, "wait", pid_of(connection))
    with watchdog_stopped(damaged.cluster):
        first = Doing(damaged.sender, "NOTIFY c, 'lost'")
        damaged.points.waiter("publish-finished")
        late = [Doing(connection, "NOTIFY c, 'lost as well'") for connection in (commits, fails)]
        damaged.points.reached("publish-reserved")
        damaged.watcher.execute("SELECT stop_damage('word')")
        damaged.points.release("publish-finished")
        assert first.end() is None
    assert hear(reset, 1) == [MISSED]
    fails.cancel()
    assert isinstance(late[1].end(), psycopg.errors.QueryCanceled)
    assert hear(reset, 1, 0.3) == []
    damaged.points.release()
    assert late[0].end() is None
    assert hear(reset, 1) == [MISSED]
    damaged.goes_on(reset, sender=commits)


def test_nobody_waits(damaged):
    """Guards: when the damage is found, no session waits for its own batch any more, nor for room in the queue; a
    sender that waited for room notifies through the server's own queue."""
    hears_itself = damaged.listener("c", "herald_reset")
    slow, greedy, other_greedy = damaged.connect(), damaged.connect(), damaged.connect()
    damaged.points.arm("publish-reserved", "wait", pid_of(slow))
    first = Doing(slow, "NOTIFY c, 'lost'")
    damaged.points.waiter("publish-reserved")
    own = Doing(hears_itself, "NOTIFY c, 'its own'")
    filling = []
    for session, channel in ((greedy, "d"), (other_greedy, "e")):
        damaged.points.arm("publish-no-room", "wait", pid_of(session))
        filling.append(Doing(session, f"DO $$ BEGIN FOR n IN 1..{MANY} LOOP"
                                      f" PERFORM pg_notify('{channel}', n || repeat('x', CASE WHEN n < 100 THEN 7000 ELSE 0 END));"
                                      " IF n % 4 = 0 THEN COMMIT; END IF; END LOOP; END $$"))
        damaged.points.waiter("publish-no-room")
    assert own.runs()
    others = [damaged.listener("d", "herald_reset"), damaged.listener("e", "herald_reset")]
    damaged.watcher.execute("SELECT stop_damage('length')")
    damaged.points.release()
    for doing in (first, own, *filling):
        assert doing.end() is None
    assert hear(hears_itself, 1) == [MISSED]
    for other in others:
        words = [word.rstrip("x") for word in hear_until(other, str(MANY))]
        assert MISSED in words or hear(other, 1) == [MISSED]
        rest = [word for word in words if word != MISSED]
        assert rest == [str(n) for n in range(MANY - len(rest), MANY)]
    until(lambda: "waiting for dispatch 0," in damaged.points.state(), "nobody waits")
    damaged.goes_on()


# ---- logged channels ----

UNLOGGED = '0A000: cannot log a notification on channel "{}"'


def test_logged_channels(damaged):
    """Guards: what is on a logged channel would be lost for standbys and positions: it fails, at once or, if it was pending
    before, at the commit; other channels go on; a change of settings counts."""
    reset, sender, admin = damaged.listener("c", "herald_reset"), damaged.connect(), damaged.connect()
    admin.execute("SELECT herald.set_channel('logged', true), herald.set_channel('log_*', true)")
    sender.execute("BEGIN")
    for statement in ("CREATE TABLE not_there()", "NOTIFY c, 'never'", "NOTIFY logged, 'never'"):
        sender.execute(statement)
    damaged.damage()
    assert hear(reset, 1) == [MISSED]
    assert outcome(sender, "COMMIT") == UNLOGGED.format("logged")
    assert one(sender, "SELECT to_regclass('not_there') IS NULL")
    for session in (sender, damaged.connect()):
        for statement in ("NOTIFY logged", "SELECT pg_notify('logged', 'x')", "SET herald.enabled = off; NOTIFY logged"):
            assert outcome(session, statement) == UNLOGGED.format("logged")
        session.execute("RESET herald.enabled; BEGIN; NOTIFY c, 'kept'; SAVEPOINT s")
        assert outcome(session, "NOTIFY log_1") == UNLOGGED.format("log_1")
        session.execute("ROLLBACK TO s; COMMIT")
        assert hear(reset, 1) == ["kept"]
    admin.execute("SELECT herald.set_channel('c', true)")
    assert outcome(sender, "NOTIFY c") == UNLOGGED.format("c")
    admin.execute("SELECT herald.set_channel('c', false), herald.set_channel('logged', false)")
    assert outcome(sender, "NOTIFY logged") is None
    damaged.goes_on(reset, sender=sender)
