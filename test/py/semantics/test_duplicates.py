"""Duplicates are removed within a transaction, through whichever queue each was sent; rolled back ones do not count.

Some ways to notify bypass pg_herald. The notifications that a transaction has sent through both queues must be those
that arrive on a stock server, which has one queue; their order is not checked.
"""

import pytest

from support import hear_until, one
from wire import call, error, payloads

pytestmark = pytest.mark.seam

OFF, ON = "SET LOCAL herald.enabled = off", "SET LOCAL herald.enabled = on"
X, Y = "NOTIFY c, 'x'", "NOTIFY c, 'y'"

# Expressions that the planner never sees bypass pg_herald, as does NOTIFY while it is switched off.
PAST = {
    "switched off": f"{OFF}; {X}; {ON}",
    "argument of CALL": "CALL takes(pg_notify('c', 'x')::text)",
    "argument of EXECUTE": "EXECUTE taking(pg_notify('c', 'x')::text)",
    "CHECK constraint": "INSERT INTO checked VALUES ('x')",
    "default of COPY": "COPY defaulted (number) FROM PROGRAM 'echo 1'",
}
OURS = {"statement": X, "function": "SELECT pg_notify('c', 'x')"}
THOUSAND = "SELECT count(pg_notify('c', g::text)) FROM generate_series(1, 1000) g"
MEGABYTES_3 = f"SELECT count(pg_notify('c', '{'x' * 7000} ' || g)) FROM generate_series(1, 450) g"


@pytest.fixture(scope="module")
def prepared(server):
    """A server with the objects that the statements need."""
    server.psql("CREATE PROCEDURE takes(text) LANGUAGE plpgsql AS 'BEGIN NULL; END';"
                "CREATE TABLE checked (payload text CHECK (pg_notify('c', payload)::text = ''));"
                "CREATE TABLE defaulted (number integer, sent text DEFAULT pg_notify('c', 'x')::text)")
    yield server
    server.psql("DROP TABLE checked, defaulted; DROP PROCEDURE takes")


@pytest.fixture
def session(prepared, wire):
    """A session that listens on the channel to which it sends."""
    client = wire(prepared)
    client.query("PREPARE taking(text) AS SELECT $1")
    client.query("LISTEN c")
    return client


@pytest.fixture
def heard(prepared, connect, session):
    """heard(sql, ...): runs statements in one transaction; returns what a listener receives of it, sorted. The sender,
    which listens as well, must receive the same with the answer."""
    listener = connect(prepared)
    listener.execute("LISTEN c; LISTEN ends")

    def run(*steps) -> list[str]:
        own = []
        for step in ("BEGIN", *steps, "COMMIT"):
            if isinstance(step, str):
                messages = session.query(step)
            else:
                session.send(step)
                messages = session.until_ready()
            assert error(messages) is None
            own += payloads(messages)
        session.query(f"BEGIN; {OFF}; NOTIFY ends, 'native end'; COMMIT")
        others = hear_until(listener, "native end")
        session.query("NOTIFY ends, 'end'")
        others += hear_until(listener, "end")
        assert sorted(own) == sorted(others)
        return sorted(others)

    return run


@pytest.mark.parametrize("past", PAST.values(), ids=PAST)
@pytest.mark.parametrize("ours", OURS.values(), ids=OURS)
def test_once(heard, past, ours):
    """Guards: a notification that one transaction sends through both queues, in either order, arrives once."""
    assert heard(f"{ours}; {past}") == ["x"]
    assert heard(f"{past}; {ours}") == ["x"]
    assert heard(ours, past, ours, past) == ["x"]
    assert heard(Y, past, Y, ours) == ["x", "y"]


def test_once_by_the_fast_path(heard, connect, prepared):
    """Guards: the same, if one of the two is sent by the protocol's fast path."""
    called = call(one(connect(prepared), "SELECT 'pg_catalog.pg_notify'::regproc::oid"), "c", "x")
    assert heard(X, called) == ["x"]
    assert heard(called, X) == ["x"]
    assert heard(called, called, X, Y) == ["x", "y"]


@pytest.mark.parametrize("past", PAST.values(), ids=PAST)
@pytest.mark.parametrize("steps, expected", [
    ("{ours}; SAVEPOINT s; {past}; ROLLBACK TO s", ["x"]),
    ("{past}; SAVEPOINT s; {ours}; ROLLBACK TO s", ["x"]),
    ("SAVEPOINT s; {ours}; ROLLBACK TO s; {past}", ["x"]),
    ("SAVEPOINT s; {past}; ROLLBACK TO s; {ours}", ["x"]),
    ("SAVEPOINT s; {ours}; RELEASE s; {past}", ["x"]),
    ("SAVEPOINT s; {past}; RELEASE s; {ours}", ["x"]),
    ("{ours}; SAVEPOINT s; {past}; RELEASE s", ["x"]),
    ("{past}; SAVEPOINT s; {ours}; RELEASE s", ["x"]),
    ("SAVEPOINT s; {ours}; {past}; ROLLBACK TO s", []),
    ("SAVEPOINT s; {past}; SAVEPOINT t; {ours}; RELEASE t; ROLLBACK TO s; NOTIFY c, 'y'", ["y"]),
    ("SAVEPOINT s; {ours}; SAVEPOINT t; {past}; ROLLBACK TO t; {past}; RELEASE s", ["x"]),
    ("{past}; SAVEPOINT s; {ours}; SAVEPOINT t; {past}; ROLLBACK TO s; {ours}", ["x"]),
])
def test_once_with_savepoints(heard, past, steps, expected):
    """Guards: the same with subtransactions: one that is rolled back is not delivered, and does not suppress an equal
    one that is kept."""
    assert heard(steps.format(ours=X, past=past)) == expected


@pytest.mark.parametrize("many", [THOUSAND, MEGABYTES_3], ids=["a thousand", "in a file"])
def test_once_each(heard, many):
    """Guards: the same with very many notifications, and with more than a segment of the queue holds."""
    one_way = heard(many)
    assert len(one_way) == len(set(one_way)) >= 450
    for steps in ((many, OFF, many), (OFF, many, ON, many)):
        both_ways = heard(*steps)
        assert len(both_ways) == len(one_way)
        assert both_ways == one_way, "not the same"


def test_twice_in_two_transactions(heard):
    """Guards: equal notifications of two transactions are not duplicates."""
    assert heard(X, f"COMMIT AND CHAIN; {OFF}", X) == ["x", "x"]
