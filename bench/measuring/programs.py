"""C programs that have a Makefile of their own, built when they are first needed."""

import functools
import subprocess
from pathlib import Path

from bench.measuring.measure import MeasureError


@functools.cache
def build(folder: Path) -> None:
    """Builds the folder's program if it is not up to date; MeasureError if that fails."""
    result = subprocess.run(["make", "-s", "-C", str(folder)], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise MeasureError(f"make -C {folder} failed: {result.stderr.strip()[-500:]}")
