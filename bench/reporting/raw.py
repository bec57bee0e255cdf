"""The raw lines of a run: written once, read for every table and plot.

The first line describes the run ("kind": "run"). It is followed by a line for each measurement, with
"figures" or "error", and for each skipped case, with "why". A family that failed as a whole has a
line with "error" for the point WHOLE_FAMILY.
"""

import json
from dataclasses import dataclass
from pathlib import Path


WHOLE_FAMILY = {"the whole family": True}


class RawError(ValueError):
    """The file is not the raw lines of a run."""


@dataclass(frozen=True)
class Run:
    """The contents of a file of raw lines."""

    description: dict
    lines: list[dict]

    @classmethod
    def load(cls, path: Path) -> "Run":
        """Reads a file. An incomplete last line, of a run that was killed, is ignored."""
        lines = []
        texts = path.read_text(encoding="utf-8").splitlines()
        for number, text in enumerate(texts, 1):
            try:
                lines.append(json.loads(text))
            except json.JSONDecodeError as error:
                if number < len(texts):
                    raise RawError(f"{path}:{number}: {error}") from error
        if not lines or lines[0].get("kind") != "run":
            raise RawError(f"{path}: the first line does not describe a run")
        return cls(lines[0], lines[1:])

    def families(self) -> list[str]:
        """The names of the families that have lines."""
        return list(dict.fromkeys(line["family"] for line in self.lines))

    def measured(self, family: str) -> list[dict]:
        """The measurements of a family that have figures."""
        return [line for line in self.lines if line["family"] == family and "figures" in line]

    def troubles(self, family: str) -> list[str]:
        """Skipped, failed and not delivered measurements, a text for each; equal texts only once."""
        found = []
        for line in self.lines:
            if line["family"] == family:
                what = trouble(line)
                if what:
                    found.append(f"{name(line['point'])}, {line['case']}: {what}")
        return list(dict.fromkeys(found))


    def failures(self) -> list[str]:
        """The reasons for exit status 1, a text for each; a skipped case is none."""
        return list(dict.fromkeys(f"{line['family']}: {name(line['point'])}, {line['case']}: {trouble(line)}"
                                  for line in self.lines if line["kind"] == "measurement" and trouble(line)))


def trouble(line: dict) -> str:
    """The problem of a line's measurement, or an empty text."""
    if line["kind"] == "skipped":
        return f"skipped: {line['why']}"
    if "error" in line:
        return f"failed: {line['error']}"
    if line["figures"].get("delivered") is False:
        return "NOT ALL DELIVERED"
    return ""


def name(point: dict) -> str:
    """A point's name for people: "notifiers 8, listeners 1"."""
    return ", ".join(str(value) if key == "scenario" else key if value is True else f"{key} {value}"
                     for key, value in point.items())
