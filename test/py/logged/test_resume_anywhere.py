"""Clients that resume logged channels on another server, or after a restart: each notification once, or false."""

from time import monotonic

import pytest
from psycopg import Connection

from faults import Doing
from following import ANCHOR_LOOKS, anchored, has_delivered, looks
from harness.standby import Standby
from resume import position, read, resume
from support import hear, hear_until, notify, one, outcome, state_of, until

pytestmark = pytest.mark.seam

@pytest.fixture
def restarted(primary, connect):
    """A sender, and a standby that has restarted after an anchor and a notification; since then nothing was sent."""
    sender = connect(primary)
    with Standby(primary) as standby:
        anchored(primary, sender)
        notify(sender, "c", "long received")
        until(lambda: has_delivered(standby), "the standby has followed")
        standby.stop("immediate")
        standby.start()
        until(lambda: has_delivered(standby), "its relay has come to the same place")
        yield sender, standby


def test_first_position_of_a_restarted_standby(primary, restarted, connect):
    """Guards: a client that begins on a restarted standby does not receive elsewhere what was sent before."""
    sender, standby = restarted
    token = position(connect(standby))
    notify(sender, "c", "next")
    listener = connect(primary)
    assert resume(listener, "c", token)
    assert hear(listener, 1) == ["next"]


def test_positions_of_a_restarted_standby(primary, restarted, connect):
    """Guards: a client that has resumed there twice, and received nothing the second time, receives nothing twice elsewhere."""
    sender, standby = restarted
    token = position(sender)
    for _ in range(2):
        client = connect(standby)
        assert resume(client, "c", token)
        token = position(client)
        client.close()
    notify(sender, "c", "next")
    listener = connect(primary)
    assert resume(listener, "c", token)
    assert hear(listener, 1) == ["next"]


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_resumes_after_a_restart(primary, connect, mode):
    """Guards: what was sent after a position is received after a restart or a crash, by listen() and by read(), once."""
    sender = connect(primary)
    notify(sender, "c", "before")
    token = position(sender)
    for number in range(5):
        notify(sender, "c", f"{number}")
    notify(sender, "unlogged", "x")
    primary.stop(mode)
    primary.start()
    listener, sender = connect(primary), connect(primary)
    assert resume(listener, "c", token)
    notify(sender, "c", "after")
    assert hear(listener, 6) == ["0", "1", "2", "3", "4", "after"]
    rows, after = read(sender, "c", token)
    assert rows == ["0", "1", "2", "3", "4", "after"]
    notify(sender, "c", "last")
    assert read(sender, "c", after)[0] == ["last"]
    assert resume(listener, "unlogged", token) is False


def test_read_one_by_one(primary, connect):
    """Guards: a call returns whole transactions, also from the WAL; the position of a row in the middle is the one before."""
    sender = connect(primary)
    token = position(sender)
    sender.execute("SELECT count(pg_notify('c', n::text)) FROM generate_series(1, 5) n")
    sender.execute("SELECT count(pg_notify(CASE WHEN n % 2 = 0 THEN 'c' ELSE 'log_d' END, n::text)) FROM generate_series(6, 20) n")
    primary.stop("immediate")
    primary.start()
    client = connect(primary)
    for expected in (range(1, 6), range(6, 21, 2)):
        rows = client.execute("SELECT payload, position FROM herald.read('c', %s, 1)", (token,)).fetchall()
        assert [payload for payload, _ in rows] == [str(n) for n in expected]
        for _, within in rows[:-1]:
            assert read(client, "c", within, 1)[0] == [str(n) for n in expected]
        token = rows[-1][1]
        primary.stop("immediate")
        primary.start()
        client = connect(primary)
    assert read(client, "c", token)[0] == []


def test_reads_as_much_as_it_returns(primary, connect):
    """Guards: a client that is far behind and reads a few rows a call comes to the end, with all of them in order; no call
    reads all WAL that it has still to go through."""
    sender = connect(primary)
    token = position(sender)
    for part in range(30):
        sender.execute("SELECT count(pg_notify('c', n || repeat(' ', 1000))) FROM generate_series(%s::int, %s) n",
                       (part * 1000 + 1, part * 1000 + 1000))
        if part % 10 == 9:
            anchored(primary, sender)
    primary.restart()
    client = connect(primary)

    def seconds(rows_max: int) -> float:
        begin = monotonic()
        assert rows_max <= len(read(client, "c", token, rows_max)[0]) < rows_max + 1000
        return monotonic() - begin

    assert min(seconds(10) for _ in range(3)) < min(seconds(20_000) for _ in range(3)) / 3
    found: list[str] = []
    while len(found) < 30_000:
        rows, token = read(client, "c", token, 700)
        assert rows
        found += [row.strip() for row in rows if row.strip().isdigit()]
    assert found == [str(number) for number in range(1, 30_001)]


def test_moves(primary, connect):
    """Guards: a client that moves between a primary and two standbys receives everything once."""
    sender, listener = connect(primary), connect(primary)
    with Standby(primary) as one_standby, Standby(primary) as other:
        anchored(primary, sender)
        until(lambda: has_delivered(one_standby) and has_delivered(other), "the standbys have followed")
        token = position(sender)
        expected = []
        received = []
        for number in range(12):
            expected.append(f"{number} between")
            notify(sender, "c", expected[-1])
            server = (primary, one_standby, other)[number % 3]
            client = connect(server)
            client.execute("BEGIN; LISTEN herald_position")
            assert resume(client, "c", token) is True
            client.execute("COMMIT")
            expected.append(f"{number} live")
            notify(sender, "c", expected[-1])
            while len(received) < len(expected) or token is None:
                for notified in client.notifies(timeout=10, stop_after=1):
                    if notified.channel == "c":
                        received.append(notified.payload)
                    else:
                        token = notified.payload
            for notified in client.notifies(timeout=0.2):
                assert notified.channel == "herald_position", (notified, received, number)
                token = notified.payload
            client.close()
            assert received == expected
    assert listener.execute("SELECT 1").fetchone() == (1,)


def test_lost_at_a_failover(primary, connect):
    """Guards: a client that has received what a failover has lost cannot resume; one that has not, resumes."""
    sender = connect(primary)
    with Standby(primary) as standby:
        until(lambda: standby.psql("SELECT read_position FROM herald.relay"), "the relay has begun")
        anchored(primary, sender)
        early = position(sender)
        notify(sender, "c", "kept")
        until(lambda: has_delivered(standby), "it has followed")
        kept = position(sender)
        standby.psql("ALTER SYSTEM SET primary_conninfo = ''; SELECT pg_reload_conf()")
        until(lambda: primary.psql("SELECT count(*) FROM pg_stat_replication") == "0", "it follows no longer")
        notify(sender, "c", "lost")
        lost = position(sender)
        primary.stop("immediate")
        assert standby.psql("SELECT pg_promote()") == "t"
        client = connect(standby)
        assert read(client, "c", early)[0] == ["kept"]
        assert resume(client, "c", kept) is True
        notify(client, "c", "new")
        assert resume(connect(standby), "c", lost) is False
        assert str(outcome(client, "SELECT * FROM herald.read('c', %s)", lost)).startswith("55000: ")
        assert read(client, "c", kept)[0] == ["new"]
        primary.start()


@pytest.mark.long
def test_waits_do_not_add_up(primary, connect):
    """Guards: a client that resumes many channels in a transaction, where the standby has not replayed what it has received,
    waits no longer than for one; the next transaction waits again, and resumes when that has come."""
    sender, channels = connect(primary), [f"log_{number}" for number in range(16)]
    with Standby(primary) as standby:
        client = connect(standby)
        anchored(primary, sender)
        client.execute("SELECT pg_wal_replay_pause()")
        until(lambda: one(client, "SELECT pg_get_wal_replay_pause_state()") == "paused", "the replay is paused")
        notify(sender, "log_0", "received")
        received = position(sender)
        notify(sender, "log_7", "new")
        assert seconds_in_vain(client, channels, received) < 2 * seconds_in_vain(client, channels[:1], received)
        doing = Doing(client, f"SELECT herald.listen('log_7', '{received}')")
        connect(standby).execute("SELECT pg_wal_replay_resume()")
        assert doing.end() is None
        assert set(hear_until(client, "new")) <= {"received"}  # to which it listens, too


def seconds_in_vain(client: Connection, channels: list[str], received: str) -> float:
    """How long a transaction takes that resumes none of these channels."""
    began = monotonic()
    with client.transaction():
        assert not any(resume(client, channel, received) for channel in channels)
    return monotonic() - began


def test_positions_of_other_channels(primary, connect):
    """Guards: as long as no position is right for all channels, none is given that could be used."""
    sender = connect(primary)
    token = position(sender)
    notify(sender, "c", "1")
    primary.stop("immediate")
    primary.start()
    sender, listener = connect(primary), connect(primary)
    listener.execute("LISTEN log_d")
    listener.execute("BEGIN")
    assert resume(listener, "c", token)
    void = position(listener)
    listener.execute("COMMIT")
    assert hear(listener, 1) == ["1"]
    assert resume(connect(primary), "c", void) is False
    good = position(listener)
    notify(sender, "c", "2")
    client = connect(primary)
    assert resume(client, "c", good)
    assert hear(client, 1) == ["2"]


def test_setting_changes(primary, connect):
    """Guards: a channel that was not logged all the time since the position cannot resume by the WAL."""
    sender = connect(primary)
    token = position(sender)
    primary.psql("SELECT herald.set_channel('e', logged => true)")
    looks(primary, ANCHOR_LOOKS)
    notify(sender, "e", "0")
    later = position(sender)
    notify(sender, "e", "1")
    primary.stop("fast")
    primary.start()
    client = connect(primary)
    assert resume(client, "e", token) is False
    assert resume(client, "e", later) is True
    assert one(client, "SELECT herald.listen('c', %s)", token) is True


@pytest.mark.parametrize("has_listener", [False, True], ids=["alone", "beside a listener"])
def test_reader_waits_beside_a_change(primary, connect, has_listener):
    """Guards: herald.read() that waits on a standby gets all that is sent on its channel while the setting of another one
    changes, in this call or the next; if its own channel was not logged for a while, the next call fails."""
    sender = connect(primary)
    sender.execute("SELECT herald.set_channel('d', true)")
    with Standby(primary) as standby:
        anchored(primary, sender)
        until(lambda: has_delivered(standby), "the standby has followed")
        watcher, client, other = connect(standby), connect(standby), connect(standby)
        if has_listener:
            other.execute("LISTEN d")
        token = position(client)
        for number, change in enumerate(("false", "true", "NULL")):
            doing = Doing(client, f"SELECT * FROM herald.read('c', '{token}', 10, '1 min')")
            until(lambda: state_of(watcher, client.info.backend_pid), "it waits")
            sender.execute(f"SELECT herald.set_channel('d', {change})")
            notify(sender, "c", f"{number}")
            assert doing.end() is None
            payloads = []
            while not payloads:
                payloads, token = read(client, "c", token, 10, "20 s")
            assert payloads == [f"{number}"]
        doing = Doing(client, f"SELECT * FROM herald.read('c', '{token}', 10, '1 min')")
        until(lambda: state_of(watcher, client.info.backend_pid), "it waits")
        for logged in ("false", "true"):
            sender.execute(f"SELECT herald.set_channel('c', {logged})")
        notify(sender, "c", "last")
        assert doing.end() is None
        until(lambda: has_delivered(standby), "the standby has followed")
        assert str(outcome(client, "SELECT FROM herald.read('c', %s)", token)).startswith("55000")
