"""A session that reconnects continues where another left off: herald.position(), herald.listen()."""

import re
import psycopg
import pytest

from laggards import SMALLEST, send
from resume import position, read, resume
from servers import SETTINGS, started
from support import hear, hear_until, let_watchdog_fall_asleep, notify, one, outcome, until
from wire import bind, parse

pytestmark = pytest.mark.seam

KILOBYTES_7 = "x" * 7000


@pytest.fixture(scope="module")
def tiny():
    """A server with the smallest queue memory."""
    yield from started(preload=True, settings=SETTINGS | SMALLEST)


def heard(listener: psycopg.Connection, sender: psycopg.Connection, channel: str = "c") -> list[str]:
    """All that the listener receives, up to now."""
    notify(sender, channel, "the end")
    return hear_until(listener, "the end")


def test_after_a_reconnect(cluster, connect):
    """Guards: notifications sent meanwhile arrive first, once, in order; then later ones."""
    sender, before = connect(cluster), connect(cluster)
    before.execute("LISTEN c")
    notify(sender, "c", "heard before")
    assert hear(before, 1) == ["heard before"]
    token = position(before)
    before.close()
    notify(sender, "c", "1", "2")
    notify(sender, "d", "not ours")
    sender.execute("BEGIN; NOTIFY c, 'rolled back'; ROLLBACK")
    notify(sender, "c", "3")
    after = connect(cluster)
    assert resume(after, "c", token) is True
    assert hear(after, 3) == ["1", "2", "3"]
    assert heard(after, sender) == []
    assert after.execute("SELECT * FROM pg_listening_channels()").fetchall() == [("c",)]


def test_taken_before_the_first_listen(cluster, connect):
    """Guards: a position can be taken by a session that does not listen, and used repeatedly."""
    sender, other = connect(cluster), connect(cluster)
    token = position(other)
    notify(sender, "c", "1")
    for _ in range(3):
        with connect(cluster) as listener:
            assert resume(listener, "c", token)
            assert heard(listener, sender)[0] == "1"


@pytest.mark.parametrize("end, expected", [("COMMIT", ["away"]), ("ROLLBACK", [])])
def test_with_its_transaction(cluster, connect, end, expected):
    """Guards: it takes effect with its transaction, like LISTEN; after ROLLBACK the session neither listens nor holds
    anything in the queue."""
    sender, listener = connect(cluster), connect(cluster)
    token = position(sender)
    notify(sender, "c", "away")
    listener.execute("BEGIN")
    assert resume(listener, "c", token)
    listener.execute(end)
    notify(sender, "c", "next")
    assert hear(listener, 2, 0.3 if end == "ROLLBACK" else 20) == (expected + ["next"] if expected else [])
    state = one(sender, "SELECT count(*) FROM herald.listeners WHERE pid = %s", listener.info.backend_pid)
    assert state == bool(expected)


@pytest.mark.parametrize("statements, expected", [
    (["{resume}", "UNLISTEN c"], []),
    (["{resume}", "UNLISTEN *", "LISTEN c"], []),
    (["LISTEN c", "UNLISTEN c", "{resume}"], ["1", "2"]),
    (["LISTEN c", "{resume}"], ["1", "2"]),
    (["{resume}", "LISTEN c"], ["1", "2"]),
    (["SAVEPOINT s", "{resume}", "ROLLBACK TO s", "LISTEN c"], []),
    (["SAVEPOINT s", "{resume}", "RELEASE s"], ["1", "2"]),
    (["{resume}", "SAVEPOINT s", "UNLISTEN c", "ROLLBACK TO s"], ["1", "2"]),
    (["{later}", "{resume}"], ["1", "2"]),
    (["{resume}", "{later}"], ["2"]),
    (["{resume}", "NOTIFY c, 'own'"], ["1", "2", "own"]),
], ids=str)
def test_orders(cluster, connect, statements, expected):
    """Guards: LISTEN, UNLISTEN, rollbacks and positions in one transaction, in several orders: the last one counts."""
    sender, listener = connect(cluster), connect(cluster)
    tokens = {"resume": position(sender)}
    notify(sender, "c", "1")
    tokens["later"] = position(sender)
    notify(sender, "c", "2")
    listener.execute("BEGIN")
    for statement in statements:
        listener.execute(statement.format(**{name: f"SELECT herald.listen('c', '{token}')"
                                             for name, token in tokens.items()}))
    listener.execute("COMMIT")
    if "UNLISTEN c" in statements[-1]:
        assert listener.execute("SELECT * FROM pg_listening_channels()").fetchall() == []
        listener.execute("LISTEN c")
    assert heard(listener, sender) == expected


def test_beside_other_channels(cluster, connect):
    """Guards: a session that resumes some channels receives everything on its other channels once, and each resumed
    channel from its own position."""
    sender, listener = connect(cluster), connect(cluster)
    listener.execute("LISTEN a")
    tokens = []
    for number in range(4):
        tokens.append(position(sender))
        for channel in "abc":
            notify(sender, channel, f"{channel}{number}")
    assert hear(listener, 4) == ["a0", "a1", "a2", "a3"]
    listener.execute("BEGIN")
    assert resume(listener, "c", tokens[3]) and resume(listener, "b", tokens[1])
    notify(sender, "a", "a4")
    listener.execute("COMMIT")
    assert hear(listener, 5) == ["b1", "b2", "b3", "c3", "a4"]
    assert resume(listener, "b", tokens[2])  # delivered a second time, as requested
    assert hear(listener, 2) == ["b2", "b3"]
    assert heard(listener, sender, "a") == []


def test_beside_an_unlisten(cluster, connect):
    """Guards: everything on a resumed channel arrives, once, if the same transaction drops another channel."""
    sender, listener = connect(cluster), connect(cluster)
    token = position(sender)
    notify(sender, "c", "1")
    listener.execute("LISTEN a")
    listener.execute("BEGIN")
    notify(sender, "a", "a1")
    assert resume(listener, "c", token)
    notify(sender, "c", "2")
    listener.execute("UNLISTEN a")
    listener.execute("COMMIT")
    received = hear(listener, 2) + heard(listener, sender)
    assert sorted(payload for payload in received if payload != "a1") == ["1", "2"]
    assert received.count("a1") <= 1


def test_kept_from_the_call_on(tiny, connect):
    """Guards: notifications are kept from the moment of the call, however many are sent before the commit."""
    sender, listener = connect(tiny), connect(tiny)
    token = position(sender)
    notify(sender, "c", "first")
    listener.execute("BEGIN")
    assert resume(listener, "c", token)
    for number in range(300):  # several rings full
        notify(sender, "c", f"{number} {KILOBYTES_7}")
    listener.execute("COMMIT")
    assert [payload.split(" ")[0] for payload in hear(listener, 301)] == ["first", *map(str, range(300))]


def test_too_old(tiny, connect):
    """Guards: if some notifications are gone the answer is false, and the session listens nevertheless."""
    sender, listener = connect(tiny), connect(tiny)
    token = position(sender)
    for number in range(300):
        notify(sender, "c", f"{number} {KILOBYTES_7}")
    assert resume(listener, "c", token) is False
    assert heard(listener, sender) == []
    assert outcome(listener, "SELECT * FROM herald.read('c', %s)", token).startswith("55000: ")


def test_of_a_run_before(connect):
    """Guards: after a restart, or a crash, an earlier position is answered with false, not with an error."""
    for server in started(preload=True, settings=SETTINGS):
        tokens = [position(connect(server))]
        server.restart()
        tokens.append(position(connect(server)))
        server.crash()
        server.start()
        listener = connect(server)
        assert [resume(listener, "c", token) for token in tokens] == [False, False]
        notify(listener, "c", "heard")
        assert hear(listener, 1) == ["heard"]


def test_told_where_it_is(cluster, connect):
    """Guards: a session that listens on herald_position is sent its position at once, and after each delivery; from
    each of these positions a session can resume."""
    sender, listener = connect(cluster), connect(cluster)
    listener.execute("LISTEN herald_position; LISTEN c")
    told = [listener.notifies(timeout=20, stop_after=1)]
    tokens = [notification.payload for notifications in told for notification in notifications]
    for number in range(5):
        notify(sender, "c", str(number))
        ours, token = listener.notifies(timeout=20, stop_after=2)
        assert (ours.channel, ours.payload) == ("c", str(number))
        assert (token.channel, token.pid) == ("herald_position", listener.info.backend_pid)
        tokens.append(token.payload)
    for number, token in enumerate(tokens):
        with connect(cluster) as another:
            assert resume(another, "c", token)
            assert heard(another, sender)[:5 - number] == [str(n) for n in range(number, 5)]


def test_told_while_it_catches_up(cluster, connect):
    """Guards: in a long delivery a session is sent its position after a thousand notifications, at the end of a transaction;
    from each of these positions a session resumes with nothing missing and nothing repeated."""
    sender, listener, laggard = (connect(cluster) for _ in range(3))
    laggard.execute("LISTEN c")
    laggard.execute("BEGIN; SELECT 1")  # keeps everything in the queue
    token = position(sender)
    for begin in range(1, 2501, 500):
        sender.execute(f"SELECT count(pg_notify('c', n::text)) FROM generate_series({begin}, {begin} + 499) n")
    sender.execute("SELECT count(pg_notify('c', lpad(n::text, 1500, '0'))) FROM generate_series(2501, 4500) n")  # in a file
    for number in range(4501, 5001):
        notify(sender, "c", str(number))
    with listener.transaction():
        listener.execute("LISTEN herald_position")
        assert resume(listener, "c", token) is True
    told, last = [], 0
    while last < 5000:
        for notification in listener.notifies(timeout=20, stop_after=1):
            if notification.channel == "c":
                assert int(notification.payload) == last + 1
                last += 1
            else:
                told.append((last, notification.payload))
    assert [number for number, _ in told][:3] == [1000, 2000, 4500] and told[-1][0] == 5000
    for number, token in told:
        with connect(cluster) as another:
            assert resume(another, "c", token) is True
            assert [int(payload) for payload in hear(another, 5000 - number)] == list(range(number + 1, 5001))


def test_told_though_it_hears_nothing(tiny, connect):
    """Guards: a session that receives nothing is sent new positions while the queue advances, so that its latest one is
    not too old; and it does not hold back the queue, whether it is in a transaction or not."""
    sender, quiet, waits = connect(tiny), connect(tiny), connect(tiny)
    for listener in (quiet, waits):
        listener.execute("LISTEN quiet")
        listener.execute("LISTEN herald_position")
    first, = hear(quiet, 1)
    assert len(hear(waits, 1)) == 1
    waits.execute("BEGIN; SELECT 1")
    watchdog_is_told, told = let_watchdog_fall_asleep(tiny), []
    for _ in range(3):
        send(sender, 1)
        told += hear(quiet, 1)
    assert len(told) == 3
    assert watchdog_is_told(), "it looked when its time was over"
    assert one(sender, "SELECT spilled FROM herald.queue") == 0
    assert hear(waits, 1, 0.1) == []
    waits.execute("COMMIT")
    assert len(hear(waits, 1)) == 1
    told += hear(quiet, 100, 0.3)
    assert len(told) <= 3 * 8 + 1, "more often than each segment"
    quiet.close()
    notify(sender, "quiet", "away")
    assert resume(after := connect(tiny), "quiet", first) is False
    assert resume(after := connect(tiny), "quiet", told[-1]) is True
    assert hear(after, 1) == ["away"]


def test_told_beside_others_that_cannot_be(tiny, connect, wire):
    """Guards: sessions in the middle of a statement, in a transaction that pg_herald does not know of, are sent no
    positions, and do not keep other sessions from receiving theirs."""
    for _ in range(20):
        client = wire(tiny)
        client.query("LISTEN herald_position")
        client.send(parse("SHOW work_mem", "p"), ("S", b""))
        client.until_ready()
        client.send(bind("p"), ("H", b""))
    sender, quiet = connect(tiny), connect(tiny)
    quiet.execute("LISTEN herald_position")
    assert len(hear(quiet, 1)) == 1
    for _ in range(3):
        send(sender, 1)
        assert len(hear(quiet, 1)) == 1


def test_nobody_else_tells_it(cluster, connect):
    """Guards: no session can send positions to others."""
    sender = connect(cluster)
    for statement in ("NOTIFY herald_position, 'x'", "SELECT pg_notify('herald_position', 'x')"):
        assert outcome(sender, statement).startswith("42939: ")


@pytest.mark.parametrize("channel", ["herald_position", "herald_reset"])
def test_name_that_the_server_shows(cluster, connect, channel):
    """Guards: in the server's own list, pg_herald's reserved channels have names that cannot be guessed."""
    listener = connect(cluster)
    listener.execute(f"LISTEN {channel}")
    name = one(listener, "SELECT pg_listening_channels()")
    assert re.fullmatch(f"{channel}_[0-9a-f]{{16}}", name)
    connect(cluster).execute(f"NOTIFY {name}, 'forged'")
    listener.execute(f"UNLISTEN {channel}")
    assert listener.execute("SELECT pg_listening_channels()").fetchall() == []


def test_a_session_that_cannot_commit(cluster, connect):
    """Guards: if the commit fails after the call, the session is unchanged."""
    sender, listener = connect(cluster), connect(cluster)
    listener.execute("LISTEN a")
    listener.execute("CREATE TEMP TABLE one (n int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    token = position(sender)
    notify(sender, "a", "a1")
    notify(sender, "c", "c1")
    listener.execute("BEGIN; INSERT INTO one VALUES (1), (1)")
    assert resume(listener, "c", token) and resume(listener, "a", token)
    with pytest.raises(psycopg.errors.UniqueViolation):
        listener.execute("COMMIT")
    assert heard(listener, sender, "a") == ["a1"]
    notify(sender, "c", "c2")
    notify(sender, "a", "a2")
    assert hear(listener, 1) == ["a2"]
    until(lambda: one(sender, "SELECT needed = dispatched FROM herald.queue"), "it holds nothing back")


def test_very_many_channels(cluster, connect):
    """Guards: more channels in one transaction than PostgreSQL 19 handles quickly: all resume, and the server's own
    queue is not used for them."""
    sender, listener = connect(cluster), connect(cluster)
    token = position(sender)
    for number in range(250):
        notify(sender, f"c{number}", str(number))
    listener.execute("BEGIN")
    assert all(resume(listener, f"c{number}", token) for number in range(250))
    listener.execute("COMMIT")
    assert hear(listener, 250) == [str(number) for number in range(250)]
    assert resume(listener, "c0", token) is True
    assert hear(listener, 1) == ["0"]
