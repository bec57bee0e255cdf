"""Small memory, much to send, and clients that do not listen."""

import threading
import time

import psycopg
import pytest

from harness.listeners import Listeners
from support import hear, hear_until, left_nothing, notify, one, stopped, until

KILOBYTES_7 = "x" * 7000


def send_until_full(sender: psycopg.Connection, prefix: str) -> list[str]:
    """Notifies c until it is refused; the payloads that were not."""
    sent = []
    while len(sent) < 1000:
        payload = f"{prefix} {len(sent)} {KILOBYTES_7}"
        try:
            notify(sender, "c", payload)
        except psycopg.errors.ProgramLimitExceeded as error:
            assert error.sqlstate == "54000"
            assert error.diag.message_primary == \
                "too many notifications in the queue of pg_herald (herald.queue_memory is 512 kB)"
            assert "makes no progress" in error.diag.message_detail
            assert "herald.listeners" in error.diag.message_hint
            return sent
        sent.append(payload)
    raise AssertionError("a queue of 512 kB has taken 7 MB for a listener that does not read")


def test_sequence_over_many_laps(small):
    """Guards: while a small ring is overwritten many times, each listener hears each sender's numbers once, in order."""
    before = int(small.psql("SELECT head FROM herald.queue"))
    clients, transactions, each = 8, 3000, 10
    script = (rf"\set n :n + {each}" "\n"
              f"SELECT count(pg_notify('channel_1', :client_id || ':' || :n - {each} + g)) FROM generate_series(1, {each}) g;")
    with Listeners(small, 20, check_sequence=clients) as listeners:
        small.client("pgbench", "-n", f"-c{clients}", f"-t{transactions}", "-D", "n=0", "-f", "/dev/stdin",
                     stdin=script, timeout_s=50)
        counts = listeners.wait(20 * clients * transactions * each, 30)
    assert counts["min"] == counts["max"] == clients * transactions * each, counts
    assert counts["sequence"] == {"received": 20 * clients * transactions * each, "out_of_order": 0,
                                  "duplicated": 0, "missing": 0, "malformed": 0}
    laps = (int(small.psql("SELECT head FROM herald.queue")) - before) / (512 * 1024)
    assert laps > 10


def test_laggard_in_a_transaction(small, connect):
    """Guards: if a listener sits in a transaction, senders get a clear error in the end; the others lose
    nothing, and neither does it."""
    laggard, listener, sender = connect(small), connect(small), connect(small)
    laggard.execute("LISTEN c")
    listener.execute("LISTEN c")
    laggard.execute("BEGIN")
    laggard.execute("SELECT 1")
    refused = one(sender, "SELECT refused FROM herald.stats")
    sent = send_until_full(sender, "first")
    assert 30 < len(sent) < 80
    assert hear(listener, len(sent)) == sent
    assert one(sender, "SELECT refused FROM herald.stats") == refused + 1
    assert one(sender, "SELECT pg_notification_queue_usage()") > 0.8
    assert one(sender, "SELECT pending_bytes FROM herald.listeners WHERE pid = %s",
               laggard.info.backend_pid) > 200_000
    laggard.execute("COMMIT")
    assert hear(laggard, len(sent)) == sent
    notify(sender, "c", "goes on")
    assert hear(laggard, 1) == hear(listener, 1) == ["goes on"]


def test_transaction_refused_is_rolled_back(small, connect):
    """Guards: with the queue full the sender's whole transaction fails; who notifies nothing is not concerned."""
    laggard, sender = connect(small), connect(small)
    sender.execute("CREATE TABLE IF NOT EXISTS written (number integer)")
    laggard.execute("LISTEN c")
    laggard.execute("BEGIN")
    laggard.execute("SELECT 1")
    sent = send_until_full(sender, "fill")
    with pytest.raises(psycopg.errors.ProgramLimitExceeded):
        with sender.transaction():
            sender.execute("INSERT INTO written VALUES (1)")
            notify(sender, "c", KILOBYTES_7)
    sender.execute("INSERT INTO written VALUES (2)")
    assert sender.execute("SELECT number FROM written").fetchall() == [(2,)]
    sender.execute("SET herald.enabled = off")
    notify(sender, "c", "the server's way is open")
    laggard.execute("COMMIT")
    assert sorted(hear(laggard, len(sent) + 1)) == sorted([*sent, "the server's way is open"])


@pytest.mark.parametrize("how", ["pg_terminate_backend", "pg_cancel_backend"])
def test_interrupted_while_it_waits(small, connect, how):
    """Guards: a sender that waits for room can be cancelled and terminated; nothing of its transaction is left."""
    laggard, sender, waiting = connect(small), connect(small), connect(small)
    laggard.execute("LISTEN c")
    laggard.execute("BEGIN")
    laggard.execute("SELECT 1")
    sent = send_until_full(sender, "fill")
    done = threading.Event()

    def commit() -> None:
        with pytest.raises((psycopg.OperationalError, psycopg.errors.QueryCanceled)):
            while True:
                try:
                    waiting.execute(f"BEGIN; LISTEN of_the_victim; NOTIFY c, '{KILOBYTES_7}'; COMMIT")
                except psycopg.errors.ProgramLimitExceeded:
                    pass
        done.set()

    running = threading.Thread(target=commit)
    running.start()
    pid = waiting.info.backend_pid
    until(lambda: one(sender, "SELECT wait_event FROM pg_stat_activity WHERE pid = %s", pid) == "Extension",
          "it waits")
    until(lambda: one(sender, f"SELECT {how}(%s)", pid) and done.wait(0.2), "it is interrupted")
    running.join()
    laggard.execute("COMMIT")
    assert hear(laggard, len(sent)) == sent
    waiting.close()
    until(lambda: sender.execute("SELECT * FROM herald.channels").fetchall() == [("c", 1)], "its channel is gone")
    notify(sender, "c", "goes on")
    assert hear(laggard, 1) == ["goes on"]


def test_transaction_too_large(small, connect):
    """Guards: what can never fit is refused at once, and nothing of it is left."""
    listener, sender = connect(small), connect(small)
    listener.execute("LISTEN c")
    with pytest.raises(psycopg.errors.ProgramLimitExceeded) as caught:
        sender.execute("SELECT pg_notify('c', n || %s) FROM generate_series(1, 100) n", (KILOBYTES_7,))
    assert caught.value.diag.message_primary == "too many notifications in one transaction"
    assert "herald.queue_memory at 512 kB" in caught.value.diag.message_detail
    notify(sender, "c", "heard")
    assert hear(listener, 1) == ["heard"]


def test_payloads_of_every_size(small, connect):
    """Guards: sizes around every border of the layout, and the greatest, arrive whole; one more is refused."""
    listener, sender = connect(small), connect(small)
    listener.execute("LISTEN c")
    for size in [*range(0, 300), *range(1000, 8000, 333), *range(7900, 8000)]:
        payload = ("0123456789" * 800)[:size]
        notify(sender, "c", payload)
        assert hear(listener, 1) == [payload]
    with pytest.raises(psycopg.errors.InvalidParameterValue, match="payload string too long"):
        notify(sender, "c", "x" * 8000)


def test_client_that_does_not_read(cluster, connect, wire):
    """Guards: a client that does not read its socket stops nobody: the watchdog passes its turn on, the
    senders do not wait for it for long; and when it reads it finds all, in order."""
    mute, listener, sender = wire(cluster), connect(cluster), connect(cluster)
    mute.query("LISTEN c")
    listener.execute("LISTEN c")
    sent = []
    began = time.monotonic()
    pending = "SELECT pending_bytes FROM herald.listeners WHERE pid = %s"
    while one(sender, pending, mute.pid) < 100_000:
        sent.append(f"{len(sent)} {KILOBYTES_7}")
        notify(sender, "c", sent[-1])
        assert hear(listener, 1) == sent[-1:]
        assert len(sent) < 300, "its socket takes everything"
    for number in range(20):
        notify(sender, "c", f"small {number}")
        assert hear(listener, 1) == [f"small {number}"]
        sent.append(f"small {number}")
    assert time.monotonic() - began < 15
    heard = []
    while len(heard) < len(sent):
        kind, body = mute.receive()
        assert kind == "A"
        heard.append(body[4:].split(b"\0")[1].decode())
    assert heard == sent


def test_registry_used_up(small, connect):
    """Guards: too many channels are refused with a clear error; what was listened to before is not lost, and
    after UNLISTEN there is room again."""
    listener, greedy, sender = connect(small), connect(small), connect(small)
    listener.execute("LISTEN c")
    greedy.execute("LISTEN c")
    for _ in range(2):
        with pytest.raises(psycopg.errors.OutOfMemory) as caught:
            greedy.execute("DO $$ BEGIN FOR i IN 1..20000 LOOP EXECUTE 'LISTEN channel_' || i; END LOOP; END $$")
        assert "herald.registry_memory (1024 kB)" in caught.value.diag.message_detail
        assert "herald.registry_memory" in caught.value.diag.message_hint
        assert sender.execute("SELECT * FROM herald.channels").fetchall() == [("c", 2)]
        assert greedy.execute("SELECT pg_listening_channels()").fetchall() == [("c",)]
    listening = 0
    with pytest.raises(psycopg.errors.OutOfMemory):
        while listening < 20000:
            greedy.execute(f"LISTEN channel_{listening}")
            listening += 1
    assert listening > 1000
    notify(sender, "c", "heard by both")
    assert hear(listener, 1) == hear(greedy, 1) == ["heard by both"]
    with pytest.raises(psycopg.errors.OutOfMemory):
        for number in range(10000):
            listener.execute(f"LISTEN another_{number}")
    greedy.execute("UNLISTEN *")
    listener.execute("LISTEN room_again")
    notify(sender, "room_again", "heard")
    assert hear(listener, 1) == ["heard"]
    listener.execute("UNLISTEN *")
    assert left_nothing(sender)


def test_many_channels_in_one_transaction(cluster, connect):
    """Guards: 30,000 channels can be listened to in one transaction, and each is heard; it takes seconds."""
    listener, sender = connect(cluster), connect(cluster)
    began = time.monotonic()
    listener.execute("DO $$ BEGIN FOR i IN 1..30000 LOOP EXECUTE 'LISTEN channel_' || i; END LOOP; END $$")
    assert time.monotonic() - began < 15
    assert one(sender, "SELECT count(*) FROM herald.channels") == 30000
    assert one(sender, "SELECT channels FROM herald.listeners") == 30000
    sender.execute("SELECT pg_notify('channel_' || n, n::text) FROM generate_series(1, 30001) n")
    assert hear(listener, 30000) == [str(number) for number in range(1, 30001)]
    listener.execute("UNLISTEN *")
    assert left_nothing(sender)


def test_many_listeners_on_one_channel(cluster, connect):
    """Guards: a channel's list of listeners grows and shrinks with the listeners that come and go."""
    watcher = connect(cluster)
    with Listeners(cluster, 100, "c") as first, Listeners(cluster, 7, "c") as second:
        assert watcher.execute("SELECT * FROM herald.channels").fetchall() == [("c", 107)]
        notify(watcher, "c", "1", "2", "3")
        assert first.wait(300, 20)["min"] == 3
        assert second.wait(21, 20)["min"] == 3
        first.close()
        until(lambda: watcher.execute("SELECT * FROM herald.channels").fetchall() == [("c", 7)], "100 are gone")
        notify(watcher, "c", "4")
        assert second.wait(28, 20)["min"] == 4
    until(lambda: left_nothing(watcher), "nobody listens")


def test_flow_control(small, connect):
    """Guards: a sender that runs away from a listener that reads is slowed down, not refused."""
    listener, sender, watcher = connect(small), connect(small), connect(small)
    listener.execute("LISTEN c")
    waits, refused = watcher.execute("SELECT flow_waits, refused FROM herald.stats").fetchone()

    def send() -> None:
        for number in range(150):
            notify(sender, "c", f"{number} {KILOBYTES_7}")
        notify(sender, "c", "end")

    sending = threading.Thread(target=send)
    with stopped(listener.info.backend_pid):
        sending.start()
        until(lambda: one(watcher, "SELECT flow_waits FROM herald.stats") > waits, "the sender waits")
    heard = hear_until(listener, "end")
    sending.join()
    assert [int(word.split()[0]) for word in heard] == list(range(150))
    assert one(watcher, "SELECT refused FROM herald.stats") == refused


def test_wakeup_concurrency_is_reloaded(cluster, connect):
    """Guards: herald.wakeup_concurrency can be changed while listeners are at work, and all hear."""
    listeners = [connect(cluster) for _ in range(20)]
    sender = connect(cluster)
    for listener in listeners:
        listener.execute("LISTEN c")
    try:
        for turns in ("1", "64", "3", "-1"):
            sender.execute(f"ALTER SYSTEM SET herald.wakeup_concurrency = {turns}")
            sender.execute("SELECT pg_reload_conf()")
            until(lambda: one(sender, "SHOW herald.wakeup_concurrency") == turns, "it is reloaded")
            for number in range(20):
                notify(sender, "c", f"{turns} {number}")
            for listener in listeners:
                assert hear(listener, 20) == [f"{turns} {number}" for number in range(20)]
    finally:
        sender.execute("ALTER SYSTEM RESET herald.wakeup_concurrency")
        sender.execute("SELECT pg_reload_conf()")
