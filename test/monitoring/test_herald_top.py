"""monitoring/herald-top, in a terminal and without one, beside a server under load."""

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from contextlib import contextmanager

import psycopg
import pyte
import pytest

from harness.cluster import SUPERUSER, Cluster
from monitors import MONITORING
from servers import SETTINGS
from support import load, notify

PROGRAM = [sys.executable, MONITORING / "herald-top"]
WIDTH, HEIGHT = 110, 40
DEADLINE_S = 40
DECEITFUL = "evil\x1b[2J\x1b]0;title\x07"  # would empty the screen, and change the window's title


@pytest.fixture(scope="module")
def cluster():
    """A server with a sender and listeners; one of them is in a transaction, and has missed nothing yet."""
    with Cluster(preload=True, settings=SETTINGS | {"herald.log_min_lag": "1kB"}) as server:
        server.create_herald()
        with load(server, "NOTIFY orders, ':client_id'; NOTIFY jobs; NOTIFY jobs, 'again';", 2, "--rate=200"):
            yield server


@pytest.fixture
def connect(cluster):
    """connect(**options) opens a connection that ends with the test."""
    opened = []

    def open_one(**options) -> psycopg.Connection:
        opened.append(psycopg.connect(host=str(cluster.socket_folder), port=cluster.port, dbname="postgres",
                                      autocommit=True, **{"user": SUPERUSER} | options))
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()


def environment(cluster: Cluster, **more: str) -> dict[str, str]:
    """For the program: how to connect, and a terminal that can do what others can."""
    return os.environ | cluster.environment() | {"TERM": "xterm-256color", "COLUMNS": str(WIDTH)} | more


def run(cluster: Cluster, *arguments: str, **more: str) -> subprocess.CompletedProcess:
    """Without a terminal."""
    return subprocess.run([*PROGRAM, *arguments], env=environment(cluster, **more), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=DEADLINE_S)


class Terminal:
    """With the program in it."""

    def __init__(self, cluster: Cluster, *arguments: str, **more: str):
        self.master, self.slave = pty.openpty()
        termios.tcsetwinsize(self.slave, (HEIGHT, WIDTH))
        self.before = termios.tcgetattr(self.slave)
        self.screen = pyte.Screen(WIDTH, HEIGHT)
        self.stream = pyte.ByteStream(self.screen)
        variables = environment(cluster, **more)
        del variables["COLUMNS"]
        self.process = subprocess.Popen([*PROGRAM, *arguments], env=variables, stdin=self.slave, stdout=self.slave,
                                        stderr=self.slave, start_new_session=True)

    def shows(self, condition) -> list[str]:
        """Waits until the lines of the screen are so, and returns them."""
        end = time.monotonic() + DEADLINE_S
        while not condition(lines := [line.rstrip() for line in self.screen.display]):
            assert time.monotonic() < end, "\n".join(lines)
            if select.select([self.master], [], [], 0.1)[0]:
                self.stream.feed(os.read(self.master, 65536))
        return lines

    def press(self, key: str) -> None:
        """On its keyboard."""
        os.write(self.master, key.encode())

    def ends(self) -> int:
        """The exit status; what it still writes is read."""
        end = time.monotonic() + DEADLINE_S
        while self.process.poll() is None:
            assert time.monotonic() < end, "it does not end"
            if select.select([self.master], [], [], 0.05)[0]:
                self.stream.feed(os.read(self.master, 65536))
        return self.process.returncode


@contextmanager
def terminal(cluster: Cluster, *arguments: str, **more: str):
    """Gives a Terminal; afterwards its settings must be as they were."""
    opened = Terminal(cluster, *arguments, **more)
    try:
        yield opened
        assert termios.tcgetattr(opened.slave) == opened.before
    finally:
        opened.process.kill()
        opened.process.wait()
        os.close(opened.master)
        os.close(opened.slave)


def rows(lines: list[str], title: str) -> list[list[str]]:
    """The words of each line of a table, without its head; none if the table is not there (yet)."""
    place = next((i for i, line in enumerate(lines) if line.startswith(title)), len(lines))
    found = []
    for line in lines[place + 2:]:
        if not line:
            break
        found.append(line.split())
    return found


def figure(text: str) -> float:
    """As it is shown, with thousands apart."""
    return float(text.replace(",", ""))


def test_live(cluster, connect):
    """Guards: rates and tables move, the laggard stands first, keys work, and the terminal is left as it was."""
    for channels in ("LISTEN orders; LISTEN jobs", "LISTEN jobs"):
        connect().execute(channels)
    laggard = connect()
    laggard.execute("LISTEN jobs")
    with laggard.transaction(), terminal(cluster, "-i", "0.5", "postgres") as top:
        laggard.execute("SELECT 1")
        # The screen comes in parts: all is there when its last line is.
        lines = top.shows(lambda lines: "1 busy" in "\n".join(lines) and
                          [len(row) for row in rows(lines, "Channels")] == [8, 8] and
                          all(row[2] != "-" and figure(row[2]) > 5 for row in rows(lines, "Channels")[:2]) and
                          any(figure(line.split()[1]) > 5 for line in lines if line.startswith("sent ")))
        assert lines[0].startswith("herald-top")
        first, second = rows(lines, "Channels")[:2]
        assert (first[:2], second[:2]) == (["jobs", "3"], ["orders", "1"])
        assert figure(first[2]) > figure(second[2])
        assert rows(lines, "Listeners")[0][:4] == [str(laggard.info.backend_pid), "postgres", SUPERUSER, "busy"]
        top.press("c")
        top.shows(lambda lines: any(line.endswith("by delivered") for line in lines))
        top.press(" ")
        top.shows(lambda lines: "paused" in lines)
        top.press(" ")
        top.shows(lambda lines: "paused" not in lines)
        top.press("q")
        assert top.ends() == 0


def test_ended_by_a_signal(cluster):
    """Guards: the terminal is left as it was also if the program is told to end."""
    for caught in (signal.SIGTERM, signal.SIGINT):
        with terminal(cluster) as top:
            top.shows(lambda lines: lines[0].startswith("herald-top"))
            top.process.send_signal(caught)
            assert top.ends() == 128 + caught


def test_names_that_deceive(cluster, connect):
    """Guards: a channel's name, which any role chooses, does nothing to the terminal."""
    listener = connect()
    listener.execute(f'LISTEN "{DECEITFUL}"')
    with terminal(cluster, "-i", "0.3") as top:
        notify(listener, DECEITFUL, "x")
        lines = top.shows(lambda lines: any(line.startswith("evil") for line in lines))
        assert lines[0].startswith("herald-top")
        assert top.screen.title == ""
        top.press("q")
        assert top.ends() == 0


def test_without_a_terminal(cluster, connect):
    """Guards: as many looks as were asked for, in plain text."""
    connect().execute("LISTEN jobs")
    done = run(cluster, "-n", "3", "-i", "0.3", "dbname=postgres")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("herald-top") == 3
    assert "\x1b" not in done.stdout
    looks = done.stdout.split("herald-top")[1:]
    assert rows(looks[0].splitlines(), "Channels")[0][:3] == ["jobs", "1", "-"]
    assert all(figure(rows(look.splitlines(), "Channels")[0][2]) > 5 for look in looks[1:])


def test_ordinary_role(cluster, connect):
    """Guards: it works for a role that sees its own sessions only, and says that it does not see all."""
    admin, stranger = connect(), connect()
    stranger.execute("LISTEN of_a_stranger")
    admin.execute("CREATE ROLE visitor LOGIN")
    try:
        with connect(user="visitor") as visitor:
            visitor.execute("LISTEN own")
            done = run(cluster, "-n", "1", "-U", "visitor")
            assert done.returncode == 0, done.stderr
            assert "GRANT pg_monitor" in done.stdout
            assert [row[0] for row in rows(done.stdout.splitlines(), "Channels")] == ["own"]
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
    """Guards: an error in a line, not a traceback."""
    done = run(cluster, *arguments)
    assert done.returncode == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_reader_that_goes(cluster):
    """Guards: herald-top | head ends without a word."""
    shell = subprocess.run(["sh", "-c", f"{PROGRAM[0]} {PROGRAM[1]} -i 0.2 | head -n 1"], env=environment(cluster),
                           capture_output=True, text=True, timeout=DEADLINE_S)
    assert (shell.stdout.count("\n"), shell.stderr) == (1, "")


def test_server_that_restarts():
    """Guards: it says that the server does not answer, goes on when it does, and no rate is of both lives."""
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
