"""Other ways to receive what is durable: each message is on disk before its sender has its answer.

All are paced as bench/clients/paced.c does it: times begin when a message was due, whether or not it could be sent.
"""

import json
import re
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from bench.family import Skipped
from bench.measuring.latency import percentile
from bench.measuring.logged import INSERT, TIMEOUT_S, received
from bench.measuring.measure import DBNAME, MeasureError
from bench.measuring.peer_servers import Nats
from harness.cluster import Cluster
from harness.listeners import run_once
from harness.ports import LOOPBACK

SLOT = "bench"
START_TIMEOUT_S = 30
POLL_S = 0.02
TIMES = {"p50": 0.5, "p99": 0.99}

QUEUE = """DROP TABLE IF EXISTS noted;
CREATE TABLE noted (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text);
CHECKPOINT;
"""
TAKE = """PREPARE take AS DELETE FROM noted WHERE id IN
(SELECT id FROM noted ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED) RETURNING id, payload"""


def _figures(times_us: list[float], sent: int) -> dict:
    if len(times_us) != sent or not sent:
        raise MeasureError(f"{len(times_us):,} of {sent:,} messages were received")
    return {"sent": sent, "delivered": True} | {
        f"delivery_us_{name}": percentile(times_us, fraction) for name, fraction in TIMES.items()}


def table(cluster: Cluster, seconds: float, *, rate: float, every_ms: int | None) -> dict:
    """A table from which one reader deletes rows, FOR UPDATE SKIP LOCKED; again at once or after a time."""
    cluster.psql(QUEUE, DBNAME)
    options: dict[str, object] = {"pull_every": every_ms} if every_ms else {}
    return received(run_once(cluster, 1, dbname=DBNAME, timeout_s=TIMEOUT_S, paced=f"{seconds:g}", rate=f"{rate:g}",
                             send=INSERT, setup=TAKE, pull="EXECUTE take", **options))


# ---- pg_recvlogical ----

def _read_lines(process: subprocess.Popen, end: str) -> list[float]:
    """The time in µs from when each message was due until its line was read, up to the line that contains `end`."""
    times_us = []
    for line in process.stdout:
        now_ns = time.monotonic_ns()
        if end in line:
            break
        found = re.search(r"content:(\d+)$", line.rstrip())
        if found:
            times_us.append((now_ns - int(found[1])) / 1000)
    return times_us


def _wait_for_slot(cluster: Cluster, process: subprocess.Popen) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while cluster.psql("SELECT active FROM pg_replication_slots") != "t":
        if process.poll() is not None or time.monotonic() > deadline:
            raise MeasureError("pg_recvlogical does not read")
        time.sleep(POLL_S)


def recvlogical(cluster: Cluster, seconds: float, *, rate: float) -> dict:
    """pg_logical_emit_message() at a rate, and pg_recvlogical, which prints what test_decoding makes of it.

    cluster     its wal_level is logical, and there is no other slot
    """
    cluster.psql(f"SELECT pg_create_logical_replication_slot('{SLOT}', 'test_decoding')", DBNAME)
    command = [cluster.installation.program("pg_recvlogical"), "--dbname", DBNAME, "--slot", SLOT, "--start",
               "--file", "-", "--fsync-interval", "0", "--no-loop"]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, env=cluster.environment(DBNAME))
    try:
        _wait_for_slot(cluster, process)
        with ThreadPoolExecutor(1) as threads:
            lines = threads.submit(_read_lines, process, "the end")
            try:
                # The client's one connection neither listens nor asks, and no delivery is expected.
                told = run_once(cluster, 1, dbname=DBNAME, timeout_s=TIMEOUT_S, paced=f"{seconds:g}", rate=f"{rate:g}",
                                send="SELECT pg_logical_emit_message(true, 'bench', '%s')", setup="", deliveries=0)
                cluster.psql("SELECT pg_logical_emit_message(true, 'bench', 'the end')", DBNAME)
                times_us = lines.result(TIMEOUT_S)
            finally:
                process.terminate()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        _drop_slot(cluster)
    return _figures(times_us, told["sent"]) | {f"commit_us_{name}": told["commit_us"][name] for name in TIMES}


def _drop_slot(cluster: Cluster) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while cluster.psql("SELECT active FROM pg_replication_slots") == "t" and time.monotonic() < deadline:
        time.sleep(POLL_S)
    cluster.psql(f"SELECT pg_drop_replication_slot('{SLOT}')", DBNAME)


# ---- JetStream ----

class JetStream(Nats):
    """NATS with JetStream, which flushes each message to disk before it answers."""

    def __init__(self) -> None:
        super().__init__()
        version = tuple(int(part) for part in re.findall(r"\d+", self.version)[:2])
        if version < (2, 10):
            raise Skipped(f"nats-server {self.version} has no sync_interval; 2.10 has")

    def command(self) -> list[str]:
        config = self.write("config", f'jetstream {{ store_dir: "{self.folder}", sync_interval: always }}\n')
        return [self.program, "--addr", LOOPBACK, "--port", str(self.port), "--config", str(config)]


INBOX, PUSHED = b"1", b"2"  # subscriptions


class _Client:
    """One connection to NATS, with the few commands that are needed here."""

    def __init__(self, port: int):
        self._socket = socket.create_connection((LOOPBACK, port), timeout=START_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")
        self._reader.readline()  # INFO
        self.send(b'CONNECT {"verbose":false}\r\n')

    def close(self) -> None:
        """Ends the connection."""
        self._reader.close()
        self._socket.close()

    def send(self, command: bytes) -> None:
        """Sends a command as it is."""
        self._socket.sendall(command)

    def publish(self, subject: str, payload: bytes, reply: str) -> None:
        """Publishes a message; what answers it does so to `reply`."""
        self.send(b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), reply.encode(), len(payload), payload))

    def receive(self) -> tuple[bytes, bytes]:
        """The number of the subscription, and the payload, of the next message."""
        while True:
            words = self._reader.readline().split()
            if not words:
                raise MeasureError("nats-server has closed the connection")
            if words[0] == b"PING":
                self.send(b"PONG\r\n")
            elif words[0] == b"-ERR":
                raise MeasureError(f"nats-server: {b' '.join(words[1:]).decode()}")
            elif words[0] == b"MSG":
                return words[2], self._reader.read(int(words[-1]) + 2)[:-2]

    def ask(self, subject: str, request: dict) -> None:
        """A request to JetStream's own interface; MeasureError if it is refused."""
        self.publish(subject, json.dumps(request).encode(), "inbox")
        _, answer = self.receive()
        if "error" in json.loads(answer):
            raise MeasureError(f"JetStream: {answer.decode()}")


def jetstream(server: JetStream, seconds: float, *, rate: float) -> dict:
    """Publishes to a stream at a rate; a consumer to which messages are pushed has no need to acknowledge."""
    client = _Client(server.port)
    try:
        client.send(b"SUB inbox %s\r\nSUB pushed %s\r\n" % (INBOX, PUSHED))
        client.ask("$JS.API.STREAM.CREATE.bench", {"name": "bench", "subjects": ["sent"], "storage": "file"})
        client.ask("$JS.API.CONSUMER.CREATE.bench", {"stream_name": "bench", "config": {
            "deliver_subject": "pushed", "ack_policy": "none", "deliver_policy": "all"}})
        figures = _paced(client, seconds, rate)
        client.ask("$JS.API.STREAM.DELETE.bench", {})
    finally:
        client.close()
    return figures


def _paced(client: _Client, seconds: float, rate: float) -> dict:
    """Sends at a rate in one thread, and receives messages and answers in another."""
    sent = max(1, int(seconds * rate))
    start_ns = time.monotonic_ns()
    due_ns = [start_ns + int(number * 1e9 / rate) for number in range(sent)]

    def receive() -> tuple[list[float], list[float]]:
        delivery_us: list[float] = []
        commit_us: list[float] = []
        while len(delivery_us) < sent or len(commit_us) < sent:
            subscription, payload = client.receive()
            now_ns = time.monotonic_ns()
            if subscription == PUSHED:
                delivery_us.append((now_ns - int(payload)) / 1000)
            else:  # the answers come in the order of the messages
                commit_us.append((now_ns - due_ns[len(commit_us)]) / 1000)
        return delivery_us, commit_us

    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(receive)
        for due in due_ns:
            time.sleep(max(0, due - time.monotonic_ns()) / 1e9)
            client.publish("sent", b"%d" % due, "inbox")
        delivery_us, commit_us = found.result(TIMEOUT_S)
    return _figures(delivery_us, sent) | {
        f"commit_us_{name}": percentile(commit_us, fraction) for name, fraction in TIMES.items()}
