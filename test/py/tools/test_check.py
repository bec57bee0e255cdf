"""What ./check says of a stage: how many tests were skipped, and what was running when the time was over."""

import os
import shutil
import subprocess

import pytest

from harness.prefix import TOP

STAGE = """
import time
import pytest


def test_passes():
    pass


def test_is_skipped():
    pytest.skip("because of the moon")


@pytest.mark.parametrize("what", ["a b"])
def test_takes_long(what):
    time.sleep({sleep_s})
"""


@pytest.fixture
def check(tmp_path):
    """check(seconds) runs, in a tree of its own, a stage whose last test takes so long; its status, output and log."""
    def run(sleep_s: float, **environment: str) -> tuple[int, str, str]:
        shutil.copy(TOP / "check", tmp_path)
        shutil.copytree(TOP / "scripts", tmp_path / "scripts")
        (tmp_path / "harness").mkdir()
        for name in ("installation", "prefix"):  # one is asked for a server, which the stage does not need
            (tmp_path / f"harness/{name}.py").write_text("print('pg_config')", encoding="utf-8")
        (tmp_path / ".venv").symlink_to(TOP / ".venv")
        (tmp_path / "test/py").mkdir(parents=True)
        (tmp_path / "test/py/test_stage.py").write_text(STAGE.format(sleep_s=sleep_s), encoding="utf-8")
        result = subprocess.run([tmp_path / "check", "pytest"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, env=os.environ | environment)
        return result.returncode, result.stdout, (tmp_path / "test/results/pytest.log").read_text(encoding="utf-8")

    return run


def test_skipped_tests_are_told(check):
    """Guards: the stage's line and the last one count the skipped tests, and the log has the reason."""
    status, output, log = check(0)
    lines = output.splitlines()
    assert status == 0
    assert lines[0].startswith("pytest") and lines[0].endswith("1 skipped")
    assert lines[-1] == "2 passed, 0 failed, 1 skipped"
    assert "because of the moon" in log


def test_time_is_over(check):
    """Guards: a stage that takes too long is ended, has failed, and tells the setting and the test that was running."""
    status, output, log = check(600, CHECK_STAGE_S="8")
    assert status == 1
    for text in (output, log):
        assert "killed after 8 s (CHECK_STAGE_S sets another limit)" in text
        assert "it was running test/py/test_stage.py::test_takes_long[a b]" in text
    assert output.splitlines()[-1] == "1 passed, 1 failed, 1 skipped"
