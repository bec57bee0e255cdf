"""The programs in examples/outside: notifications on logged channels, read by logical decoding, once each."""

import importlib
import json
import random
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import psycopg
import pytest

from harness.cluster import Cluster
from harness.installation import InstallationError
from harness.prefix import TOP
from servers import SETTINGS, need_library, started
from support import notify, outcome, until
from trial import EXAMPLES, Consumer
from wal import Wal

pytestmark = pytest.mark.seam

ODD = "aä\n\t\"\\ €😀 \x01"
CHANNELS = ("orders", "job_a", "job_b.*> ä")  # each has a sender of its own
PERMITTED = "output_plugin_libraries"  # newer releases of PostgreSQL have this setting
LARGE_PAYLOADS = 50  # of 7 kB: a message of several parts
KILLS = 4
PAUSE_S_MAX = 0.3


@pytest.fixture(scope="module")
def site():
    """A server on which channels "orders" and "job_..." are logged, with what the page asks for."""
    for cluster in started(preload=True, settings=SETTINGS | {"wal_level": "logical"}):
        cluster.psql("""
            SELECT herald.set_channel('orders', true);
            SELECT herald.set_channel('job_*', true);
            CREATE PUBLICATION logged;
            CREATE ROLE bridge LOGIN REPLICATION;
            CREATE TABLE other (i integer PRIMARY KEY)""")
        if cluster.psql(f"SELECT count(*) FROM pg_settings WHERE name = '{PERMITTED}'") == "1":
            cluster.psql(f"ALTER SYSTEM SET {PERMITTED} = pgoutput, wal2json; SELECT pg_reload_conf()")
            until(lambda: "wal2json" in cluster.psql(f"SHOW {PERMITTED}"), "the setting is in effect")
        yield cluster


@pytest.fixture(params=["pgoutput", "wal2json"])
def slot(request, site):
    """A slot with this plugin; it begins where the test begins."""
    need_library(request.param)
    site.psql(f"SELECT FROM pg_create_logical_replication_slot('consumer', '{request.param}')")
    yield "consumer"
    site.psql("SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots WHERE active;"
              " SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


@pytest.fixture(scope="module")
def jetstream():
    """A NATS server with JetStream."""
    pytest.importorskip("nats", reason="nats-py is not installed")
    from jetstream import JetStream
    try:
        server = JetStream()
    except InstallationError as error:
        pytest.skip(str(error))
    with server:
        yield server


def supervised(program: str, *arguments: str) -> list[str]:
    """A command that runs a program again each time that it ends."""
    return ["bash", "-c", 'while :; do "$@"; sleep 0.1; done', "bash", sys.executable, str(EXAMPLES / "outside" / program),
            *arguments]


def environment(site: Cluster) -> dict[str, str]:
    """The environment of the programs: they are no superusers."""
    return site.environment() | {"PGUSER": "bridge"}


def to_file(site: Cluster, slot: str, path: Path) -> Consumer:
    """The program that writes into a file."""
    return Consumer(supervised("channels_to_file.py", slot, str(path)), environment(site), path.with_suffix(".log"))


def to_nats(site: Cluster, slot: str, jetstream, name: str, log: Path) -> Consumer:
    """The program that publishes in a stream."""
    return Consumer(supervised("channels_to_nats.py", slot, name), environment(site) | {"NATS_URL": jetstream.url}, log)


def page() -> str:
    """The section of the page that describes all this."""
    return (TOP / "docs/logged-channels.md").read_text(encoding="utf-8").partition("## Consumers outside")[2]


def lines(path: Path) -> list[dict]:
    """What a file has, without a last line that is not complete."""
    text = path.read_bytes() if path.exists() else b""
    return list(map(json.loads, text[:text.rfind(b"\n") + 1].splitlines()))


class Senders:
    """Within the block, each channel has a sender; `sent` has the payloads by channel."""

    def __init__(self, cluster: Cluster, connect, seed: int):
        self.sent: dict[str, list[str]] = {channel: [] for channel in CHANNELS}
        self._stopped = threading.Event()
        self._problems: list[Exception] = []
        self._threads = [threading.Thread(target=self._send, args=(connect(cluster), channel, random.Random(f"{seed} {channel}")))
                         for channel in CHANNELS]

    def __enter__(self) -> "Senders":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        assert not self._problems, self._problems

    def _send(self, connection: psycopg.Connection, channel: str, dice: random.Random) -> None:
        try:
            while not self._stopped.wait(dice.uniform(0, 0.1)):
                number = len(self.sent[channel])
                payloads = [f"{number + n} {ODD}" for n in range(dice.choice((1, 1, 2, 7, 20)))]
                if dice.random() < 0.03:
                    payloads = [f"{number + n} " + "x" * 7000 for n in range(LARGE_PAYLOADS)]
                with connection.transaction():
                    connection.execute("INSERT INTO other SELECT coalesce(max(i), 0) + 1 FROM other ON CONFLICT DO NOTHING")
                    connection.execute("NOTIFY unlogged, 'x'; SELECT pg_logical_emit_message(true, 'of others', 'x')")
                    with connection.transaction(force_rollback=True):
                        notify(connection, channel, "rolled back")
                    notify(connection, channel, *payloads)
                self.sent[channel] += payloads
        except Exception as problem:  # pylint: disable=broad-exception-caught
            self._problems.append(problem)


def by_channel(pairs: list[tuple[str, str]]) -> dict[str, list[str]]:
    """Payloads by channel, in order."""
    return {channel: [payload for other, payload in pairs if other == channel] for channel in CHANNELS}


def kill_often(consumer: Consumer, stored: Callable[[], int], dice: random.Random) -> None:
    """Kills a program at random moments while it stores; sometimes it stays away for longer than JetStream's window."""
    for _ in range(KILLS):
        before = stored()
        consumer.until(lambda before=before: stored() > before, "it stores something")
        time.sleep(dice.uniform(0, PAUSE_S_MAX))
        consumer.kill()
        time.sleep(dice.choice((0, PAUSE_S_MAX)))
        consumer.start()


def test_to_a_file(site, connect, slot, tmp_path):
    """Guards: each notification is in the file once, in order, although the program is killed again and again, and the
    server crashes; then also after each place in the file at which the program can have been killed, when the slot
    is where it was at the beginning."""
    path = tmp_path / "notifications"

    def stored() -> int:
        return path.stat().st_size if path.exists() else 0

    site.psql(f"SELECT pg_copy_logical_replication_slot('{slot}', 'at_the_beginning')")
    with to_file(site, slot, path) as consumer:
        with Senders(site, connect, 1) as senders:
            kill_often(consumer, stored, random.Random(1))
        site.crash()
        site.start()
        site.psql("SELECT pg_notify('orders', 'end')")
        consumer.until(lambda: (found := lines(path)) and found[-1]["payload"] == "end", "the file has all")
    found = lines(path)
    assert by_channel([(line["channel"], line["payload"]) for line in found[:-1]]) == senders.sent
    assert len({(line["lsn"], line["index"]) for line in found}) == len(found)
    assert len({(line["run"], line["place"], line["index"]) for line in found}) == len(found)
    whole = path.read_bytes()
    ends_after = [0, whole.index(b"\n") + 1, len(whole) // 2, len(whole) - 1, len(whole)]
    for number, size in enumerate(ends_after):
        site.psql(f"SELECT pg_copy_logical_replication_slot('at_the_beginning', 'copy_{number}')")
        path.write_bytes(whole[:size])
        with to_file(site, f"copy_{number}", path) as consumer:
            site.psql(f"SELECT pg_notify('orders', 'end of {number}')")
            consumer.until(lambda number=number: f"end of {number}" in path.read_text(encoding="utf-8"), "it has read all")
        assert path.read_bytes().startswith(whole)
        whole = path.read_bytes()
    assert len(lines(path)) == len(found) + len(ends_after)


@pytest.mark.parametrize("rows", [1, 7, 1000])
def test_what_is_not_stored_is_kept(site, connect, slot, monkeypatch, rows):
    """Guards: the slot moves on when what was read is stored, not before; a transaction is read as a whole."""
    monkeypatch.syspath_prepend(EXAMPLES / "outside")
    module = importlib.import_module("logged_channels")
    monkeypatch.setattr(module, "ROWS", rows)
    connection = connect(site)
    for number in range(10):
        connection.execute("SELECT count(pg_notify('orders', %s || ' ' || n)) FROM generate_series(1, %s) n", (number, number))
        connection.execute("NOTIFY unlogged; INSERT INTO other SELECT coalesce(max(i), 0) + 1 FROM other")
    confirmed = f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{slot}'"
    stored, position, waits = [], (0, 0), 0
    while len(stored) < 45 and waits < 40:
        before = site.psql(confirmed)
        for _ in range(2):  # the first time it ends before it has stored anything
            read = module.batches(connection, slot, position)
            batch = next(read)
            assert site.psql(confirmed) == before
        stored += [notification.payload for notification in batch]
        position = batch[-1].position() if batch else position
        waits += not batch
        next(read)  # from here on the batch is stored
        read.close()
    assert stored == [f"{number} {n}" for number in range(10) for n in range(1, number + 1)]
    assert next(module.batches(connection, slot, position)) == []


def test_waits_for_the_file(site, slot, tmp_path):
    """Guards: what is in the file is no reason to keep WAL; what is not, is kept; and a file of another server is
    refused."""
    path = tmp_path / "notifications"
    confirmed = f"SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{slot}'"
    with to_file(site, slot, path) as consumer:
        site.psql("SELECT pg_notify('orders', 'first')")
        consumer.until(lambda: lines(path), "it is in the file")
        consumer.until(lambda: site.psql(f"{confirmed} AND confirmed_flush_lsn >= '{lines(path)[0]['lsn']}'"),
                       "the slot has moved on")
        consumer.kill()
        before = site.psql(confirmed)
        site.psql("SELECT pg_notify('orders', 'second')")
        assert site.psql(confirmed) == before
        consumer.start()
        consumer.until(lambda: len(lines(path)) == 2, "it is in the file, too")
    last = lines(path)[-1] | {"lsn": "FFFF/0"}
    path.write_text(json.dumps(last) + "\n", encoding="utf-8")
    with to_file(site, slot, path) as consumer:
        consumer.until(lambda: "not in this server's WAL" in consumer.said(), "it refuses")


@pytest.mark.parametrize("slot", ["pgoutput"], indirect=True)
def test_to_jetstream(site, connect, slot, jetstream, tmp_path):
    """Guards: each notification is in the stream once, in order, although the program is killed again and again, stays
    away for longer than the stream's duplicate window, NATS and PostgreSQL are killed, and two programs run at once.
    A stream that has lost its last message is refused."""
    name = "notifications"
    jetstream.create(name)
    for copy in ("second", "at_the_beginning"):
        site.psql(f"SELECT pg_copy_logical_replication_slot('{slot}', '{copy}')")

    def stored() -> int:
        return jetstream.last(name)

    with to_nats(site, slot, jetstream, name, tmp_path / "log") as consumer:
        with Senders(site, connect, 2) as senders:
            kill_often(consumer, stored, random.Random(2))
            with to_nats(site, "second", jetstream, name, tmp_path / "log 2") as second:
                consumer.until(lambda: "wrong last sequence" in consumer.said() + second.said(), "they hinder each other")
            jetstream.crash()
            before = stored()
            consumer.until(lambda: stored() > before, "it goes on")
        site.crash()
        site.start()
        expected = sum(map(len, senders.sent.values()))
        consumer.until(lambda: stored() >= expected, "the stream has all")
    with to_nats(site, "at_the_beginning", jetstream, name, tmp_path / "log 3") as consumer:
        site.psql("SELECT pg_notify('orders', 'end')")
        consumer.until(lambda: stored() > expected, "it has read all again")
    found = jetstream.messages(name)
    pairs = [(unquote(message.subject.removeprefix(f"{name}.")), message.data.decode()) for message in found]
    assert pairs.pop() == ("orders", "end")
    assert by_channel(pairs) == senders.sent
    assert len({(message.headers["Herald-Run"], message.headers["Herald-Place"], message.headers["Herald-Index"])
                for message in found}) == len(found)
    jetstream.purge(name)
    with to_nats(site, slot, jetstream, name, tmp_path / "log 4") as consumer:
        consumer.until(lambda: "NotFoundError" in consumer.said(), "it refuses a stream without its last message")


def test_message_of_the_page(site, connect):
    """Guards: the messages have the keys that the page describes, in this order, and no others."""
    need_library("pg_walinspect")
    site.psql("CREATE EXTENSION pg_walinspect")
    begin = Wal(connect(site)).begin
    site.psql("SELECT herald.set_channel('another', true); SELECT herald.set_channel('another', null);"
              " SELECT pg_notify('orders', '1')")
    site.restart()
    wal = Wal(connect(site))
    wal.begin = begin
    until(lambda: wal.messages("anchor"), "the server has written an anchor")
    shown = map(json.loads, re.search(r"^```json\n(.*?)```", page(), re.DOTALL | re.MULTILINE)[1].splitlines())
    assert {message.kind(): list(message.content()) for message in wal.messages()} == \
        {content["kind"]: list(content) for content in shown}
    assert [message.content()["logged"] for message in wal.messages("setting")] == [True, False]
    site.psql("DROP EXTENSION pg_walinspect")


@pytest.mark.parametrize("slot", ["pgoutput"], indirect=True)
def test_forged(site, connect, slot, tmp_path):
    """Guards: what the page shows keeps an ordinary role from writing messages that consumers outside believe; it goes on
    notifying on logged channels."""
    path = tmp_path / "notifications"
    site.psql("CREATE ROLE ordinary LOGIN")
    connection = connect(site)
    connection.execute("SET SESSION AUTHORIZATION ordinary")
    text = page().partition("```json\n")[2].partition("\n")[0]
    forge = [f"SELECT pg_logical_emit_message(true, 'pg_herald', %s::{kind})" for kind in ("text", "bytea")]
    with to_file(site, slot, path) as consumer:
        for statement in forge:
            connection.execute(statement, (text,))
        consumer.until(lambda: len(lines(path)) == 2, "forged messages are believed")
        revoke = re.search(r"^SELECT format\('REVOKE.*?gexec\n", page(), re.DOTALL | re.MULTILINE)[0]
        site.psql(revoke)
        for statement in forge:
            assert str(outcome(connection, statement, text)).startswith("42501: ")
        notify(connection, "orders", "mine")
        consumer.until(lambda: len(lines(path)) == 3, "it is logged as before")
    assert lines(path)[-1]["payload"] == "mine"
