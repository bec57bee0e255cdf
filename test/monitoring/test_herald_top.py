"""monitoring/herald-top, in a terminal and without one, on a server under load."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

import psycopg
import pyte
import pytest

from harness.cluster import SUPERUSER, Cluster
from harness.ports import LOOPBACK
from harness.tcp_cluster import TcpCluster
from monitors import MONITORING
from servers import SETTINGS
from support import load, notify

PROGRAM = [sys.executable, MONITORING / "herald-top"]
WIDTH, HEIGHT = 150, 40
SMALL = 80, 24
DEADLINE_S = 40
DECEITFUL = "evil\x1b[2J\x1b]0;title\x07"  # would clear the screen, and change the window's title
MARKUP = "[red]:bomb:[/blue]"  # would be a color, an emoji, and an error


@pytest.fixture(scope="module")
def cluster():
    """A server under load, with a queue of 1 MB."""
    with TcpCluster(preload=True, settings=SETTINGS | {"herald.queue_memory": "1MB"}) as server:
        server.create_herald()
        with load(server, "NOTIFY orders, ':client_id'; NOTIFY jobs; NOTIFY jobs, 'again';", 2, "--rate=200"):
            yield server


@pytest.fixture
def connect(cluster):
    """connect(**options) opens a connection that ends with the test."""
    opened = []

    def open_one(**options) -> psycopg.Connection:
        usual = {"host": str(cluster.socket_folder), "user": SUPERUSER}
        opened.append(psycopg.connect(port=cluster.port, dbname="postgres", autocommit=True, **usual | options))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()


def program():
    """The program as a module."""
    loader = SourceFileLoader("herald_top", str(PROGRAM[1]))
    module = module_from_spec(spec_from_loader("herald_top", loader))
    sys.modules["herald_top"] = module  # dataclasses look it up there
    loader.exec_module(module)
    return module


def environment(cluster: Cluster, **more: str) -> dict[str, str]:
    """The program's environment: the connection, and the type and width of the terminal."""
    return os.environ | cluster.environment() | {"TERM": "xterm-256color", "COLUMNS": str(WIDTH)} | more


def run(cluster: Cluster, *arguments: str, **more: str) -> subprocess.CompletedProcess:
    """Runs the program without a terminal."""
    return subprocess.run([*PROGRAM, *arguments], env=environment(cluster, **more), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=DEADLINE_S)


class Terminal:
    """A terminal in which the program runs."""

    def __init__(self, cluster: Cluster, *arguments: str, size: tuple[int, int] = (WIDTH, HEIGHT)):
        self.master, self.slave = pty.openpty()
        termios.tcsetwinsize(self.slave, size[::-1])
        self.before = termios.tcgetattr(self.slave)
        self.screen = pyte.Screen(*size)
        self.stream = pyte.ByteStream(self.screen)
        variables = environment(cluster)
        del variables["COLUMNS"]
        self.process = subprocess.Popen([*PROGRAM, *arguments], env=variables, stdin=self.slave, stdout=self.slave,
                                        stderr=self.slave, start_new_session=True)

    def shows(self, condition) -> list[str]:
        """Waits until the lines of the screen meet the condition, and returns them."""
        end = time.monotonic() + DEADLINE_S
        while not condition(lines := [line.rstrip() for line in self.screen.display]):
            assert time.monotonic() < end, "\n".join(lines)
            if select.select([self.master], [], [], 0.1)[0]:
                self.stream.feed(os.read(self.master, 65536))
        return lines

    def colors(self, sessions: list[psycopg.Connection]) -> list[str]:
        """The colors of the sessions' lines; "" for a session without a line."""
        found = {line.split(" ")[0]: self.screen.buffer[y][0].fg for y, line in enumerate(self.screen.display)}
        return [found.get(str(session.info.backend_pid), "") for session in sessions]

    def press(self, key: str) -> None:
        """Presses a key."""
        os.write(self.master, key.encode())

    def ends(self) -> int:
        """Reads the rest of the output; returns the exit status."""
        end = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            assert time.monotonic() < end, "it does not end"
            if select.select([self.master], [], [], 0.05)[0]:
                self.stream.feed(os.read(self.master, 65536))
        return self.process.returncode


@contextmanager
def terminal(cluster: Cluster, *arguments: str, **options):
    """Yields a Terminal; at the end its settings must be as before."""
    opened = Terminal(cluster, *arguments, **options)
    try:
        yield opened
        assert termios.tcgetattr(opened.slave) == opened.before
    finally:
        opened.process.kill()
        opened.process.wait()
        os.close(opened.master)
        os.close(opened.slave)


def cells(line: str) -> list[str]:
    """The cells of a line, which are separated by at least two spaces."""
    return re.split(" {2,}", line.strip())


def rows(lines: list[str], title: str) -> list[dict[str, str]]:
    """The rows of a table, by its headings; none if the table is not shown (yet)."""
    place = next((i for i, line in enumerate(lines) if line.startswith(title)), None)
    if place is None or place + 1 == len(lines):
        return []
    heads = cells(lines[place + 1])
    found = []
    for line in lines[place + 2:]:
        if len(cells(line)) != len(heads):
            break
        found.append(dict(zip(heads, cells(line))))
    return found


def listener(lines: list[str], session: psycopg.Connection) -> dict[str, str]:
    """The session's row; empty if it has none (yet)."""
    return next((row for row in rows(lines, "Listeners") if row["pid"] == str(session.info.backend_pid)), {})


def sent_per_second(lines: list[str]) -> str:
    """The rate as shown; empty if it is not shown (yet)."""
    return next((cells(line)[1] for line in lines if line.startswith("per second")), "")


def figure(text: str) -> float:
    """The number that is shown, with separated thousands; 0 if none is shown, as at the first look."""
    return 0 if text in ("", "-") else float(text.replace(",", ""))


def test_live(cluster, connect):
    """Guards: rates and tables change, the laggard is listed first, keys work, and the terminal is restored."""
    for channels in ("LISTEN orders; LISTEN jobs", "LISTEN jobs"):
        connect().execute(channels)
    laggard = connect()
    laggard.execute("LISTEN jobs")
    with laggard.transaction(), terminal(cluster, "-i", "0.5", "postgres") as top:
        laggard.execute("SELECT 1")
        # The screen is written in parts, the last line last.
        lines = top.shows(lambda lines: "1 busy" in "\n".join(lines) and lines[-1].startswith("q quit") and
                          len(rows(lines, "Channels")) == 2 and figure(sent_per_second(lines)) > 5 and
                          all(figure(row["sent/s"]) > 5 for row in rows(lines, "Channels")))
        assert lines[0].startswith("herald-top")
        first, second = rows(lines, "Channels")
        assert [(row["channel"], row["listeners"]) for row in (first, second)] == [("jobs", "3"), ("orders", "1")]
        assert figure(first["sent/s"]) > figure(second["sent/s"])
        first = rows(lines, "Listeners")[0]
        assert (first["pid"], first["state"]) == (str(laggard.info.backend_pid), "busy")
        assert (first["database"], first["role"]) == ("postgres", SUPERUSER)
        assert lines[-1] == "q quit  space pause  c sort channels by delivered"
        top.press("c")
        top.shows(lambda lines: "Channels of this database, by delivered" in lines and
                  lines[-1].endswith("c sort channels by listeners"))
        top.press(" ")
        top.shows(lambda lines: lines[-1].startswith("q quit  space go on ") and lines[-1].endswith("  paused"))
        top.press(" ")
        top.shows(lambda lines: lines[-1].startswith("q quit  space pause ") and not lines[-1].endswith("paused"))
        top.press("q")
        assert top.ends() == 0


def test_small_terminal(cluster, connect):
    """Guards: 80 x 24 show everything important, not truncated; channels get a third of the remaining rows."""
    for place in range(20):
        connect(application_name=f"worker {place}").execute(f"LISTEN jobs; LISTEN channel_{place}")
    with terminal(cluster, "-i", "0.3", size=SMALL) as top:
        lines = top.shows(lambda lines: lines[-1].startswith("q quit") and figure(sent_per_second(lines)) > 5)
        assert lines[0].startswith("herald-top")
        assert all(lines), "\n".join(lines)
        assert "…" not in "".join(lines)
        assert cells(lines[1]) == ["traffic", "sent", "delivered", "missed", "transactions", "wakeups"]
        assert re.fullmatch(r"queue [\d.]+ [kM]?B of 8.0 GB used  [█░]+  [\d.]+ %"
                            r"  in files [\d.]+ [kM]?B", lines[5])
        assert re.fullmatch("  open large transactions 0 B"
                            r"  kept for reconnects [\d.]+ [kM]?B, the last [\d.]+ (s|min)", lines[6])
        listeners, channels = rows(lines, "Listeners"), rows(lines, "Channels")
        assert list(listeners[0]) == ["pid", "application", "client", "behind", "transaction", "wait"]
        assert list(channels[0]) == ["channel", "listeners", "sent/s", "delivered/s", "last sent"]
        assert len(channels) == (len(listeners) + len(channels)) // 3 > 1
        top.press("q")
        assert top.ends() == 0
    text = run(cluster, "-n", "1", COLUMNS="80").stdout
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert len(rows(text.splitlines(), "Listeners")) == 20


def test_rows_that_the_other_does_not_need(cluster, connect):
    """Guards: with few listeners, channels get all other rows."""
    connect().execute("".join(f"LISTEN channel_{place};" for place in range(30)))
    with terminal(cluster, "-i", "0.3", size=SMALL) as top:
        lines = top.shows(lambda lines: lines[-1].startswith("q quit") and len(rows(lines, "Listeners")) == 1)
        assert all(lines), "\n".join(lines)
        assert len(rows(lines, "Channels")) > 8
        top.press("q")
        assert top.ends() == 0


def test_what_a_listener_is_at(cluster, connect):
    """Guards: the columns for application, address, age of the transaction, and wait event of the session."""
    remote = connect(host=LOOPBACK, password=cluster.password, application_name="orders")
    local, failed = connect(application_name="mails"), connect()
    for session in (remote, local, failed):
        session.execute("LISTEN quiet")
    remote.execute("BEGIN; SELECT 1")
    failed.execute("BEGIN")
    with pytest.raises(psycopg.Error):
        failed.execute("SELECT 1 / 0")
    with terminal(cluster, "-i", "0.3", size=SMALL) as top:
        lines = top.shows(lambda lines: lines[-1].startswith("q quit") and
                          all(listener(lines, session) for session in (remote, local, failed)))
        seen = listener(lines, remote)
        assert re.fullmatch(r"[\d.]+ (s|min)", seen["transaction"])
        assert (seen["application"], seen["client"], seen["wait"]) == ("orders", LOOPBACK, "idle in transaction")
        assert listener(lines, failed)["wait"] == "transaction aborted"
        seen = listener(lines, local)
        assert (seen["application"], seen["client"], seen["transaction"]) == ("mails", "local", "-")
        assert seen["wait"] == "ClientRead"
        top.press("q")
        assert top.ends() == 0


def test_colors(cluster, connect):
    """Guards: a listener's color, yellow or red, depends on the other listeners."""
    admin, *sessions = [connect() for _ in range(4)]
    for session, channel in zip(sessions, ("slow", "others", "others")):
        session.execute(f"LISTEN {channel}")
    large = "SELECT pg_notify(channel, repeat('x', 7000) || n) " \
            "FROM unnest(%s::text[]) channel, generate_series(1, 99) n"
    with terminal(cluster, "-i", "0.3", size=SMALL) as top:
        with sessions[0].transaction():
            sessions[0].execute("SELECT 1")
            admin.execute("NOTIFY slow")
            top.shows(lambda lines: top.colors(sessions) == ["brown", "default", "default"])
            admin.execute(large, [["slow"]])
            top.shows(lambda lines: top.colors(sessions) == ["red", "default", "default"])
        for session in sessions:
            session.execute("BEGIN; SELECT 1")
        admin.execute(large, [["slow", "others"]])
        top.shows(lambda lines: top.colors(sessions) == ["brown"] * 3)
        top.press("q")
        assert top.ends() == 0


@pytest.mark.parametrize("differs, median, color", [
    ({}, 0, ""),
    ({"pending_bytes": 100, "pending_s": 1.0}, 0, ""),  # pending since after the last look
    ({"pending_bytes": 100, "pending_s": 9.0}, 0, "yellow"),
    ({"pending_bytes": 100, "pending_s": 9.0}, 20, ""),  # like the others
    ({"pending_bytes": 600, "pending_s": 9.0}, 20, "red"),
    ({"pending_bytes": 600, "pending_s": 9.0}, 600, "yellow"),
    ({"pending_bytes": 6000, "pending_s": 9.0}, 6000, "red"),  # more than half of what the queue can hold
    ({"state": "missed"}, 0, "red"),
])
def test_alarm(differs, median, color):
    """Guards: the rules of the colors, with a memory of 1,000 bytes, files of 9,000, and 2 s between two looks."""
    row = {"state": "idle", "pending_bytes": 0, "pending_s": None} | differs
    assert program().alarm(row, {"size": 1000, "max_size": 10000, "median_behind": median}, 2.0) == color


def test_ended_by_a_signal(cluster):
    """Guards: the terminal is also restored if a signal ends the program."""
    for caught in (signal.SIGTERM, signal.SIGINT):
        with terminal(cluster) as top:
            top.shows(lambda lines: lines[0].startswith("herald-top"))
            top.process.send_signal(caught)
            assert top.ends() == 128 + caught


def test_names_that_deceive(cluster, connect):
    """Guards: a channel name, which any role can choose, does not affect the terminal."""
    session = connect()
    session.execute(f'LISTEN "{DECEITFUL}"; LISTEN "{MARKUP}"')
    with terminal(cluster, "-i", "0.3") as top:
        notify(session, DECEITFUL, "x")
        lines = top.shows(lambda lines: any(line.startswith("evil") for line in lines) and
                          any(line.startswith(f"{MARKUP} ") for line in lines))
        assert lines[0].startswith("herald-top")
        assert top.screen.title == ""
        top.press("q")
        assert top.ends() == 0


def test_without_a_terminal(cluster, connect):
    """Guards: it prints as many looks as requested, in plain text."""
    connect().execute("LISTEN jobs")
    done = run(cluster, "-n", "3", "-i", "0.3", "dbname=postgres")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("herald-top") == 3
    assert "\x1b" not in done.stdout
    looks = done.stdout.split("herald-top")[1:]
    first, *later = [rows(look.splitlines(), "Channels")[0] for look in looks]
    assert (first["channel"], first["listeners"], first["sent/s"]) == ("jobs", "1", "-")
    assert all(figure(channel["sent/s"]) > 5 for channel in later)
    assert "q quit" not in done.stdout


def test_ordinary_role(cluster, connect):
    """Guards: it works for a role that sees its own sessions only, and reports that it does not see all."""
    admin, stranger = connect(), connect()
    stranger.execute("LISTEN of_a_stranger")
    admin.execute("CREATE ROLE visitor LOGIN")
    try:
        with connect(user="visitor") as visitor:
            visitor.execute("LISTEN own")
            done = run(cluster, "-n", "1", "-U", "visitor")
            assert done.returncode == 0, done.stderr
            assert "GRANT pg_monitor" in done.stdout
            assert [row["channel"] for row in rows(done.stdout.splitlines(), "Channels")] == ["own"]
        admin.execute("GRANT pg_monitor TO visitor")
        done = run(cluster, "-n", "1", "-U", "visitor")
        assert "GRANT" not in done.stdout
        assert "of_a_stranger" in done.stdout
    finally:
        admin.execute("DROP ROLE visitor")


@pytest.mark.parametrize("arguments, status, said", [
    (["template1"], 1, "this database does not have pg_herald\nHINT: Run CREATE EXTENSION"),
    (["nowhere"], 1, 'database "nowhere" does not exist'),
    (["-i", "0"], 2, "the interval must be at least 0.1 seconds"),
])
def test_what_is_wrong_is_said(cluster, arguments, status, said):
    """Guards: an error is reported in one line, without a traceback."""
    done = run(cluster, *arguments)
    assert done.returncode == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_manual_has_each_option():
    """Guards: the manual page describes the options that the program has, and no others."""
    said = subprocess.run([*PROGRAM, "--help"], capture_output=True, text=True, check=True).stdout
    manual = (MONITORING / "herald-top.1").read_text(encoding="utf-8").replace("\\", "")
    assert set(re.findall(r"--\w+", manual)) == set(re.findall(r"--\w+", said)) != set()


def test_reader_that_goes(cluster):
    """Guards: herald-top | head ends without an error message."""
    shell = subprocess.run(["sh", "-c", f"{PROGRAM[0]} {PROGRAM[1]} -i 0.2 | head -n 1"], env=environment(cluster),
                           capture_output=True, text=True, timeout=DEADLINE_S)
    assert (shell.stdout.count("\n"), shell.stderr) == (1, "")


def test_server_that_restarts():
    """Guards: it reports that the server does not answer, continues when it does, and no rate spans the restart."""
    with Cluster(preload=True, settings=SETTINGS) as server:
        server.create_herald()
        with terminal(server, "-i", "0.3") as top:
            top.shows(lambda lines: lines[0].startswith("herald-top"))
            server.stop()
            top.shows(lambda lines: any("no answer" in line for line in lines))
            server.start()
            top.shows(lambda lines: lines[0].startswith("herald-top") and
                      not any("no answer" in line for line in lines))
            top.press("q")
            assert top.ends() == 0
