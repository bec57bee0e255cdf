#!/usr/bin/env python3
"""Prints the .c files that test/analysis has to look at in a short run.

  test/check/analysed.py STAGE      those that have changed since the stage last passed at length, and those that include
                                    a header that has; all, if the analysis itself has changed, or if that is not known
"""

import re
import sys
from pathlib import Path

from changed import TOP, Changes

SRC = TOP / "src"
ITSELF = ("Makefile", "cache.mk", "common.mk", "test/analysis/", "test/check/analysed.py")


def add_headers(file: Path, found: set[Path]) -> set[Path]:
    """Adds our own headers that a file includes, directly or not; returns them."""
    for name in re.findall(r'^#include "([^"]+)"', file.read_text(encoding="utf-8"), re.MULTILINE):
        header = next((path for path in (SRC / name, file.parent / name) if path.exists()), None)
        if header and header not in found:
            found.add(header)
            add_headers(header, found)
    return found


def analysed(stage: str) -> list[str]:
    """The files, from the top of the tree."""
    changes = Changes()
    since = changes.since(stage)
    everything = since is None or changes.any_of(ITSELF, since)
    return [str(file.relative_to(TOP)) for file in sorted(SRC.rglob("*.c")) if everything or changes.any_of(
        tuple(str(path.relative_to(TOP)) for path in add_headers(file, {file})), since)]


if __name__ == "__main__":
    print(*analysed(sys.argv[1]))
