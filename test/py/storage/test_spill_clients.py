"""Senders that write and delete files for other sessions, and the effect on and of their own clients."""

import re

import pytest

from faults import Doing
from following import looks
from laggards import SMALLEST, fall_behind, hear_all, no_files_left, no_leak, spilled
from servers import SETTINGS, started
from support import hear, one, until
from wire import cstring, kinds

pytestmark = pytest.mark.seam

SEND = "PERFORM pg_notify('c', n || repeat('x', 7000)) FROM generate_series({}) n"


def server(**settings):
    """Servers that report each file when it is deleted, as a user may have configured (log_temp_files)."""
    for cluster in started(preload=True, settings=SETTINGS | SMALLEST | {"log_temp_files": 0} | settings):
        cluster.psql("CREATE DATABASE elsewhere")
        cluster.create_herald("elsewhere")
        yield cluster
        no_leak(cluster)


@pytest.fixture(scope="module")
def reporting():
    """With a watchdog, which deletes the files."""
    yield from server()


def test_mute_client_of_one_who_deletes(reporting, connect, wire):
    """Guards: a session that deletes files, and whose client requests all of the server's messages but does not read,
    blocks no other session: in another database files are written, read and deleted."""
    mute, watcher = wire(reporting), connect(reporting)
    laggard, sender = (connect(reporting, "elsewhere") for _ in range(2))
    mute.query("SET client_min_messages = log")
    mute.send(("Q", cstring("DO $$ BEGIN FOR i IN 1..2000 LOOP " + SEND.format("1, 12") +
                            "; ROLLBACK; END LOOP; END $$")))
    state = "SELECT state || ' ' || coalesce(wait_event, '') FROM pg_stat_activity WHERE pid = %s"
    until(lambda: one(watcher, state, mute.pid).startswith("active"), "it has begun")
    until(lambda: one(watcher, state, mute.pid) in ("idle ClientRead", "active ClientWrite"),
          "it is through, or waits for its client", 60)
    fall_behind(laggard)
    sending = Doing(sender, "DO $$ BEGIN FOR i IN 1..300 LOOP " + SEND.format("i, i") +
                    "; COMMIT; END LOOP; END $$")
    assert sending.end() is None
    assert spilled(watcher) > 1_000_000
    laggard.execute("COMMIT")
    hear_all(laggard, [f"{n}{'x' * 7000}" for n in range(1, 301)])
    assert kinds(mute.until_ready()) == "CZ"
    no_files_left(reporting, watcher)


def test_reports_are_not_for_the_client(reporting, connect, wire):
    """Guards: the deletion of a file is reported in the server's log, not to the sender's client."""
    sender, watcher = wire(reporting), connect(reporting)
    sender.query("SET client_min_messages = log")
    looks(reporting, 1)  # the housekeeper reports a file after it has deleted it
    before = reporting.log().count("temporary file: path")
    for _ in range(20):
        messages = sender.query("BEGIN; DO $$ BEGIN " + SEND.format("1, 12") + "; END $$; ROLLBACK")
        assert kinds(messages) == "CCCZ", messages
    no_files_left(reporting, watcher)
    until(lambda: reporting.log().count("temporary file: path") == before + 20, "all are reported")


def test_giving_up_is_not_for_the_client(reporting, connect, wire):
    """Guards: a sender's client gets no message about what others lose because of herald.max_queue_size, nor about the
    files that the sender deletes for that."""
    watcher, sender = connect(reporting), wire(reporting)
    laggards = [connect(reporting) for _ in range(20)]
    watcher.execute("ALTER SYSTEM SET herald.max_queue_size = '1MB'")
    watcher.execute("SELECT pg_reload_conf()")
    until(lambda: one(watcher, "SHOW herald.max_queue_size") == "1MB", "it is reloaded")
    sender.query("SET client_min_messages = log")
    try:
        for laggard in laggards:
            laggard.execute("LISTEN herald_reset")
            fall_behind(laggard)
            for number in range(15):
                assert kinds(sender.query(f"NOTIFY c, '{number} {'x' * 7000}'")) == "CZ"
        for number in range(150):
            assert kinds(sender.query(f"NOTIFY c, '{number} {'x' * 7000}'")) == "CZ"
        assert one(watcher, "SELECT segments_dropped FROM herald.stats") > 10
        for laggard in laggards:
            laggard.execute("COMMIT")
            assert hear(laggard, 1) == ["notifications were missed"]
    finally:
        watcher.execute("ALTER SYSTEM RESET herald.max_queue_size")
        watcher.execute("SELECT pg_reload_conf()")
    no_files_left(reporting, watcher)
