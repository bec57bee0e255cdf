"""What ./demo failover shows, with real servers and shorter times, and what it leaves when it is interrupted."""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from harness import server_user
from harness.prefix import TOP

DEBIAN_PACKAGES = "/usr/lib/python3/dist-packages"  # Debian's python3-rich
sys.path.append(DEBIAN_PACKAGES)
sys.path.insert(0, str(TOP))

from rich.console import Console  # noqa: E402  pylint: disable=wrong-import-position

from bench import demo_failover, demo_failover_view, resuming_client  # noqa: E402

WIDTH = 80
PROGRAM = TOP / "bench/demo_failover.py"


class Recorder(demo_failover_view.TerminalView):
    """The view, which also records each frame as text."""

    def __init__(self):
        super().__init__(Console(file=io.StringIO(), force_terminal=True, width=WIDTH), "a version")
        self.frames = []

    def draw(self, state) -> None:
        super().draw(state)
        text = Console(file=io.StringIO(), width=WIDTH)
        text.print(self.live.renderable)
        self.frames.append(text.file.getvalue())


@pytest.fixture
def short(monkeypatch):
    """Shorter times."""
    for name, seconds in (("BEFORE_S", 2.0), ("AFTER_S", 1.0), ("NOTICED_S", 0.3)):
        monkeypatch.setattr(demo_failover, name, seconds)
    monkeypatch.setattr(resuming_client, "RETRY_S", 1.0)


def test_each_is_received_once_and_shown(short, monkeypatch):
    """Guards: the client gets on the promoted server what it missed, and each frame fits into 80 columns."""
    view = Recorder()
    monkeypatch.setattr(demo_failover, "open_view", lambda version: view)
    outcome = demo_failover.show()
    assert outcome.is_right and outcome.sent > 300, str(outcome)
    assert not any("…" in frame for frame in view.frames)
    last = view.frames[-1]
    assert re.search(r"killed .*│ primary .*│ listens on server b", last)
    assert f"received {outcome.received:,}" in last and f"sent {outcome.sent:,}" in last
    assert "1 kill -9, 2 the standby is promoted, 3 the client resumes" in last
    assert any("has no connection" in frame and "killed" in frame for frame in view.frames)


def test_a_wrong_client_is_found(short, monkeypatch, capsys):
    """Guards: a client that loses one and counts another one twice is found, and the exit status says so."""
    class Wrong(resuming_client.Client):
        """Alters its ledger once."""

        is_altered = False

        def work(self, timeout_s: float) -> None:
            super().work(timeout_s)
            if not self.is_altered and len(self.processed) > 1:
                self.is_altered = True
                one, other = sorted(self.processed)[:2]
                del self.processed[one]
                self.processed[other] += 1

    monkeypatch.setattr(demo_failover, "Client", Wrong)
    monkeypatch.setattr(demo_failover, "END_S", 1.0)
    assert demo_failover.main() == 1
    sent, received = re.fullmatch(r"sent ([\d,]+), received ([\d,]+), missing 1, doubled 1",
                                  capsys.readouterr().out.splitlines()[-1]).groups()
    assert sent == received


@pytest.mark.parametrize("ledger, processed, text", [
    ({1, 2}, [1, 2], "sent 2, received 2, missing 0, doubled 0"),
    ({1, 2, 3}, [1], "sent 3, received 1, missing 2, doubled 0"),
    ({1, 2}, [1, 2, 2, 2], "sent 2, received 4, missing 0, doubled 2"),
    ({1}, [1, 2], "sent 1, received 2, missing 0, doubled 0, not in the ledger 1"),
    (set(), [], "sent 0, received 0, missing 0, doubled 0"),
])
def test_compares_the_ledgers(ledger, processed, text):
    """Guards: what is wrong is counted, and nothing at all is not right."""
    outcome = demo_failover.compare(ledger, Counter(processed))
    assert str(outcome) == text and outcome.is_right == (ledger == {1, 2} and len(processed) == 2)


def test_picture():
    """Guards: the picture shows rates in their order, and a mark below the time that it stands for."""
    state = demo_failover_view.State(elapsed_s=16.0, marks=[(4.0, "a"), (8.0, "b")],
                                     history=[(4.0, 4000, 4000), (8.0, 8000, 4000), (9.0, 9000, 9000), (16.0, 9000, 9000)])
    sent, received, marks, legend = demo_failover_view.picture(state)
    assert sent == "sent      " + "▄" * 36
    assert received == "received  " + "▄" * 16 + " " * 16 + "█" * 4
    assert marks.split() == ["1", "2"] and marks.index("1") == 10 + 16 and marks.index("2") == 10 + 32
    assert legend.strip() == "1 a, 2 b"


def test_help_names_each_command():
    """Guards: --help says what each command does, and an unknown one is refused."""
    text = subprocess.run([TOP / "demo", "--help"], check=True, capture_output=True, text=True).stdout
    assert all(re.search(rf"^  \./demo{command} {{2,}}\w", text, re.MULTILINE) for command in ("", " stop", " failover"))
    assert subprocess.run([TOP / "demo", "fail"], check=False, capture_output=True).returncode == 2


@pytest.fixture
def place():
    """A folder for all temporary files of servers."""
    folder = server_user.make_folder()
    yield folder
    shutil.rmtree(folder)


def runs(pid: str) -> bool:
    """Whether a process has not ended. The system may have an entry for one that has."""
    try:
        return Path("/proc", pid, "cmdline").read_bytes() != b""
    except (FileNotFoundError, ProcessLookupError):
        return False


def lock_files(place: Path) -> list[list[str]]:
    """The lines of the lock file of each server that has one there."""
    return [path.read_text(encoding="utf-8").splitlines() for path in place.glob("*/data/postmaster.pid")]


@pytest.mark.parametrize("number, status, moment", [
    (signal.SIGINT, 130, "the standby is promoted"), (signal.SIGTERM, 143, "commits a second begin")])
def test_an_interrupt_leaves_nothing(place, number, status, moment):
    """Guards: when interrupted it ends by itself, and leaves no process, no folder, and no memory of a killed server."""
    environment = os.environ | {"CHECK_TMPDIR": str(place), "PYTHONPATH": DEBIAN_PACKAGES, "PYTHONUNBUFFERED": "1"}
    locks = []
    with subprocess.Popen([sys.executable, PROGRAM], env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, start_new_session=True) as demo:
        for line in demo.stdout:
            if "commits a second begin" in line:
                locks = lock_files(place)
            if moment in line:
                break
        os.killpg(demo.pid, number)
        rest = demo.stdout.read()
        assert demo.wait(60) == status, rest
    assert len(locks) == 2
    assert not any(runs(lock[0]) for lock in locks)
    with pytest.raises(ProcessLookupError):
        os.killpg(demo.pid, 0)
    assert not list(place.iterdir())
    segments = subprocess.run(["ipcs", "-m"], check=True, capture_output=True, text=True).stdout.split()
    assert not {lock[6].split()[1] for lock in locks} & set(segments)
