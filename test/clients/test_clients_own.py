"""The packages' own tests."""

import os
import subprocess

import pytest

from kits import kits

pytestmark = pytest.mark.long

OWN = [kit for kit in kits() if kit.own]


@pytest.mark.parametrize("kit", OWN, ids=[kit.folder for kit in OWN])
def test_of_its_own(kit, packages, tmp_path):
    """Guards: what each package tests itself."""
    if kit.folder not in {wanted.folder for wanted in packages}:
        pytest.skip(kit.lacks or "another package was asked for")
    log = tmp_path / "log"
    with open(log, "wb") as output:
        result = subprocess.run(kit.own_command(), cwd=kit.sources, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                env=os.environ | kit.filled_environment(), check=False)
    assert result.returncode == 0, log.read_text(encoding="utf-8", errors="replace")[-6000:]
