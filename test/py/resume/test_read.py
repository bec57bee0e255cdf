"""herald.read(): returns notifications as rows, without a listening session; and waits for them."""

import os
import signal
import socket
import threading
import time

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from laggards import SMALLEST, send
from resume import position, read
from servers import SETTINGS, started
from support import (
    context_switches, cpu_s, hear, left_nothing, notify, one, outcome, reconnect, state_of, until, until_crashed,
)
from wire import Wire, cstring, error, kinds

WAITING = "SELECT payload FROM herald.read('c', '{}', 1000, '{}')"
LOOKERS = 40


@pytest.fixture(scope="module")
def crowded():
    """A server that allows more than 1,000 waiting sessions."""
    yield from started(preload=True, settings=SETTINGS | {"max_connections": 1050})


@pytest.fixture(scope="module")
def tiny():
    """A server with the smallest queue memory, which retains some files."""
    yield from started(preload=True, settings=SETTINGS | SMALLEST | {"herald.retain_size": "64MB"})


def rows(client, after: str, max_rows: int) -> list:
    """The rows as returned."""
    return client.execute("SELECT * FROM herald.read('c', %s, %s)", (after, max_rows)).fetchall()


def test_rows(cluster, connect):
    """Guards: each row has what a listener receives, the time of the commit, and a position to continue from: the end of its
    transaction, or, if more rows of that follow, the one before it."""
    sender, reader = connect(cluster), connect(cluster)
    first = position(reader)
    began = one(sender, "SELECT clock_timestamp()")
    notify(sender, "c", "1")
    notify(sender, "d", "not asked for")
    sender.execute("BEGIN; NOTIFY c, '2'; NOTIFY c; COMMIT")
    found = rows(reader, first, 1000)
    assert [row[1:4] for row in found] == [("c", payload, sender.info.backend_pid) for payload in ("1", "2", "")]
    assert began < found[0][4] <= found[1][4] == found[2][4] < one(sender, "SELECT clock_timestamp()")
    for row, rest in zip(found, (["2", ""], ["2", ""], [])):
        assert read(reader, "c", row[0])[0] == rest
    assert [row[2] for row in rows(reader, first, 1)] == ["1"]
    assert [row[2] for row in rows(reader, first, 2)] == ["1", "2", ""]
    (last, *others), = rows(reader, found[-1][0], 10)
    assert others == [None] * 6 and read(reader, "c", last)[0] == []


def test_from_now_on(cluster, connect):
    """Guards: without a position it starts now, and returns a position to continue from."""
    sender, reader = connect(cluster), connect(cluster)
    notify(sender, "c", "before")
    found, token = read(reader, "c", None)
    assert found == []
    notify(sender, "c", "after")
    assert read(reader, "c", token)[0] == ["after"]


@pytest.mark.parametrize("page", [1, 7, 1000])
def test_pages(tiny, connect, page):
    """Guards: reading page by page returns everything once, in order, also from the files of large transactions; a page ends
    with a transaction."""
    sender, reader = connect(tiny), connect(tiny)
    token, expected, found = position(reader), [], []
    for number, count in enumerate((3, 400, 1, 400)):
        expected += [f"{number} {n}" for n in range(count) if n % 2]
        sender.execute(f"SELECT count(pg_notify(CASE n % 2 WHEN 1 THEN 'c' ELSE 'd' END, '{number} ' || n ||"
                       f" repeat('.', 2000))) FROM generate_series(0, {count} - 1) n")
    while True:
        payloads, token = read(reader, "c", token, page)
        if not payloads:
            break
        assert len(payloads) < page + 200 and payloads[-1].rstrip(".").split()[1] in ("1", "399")
        found += [payload.rstrip(".") for payload in payloads]
    assert found == expected


def test_waits(cluster, connect, wire):
    """Guards: a call that finds nothing returns the next notifications at once; it is a listener meanwhile, and leaves
    nothing behind. Notifications on other channels do not end it."""
    sender, watcher, reader = connect(cluster), connect(cluster), wire(cluster)
    token = position(sender)
    reader.send(("Q", cstring(WAITING.format(token, "20s"))))
    until(lambda: state_of(watcher, reader.pid) == "idle", "it waits")
    notify(sender, "d", "not asked for")
    sender.execute("BEGIN; NOTIFY c, '1'; NOTIFY c, '2'; COMMIT")
    messages = reader.until_ready()
    assert kinds(messages) == "TDDCZ" and [body[6:] for kind, body in messages if kind == "D"] == [b"1", b"2"]
    until(lambda: left_nothing(watcher), "nobody listens")


def test_several_channels(cluster, connect, wire):
    """Guards: notifications on any of several channels are returned in one order, and a position is valid for all of
    them; a waiting call returns a notification on its second channel."""
    reader, sender, waits = connect(cluster), connect(cluster), connect(cluster)
    names = [f"of many {number}" for number in range(50)] + ["a", "Ä", "a"]
    token = position(reader)
    for number in range(100):
        notify(sender, names[number * 7 % 53], str(number))
        notify(sender, "of no matter", str(number))
    payloads = []
    while True:
        rows = reader.execute("SELECT position, channel, payload FROM herald.read(channels => %s, after => %s, max_rows => 7)", (names, token)).fetchall()
        token = rows[-1][0]
        if rows[0][1] is None:
            break
        assert all(channel == names[int(payload) * 7 % 53] for _, channel, payload in rows)
        payloads += [int(payload) for _, _, payload in rows]
    assert payloads == list(range(100))

    thread = threading.Thread(target=lambda: payloads.extend(
        waits.execute("SELECT channel, payload FROM herald.read(channels => %s, after => %s, wait => '50s')", (["b", "a"], token)).fetchall()))
    thread.start()
    until(lambda: state_of(sender, waits.info.backend_pid) == "idle", "it waits")
    assert one(sender, "SELECT channels FROM herald.listeners WHERE pid = %s", waits.info.backend_pid) == 2
    notify(sender, "of no matter", "more")
    notify(sender, "a", "it")
    thread.join()
    assert payloads[100:] == [("a", "it")]
    assert state_of(sender, waits.info.backend_pid) is None


@pytest.mark.parametrize("channels, error", [
    ("'{}'::text[]", "at least one channel must be given"), ("NULL::text[]", "at least one channel must be given"),
    ("'{a,NULL}'::text[]", "channel name cannot be empty"), ("ARRAY['a', '']", "channel name cannot be empty"),
    ("ARRAY[repeat('x', 64)]", "channel name too long"),
])
def test_channels_that_are_none(cluster, connect, channels, error):
    """Guards: invalid channels are errors."""
    assert outcome(connect(cluster), f"SELECT herald.read({channels})") == f"22023: {error}"


def test_waiting_time_is_over(cluster, connect):
    """Guards: it ends after its wait time, or after herald.max_read_wait if that is less."""
    reader = connect(cluster)
    reader.execute("SET statement_timeout = '30s'")
    for setting, wait in (("1min", "0.3s"), ("300ms", "1 month")):
        reader.execute(f"SET herald.max_read_wait = '{setting}'")
        began = time.monotonic()
        assert read(reader, "c", None, 10, wait)[0] == []
        assert time.monotonic() - began > 0.29
    assert outcome(reader, "SELECT herald.read('c', wait => '-1s')") == "22023: wait must not be negative"
    assert outcome(reader, "SELECT herald.read('c', max_rows => 0)") == "22023: max_rows must be at least 1"


@pytest.mark.parametrize("how, expected", [
    ("cancel", "57014"), ("timeout", "57014"), ("terminate", "57P01"), ("disconnect", None)])
def test_ends_at_once(cluster, connect, wire, how, expected):
    """Guards: cancel requests, timeouts, termination and disconnected clients end a wait; it leaves nothing behind."""
    watcher, reader = connect(cluster), wire(cluster)
    token = position(watcher)
    if how == "timeout":
        reader.query("SET statement_timeout = '2s'")
    reader.send(("Q", cstring(WAITING.format(token, "60s"))))
    if how != "timeout":  # the timeout may have ended the wait already
        until(lambda: state_of(watcher, reader.pid) == "idle", "it waits")
    if how == "cancel":
        reader.cancel()
    elif how == "terminate":
        watcher.execute("SELECT pg_terminate_backend(%s)", (reader.pid,))
    elif how == "disconnect":
        reader.socket.shutdown(socket.SHUT_RDWR)
        reader.socket.close()
    if how in ("cancel", "timeout"):
        assert error(reader.until_ready()).startswith(expected)
        reader.query("RESET statement_timeout")
        assert kinds(reader.query("SELECT 1")) == "TDCZ"
    until(lambda: left_nothing(watcher), "nobody listens")


def test_shutdown(connect, wire):
    """Guards: a fast shutdown does not wait for waiting calls."""
    for server in started(preload=True, settings=SETTINGS):
        watcher, reader = connect(server), wire(server)
        reader.send(("Q", cstring(WAITING.format(position(watcher), "60s"))))
        until(lambda: state_of(watcher, reader.pid) == "idle", "it waits")
        server.restart()
        assert error(reader.until_ready()).startswith("57P01"), "it had waited to its end"


def test_in_a_session_that_listens(cluster, connect):
    """Guards: a session that listens can read, but not wait: it gets an error at once, whether there is something to
    return or not, and goes on."""
    sender, reader = connect(cluster), connect(cluster)
    reader.execute("LISTEN d")
    token = position(sender)
    for sent in ([], ["c1"]):
        for payload in sent:
            notify(sender, "c", payload)
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="cannot wait in a session that listens"):
            read(reader, "c", token, 10, "20s")
        assert read(reader, "c", token, 10, "0")[0] == sent
    notify(sender, "d", "d1")
    assert hear(reader, 1) == ["d1"]


def test_nothing_is_missed_while_it_begins_to_wait(cluster, connect):
    """Guards: a notification sent at any moment is returned by the waiting call."""
    sender, reader = connect(cluster), connect(cluster)
    token, found = position(reader), []
    thread = threading.Thread(target=lambda: [time.sleep(number % 7 / 3000) or notify(sender, "c", str(number))
                                              for number in range(1000)])
    thread.start()
    while len(found) < 1000:
        payloads, token = read(reader, "c", token, 1000, "20s")
        assert payloads, f"nothing came after {len(found)}"
        found += payloads
    thread.join()
    assert found == [str(number) for number in range(1000)]


def test_others_send_meanwhile(cluster, tiny, connect):
    """Guards: a reader that waits on a quiet channel, while other sessions send far more than is kept, is given a new
    position each time its own has become old, before it is invalid; and receives what is sent later."""
    del cluster
    tiny.psql("ALTER SYSTEM SET herald.retain_size = 0; SELECT pg_reload_conf()")
    sender, reader = connect(tiny), connect(tiny)
    until(lambda: one(sender, "SHOW herald.retain_size") == "0", "nothing is retained")
    token, calls, found = position(reader), 0, []

    def read_on():
        nonlocal token, calls
        while not found:
            payloads, token = read(reader, "quiet", token, 10, "50s")
            found.extend(payloads)
            calls += 1

    thread = threading.Thread(target=read_on)
    thread.start()
    until(lambda: reader.info.transaction_status == TransactionStatus.ACTIVE, "it waits")
    for number in range(20):
        before = calls
        send(sender, 1 / 6, f"{number} ")
        until(lambda: calls > before, "it has a new position")  # pylint: disable=cell-var-from-loop
    notify(sender, "quiet", "this one")
    thread.join()
    assert found == ["this one"] and calls >= 20
    notify(sender, "quiet", "next")
    assert read(reader, "quiet", token)[0] == ["next"]
    tiny.psql("ALTER SYSTEM RESET herald.retain_size; SELECT pg_reload_conf()")


def test_much_to_look_through(cluster, connect):
    """Guards: readers that search a large transaction, and find nothing for them, do so without a turn."""
    sender, listener, readers = connect(cluster), connect(cluster), [connect(cluster) for _ in range(LOOKERS)]
    listener.execute("LISTEN d")
    much = "SELECT count(pg_notify('{}', i || repeat('x', 7000))) FROM generate_series(1, {}) i"
    still_looking = []
    while max(still_looking, default=0) <= LOOKERS / 8:  # the listener may have had no CPU meanwhile
        number = len(still_looking)
        assert number < 5, f"they had looked through it before somebody else heard: {still_looking}"
        threads = [threading.Thread(target=read, args=(reader, "m", None, 1, "50s")) for reader in readers]
        for thread in threads:
            thread.start()
        until(lambda: one(sender, "SELECT sum(listeners) FROM herald.channels WHERE channel = 'm'") == LOOKERS, "all wait")
        with sender.transaction():
            sender.execute(f"SAVEPOINT a; {much.format('m', 500)}; ROLLBACK TO a; {much.format('others', 10000)}")
        notify(sender, "d", str(number))
        assert hear(listener, 1) == [str(number)]
        still_looking.append(one(sender, "SELECT count(*) FROM herald.listeners WHERE state = 'processing'"))
        notify(sender, "m", "this is for them")
        for thread in threads:
            thread.join()


def in_two_seconds(readers: list[Wire]) -> tuple[int, float]:
    """How often the servers of these clients are woken up in this time, and their CPU time in seconds."""
    woken, used_s = (-sum(count(reader.pid) for reader in readers) for count in (context_switches, cpu_s))
    time.sleep(2)
    return woken + sum(context_switches(reader.pid) for reader in readers), used_s + sum(cpu_s(reader.pid) for reader in readers)


def test_very_many_wait(crowded, wire, connect):
    """Guards: 1,000 waiting calls are not woken up without cause, and take no CPU time; then all are woken up."""
    watcher, sender = connect(crowded), connect(crowded)
    token = position(sender)
    readers = [wire(crowded) for _ in range(1000)]
    for reader in readers:
        reader.send(("Q", cstring(WAITING.format(token, "50s"))))
    until(lambda: one(watcher, "SELECT count(*) FROM herald.listeners WHERE state = 'idle'") == 1000, "all wait")
    seen = []
    while not seen or seen[-1][0] >= len(readers) / 10 or seen[-1][1] >= 0.5:  # at first some are on their way to sleep
        assert len(seen) < 5, f"woken so many times in two seconds, and their CPU time in seconds: {seen}"
        seen.append(in_two_seconds(readers))
    notify(sender, "c", "heard")
    for reader in readers:
        assert kinds(reader.until_ready()) == "TDCZ"
    until(lambda: left_nothing(watcher), "nobody listens")


def test_a_process_that_is_killed(connect, wire):
    """Guards: the server recovers from the crash of a waiting process as from any crash."""
    for server in started(preload=True, settings=SETTINGS):
        watcher, reader = connect(server), wire(server)
        reader.send(("Q", cstring(WAITING.format(position(watcher), "60s"))))
        until(lambda: state_of(watcher, reader.pid) == "idle", "it waits")
        os.kill(reader.pid, signal.SIGKILL)
        until_crashed(watcher)
        sender = reconnect(server, connect)
        token = position(sender)
        notify(sender, "c", "heard")
        assert read(sender, "c", token)[0] == ["heard"]
