"""No memory left for channels; and failures of the background workers."""

import os
import signal

import psycopg
import pytest

from faults import CHANNELS, Doing, listen_to, pid_of
from laggards import files
from support import hear, housekeeper_pid, notify, one, until, watchdog_pid


def test_registry_is_full(scene):
    """Guards: sessions that want more channels than fit into memory are refused, each with a clear error, and leave
    nothing; existing listeners go on, and afterwards the memory is there for others."""
    greedy = [scene.connect() for _ in range(3)]
    with pytest.raises(psycopg.errors.OutOfMemory):
        greedy[0].execute(listen_to("alone", 0, CHANNELS))
    assert one(scene.watcher, "SELECT count(*) FROM herald.channels") == 1
    doing = [Doing(connection, listen_to(f"of_{number}", 0, CHANNELS))
             for number, connection in enumerate(greedy)]
    scene.goes_on()
    for one_of_them in doing:
        error = one_of_them.end()
        assert isinstance(error, psycopg.errors.OutOfMemory)
        assert "herald.channel_memory" in error.diag.message_detail
    assert one(scene.watcher, "SELECT count(*) FROM herald.channels") == 1
    for _ in range(3):  # fill it up bit by bit, and give it back
        count = 0
        with pytest.raises(psycopg.errors.OutOfMemory):
            while count < CHANNELS:
                greedy[0].execute(listen_to("bit", count, 100))
                count += 100
        assert one(scene.watcher, "SELECT count(*) FROM herald.channels") == count + 1
        notify(scene.sender, f"bit_{count - 1}", "still heard")
        assert hear(greedy[0], 1) == ["still heard"]
        scene.goes_on()
        greedy[0].execute("UNLISTEN *")
    assert one(scene.watcher, "SELECT count(*) FROM herald.channels") == 1


def test_registry_is_full_while_it_grows(scene):
    """Guards: a listener that is refused on a channel to which others already listen leaves their list unchanged."""
    greedy = scene.connect()
    count = 0
    with pytest.raises(psycopg.errors.OutOfMemory):
        while True:
            greedy.execute(f"LISTEN full_{count}")
            count += 1
    refused = [scene.connect() for _ in range(8)]
    errors = [Doing(connection, "LISTEN c").end() for connection in refused]
    heard_by = [connection for connection, error in zip(refused, errors) if error is None]
    assert all(error is None or isinstance(error, psycopg.errors.OutOfMemory) for error in errors)
    scene.goes_on(also=heard_by)
    greedy.close()
    until(lambda: one(scene.watcher, "SELECT count(*) FROM herald.channels") == 1, "it has gone")


@pytest.mark.parametrize("how", ["error", "terminate"])
def test_watchdog_fails(scene, how):
    """Guards: a background worker that fails, or is terminated, is started again; meanwhile all listeners receive, also
    past a listener that keeps its turn."""
    before = watchdog_pid(scene.cluster)
    scene.points.arm("watchdog-look", how)
    scene.goes_on()  # this wakes it
    scene.points.reached("watchdog-look")
    scene.goes_on()
    until(lambda: watchdog_pid(scene.cluster) not in (None, before), "there is a new one")
    scene.goes_on()
    victims = [scene.listener() for _ in range(2)]
    for victim in victims:
        os.kill(pid_of(victim), signal.SIGSTOP)
    try:
        scene.goes_on()
        scene.goes_on()
    finally:
        for victim in victims:
            os.kill(pid_of(victim), signal.SIGCONT)


@pytest.mark.parametrize("how", ["error", "terminate"])
def test_housekeeper_fails(scene, how):
    """Guards: a housekeeper that fails, or is terminated, is started again, and deletes files as before."""
    before, victim = housekeeper_pid(scene.cluster), scene.connect()
    scene.points.arm("housekeeper-look", how)
    scene.points.reached("housekeeper-look")
    scene.goes_on()
    until(lambda: housekeeper_pid(scene.cluster) not in (None, before), "there is a new one")
    victim.execute("BEGIN")
    victim.execute("SELECT count(pg_notify('c', n || repeat('x', 7000))) FROM generate_series(1, 20) n")
    assert len(files(scene.cluster.data)) == 1
    victim.execute("ROLLBACK")
    until(lambda: files(scene.cluster.data) == [], "it is deleted")
    scene.goes_on()
