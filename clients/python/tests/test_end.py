"""stop() from other threads and from signal handlers, and cancellation."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pg_herald import events

BACKGROUND = Path(__file__).resolve().parent.parent
DEADLINE_S = 60
WAITS_FOR_TABLE = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'relation'"
PROGRAMS = {
    "psycopg": """
import signal, sys, pg_herald
consumer = pg_herald.Consumer(sys.argv[1], name="billing", channels=["orders"], on_event=lambda event: print(event, flush=True),
                              handle=lambda batch, transaction: transaction.execute("INSERT INTO done VALUES (1)"))
signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
consumer.run()
print("the end")
""",
    "asyncpg": """
import asyncio, signal, sys, pg_herald.asyncpg
async def main():
    async def handle(batch, transaction):
        await transaction.execute("INSERT INTO done VALUES (1)")
    consumer = pg_herald.asyncpg.AsyncConsumer(sys.argv[1], name="billing", channels=["orders"], handle=handle,
                                               on_event=lambda event: print(event, flush=True))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.stop)
    await consumer.run()
asyncio.run(main())
print("the end")
"""}


@pytest.mark.parametrize("driver", PROGRAMS)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals(database, driver, number):
    """Guards: a handler of a signal may call stop(), in the middle of a batch as well; Ctrl-C ends it at once."""
    # A shell starts background processes with SIGINT ignored, and these tests may be one.
    process = subprocess.Popen([sys.executable, "-c", PROGRAMS[driver], database.uri()], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(BACKGROUND)},
                               preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    with process:
        try:
            for line in process.stdout:
                if line.startswith("listening"):
                    break
            with database.connect() as blocker:
                blocker.execute("BEGIN; LOCK TABLE done")
                database.notify(1)
                database.until(lambda: database.one(WAITS_FOR_TABLE), "it waits for the table")
                process.send_signal(number)
                if number == signal.SIGINT:  # it does not wait for the table
                    process.wait(DEADLINE_S)
            output, _ = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()  # if it has not ended by itself
    if number == signal.SIGTERM:
        assert (process.returncode, output.splitlines()[-3:]) == (0, ["handled: 1", "stopped", "the end"])
        assert len(database.done()) == 1
    else:
        assert process.returncode != 0 and "the end" not in output
        database.until(lambda: not database.others(), "its sessions end")
        assert database.done() == []


def test_stop_ends_a_batch(database, subject):
    """Guards: the batch in work is committed, what has come since is not handled, and comes at the next start."""
    consumer = subject(database.uri()).listen()
    with database.connect() as blocker:
        blocker.execute("BEGIN; LOCK TABLE done")
        database.notify(1, 2)
        database.until(lambda: database.one(WAITS_FOR_TABLE), "it waits for the table")
        database.notify(3)
        consumer.consumer.stop()
    assert consumer.has_ended() is None
    assert database.done() == ["1", "2"]
    assert database.one("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database ="
                        " (SELECT oid FROM pg_database WHERE datname = current_database())") == 0
    subject(database.uri()).listen()
    database.until_done(1, 2, 3)


def test_stop_in_a_large_transaction(database, subject):
    """Guards: a transaction that is handled in parts ends first."""
    first, go_on = threading.Event(), threading.Event()

    def work(batch):
        first.set()
        yield lambda: go_on.wait(DEADLINE_S) and None
        yield ("INSERT INTO done SELECT unnest($1::text[])", [each.payload for each in batch])

    consumer = subject(database.uri(), work=work, batch=10).listen()
    database.notify(*range(95))
    assert first.wait(DEADLINE_S)
    consumer.consumer.stop()
    go_on.set()
    assert consumer.has_ended() is None
    database.until_done(*range(95))


def test_stop_in_a_pause(database, subject):
    """Guards: neither a pause between attempts nor one without connections is waited for."""
    def fail(batch):
        yield ValueError("no")

    consumer = subject(database.uri(), work=fail, backoff=(1000, 1000)).listen()
    database.notify(1)
    consumer.wait(events.Failing)
    consumer.stop()
    consumer = subject(database.uri(), backoff=(1000, 1000)).listen()
    database.terminate()
    consumer.wait(events.Disconnected)
    consumer.stop()
    assert consumer.error is None and isinstance(consumer.seen[-1], events.Stopped)


def test_stop_before_the_start(database, subject):
    """Guards: a signal that comes early is not lost."""
    consumer = subject(database.uri())
    consumer.consumer.stop()
    consumer.start().has_ended()
    assert consumer.error is None and not consumer.events(events.Listening)


@pytest.mark.parametrize("subject", ["psycopg-async", "asyncpg"], indirect=True)
@pytest.mark.parametrize("where", ["idle", "batch", "sleep", "pause"])
def test_cancellation(database, subject, where):
    """Guards: it ends at once: what is in work is rolled back, no session stays, and no task."""
    async def sleep():
        await asyncio.sleep(1000)

    def work(batch):
        yield ("INSERT INTO done VALUES ('cancelled')",)
        if where == "batch":
            yield ("SELECT pg_sleep(1000)",)
        yield sleep if where == "sleep" else ValueError("no")

    consumer = subject(database.uri(), work=work, backoff=(1000, 1000)).listen()
    if where != "idle":
        database.notify(1)
        doing = {"batch": "wait_event = 'PgSleep'", "sleep": "state = 'idle in transaction'", "pause": "query = 'ROLLBACK;'"}
        if where == "pause":
            consumer.wait(events.Failing)
        else:
            database.until(lambda: database.one(f"SELECT count(*) FROM pg_stat_activity WHERE pid = ANY (%s) AND {doing[where]}",
                                                database.others()), "it is at its work")
    consumer.cancel()
    assert isinstance(consumer.has_ended(), asyncio.CancelledError)
    assert isinstance(consumer.seen[-1], events.Stopped)
    database.until(lambda: not database.others(), "its sessions end")
    assert database.done() == []


def test_stop_from_many_threads(database, subject):
    """Guards: stop() may be called at any time, by several threads."""
    for pause in (0, 0.002, 0.01, 0.03, 0.06):
        consumer = subject(database.uri()).start()
        time.sleep(pause)
        threads = [threading.Thread(target=consumer.consumer.stop) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert consumer.has_ended() is None
