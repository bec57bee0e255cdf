"""herald.heartbeat: a session that listens to herald_position is sent its position at regular times, also when nothing
happens, but not within a transaction."""

import os
import signal
import threading
import time
from pathlib import Path

import psycopg
import pytest

from resume import resume
from servers import SETTINGS, started
from support import hear, let_watchdog_fall_asleep, notify, one, outcome, state_of, until, wait_event, watchdog_pid
from wire import FLUSH, Wire, bind, cstring, kinds, parse

POSITION = "herald_position"
SHORT_MS = 100  # the shortest that there is
SHORT = f"-c herald.heartbeat={SHORT_MS}"
QUIET_S = 10 * SHORT_MS / 1000  # for which no position may come
KILOBYTES_4 = "x" * 4096


@pytest.fixture
def listener(cluster, connect):
    """A session with the shortest heartbeat, which has received its first position."""
    session = connect(cluster, options=SHORT)
    session.execute(f"LISTEN {POSITION}")
    assert len(hear(session, 1)) == 1
    return session


def beats(session: psycopg.Connection, count: int = 2) -> list[str]:
    """The next positions, which must come without a statement."""
    positions = hear(session, count)
    assert len(positions) == count
    return positions


def is_quiet(session: psycopg.Connection) -> bool:
    """Whether nothing comes, apart from what was on its way."""
    hear(session, 1, SHORT_MS / 1000)
    return hear(session, 1, QUIET_S) == []


@pytest.mark.alone
@pytest.mark.parametrize("period_ms", [SHORT_MS, 500])
def test_in_time(cluster, connect, period_ms):
    """Guards: from its first position on an idle session receives one in each period, or a little earlier; also if the
    watchdog was in its long sleep. The server's own timer is the clock."""
    session, clock = connect(cluster, options=f"-c herald.heartbeat={period_ms}"), connect(cluster)
    let_watchdog_fall_asleep(cluster)
    session.execute(f"LISTEN {POSITION}")
    for _ in range(12):
        clock.execute(f"SELECT pg_sleep({period_ms / 1000})")
    came = len(hear(session, 100, 0.01)) - 1
    assert 11 <= came <= 12 * 1.4


def test_stays_good(cluster, connect, listener):
    """Guards: the last position that an idle session was sent is one to resume from, and covers what the session had
    no channel for."""
    sender = connect(cluster)
    notify(sender, "c", "long ago")
    hear(listener, 1)
    last = beats(listener)[-1]
    notify(sender, "c", "since")
    after = connect(cluster)
    assert resume(after, "c", last) is True
    assert hear(after, 1) == ["since"]


def test_many(cluster, connect):
    """Guards: more sessions than the watchdog signals in one look are all sent their positions."""
    sessions = [connect(cluster, options=SHORT) for _ in range(100)]
    for session in sessions:
        session.execute(f"LISTEN {POSITION}")
    for session in sessions:
        beats(session, 4)


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_at_the_end_of_a_transaction(cluster, wire, end):
    """Guards: within a transaction no position comes, and with its end one that was due, before ReadyForQuery."""
    client = wire(cluster, options=SHORT)
    client.query(f"LISTEN {POSITION}")
    client.query("BEGIN; SELECT 1")
    client.arrived()
    assert client.arrived(QUIET_S) == []
    assert kinds(client.query("SELECT 1")) == "TDCZ"
    assert kinds(client.query(end)) == "CAZ"
    assert kinds([client.receive()]) == "A"


def test_within_a_statement(cluster, connect, listener):
    """Guards: a position that becomes due in a statement comes at its end."""
    listener.execute(f"SELECT pg_sleep({QUIET_S})")
    came = [n.channel for n in listener.notifies(timeout=0)]
    assert set(came) == {POSITION}
    assert one(listener, "SELECT 1") == 1


def test_without_a_hook(cluster, wire):
    """Guards: a session that is in a transaction that pg_herald does not know of is sent a position after it."""
    client = wire(cluster, options=SHORT)
    client.query(f"LISTEN {POSITION}")
    client.send(parse("SHOW work_mem", "p"), ("S", b""))
    client.until_ready()
    client.send(bind("p"), FLUSH)
    while kinds([client.receive()]) != "2":
        pass
    assert client.arrived(QUIET_S) == []
    client.send(("S", b""))
    assert kinds(client.until_ready()) in ("AZ", "Z")
    assert kinds([client.receive()]) == "A"


def test_after_an_error(cluster, wire):
    """Guards: positions come again after an error: at once, after the ROLLBACK of a failed transaction, and after one that
    fails outside of a transaction, where the server stops all timers of a session."""
    client = wire(cluster, options=SHORT)
    client.query(f"LISTEN {POSITION}")
    for statement in (b"SELECT 1/0", b"SELECT '\xff'", b"syntax"):
        client.send(("Q", statement + b"\0"))
        assert "E" in kinds(client.until_ready()), statement
        for _ in range(3):
            assert kinds([client.receive()]) == "A", statement
    client.query("BEGIN")
    for statement in ("SELECT 1/0", "SELECT 1"):
        assert "E" in kinds(client.query(statement))
    client.send(("Q", b"SELECT '\xff'\0"))
    assert "E" in kinds(client.until_ready())
    assert client.arrived(QUIET_S) == []
    assert kinds(client.query("ROLLBACK")) == "CAZ"
    for _ in range(3):
        assert kinds([client.receive()]) == "A"


def test_set(cluster, connect, listener):
    """Guards: the setting takes effect with the statement that changes it, in all ways, and for the transaction only where
    it is LOCAL or rolled back."""
    for statement in ("SET herald.heartbeat = '1h'", "SET herald.heartbeat = 0"):
        listener.execute(statement)
        assert is_quiet(listener), statement
        listener.execute("RESET herald.heartbeat")
        beats(listener)
    listener.execute("SET herald.heartbeat = 0")
    listener.execute(f"BEGIN; SET herald.heartbeat = {SHORT_MS}; ROLLBACK")
    assert is_quiet(listener)
    listener.execute(f"BEGIN; SET LOCAL herald.heartbeat = {SHORT_MS}; COMMIT")
    assert is_quiet(listener)
    listener.execute(f"SET herald.heartbeat = {SHORT_MS}")
    beats(listener)
    listener.execute("BEGIN; SET LOCAL herald.heartbeat = 0; COMMIT")
    beats(listener)


def test_shown_for_those_alone(cluster, connect):
    """Guards: herald.listeners shows the heartbeat of sessions that listen to positions, and no value for any other: neither
    one that waits in herald.read(), nor one that has stopped listening to them."""
    def shown() -> list:
        return [None if period is None else period.total_seconds() for period, in
                watcher.execute("SELECT heartbeat FROM herald.listeners ORDER BY heartbeat NULLS FIRST").fetchall()]

    watcher = connect(cluster)
    beating, still, reader, other = (connect(cluster, options=options) for options in (SHORT, "", SHORT, SHORT))
    for session in (beating, still):
        session.execute(f"LISTEN {POSITION}")
    other.execute("LISTEN c")
    thread = threading.Thread(target=reader.execute, args=("SELECT * FROM herald.read('c', wait => '50s')",))
    thread.start()
    until(lambda: state_of(watcher, reader.info.backend_pid) == "idle", "it waits")
    until(lambda: shown() == [None, None, 0, SHORT_MS / 1000], "each has its own")
    notify(watcher, "c", "x")
    thread.join()
    still.execute(f"LISTEN c; UNLISTEN {POSITION}")
    notify(watcher, "c", "x")
    until(lambda: shown() == [None, None, SHORT_MS / 1000], "one has stopped listening to positions")


def test_set_before_and_after(cluster, connect):
    """Guards: it does not matter whether the setting or LISTEN comes first; without LISTEN herald_position nothing comes."""
    session = connect(cluster)
    session.execute(f"SET herald.heartbeat = {SHORT_MS}; LISTEN c")
    assert is_quiet(session)
    session.execute(f"LISTEN {POSITION}")
    beats(session, 3)
    other = connect(cluster)
    other.execute(f"LISTEN {POSITION}")
    assert len(hear(other, 1)) == 1
    assert hear(other, 1, QUIET_S) == [], "the default is no heartbeat"
    other.execute(f"SET herald.heartbeat = {SHORT_MS}")
    beats(other, 3)


def test_set_for_a_role(cluster, connect):
    """Guards: ALTER ROLE sets it for new sessions."""
    admin = connect(cluster)
    admin.execute(f"CREATE ROLE beating LOGIN; ALTER ROLE beating SET herald.heartbeat = {SHORT_MS}")
    session = psycopg.connect(host=str(cluster.socket_folder), port=cluster.port, user="beating", dbname="postgres",
                              autocommit=True)
    session.execute(f"LISTEN {POSITION}")
    beats(session, 3)
    session.close()
    admin.execute("DROP ROLE beating")


def test_set_for_the_server(connect):
    """Guards: after a reload an open session takes the new value with its next statement."""
    for server in started(preload=True, settings=SETTINGS):
        admin, session = connect(server), connect(server)
        session.execute(f"LISTEN {POSITION}")
        assert len(hear(session, 1)) == 1
        admin.execute(f"ALTER SYSTEM SET herald.heartbeat = {SHORT_MS}")
        admin.execute("SELECT pg_reload_conf()")
        until(lambda: one(session, "SHOW herald.heartbeat") == f"{SHORT_MS}ms", "it is reloaded")
        beats(session, 3)
        admin.execute("ALTER SYSTEM RESET herald.heartbeat")
        admin.execute("SELECT pg_reload_conf()")
        until(lambda: one(session, "SHOW herald.heartbeat") == "0", "it is reloaded")
        assert is_quiet(session)


@pytest.mark.parametrize("value, expected", [
    ("'-1'", '22023: -1 ms is outside the valid range for parameter "herald.heartbeat" (0 ms .. 2147483647 ms)'),
    ("1", '22023: invalid value for parameter "herald.heartbeat": 1'),
    ("'99ms'", '22023: invalid value for parameter "herald.heartbeat": 99'),
    ("often", '22023: invalid value for parameter "herald.heartbeat": "often"'),
    ("'1GB'", '22023: invalid value for parameter "herald.heartbeat": "1GB"')])
def test_bad_values(cluster, connect, listener, value, expected):
    """Guards: an invalid value is refused with the server's message, and changes nothing."""
    told = outcome(listener, f"SET herald.heartbeat = {value}")
    assert told.replace("(0 .. 2147483647)", "(0 ms .. 2147483647 ms)").replace(": -1 is", ": -1 ms is") == expected
    beats(listener)


@pytest.mark.parametrize("statement", [f"UNLISTEN {POSITION}", "UNLISTEN *", "DISCARD ALL"])
def test_stops(cluster, connect, listener, statement):
    """Guards: it ends with UNLISTEN and DISCARD ALL, also if the session still listens to others, and nothing wakes the
    session any more; and begins again."""
    watcher = connect(cluster)
    listener.execute("LISTEN c")
    listener.execute(statement)
    before = one(watcher, "SELECT signals_sent FROM herald.stats")
    assert is_quiet(listener)
    assert one(watcher, "SELECT signals_sent FROM herald.stats") - before <= 1
    listener.execute(f"LISTEN {POSITION}")
    beats(listener, 3)


def test_stops_in_the_next_session(cluster, connect):
    """Guards: a new session that takes the slot of one with a heartbeat has none."""
    for _ in range(5):
        session = connect(cluster, options=SHORT)
        session.execute(f"LISTEN {POSITION}")
        beats(session, 1)
        session.close()
    watcher, quiet = connect(cluster), [connect(cluster) for _ in range(5)]
    until(lambda: one(watcher, "SELECT count(*) FROM herald.listeners") == 0, "they have gone")
    for session in quiet:
        session.execute(f"LISTEN {POSITION}")
        assert len(hear(session, 1)) == 1
    for session in quiet:
        assert hear(session, 1, QUIET_S / 2) == []


@pytest.mark.alone
def test_busy(cluster, connect):
    """Guards: a session that is sent positions with its notifications receives no others."""
    session, sender, clock = connect(cluster, options="-c herald.heartbeat=2s"), connect(cluster), connect(cluster)
    session.execute(f"LISTEN {POSITION}; LISTEN c")
    assert len(hear(session, 1)) == 1
    came = []
    for _ in range(500):
        notify(sender, "c", "x")
        came += [n.channel for n in session.notifies(timeout=20, stop_after=2)]
        clock.execute("SELECT pg_sleep(0.01)")
    assert came == ["c", POSITION] * 500


def test_position_of_a_channel_that_resumes(cluster, connect):
    """Guards: a session that resumes a channel receives the rest, and heartbeats after it, each good for what follows."""
    sender = connect(cluster)
    session = connect(cluster, options=SHORT)
    first = one(sender, "SELECT herald.position()")
    for number in range(1500):
        notify(sender, "c", str(number))
    with session.transaction():
        session.execute(f"LISTEN {POSITION}")
        assert resume(session, "c", first) is True
    received = []
    while len(received) < 1500:
        received += [n.payload for n in session.notifies(timeout=20, stop_after=1) if n.channel == "c"]
    assert received == [str(number) for number in range(1500)]
    last = beats(session, 5)[-1]
    notify(sender, "c", "more")
    after = connect(cluster)
    assert resume(after, "c", last) is True
    assert hear(after, 1) == ["more"]


def test_past_the_queue(cluster, connect, listener):
    """Guards: a heartbeat's position covers what has bypassed pg_herald, so that a session can resume from it."""
    sender = connect(cluster)
    before = beats(listener, 1)[0]
    sender.execute("SET herald.enabled = off")
    sender.execute("NOTIFY c, 'natively'")
    assert resume(connect(cluster), "c", before) is False
    until(lambda: resume(connect(cluster), "c", beats(listener, 1)[0]), "a position is good again")


def until_disconnected(session: psycopg.Connection) -> int:
    """The number of positions that came before the server has ended the session."""
    came = 0
    with pytest.raises(psycopg.OperationalError):
        for _ in session.notifies(timeout=60):
            came += 1
    return came


def test_idle_session_timeout(cluster, connect, listener):
    """Guards: heartbeats do not keep a session from being ended by idle_session_timeout."""
    listener.execute(f"SET idle_session_timeout = {10 * SHORT_MS}")
    assert until_disconnected(listener) in range(5, 50)


def test_other_timeouts(cluster, connect, listener):
    """Guards: heartbeats neither cause nor prevent the timeouts of statements and transactions."""
    listener.execute(f"SET statement_timeout = {3 * SHORT_MS}")
    beats(listener, 6)
    for statement in ("SELECT pg_sleep(60)", "SELECT count(pg_sleep(0.01)) FROM generate_series(1, 6000)"):
        assert outcome(listener, statement) == "57014: canceling statement due to statement timeout"
        beats(listener, 6)
    listener.execute("RESET statement_timeout")
    listener.execute(f"SET lock_timeout = {3 * SHORT_MS}; SET idle_in_transaction_session_timeout = {10 * SHORT_MS}")
    beats(listener, 20)
    listener.execute("BEGIN; SELECT 1")
    assert until_disconnected(listener) <= 1


def test_with_parallel_workers(cluster, connect, listener):
    """Guards: parallel workers, which take over the session's settings, send nothing."""
    listener.execute("CREATE TEMP TABLE t AS SELECT generate_series(1, 1000) n")
    listener.execute("CREATE TABLE parallel_t AS SELECT n FROM generate_series(1, 100000) n")
    listener.execute("SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0")
    assert "Workers Planned" in str(listener.execute("EXPLAIN SELECT count(*) FROM parallel_t").fetchall())
    for _ in range(3):
        assert one(listener, "SELECT count(*) FROM parallel_t") == 100000
        beats(listener)
    listener.execute("DROP TABLE parallel_t")


def test_client_that_does_not_read(cluster, connect, wire):
    """Guards: a client whose connection is half full is sent no more of them, so its session does not come to wait for the
    client; when the client has read, they come again."""
    sender, watcher = connect(cluster), connect(cluster)
    client: Wire = wire(cluster, options=SHORT)
    client.query(f"LISTEN {POSITION}; LISTEN c")
    room = int(Path("/proc/sys/net/core/wmem_default").read_text(encoding="ascii"))
    count = room // 4 // len(KILOBYTES_4) + 3  # the kernel calls a socket writable while a quarter is used at most
    for _ in range(count):
        notify(sender, "c", KILOBYTES_4)

    def told() -> int:
        return one(watcher, f"SELECT delivered FROM herald.channels WHERE channel = '{POSITION}'")

    until(lambda: one(watcher, "SELECT delivered FROM herald.listeners") == count, "all is delivered")
    before = told()
    time.sleep(QUIET_S)
    assert told() - before <= 1
    assert state_of(watcher, client.pid) == "idle" and wait_event(watcher, client.pid) == "ClientRead"
    client.arrived(1)
    until(lambda: told() > before + 3, "they come again")
    client.arrived(1)
    client.send(("Q", cstring("SELECT 1")))
    assert kinds(client.until_ready()).replace("A", "") == "TDCZ"


def test_new_watchdog(cluster, connect, listener):
    """Guards: a watchdog that is started again sends the heartbeats that sessions had before."""
    pid = watchdog_pid(cluster)
    os.kill(pid, signal.SIGTERM)
    until(lambda: watchdog_pid(cluster) not in (None, pid), "there is another one")
    hear(listener, 1)
    beats(listener, 5)


def test_shown(cluster, connect, listener):
    """Guards: herald.channels counts the positions that are sent, and names the time of the last one."""
    watcher = connect(cluster)
    beats(listener, 3)
    sent, delivered, is_now = watcher.execute(
        f"SELECT sent, delivered, clock_timestamp() - last_sent < '10 s' FROM herald.channels WHERE channel = '{POSITION}'"
    ).fetchone()
    assert sent == delivered >= 4 and is_now
    watcher.execute("SELECT herald.reset_stats()")
    assert one(watcher, "SELECT sent FROM herald.channels") <= 1
    before = one(watcher, "SELECT delivered FROM herald.listeners")
    beats(listener)
    assert one(watcher, "SELECT delivered FROM herald.listeners") == before == 0
