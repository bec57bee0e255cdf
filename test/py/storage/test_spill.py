"""Listeners that fall behind: their unread notifications are kept in temporary files, and no other session waits."""

import os
import signal
import threading
from pathlib import Path

import pytest

from harness.listeners import Listeners
from laggards import (
    KILOBYTES_7, RING_BYTES, SEGMENT_BYTES, SMALLEST, compare, counted, fall_behind, files, hear_all,
    no_files_left, no_leak, open_spill_files, send, spilled, watcher_at_rest,
)
from sequences import nothing_wrong, send_sequences
from servers import SETTINGS, started
from support import (
    hear, notify, one, outcome, read_bytes, reads, reconnect, state_of, stopped, until, until_crashed, wait_event,
)
from wire import cstring, payloads


@pytest.fixture(scope="module")
def spilling():
    """A server with the smallest memory settings."""
    for cluster in started(preload=True, settings=SETTINGS | SMALLEST):
        yield cluster
        no_leak(cluster)


@pytest.fixture
def watcher(spilling, connect):
    """A session that listens to nothing; the test begins without files."""
    return watcher_at_rest(spilling, connect)


# ---- one laggard, and its files ----

@pytest.mark.parametrize("failed", [False, True], ids=["idle in a block", "in a failed block"])
def test_laggard_in_a_transaction(spilling, connect, watcher, failed):
    """Guards: a listener that stays in a transaction for many laps of the ring blocks no other session, and receives
    everything once and in order when the transaction ends; then the files are deleted."""
    laggard, listener, sender = connect(spilling), connect(spilling), connect(spilling)
    fall_behind(laggard, failed=failed)
    listener.execute("LISTEN c")
    sent = send(sender, 20, heard_by=listener)
    assert spilled(watcher) == sum(path.stat().st_size for path in files(spilling.data))
    assert spilled(watcher) > 18 * RING_BYTES
    laggard.execute("ROLLBACK")
    hear_all(laggard, sent)
    notify(sender, "c", "goes on")
    assert hear(laggard, 1) == hear(listener, 1) == ["goes on"]
    no_files_left(spilling, watcher)
    assert open_spill_files(laggard.info.backend_pid) == []
    segments_spilled, *others = counted(watcher)
    assert segments_spilled > 18 * 8 and others == [0, 0]


def test_views_of_files(spilling, connect, watcher):
    """Guards: the views and pg_notification_queue_usage() show a laggard whose position is in a file."""
    laggard, sender = connect(spilling), connect(spilling)
    fall_behind(laggard)
    assert one(watcher, "SELECT pending_bytes FROM herald.listeners") == 0
    notify(sender, "c", "first")
    began = one(watcher, "SELECT clock_timestamp()")
    sent = ["first", *send(sender, 4)]
    size, used, usage, needed, tail, dispatched = watcher.execute(
        "SELECT spilled, used, usage, needed, tail, dispatched FROM herald.queue").fetchone()
    assert needed < tail < dispatched
    assert used == dispatched - needed
    assert size == tail - needed + needed % SEGMENT_BYTES
    assert usage == used / (8 * 1024**3) == one(watcher, "SELECT pg_notification_queue_usage()")
    looked = one(watcher, "SELECT clock_timestamp()")
    pending_bytes, is_old_enough = watcher.execute(
        "SELECT pending_bytes, pending_age >= %s FROM herald.listeners", (looked - began,)).fetchone()
    assert pending_bytes == used
    assert is_old_enough, "the age of the first notification that it has yet to read is not known"
    laggard.execute("COMMIT")
    hear_all(laggard, sent)


@pytest.mark.parametrize("how", ["terminated", "closed", "unlisten"])
def test_laggard_goes(spilling, connect, watcher, how):
    """Guards: the files that only one listener needs are deleted when it exits or stops listening."""
    laggard, listener, sender = connect(spilling), connect(spilling), connect(spilling)
    fall_behind(laggard)
    listener.execute("LISTEN c")
    send(sender, 3, heard_by=listener)
    assert spilled(watcher) > RING_BYTES
    if how == "terminated":
        assert one(watcher, "SELECT pg_terminate_backend(%s, 20000)", laggard.info.backend_pid)
    elif how == "closed":
        laggard.close()
    else:
        laggard.execute("UNLISTEN *; COMMIT")
    no_files_left(spilling, watcher)
    send(sender, 3, heard_by=listener)
    assert spilled(watcher) == 0
    if how == "unlisten":
        laggard.execute("LISTEN c")
        notify(sender, "c", "heard")
        assert hear(laggard, 1) == ["heard"]
    assert counted(watcher)[1:] == (0, 0)


def test_terminated_while_it_reads(spilling, connect, wire, watcher):
    """Guards: a listener that is terminated while it reads the files, blocked on its client, leaves nothing; meanwhile
    it keeps no file open, so that deleted files free their disk space."""
    mute, sender = wire(spilling), connect(spilling)
    fall_behind(mute)
    send(sender, 10)
    mute.send(("Q", cstring("COMMIT")))
    until(lambda: wait_event(watcher, mute.pid) == "ClientWrite", "it waits for its client")
    assert open_spill_files(mute.pid) == []
    assert one(watcher, "SELECT pg_terminate_backend(%s, 20000)", mute.pid)
    no_files_left(spilling, watcher)


def test_laggard_is_killed(spilling, connect, watcher):
    """Guards: after a crash of the server no file is left, and new ones can be created."""
    laggard, sender = connect(spilling), connect(spilling)
    fall_behind(laggard)
    send(sender, 3)
    assert files(spilling.data)
    os.kill(laggard.info.backend_pid, signal.SIGKILL)
    until_crashed(watcher)
    works_afresh(spilling, connect)


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_restart(spilling, connect, watcher, mode):
    """Guards: after a restart of the server no file is left, and new ones can be created."""
    laggard, sender = connect(spilling), connect(spilling)
    fall_behind(laggard)
    send(sender, 3)
    assert files(spilling.data)
    spilling.restart(mode)
    works_afresh(spilling, connect)


def works_afresh(cluster, connect) -> None:
    """Checks that there are no files, and that a laggard is served by new ones."""
    watcher = reconnect(cluster, connect)
    assert files(cluster.data) == [] and spilled(watcher) == 0
    laggard = connect(cluster)
    fall_behind(laggard)
    sent = send(watcher, 3)
    assert files(cluster.data)
    laggard.execute("COMMIT")
    hear_all(laggard, sent)
    no_files_left(cluster, watcher)


# ---- several laggards ----

def test_twenty_laggards_share_the_files(spilling, connect, watcher):
    """Guards: twenty laggards share one copy of the spilled segments."""
    sender = connect(spilling)
    written = []
    for count in (1, 20):
        laggards = [connect(spilling) for _ in range(count)]
        fall_behind(*laggards)
        watcher.execute("SELECT herald.reset_stats()")
        sent = send(sender, 5)
        written.append(counted(watcher)[0])
        assert len(files(spilling.data)) == spilled(watcher) // SEGMENT_BYTES <= 5 * 8 + 8
        for laggard in laggards:
            laggard.execute("COMMIT")
            hear_all(laggard, sent)
            laggard.close()
        no_files_left(spilling, watcher)
    assert abs(written[0] - written[1]) <= 1, written


def test_laggards_at_different_positions(spilling, connect, watcher):
    """Guards: each laggard receives all since it began to listen; a file is deleted when the last one has read it."""
    sender, laggards, sent = connect(spilling), [connect(spilling) for _ in range(5)], []
    for laggard in laggards:
        fall_behind(laggard)
        sent.append(send(sender, 3))
    for number, laggard in enumerate(laggards):
        assert spilled(watcher) > (len(laggards) - number) * 2 * RING_BYTES
        laggard.execute("COMMIT")
        hear_all(laggard, [payload for part in sent[number:] for payload in part])
        # The watchdog deletes one file after the other: in the end only what the others have not read is left.
        left = (len(laggards) - number - 1) * (3 * RING_BYTES + SEGMENT_BYTES)
        until(lambda: spilled(watcher) <= left, "files are deleted")
        until(lambda: spilled(watcher) == len(files(spilling.data)) * SEGMENT_BYTES, "they have gone")


def test_furthest_behind_goes_last(spilling, connect, watcher):
    """Guards: a laggard that catches up does not remove what one further behind still has to read."""
    sender, first, second = connect(spilling), connect(spilling), connect(spilling)
    fall_behind(first)
    sent = send(sender, 4)
    fall_behind(second)
    later = send(sender, 4)
    before = spilled(watcher)
    second.execute("COMMIT")
    hear_all(second, later)
    latest = send(sender, 2, heard_by=second)
    assert spilled(watcher) > before
    first.execute("COMMIT")
    hear_all(first, sent + later + latest)


# ---- clients that do not read ----

def test_files_for_a_client_that_does_not_read(spilling, connect, wire, watcher):
    """Guards: tens of megabytes pending for a client that does not read its socket block no other session; when it
    reads, it receives all, in order."""
    mute, listener, sender = wire(spilling), connect(spilling), connect(spilling)
    mute.query("LISTEN c")
    listener.execute("LISTEN c")
    sent = send(sender, 50, heard_by=listener)
    assert state_of(watcher, mute.pid) not in ("idle", "busy")
    assert one(watcher, "SELECT pending_bytes FROM herald.listeners WHERE pid = %s", mute.pid) > 20_000_000
    heard = []
    while len(heard) < len(sent):
        heard += payloads([mute.receive()])
    compare(heard, sent)
    notify(sender, "c", "goes on")
    assert payloads([mute.receive()]) == hear(listener, 1) == ["goes on"]
    no_files_left(spilling, watcher)
    assert counted(watcher)[1:] == (0, 0)


def test_clients_that_stop_and_go_on(spilling, watcher):
    """Guards: clients that are stopped for many laps receive every sender's numbers once, in order; those that were not
    stopped have received all by then."""
    clients, transactions, each = 8, 2000, 20
    total = clients * transactions * each
    with Listeners(spilling, 5, check_sequence=clients) as mute, \
            Listeners(spilling, 5, check_sequence=clients) as listeners:
        with stopped(mute.pid):
            send_sequences(spilling, clients, transactions, each)
            assert listeners.wait(5 * total, 30)["sequence"] == nothing_wrong(5 * total)
            assert spilled(watcher) > 10 * RING_BYTES
        assert mute.wait(5 * total, 60)["sequence"] == nothing_wrong(5 * total)
    no_files_left(spilling, watcher)
    assert counted(watcher)[1:] == (0, 0)


@pytest.fixture
def fail_at_commit(spilling, connect, watcher):
    """fail_at_commit(): a transaction that notifies c and channel_1 fails in its commit, with its batch in the
    queue."""
    committed, failing = connect(spilling), connect(spilling)
    watcher.execute("CREATE TABLE skew (number integer)")

    def run() -> None:
        for session in (committed, failing):
            session.execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
            session.execute("SELECT count(*) FROM skew")
            session.execute("INSERT INTO skew VALUES (1)")
        failing.execute("SELECT pg_notify('channel_1', 'aborted'), pg_notify('c', 'aborted')")
        committed.execute("COMMIT")
        assert outcome(failing, "COMMIT").startswith("40001")

    yield run
    for session in (committed, failing):
        session.close()
    watcher.execute("DROP TABLE skew")


@pytest.fixture
def other(spilling, watcher):
    """The name of a second database with pg_herald."""
    watcher.execute("CREATE DATABASE other")
    spilling.create_herald("other")
    yield "other"
    watcher.execute("DROP DATABASE other WITH (FORCE)")


def test_catches_up_at_full_speed(spilling, watcher, other, fail_at_commit):
    """Guards: laggards that catch up, from file to memory, while senders in several databases go on, and transactions
    fail in between, receive each sender's numbers once and in order, and nothing else."""
    clients, transactions, each = 4, 2500, 20
    total = clients * transactions * each
    dbnames = ("postgres", other)
    groups = [Listeners(spilling, 3, check_sequence=clients, dbname=dbname) for dbname in dbnames]
    senders = [threading.Thread(target=send_sequences, args=(spilling, clients, transactions, each, name))
               for name in dbnames]

    def all_sent() -> bool:
        return not any(sender.is_alive() for sender in senders)

    try:
        failed, stops = 0, 0
        head = one(watcher, "SELECT head FROM herald.queue")
        for sender in senders:
            sender.start()
        while not all_sent():
            before = counted(watcher)[0]
            for group in groups:
                os.kill(group.pid, signal.SIGSTOP)
            try:
                until(lambda: counted(watcher)[0] > before + 8 or all_sent(), "they are behind")
                stops += counted(watcher)[0] > before + 8
            finally:
                for group in groups:
                    os.kill(group.pid, signal.SIGCONT)
            fail_at_commit()
            failed += 1
            until(lambda: spilled(watcher) == 0 or all_sent(), "they have caught up", 60)
        for sender in senders:
            sender.join()
        assert failed > 0 and stops > 0
        assert one(watcher, "SELECT head FROM herald.queue") - head > 10 * RING_BYTES
        for group in groups:
            assert group.wait(3 * total, 60)["sequence"] == nothing_wrong(3 * total)
    finally:
        for sender in senders:
            if sender.is_alive():
                sender.join()
        for group in groups:
            group.close()
    no_files_left(spilling, watcher)
    assert counted(watcher)[1:] == (0, 0)


# ---- contents of the files ----

def test_every_size_through_files(spilling, connect, watcher, other, fail_at_commit):
    """Guards: batches of every size, failed ones, and those of other databases are read from files as from memory."""
    laggard, sender, elsewhere = connect(spilling), connect(spilling), connect(spilling, other)
    fall_behind(laggard)
    sent = []
    for number in range(60):
        sizes = [(number * 37 + repeat * 911) % 7990 for repeat in range(number % 8 + 1)]
        part = [f"{number} {repeat} ".ljust(size + 10, "y")[:7999] for repeat, size in enumerate(sizes)]
        sender.execute("SELECT pg_notify('c', payload) FROM unnest(%s::text[]) payload", (part,))
        sent += part
        notify(elsewhere, "c", KILOBYTES_7)
        fail_at_commit()
    assert spilled(watcher) > RING_BYTES
    laggard.execute("COMMIT")
    hear_all(laggard, sent)


def test_floods_of_other_databases(spilling, connect, watcher, other):
    """Guards: a listener that is behind does not read the files of other databases' floods, and receives its own
    notifications from between them."""
    laggard, sender, elsewhere = connect(spilling), connect(spilling), connect(spilling, other)
    fall_behind(laggard)
    for number in range(3):
        notify(sender, "c", f"own {number}")
        send(elsewhere, 20)
    before = read_bytes(laggard.info.backend_pid)
    laggard.execute("COMMIT")
    assert hear(laggard, 3) == ["own 0", "own 1", "own 2"]
    no_files_left(spilling, watcher)
    assert read_bytes(laggard.info.backend_pid) - before < 4 * SEGMENT_BYTES


def test_behind_what_was_rolled_back(spilling, connect, watcher, fail_at_commit):
    """Guards: finding out since when a listener lags does not take longer the more rolled-back transactions come first.
    The watchdog does this too, and meanwhile no process takes back turns."""
    (token,), = watcher.execute("SELECT herald.position()").fetchall()
    for _ in range(300):
        fail_at_commit()
    sessions = [connect(spilling) for _ in range(10)]
    for session in sessions:
        session.execute("BEGIN")
        assert one(session, "SELECT herald.listen('c', %s)", token)
    sent = send(connect(spilling), 4)
    before = reads(watcher.info.backend_pid)
    assert one(watcher, "SELECT count(*) FROM herald.listeners WHERE pending_age > '0 s'") == len(sessions)
    assert reads(watcher.info.backend_pid) - before < 20 * len(sessions)
    for session in sessions:
        session.execute("COMMIT")
        hear_all(session, sent)


def test_other_channels_and_encodings(spilling, connect, watcher):
    """Guards: from files too, a listener receives only its own channels, in its client's encoding."""
    laggard, other, sender = connect(spilling), connect(spilling, client_encoding="LATIN1"), connect(spilling)
    fall_behind(laggard, other)
    other.execute("LISTEN d")
    sent = []
    for number in range(200):
        sent.append(f"{number} é{KILOBYTES_7}")
        notify(sender, ("c", "d", "nobody's")[number % 3], sent[-1])
    laggard.execute("COMMIT")
    other.execute("COMMIT")
    hear_all(laggard, sent[0::3])
    hear_all(other, sent[0::3])
    notify(sender, "d", "é")
    assert hear(other, 1) == ["é"]
