"""What has changed since --everything last passed.

test/last-everything has that commit, the day, and the seconds that it took: a line of a clone's history, so every clone
that has the history knows what it need not test again. Without the history, everything is taken for changed.
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
    """Which files differ from those of the noted commit, committed or not.

    since   the commit, or None if the note or the history is missing
    """

    def __init__(self) -> None:
        words = NOTE.read_text(encoding="utf-8").split() if NOTE.exists() else []
        self.since = words[0] if words else None
        self._files = self._differing() if self.since else None
        if self._files is None:
            self.since = None

    def _differing(self) -> list[str] | None:
        committed = _git("diff", "--name-only", self.since)
        new = _git("ls-files", "--others", "--exclude-standard")
        return None if committed is None or new is None else committed + new

    def any_of(self, guards: tuple[str, ...]) -> bool:
        """Whether one of these has changed: files, or folders with a slash at the end."""
        return self._files is None or any(
            file == guard or guard.endswith("/") and file.startswith(guard) for file in self._files for guard in guards)


def can_be_noted() -> str | None:
    """The commit that the tree is at, if nothing differs from it."""
    head = _git("rev-parse", "HEAD")
    return head[0] if head and _git("status", "--porcelain") == [] else None


def note(commit: str, seconds: float) -> None:
    """--everything has passed at this commit."""
    NOTE.write_text(f"{commit} {date.today().isoformat()} {seconds:.0f} s\n", encoding="utf-8")
