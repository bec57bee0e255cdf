"""Transactions and payloads that are larger than a segment of the queue, and so go through a file."""

import random
import re
import threading
from pathlib import Path

import psycopg
import pytest

from harness.cluster import Cluster
import laggards
from laggards import SMALLEST, no_leak
from servers import SETTINGS, started
from support import hear, load, notify, one, outcome, read_bytes, until

SEGMENT = 64 * 1024  # of the 512 kB queue
MANY = 5000  # notifications that do not fit into a segment: each takes 40 bytes or more


@pytest.fixture(scope="module")
def small():
    """A server with the smallest memory settings, and with prepared transactions."""
    for cluster in started(preload=True, settings=SETTINGS | SMALLEST | {"max_prepared_transactions": 2}):
        yield cluster
        no_leak(cluster)


def files(cluster: Cluster) -> list[str]:
    """The files of large transactions."""
    return [path.name for path in laggards.files(cluster.data) if path.name.startswith("herald.large.")]


def send_many(sender: psycopg.Connection, channel: str, prefix: str = "") -> list[str]:
    """Notifies MANY times in one statement; returns the payloads."""
    sender.execute("SELECT count(pg_notify(%s, %s || n)) FROM generate_series(1, %s) n", (channel, prefix, MANY))
    return [f"{prefix}{n}" for n in range(1, MANY + 1)]


@pytest.fixture
def settled(small):
    """After the test, waits until no file is left."""
    yield
    until(lambda: not files(small) and small.psql("SELECT spilled FROM herald.queue").strip() == "0",
          "the files are deleted")


@pytest.mark.seam
def test_in_order_with_others(small, connect, settled):
    """Guards: a large transaction arrives complete, once, and between those that were committed before and after it;
    also at a laggard, for which it is kept."""
    laggard, listener, sender = connect(small), connect(small), connect(small)
    for connection in (laggard, listener):
        connection.execute("LISTEN c")
    laggard.execute("BEGIN; SELECT 1")
    notify(sender, "c", "before")
    expected = ["before", *send_many(sender, "c", "first "), *send_many(sender, "c", "second "), "after"]
    notify(sender, "c", "after")
    assert hear(listener, len(expected)) == expected
    assert len(files(small)) == 2
    assert one(sender, "SELECT spilled FROM herald.queue") > 2 * 35 * MANY
    laggard.execute("COMMIT")
    assert hear(laggard, len(expected)) == expected


def test_only_listeners_of_its_channels(small, connect, settled):
    """Guards: a listener to one of its channels receives only the notifications of that channel, and other listeners
    nothing; not in another database either, nor if its channels are more than a reference can name."""
    small.psql("CREATE DATABASE elsewhere")
    on_c, on_d, silent, elsewhere = connect(small), connect(small), connect(small), connect(small, "elsewhere")
    sender = connect(small)
    for connection, channel in ((on_c, "c"), (on_d, "d"), (silent, "silent"), (elsewhere, "c")):
        connection.execute(f"LISTEN {channel}")
    for rest in ("'other'", "'other_' || n"):
        sender.execute(f"SELECT pg_notify(CASE n % 3 WHEN 0 THEN 'c' WHEN 1 THEN 'd' ELSE {rest} END, n::text) "
                       f"FROM generate_series(1, {MANY}) n")
        assert hear(on_c, MANY // 3) == [str(n) for n in range(3, MANY + 1, 3)]
        assert hear(on_d, MANY // 3 + 1) == [str(n) for n in range(1, MANY, 3)]
        assert hear(silent, 1, 0.05) == hear(elsewhere, 1, 0.05) == []
    notify(sender, "silent", "last")
    notify(elsewhere, "c", "last")
    assert hear(silent, 1) == hear(elsewhere, 1) == ["last"]
    elsewhere.close()
    small.psql("DROP DATABASE elsewhere WITH (FORCE)")


def test_lost_file_of_others(small, connect, settled):
    """Guards: a session that listens to none of a transaction's channels misses nothing when its file is lost."""
    concerned, other, sender = connect(small), connect(small), connect(small)
    for connection, channel in ((concerned, "c"), (other, "d")):
        connection.execute(f"LISTEN {channel}")
        connection.execute("LISTEN herald_reset")
    for connection in (concerned, other):
        connection.execute("BEGIN")
    notify(sender, "d", "before")
    send_many(sender, "c")
    notify(sender, "d", "behind")
    for path in laggards.files(small.data):
        path.unlink()
    for connection in (concerned, other):
        connection.execute("COMMIT")
    assert hear(other, 2) == ["before", "behind"]
    assert hear(concerned, 1) == ["notifications were missed"]


@pytest.mark.seam
def test_hears_itself(small, connect, settled):
    """Guards: a sender that listens receives its own notifications, in order, before its statement is answered."""
    client = connect(small)
    client.execute("LISTEN c")
    for round in range(3):
        sent = send_many(client, "c", f"{round} ")
        assert hear(client, MANY, 0.01) == sent


@pytest.mark.seam
@pytest.mark.parametrize("seed", range(6))
def test_savepoints_and_duplicates(small, connect, settled, seed):
    """Guards: notifications that are rolled back are not sent, and repeated ones are sent once, wherever the file ends;
    a model of the transaction gives the expected result."""
    rng = random.Random(seed)
    listener, sender = connect(small), connect(small)
    listener.execute("LISTEN c")
    sender.execute("BEGIN")
    sent, levels = [], []  # payloads in order, and how many there were at each savepoint
    for _ in range(40):
        action = rng.choice(["send", "send", "send", "repeat", "savepoint", "release", "rollback"])
        if action == "send" or (action == "repeat" and not sent):
            first, count = rng.randrange(10_000), rng.randrange(1, 1500)
            sender.execute(f"SELECT count(pg_notify('c', n::text)) FROM generate_series({first}, {first + count}) n")
            known = set(sent)
            sent += [str(n) for n in range(first, first + count + 1) if str(n) not in known]
        elif action == "repeat":
            sender.execute("SELECT count(pg_notify('c', word)) FROM unnest(%s::text[]) word",
                           (rng.choices(sent, k=200),))
        elif action == "savepoint":
            sender.execute("SAVEPOINT s")
            levels.append(len(sent))
        elif levels and action == "release":
            sender.execute("RELEASE s")
            levels.pop()
        elif levels:
            sender.execute("ROLLBACK TO s")
            del sent[levels[-1]:]
    sender.execute("COMMIT")
    notify(sender, "c", "end")
    assert hear(listener, len(sent) + 1) == [*sent, "end"]


@pytest.mark.seam
@pytest.mark.parametrize("end", ["ROLLBACK", "ROLLBACK TO s; COMMIT", "SELECT 1 / 0", "COMMIT", "terminate"])
def test_not_committed(small, connect, settled, end):
    """Guards: a transaction that fails, even at its COMMIT, or all of whose notifications are rolled back, sends
    nothing and leaves no file."""
    listener, sender = connect(small), connect(small)
    listener.execute("LISTEN c")
    sender.execute("""
        CREATE TEMPORARY TABLE parent (id integer PRIMARY KEY);
        CREATE TEMPORARY TABLE child (id integer REFERENCES parent DEFERRABLE INITIALLY DEFERRED)
    """)
    sender.execute("BEGIN; SAVEPOINT s")
    send_many(sender, "c")
    assert len(files(small)) == 1
    if end == "COMMIT":
        sender.execute("INSERT INTO child VALUES (1)")
    if end == "terminate":
        assert one(listener, "SELECT pg_terminate_backend(%s, 20000)", sender.info.backend_pid)
    else:
        try:
            sender.execute(end)
        except psycopg.Error:
            pass
        if end == "SELECT 1 / 0":
            sender.execute("ROLLBACK")
    until(lambda: not files(small), "the file is deleted")
    notify(connect(small), "c", "heard")
    assert hear(listener, 1) == ["heard"]


@pytest.mark.seam
@pytest.mark.parametrize("end", ["ROLLBACK", "ROLLBACK TO s"])
def test_rollback_does_not_read(small, connect, settled, end):
    """Guards: a rollback does not read the file again, which would take seconds for a large transaction."""
    sender = connect(small)
    pid = sender.info.backend_pid
    sender.execute("BEGIN; SAVEPOINT s")
    send_many(sender, "c")
    before = read_bytes(pid)
    sender.execute(end)
    assert read_bytes(pid) - before < SEGMENT / 2 < MANY * 40 / 2
    sender.execute("ROLLBACK")


@pytest.mark.seam
def test_rolled_back_and_prepared(small, connect, settled):
    """Guards: a transaction all of whose notifications are rolled back can be prepared, and leaves no file."""
    sender = connect(small)
    sender.execute("BEGIN; SAVEPOINT s")
    send_many(sender, "c")
    sender.execute("ROLLBACK TO s")
    sender.execute("PREPARE TRANSACTION 'without notifications'")
    until(lambda: not files(small), "the file is deleted")
    sender.execute("COMMIT PREPARED 'without notifications'")


def test_fails_with_its_place_in_the_queue(small, connect, settled):
    """Guards: when transactions fail after their references have got places in the queue, while others send and files
    are deleted, each file is deleted once, and nothing of them is delivered."""
    rounds = 400
    listener, another = connect(small), connect(small)
    listener.execute("LISTEN c")
    another.execute("LISTEN another")
    pairs = [(connect(small), connect(small)) for _ in range(3)]
    failed = []

    def fail(number: int) -> None:
        pairs[number][0].execute(f"CREATE TABLE skew_{number} (number integer)")
        for _ in range(rounds):
            for session in pairs[number]:
                session.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
                session.execute(f"SELECT count(*) FROM skew_{number}")
                session.execute(f"INSERT INTO skew_{number} VALUES (1)")
            pairs[number][1].execute("SELECT count(pg_notify('c', n::text)) FROM generate_series(1, 2500) n")
            pairs[number][0].execute("COMMIT")
            failed.append(outcome(pairs[number][1], "COMMIT")[:5])
        pairs[number][0].execute(f"DROP TABLE skew_{number}")

    threads = [threading.Thread(target=fail, args=(number,)) for number in range(3)]
    with load(small, "SELECT pg_notify('another', random()::text);", 1):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    another.close()
    assert failed == ["40001"] * 3 * rounds
    notify(listener, "c", "last")
    assert hear(listener, 1) == ["last"]


def test_many_senders_of_large_transactions(small, connect, settled):
    """Guards: of large and small transactions at the same time, each arrives complete and in one piece everywhere."""
    listeners = [connect(small) for _ in range(4)]
    senders = [connect(small) for _ in range(4)]
    for listener in listeners:
        listener.execute("LISTEN c")

    def send(number: int) -> None:
        for round in range(6):
            send_many(senders[number], "c", f"{number} {round} ")
            notify(senders[number], "c", f"{number} {round} small")

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = 4 * 6 * (MANY + 1)
    heard = hear(listeners[0], total)
    assert len(heard) == total
    for number in range(4):
        mine = [word for word in heard if word.startswith(f"{number} ")]
        assert mine == [f"{number} {round} {rest}" for round in range(6)
                        for rest in (*range(1, MANY + 1), "small")]
    for index, word in enumerate(heard):
        if word.endswith(" 1"):
            prefix = word[:-1]
            assert heard[index:index + MANY] == [f"{prefix}{n}" for n in range(1, MANY + 1)]
    assert all(hear(listener, total) == heard for listener in listeners[1:])


@pytest.fixture
def limit(small):
    """limit(value, *sessions) sets herald.max_queue_size until the test ends, and waits until these sessions see it."""
    def set_limit(value: str | None, *sessions: psycopg.Connection) -> None:
        small.psql(f"ALTER SYSTEM SET herald.max_queue_size = '{value}'" if value else
                   "ALTER SYSTEM RESET herald.max_queue_size")
        small.psql("SELECT pg_reload_conf()")
        for session in sessions:
            until(lambda: one(session, "SHOW herald.max_queue_size") == value, "the setting is known")

    yield set_limit
    set_limit(None)
    until(lambda: small.psql("SHOW herald.max_queue_size") == "8GB", "the setting is taken back")


@pytest.mark.seam
def test_too_large(small, connect, limit):
    """Guards: a transaction beyond the limit is refused at once with a clear error; the session goes on."""
    listener, sender = connect(small), connect(small)
    limit("1MB", sender)
    listener.execute("LISTEN c")
    with pytest.raises(psycopg.errors.ProgramLimitExceeded) as caught:
        sender.execute("SELECT pg_notify('c', n::text) FROM generate_series(1, 100000) n")
    diagnosis = caught.value.diag
    assert diagnosis.message_primary == "too many notifications in one transaction"
    assert diagnosis.message_detail == (
        "The limit for one transaction is 512 kB: half of herald.max_queue_size (1024 kB), or what queue memory leaves"
        " of it if that is less.")
    assert "Increase herald.max_queue_size" in diagnosis.message_hint
    until(lambda: not files(small), "the file is deleted")
    notify(sender, "c", "heard")
    assert hear(listener, 1) == ["heard"]


def test_limit_is_lowered_meanwhile(small, connect, settled, limit):
    """Guards: lowering the limit discards what exceeds it; but what an open transaction has notified already is
    committed and received."""
    listener, laggard, sender = connect(small), connect(small), connect(small)
    for connection in (listener, laggard):
        connection.execute("LISTEN c")
    laggard.execute("LISTEN herald_reset; BEGIN; SELECT 1")
    before = send_many(sender, "c")
    assert hear(listener, MANY) == before
    sender.execute("BEGIN")
    sent = [payload for part in range(5) for payload in send_many(sender, "c", f"{part} ")]
    sender.execute("SAVEPOINT s")
    limit("512kB", sender)
    until(lambda: len(files(small)) == 1, "what the laggard is behind is given up")
    with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="too many notifications"):
        notify(sender, "c", "more")
    sender.execute("ROLLBACK TO s; COMMIT")
    assert hear(listener, len(sent)) == sent
    laggard.execute("COMMIT")
    assert hear(laggard, 1) == ["notifications were missed"]


# ---- payloads ----

@pytest.mark.seam
def test_long_payload(small, connect, settled):
    """Guards: with herald.max_payload raised a payload of many segments arrives complete, alone, among others and when
    it is repeated; the default is the server's limit."""
    listener, sender = connect(small), connect(small)
    listener.execute("LISTEN c")
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="payload string too long"):
        sender.execute("SELECT pg_notify('c', repeat('x', 8000))")
    sender.execute("SET herald.max_payload = '256MB'")
    for size in (8000, SEGMENT - 200, SEGMENT, SEGMENT + 1, 20_000_000):
        sender.execute("SELECT pg_notify('c', repeat('x', %s))", (size,))
        assert hear(listener, 1) == ["x" * size]
    sender.execute("SELECT pg_notify('c', 'short'), pg_notify('c', repeat('y', 300000)), "
                   "pg_notify('c', repeat('y', 300000)), pg_notify('c', repeat('z', 300000)), pg_notify('c', 'last')")
    assert hear(listener, 4) == ["short", "y" * 300_000, "z" * 300_000, "last"]


@pytest.mark.long
@pytest.mark.timeout(180)
def test_longest_payload(small, connect, settled):
    """Guards: 256 MB arrive, and a byte more is refused."""
    listener, sender = connect(small), connect(small)
    listener.execute("LISTEN c")
    sender.execute("SET herald.max_payload = '256MB'")
    sender.execute("SELECT pg_notify('c', repeat('x', 256 * 1024 * 1024))")
    payload, = hear(listener, 1, 120)
    assert len(payload) == 256 * 1024 * 1024 and set(payload) == {"x"}
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="payload string too long"):
        sender.execute("SELECT pg_notify('c', repeat('x', 256 * 1024 * 1024 + 1))")


def test_payloads_longer_than_a_turn(cluster, connect):
    """Guards: in a ring of the default size, payloads longer than what is read in one turn arrive, and so does a
    backlog of small ones after them."""
    listener, sender = connect(cluster), connect(cluster)
    listener.execute("LISTEN c")
    sender.execute("SET herald.max_payload = '1MB'")
    for count, length in ((1, 300_000), (4, 300_000), (100, 7_000)):
        listener.execute("BEGIN; SELECT 1")
        sent = [f"{number} {'x' * length}" for number in range(count)]
        notify(sender, "c", *sent)
        listener.execute("COMMIT")
        assert hear(listener, count) == sent


@pytest.mark.seam
def test_long_payload_leaves_no_memory(small, connect, settled):
    """Guards: a listener releases the memory that one long payload took."""
    def own_memory() -> int:
        status = Path(f"/proc/{listener.info.backend_pid}/status").read_text(encoding="ascii")
        return int(re.search(r"RssAnon:\s+(\d+)", status).group(1))

    listener, sender = connect(small), connect(small)
    listener.execute("LISTEN c")
    before = own_memory()
    sender.execute("SET herald.max_payload = '64MB'")
    sender.execute("SELECT pg_notify('c', repeat('x', 64 * 1024 * 1024))")
    assert len(hear(listener, 1, 60)) == 1
    until(lambda: own_memory() - before < 32 * 1024, "it has given back what it took")


def test_only_granted_roles_raise_the_limit(small, connect):
    """Guards: only superusers, and roles that have been granted it, may raise herald.max_payload: the listeners'
    drivers must be prepared."""
    sender = connect(small)
    sender.execute("CREATE ROLE ordinary")
    sender.execute("SET SESSION AUTHORIZATION ordinary")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        sender.execute("SET herald.max_payload = '1MB'")
    sender.execute("RESET SESSION AUTHORIZATION")
    sender.execute("GRANT SET ON PARAMETER herald.max_payload TO ordinary")
    sender.execute("SET SESSION AUTHORIZATION ordinary")
    sender.execute("SET herald.max_payload = '1MB'")
    sender.execute("RESET SESSION AUTHORIZATION")
    sender.execute("DROP OWNED BY ordinary; DROP ROLE ordinary")
