"""Reads the logs of stages: the number of tests, and what was running; and prints the table of a run."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from stages import MAJORS, Stage

TAIL_LINES = 60
SKIPPED = r"test .* \.\.\. skipped"


@dataclass
class Result:
    """The result of a stage."""

    stage: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    budget_s: int = 0
    ok: bool = True
    left_out: str = ""  # why it, or a part of it, did not run


def counted(stage: Stage, log: Path, ok: bool) -> Result:
    """The numbers of tests in a log. A stage whose log reports no tests counts as one test."""
    text = log.read_text(encoding="utf-8", errors="replace")
    result = Result(stage.name, ok=ok, left_out=stage.left_out)
    if stage.lane == MAJORS:
        last = re.search(r"^(\d+) passed, (\d+) failed, (\d+) skipped\s*\Z", text, re.MULTILINE)
        if last:
            result.passed, result.failed, result.skipped = map(int, last.groups())
        else:
            result.skipped = _lines(text, SKIPPED)
    elif stage.uses_pytest:
        result.passed = _pytest(text, "passed", "PASSED")
        result.failed = _pytest(text, "failed", "FAILED") + _pytest(text, "errors?", "ERROR")
        result.skipped = _pytest(text, "skipped", "SKIPPED")
    else:
        result.passed = _lines(text, r"test .* \.\.\. ok|ok \d+ |\[ +OK +\]")
        result.failed = _lines(text, r"test .* \.\.\. FAILED|not ok \d+ |\[  FAILED  \] [^0-9]")
        result.skipped = _lines(text, SKIPPED)
    if not ok and not result.failed:
        result.failed = 1
    if not (result.passed or result.failed or result.skipped):
        result.passed = 1
    return result


def _lines(text: str, pattern: str) -> int:
    return len(re.findall(rf"^(?:{pattern})", text, re.MULTILINE))


def _pytest(text: str, word: str, outcome: str) -> int:
    """The number from pytest's last line; if pytest was killed before that, from the lines of its tests."""
    if last := re.findall(r"^=+ .* in [0-9.]+s .*=+$", text, re.MULTILINE):
        found = re.search(rf"\b(\d+) {word}\b", last[-1])
        return int(found[1]) if found else 0
    return _lines(text, rf"\[gw\d+\].* {outcome} .*::|[^ ]+\.py::.* {outcome}")


def doing(stage: Stage, log: Path) -> str:
    """What a stage was doing when it was ended: the tests that pytest has begun and not ended, and its last lines."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    running: dict[str, None] = {}
    if stage.uses_pytest:
        for line in lines:
            if found := re.match(r"(?:\[gw\d+\] \[ *\d+%\] (\w+) )?(\S+\.py::.*?)(?: (PASSED|FAILED|ERROR|SKIPPED).*)?$",
                                 line.strip()):
                if found[1] or found[3]:
                    running.pop(found[2].strip(), None)
                else:
                    running[found[2].strip()] = None
    return "\n".join([*(f"it was running {test}" for test in running), "its last lines were:", *lines[-5:]])


def tail(log: Path) -> str:
    """The end of the log, indented."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(f"    {line}" for line in lines[-TAIL_LINES:])


def table(results: list[Result], seconds: float, budget_s: int) -> str:
    """The table printed at the end of a run."""
    rows = [f"{'stage':<16}{'passed':>7}{'failed':>8}{'skipped':>9}{'seconds':>9}{'budget':>8}"]
    for result in results:
        row = f"{result.stage:<16}"
        if result.left_out and not result.seconds:
            rows.append(f"{row}{'':>33}{result.budget_s:>8}  {result.left_out}")
            continue
        row += f"{result.passed:>7}{result.failed:>8}{result.skipped:>9}{result.seconds:>9.0f}{result.budget_s:>8}"
        rows.append(row + _remark(result.ok, result.seconds, result.budget_s) + f"  {result.left_out}".rstrip())
    totals = [sum(getattr(result, name) for result in results) for name in ("passed", "failed", "skipped")]
    rows.append(f"{'all':<16}{totals[0]:>7}{totals[1]:>8}{totals[2]:>9}{seconds:>9.0f}{budget_s:>8}"
                + _remark(True, seconds, budget_s))
    rows.append(f"{totals[0]} passed, {totals[1]} failed, {totals[2]} skipped")
    return "\n".join(rows)


def _remark(ok: bool, seconds: float, budget_s: int) -> str:
    return "  FAILED" if not ok else "  longer than its budget" if seconds > budget_s else ""


def keep(results: list[Result], seconds: float, path: Path) -> None:
    """Writes the results for document.py."""
    path.write_text(json.dumps({"seconds": round(seconds), "stages": [asdict(result) for result in results]}, indent=1),
                    encoding="utf-8")
