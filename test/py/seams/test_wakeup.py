"""A session that receives a transaction's notification finds that transaction finished: its locks are released, its
catalog changes known.

The listener queries as soon as it has received the notification, mostly before the sender's client has its answer.
Another session notifies in another database all the time, so that listeners are woken by the commit itself, not after
the answer. (Not on the stock server: a listener that another session has woken may there read a notification that is
committed while its transaction still holds its locks.)
"""

import time
from collections.abc import Callable
from contextlib import nullcontext

import pytest

from harness.cluster import Cluster
from servers import has_herald
from support import load
from wire import cstring, payloads

ROUNDS_MIN = 50
ROUNDS = 3000
MEASURED_S = 4
LOCKS_EACH = 50  # so that it takes a while to release them

LOCK = f"""BEGIN; SELECT count(pg_advisory_xact_lock({{0}}, g)) FROM generate_series(1, {LOCKS_EACH}) g;
    NOTIFY c, '{{0}}'; COMMIT"""
LOCK_AND_WRITE = LOCK.replace("NOTIFY", "INSERT INTO locked VALUES ({0}); NOTIFY")
ALL_FREE = f"SELECT bool_and(pg_try_advisory_xact_lock({{0}}, g)) FROM generate_series(1, {LOCKS_EACH}) g"
REPLACE = """BEGIN; CREATE OR REPLACE FUNCTION f() RETURNS integer LANGUAGE plpgsql AS
    'BEGIN RETURN {0}; END'; NOTIFY c, '{0}'; COMMIT"""


@pytest.fixture(scope="module")
def prepared(server):
    """A server with the tables and functions of the tests, and with a session that notifies in another database."""
    server.psql("CREATE DATABASE elsewhere")
    server.psql("CREATE TABLE locked (number bigint);"
                "CREATE FUNCTION f() RETURNS integer LANGUAGE plpgsql AS 'BEGIN RETURN 0; END'")
    if has_herald(server):
        server.create_herald("elsewhere")
    with load(server, "NOTIFY steady;", 1, "elsewhere") if has_herald(server) else nullcontext():
        yield server
    server.psql("DROP TABLE locked; DROP FUNCTION f()")
    server.psql("DROP DATABASE elsewhere WITH (FORCE)")


def wrong(cluster: Cluster, wire, send: str, ask: str, is_right: Callable[[int, str], bool]) -> str:
    """Repeatedly one session sends, and another queries when it has received that. Returns in how many rounds the
    answer was wrong, if in any."""
    listener, sender = wire(cluster), wire(cluster)
    listener.query("LISTEN c")
    listener.query(ask.format(0))
    number = count = 0
    end = time.monotonic() + MEASURED_S
    while number < ROUNDS_MIN or number < ROUNDS and time.monotonic() < end:
        number += 1
        sender.send(("Q", cstring(send.format(number))))
        assert payloads([listener.receive()]) == [str(number)]
        (value,) = [body[6:].decode() for kind, body in listener.query(ask.format(number)) if kind == "D"]
        count += not is_right(number, value)
        sender.until_ready()
    return f"in {count} of {number} rounds" if count else ""


@pytest.mark.parametrize("send", [LOCK, LOCK_AND_WRITE], ids=["only notifies", "writes"])
def test_lock_is_released(prepared, wire, send):
    """Guards: a lock that the sender's transaction held is free for a session that has received its notification."""
    assert not wrong(prepared, wire, send, ALL_FREE, lambda number, value: value == "t")


def test_function_is_replaced(prepared, wire):
    """Guards: a session that has received the notification runs the new version of a function that the sender
    replaced."""
    assert not wrong(prepared, wire, REPLACE, "SELECT f()", lambda number, value: int(value) == number)
