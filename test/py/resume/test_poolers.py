"""What docs/poolers.md says of PgBouncer's three modes: where LISTEN works, and how a client notices that it does not."""

import psycopg
import pytest

from harness.bouncer import POOL_OF_ONE, Bouncer
from harness.cluster import SUPERUSER
from resume import read, resume
from support import hear, left_nothing, notify, one, outcome, until

POSITION = "herald_position"
PERIOD_MS = 200
TWO_PERIODS_S = 2 * PERIOD_MS / 1000
SEVERAL_S = 10 * PERIOD_MS / 1000
LISTENER = "SELECT channels FROM herald.listeners"

in_all_modes = pytest.mark.parametrize("pooled", ["session", "transaction", "statement"], indirect=True)
without_session = pytest.mark.parametrize("pooled", ["transaction", "statement"], indirect=True)


@pytest.fixture
def pooled(request, cluster, connect):
    """Opens clients of a pool in this mode, all of them before one session of the server. Its role has a heartbeat: in the
    startup packet PgBouncer does not pass it on."""
    admin, clients = connect(cluster), []
    admin.execute(f"ALTER ROLE {SUPERUSER} SET herald.heartbeat = {PERIOD_MS}")

    def make(**options) -> psycopg.Connection:
        clients.append(psycopg.connect(host=str(bouncer.folder), port=bouncer.port, dbname=POOL_OF_ONE, user=SUPERUSER,
                                       autocommit=True, prepare_threshold=None, **options))
        return clients[-1]

    with Bouncer(cluster, "no password by a unix socket", pool_mode=request.param) as bouncer:
        make.log = bouncer.log
        yield make
        for client in clients:
            client.close()
    admin.execute(f"ALTER ROLE {SUPERUSER} RESET herald.heartbeat")
    until(lambda: left_nothing(admin), "nobody listens")


@pytest.mark.parametrize("pooled", ["session"], indirect=True)
def test_in_session_mode(cluster, connect, pooled):
    """Guards: a client's session is its own: positions and notifications come; when the client has gone, nothing is left
    for the next one."""
    sender, client = connect(cluster), pooled()
    client.execute(f"LISTEN {POSITION}")
    assert resume(client, "c", None) is None
    assert len(hear(client, 5)) == 5
    notify(sender, "c", "x")
    until(lambda: "x" in hear(client, 1), "it comes")
    last = hear(client, 1)[-1]
    client.close()
    until(lambda: left_nothing(sender), "PgBouncer has reset the session")
    notify(sender, "c", "while it was away")
    client = pooled()
    assert one(client, "SELECT count(*) FROM pg_listening_channels()") == 0
    assert resume(client, "c", last) is True
    assert "while it was away" in hear(client, 1)


@without_session
def test_listener_is_deaf(cluster, connect, pooled):
    """Guards: LISTEN succeeds, and what comes for it is thrown away. The client notices by the silence of two periods.
    The session of the pool goes on listening."""
    sender, client = connect(cluster), pooled()
    client.execute(f"LISTEN {POSITION}; LISTEN c")
    assert len(hear(client, 2, TWO_PERIODS_S)) <= 1, "but for the first, which may come with the answer"
    notify(sender, "c", "not heard")
    assert hear(client, 1, SEVERAL_S) == []
    assert one(sender, LISTENER) == 2
    assert "got packet 'A' from server when not linked" in pooled.log()
    client.close()
    before = one(sender, f"SELECT delivered FROM herald.channels WHERE channel = '{POSITION}'")
    until(lambda: one(sender, f"SELECT delivered FROM herald.channels WHERE channel = '{POSITION}'") > before + 2,
          "it goes on")
    pooled().execute("UNLISTEN *")


@without_session
def test_others_hear_it(cluster, connect, pooled):
    """Guards: what comes while another client uses that session goes to that client, which has not asked for it."""
    client, other = pooled(), pooled()
    client.execute(f"LISTEN {POSITION}; LISTEN c")
    hear(client, 1, TWO_PERIODS_S)
    other.execute("NOTIFY c, 'for the first'")
    assert "for the first" in hear(other, 1)
    assert hear(client, 1, SEVERAL_S) == []
    other.execute("UNLISTEN *")


@without_session
def test_reading_where_another_listens(cluster, connect, pooled):
    """Guards: herald.read() cannot wait in the session in which a client of the pool has listened, and works after UNLISTEN."""
    client, other = pooled(), pooled()
    client.execute("LISTEN c")
    waiting = "SELECT * FROM herald.read('d', wait => '10ms')"
    assert outcome(other, waiting) == "55000: herald.read() cannot wait in a session that listens"
    assert read(other, "d", None)[0] == []
    client.execute("UNLISTEN *")
    rows, after = read(other, "d", None, 10, "10ms")
    notify(client, "d", "read")
    assert rows == [] and read(other, "d", after, 10, "10s")[0] == ["read"]


@pytest.mark.parametrize("pooled", ["statement"], indirect=True)
def test_no_transactions(pooled):
    """Guards: in statement mode a client cannot take its positions and LISTEN in one transaction."""
    assert outcome(pooled(), "BEGIN") == "08P01: transaction blocks not allowed in statement pooling mode"


@in_all_modes
def test_options(pooled):
    """Guards: PgBouncer refuses a connection with options, unless its settings say that it ignores them; then it drops them."""
    with pytest.raises(psycopg.OperationalError, match="unsupported startup parameter(: options| in options: herald.heartbeat)"):
        pooled(options="-c herald.heartbeat=1s")
