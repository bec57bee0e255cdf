"""Clients of an ordinary role that read slowly, or not at all, slow down other sessions no more than on the stock
server, which is measured as well."""

import threading
import time
from collections import deque
from contextlib import closing, contextmanager
from select import select

import pytest

from harness.cluster import Cluster
from servers import SETTINGS, has_herald, started
from support import load, one, stopped, until, watchdog_stopped
from timing import as_fast
from wire import Wire, cstring, kinds, payloads

MUTE = 240
FULL = 40
PARTS = 4
REST_S = 0.2
STEP_S = 0.02
ATTEMPTS = 3
BACKLOG_BYTES = 6 * 1024 * 1024
READ_BYTES = 1 << 16  # per step
LENGTHS = {"c": 7000, "d": 0}
DEADLINE_S = 60
TIMES_MAX = 3  # factor of the stock server's delay
SLOW = 150
BURST = [("Q", cstring(f"NOTIFY c, '{number} {'x' * 7000}'")) for number in range(60)]


pytestmark = pytest.mark.alone


def for_many(preload: bool):
    """Yields a server for many connections, with an ordinary role, and with a second database."""
    for server in started(preload=preload, settings=SETTINGS | {"max_connections": 350}):
        server.psql("CREATE ROLE ordinary LOGIN")
        server.psql("CREATE DATABASE another")
        if has_herald(server):
            server.create_herald("another")
        yield server


@pytest.fixture(scope="module")
def roomy():
    """The server with pg_herald."""
    yield from for_many(True)


@pytest.fixture(scope="module")
def roomy_stock():
    """The stock server."""
    yield from for_many(False)


def ordinary(cluster: Cluster, wire, dbname: str = "postgres") -> Wire:
    """A connection of an ordinary role that listens to c."""
    client = wire(cluster, dbname, user="ordinary")
    client.query("LISTEN c")
    return client


@contextmanager
def reading(clients: list[Wire], bytes_each: int, interval_s: float):
    """Within the block, each client reads and discards bytes_each bytes every interval_s seconds."""
    stop = threading.Event()
    failures = []

    def read() -> None:
        try:
            while not stop.wait(interval_s):
                for client in clients:
                    left = bytes_each
                    while left > 0:
                        try:
                            left -= len(client.socket.recv(min(left, 1 << 18)))
                        except BlockingIOError:
                            break
        except OSError as error:
            failures.append(error)

    for client in clients:
        client.socket.setblocking(False)
    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        assert not failures


def drain(clients: list[Wire], count: int) -> None:
    """Has each client read `count` notifications."""
    for client in clients:
        assert kinds([client.receive() for _ in range(count)]) == "A" * count


def test_mute_clients(roomy, wire):
    """Guards: when very many clients do not read their notifications, listeners on another channel still receive
    theirs, whenever they connected, and although no turn is taken back: the watchdog is stopped."""
    sender, listeners, mute = wire(roomy), [], []
    for _ in range(PARTS):
        listeners.append(wire(roomy))
        listeners[-1].query("LISTEN d")
        mute += [ordinary(roomy, wire) for _ in range(MUTE // PARTS)]
    for _ in range(ATTEMPTS):
        time.sleep(REST_S)
        with watchdog_stopped(roomy):
            sender.send(*BURST)
            for _ in BURST:
                sender.until_ready()
            sender.query("NOTIFY d, 'heard'")
            for listener in listeners:
                assert payloads([listener.receive()]) == ["heard"]
        drain(mute, len(BURST))


def takes(cluster: Cluster, wire, watcher, size: int) -> bool:
    """Whether an answer of `size` bytes fits into the buffers of a client that does not read."""
    with closing(wire(cluster, user="ordinary")) as client:
        client.send(("Q", cstring(f"SELECT repeat('x', {size})")))
        return until(lambda: one(watcher, "SELECT CASE WHEN query LIKE 'SELECT repeat%%' THEN wait_event END"
                                 " FROM pg_stat_activity WHERE pid = %s AND wait_event LIKE 'Client%%'"
                                 " UNION ALL SELECT NULL LIMIT 1", client.pid), "it waits") == "ClientRead"


def test_mute_clients_with_full_buffers(roomy, connect, wire):
    """Guards: no listener holds a turn while it waits to send a position or a notification to a client that does not
    read, not even if earlier output has just filled the server's buffer. (One that gets no CPU loses its turn as
    well.)"""
    watcher = connect(roomy)
    fits, does_not = 1000, 1 << 20
    while does_not - fits > 100:
        middle = (fits + does_not) // 2
        fits, does_not = (middle, does_not) if takes(roomy, wire, watcher, middle) else (fits, middle)

    def rescued() -> int:
        mute = [ordinary(roomy, wire) for _ in range(FULL)]
        for client in mute:
            client.query("LISTEN herald_position")
            client.arrived(0.01)
            client.send(("Q", cstring(f"SELECT repeat('x', {fits - 20})")))
        time.sleep(REST_S)
        before = one(watcher, "SELECT turns_rescued FROM herald.stats")
        watcher.execute("SELECT pg_notify('c', repeat('y', 7999)), pg_notify('c', repeat('z', 150))")
        time.sleep(FULL * 0.02)
        for client in mute:
            client.close()
        return one(watcher, "SELECT turns_rescued FROM herald.stats") - before

    assert any(rescued() < FULL / 4 for _ in range(ATTEMPTS)), "turns were taken back"


def steadily(senders: dict[str, Wire], listener: Wire, seconds: float) -> tuple[list[float], list[float]]:
    """Has each sender notify the channel of its name at a steady rate, which does not wait for slow commits. Returns
    how long after its due time each NOTIFY of d was answered, and received, in seconds, sorted."""
    answered, heard = [], []
    unanswered = {name: deque() for name in senders}
    steps = int(seconds / STEP_S)
    step, began = 0, time.monotonic()
    while len(heard) < steps or any(unanswered.values()):
        due = began + step * STEP_S
        if step < steps and time.monotonic() >= due:
            step += 1
            for name, sender in senders.items():
                unanswered[name].append(due)
                sender.send(("Q", cstring(f"NOTIFY {name}, '{due!r}{' ' * LENGTHS[name]}'")))
        assert time.monotonic() < began + seconds + DEADLINE_S
        ready = select([listener.socket, *(sender.socket for sender in senders.values())], [], [],
                       max(0, due - time.monotonic()))[0]
        if listener.socket in ready:
            heard += [time.monotonic() - float(payload) for payload in payloads(listener.arrived())]
        for name, sender in senders.items():
            for _ in range(kinds(sender.arrived()).count("Z") if sender.socket in ready else 0):
                late = time.monotonic() - unanswered[name].popleft()
                answered += [late] if name == "d" else []
    return sorted(answered), sorted(heard)


def test_slow_clients(roomy, roomy_stock, wire):
    """Guards: while many clients read only once a second, notifications on another channel, and commits that notify,
    take about as long as on the stock server."""
    def latest(cluster: Cluster) -> float:
        listener, sender, flood = wire(cluster), wire(cluster), wire(cluster)
        listener.query("LISTEN d")
        slow = [ordinary(cluster, wire) for _ in range(SLOW)]
        with reading(slow, 1 << 20, 1):
            measured = steadily({"c": flood, "d": sender}, listener, 5)
        for client in (listener, sender, flood, *slow):
            client.close()
        return max(late(times, 90) for times in measured)

    as_fast(lambda: latest(roomy), lambda: latest(roomy_stock), TIMES_MAX)


@contextmanager
def behind(cluster: Cluster, wire):
    """Within the block, a client of an ordinary role in another database is some megabytes behind, and is sent about as
    much as it reads."""
    slow = ordinary(cluster, wire, "another")
    feed = f"SELECT pg_notify('c', repeat('x', {LENGTHS['c']}));"
    with reading([slow], READ_BYTES, STEP_S), \
            load(cluster, feed, 8, "another", "-Uordinary", f"-R{READ_BYTES / STEP_S / LENGTHS['c']:.0f}"):
        cluster.client("pgbench", "-n", "-c4", f"-t{BACKLOG_BYTES // 4 // LENGTHS['c']}", "-f", "/dev/stdin", "another",
                       stdin=feed)
        yield


def late(times: list[float], part: int) -> float:
    """The given percentile of the times, which are sorted."""
    parts = {f"{part} %": round(times[len(times) * part // 100] * 1000, 1) for part in (50, 90, 95)}
    print(f"{len(times)} times, in ms: {parts}, longest {[round(one * 1000, 1) for one in times[-4:]]}")
    return times[len(times) * part // 100]


def commits(cluster: Cluster, wire, dbname: str, part: int) -> float:
    """The given percentile of the time that notifying commits take in a database, beside a client that is behind."""
    with behind(cluster, wire), closing(wire(cluster, dbname)) as sender, closing(wire(cluster, dbname)) as listener:
        listener.query("LISTEN d")
        return late(steadily({"d": sender}, listener, 3)[0], part)


@pytest.mark.parametrize("part", [50, 95])
@pytest.mark.parametrize("dbname", ["postgres", "another"])
def test_far_behind(roomy, roomy_stock, wire, dbname, part):
    """Guards: a client that stays some megabytes behind, and reads on, slows down commits neither in other databases
    nor in its own."""
    as_fast(lambda: commits(roomy, wire, dbname, part), lambda: commits(roomy_stock, wire, dbname, part), TIMES_MAX)
