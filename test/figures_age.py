#!/usr/bin/env python3
"""How old the figures of docs/performance/ are: prints, for each commit that was measured, how many commits have touched src/
since. The exit status is 1 if there are any, or if that cannot be known. For test/lint, which only prints it, and for
scripts/release, which makes no release then.
"""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
PAGES = TOP / "docs/performance"
MEASURED = re.compile(r"^\| pg_herald \| .*, commit (\S+) \|$", re.MULTILINE)
DIRTY = "-dirty"  # as git describe marks a tree with changes


@dataclass(frozen=True)
class Age:
    """Of the figures of one commit: the pages that show them, and how many commits to src/ are later; None: not known."""

    commit: str
    pages: list[str]
    later: int | None

    def __str__(self) -> str:
        if self.commit.endswith(DIRTY):
            what = "the tree had changes that are in no commit"
        elif self.later is None:
            what = "git does not know this commit"
        else:
            what = f"{self.later} commits have touched src/ since"
        return f"figures of {self.commit} ({', '.join(self.pages)}): {what}"


def _later(commit: str) -> int | None:
    """How many commits have touched src/ since; None if git cannot say, or if what was measured is in no commit."""
    if commit.endswith(DIRTY):
        return None
    try:
        found = subprocess.run(["git", "-C", TOP, "rev-list", "--count", "--end-of-options", f"{commit}..HEAD", "--", "src"],
                               text=True, capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return int(found.stdout) if found.returncode == 0 else None


def ages() -> list[Age]:
    """The age of all figures, by the commit that was measured."""
    pages = {}
    for page in sorted(PAGES.glob("*.md")):
        commit = MEASURED.search(page.read_text(encoding="utf-8"))
        pages.setdefault(commit[1] if commit else "no commit", []).append(page.stem)
    return [Age(commit, of, _later(commit)) for commit, of in pages.items()]


def main() -> int:
    """The command."""
    found = ages()
    for age in found:
        print(age)
    return 0 if found and all(age.later == 0 for age in found) else 1


if __name__ == "__main__":
    sys.exit(main())
