"""What a sender writes into the WAL for channels that are logged, and nothing for others; anchors."""

import psycopg
import pytest

from faults import Doing, pid_of
from following import ANCHOR_LOOKS, looks
from harness.standby import Standby
from laggards import SMALLEST
from servers import SETTINGS, need_library, started
from support import hear, notify, one, until
from wal import Wal, pairs
from wire import call

NONE = "0" * 16
PART_BYTES_MAX = 256 * 1024
SEGMENT_BYTES = 16 * 1024 * 1024

# All characters that are written in another form, and some that are not.
ODD = "".join(map(chr, range(1, 0x20))) + "\x7f\"\\/'" + "\\u0041 \\n" + "aäÿ€漢😀\u2028\u0080"


@pytest.fixture(scope="module", params=[SMALLEST, {}], ids=["small queue", "default queue"])
def logging(request):
    """A server on which channels "logged" and "job_..." are logged, and "other" is not."""
    need_library("pg_walinspect", "test_decoding")
    for cluster in started(preload=True, settings=SETTINGS | {"wal_level": "logical", "herald.max_payload": "2MB"} |
                           request.param):
        cluster.psql("CREATE EXTENSION pg_walinspect; SELECT herald.set_channel('logged', true);"
                     " SELECT herald.set_channel('job_*', true)")
        yield cluster


@pytest.fixture
def sender(logging, connect):
    """A session that notifies."""
    return connect(logging)


@pytest.fixture
def listener(logging, connect):
    """A session that listens to both kinds of channels."""
    connection = connect(logging)
    connection.execute("LISTEN logged; LISTEN other; LISTEN job_1")
    return connection


@pytest.fixture
def wal(logging, connect):
    """The WAL from the beginning of the test on."""
    return Wal(connect(logging))


def alone(content: dict) -> dict:
    """A message that is the only part of its transaction, without what differs each time."""
    assert len(content["run"]) == len(content["place"]) == 16
    assert (content["part"], content["first"], content["last"]) == (1, NONE, True)
    return {"version": content["version"], "kind": content["kind"], "notifications": pairs(content)}


def of_one(*notifications: tuple[str, str]) -> dict:
    """What alone() returns for these."""
    return {"version": 1, "kind": "notifications", "notifications": list(notifications)}


def test_logged_and_unlogged(sender, listener, wal):
    """Guards: of one transaction, the notifications on logged channels are written, in order and once, in one message
    with the run and the place; all are delivered."""
    with sender.transaction():
        for channel, payload in [("logged", "a"), ("other", "b"), ("job_1", "c"), ("logged", "a"), ("logged", "")]:
            notify(sender, channel, payload)
    notify(sender, "logged", "later")
    assert hear(listener, 5) == ["a", "b", "c", "", "later"]
    first, second = wal.logged()
    assert alone(first) == of_one(("logged", "a"), ("job_1", "c"), ("logged", ""))
    assert alone(second) == of_one(("logged", "later"))
    assert first["run"] == second["run"] and NONE < first["place"] < second["place"]
    assert all(message.transactional for message in wal.messages("notifications"))


def test_unlogged_needs_no_transaction_id(sender, listener, wal):
    """Guards: without logged notifications a transaction writes nothing, and gets no id."""
    before = one(sender, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text")
    notify(sender, "other", "a")
    with sender.transaction():
        notify(sender, "other", "b")
        notify(sender, "job", "c")
    assert hear(listener, 2) == ["a", "b"]
    assert wal.logged() == []
    assert one(sender, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text") == before


def test_what_is_rolled_back_is_not_logged(sender, listener, wal):
    """Guards: what is rolled back, with its transaction or with a savepoint, is not written."""
    with sender.transaction(force_rollback=True):
        notify(sender, "logged", "never")
    with sender.transaction():
        notify(sender, "logged", "kept")
        with sender.transaction(force_rollback=True):
            notify(sender, "logged", "rolled back")
            with sender.transaction():
                notify(sender, "job_1", "rolled back with it")
        with sender.transaction():
            notify(sender, "job_1", "kept too")
    with sender.transaction():
        with sender.transaction(force_rollback=True):
            notify(sender, "logged", "rolled back")
        notify(sender, "other", "not logged")
    assert hear(listener, 3) == ["kept", "kept too", "not logged"]
    assert list(map(alone, wal.logged())) == [of_one(("logged", "kept"), ("job_1", "kept too"))]


def test_strings(sender, wal):
    """Guards: any character arrives in the WAL as JSON has it, in channels as well."""
    channels = ["job_" + ODD[begin:begin + 10] for begin in range(0, len(ODD), 10)]
    with sender.transaction():
        for channel in channels:
            notify(sender, channel, ODD, channel)
    (content,) = wal.logged()
    assert pairs(content) == [(channel, payload) for channel in channels for payload in (ODD, channel)]


def test_latin1(logging, connect, wal):
    """Guards: the text is in the encoding of its database."""
    logging.psql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    logging.psql("CREATE EXTENSION pg_herald; SELECT herald.set_channel('*', true)", "latin")
    text = "".join(map(chr, range(1, 0x100)))
    notify(connect(logging, "latin"), "ä\x01ÿ", text)
    (message,) = wal.messages("notifications")
    assert pairs(message.content("latin-1")) == [("ä\x01ÿ", text)]
    logging.psql("DROP DATABASE latin WITH (FORCE)")


@pytest.mark.parametrize("count", [20, 300], ids=["some parts", "many parts"])
def test_parts(sender, listener, wal, count):
    """Guards: a long message is written in parts of at most 256 kB; the last has the place, and those after the first
    say where that one begins."""
    sent = [("other" if number % 7 == 0 else "logged", f"{number} " + 'x"' * 3000) for number in range(count)]
    with sender.transaction():
        with sender.transaction(force_rollback=True):
            notify(sender, "logged", *("rolled back" + payload for _, payload in sent[:30]))
        for channel, payload in sent:
            notify(sender, channel, payload)
    notify(sender, "logged", "end")
    assert hear(listener, count + 1) == [*(payload for _, payload in sent), "end"]
    *parts, end = wal.messages("notifications")
    contents = [part.content() for part in parts]
    assert [pair for content in contents for pair in pairs(content)] == \
        [(channel, payload) for channel, payload in sent if channel == "logged"]
    assert len(parts) == 1 if count < 21 else len(parts) >= 8
    assert max(len(part.text) for part in parts) <= PART_BYTES_MAX
    assert {part.xid for part in parts} == {parts[0].xid} != {end.xid}
    assert [content["part"] for content in contents] == list(range(1, len(parts) + 1))
    assert [content["first"] for content in contents] == [NONE] + [f"{parts[0].start:016x}"] * (len(parts) - 1)
    assert [content["last"] for content in contents] == [False] * (len(parts) - 1) + [True]
    assert [content["place"] for content in contents[:-1]] == [NONE] * (len(parts) - 1)
    assert NONE < contents[-1]["place"] < end.content()["place"]


def test_longer_than_a_part(sender, listener, wal):
    """Guards: a notification that needs more than a part is written before others wait for it: a last part without any
    notification has its place."""
    payload = "\"" * 1_000_000
    with sender.transaction():
        notify(sender, "logged", "before", payload)
    assert hear(listener, 2) == ["before", payload]
    contents = wal.logged()
    assert [pairs(content) for content in contents] == [[("logged", "before")], [("logged", payload)], []]
    assert [content["last"] for content in contents] == [False, False, True]
    assert contents[2]["place"] > NONE


def test_switched_off_and_logged(sender, listener, wal):
    """Guards: with herald.enabled off, a transaction with notifications on logged channels still goes through pg_herald."""
    sender.execute("SET herald.enabled = off")
    with sender.transaction():
        notify(sender, "logged", "a")
        notify(sender, "other", "b")
        with sender.transaction(force_rollback=True):
            notify(sender, "logged", "rolled back")
        notify(sender, "job_1", "c", "c")
    assert hear(listener, 3) == ["a", "b", "c"]
    (content,) = wal.logged()
    assert content["place"] > NONE and alone(content) == of_one(("logged", "a"), ("job_1", "c"))


def test_decoded(logging, sender, wal):
    """Guards: a consumer of logical decoding receives the messages of committed transactions, and can leave out those
    that pg_herald wrote."""
    sender.execute("SELECT pg_create_logical_replication_slot('s', 'test_decoding')")
    try:
        notify(sender, "logged", "committed")
        with sender.transaction(force_rollback=True):
            notify(sender, "logged", "never")
        sender.execute("SELECT pg_logical_emit_message(true, 'pg_herald', 'forged')")

        def decoded(*options: str) -> list[str]:
            return [row[0].split(" content:")[1] for row in sender.execute(
                "SELECT data FROM pg_logical_slot_peek_changes('s', NULL, NULL, VARIADIC %s::text[])",
                (list(options),)) if row[0].startswith("message: transactional: 1 prefix: pg_herald")]

        (content,) = wal.messages("notifications")[:1]
        assert decoded() == [content.text.decode(), "forged"]
        assert decoded("only-local", "1") == ["forged"]
    finally:
        sender.execute("SELECT pg_drop_replication_slot('s')")


# ---- faults ----

@pytest.fixture
def logged(scene):
    """The scene's channel c is logged; yields the WAL."""
    need_library("pg_walinspect")
    scene.watcher.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect; SELECT herald.set_channel('c', true)")
    yield Wal(scene.watcher)
    scene.watcher.execute("SELECT herald.set_channel('c', NULL)")


@pytest.mark.parametrize("action", ["terminate", "cancel", "error"])
@pytest.mark.parametrize("point", ["log-complete", "log-part", "publish-reserved", "publish-logged"])
def test_ends_before_the_commit(scene, logged, point, action):
    """Guards: a sender that fails or exits before its commit, with parts of its message in the WAL or not, sends
    nothing, and blocks no other session."""
    victim = scene.connect()
    scene.points.arm(point, action, pid_of(victim))
    with pytest.raises(psycopg.Error):
        victim.execute("SELECT pg_notify('c', n || repeat('never', 1000)) FROM generate_series(1, 100) n")
    scene.points.reached(point)
    scene.goes_on()
    messages = logged.messages("notifications")
    ended = {message.xid for message in messages} - {message.xid for message in messages[-5:]}
    assert len(ended) == (point != "log-part")
    assert outcomes(scene, ended) <= {"aborted"}
    if action != "terminate":
        notify(victim, "c", "sent now")
        scene.goes_on(["sent now"])


def outcomes(scene, xids: set[str]) -> set[str]:
    """What became of these transactions."""
    return {one(scene.watcher, "SELECT pg_xact_status(%s::xid8)", xid) for xid in xids}


def test_commit_end(scene, logged):
    """Guards: a batch knows where its commit record ends, and its run and place; the furthest is the server's last."""
    slow = scene.stand_still("publish-logged", scene.connect(), "NOTIFY c, 'slow'")
    quick = scene.connect()
    notify(quick, "c", "quick")
    scene.points.release("publish-logged")
    assert slow.end() is None
    first, second = logged.messages("notifications")
    content = first.content()
    assert one(scene.watcher, "SELECT stop_logged()") == \
        f"{logged.commit_end(first.xid)} {content['run']} {content['place']}"
    assert content["place"] < second.content()["place"]
    scene.goes_on(["slow", "quick"])


def test_anchor_of_a_place(scene, logged):
    """Guards: an anchor for a place is before all messages of notifications from there on, also if one is sent while
    it is written."""
    until(lambda: latest(scene, 2**63 - 1), "there is an anchor from the start")
    scene.points.arm("anchor-written")
    notify(scene.sender, "c", "before")
    scene.watcher.execute("SELECT pg_switch_wal()")
    scene.points.waiter("anchor-written")
    notify(scene.sender, "c", "during")
    scene.points.release("anchor-written")
    anchor = until(lambda: logged.messages("anchor"), "an anchor is written")[-1]
    until(lambda: latest(scene, 2**63 - 1) >= anchor.start, "it is published")
    notify(scene.sender, "c", "after")
    *_, during, after = logged.messages("notifications")
    place = int(after.content()["place"], 16)
    assert latest(scene, place) == anchor.start
    assert latest(scene, int(during.content()["place"], 16)) < anchor.start < during.start < after.start
    scene.goes_on(["before", "during", "after"])


def test_anchor_before_a_setting(scene, logged):
    """Guards: there is an anchor before the first message, also if that is a setting's."""
    scene.points.arm("housekeeper-look")
    scene.points.waiter("housekeeper-look")
    scene.watcher.execute("SELECT stop_forget_anchors(); SELECT herald.set_channel('set', true)")
    assert 0 < latest(scene, 0) < logged.messages("setting")[-1].start
    scene.watcher.execute("SELECT herald.set_channel('set', NULL)")
    scene.points.release()
    scene.goes_on()


def test_many_anchors(scene, logged):
    """Guards: however many anchors there were, each place has one before it, and late places a near one."""
    for number in range(150):
        notify(scene.sender, "c", str(number))
        scene.watcher.execute("SELECT stop_write_anchor()")
    anchors = [anchor.start for anchor in logged.messages("anchor")]
    messages = logged.messages("notifications")
    found = [latest(scene, int(message.content()["place"], 16)) for message in messages]
    assert all(0 < anchor < message.start for anchor, message in zip(found[1:], messages[1:]))
    assert found == sorted(found) and latest(scene, 2**63 - 1) >= anchors[-1]  # the housekeeper may write one more
    assert all(anchor in anchors[-9:] for anchor in found[-5:])
    scene.goes_on(map(str, range(150)))


def latest(scene, place: int) -> int:
    """The latest anchor for a place in the queue; 0: there is none."""
    return int(one(scene.watcher, "SELECT coalesce(stop_anchor(%s), '0/0') - '0/0'", place))


# ---- anchors ----

def test_anchors(connect):
    """Guards: a server that starts writes an anchor; later ones come in new segments and after checkpoints, also if nothing
    is logged; a server that does nothing else writes none."""
    need_library("pg_walinspect")
    for cluster in started(preload=True, settings=SETTINGS | {"archive_timeout": 1, "wal_keep_size": "1GB"}):
        cluster.psql("CREATE EXTENSION pg_walinspect; CREATE TABLE t (i int)")
        cluster.restart()
        watcher = connect(cluster)
        wal = Wal(watcher)
        wal.begin = one(watcher, "SELECT redo_lsn FROM pg_control_checkpoint()")  # of the shutdown
        at_start = until(lambda: wal.messages("anchor"), "an anchor at the start")
        assert len(at_start) <= 2  # a session that commits while the housekeeper writes the first one writes one as well
        first = at_start[0]
        assert not first.transactional and set(first.content()) == {"version", "kind", "run"}

        def new_segment() -> None:
            watcher.execute("INSERT INTO t VALUES (1); SELECT pg_switch_wal(); INSERT INTO t VALUES (2)")

        new_segment()
        now = segment(watcher)
        assert now > first.start // SEGMENT_BYTES
        until(lambda: wal.messages("anchor")[-1].start // SEGMENT_BYTES >= now, "an anchor in the new segment")
        watcher.execute("SELECT herald.set_channel('logged', true)")
        notify(watcher, "logged", "a")
        assert pairs(wal.logged()[0]) == [("logged", "a")]
        watcher.execute("CHECKPOINT")
        redo = int(one(watcher, "SELECT redo_lsn - '0/0' FROM pg_control_checkpoint()"))
        until(lambda: wal.messages("anchor")[-1].start >= redo, "an anchor after the checkpoint")
        assert {message.content()["run"] for message in wal.messages()} == {wal.logged()[0]["run"]}

        # Checkpoints and archive_timeout begin no new segment because of an anchor, and no anchor because of that.
        watcher.execute("CHECKPOINT")
        until(lambda: (before := segment(watcher)) and looks(cluster, 4) and segment(watcher) == before,
              "the server comes to rest")


def segment(watcher: psycopg.Connection) -> int:
    """The number of the WAL's current segment."""
    return int(one(watcher, "SELECT pg_current_wal_insert_lsn() - '0/0'")) // SEGMENT_BYTES


def test_anchor_of_a_promoted_server(connect):
    """Guards: a standby writes no anchor; soon after its promotion it writes one with its own run."""
    need_library("pg_walinspect")
    for primary in started(preload=True, settings=SETTINGS | {"wal_retrieve_retry_interval": "100ms"}):
        primary.psql("CREATE EXTENSION pg_walinspect; SELECT herald.set_channel('logged', true)")
        wal = Wal(connect(primary))
        notify(connect(primary), "logged", "of the primary")
        (of_primary,) = wal.logged()
        with Standby(primary) as standby:
            looks(standby, ANCHOR_LOOKS)
            promoted = connect(standby)
            assert one(promoted, "SELECT pg_promote()")
            after = Wal(promoted)
            after.begin = one(promoted, "SELECT pg_last_wal_replay_lsn()") or after.begin
            (anchor,) = until(lambda: after.messages("anchor"), "an anchor after the promotion")
            notify(promoted, "logged", "of the standby")
            (of_standby,) = after.logged()
            assert anchor.content()["run"] == of_standby["run"] != of_primary["run"]
            looks(standby, ANCHOR_LOOKS)
            assert len(after.messages("anchor")) <= 2  # a session that commits while the relay is at work writes one as well
