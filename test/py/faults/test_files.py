"""Faults while temporary files are written and read, and clients that end in the middle of something large."""

import os
import struct
import time
from contextlib import contextmanager

import psycopg
import pytest

from faults import FUNCTIONS, Doing, Points, Scene, pid_of
from laggards import KILOBYTES_7, RING_BYTES, SMALLEST, files, large, send_large
from servers import SETTINGS, started
from small_disk import DISK_BYTES, NAME, small_disk, until_empty, use
from support import (context_switches, hear, hear_until, housekeeper_pid, notify, one, reconnect, state_of, stopped, until,
                     until_crashed, until_gone, works_from_the_start)
from wire import Wire, cstring

# Points while a segment is written to its file. An error at the first two means that it cannot be written.
WRITING = ["spill-create", "spill-written"]
SPILLING = [*WRITING, "spill-saved", "spill-published", "tail-moved"]

# Points while a large transaction is written to its file, all before its commit.
OVERFLOWING = ["large-entered", "large-transaction-write", "large-transaction-written", "large-transaction-complete",
               "large-transaction-referenced"]

MANY = 5000


def send_and_hear(scene: Scene, victim: psycopg.Connection, laps: float) -> list[str]:
    """The victim sends `laps` rings full, unless it ends earlier; returns what the listeners have received."""
    sent = []
    for number in range(int(laps * RING_BYTES / len(KILOBYTES_7))):
        payload = f"{number} {KILOBYTES_7}"
        expected, others = [payload], scene.listeners
        try:
            notify(victim, "c", payload)
        except psycopg.Error:  # before or after its commit: the next notification shows which
            notify(scene.sender, "c", "next")
            expected = [*hear_until(scene.listeners[0], "next"), "next"]
            assert expected in ([payload, "next"], ["next"])
            others = scene.listeners[1:]
        for listener in others:
            assert hear(listener, len(expected)) == expected
        sent += expected
        if victim.closed:
            break
    return sent


@pytest.mark.parametrize("action", ["terminate", "cancel"])
@pytest.mark.parametrize("point", ["files-choose-place", *SPILLING])
def test_spiller(scene, point, action):
    """Guards: if a sender exits, or is cancelled, while it writes others' notifications to a file, the laggard receives
    exactly what the others receive."""
    laggard, victim = scene.listener(), scene.connect()
    laggard.execute("BEGIN; SELECT 1")
    scene.points.arm(point, action, pid_of(victim))
    sent = send_and_hear(scene, victim, 2)
    scene.points.reached(point)
    sent += send_and_hear(scene, scene.sender, 1)
    laggard.execute("COMMIT")
    assert hear(laggard, len(sent)) == sent
    scene.goes_on(also=[laggard])


@pytest.mark.parametrize("point", WRITING)
def test_segment_cannot_be_written(scene, point):
    """Guards: an error of any kind while a segment is written costs the laggards that segment, and costs no other
    session anything; the sender does not fail."""
    laggard = scene.listener()
    laggard.execute("LISTEN herald_reset")
    laggard.execute("BEGIN; SELECT 1")
    scene.points.arm(point, "error", pid_of(scene.sender))
    send_and_hear(scene, scene.sender, 2)
    assert not one(scene.watcher, "SELECT stop_armed(%s)", point)
    laggard.execute("COMMIT")
    assert hear(laggard, 1) == ["notifications were missed"]
    scene.goes_on(also=[laggard])


@pytest.mark.parametrize("point", SPILLING)
def test_spiller_stands_still(scene, point):
    """Guards: while a sender is held in the middle of writing a file, the others go on as long as there is room, and
    then wait; afterwards all receive everything."""
    laggard, victim = scene.listener(), scene.connect()
    laggard.execute("BEGIN; SELECT 1")
    (*sent, own), doing = scene.send_until_standing(point, victim, "c")
    for listener in scene.listeners:
        assert hear(listener, len(sent)) == sent
    before = scene.send()
    for listener in scene.listeners:
        assert hear(listener, 5) == before
    scene.points.release(point)
    assert doing.end() is None
    scene.goes_on([own])
    laggard.execute("COMMIT")
    assert hear(laggard, len(sent) + 11) == [*sent, *before, own, *(f"number {n}" for n in range(5, 10))]


def test_large_transactions_behind_a_spiller_that_stands_still(scene):
    """Guards: large transactions that cannot begin their files because a spiller is held sleep until it goes on: they
    use no CPU time, and block no other session; one that has begun its file goes on."""
    laggard, victim, begun = scene.listener(), scene.connect(), scene.connect()
    large = [scene.connect() for _ in range(3)]
    statement = f"SELECT count(pg_notify('c', n::text)) FROM generate_series(1, {MANY}) n"
    laggard.execute("BEGIN; SELECT 1")
    begun.execute("BEGIN")
    begun.execute(statement)
    (*sent, own), doing = scene.send_until_standing("spill-saved", victim, "c")
    for listener in scene.listeners:
        assert hear(listener, len(sent)) == sent
    waits = [Doing(session, statement) for session in large]
    for session in large:
        until(lambda: one(scene.watcher, "SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s",
                          pid_of(session)) == "LWLock", "it waits")
    begun.execute("SELECT count(pg_notify('c', 'more ' || n)) FROM generate_series(1, 3000) n")
    begun.execute("ROLLBACK")
    before = [context_switches(pid_of(session)) for session in large]
    began = time.monotonic()
    time.sleep(1)
    switches = [context_switches(pid_of(session)) - count for session, count in zip(large, before)]
    assert max(switches) < 20 * (time.monotonic() - began), switches
    scene.goes_on()
    scene.points.release("spill-saved")
    assert [wait.end() for wait in (doing, *waits)] == [None] * 4
    expected = sorted([own, *3 * [str(n) for n in range(1, MANY + 1)]])
    for listener in scene.listeners:
        assert sorted(hear(listener, len(expected))) == expected
    scene.goes_on()


def test_view_beside_a_spiller_that_stands_still(scene):
    """Guards: herald.listeners, which shows how far each listener is behind, including files, does not wait for a
    spiller."""
    laggard, victim = scene.listener(), scene.connect()
    laggard.execute("BEGIN; SELECT 1")
    scene.sender.execute(f"SELECT count(pg_notify('c', n::text)) FROM generate_series(1, {MANY}) n")
    for listener in scene.listeners:
        assert len(hear(listener, MANY)) == MANY
    (*sent, own), doing = scene.send_until_standing("spill-saved", victim, "c")
    for listener in scene.listeners:
        assert hear(listener, len(sent)) == sent
    pending = one(scene.watcher, "SELECT max(pending_bytes) FROM herald.listeners")
    assert pending > one(scene.watcher, "SELECT dispatched - needed FROM herald.queue"), "files count"
    scene.goes_on()
    scene.points.release("spill-saved")
    assert doing.end() is None
    scene.goes_on([own])


def test_deleting_a_file_stands_still(scene):
    """Guards: while the housekeeper deletes a file, which can take long, sessions go on, and write new files, which are
    not deleted with the folder."""
    laggard, victim, large = scene.listener(), scene.connect(), scene.connect()
    statement = f"SELECT count(pg_notify('c', n::text)) FROM generate_series(1, {MANY}) n"
    victim.execute("BEGIN")
    victim.execute(statement)
    scene.points.arm("files-delete")
    victim.execute("ROLLBACK")
    assert scene.points.waiter("files-delete") == housekeeper_pid(scene.cluster)
    laggard.execute("BEGIN; SELECT 1")
    sent = send_and_hear(scene, scene.sender, 2)
    assert one(scene.watcher, "SELECT spilled FROM herald.queue") > 0
    laggard.execute("COMMIT")
    assert hear(laggard, len(sent)) == sent
    large.execute("BEGIN")
    large.execute(statement)
    assert len(files(scene.cluster.data)) > 2
    scene.points.release("files-delete")
    until(lambda: len(files(scene.cluster.data)) == 1, "what is not needed is deleted")
    large.execute("COMMIT")
    scene.goes_on([str(n) for n in range(1, MANY + 1)], also=[laggard])
    until(lambda: not list((scene.cluster.data / "base" / "pgsql_tmp").iterdir()), "the folder goes with the last file")


def test_disk_is_full_while_a_file_is_deleted(stop_points, connect):
    """Guards: a large transaction that finds the disk full while another process deletes a file, whose name is gone by
    then, waits for its room if there is nothing else to delete."""
    with small_disk() as disk, contextmanager(started)(preload=True, pg_config=stop_points, settings=SETTINGS | SMALLEST | {
            "temp_tablespaces": NAME}) as cluster:
        use(cluster, disk)
        cluster.psql(FUNCTIONS)
        points, sender, other = Points(connect(cluster)), connect(cluster), connect(cluster)

        def attempt() -> psycopg.Error | None:
            before = cluster.log().count("No space left on device")
            other.execute("BEGIN")
            send_large(other, DISK_BYTES // 3 * 2)
            (file,) = files(disk)
            with file.open("rb"):  # so that its room is not free yet when its name is gone
                points.arm("files-deleted")
                other.execute("ROLLBACK")
                assert points.waiter("files-deleted") == housekeeper_pid(cluster)
                assert files(disk) == []
                doing = Doing(sender, large(DISK_BYTES // 3 * 2))
                until(lambda: cluster.log().count("No space left on device") > before, "the disk is full")
                time.sleep(0.1)
            points.release("files-deleted")
            problem = doing.end()
            until_empty(disk)
            return problem

        assert attempt() is None


# ---- a file that its transaction has lost ----

@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_file_is_lost_before_the_commit(scene, end):
    """Guards: a large transaction whose file is no longer in the table, by whatever damage, cannot commit; no other
    session is affected, and its session goes on."""
    victim = scene.connect()
    victim.execute("BEGIN")
    victim.execute(f"SELECT count(pg_notify('c', n::text)) FROM generate_series(1, {MANY}) n")
    scene.watcher.execute("SELECT stop_lose_large(%s)", (int(files(scene.cluster.data)[0].suffix[1:]),))
    until(lambda: files(scene.cluster.data) == [], "the housekeeper deletes it")
    try:
        victim.execute(end)
        assert end == "ROLLBACK"
    except psycopg.errors.InternalError_ as error:
        assert end == "COMMIT" and "has lost track of its temporary file" in str(error)
    scene.goes_on()
    notify(victim, "c", "goes on")
    scene.goes_on(["goes on"])


@pytest.mark.parametrize("committed", [True, False], ids=["committed", "failed"])
def test_file_is_lost_during_the_commit(scene, committed):
    """Guards: a large transaction whose file is lost when it is about to get its place in the queue: listeners that get
    there are notified that they have missed something, none if it fails; the server, the sender and others go on."""
    victim, told = scene.connect(), scene.listener("other")
    told.execute("LISTEN herald_reset")
    victim.execute("BEGIN")
    victim.execute(f"SELECT count(pg_notify('other', n::text)) FROM generate_series(1, {MANY}) n")
    scene.points.arm("large-transaction-referenced", "wait", pid_of(victim))
    if not committed:
        scene.points.arm("publish-reserved", "error", pid_of(victim))
    doing = Doing(victim, "COMMIT")
    assert scene.points.waiter("large-transaction-referenced") == pid_of(victim)
    scene.watcher.execute("SELECT stop_lose_large(%s)", (int(files(scene.cluster.data)[0].suffix[1:]),))
    until(lambda: not files(scene.cluster.data), "it is deleted")
    scene.points.release("large-transaction-referenced")
    assert (doing.end() is None) == committed
    assert hear(told, 1, 20 if committed else 0.2) == ["notifications were missed"] * committed
    assert "has lost track of its temporary file" in scene.cluster.log()
    scene.goes_on()
    notify(victim, "other", "goes on")
    assert hear(told, 1) == ["goes on"]


def test_reload_while_a_spiller_stands_still(scene):
    """Guards: the watchdog, which has to publish temp_tablespaces, does not wait for the spiller: it applies other
    settings, and takes turns from listeners that do not use them."""
    laggard, victim = scene.listener(), scene.connect()
    laggard.execute("BEGIN; SELECT 1")
    (*sent, own), doing = scene.send_until_standing("spill-saved", victim, "c")
    for listener in scene.listeners:
        assert hear(listener, len(sent)) == sent
    scene.watcher.execute("ALTER SYSTEM SET herald.wakeup_concurrency = 1")
    scene.watcher.execute("SELECT pg_reload_conf()")
    until(lambda: one(scene.watcher, "SHOW herald.wakeup_concurrency") == "1", "the settings are read")
    for listener in scene.listeners:
        with stopped(pid_of(listener)):
            payloads = scene.send()
            for other in scene.listeners:
                assert other is listener or hear(other, 5) == payloads
        assert hear(listener, 5) == payloads
    scene.points.release("spill-saved")
    assert doing.end() is None
    scene.goes_on([own])
    scene.watcher.execute("ALTER SYSTEM RESET herald.wakeup_concurrency")
    scene.watcher.execute("SELECT pg_reload_conf()")


@pytest.mark.parametrize("action", ["terminate", "cancel", "error"])
@pytest.mark.parametrize("point", OVERFLOWING)
def test_file_of_a_large_transaction(scene, point, action):
    """Guards: a large transaction that fails or exits at any stage before its commit sends nothing and leaves no file;
    if its session still exists, it can send again."""
    victim = scene.connect()
    scene.points.arm(point, action, pid_of(victim))
    statement = f"SELECT count(pg_notify('c', n::text)) FROM generate_series(1, {MANY}) n"
    with pytest.raises(psycopg.Error):
        victim.execute(statement)
    until(lambda: not files(scene.cluster.data), "the file is deleted")
    scene.goes_on()
    if action != "terminate":
        victim.execute(statement)
        scene.goes_on([str(n) for n in range(1, MANY + 1)])


@pytest.mark.parametrize("point", ["files-choose-place", "large-entered", "large-transaction-write",
                                   "large-transaction-written"])
@pytest.mark.parametrize("before", [10, MANY], ids=["in memory", "in the file"])
def test_large_transaction_in_a_savepoint(scene, point, before):
    """Guards: an error while the file is written, in a savepoint that is rolled back, affects only that savepoint."""
    if before == MANY and point in ("files-choose-place", "large-entered"):
        return  # the file exists already
    victim = scene.connect()
    victim.execute("BEGIN")
    victim.execute(f"SELECT count(pg_notify('c', 'before ' || n)) FROM generate_series(1, {before}) n")
    victim.execute("SAVEPOINT s")
    scene.points.arm(point, "error", pid_of(victim))
    with pytest.raises(psycopg.errors.InternalError_):
        victim.execute(f"SELECT count(pg_notify('c', 'rolled back ' || n)) FROM generate_series(1, {MANY}) n")
    victim.execute("ROLLBACK TO s")
    victim.execute(f"SELECT count(pg_notify('c', 'after ' || n)) FROM generate_series(1, {MANY}) n")
    victim.execute("COMMIT")
    scene.goes_on([*(f"before {n}" for n in range(1, before + 1)),
                   *(f"after {n}" for n in range(1, MANY + 1))])


@pytest.mark.parametrize("point", [*OVERFLOWING, "publish-reserve"])
def test_large_transaction_stands_still(scene, point):
    """Guards: a large transaction that is held before it has its place in the queue blocks no other session."""
    victim = scene.connect()
    scene.points.arm(point, "wait", pid_of(victim))
    doing = Doing(victim, f"SELECT count(pg_notify('c', n::text)) FROM generate_series(1, {MANY}) n")
    scene.points.waiter(point)
    scene.goes_on()
    assert doing.runs()
    scene.points.release(point)
    assert doing.end() is None
    scene.goes_on([str(n) for n in range(1, MANY + 1)])


@pytest.mark.parametrize("needed", ["for a duplicate", "for a rollback"])
def test_own_file_cannot_be_read(scene, needed):
    """Guards: a large transaction whose file is corrupted while it is open fails, at the latest when it commits,
    instead of sending something else; its session goes on."""
    victim = scene.connect()
    victim.execute("BEGIN")
    victim.execute(f"SELECT count(pg_notify('c', n::text)) FROM generate_series(1, {MANY}) n")
    victim.execute("SAVEPOINT s")
    victim.execute(f"SELECT count(pg_notify('c', 'more ' || n)) FROM generate_series(1, {MANY}) n")
    os.truncate(*files(scene.cluster.data), 0)
    if needed == "for a rollback":
        victim.execute("ROLLBACK TO s")
    with pytest.raises(psycopg.errors.IoError, match="could not read the notifications of this transaction"):
        notify(victim, "c", *(str(n) for n in range(1, MANY, 500)))
        victim.execute("COMMIT")
    victim.execute("ROLLBACK")
    notify(victim, "c", "heard")
    scene.goes_on(["heard"])


@pytest.mark.parametrize("content", ["segments", "a large transaction"])
@pytest.mark.parametrize("action", ["error", "terminate"])
def test_reader(scene, content, action):
    """Guards: a laggard that fails or exits when it opens its file is disconnected, rather than left with a gap; then
    the file is deleted, and the others go on receiving."""
    victim = scene.listener()
    victim.execute("BEGIN; SELECT 1")
    sent = send_and_hear(scene, scene.sender, 2) if content == "segments" else []
    if not sent:
        scene.sender.execute(f"SELECT count(pg_notify('c', n::text)) FROM generate_series(1, {MANY}) n")
        for listener in scene.listeners:
            assert len(hear(listener, MANY)) == MANY
    scene.points.arm("files-open", action, pid_of(victim))
    with pytest.raises(psycopg.Error):
        victim.execute("COMMIT")
        hear(victim, MANY)
        victim.execute("SELECT 1")
    scene.goes_on()
    until(lambda: one(scene.watcher, "SELECT count(*) FROM herald.listeners") == 3, "it has gone")
    until(lambda: not files(scene.cluster.data), "the files are deleted")


# ---- kill -9 ----

@pytest.mark.parametrize("point", ["spill-create", "spill-written", "spill-published", "tail-moved",
                                   "large-transaction-write", "large-transaction-complete", "publish-reserved", "files-open"])
def test_killed_with_files(faulty, connect, point):
    """Guards: after kill -9 of a process that writes or reads files, and the server's restart, no file is left, and all
    works."""
    watcher, laggard, sender = connect(faulty), connect(faulty), connect(faulty)
    laggard.execute("LISTEN c")
    laggard.execute("BEGIN; SELECT 1")
    is_large = point in OVERFLOWING or point in ("publish-reserved", "files-open")
    Points(watcher).arm(point, "kill")
    with pytest.raises(psycopg.OperationalError):
        for number in range(200):
            if is_large:
                sender.execute(f"SELECT count(pg_notify('c', n::text)) FROM generate_series(1, {MANY}) n")
                laggard.execute("COMMIT")
            notify(sender, "c", f"{number} {KILOBYTES_7}")
    until_crashed(watcher)
    reconnect(faulty, connect)
    assert files(faulty.data) == []
    works_from_the_start(faulty, connect)


# ---- clients ----

def test_client_goes_in_the_midst_of_a_large_message(scene):
    """Guards: when a client disconnects without Terminate while it is sent a message of 20 MB, of which it has read a
    part, its backend ends, the file is deleted, and the others go on receiving."""
    client = Wire(scene.cluster)
    client.query("LISTEN d")
    scene.sender.execute("SET herald.max_payload = '256MB'")
    scene.sender.execute("SELECT pg_notify('d', repeat('x', 20000000))")
    scene.goes_on()
    assert client.socket.recv(100000)
    assert state_of(scene.watcher, client.pid) == "processing" and files(scene.cluster.data)
    client.close()
    until(lambda: state_of(scene.watcher, client.pid) is None, "it has gone")
    until(lambda: not files(scene.cluster.data), "the file is deleted")
    scene.goes_on()


def test_client_is_terminated_in_the_midst_of_a_large_message(scene):
    """Guards: the same if the client stays connected without reading, and its backend is terminated."""
    client = Wire(scene.cluster)
    client.query("LISTEN d")
    scene.sender.execute("SET herald.max_payload = '256MB'")
    scene.sender.execute("SELECT pg_notify('d', repeat('x', 20000000))")
    until(lambda: state_of(scene.watcher, client.pid) == "processing", "it is being sent")
    assert one(scene.watcher, "SELECT pg_terminate_backend(%s, 20000)", client.pid), "it is still there"
    until(lambda: not files(scene.cluster.data), "the file is deleted")
    scene.goes_on()
    client.close()


def test_client_goes_in_the_midst_of_its_statement(scene):
    """Guards: nothing is received of a NOTIFY that was not sent to the server in full."""
    client = Wire(scene.cluster)
    body = cstring(f"SELECT pg_notify('c', '{'x' * 7000}')")
    client.socket.sendall(b"Q" + struct.pack("!I", len(body) + 4) + body[:5000])
    client.close()
    until_gone(scene.watcher, client.pid)
    scene.goes_on()
