"""What has changed since a stage last passed at length, as --everything runs it.

test/last-everything has a line for each stage: that commit, the day, and the seconds. It is part of the history, so every
clone with history knows which stages can be left out. Without the history, every file counts as changed.
"""

import subprocess
import sys
from datetime import date
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(TOP))
NOTE = TOP / "test/last-everything"


def _git(*arguments: str) -> list[str] | None:
    """What git prints, by lines; None if it fails."""
    try:
        result = subprocess.run(["git", "-c", f"safe.directory={TOP}", *arguments], cwd=TOP, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return None
    return result.stdout.splitlines() if result.returncode == 0 else None


class Changes:
    """Which files differ, committed or not, from those of the commits that are noted."""

    def __init__(self) -> None:
        self._files: dict[str, list[str] | None] = {}  # by commit; None if the history lacks it
        self._commits = {stage: words[0] for stage, words in noted().items()}

    def since(self, stage: str) -> str | None:
        """The commit at which this stage last passed at length; None if the note or the history lacks it."""
        commit = self._commits.get(stage)
        return commit if commit and self._differing(commit) is not None else None

    def any_of(self, guards: tuple[str, ...], since: str) -> bool:
        """Whether one of these has changed: files, or folders with a slash at the end."""
        return any(file == guard or guard.endswith("/") and file.startswith(guard)
                   for file in self._differing(since) for guard in guards)

    def _differing(self, commit: str) -> list[str] | None:
        if commit not in self._files:
            committed = _git("diff", "--name-only", "--no-renames", commit)
            new = _git("ls-files", "--others", "--exclude-standard")
            self._files[commit] = None if committed is None or new is None else committed + new
        return self._files[commit]


def noted() -> dict[str, list[str]]:
    """By stage: the commit, the day, the seconds and their unit."""
    lines = NOTE.read_text(encoding="utf-8").splitlines() if NOTE.exists() else []
    return {stage: words for stage, *words in map(str.split, lines)}


def can_be_noted() -> str | None:
    """The commit that the tree is at, if nothing differs from it."""
    head = _git("rev-parse", "HEAD")
    return head[0] if head and _git("status", "--porcelain") == [] else None


def note(seconds: dict[str, float], failed: list[str], commit: str) -> None:
    """Stages have passed at length at this commit, and took this number of seconds each; others have failed."""
    kept = {stage: words for stage, words in noted().items() if stage not in failed}
    lines = kept | {stage: [commit, date.today().isoformat(), f"{took:.0f}", "s"] for stage, took in seconds.items()}
    NOTE.write_text("".join(f"{' '.join([stage, *words])}\n" for stage, words in sorted(lines.items())), encoding="utf-8")
