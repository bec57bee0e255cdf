"""A refused LISTEN in a session whose client does not read the error."""

import resource
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from faults import Doing, listen_to
from laggards import SMALLEST
from servers import SETTINGS, started
from support import hear, left_nothing, notify, one, until, until_gone, wait_event
from wire import cstring

pytestmark = pytest.mark.seam

REFUSED_IN_A_ROW = 40
PRLIMIT = "/usr/bin/prlimit"
LITTLE = 500_000  # bytes of memory, less than 30,000 channels take

# Sizes of the unread result before the error. With one of these, the socket becomes full while the error is sent.
SIZES = [204_400, *range(100_000, 400_000, 4_000)]


@pytest.fixture(scope="module")
def little():
    """A server with the smallest memory for channels."""
    yield from started(preload=True, settings=SETTINGS | SMALLEST)


def fill(connection: psycopg.Connection) -> None:
    """Listens to channels until hardly another one fits into memory: a further LISTEN is refused, whatever the name."""
    connection.execute("LISTEN full_0; LISTEN full_1")
    names, step, refused = 2, 2048, 0
    while refused < REFUSED_IN_A_ROW:
        try:
            connection.execute(listen_to("full", names, step))
            refused = 0
        except psycopg.errors.OutOfMemory:
            refused += step == 1
            step = max(step // 2, 1)
        names += step


@contextmanager
def mute(cluster, connect, wire, sql: str, error: str):
    """Within the block, a backend is blocked sending an error to a client that does not read."""
    watcher = connect(cluster)
    for size in SIZES:
        client = wire(cluster)
        logged = len(cluster.log())
        client.send(("Q", cstring(f"SELECT repeat('x', {size}); {sql}")))
        until(lambda: wait_event(watcher, client.pid) == "ClientWrite" or has_answered(watcher, client.pid),
              "the socket is full, or took all")
        if error in cluster.log()[logged:] and not has_answered(watcher, client.pid):
            break
        client.close()
    else:
        raise AssertionError("the socket takes all, or nothing")
    try:
        yield client
    finally:
        client.close()
    until_gone(watcher, client.pid)


def has_answered(watcher: psycopg.Connection, pid: int) -> bool:
    """Whether the backend has finished its statement and waits for the next one."""
    return one(watcher, "SELECT state = 'idle' AND query <> '' FROM pg_stat_activity WHERE pid = %s", pid)


def others_go_on(cluster, connect, listener: psycopg.Connection, listen: str) -> None:
    """NOTIFY, LISTEN and the views work, whatever the channel; and a session can be terminated."""
    sender, newcomer, victim = connect(cluster), connect(cluster), connect(cluster)
    doing = [Doing(sender, "SELECT pg_notify('nobody_' || n, '') FROM generate_series(1, 1000) n; NOTIFY c, 'heard'"),
             Doing(newcomer, f"LISTEN c; {listen}"),
             Doing(victim, f"LISTEN c; {listen}; SELECT pg_sleep(60)")]
    until(lambda: not doing[0].runs() and not doing[1].runs(), "COMMIT and LISTEN come to an end")
    assert [one_of_them.end() for one_of_them in doing[:2]] == [None, None]
    assert hear(listener, 1) == ["heard"]
    assert one(sender, "SELECT listeners > 1 FROM herald.channels WHERE channel = 'c'")
    assert one(sender, "SELECT pg_terminate_backend(%s, 20000)", victim.info.backend_pid)
    assert isinstance(doing[2].end(), psycopg.OperationalError)
    newcomer.close()
    until(lambda: one(sender, "SELECT listeners FROM herald.channels WHERE channel = 'c'") == 1,
          "they have gone: there is no memory for a fifth listener")


def test_refused_and_not_read(little, connect, wire):
    """Guards: when a LISTEN finds no memory, no lock of the channel map is held while its error is sent: if the client
    does not read it, NOTIFY and LISTEN of other sessions go on, and these can be terminated."""
    listener, greedy = connect(little), connect(little)
    listener.execute("LISTEN c")
    fill(greedy)
    for number in range(3):
        with mute(little, connect, wire, f"LISTEN refused_{number}", f"LISTEN refused_{number}"):
            others_go_on(little, connect, listener, "LISTEN full_0; LISTEN full_1")
    assert one(greedy, "SELECT count(*) FROM herald.channels WHERE channel LIKE 'refused%'") == 0
    greedy.execute("UNLISTEN *")
    greedy.execute(listen_to("again", 0, 3000))
    notify(listener, "again_2999", "heard")
    assert hear(greedy, 1) == ["heard"]
    greedy.execute("UNLISTEN *")
    listener.execute("UNLISTEN *")
    until(lambda: left_nothing(greedy), "nobody listens")


def test_view_without_memory(cluster, connect, wire):
    """Guards: herald.channels allocates its memory while no lock of the channel map is held: if there is none, and the
    client does not read the error, other sessions go on."""
    listener, many = connect(cluster), connect(cluster)
    listener.execute("LISTEN c")
    many.execute(listen_to("full", 0, 30_000))

    def limited(*arguments):
        """Opens a connection whose backend can allocate hardly any more memory."""
        client = wire(*arguments)
        # Loads what the backend needs for these statements.
        client.query("SELECT count(*) FROM herald.listeners WHERE pid = 0; SELECT repeat('x', 400000)")
        pages = int(Path(f"/proc/{client.pid}/statm").read_text(encoding="ascii").split()[0])
        limit = cluster.run_as_server_user(PRLIMIT, f"--pid={client.pid}",
                                           f"--as={pages * resource.getpagesize() + LITTLE}")
        assert limit.returncode == 0, limit.stderr
        return client

    with mute(cluster, connect, limited, "SELECT count(*) FROM herald.channels", "out of memory"):
        others_go_on(cluster, connect, listener, listen_to("new", 0, 1000))
    many.execute("UNLISTEN *")
    listener.execute("UNLISTEN *")
    until(lambda: left_nothing(many), "nobody listens")
