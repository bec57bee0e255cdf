"""Privileges to resume and to read: all roles have them, unless EXECUTE on the functions is revoked."""

import pytest

from resume import position, read, resume
from support import hear, notify, outcome

pytestmark = pytest.mark.seam

CALLS = {
    "herald.position()": "SELECT herald.position()",
    "herald.listen(text, text)": "SELECT herald.listen('c', NULL)",
    "herald.read(text, text, integer, interval)": "SELECT * FROM herald.read('c')",
    "herald.read(text[], text, integer, interval)": "SELECT * FROM herald.read(channels => '{c,d}')",
}


@pytest.fixture
def ordinary(cluster, connect):
    """A session of a role without any privileges, and one of a superuser."""
    superuser, session = connect(cluster), connect(cluster)
    superuser.execute("CREATE ROLE ordinary_reader")
    session.execute("SET SESSION AUTHORIZATION ordinary_reader")
    yield session, superuser
    session.close()
    superuser.execute("DROP OWNED BY ordinary_reader; DROP ROLE ordinary_reader")


def test_an_ordinary_role(ordinary):
    """Guards: any role can take positions, resume and read, also from a position that another role has taken."""
    session, superuser = ordinary
    tokens = position(session), position(superuser)
    notify(superuser, "c", "1")
    for token in tokens:
        assert read(session, "c", token)[0] == ["1"]
        assert resume(session, "c", token) is True
        assert hear(session, 1) == ["1"]


@pytest.mark.parametrize("function", CALLS)
def test_taken_away(ordinary, function):
    """Guards: a function on which EXECUTE was revoked is refused; the others are not, nor is LISTEN."""
    session, superuser = ordinary
    superuser.execute(f"REVOKE EXECUTE ON FUNCTION {function} FROM PUBLIC")
    try:
        for name, call in CALLS.items():
            if name == function:
                assert outcome(session, call).startswith("42501: permission denied for function")
            else:
                assert isinstance(outcome(session, call), list)
        session.execute("LISTEN c")
    finally:
        superuser.execute(f"GRANT EXECUTE ON FUNCTION {function} TO PUBLIC")


def test_where_functions_are_not_everybodys(cluster, connect, database):
    """Guards: if default privileges deny EXECUTE on new functions to PUBLIC, the extension is the same."""
    superuser, session = connect(cluster, database), connect(cluster, database)
    superuser.execute("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
    superuser.execute("CREATE EXTENSION pg_herald; CREATE ROLE ordinary_reader")
    session.execute("SET SESSION AUTHORIZATION ordinary_reader")
    for call in CALLS.values():
        assert isinstance(outcome(session, call), list)
    session.close()
    superuser.execute("DROP ROLE ordinary_reader")
