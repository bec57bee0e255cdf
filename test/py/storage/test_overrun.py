"""Listeners that fall too far behind: one that misses notifications is informed, and no other session is affected."""

import pytest

from laggards import (
    KILOBYTES_7, LOGGED, RING_BYTES, SEGMENT_BYTES, SMALLEST, counted, fall_behind, files, hear_all,
    no_files_left, no_leak, send, spilled, watcher_at_rest,
)
from servers import SETTINGS, started
from slow_commits import SLOW
from support import hear, left_nothing, notify, one, state_of, stopped, until, wait_event
from wire import cstring, fields, kinds, payloads

MEGABYTE = 1024 * 1024
MISSED = "notifications were missed"
GONE = "a missing or unreadable temporary file"


@pytest.fixture(scope="module")
def limited():
    """A server that keeps one megabyte of the queue, half of it in files; commits can hang."""
    for cluster in started(preload=True, settings=SETTINGS | SMALLEST | SLOW | {"herald.max_queue_size": "1MB"}):
        yield cluster
        no_leak(cluster)
        assert KILOBYTES_7 not in cluster.log(), "senders' statements do not belong to what is logged of others"


@pytest.fixture
def watcher(limited, connect):
    """A session that listens to nothing; the test begins without files."""
    return watcher_at_rest(limited, connect)


@pytest.fixture
def limit(watcher):
    """limit(value) sets herald.max_queue_size until the test ends."""
    def set_limit(value: str | None) -> None:
        before = one(watcher, "SHOW herald.max_queue_size")
        watcher.execute(f"ALTER SYSTEM SET herald.max_queue_size = '{value}'" if value else
                        "ALTER SYSTEM RESET herald.max_queue_size")
        watcher.execute("SELECT pg_reload_conf()")
        until(lambda: one(watcher, "SHOW herald.max_queue_size") == (value or "1MB"), f"{before} is no more")

    yield set_limit
    set_limit(None)


@pytest.fixture
def logged(limited):
    """logged() returns, from the log, the PIDs of the listeners that have missed something since the test began, and
    why."""
    before = len(limited.log())
    return lambda: [(int(pid), reason) for pid, reason in LOGGED.findall(limited.log()[before:])]


def is_disconnected(client) -> bool:
    """Whether the client gets the documented error, and nothing after it."""
    messages = client.until_ready()
    assert kinds(messages).lstrip("CA") == "E", kinds(messages)
    error = fields(next(body for kind, body in messages if kind == "E"))
    assert (error["S"], error["C"]) == ("FATAL", "54000")
    assert error["M"] == "terminating connection because it has missed notifications"
    assert error["D"] == ("This session had not read them when herald.max_queue_size was reached"
                          " or the disk was full.")
    assert error["H"] == ('A session that listens to channel "herald_reset" receives a notification there'
                          " instead of this error.")
    return True


# ---- which listeners are informed, and how ----

def test_disconnected(limited, wire, connect, watcher, logged):
    """Guards: a listener past the limit is disconnected at the end of its transaction, with a clear error; one within
    it, and one that keeps up, receive everything."""
    laggard, within, listener, sender = wire(limited), connect(limited), connect(limited), connect(limited)
    fall_behind(laggard)
    listener.execute("LISTEN c")
    send(sender, 1, heard_by=listener)
    fall_behind(within)
    sent = send(sender, 1.5, heard_by=listener)
    assert state_of(watcher, laggard.pid) == "missed", "it is not told before its transaction ends"
    assert one(watcher, "SELECT pending_bytes FROM herald.listeners WHERE pid = %s", laggard.pid) == 0
    until(lambda: logged() == [(laggard.pid, "herald.max_queue_size")], "it is logged")
    segments_spilled, dropped, overruns = counted(watcher)
    assert overruns == 1 and dropped > 0 and segments_spilled > 0
    assert spilled(watcher) + RING_BYTES <= MEGABYTE
    assert kinds(laggard.query("SELECT 2")) == "TDCZ", "it goes on in its transaction"
    laggard.send(("Q", cstring("COMMIT")))
    assert is_disconnected(laggard)
    within.execute("COMMIT")
    hear_all(within, sent)
    notify(sender, "c", "goes on")
    assert hear(within, 1) == hear(listener, 1) == ["goes on"]
    until(lambda: state_of(watcher, laggard.pid) is None, "it has gone")
    no_files_left(limited, watcher)
    assert len(logged()) == counted(watcher)[2] == 1


def test_told_on_its_channel(limited, connect, watcher, logged):
    """Guards: a listener to herald_reset is notified there, once, and goes on with the next notifications."""
    laggard, sender = connect(limited), connect(limited)
    laggard.execute("LISTEN herald_reset")
    fall_behind(laggard)
    send(sender, 5)
    pid = laggard.info.backend_pid
    assert logged() == [(pid, "herald.max_queue_size")]
    laggard.execute("COMMIT")
    told = next(laggard.notifies(timeout=20))
    assert (told.channel, told.payload, told.pid) == ("herald_reset", MISSED, pid)
    sent = send(sender, 3, heard_by=laggard)
    assert len(sent) > 200
    assert counted(watcher)[2] == len(logged()) == 1


def test_told_only_while_it_listens(limited, wire, connect, watcher):
    """Guards: a LISTEN herald_reset that was rolled back, or undone by UNLISTEN, does not count."""
    sender = connect(limited)
    for statements in (["BEGIN", "LISTEN herald_reset", "ROLLBACK"],
                       ["LISTEN herald_reset", "UNLISTEN herald_reset"]):
        laggard = wire(limited)
        for statement in statements:
            laggard.query(statement)
        fall_behind(laggard)
        send(sender, 3)
        laggard.send(("Q", cstring("COMMIT")))
        assert is_disconnected(laggard)


def test_overrun_twice(limited, connect, watcher, logged):
    """Guards: a listener that is overrun again is notified again, and logged again."""
    laggard, sender = connect(limited), connect(limited)
    laggard.execute("LISTEN herald_reset")
    for times in (1, 2, 3):
        fall_behind(laggard)
        send(sender, 5)
        laggard.execute("COMMIT")
        assert hear(laggard, 1) == [MISSED]
        notify(sender, "c", "goes on")
        assert hear(laggard, 1) == ["goes on"]
        assert counted(watcher)[2] == len(logged()) == times


@pytest.mark.parametrize("ends", ["COMMIT", "ROLLBACK", "a failed block"])
def test_at_the_end_of_its_transaction(limited, connect, watcher, ends):
    """Guards: a listener in a transaction is notified when the transaction ends, in whatever way; later notifications,
    its own and those of others, are received."""
    laggard, sender = connect(limited), connect(limited)
    laggard.execute("LISTEN herald_reset")
    fall_behind(laggard, failed=ends == "a failed block")
    send(sender, 4)
    assert hear(laggard, 1, 0.1) == []
    laggard.execute("COMMIT" if ends == "COMMIT" else "ROLLBACK")
    assert hear(laggard, 1) == [MISSED]
    notify(laggard, "c", "its own")
    notify(sender, "c", "another's")
    assert hear(laggard, 2) == ["its own", "another's"]


def test_idle_listener_that_does_not_run(limited, wire, connect, watcher, logged):
    """Guards: a listener whose process does not run at all is overrun like any other."""
    laggard, sender = wire(limited), connect(limited)
    laggard.query("LISTEN c")
    with stopped(laggard.pid):
        send(sender, 4)
        assert logged() == [(laggard.pid, "herald.max_queue_size")]
    assert is_disconnected(laggard)


def test_client_that_does_not_read_is_overrun(limited, wire, connect, watcher, logged):
    """Guards: a client that does not read gets what comes before the gap, in order, and then the notice or error."""
    plain, listener, sender = wire(limited), connect(limited), connect(limited)
    told = wire(limited)
    told.query("LISTEN herald_reset")
    for client in (plain, told):
        client.query("LISTEN c")
    listener.execute("LISTEN c")
    sent = send(sender, 10, heard_by=listener)
    both = sorted((client.pid, "herald.max_queue_size") for client in (plain, told))
    until(lambda: sorted(logged()) == both, "both are overrun")
    heard = []
    while MISSED not in heard:
        heard += payloads([told.receive()])
    assert heard[:-1] == sent[:len(heard) - 1] and len(heard) < len(sent)
    notify(sender, "c", "goes on")
    assert payloads([told.receive()]) == hear(listener, 1) == ["goes on"]
    assert is_disconnected(plain)


def test_told_once_while_it_reads(limited, wire, connect, watcher, logged):
    """Guards: a listener that is overrun while it is blocked in the middle of reading is notified once, although the
    position up to which it was about to read is long gone as well."""
    mute, sender = wire(limited), connect(limited)
    mute.query("LISTEN herald_reset")
    fall_behind(mute)
    sent = send(sender, 1.5)
    mute.send(("Q", cstring("COMMIT")))
    until(lambda: wait_event(watcher, mute.pid) == "ClientWrite", "it reads, and is blocked")
    assert state_of(watcher, mute.pid) == "processing"
    send(sender, 6, "later ")
    heard = []
    while MISSED not in heard:
        heard += payloads([mute.receive()])
    assert heard[:-1] == sent[:len(heard) - 1]
    until(lambda: one(watcher, "SELECT used FROM herald.queue") == 0, "it is through")
    notify(sender, "c", "goes on")
    after = []
    while "goes on" not in after:
        after += payloads([mute.receive()])
    assert after == ["goes on"]
    assert logged() == [(mute.pid, "herald.max_queue_size")] and counted(watcher)[2] == 1


def test_several_at_once(limited, wire, connect, watcher, logged):
    """Guards: each of many listeners that are overrun is informed, and logged once."""
    laggards, told = [wire(limited) for _ in range(10)], [connect(limited) for _ in range(10)]
    sender = connect(limited)
    for connection in told:
        connection.execute("LISTEN herald_reset")
    fall_behind(*laggards, *told)
    send(sender, 6)
    everyone = [client.pid for client in laggards] + [connection.info.backend_pid for connection in told]
    assert sorted(logged()) == sorted((pid, "herald.max_queue_size") for pid in everyone)
    assert counted(watcher)[2] == 20
    for client in laggards:
        client.send(("Q", cstring("COMMIT")))
        assert is_disconnected(client)
    for connection in told:
        connection.execute("COMMIT")
        assert hear(connection, 1) == [MISSED]
    notify(sender, "c", "goes on")
    assert [hear(connection, 1) for connection in told] == [["goes on"]] * 10


def test_laggard_on_other_channels(limited, connect, watcher, logged):
    """Guards: a listener that stays in a transaction misses nothing while nothing is sent on its channels."""
    laggard, sender = connect(limited), connect(limited)
    fall_behind(laggard)
    for number in range(1000):
        notify(sender, "another", f"{number} {'x' * 7000}")
    notify(sender, "c", "heard")
    laggard.execute("COMMIT")
    assert hear(laggard, 1) == ["heard"]
    assert counted(watcher) == (0, 0, 0) and logged() == []


# ---- transactions that are larger than a segment ----

def send_large(sender, prefix: str) -> list[str]:
    """Notifies c of more than a third of what may be in files, in one transaction; returns the payloads."""
    sender.execute("SELECT count(pg_notify('c', %s || n)) FROM generate_series(1, 5000) n", (prefix,))
    return [f"{prefix}{n}" for n in range(1, 5001)]


def test_large_transactions_are_given_up(limited, wire, connect, watcher, logged):
    """Guards: the files of large transactions count for the limit; the oldest is discarded, and a listener that needed
    it is disconnected when it gets there; one that came later receives all."""
    laggard, within, sender = wire(limited), connect(limited), connect(limited)
    fall_behind(laggard)
    send_large(sender, "first ")
    fall_behind(within)
    sent = send_large(sender, "second ")
    assert logged() == [] and spilled(watcher) > RING_BYTES * 2 / 3
    sent += send_large(sender, "third ")
    assert spilled(watcher) <= MEGABYTE - RING_BYTES
    until(lambda: len(files(limited.data)) == 2, "the first is deleted")
    within.execute("COMMIT")
    hear_all(within, sent)
    assert counted(watcher)[2] == len(logged()) == 0
    laggard.send(("Q", cstring("COMMIT")))
    assert is_disconnected(laggard)
    assert logged() == [(laggard.pid, GONE)] and counted(watcher)[2] == 1


def test_large_transactions_elsewhere(limited, connect, watcher, logged):
    """Guards: large transactions that are discarded cost a listener nothing if they are not for it, e.g. in another
    database, however far behind it is."""
    watcher.execute("CREATE DATABASE elsewhere")
    limited.create_herald("elsewhere")
    with connect(limited, "elsewhere") as laggard, connect(limited, "elsewhere") as neighbour:
        fall_behind(laggard)
        notify(neighbour, "c", "heard")
        for number in range(4):
            send_large(watcher, f"{number} ")
        laggard.execute("COMMIT")
        assert hear(laggard, 1) == ["heard"]
    assert counted(watcher)[2] == len(logged()) == 0
    until(lambda: left_nothing(watcher), "they are gone")
    watcher.execute("DROP DATABASE elsewhere WITH (FORCE)")


@pytest.mark.parametrize("end", ["committed", "rolled back"])
def test_not_while_it_is_being_committed(limited, wire, connect, watcher, logged, end):
    """Guards: the file of a large transaction is not discarded during its commit, because its listeners cannot be known
    yet, and the commit may still fail."""
    laggard, sender, holder, hangs = connect(limited), connect(limited), wire(limited), wire(limited)
    fall_behind(laggard)

    # A commit that hangs after it has got its place in the queue: it waits for the server's own lock.
    holder.query("SET herald.enabled = off; SET synchronous_commit = on")
    watcher.execute("CREATE TABLE IF NOT EXISTS written (number integer)")
    holder.send(("Q", cstring("INSERT INTO written VALUES (1); NOTIFY other")))
    until(lambda: wait_event(watcher, holder.pid) == "SyncRep", "the holder's commit hangs")
    hangs.query("BEGIN; SELECT count(pg_notify('c', 'first ' || n)) FROM generate_series(1, 5000) n;"
                " SET LOCAL herald.enabled = off; NOTIFY other")
    hangs.send(("Q", cstring("COMMIT")))
    until(lambda: wait_event(watcher, hangs.pid) == "object", "the commit hangs")

    sent = send_large(sender, "second ") + send_large(sender, "third ")
    if end == "rolled back":
        assert one(watcher, "SELECT pg_cancel_backend(%s)", hangs.pid)
        assert kinds(hangs.until_ready()) == "EZ"
    assert one(watcher, "SELECT pg_cancel_backend(%s)", holder.pid)
    holder.until_ready()
    if end == "committed":
        assert kinds(hangs.until_ready()) == "CZ"
        sent = [f"first {n}" for n in range(1, 5001)] + sent
    laggard.execute("COMMIT")
    hear_all(laggard, sent)
    assert counted(watcher)[1:] == (0, 0) and logged() == []


# ---- the limit ----

def test_no_files_at_all(limited, wire, connect, watcher, limit, logged):
    """Guards: with a limit of 0 no file is written, and only the ring is kept; a listener that keeps up loses none."""
    limit("0")
    laggard, listener, sender = wire(limited), connect(limited), connect(limited)
    fall_behind(laggard)
    listener.execute("LISTEN c")
    send(sender, 0.7, heard_by=listener)
    assert counted(watcher) == (0, 0, 0)
    send(sender, 10, heard_by=listener)
    segments_spilled, dropped, overruns = counted(watcher)
    assert (segments_spilled, overruns) == (0, 1) and dropped > 0
    until(lambda: files(limited.data) == [], "no file is left")
    assert logged() == [(laggard.pid, "herald.max_queue_size")]
    laggard.send(("Q", cstring("COMMIT")))
    assert is_disconnected(laggard)


def test_nothing_is_dropped_without_laggards(limited, watcher, limit):
    """Guards: data that no listener needs is not counted as dropped, however many senders want its room at once."""
    limit("0")
    limited.client("pgbench", "-n", "-c16", "-t1000", "-f", "/dev/stdin", timeout_s=100,
                   stdin="SELECT pg_notify('c', n || repeat('x', 7000)) FROM generate_series(1, 3) n;\n")
    assert counted(watcher) == (0, 0, 0)


def test_limit_is_lowered(limited, wire, connect, watcher, limit, logged):
    """Guards: once the limit is lowered, files beyond it are deleted even if nothing is sent; only listeners that
    needed them are affected."""
    limit("1GB")
    early, late, sender = wire(limited), connect(limited), connect(limited)
    fall_behind(early)
    send(sender, 10)
    fall_behind(late)
    sent = send(sender, 2)
    assert spilled(watcher) > 9 * RING_BYTES and logged() == []
    limit("2MB")
    until(lambda: spilled(watcher) <= 2 * MEGABYTE - RING_BYTES, "files are deleted")
    sent += send(sender, 0.5)
    until(lambda: len(files(limited.data)) == spilled(watcher) // SEGMENT_BYTES, "the others are deleted")
    assert logged() == [(early.pid, "herald.max_queue_size")] and counted(watcher)[2] == 1
    late.execute("COMMIT")
    hear_all(late, sent)
    early.send(("Q", cstring("COMMIT")))
    assert is_disconnected(early)


def test_limit_is_raised(limited, connect, watcher, limit, logged):
    """Guards: once the limit is raised, more is kept."""
    limit("8MB")
    laggard, sender = connect(limited), connect(limited)
    fall_behind(laggard)
    sent = send(sender, 12)
    assert logged() == []
    laggard.execute("COMMIT")
    hear_all(laggard, sent)
