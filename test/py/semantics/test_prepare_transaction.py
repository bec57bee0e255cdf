"""PREPARE TRANSACTION after NOTIFY, if there is another reason to refuse it as well."""

import pytest

from servers import SETTINGS, has_herald, started
from support import hear_until, outcome

pytestmark = pytest.mark.seam

NOTIFIED = "0A000: cannot PREPARE a transaction that has executed LISTEN, UNLISTEN, or NOTIFY"
LONG = "x" * 200

# The statements in the transaction, its name, and the reason that stock gives.
REASONS = {
    "name in use": ("", "used", '42710: transaction identifier "used" is already in use'),
    "name too long": ("", LONG, f'22023: transaction identifier "{LONG}" is too long'),
    "temporary table": ("CREATE TEMP TABLE gone (i integer)", "new",
                        "0A000: cannot PREPARE a transaction that has operated on temporary objects"),
    "no reason": ("", "new", NOTIFIED),
}


@pytest.fixture(scope="module", params=[False, True], ids=["stock", "pg_herald"])
def preparing(request):
    """A server that allows two prepared transactions, and has one, named "used"."""
    for server in started(preload=request.param, settings=SETTINGS | {"max_prepared_transactions": 2}):
        server.psql("BEGIN; PREPARE TRANSACTION 'used'")
        yield server
        server.psql("ROLLBACK PREPARED 'used'")


def prepared(session, notify: str, further: str, name: str) -> object:
    """The outcome of PREPARE TRANSACTION; afterwards the transaction is rolled back."""
    session.execute(f"BEGIN; {notify}; {further}")
    result = outcome(session, f"PREPARE TRANSACTION '{name}'")
    session.execute("ROLLBACK" if result is not None else f"ROLLBACK PREPARED '{name}'")
    return result


@pytest.mark.parametrize("reason", REASONS)
def test_prepare_after_notify(preparing, connect, reason):
    """Guards: with pg_herald it is refused because of the NOTIFY, whatever else is wrong; stock gives the other reason.
    Without a NOTIFY both give the other reason. Nothing is sent or left behind."""
    listener, session = connect(preparing), connect(preparing)
    listener.execute("LISTEN c")
    further, name, on_stock = REASONS[reason]
    expected = NOTIFIED if has_herald(preparing) else on_stock
    assert prepared(session, "NOTIFY c, 'lost'", further, name) == expected
    assert prepared(session, "SELECT pg_notify('c', 'lost')", further, name) == expected

    alone = None if reason == "no reason" else on_stock
    assert prepared(session, "SELECT 1", further, name) == alone
    assert prepared(session, "SAVEPOINT s; NOTIFY c, 'lost'; ROLLBACK TO s", further, name) == alone

    assert session.execute("SELECT gid FROM pg_prepared_xacts").fetchall() == [("used",)]
    session.execute("NOTIFY c, 'end'")
    assert hear_until(listener, "end") == []


def test_prepare_after_notify_with_no_place_left(preparing, connect):
    """Guards: the same, with max_prepared_transactions transactions already prepared."""
    session = connect(preparing)
    session.execute("BEGIN; PREPARE TRANSACTION 'second'")
    try:
        full = "53200: maximum number of prepared transactions reached"
        assert prepared(session, "SELECT 1", "", "third") == full
        assert prepared(session, "NOTIFY c", "", "third") == (NOTIFIED if has_herald(preparing) else full)
    finally:
        session.execute("ROLLBACK PREPARED 'second'")


def test_prepare_after_notify_where_it_is_disabled(cluster, stock, connect):
    """Guards: the same, with max_prepared_transactions = 0, the default."""
    disabled = "55000: prepared transactions are disabled"
    for server in (stock, cluster):
        session = connect(server)
        assert prepared(session, "SELECT 1", "", "x") == disabled
        assert prepared(session, "NOTIFY c", "", "x") == (NOTIFIED if has_herald(server) else disabled)
