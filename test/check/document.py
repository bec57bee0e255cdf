"""Writes the duration of ./check, as measured by the last whole runs, into the pages that mention it."""

import json
import re

from changed import TOP

PAGES = ("README.md", "CONTRIBUTING.md", "test/README.md")
RUNS = ("check", "everything")  # as in <!--check-->18 minutes<!--end-->
MAP = TOP / "test/README.md"    # has a table of stages, with their times in the last column


def main() -> int:
    """1 unless the last whole run has passed."""
    runs = {name: json.loads(path.read_text(encoding="utf-8")) for name in RUNS
            if (path := TOP / f"test/results/{name}.json").exists()}
    if "check" not in runs or not all(stage["ok"] for run in runs.values() for stage in run["stages"]):
        print("document: the last whole run of ./check has not passed, or there is none")
        return 1
    for page in (TOP / name for name in PAGES):
        text = page.read_text(encoding="utf-8")
        for name, run in runs.items():
            text = re.sub(rf"(<!--{name}-->).*?(<!--end-->)", rf"\g<1>{spoken(run['seconds'])}\g<2>", text)
        if page == MAP:
            text = with_times(text, {stage["stage"]: stage["seconds"] for stage in runs["check"]["stages"]
                                     if not stage["left_out"]})
        page.write_text(text, encoding="utf-8")
    return 0


def spoken(seconds: float) -> str:
    """The duration in a suitable unit."""
    if seconds >= 3600:
        return f"{seconds / 3600:.1f} hours"
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} s"


def with_times(text: str, seconds: dict[str, float]) -> str:
    """The page, with the times of stages in the last column of its table."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        cells = line.split(" | ")
        if line.startswith("| ") and len(cells) == 5 and (stage := cells[1].strip()) in seconds:
            lines[number] = " | ".join([*cells[:4], f"{spoken(seconds[stage])} |"])
    return "\n".join(lines)
