"""A notification that is sent before an UNLISTEN is received, and none that is sent afterwards.

UNLISTEN is sent only when the sender's client has its answer. By then the server has signalled the listener, which
reads pending notifications before it takes the next command. A crowd keeps turns and CPUs busy meanwhile: without it
the listener is mostly woken before its client has sent anything.
"""

import pytest

from crowd import crowd
from harness.cluster import Cluster
from servers import has_herald
from wire import EXECUTE, FLUSH, SYNC, Wire, bind, cstring, kinds, parse, payloads

ROUNDS = 60
SILENCE_S = 0.3


@pytest.fixture(scope="module")
def busy(server):
    """A server that a crowd keeps busy."""
    with crowd(server):
        yield server


@pytest.fixture
def settle(busy, wire):
    """settle(): waits until all notifications that were answered so far have been dispatched.

    With pg_herald a notification may be behind another session's commit for a moment, and a LISTEN that was sent after
    the answer would then receive it: these tests are not about that.
    """
    client = wire(busy)
    client.query("LISTEN settle")
    return lambda: client.query("NOTIFY settle")


def query(sql: str) -> tuple[str, bytes]:
    """A simple query, as a message."""
    return "Q", cstring(sql)


def extended(sql: str, name: str = "") -> tuple[tuple[str, bytes], ...]:
    """A statement by the extended protocol, without Sync."""
    return parse(sql, name), bind(name), EXECUTE


def ask(client: Wire, *messages: tuple[str, bytes]) -> list[tuple[str, bytes]]:
    """Sends messages in one go; returns all messages up to their last ReadyForQuery."""
    client.send(*messages)
    got = []
    for _ in range(sum(kind in "QSF" for kind, _ in messages)):
        got += client.until_ready()
    return got


def is_silent(client: Wire) -> bool:
    """Whether no message is there for the client, and none arrives for a while."""
    return kinds(ask(client, query(""))) == "IZ" and not client.arrived(SILENCE_S)


def hears_each(cluster: Cluster, wire, settle, *messages: tuple[str, bytes],
               prepare: tuple[tuple[str, bytes], ...] = ()) -> None:
    """Repeatedly: LISTEN; another client's NOTIFY, answered; then the messages, one of which is UNLISTEN. The
    notification must have arrived with their answers."""
    listener, sender = wire(cluster), wire(cluster)
    if prepare:
        ask(listener, *prepare)
    missing = []
    for number in range(ROUNDS):
        heard = payloads(ask(listener, query("LISTEN c")))
        assert kinds(ask(sender, query(f"NOTIFY c, '{number}'"))) == "CZ"
        heard += payloads(ask(listener, *messages))
        assert heard in ([str(number)], []), f"round {number}: heard {heard}"
        if not heard:
            missing.append(number)
        ask(sender, query(f"NOTIFY c, 'late {number}'"))
        settle()
    assert is_silent(listener)
    assert not missing, f"lost in {len(missing)} of {ROUNDS} rounds"


WAYS = {
    "UNLISTEN": (query("UNLISTEN c"),),
    "UNLISTEN *": (query("UNLISTEN *"),),
    "DISCARD ALL": (query("DISCARD ALL"),),
    "after a statement": (query("SELECT 1; UNLISTEN c"),),
    "before a statement": (query("UNLISTEN c; SELECT 1"),),
    "in a block": (query("BEGIN; UNLISTEN c; COMMIT"),),
    "in a subtransaction": (query("BEGIN; SAVEPOINT s; UNLISTEN c; RELEASE s; COMMIT"),),
    "after a rollback": (query("BEGIN; SELECT 1; ROLLBACK; UNLISTEN c"),),
    "switched off": (query("SET herald.enabled = off; UNLISTEN c"),),
    "switched off before": (query("SET herald.enabled = off"), query("UNLISTEN c; RESET herald.enabled")),
    "in a DO": (query("DO $$ BEGIN EXECUTE 'UNLISTEN c'; END $$"),),
    "of one just begun": (query("UNLISTEN c; LISTEN d; UNLISTEN d"),),
    "in one that fails": (query("UNLISTEN c; SELECT 1 / 0"), query("UNLISTEN c")),
    "extended": (*extended("UNLISTEN c"), SYNC),
    "UNLISTEN *, extended": (*extended("UNLISTEN *"), SYNC),
    "DISCARD ALL, extended": (*extended("DISCARD ALL"), SYNC),
    "flushed": (parse("UNLISTEN c"), bind(), FLUSH, EXECUTE, SYNC),
    "pipeline": (*extended("UNLISTEN c"), *extended("SELECT 1"), SYNC),
    "pipeline, in the midst": (*extended("SELECT 1"), *extended("UNLISTEN c"), *extended("SELECT 1"), SYNC),
    "pipeline, several Syncs": (*extended("SELECT 1"), SYNC, *extended("UNLISTEN c"), SYNC, *extended("SELECT 1"), SYNC),
    "pipeline, in a block": (*extended("BEGIN"), *extended("UNLISTEN c"), *extended("COMMIT"), SYNC),
}


@pytest.mark.parametrize("messages", WAYS.values(), ids=WAYS)
def test_heard_before_unlisten(busy, wire, settle, messages):
    """Guards: by every protocol, a notification that was answered before UNLISTEN was sent is received with UNLISTEN's
    answer at the latest; one that was answered afterwards never is."""
    hears_each(busy, wire, settle, *messages)


def test_heard_before_a_kept_unlisten(busy, wire, settle):
    """Guards: the same for a prepared statement of the protocol, analysed long before."""
    hears_each(busy, wire, settle, bind("kept"), EXECUTE, SYNC, prepare=(parse("UNLISTEN c", "kept"), SYNC))


def test_heard_before_unlisten_in_a_function(busy, wire, settle):
    """Guards: the same for a function, whose plan is cached."""
    hears_each(busy, wire, settle, query("SELECT pg_temp.unlistens()"), prepare=(query(
        "CREATE FUNCTION pg_temp.unlistens() RETURNS void LANGUAGE plpgsql AS 'BEGIN UNLISTEN c; END'"),))


@pytest.mark.parametrize("unlisten, ended", [("UNLISTEN c", "c"), ("UNLISTEN d", "d"), ("UNLISTEN *", "cd")])
def test_heard_before_unlisten_of_several(busy, wire, settle, unlisten, ended):
    """Guards: on each of two channels, notifications are received up to its UNLISTEN, in order; the other goes on."""
    listener, sender = wire(busy), wire(busy)
    missing = 0
    for number in range(ROUNDS):
        heard = payloads(ask(listener, query("LISTEN c"), query("LISTEN d")))
        for channel in "cdc":
            ask(sender, query(f"NOTIFY {channel}, '{channel} {number}'"))
        heard += payloads(ask(listener, query(unlisten)))
        for channel in "cd":
            ask(sender, query(f"NOTIFY {channel}, 'late {channel} {number}'"))
        settle()
        heard += payloads(ask(listener, query("SELECT 1"), query("UNLISTEN *")))
        sent = [f"{channel} {number}" for channel in "cdc"]
        late = [f"late {channel} {number}" for channel in "cd" if channel not in ended]
        assert set(heard) <= {*sent, *late}
        missing += heard != sent + late
    assert is_silent(listener)
    assert not missing, f"lost in {missing} of {ROUNDS} rounds"


@pytest.mark.parametrize("unlisten", ["UNLISTEN c", "UNLISTEN *"])
def test_unlisten_in_a_block(busy, wire, settle, unlisten):
    """Guards: a notification that was answered before BEGIN was sent is not received within the block, but at the
    latest with the COMMIT of an UNLISTEN; one sent during the block is not received."""
    listener, sender = wire(busy), wire(busy)
    missing = 0
    for number in range(ROUNDS):
        heard = payloads(ask(listener, query("LISTEN c")))
        ask(sender, query(f"NOTIFY c, 'before {number}'"))
        begun = ask(listener, query("BEGIN"))
        ask(sender, query(f"NOTIFY c, 'within {number}'"))
        within = ask(listener, query(unlisten))
        ask(sender, query(f"NOTIFY c, 'still within {number}'"))
        within += ask(listener, query("SELECT 1"))
        assert kinds(begun).lstrip("A") == "CZ" and kinds(within) == "CZTDCZ"
        heard += payloads(begun + ask(listener, query("COMMIT")))
        ask(sender, query(f"NOTIFY c, 'after {number}'"))
        settle()
        assert heard in ([f"before {number}"], []), f"round {number}: heard {heard}"
        missing += not heard
    assert is_silent(listener)
    assert not missing, f"lost in {missing} of {ROUNDS} rounds"


def test_unlisten_that_is_rolled_back(busy, wire, settle):
    """Guards: after an UNLISTEN that was rolled back, notifications are received when the block ends."""
    listener, sender = wire(busy), wire(busy)
    ask(listener, query("LISTEN c"))
    heard, sent = [], []
    for number in range(ROUNDS):
        ask(sender, query(f"NOTIFY c, 'before {number}'"))
        begun = ask(listener, query("BEGIN"))
        ask(sender, query(f"NOTIFY c, 'within {number}'"))
        within = ask(listener, query("UNLISTEN c"))
        assert kinds(begun).lstrip("A") == "CZ" and kinds(within) == "CZ"
        heard += payloads(begun + ask(listener, query("ROLLBACK")))
        sent += [f"before {number}", f"within {number}"]
    settle()
    assert heard + payloads(ask(listener, query("SELECT 1"))) == sent


def test_unlisten_of_a_session_that_sends(busy, wire, settle):
    """Guards: a session receives its own notification if that was sent before its UNLISTEN, but not if both are in one
    transaction."""
    client = wire(busy)
    for number in range(ROUNDS):
        ask(client, query("LISTEN c"))
        assert payloads(ask(client, query(f"NOTIFY c, '{number}'"))) == [str(number)]
        assert payloads(ask(client, query(f"BEGIN; NOTIFY c, 'own {number}'; UNLISTEN c; COMMIT"))) == []
        assert payloads(ask(client, query(f"NOTIFY c, 'late {number}'"))) == []
        settle()


@pytest.mark.parametrize("how", ["BEGIN; UNLISTEN c; LISTEN c; COMMIT", "UNLISTEN *; LISTEN c", "UNLISTEN *"])
def test_listen_again(busy, wire, settle, how):
    """Guards: UNLISTEN and LISTEN in one transaction, or one after the other, lose and duplicate nothing."""
    listener, sender = wire(busy), wire(busy)
    heard = []
    for number in range(ROUNDS):
        heard += payloads(ask(listener, query("LISTEN c")))
        ask(sender, query(f"NOTIFY c, '{number}'"))
        heard += payloads(ask(listener, query(how)))
    settle()
    heard += payloads(ask(listener, query("SELECT 1")))
    assert heard == [str(number) for number in range(ROUNDS)], f"heard {len(heard)} of {ROUNDS}"


@pytest.fixture
def of_its_own(busy):
    """A database, without pg_herald."""
    busy.psql("CREATE DATABASE of_its_own")
    yield "of_its_own"
    busy.psql("DROP DATABASE of_its_own WITH (FORCE)")


def test_drop_extension_between(busy, wire, settle, of_its_own):
    """Guards: a notification that was sent through pg_herald is received although the extension is dropped before
    UNLISTEN."""
    listener, sender = wire(busy, of_its_own), wire(busy, of_its_own)
    missing = 0
    for number in range(ROUNDS // 3):
        if has_herald(busy):
            ask(sender, query("CREATE EXTENSION pg_herald"))
        heard = ask(listener, query("LISTEN c"))
        ask(sender, query(f"NOTIFY c, '{number}'"))
        if has_herald(busy):
            ask(sender, query("DROP EXTENSION pg_herald"))
        heard += ask(listener, query("UNLISTEN c"))
        ask(sender, query(f"NOTIFY c, 'late {number}'"))
        settle()
        assert payloads(heard) in ([str(number)], [])
        missing += not payloads(heard)
    assert is_silent(listener)
    assert not missing, f"lost in {missing} of {ROUNDS // 3} rounds"
