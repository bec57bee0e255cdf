"""The order of messages, in every variant of the protocol."""

import time

import psycopg
import pytest

from harness.listeners import Listeners
from support import hear, load, notify, one
from wire import EXECUTE, FLUSH, SYNC, bind, call, describe, kinds, parse, payloads

pytestmark = pytest.mark.seam


ROUNDS_MIN = 50


def test_own_notification_before_ready(cluster, wire):
    """Guards: a session's own notification arrives between its answer and ReadyForQuery."""
    client = wire(cluster)
    client.query("LISTEN c")
    assert kinds(client.query("NOTIFY c, 'x'")) == "CAZ"
    assert kinds(client.query("SELECT pg_notify('c', 'x')")) == "TDCAZ"
    assert kinds(client.query("BEGIN; NOTIFY c, '1'; COMMIT; NOTIFY c, '2'")) == "CCCCAAZ"
    assert kinds(client.query("BEGIN")) == "CZ"
    assert kinds(client.query("NOTIFY c, 'x'")) == "CZ"
    assert kinds(client.query("COMMIT")) == "CAZ"
    client.send(parse("NOTIFY c, 'x'"), bind(), EXECUTE, SYNC)
    assert kinds(client.until_ready()) == "12CAZ"
    assert kinds(client.query("LISTEN d; NOTIFY d, 'x'")) == "CCAZ"


def test_own_notification_with_an_error(cluster, wire):
    """Guards: if a later statement of the same query string fails, notifications committed before it still arrive."""
    client = wire(cluster)
    client.query("LISTEN c")
    messages = client.query("BEGIN; NOTIFY c, 'committed'; COMMIT; NOTIFY c, 'lost'; SELECT 1 / 0")
    assert payloads(messages) == ["committed"]
    assert payloads(client.query("NOTIFY c, 'next'")) == ["next"]


@pytest.mark.parametrize("size", [100, 7900])
def test_own_notification_before_ready_far_behind(cluster, connect, wire, size):
    """Guards: the same, if the client has more unread notifications than a listener reads in one turn (256 kB)."""
    client, sender = wire(cluster), connect(cluster)
    client.query("LISTEN c")
    client.query("BEGIN")
    sent = [str(number).rjust(size, "x") for number in range(2_000_000 // size)]
    for payload in sent:
        sender.execute("SELECT pg_notify('c', %s)", (payload,))
    client.query("NOTIFY c, 'own'")
    with Listeners(cluster, 20, "others"), load(cluster, "NOTIFY others;", clients=2):
        assert payloads(client.query("COMMIT")) == [*sent, "own"]


def test_own_notification_before_ready_under_load(cluster, wire):
    """Guards: the same, while other sessions notify, and may be dispatching this session's batch."""
    client = wire(cluster)
    client.query("LISTEN own; LISTEN load")
    heard_of_load = 0
    rounds = 0
    with load(cluster, "NOTIFY load, 'x';", clients=4) as running:
        end = time.monotonic() + 2
        while (time.monotonic() < end or min(rounds, heard_of_load) <= ROUNDS_MIN) and running.poll() is None:
            rounds += 1
            messages = client.query(f"NOTIFY own, '{rounds}'")
            heard = payloads(messages)
            assert str(rounds) in heard, f"round {rounds}: {kinds(messages)}"
            heard_of_load += heard.count("x")


def test_others_arrive_between_queries(cluster, connect, wire):
    """Guards: an idle client receives notifications without a query, and no ReadyForQuery with them."""
    client = wire(cluster)
    client.query("LISTEN c")
    notify(connect(cluster), "c", "1", "2", "3")
    messages = [client.receive() for _ in range(3)]
    assert kinds(messages) == "AAA" and payloads(messages) == ["1", "2", "3"]


def test_messages_of_every_length(cluster, connect):
    """Guards: however notifications fill the output buffer (frames.c), each arrives whole, in order."""
    listener, sender = connect(cluster), connect(cluster)
    listener.execute("LISTEN c")
    fills = [(length, 20_000 // length) for length in range(4, 100)]
    fills += [(length, 3) for length in (2000, 2700, 4080, 5000, 7999)]
    for length, count in fills:
        sent = [str(number).rjust(length, "x") for number in range(count)]
        sender.execute("SELECT count(pg_notify('c', payload)) FROM unnest(%s::text[]) payload", (sent,))
        assert hear(listener, count) == sent, f"{count} of {length} bytes"


def test_parse_and_describe_only(cluster, connect, wire):
    """Guards: Sync after Parse and Describe, with nothing executed, keeps the order of delivery."""
    client, sender = wire(cluster), connect(cluster)
    client.query("LISTEN c")
    for number in range(20):
        client.send(parse("SELECT 1", f"statement_{number}"), describe(f"statement_{number}"), FLUSH)
        assert kinds([client.receive() for _ in range(3)]) == "1tT"
        notify(sender, "c", f"within {number}")
        client.send(SYNC)
        heard = payloads(client.until_ready())
        notify(sender, "c", f"after {number}")
        while len(heard) < 2:
            heard += payloads([client.receive()])
        assert heard == [f"within {number}", f"after {number}"]


@pytest.mark.parametrize("messages, answer", [
    ((SYNC,), "Z"),
    ((parse(""), bind(), EXECUTE, SYNC), "12IZ"),
    ((parse("SELECT 1"), bind(), SYNC), "12Z"),
    ((("Q", b"\0"),), "IZ"),
    ((("Q", b"-- nothing\0"),), "IZ"),
    ((parse("no such statement"), SYNC), "EZ"),
    ((("Q", b"SHOW port\0"),), "TDCZ"),
    ((("Q", b"BEGIN; ROLLBACK\0"),), "CCZ"),
    ((("Q", b"BEGIN; SELECT 1 / 0\0"), ("Q", b"ROLLBACK\0")), "CEZCZ"),
    ((("Q", b"BEGIN; SAVEPOINT s; SELECT 1 / 0\0"), ("Q", b"ROLLBACK TO s; COMMIT\0")), "CCEZCCZ"),
    ((("Q", b"BEGIN; SELECT 1 / 0\0"), ("Q", b"COMMIT\0")), "CEZCZ"),
    ((("Q", b"BEGIN; SELECT 1 / 0\0"), ("Q", b"ROLLBACK AND CHAIN\0"), ("Q", b"COMMIT\0")), "CEZCZCZ"),
    ((("Q", b"BEGIN\0"), ("Q", b"COMMIT AND CHAIN\0"), ("Q", b"ROLLBACK\0")), "CZCZCZ"),
], ids=["sync", "empty", "bind", "empty query", "comment", "error", "show", "empty block", "failed block",
        "failed subtransaction", "failed block, commit", "failed block, chain", "chain"])
def test_hears_after(cluster, connect, wire, messages, answer):
    """Guards: whatever message a client sent last, it receives later notifications without sending another."""
    client, sender = wire(cluster), connect(cluster)
    client.query("LISTEN c")
    client.send(*messages)
    got = []
    while kinds(got).count("Z") < answer.count("Z"):
        got += client.until_ready()
    assert kinds(got) == answer
    notify(sender, "c", "heard")
    assert payloads([client.receive()]) == ["heard"]


POLLS = {
    "statement": (("Q", b"SELECT 1\0"),),
    "empty query": (("Q", b"\0"),),
    "comment": (("Q", b"-- nothing\0"),),
    "empty, extended": (parse(""), bind(), EXECUTE, SYNC),
    "empty, prepared": (bind("empty"), EXECUTE, SYNC),
    "fast path": (call(2026),),  # pg_backend_pid()
    "error": (("Q", b"no such statement\0"),),
    "error, extended": (parse("no such statement"), SYNC),
}


@pytest.mark.parametrize("messages", POLLS.values(), ids=POLLS)
def test_poll(cluster, connect, wire, messages):
    """Guards: a client that polls, by any message that does nothing or fails, receives before the answer all that was
    committed earlier, even while it waits for its turn. (No other session is committing.)"""
    client, sender = wire(cluster), connect(cluster)
    for listener in (client, *(wire(cluster) for _ in range(40))):
        listener.query("LISTEN c")
    client.send(parse("", "empty"), SYNC)
    client.until_ready()
    for number in range(50):
        notify(sender, "c", str(number))
        client.send(*messages)
        assert payloads(client.until_ready()) == [str(number)]


def test_client_is_told_after_the_commit(cluster, connect):
    """Guards: messages reported between adding the batch to the queue and the commit reach the client. For clients that
    do not read, see faults/test_messages.py."""
    client = connect(cluster)
    told = []
    client.add_notice_handler(lambda notice: told.append(notice.message_primary))
    client.execute("SET client_min_messages = debug1; SET trace_notify = on")
    client.execute("BEGIN; LISTEN c; NOTIFY c, 'x'; COMMIT")
    assert any("herald_notify" in message for message in told)
    assert any("PreCommit" in message for message in told)
    assert one(client, "SHOW client_min_messages") == "debug1"
    told.clear()
    client.execute("LISTEN d")
    assert any("PreCommit" in message for message in told)


def test_pipeline(cluster, connect):
    """Guards: in a pipeline the notifications of every transaction arrive, in order, once."""
    client, listener = connect(cluster), connect(cluster)
    listener.execute("LISTEN c")
    client.execute("LISTEN c")
    with client.pipeline() as pipeline:
        for number in range(50):
            client.execute("SELECT pg_notify('c', %s)", (str(number),))
            if number % 10 == 9:
                pipeline.sync()
    expected = [str(number) for number in range(50)]
    assert hear(listener, 50) == expected
    assert hear(client, 50) == expected


def test_pipeline_with_an_error(cluster, connect):
    """Guards: an error in a pipeline rolls back the statements between its two Syncs, and no others."""
    client, listener = connect(cluster), connect(cluster)
    listener.execute("LISTEN c")
    with pytest.raises(psycopg.errors.DivisionByZero):
        with client.pipeline() as pipeline:
            notify(client, "c", "kept")
            pipeline.sync()
            notify(client, "c", "lost")
            client.execute("SELECT 1 / %s", (0,))
    notify(client, "c", "after")
    assert hear(listener, 2) == ["kept", "after"]


def test_prepared_statements(cluster, connect):
    """Guards: a statement prepared in the protocol notifies each time, also with a generic plan."""
    client, listener = connect(cluster), connect(cluster)
    listener.execute("LISTEN c")
    before = one(client, "SELECT notifications FROM herald.stats")
    for number in range(12):
        client.execute("SELECT pg_notify('c', %s)", (str(number),), prepare=True)
    client.execute("NOTIFY c, 'statement'", prepare=True)
    client.execute("NOTIFY c, 'statement'", prepare=True)
    assert hear(listener, 14) == [str(number) for number in range(12)] + ["statement"] * 2
    assert one(client, "SELECT notifications FROM herald.stats") - before == 14


def test_fast_path(cluster, connect, wire):
    """Guards: the fast path has no plan: pg_catalog.pg_notify() called by it notifies natively, and it arrives."""
    client, listener = wire(cluster), connect(cluster)
    listener.execute("LISTEN c")
    oid = one(listener, "SELECT 'pg_catalog.pg_notify'::regproc::oid")
    before = one(listener, "SELECT notifications FROM herald.stats")
    client.send(call(oid, "c", "1"))
    assert kinds(client.until_ready()) == "VZ"
    assert hear(listener, 1) == ["1"]
    assert one(listener, "SELECT notifications FROM herald.stats") == before


@pytest.mark.parametrize("listens", [False, True], ids=["sender", "listener"])
def test_fast_path_to_pg_herald(cluster, connect, wire, listens):
    """Guards: a function called by the fast path that notifies through pg_herald is sent, whether or not the session
    listens."""
    client, listener = wire(cluster), connect(cluster)
    listener.execute("LISTEN c")
    listener.execute("""CREATE OR REPLACE FUNCTION sends(text) RETURNS text LANGUAGE plpgsql AS $$
        DECLARE nothing text;
        BEGIN
            nothing := pg_notify('c', $1);
            RETURN nothing;
        END $$""")
    function = one(listener, "SELECT 'sends'::regproc::oid")
    ours = one(listener, "SELECT 'herald.pg_notify'::regproc::oid")
    if listens:
        client.query("LISTEN d")
    for number in range(3):
        client.send(call(function, f"function {number}"))
        assert kinds(client.until_ready()) == "VZ"
        client.send(call(ours, "c", f"direct {number}"))
        assert kinds(client.until_ready()) == "VZ"
    notify(listener, "c", "end")
    assert hear(listener, 7) == [f"{how} {number}" for number in range(3)
                                    for how in ("function", "direct")] + ["end"]
