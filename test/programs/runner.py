"""Common part of test/drivers/run and test/frameworks/run: builds programs, reports each run, and prints a table."""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from harness import cleanup
from harness.cluster import ClusterError
from harness.installation import InstallationError
from harness.private_server import ServerError
from packages import PackagesError, install
from processes import CommandError
from program import Program


class Wrong(Exception):
    """A program has finished, but its result is not as expected."""


@dataclass
class Row:
    """One line of the table."""

    name: str
    version: str = "?"
    cells: dict[str, str] = field(default_factory=dict)
    build_s: float = 0
    run_s: float = 0


tally = {"ok": 0, "FAILED": 0}


def report(name: str, way: str, began: float, problem: Exception | None = None) -> str:
    """Prints a line, in the form that ./check counts; returns the word for the table."""
    label = f"test {name} {way} "
    word = "FAILED" if problem else "ok"
    tally[word] += 1
    print(f"{label:36} ... {word} {time.monotonic() - began:6.1f} s", flush=True)
    if problem:
        print("    " + str(problem).replace("\n", "\n    "), flush=True)
    return word


def prepare(program: Program, row: Row, ways: Sequence[str]) -> bool:
    """Installs what the program needs, and builds it."""
    began = time.monotonic()
    try:
        install(program.needs)
        program.make()
    except (PackagesError, CommandError, OSError) as problem:
        row.cells = dict.fromkeys(ways, report(program.name, "build", began, problem))
        return False
    finally:
        row.build_s = time.monotonic() - began
    report(program.name, "build", began)
    return True


def print_table(what: str, ways: Sequence[str], rows: list[Row]) -> None:
    """Prints the table of results."""
    head = [what, "version", *ways, "build, s", "runs, s"]
    lines = [[row.name, row.version, *(row.cells[way] for way in ways),
              f"{row.build_s:.1f}", f"{row.run_s:.1f}"] for row in rows]
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]
    print()
    for line in [head, ["-" * width for width in widths], *lines]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |")


def main(what: str, description: str, every: list[Program], run: Callable[[list[Program]], None]) -> None:
    """Runs the programs that the command line names, or all; ends the process."""
    cleanup.at_end(lambda: None)  # from now on cleanup runs on SIGTERM and SIGHUP
    try:
        sys.exit(_main(what, description, every, run))
    except (PackagesError, ClusterError, InstallationError, ServerError) as problem:
        sys.exit(f"{what}s: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)


def _main(what: str, description: str, every: list[Program], run: Callable[[list[Program]], None]) -> int:
    names = [program.name for program in every]
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--list", action="store_true", help="print the names")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(names)
    if unknown:
        parser.error(f"there is no {what} {', '.join(sorted(unknown))}; see --list")
    if arguments.list:
        print("\n".join(names))
        return 0
    try:
        run([program for program in every if program.name in (arguments.names or names)])
    finally:
        print(f"\n{tally['ok']} passed, {tally['FAILED']} failed")
    return 1 if tally["FAILED"] else 0
