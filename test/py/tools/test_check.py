"""What ./check reports of a run: skipped tests, what was running when the time was over, what is left out and why; and
that whatever ends it ends what it has started."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from harness.prefix import TOP
from support import until

STAGE = """
import os
import time
from pathlib import Path

import pytest


def test_passes():
    pass


def test_is_skipped():
    pytest.skip("because of the moon")


@pytest.mark.parametrize("what", ["a b"])
def test_takes_long(what):
    Path("pid").write_text(str(os.getpid()))
    time.sleep({sleep_s})
"""

STAGES = """
from dataclasses import dataclass

PREPARE, COMPUTE, SERVERS, MAJORS = "prepare", "compute", "servers", "majors"
{stage}
STAGES = (
    Stage("packages", "", PREPARE, 5, "true"),
    Stage("lint", "", COMPUTE, 5, "cat /proc/self/autogroup; echo test one ... ok"),
    Stage("model", "", COMPUTE, 5, "echo test two ... ok", guards=("src/",)),
    Stage("pytest", "", SERVERS, 5, "{python} -m pytest -v -rfEs test/test_stage.py {options}"),
    Stage("major-1", "", MAJORS, 5, "echo 2 passed, 0 failed, 0 skipped", "echo 3 passed, 0 failed, 0 skipped",
          guards=("src/",), unchanged="echo 1 passed, 0 failed, 0 skipped"),
)
NAMES_PREPARE = NAMES_WHOLE = ()
PYTEST = "{python}"
DISK = "/var/tmp"


def named(name):
    return next((stage for stage in STAGES if stage.name == name), None)
"""


@pytest.fixture
def tree(tmp_path):
    """tree(seconds, options) creates a tree, with history, whose ./check has a stage that takes this time."""
    def make(sleep_s: float, options: str = "") -> Path:
        shutil.copy(TOP / "check", tmp_path)
        shutil.copytree(TOP / "test/check", tmp_path / "test/check", ignore=shutil.ignore_patterns("__pycache__"))
        ours = (TOP / "test/check/stages.py").read_text(encoding="utf-8")
        stage = ours[ours.index("@dataclass"):ours.index("\n\nSTAGES")]
        (tmp_path / "test/check/stages.py").write_text(
            STAGES.format(stage=stage, python=TOP / ".venv/bin/python", options=options).replace("dataclass(frozen=True)", "dataclass"),
            encoding="utf-8")
        (tmp_path / "harness").mkdir()
        (tmp_path / "harness/__init__.py").touch()
        for name in ("installation", "prefix"):  # one is asked for a server, which the stages do not need
            (tmp_path / f"harness/{name}.py").write_text(
                "def find_installation(_): return type('', (), {'major': 0})\nprint('pg_config')\n", encoding="utf-8")
        (tmp_path / "test/test_stage.py").write_text(STAGE.format(sleep_s=sleep_s), encoding="utf-8")
        (tmp_path / "src").mkdir()
        (tmp_path / "src/file.c").write_text("1", encoding="utf-8")
        (tmp_path / ".gitignore").write_text("test/results/\n__pycache__\npid\n", encoding="utf-8")
        for command in ("init -q", "add .", "-c user.name=a -c user.email=a@b.c commit -q -m a"):
            subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
        return tmp_path

    return make


def check(tree: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Runs ./check; returns its status and its output."""
    result = subprocess.run([tree / "check", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            env=os.environ | environment)
    return result.returncode, result.stdout


def row(output: str, stage: str) -> list[str]:
    """A stage's row of the table."""
    return [line for line in output.splitlines() if line.startswith(f"{stage} ")][-1].split()[1:]


@pytest.mark.parametrize("options", ["", "-n 2 --dist loadfile"])
def test_skipped_tests_are_told(tree, options):
    """Guards: the table and the last line count the skipped tests, and the log has the reason."""
    here = tree(0, options)
    status, output = check(here)
    assert status == 0, output
    assert row(output, "pytest")[:3] == ["2", "0", "1"]
    assert output.splitlines()[-1] == "7 passed, 0 failed, 1 skipped"
    assert "because of the moon" in (here / "test/results/pytest.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("options", ["", "-n 2 --dist loadfile"])
def test_time_of_a_stage_is_over(tree, options):
    """Guards: a stage that takes too long is ended, counts as failed, and reports the setting and the test that was
    running."""
    here = tree(600, options)
    for limit in ("10", "40", "160"):  # on a busy machine the test may not have begun
        status, output = check(here, "pytest", CHECK_STAGE_S=limit)
        assert status == 1
        if (here / "pid").exists():
            break
    for text in (output, (here / "test/results/pytest.log").read_text(encoding="utf-8")):
        assert f"ended after {limit} s (CHECK_STAGE_S sets another limit)" in text
        assert "it was running test/test_stage.py::test_takes_long[a b]" in text
    assert "FAILED" in row(output, "pytest")


@pytest.mark.skipif(not os.access("/proc/self/autogroup", os.W_OK), reason="this system has no autogroups")
def test_what_computes_leaves_the_cpus_to_others(tree):
    """Guards: a stage that computes has the lowest priority also where Linux divides CPU time among sessions."""
    here = tree(0)
    assert check(here, "lint")[0] == 0
    assert "nice 19" in (here / "test/results/lint.log").read_text(encoding="utf-8")


def test_longer_than_its_budget(tree):
    """Guards: a stage that exceeds its budget is reported, but does not fail."""
    status, output = check(tree(6))
    assert status == 0
    assert row(output, "pytest")[-4:] == ["longer", "than", "its", "budget"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_is_interrupted(tree, number):
    """Guards: whatever ends ./check ends its stages, with a status that says so."""
    here = tree(600)
    running = subprocess.Popen([here / "check"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pid = int(until(lambda: (here / "pid").exists() and (here / "pid").read_text(encoding="ascii"), "the test runs"))
    time.sleep(0.2)
    running.send_signal(number)
    assert running.wait(60) == 130
    until(lambda: not Path(f"/proc/{pid}/cmdline").exists() or not Path(f"/proc/{pid}/cmdline").read_bytes(), "it has ended")


def commit_of(tree: Path) -> str:
    """The commit that the tree is at."""
    return subprocess.run(["git", "rev-parse", "HEAD"], cwd=tree, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()


def noted(tree: Path) -> dict[str, str]:
    """By stage: the commit at which it last passed at length."""
    lines = (tree / "test/last-everything").read_text(encoding="utf-8").splitlines()
    return {stage: commit for stage, commit, *_ in map(str.split, lines)}


def commit_all(tree: Path) -> None:
    """Commits all changes."""
    for command in ("add .", "-c user.name=a -c user.email=a@b.c commit -q -m b"):
        subprocess.run(["git", *command.split()], cwd=tree, check=True)


def test_what_has_not_changed_is_left_out(tree):
    """Guards: a stage with guards runs if no run is noted, or after a change, committed or not; else it is left out, or runs
    its shorter command."""
    here = tree(0)

    def has_run() -> bool:
        output = check(here)[1]
        is_left_out = "unchanged since" in " ".join(row(output, "model"))
        assert row(output, "major-1")[0] == ("1" if is_left_out else "2")
        assert is_left_out == ("a part is unchanged since" in " ".join(row(output, "major-1")))
        return not is_left_out

    assert has_run()
    status, output = check(here, "--everything")
    assert status == 0 and "noted in test/last-everything" in output
    commit = commit_of(here)
    assert noted(here) == {stage: commit for stage in ("packages", "lint", "model", "pytest", "major-1")}
    assert not has_run()
    assert row(check(here, "major-1")[1], "major-1")[0] == "2"
    assert row(check(here, "--everything", "major-1")[1], "major-1")[0] == "3"
    (here / "src/file.c").write_text("2", encoding="utf-8")
    assert has_run()
    assert "not noted: the tree differs from its commit" in check(here, "--everything")[1]
    commit_all(here)
    assert has_run()
    subprocess.run(["git", "checkout", "-q", commit, "--", "src"], cwd=here, check=True)
    assert not has_run()
    (here / "src/new.c").touch()
    assert has_run()
    shutil.rmtree(here / ".git")
    assert has_run()


def test_only_what_has_passed_is_noted(tree):
    """Guards: of a run at length, also of single stages, the note gets the stages that have passed, loses those that have
    failed, and keeps others' lines; a stage whose tests are all skipped has not passed."""
    here = tree(0)
    assert check(here, "--everything", "pytest")[0] == 0
    assert list(noted(here)) == ["pytest"]
    commit_all(here)
    assert check(here, "--everything", "lint")[0] == 0
    assert noted(here)["lint"] == commit_of(here)
    (here / "test/test_stage.py").write_text("def test_fails():\n    assert False\n", encoding="utf-8")
    commit_all(here)
    before, now = noted(here)["lint"], commit_of(here)
    status, output = check(here, "--everything", "model", "pytest")
    assert status == 1 and "noted in test/last-everything" in output
    assert before != now and noted(here) == {"lint": before, "model": now}
    stages = here / "test/check/stages.py"
    stages.write_text(stages.read_text(encoding="utf-8").replace("test two ... ok", "test two ... skipped: no moon"), encoding="utf-8")
    commit_all(here)
    assert check(here, "--everything", "model")[0] == 0
    assert noted(here) == {"lint": before, "model": now}


def test_what_the_analyses_look_at(tree):
    """Guards: an analysis looks at the files that have changed since it last passed, and at those that include a header
    that has, also by way of another; at all if that is not known, or if the analysis itself has changed."""
    here = tree(0)
    for name, text in {"low.h": "", "high.h": '#include "low.h"\n', "user.c": '#include "high.h"\n', "other.c": ""}.items():
        (here / "src" / name).write_text(text, encoding="utf-8")
    commit_all(here)

    def analysed() -> list[str]:
        return subprocess.run([here / "test/check/analysed.py", "lint"], check=True, text=True,
                              stdout=subprocess.PIPE).stdout.split()

    everything = ["src/file.c", "src/other.c", "src/user.c"]
    assert analysed() == everything
    assert check(here, "--everything", "lint")[0] == 0
    assert analysed() == []
    (here / "src/file.c").write_text("2", encoding="utf-8")
    assert analysed() == ["src/file.c"]
    (here / "src/low.h").write_text("int number;\n", encoding="utf-8")
    assert analysed() == ["src/file.c", "src/user.c"]
    (here / "Makefile").touch()
    assert analysed() == everything
