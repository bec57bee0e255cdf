"""The client is answered before listeners are woken: they are all the same, also where no answer follows.

The watchdog, which would wake them some milliseconds later, is stopped in all of these.
"""

import time

import pytest

from support import hear, one, state_of, stopped, until, watchdog_pid
from wire import EXECUTE, SYNC, bind, cstring, parse

CALM_S = 0.05  # long enough that the server takes itself for calm


@pytest.fixture
def listener(cluster, connect):
    """Listens to c and is at rest, in a server that is calm and has no watchdog for now."""
    client = connect(cluster)
    client.execute("LISTEN c")
    watcher = connect(cluster)
    until(lambda: state_of(watcher, client.info.backend_pid) == "idle", "it is at rest")
    time.sleep(CALM_S)
    with stopped(watchdog_pid(cluster)):
        yield client


def test_after_the_answer(cluster, connect, listener):
    """A plain NOTIFY."""
    connect(cluster).execute("NOTIFY c, 'plain'")
    assert hear(listener, 1) == ["plain"]


@pytest.mark.parametrize("statement", ["SELECT pg_sleep(600)", "DO $$ BEGIN PERFORM pg_sleep(600); END $$"])
def test_a_long_statement_follows(cluster, wire, listener, statement):
    """In one query string: the answer to the COMMIT is sent with that to the statement."""
    wire(cluster).send(("Q", cstring(f"BEGIN; NOTIFY c, 'before'; COMMIT; {statement}")))
    assert hear(listener, 1) == ["before"]


def test_a_long_statement_follows_in_the_pipeline(cluster, wire, listener):
    """The same without a query string, and nothing that asks for the answer between."""
    statements = ("BEGIN", "NOTIFY c, 'piped'", "COMMIT", "SELECT pg_sleep(600)")
    messages = [message for sql in statements for message in (parse(sql), bind(), EXECUTE)]
    wire(cluster).send(*messages, SYNC)
    assert hear(listener, 1) == ["piped"]


def test_commit_in_a_procedure(cluster, connect, wire, listener):
    """What the procedure does after its COMMIT passes no hook, once it has all been planned."""
    connect(cluster).execute(
        "CREATE OR REPLACE PROCEDURE commits(steps integer) LANGUAGE plpgsql AS $$"
        " DECLARE done integer := 0; BEGIN NOTIFY c, 'within'; COMMIT;"
        " WHILE done < steps LOOP done := done + length(pg_sleep(0.01)::text) + 1; END LOOP; END $$")
    caller = wire(cluster)
    caller.query("CALL commits(1)")
    assert hear(listener, 1) == ["within"]
    time.sleep(CALM_S)
    caller.send(("Q", cstring("CALL commits(1000000)")))
    assert hear(listener, 1) == ["within"]


def test_the_client_is_gone(cluster, wire, listener):
    """There is nobody to be answered."""
    client = wire(cluster)
    client.send(("Q", cstring("NOTIFY c, 'last words'")))
    client.close()
    assert hear(listener, 1) == ["last words"]


def test_several_commits_and_one_answer(cluster, wire, connect, listener):
    """One query string that commits again and again: as in any other, nothing is missed or doubled."""
    wire(cluster).query("".join(f"BEGIN; NOTIFY c, '{number}'; COMMIT;" for number in range(20)))
    assert hear(listener, 20) == [str(number) for number in range(20)]
    assert one(connect(cluster), "SELECT count(*) FROM herald.listeners WHERE state <> 'idle'") == 0
