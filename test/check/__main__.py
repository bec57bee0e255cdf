"""Installs what is missing, builds pg_herald, and runs its tests.

  ./check                       the tests for a change: all stages but those whose tool or script has not changed since
                                they last passed at length; on the other major versions, tests that depend on the version:
                                on the oldest and the newest always, on others SQL only unless that code has changed
  ./check --here                the same without the other major versions
  ./check --everything [STAGE...]
                                all stages, at length, on all major versions: for a release, or a large change;
                                or these stages, at length
  ./check STAGE...              only these stages
  ./check --whole               all that depends on the server's version, on this one (PG_CONFIG, PG_MAJOR)
  ./check --majors [--whole] [MAJOR...]
                                the other major versions, or these: each in a small Debian system of its own
  ./check --drivers [...]       client libraries, as applications use them (test/drivers)
  ./check --packages [MAJOR...] packages, from their sources to their removal (test/packages); with `arm64`, in an emulator
  ./check --frameworks [...]    job queues and web frameworks, as their users run them (test/frameworks)
  ./check --document            writes the times of the last whole run into README.md, CONTRIBUTING.md, test/README.md
"""

import argparse
import sys
import time
from dataclasses import replace

import changed
import document
import results
from lanes import RESULTS, Run
from stages import (COMPUTE, MAJORS, NAMES_PREPARE, NAMES_WHOLE, PREPARE, SERVERS, STAGES, Stage, named)

EPILOG = """\
Each stage's output goes to test/results/<stage>.log. The last lines are a table; a stage that took longer than its
budget is marked there, and does not fail by it. A stage that takes ten times its budget is ended; CHECK_STAGE_S sets
another limit. Stages of the lane `compute` run at idle priority beside those of the lane `servers`.

The data of the tests' servers is in memory (/dev/shm) if 6 GB are free there; with --everything, and for
stage `alone`, on disk (/var/tmp). CHECK_TMPDIR sets another folder, which must be accessible to every user.

PG_CONFIG chooses the PostgreSQL to test with; PG_MAJOR, one of Debian's. It is not changed: the tests run on an
installation of their own that takes after it, in .installation/.
"""
BUDGET_S = 20 * 60
BUDGET_AT_LENGTH_S = 4 * 3600


def stages_text() -> str:
    """The stages, lane by lane, for --help."""
    lines = ["stages:"]
    for lane in (PREPARE, COMPUTE, SERVERS, MAJORS):
        lines.append(f"  {lane}")
        for stage in STAGES:
            if stage.lane == lane:
                note = " [--everything]" if stage.only_at_length else " [if changed]" if stage.guards and not stage.unchanged else ""
                lines.append(f"    {stage.name:<16}{stage.what}{note}")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(prog="./check", description=__doc__, usage=argparse.SUPPRESS,
                                     epilog=f"{stages_text()}\n\n{EPILOG}",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--everything", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--whole", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--majors", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--document", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", metavar="STAGE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.majors:
        options.names = [f"major-{name}" for name in options.names] or \
            [stage.name for stage in STAGES if stage.lane == MAJORS]
    elif options.whole:
        options.names = [*NAMES_PREPARE, *NAMES_WHOLE]
    for name in options.names:
        if named(name) is None:
            parser.error(f"there is no stage {name.removeprefix('major-')}; see ./check --help")
    return options


def chosen(options: argparse.Namespace) -> tuple[list[Stage], list[results.Result]]:
    """The stages to run, and those that are left out, with the reason."""
    if options.names:
        return [named(name) for name in dict.fromkeys(options.names)], []
    if options.everything:
        return list(STAGES), []
    changes, stages, left_out = changed.Changes(), [], []
    for stage in STAGES:
        if stage.only_at_length or options.here and (stage.lane == MAJORS or stage.name in ("systems", "analysis-17")):
            continue
        since = changes.since(stage.name)
        is_unchanged = stage.guards and since and not changes.any_of(stage.guards, since)
        if is_unchanged and stage.unchanged:
            stages.append(replace(stage, command=stage.unchanged, left_out=f"a part is unchanged since {since[:12]}"))
        elif is_unchanged:
            left_out.append(results.Result(stage.name, budget_s=stage.budget_s, left_out=f"unchanged since {since[:12]}"))
        else:
            stages.append(stage)
    return stages, left_out


def note(run: Run, commit: str | None) -> str:
    """Writes down which stages have passed at length, also when others have failed or the run was interrupted."""
    if commit is None:
        return "not noted: the tree differs from its commit"
    passed = {result.stage: result.seconds for result in run.results if result.ok and result.passed}
    changed.note(passed, run.broken, commit)
    return f"noted in {changed.NOTE.relative_to(changed.TOP)}: commit it"


def main() -> int:
    """1 if a test has failed."""
    options = arguments()
    if options.document:
        return document.main()
    began = time.monotonic()
    stages, left_out = chosen(options)
    commit = changed.can_be_noted() if options.everything else None
    run = Run(at_length=options.everything or options.majors and options.whole, leave_out_own=not options.names)
    try:
        run.all(stages)
    finally:
        if options.everything:
            print(note(run, commit))
    seconds = time.monotonic() - began
    order = [stage.name for stage in STAGES]
    told = sorted(run.results + left_out, key=lambda result: order.index(result.stage) if result.stage in order else 99)
    if not options.names:
        results.keep(told, seconds, RESULTS / ("everything.json" if options.everything else "check.json"))
    print()
    if run.broken:
        print(f"failed: {' '.join(run.broken)}")
    budget_s = BUDGET_AT_LENGTH_S if options.everything else BUDGET_S if not options.names else \
        sum(stage.budget_s for stage in stages)
    print(results.table(told, seconds, budget_s))
    return 1 if run.broken else 0


if __name__ == "__main__":
    sys.exit(main())
