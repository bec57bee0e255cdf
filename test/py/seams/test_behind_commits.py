"""Cancels and timeouts while a session waits behind a commit that hangs.

A session that waits for its own notification has committed, and its answer is CommandComplete: however the wait ends,
no error may follow.
"""

from time import monotonic

import pytest

from servers import SETTINGS, started
from slow_commits import SLOW, slow_commit
from support import one, until, wait_event
from wire import EXECUTE, SYNC, Wire, bind, cstring, error, kinds, parse, payloads

pytestmark = pytest.mark.seam

SILENCE_S = 0.5
ATTEMPTS = 5


@pytest.fixture(scope="module")
def slow():
    """A server with commits that can hang."""
    yield from started(preload=True, settings=SETTINGS | SLOW)


def waits(watcher, pid: int) -> bool:
    """Whether a backend waits for pg_herald."""
    return one(watcher, "SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s", pid) == "Extension"


def rows(watcher, number: int) -> int:
    """Number of committed rows with this number."""
    return one(watcher, "SELECT count(*) FROM written WHERE number = %s", number)


def until_readies(client: Wire, count: int) -> list[tuple[str, bytes]]:
    """All messages up to the given number of ReadyForQuery."""
    messages = []
    for _ in range(count):
        messages += client.until_ready()
    return messages


CANCELS = {
    "function": lambda watcher, client: watcher.execute("SELECT pg_cancel_backend(%s)", (client.pid,)),
    "protocol": lambda watcher, client: client.cancel(),
}
SQL = "INSERT INTO written VALUES ({0}); NOTIFY c, 'own'"
WAYS = {
    "simple": ((("Q", cstring(SQL)),), "CCZ"),
    "block": ((("Q", cstring(f"BEGIN; {SQL}; COMMIT")),), "CCCCZ"),
    "extended": ((parse("INSERT INTO written VALUES ({0})"), bind(), EXECUTE, parse("NOTIFY c, 'own'"), bind(),
                  EXECUTE, SYNC), "12C12CZ"),
    "pipeline": ((parse("INSERT INTO written VALUES ({0})"), bind(), EXECUTE, parse("NOTIFY c, 'own'"), bind(),
                  EXECUTE, SYNC, parse("SELECT pg_sleep(0.1)"), bind(), EXECUTE, SYNC), "12C12CZ12DCZ"),
}


def formatted(messages: tuple, number: int) -> list[tuple[str, bytes]]:
    """The messages with {0} replaced by the number."""
    return [(kind, body.replace(b"{0}", str(number).encode())) for kind, body in messages]


# The server's CancelRequest signals twice, and the second signal may hit the next statement of the pipeline.
@pytest.mark.parametrize("way, cancel", [(way, cancel) for way in WAYS for cancel in CANCELS
                                         if (way, cancel) != ("pipeline", "protocol")])
def test_canceled(slow, connect, wire, way, cancel):
    """Guards: a cancel ends only the wait: it causes no error, since all is committed, and does not affect the next
    statement; the notification arrives once, when the earlier commit is finished."""
    watcher, client = connect(slow), wire(slow)
    messages, answer = WAYS[way]
    number = client.pid
    client.query("LISTEN c")
    with slow_commit(slow, wire, watcher, "slow") as let_go:
        client.send(*formatted(messages, number))
        until(lambda: waits(watcher, client.pid), "it waits for its own notification")
        CANCELS[cancel](watcher, client)
        heard = until_readies(client, answer.count("Z"))
        assert error(heard) is None and kinds(heard) == answer
        assert rows(watcher, number) == 1
        assert kinds(client.query("SELECT pg_sleep(0.1)")) == "TDCZ"
        let_go()
    assert payloads([client.receive() for _ in range(2)]) == ["slow", "own"]
    assert client.arrived(SILENCE_S) == []
    assert kinds(client.query("NOTIFY c, 'next'")) == "CAZ"


@pytest.mark.parametrize("cancel", CANCELS.values(), ids=CANCELS)
def test_canceled_again_and_again(slow, connect, wire, cancel):
    """Guards: repeated cancels, and several statements that are cancelled in this wait, do no harm either."""
    watcher, client = connect(slow), wire(slow)
    client.query("LISTEN c")
    with slow_commit(slow, wire, watcher, "slow") as let_go:
        for number in range(6):
            before = one(watcher, "SELECT head FROM herald.queue")
            client.send(("Q", cstring(f"NOTIFY c, 'own {number}'")))
            until(lambda: one(watcher, "SELECT head FROM herald.queue") > before and waits(watcher, client.pid),  # pylint: disable=cell-var-from-loop
                  "it waits for its own notification")
            for _ in range(number):
                cancel(watcher, client)
            cancel(watcher, client)
            assert kinds(client.until_ready()) == "CZ"
        let_go()
    assert payloads([client.receive() for _ in range(7)]) == ["slow", *(f"own {number}" for number in range(6))]
    assert client.arrived(SILENCE_S) == []


def test_canceled_later(slow, connect, wire):
    """Guards: after a cancelled wait, a cancel of the next statement takes effect."""
    watcher, client = connect(slow), wire(slow)
    client.query("LISTEN c")
    with slow_commit(slow, wire, watcher, "slow"):
        client.send(("Q", cstring("NOTIFY c, 'own'")))
        until(lambda: waits(watcher, client.pid), "it waits for its own notification")
        client.cancel()
        assert kinds(client.until_ready()) == "CZ"
        client.send(("Q", cstring("SELECT pg_sleep(20)")))
        until(lambda: wait_event(watcher, client.pid) == "PgSleep", "it sleeps")
        client.cancel()
        assert error(client.until_ready()) == "57014: canceling statement due to user request"
    assert payloads([client.receive() for _ in range(2)]) == ["slow", "own"]


def test_lock_timeout_ends_the_wait(slow, connect, wire):
    """Guards: lock_timeout limits the wait, without an error; the notification arrives once, after the earlier one."""
    watcher, client = connect(slow), wire(slow)
    client.query("LISTEN c")
    client.query("SET lock_timeout = 300")
    with slow_commit(slow, wire, watcher, "slow") as let_go:
        began = monotonic()
        client.send(("Q", cstring("NOTIFY c, 'own'")))
        assert kinds(client.until_ready()) == "CZ" and monotonic() - began >= 0.3
        assert kinds(client.query("SELECT 1")) == "TDCZ"
        let_go()
    assert payloads([client.receive() for _ in range(2)]) == ["slow", "own"]
    assert client.arrived(SILENCE_S) == []


@pytest.mark.parametrize("setting", ["statement_timeout", "lock_timeout", "idle_session_timeout",
                                     "idle_in_transaction_session_timeout", "transaction_timeout"])
@pytest.mark.parametrize("messages, answer", WAYS.values(), ids=WAYS)
def test_timeout(slow, connect, wire, setting, messages, answer):
    """Guards: no timeout turns the wait into an error or ends the connection, because the transaction is over.
    (Statements before and after the wait may occasionally be too slow.)"""
    watcher = connect(slow)
    if not watcher.execute("SELECT FROM pg_settings WHERE name = %s", (setting,)).fetchall():
        pytest.skip(f"this server has no {setting}")
    assert any(no_timeout(slow, wire, watcher, setting, messages, answer) for _ in range(ATTEMPTS))


def no_timeout(slow, wire, watcher, setting: str, messages: tuple, answer: str) -> bool:
    """The same; False as well if the connection was lost."""
    try:
        return waits_without_error(slow, wire, watcher, setting, messages, answer)
    except (ConnectionError, EOFError):
        return False


def waits_without_error(slow, wire, watcher, setting: str, messages: tuple, answer: str) -> bool:
    """One attempt; whether there was no error."""
    client = wire(slow)
    client.query("LISTEN c")
    with slow_commit(slow, wire, watcher, "slow") as let_go:
        client.query(f"SET {setting} = 200")
        client.send(*formatted(messages, client.pid))
        heard = []
        until(lambda: waits(watcher, client.pid) or heard.extend(client.arrived()) or error(heard),
              "it waits for its own notification")
        heard += client.arrived(SILENCE_S)
        if error(heard):
            return False
        let_go()
    while kinds(heard).count("Z") < answer.count("Z"):
        heard += client.until_ready()
        if error(heard):
            return False
    if setting == "idle_session_timeout":
        heard += client.query(f"RESET {setting}")[:-2]
        if error(heard):
            return False
    assert kinds(heard).replace("A", "") == answer
    assert rows(watcher, client.pid) == 1
    while kinds(heard).count("A") < 2:
        heard.append(client.receive())
    assert payloads(heard) == ["slow", "own"]
    client.query(f"RESET {setting}")
    assert kinds(client.query("NOTIFY c, 'next'")) == "CAZ"
    return True
