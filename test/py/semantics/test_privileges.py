"""Roles without the privilege to execute pg_notify(): when it is refused, on a stock server and with pg_herald."""

import psycopg
import pytest

from harness.cluster import Cluster
from support import hear_until, outcome

pytestmark = pytest.mark.seam

DENIED = "42501: permission denied for function pg_notify"
DIVISION = "22012: division by zero"

PREPARATIONS = """
    CREATE TABLE nothing (i integer);
    CREATE FUNCTION branch(wanted boolean) RETURNS integer LANGUAGE plpgsql AS
        $$ BEGIN IF wanted THEN PERFORM pg_notify('c', 'branch'); END IF; RETURN 1; END $$;
    CREATE FUNCTION expression() RETURNS integer LANGUAGE plpgsql AS
        $$ DECLARE empty text; BEGIN empty := pg_notify('c', 'expression'); RETURN 1; END $$;
    PREPARE prepared AS SELECT pg_notify('c', 'prepared')"""

# Refused by both with the same message: the call is executed.
CALLED = [
    "SELECT pg_notify('c', 'one row')",
    "SELECT pg_notify('c', i::text) FROM generate_series(1, 3) i",
    "EXPLAIN (ANALYZE) SELECT pg_notify('c', 'explained')",
    "EXECUTE prepared",
    "SELECT branch(true)",
    "SELECT expression()",
    "INSERT INTO nothing VALUES (1) RETURNING pg_notify('c', 'returned')",
    "DECLARE held CURSOR WITH HOLD FOR SELECT pg_notify('c', 'held')",
]

# Refused by stock as well; the result with pg_herald, which checks the privilege only when the call is executed.
NOT_CALLED = {
    "SELECT pg_notify('c', 'no row') FROM nothing": [],
    "SELECT pg_notify('c', 'never') WHERE false": [],
    "SELECT CASE WHEN i > 9 THEN pg_notify('c', 'case') END FROM generate_series(1, 2) i": [(None,), (None,)],
    "EXPLAIN (COSTS OFF) SELECT pg_notify('c', 'explained')": [("Result",)],
    "SELECT 1 / i, pg_notify('c', 'after an error') FROM generate_series(0, 1) i": DIVISION,
}

# Refused by neither.
ALLOWED = {
    "NOTIFY c, 'statement'": None,
    "SELECT branch(false)": [(1,)],
    "PREPARE another AS SELECT pg_notify('c', 'prepared')": None,
}

DATABASE = "without_pg_notify"


@pytest.fixture(params=[False, True], ids=["stock", "pg_herald"])
def has_herald(request):
    """Whether the server has pg_herald."""
    return request.param


@pytest.fixture
def server(cluster, stock, has_herald):
    """A server with a database in which only superusers may execute pg_notify(), and an ordinary user."""
    server: Cluster = cluster if has_herald else stock
    server.psql(f"CREATE DATABASE {DATABASE}; CREATE ROLE ordinary_user")
    try:
        if has_herald:
            server.create_herald(DATABASE)
        server.psql("REVOKE EXECUTE ON FUNCTION pg_notify(text, text) FROM PUBLIC;"
                    "GRANT CREATE ON SCHEMA public TO ordinary_user", DATABASE)
        yield server
    finally:
        server.psql(f"DROP DATABASE {DATABASE} WITH (FORCE); DROP ROLE ordinary_user")


@pytest.fixture
def ordinary(server, connect) -> psycopg.Connection:
    """The ordinary user's session, which owns the functions and the table."""
    session = connect(server, DATABASE)
    session.execute("SET SESSION AUTHORIZATION ordinary_user")
    session.execute(PREPARATIONS)
    return session


def test_execute_revoked(server, has_herald, ordinary, connect):
    """Guards: a role that may not execute pg_notify() is refused at the first call, with the message and SQLSTATE of
    stock, which refuses when the executor starts. NOTIFY is allowed to every role; a GRANT allows pg_notify()."""
    listener = connect(server, DATABASE)
    listener.execute("LISTEN c")

    assert {sql: outcome(ordinary, sql) for sql in CALLED} == dict.fromkeys(CALLED, DENIED)
    assert {sql: outcome(ordinary, sql) for sql in NOT_CALLED} == \
        (NOT_CALLED if has_herald else dict.fromkeys(NOT_CALLED, DENIED))
    assert {sql: outcome(ordinary, sql) for sql in ALLOWED} == ALLOWED
    if has_herald:
        assert outcome(ordinary, "SELECT herald.pg_notify('c', 'ours')") == DENIED
    assert outcome(ordinary, "SELECT * FROM nothing") == []

    listener.execute("GRANT EXECUTE ON FUNCTION pg_notify(text, text) TO ordinary_user")
    assert outcome(ordinary, "EXECUTE prepared") == [("",)]
    ordinary.execute("NOTIFY c, 'end'")
    assert hear_until(listener, "end") == ["statement", "prepared"]


OPEN = """
    CREATE FUNCTION opened() RETURNS refcursor LANGUAGE plpgsql SECURITY DEFINER AS $$
    DECLARE result refcursor := 'result';
    BEGIN
        OPEN result FOR SELECT i FROM generate_series(1, 2) i WHERE pg_notify('c', i::text) IS NOT NULL;
        RETURN result;
    END $$"""


@pytest.mark.parametrize("opener", ["privileged", "not privileged"])
def test_execute_revoked_and_a_cursor_handed_over(server, has_herald, ordinary, connect, opener):
    """Guards: one user opens a cursor, by a function with SECURITY DEFINER, and another reads it: pg_herald checks the
    privilege of the user that reads, stock that of the user that opens."""
    superuser = connect(server, DATABASE)
    owner, reader = (superuser, ordinary) if opener == "privileged" else (ordinary, superuser)
    owner.execute(OPEN)
    reader.execute("BEGIN")
    results = [outcome(reader, "SELECT opened()"), outcome(reader, "FETCH FROM result")]
    reader.execute("ROLLBACK")

    if (opener == "privileged") != has_herald:
        assert results == [[("result",)], [(1,)]]
    elif has_herald:
        assert results == [[("result",)], DENIED]
    else:
        assert results[0] == DENIED
