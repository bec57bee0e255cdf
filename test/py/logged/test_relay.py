"""The relay: notifications on logged channels reach the listeners of a standby."""

import os
import random
import re
import signal
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from following import ANCHOR_LOOKS, looks
from harness.cluster import Cluster
from harness.standby import Standby
from servers import SETTINGS, started
from support import hear, hear_until, notify, one, outcome, until
from timing import as_fast

pytestmark = pytest.mark.seam

ARCHIVE_SETTINGS = {"archive_mode": "on", "wal_retrieve_retry_interval": "100ms"}
COLUMNS = ["read_position", "replay_position", "bytes_behind", "seconds_behind", "batches", "forged", "newer", "gaps"]


@pytest.fixture(scope="module")
def primary():
    """A server with two databases, where channels that begin with logged are logged."""
    for cluster in started(preload=True, settings=SETTINGS | {
            "wal_level": "logical", "max_prepared_transactions": 2, "wal_retrieve_retry_interval": "100ms"}):
        cluster.psql("CREATE DATABASE other")
        cluster.create_herald("other")
        for database in ("postgres", "other"):
            cluster.psql("SELECT herald.set_channel('logged*', logged => true)", database)
        yield cluster


@pytest.fixture(scope="module")
def standby(primary):
    """A standby of it, for tests that leave it as it is."""
    with Standby(primary) as standby:
        yield standby
        assert not standby.damage(), standby.damage()


@pytest.fixture
def sender(primary, connect):
    """A session on the primary."""
    return connect(primary)


@pytest.fixture
def listener(standby, connect):
    """A session on the standby that listens to channel logged."""
    return listens(connect(standby))


def listens(session: psycopg.Connection, *channels: str) -> psycopg.Connection:
    """The session, which listens from now on."""
    for channel in channels or ("logged",):
        session.execute(f"LISTEN {channel}")
    return session


def relay(session: psycopg.Connection, column: str) -> object:
    """A column of herald.relay."""
    return one(session, f"SELECT {column} FROM herald.relay")


def relay_pid(watcher: psycopg.Connection) -> int | None:
    """The process of the relay; None: there is none."""
    row = watcher.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_herald relay'").fetchone()
    return row and row[0]


def heard(listener: psycopg.Connection, sender: psycopg.Connection) -> list[str]:
    """What has come to a listener up to now."""
    notify(sender, "logged", "end")
    return hear_until(listener, "end")


def test_order_and_contents(sender, listener):
    """Guards: payloads of all kinds arrive on the standby, unchanged, in the order of the commits, from a process of the
    standby."""
    payloads = ["", "x", "'\"\\", "a\nb\tc\x01\x1f", "ä€😀", '{"channel":"c","payload":"p"}', "\\u0041", "z" * 7999]
    for payload in payloads:
        notify(sender, "logged", payload)
    with sender.transaction():
        for number in range(100):
            sender.execute("SELECT pg_notify('logged', %s)", (f"{number}",))
            sender.execute("SELECT pg_notify('unlogged', %s)", (f"{number}",))
    assert heard(listener, sender) == payloads + [str(number) for number in range(100)]


@pytest.mark.alone
def test_soon_after_the_replay(sender, listener, standby, connect):
    """Guards: a notification arrives soon after the standby shows the row, also if there was no WAL for a while before."""
    sender.execute("CREATE TABLE watched (id integer)")
    watcher = connect(standby)
    until(lambda: outcome(watcher, "TABLE watched") == [], "the table is there")

    def median_s(arrived: Callable[[], object]) -> float:
        """From when a row is inserted until arrived() is true."""
        delays = []
        for _ in range(20):
            sender.execute("TRUNCATE watched")
            until(lambda: not one(watcher, "SELECT count(*) FROM watched"), "the standby has replayed that")
            time.sleep(0.05)
            began = time.monotonic()
            with sender.transaction():
                sender.execute("INSERT INTO watched VALUES (1)")
                sender.execute("NOTIFY logged")
            while not arrived():
                pass
            delays.append(time.monotonic() - began)
        return statistics.median(delays)

    def until_visible() -> float:
        delay = median_s(lambda: one(watcher, "SELECT count(*) FROM watched"))
        heard(listener, sender)
        return delay

    as_fast(lambda: median_s(lambda: hear(listener, 1)), until_visible, 5)
    sender.execute("DROP TABLE watched")


def test_two_sessions_of_the_primary(primary, sender, listener, connect):
    """Guards: the order is that of the commits, whatever the order of the notifications."""
    first, second = sender, connect(primary)
    first.execute("BEGIN")
    first.execute("NOTIFY logged, 'first'")
    notify(second, "logged", "second")
    first.execute("COMMIT")
    assert heard(listener, sender) == ["second", "first"]


def test_only_logged_channels(sender, standby, connect):
    """Guards: what is sent on other channels does not reach the standby, where LISTEN refuses them."""
    client = connect(standby)
    assert outcome(client, "LISTEN unlogged") == "25006: cannot execute LISTEN during recovery"
    listener = listens(client, "logged")
    notify(sender, "unlogged", "1")
    notify(sender, "logged", "2")
    with sender.transaction():
        notify(sender, "unlogged", "3")
        notify(sender, "logged", "4")
    assert heard(listener, sender) == ["2", "4"]


def test_rolled_back_on_a_standby(sender, listener):
    """Guards: nothing arrives of a transaction or a subtransaction that was rolled back."""
    with sender.transaction(force_rollback=True):
        sender.execute("NOTIFY logged, 'no'")
    with sender.transaction():
        sender.execute("NOTIFY logged, '1'")
        with sender.transaction(force_rollback=True):
            sender.execute("NOTIFY logged, 'no'")
        with sender.transaction():
            sender.execute("NOTIFY logged, '2'")
    sender.execute("CREATE TABLE deferred (id integer UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    assert outcome(sender, "DO $$ BEGIN INSERT INTO deferred VALUES (1), (1); NOTIFY logged, 'no'; END $$").startswith("23505")
    sender.execute("DROP TABLE deferred")
    assert heard(listener, sender) == ["1", "2"]


def test_large_transaction(sender, listener):
    """Guards: a transaction with 3 MB of notifications, in many parts, arrives whole, in order, with others before and
    after it."""
    notify(sender, "logged", "before")
    payloads = [f"{number} {'x' * 6000}" for number in range(500)]
    with sender.transaction(), sender.cursor() as cursor:
        cursor.executemany("SELECT pg_notify('logged', %s)", [(payload,) for payload in payloads])
    notify(sender, "logged", "after")
    assert heard(listener, sender) == ["before", *payloads, "after"]


def test_memory_is_given_back(standby, sender, listener, connect):
    """Guards: after a long notification the relay, which runs as long as the standby, keeps no memory for another one."""
    pid = relay_pid(connect(standby))
    heard(listener, sender)
    before = anonymous_kb(pid)
    sender.execute("SET herald.max_payload = '40MB'")
    notify(sender, "logged", "x" * 40_000_000)
    sender.execute("RESET herald.max_payload")
    assert [len(payload) for payload in hear(listener, 1)] == [40_000_000]
    until(lambda: anonymous_kb(pid) < before + 4096, "the memory is given back")


def anonymous_kb(pid: int) -> int:
    """The memory of a process that is no file's and not shared."""
    return int(re.search(r"RssAnon:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"))[1])


def test_large_transactions_at_once(primary, listener, sender, connect):
    """Guards: the parts of transactions that commit at the same time are kept apart."""
    def send(name: str) -> None:
        session = connect(primary)
        for round in range(3):
            with session.transaction(), session.cursor() as cursor:
                cursor.executemany("SELECT pg_notify('logged', %s)",
                                   [(f"{name} {round} {number} {'x' * 3000}",) for number in range(200)])

    threads = [threading.Thread(target=send, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    came = [payload.split()[:3] for payload in heard(listener, sender)]
    for name in "abc":
        assert [words for words in came if words[0] == name] == [
            [name, str(round), str(number)] for round in range(3) for number in range(200)]
    transactions = [words[:2] for words in came]
    assert sum(one != next for one, next in zip(transactions, transactions[1:])) == 8


def test_two_databases_on_a_standby(primary, standby, sender, listener, connect):
    """Guards: a notification reaches the listeners of its own database only."""
    other = connect(primary, "other")
    other_listener = listens(connect(standby, "other"))
    notify(sender, "logged", "here")
    notify(other, "logged", "there")
    assert heard(listener, sender) == ["here"]
    assert heard(other_listener, other) == ["there"]


def forgeries(session: psycopg.Connection) -> list[str]:
    """Texts, some of them as pg_herald would write them."""
    real = ('{"version":1,"kind":"notifications","run":"0123456789abcdef","place":"00000000001a2b38","part":1,'
            '"first":"0000000000000000","xid":"0000000000000abc","role":10,"notifications":[{"channel":"logged","payload":"forged"}],"last":true}')
    return [real, real.replace(':1,"kind"', ':2,"kind"'), real.replace('"part":1', '"part":2'), real[:-1], real + " ",
            real.replace("0000000000000000", "00000000ffffffff"), '{"version":1,"kind":"anchor","run":"0123456789abcdef"}',
            '{"version":1,"kind":"setting","run":"0123456789abcdef","channel":"logged*","logged":false}',
            "", "{", "null", "x" * 1_000_000, '{"version":99999999999999999999}']


def test_forged_messages(primary, standby, sender, listener, connect):
    """Guards: messages with our prefix that an ordinary role writes are counted, and have no other effect."""
    sender.execute("DROP ROLE IF EXISTS forger; CREATE ROLE forger")
    forger, watcher = connect(primary), connect(standby)
    before = relay(watcher, "forged")
    forger.execute("SET ROLE forger")
    texts = forgeries(sender)
    for transactional in (True, False):
        for text in texts:
            forger.execute("SELECT pg_logical_emit_message(%s, 'pg_herald', %s)", (transactional, text))
        forger.execute("SELECT pg_logical_emit_message(%s, 'pg_herald', '\\x00ff'::bytea)", (transactional,))
        forger.execute("SELECT pg_logical_emit_message(%s, 'pg_herald2', 'another')", (transactional,))
    assert heard(listener, sender) == []
    until(lambda: relay(watcher, "forged") == before + 2 * (len(texts) + 1), "they are counted")
    assert relay(watcher, "newer") == relay(watcher, "gaps") == 0
    assert outcome(forger, "SELECT pg_replication_origin_session_setup('x')").startswith("42501")


def test_relay_is_restarted(standby, sender, listener, connect):
    """Guards: the relay goes on where it was: nothing is lost, and nothing comes twice."""
    watcher = connect(standby)
    expected = []
    for round in range(3):
        pid = until(lambda: relay_pid(watcher), "there is a relay")
        for number in range(50):
            if number == 25:
                os.kill(pid, signal.SIGTERM)
            notify(sender, "logged", f"{round} {number}")
            expected.append(f"{round} {number}")
        until(lambda: relay_pid(watcher) not in (pid, None), "it is started again")
    assert heard(listener, sender) == expected


def test_relay_is_restarted_in_a_large_transaction(standby, sender, listener, connect):
    """Guards: a transaction whose parts are on both sides of the relay's restart arrives whole."""
    watcher = connect(standby)
    pid = until(lambda: relay_pid(watcher), "there is a relay")
    sender.execute("BEGIN")
    payloads = [f"{number} {'x' * 6000}" for number in range(200)]
    for number, payload in enumerate(payloads):
        sender.execute("SELECT pg_notify('logged', %s)", (payload,))
    os.kill(pid, signal.SIGTERM)
    sender.execute("COMMIT")
    until(lambda: relay_pid(watcher) not in (pid, None), "it is started again")
    assert heard(listener, sender) == payloads


def test_under_load(primary, standby, sender, listener, connect):
    """Guards: a listener of the primary and one of the standby receive the same, whatever is rolled back, however large the
    transactions are, and however often the relay is restarted."""
    def send(name: int) -> None:
        session, choice = connect(primary), random.Random(name)
        for number in range(200):
            with session.transaction(force_rollback=choice.random() < 0.2):
                for part in range(choice.choice((1, 1, 2, 50))):
                    session.execute("SELECT pg_notify('logged', %s)", (f"{name} {number} {part} {'x' * choice.randrange(3000)}",))
                    if choice.random() < 0.1:
                        with session.transaction(force_rollback=True):
                            session.execute("NOTIFY logged, 'no'")

    at_primary, watcher = listens(connect(primary)), connect(standby)
    threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        with suppress(ProcessLookupError):
            os.kill(until(lambda: relay_pid(watcher), "there is a relay"), signal.SIGTERM)
        time.sleep(0.2)
    came = heard(listener, sender)
    expected = hear_until(at_primary, "end")
    assert len(came) > 2000 and "no" not in came
    assert sorted(came) == sorted(expected)
    for name in range(4):
        assert [payload for payload in came if payload.startswith(f"{name} ")] == [
            payload for payload in expected if payload.startswith(f"{name} ")]


def test_replay_is_paused(standby, sender, listener, connect):
    """Guards: what the standby does not show yet is not delivered."""
    watcher = connect(standby)
    sender.execute("CREATE TABLE shown (id integer)")
    notify(sender, "logged", "before")
    assert hear(listener, 1) == ["before"]
    watcher.execute("SELECT pg_wal_replay_pause()")
    until(lambda: one(watcher, "SELECT pg_get_wal_replay_pause_state()") == "paused", "the replay is paused")
    with sender.transaction():
        sender.execute("INSERT INTO shown VALUES (1)")
        notify(sender, "logged", "shown")
    assert hear(listener, 1, 0.5) == []
    watcher.execute("SELECT pg_wal_replay_resume()")
    assert hear(listener, 1) == ["shown"]
    assert one(watcher, "SELECT count(*) FROM shown") == 1
    sender.execute("DROP TABLE shown")


def test_prepared_transaction(sender, listener):
    """Guards: a prepared transaction does not disturb the order, and nothing is sent in it."""
    sender.execute("CREATE TABLE IF NOT EXISTS twice (id integer)")
    sender.execute("BEGIN; INSERT INTO twice VALUES (1); PREPARE TRANSACTION 'p'")
    notify(sender, "logged", "1")
    sender.execute("COMMIT PREPARED 'p'")
    notify(sender, "logged", "2")
    sender.execute("DROP TABLE twice")
    assert heard(listener, sender) == ["1", "2"]


def test_view(standby, sender, listener, connect):
    """Guards: herald.relay has a row on a standby, and none on a primary."""
    watcher = connect(standby)
    cursor = watcher.execute("SELECT * FROM herald.relay")
    assert [column.name for column in cursor.description] == COLUMNS
    assert len(cursor.fetchall()) == 1
    assert sender.execute("SELECT * FROM herald.relay").fetchall() == []
    before = relay(watcher, "batches")
    notify(sender, "logged", "1", "2")
    assert hear(listener, 2) == ["1", "2"]
    until(lambda: relay(watcher, "batches") == before + 2, "they are counted")
    until(lambda: relay(watcher, "bytes_behind = 0 AND seconds_behind = 0 AND read_position >= replay_position"),
          "it has read everything")


def test_no_relay_on_a_primary(primary, sender):
    """Guards: on a primary the relay ends, and is not started again."""
    until(lambda: relay_pid(sender) is None, "it has ended")
    assert "pg_herald relay\" (PID" not in primary.log() or "exited with exit code 1" not in primary.log()


def test_cascade(primary, standby, sender, connect):
    """Guards: a standby of a standby relays as well."""
    with Standby(standby) as leaf:
        listener = listens(connect(leaf))
        for number in range(100):
            notify(sender, "logged", str(number))
        assert heard(listener, sender) == [str(number) for number in range(100)]
        assert not leaf.damage(), leaf.damage()


def fed_by_archive(primary: Cluster) -> Standby:
    """A standby, to be started, for which this server archives its WAL from now on."""
    archive = primary.folder / "archive"
    primary.psql(f"ALTER SYSTEM SET archive_command = 'mkdir -p {archive} && cp %p {archive}/%f'; SELECT pg_reload_conf();"
                 "SELECT herald.set_channel('logged*', logged => true)")
    standby = Standby(primary)
    standby.create()
    looks(primary, ANCHOR_LOOKS)
    primary.psql("SELECT pg_switch_wal()")  # the archive has an anchor, before which the standby has no listeners
    with open(standby.data / "postgresql.auto.conf", "a", encoding="utf-8") as settings:
        settings.write(f"primary_conninfo = ''\nrestore_command = 'cp {archive}/%f %p'\narchive_mode = 'off'\n")
    return standby


def test_fed_by_an_archive(connect):
    """Guards: a standby that gets its WAL from an archive alone relays as well, segment by segment; and what comes only with
    its promotion, too."""
    for former in started(preload=True, settings=SETTINGS | ARCHIVE_SETTINGS):
        with fed_by_archive(former) as standby:
            listener, sender = listens(connect(standby)), connect(former)
            for number in range(200):
                notify(sender, "logged", f"{number} {'x' * 5000}")
                if number % 40 == 39:
                    sender.execute("SELECT pg_switch_wal()")
            assert [payload.split()[0] for payload in hear(listener, 200)] == [str(number) for number in range(200)]
            watcher = connect(standby)
            watcher.execute("SELECT pg_promote()")
            notify(watcher, "logged", "of the new one")
            assert hear(listener, 1) == ["of the new one"]
            assert not standby.damage(), standby.damage()


def test_promotion_beside_a_mute_client(connect, wire):
    """Guards: a promotion waits for no listener whose client does not read."""
    for former in started(preload=True, settings=SETTINGS | {"wal_retrieve_retry_interval": "100ms"}):
        former.psql("SELECT herald.set_channel('logged', logged => true)")
        with Standby(former) as new:
            mute, listener, watcher, sender = wire(new), listens(connect(new)), connect(new), connect(former)
            mute.query("LISTEN logged")
            until(lambda: notify(sender, "logged", "x" * 7000) or one(
                watcher, "SELECT wait_event FROM pg_stat_activity WHERE pid = %s", mute.pid) == "ClientWrite", "its socket is full")
            assert one(watcher, "SELECT pg_promote(wait_seconds => 20)")
            notify(watcher, "logged", "of the new one")
            assert hear_until(listener, "of the new one")


@contextmanager
def sending(session: psycopg.Connection, name: str):
    """Within the block, the session notifies; yields the list of what was committed."""
    sent: list[str] = []
    end = threading.Event()

    def send() -> None:
        while not end.is_set():
            try:
                notify(session, "logged", f"{name} {len(sent)}")
            except psycopg.Error:
                return
            sent.append(f"{name} {len(sent)}")

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        end.set()
        thread.join()


def test_promotion(connect):
    """Guards: a session that listens on the standby receives everything of the former primary that the standby has got, and
    then everything of the new one, in order, once; also if the relay is restarted just then."""
    for former in started(preload=True, settings=SETTINGS | {"wal_retrieve_retry_interval": "100ms"}):
        former.psql("SELECT herald.set_channel('logged*', logged => true)")
        with Standby(former) as new:
            listener, watcher = listens(connect(new)), connect(new)
            with sending(connect(former), "former") as of_former:
                until(lambda: relay(watcher, "batches") > 200, "the standby receives what it sends")
                os.kill(until(lambda: relay_pid(watcher), "there is a relay"), signal.SIGTERM)
                watcher.execute("SELECT pg_promote()")
                with sending(connect(new), "new") as of_new:
                    until(lambda: len(of_new) > 200, "it sends")
            notify(watcher, "logged", "end")
            came = hear_until(listener, "end")
            assert [payload for payload in came if payload.startswith("new")] == of_new
            relayed = [payload for payload in came if payload.startswith("former")]
            assert relayed == of_former[:len(relayed)] and len(relayed) > 200
            assert came == relayed + of_new
            until(lambda: relay_pid(watcher) is None, "the relay has ended")
            assert watcher.execute("SELECT * FROM herald.relay").fetchall() == []
            assert not new.damage(), new.damage()
