"""Measures pg_herald against the stock server, side by side in one run; bench/run starts it.

Two clusters run side by side, and differ only in the loaded module. They are under load in turn,
except where both are measured at the same time. Raw lines go to bench/results/<time>.jsonl, a
report to <time>.html.
"""

import argparse
import json
import random
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench import families, host
from bench.family import Case, Context, Family, Point, Skipped, start_cluster
from bench.measuring import measure
from bench.progress import PlainProgress, open_progress
from bench.reporting import page, raw
from harness.cluster import ClusterError
from harness.installation import InstallationError

RESULTS = Path(__file__).resolve().parent / "results"
ROUNDS = 3
FAILURES_SHOWN = 10


def parse_arguments() -> argparse.Namespace:
    """The command line; ends the program if it is wrong."""
    parser = argparse.ArgumentParser(
        prog="bench/run", description="Measures pg_herald beside the stock server, alternating. "
        "Raw lines and a report go to bench/results/.")
    parser.add_argument("names", nargs="*", metavar="FAMILY", help="default: all; see --list")
    parser.add_argument("--list", action="store_true", help="print the families and end")
    parser.add_argument("--repeat", type=int, metavar="N",
                        help=f"rounds, each measures every case once ({ROUNDS})")
    parser.add_argument("--seconds", type=float, metavar="S",
                        help="of each measurement (depends on the family)")
    parser.add_argument("--full", action="store_true",
                        help="further points, and some that take as long as their aim says, up to 10 minutes")
    parser.add_argument("--quick", action="store_true", help="one round, short, fewer points")
    parser.add_argument("--smoke", action="store_true", help="one point of each family, to see that it works")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                        help="a further setting for both clusters; herald.* goes to herald only")
    parser.add_argument("--as-installed", action="store_true",
                        help="install and build nothing, measure what is installed")
    arguments = parser.parse_args()
    arguments.quick = arguments.quick or arguments.smoke
    if arguments.full and arguments.quick:
        parser.error("--full goes with neither --quick nor --smoke")
    arguments.repeat = ROUNDS if arguments.repeat is None and not arguments.quick else arguments.repeat or 1
    if arguments.repeat < 1 or arguments.seconds is not None and arguments.seconds <= 0:
        parser.error("--repeat and --seconds must be above 0")
    unknown = set(arguments.names) - set(families.NAMES)
    if unknown:
        parser.error(f"no such family: {', '.join(sorted(unknown))}; see --list")
    if any("=" not in setting for setting in arguments.set):
        parser.error("--set takes NAME=VALUE")
    arguments.settings = dict(setting.split("=", 1) for setting in arguments.set)
    return arguments


class Plan:
    """The measurements of a run: families, their points, and the rounds of each."""

    def __init__(self, chosen: list[Family], arguments: argparse.Namespace):
        self.smoke = arguments.smoke
        self.repeat = arguments.repeat
        self.points = {family.name: family.points(arguments.quick)
                       + (family.full_points() if arguments.full else []) for family in chosen}
        if self.smoke:
            self.points = {name: points[:1] for name, points in self.points.items()}

    def rounds(self, point: Point) -> int:
        """The number of rounds of a point."""
        return 1 if self.smoke else point.rounds or max(self.repeat, point.rounds_min)

    def measurements(self) -> int:
        """The total number of measurements."""
        return sum(min(self.rounds(point), case.rounds_max or self.rounds(point))
                   for points in self.points.values() for point in points for case in point.cases)


def measure_case(family: Family, point: Point, case: Case, number: int, context: Context) -> dict:
    """One measurement, as a raw line: with figures, with an error (whatever the error), or skipped."""
    line = {"kind": "measurement", "family": family.name, "point": point.parameters,
            "case": case.name, "round": number}
    began = time.monotonic()
    try:
        line["figures"] = case.run(context)
    except Skipped as why:
        line |= {"kind": "skipped", "why": str(why)}
    except measure.MEASURE_ERRORS as error:
        line["error"] = str(error)
    except Exception as error:  # pylint: disable=broad-except
        traceback.print_exc()
        line["error"] = f"{type(error).__name__}: {error}"
    return line | {"took_s": round(time.monotonic() - began, 2)}


def measure_point(family: Family, point: Point, rounds: int, context: Context, progress: PlainProgress,
                  record: Callable[[dict], None]) -> None:
    """Measures every case in every round, in a random order and in the next round in the reverse order.

    So no case is always the first, or always after the same other case. A case that fails is recorded
    with its error and does not end the run; one that is skipped is not tried again.
    """
    cases = list(point.cases)
    for number in range(rounds):
        cases = random.sample(cases, len(cases)) if number % 2 == 0 else cases[::-1]
        due = [case for case in cases if number < (case.rounds_max or rounds)]
        for group in [due] if point.together else [[case] for case in due]:
            progress.begin(f"{family.name}: {raw.name(point.parameters)}, "
                           f"{' and '.join(case.name for case in group)}")
            measured = partial(measure_case, family, point, number=number, context=context)
            with ThreadPoolExecutor(max(1, len(group))) as threads:
                # A single case runs in this thread, where an interrupt arrives.
                each = threads.map if len(group) > 1 else map
                for case, line in zip(group, each(measured, group)):
                    if line["kind"] == "skipped":
                        cases.remove(case)
                        progress.leave_out(min(rounds, case.rounds_max or rounds) - number - 1)
                    record(line)
                    progress.end(line)


def run_family(family: Family, plan: Plan, context: Context, progress: PlainProgress, lines: list[dict],
               record: Callable[[dict], None]) -> None:
    """Measures all points of a family, and prints its tables."""
    progress.family(family)
    with context.stack:
        for point in plan.points[family.name]:
            measure_point(family, point, plan.rounds(point), context, progress, record)
    measured = raw.Run({}, lines).measured(family.name)
    for table in family.tables(measured) if measured else []:
        progress.table(table)


def run(arguments: argparse.Namespace, chosen: list[Family]) -> int:
    """The whole run; returns the exit status."""
    began = time.monotonic()
    plan = Plan(chosen, arguments)
    RESULTS.mkdir(exist_ok=True)
    results = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    lines: list[dict] = []
    with ExitStack() as stack:
        output = stack.enter_context(results.open("w", encoding="utf-8"))

        def write(line: dict) -> None:
            output.write(json.dumps(line) + "\n")
            output.flush()

        def record(line: dict) -> None:
            lines.append(line)
            write(line)

        progress = stack.enter_context(open_progress(plan.measurements()))
        clusters = {name: start_cluster(stack, name, arguments.settings) for name in ("stock", "herald")}
        description = {"kind": "run"} | host.describe(clusters, measure.DBNAME, {
            "repeat": arguments.repeat, "seconds": arguments.seconds, "full": arguments.full,
            "quick": arguments.quick, "smoke": arguments.smoke, "families": [family.name for family in chosen]})
        write(description)
        for text in host.header(description):
            progress.print(text)
        for family in chosen:
            seconds = arguments.seconds or (family.quick_seconds if arguments.quick else family.seconds)
            context = Context(clusters, seconds, arguments.quick, ExitStack(), arguments.settings,
                              full=arguments.full)
            try:
                run_family(family, plan, context, progress, lines, record)
            except Exception as error:  # pylint: disable=broad-except
                traceback.print_exc()  # the other families' figures are still worth having
                record({"kind": "measurement", "family": family.name, "point": raw.WHOLE_FAMILY, "case": "all",
                        "round": 0, "error": f"{type(error).__name__}: {error}"})
    report = results.with_suffix(".html")
    finished = raw.Run(description, lines)
    report.write_text(page.render(finished), encoding="utf-8")
    print(f"\n{time.monotonic() - began:.0f} s. Raw lines: {results.relative_to(RESULTS.parent.parent)}, "
          f"report: {report.relative_to(RESULTS.parent.parent)}")
    return tell_failures(finished.failures())


def tell_failures(failures: list[str]) -> int:
    """Prints, as the last lines, the reasons for exit status 1; returns the status."""
    if not failures:
        return 0
    print(f"\nNot in order, so the exit status is 1: {len(failures)}")
    for text in failures[:FAILURES_SHOWN]:
        print(f"  {text}")
    if len(failures) > FAILURES_SHOWN:
        print(f"  ... and {len(failures) - FAILURES_SHOWN} more, in the report")
    return 1


def main() -> int:
    """The command."""
    arguments = parse_arguments()
    if arguments.list:
        for family in families.load(list(families.NAMES)):
            print(f"{family.name:<12} {family.title}. {family.question}")
        return 0
    try:
        return run(arguments, families.load(arguments.names or list(families.NAMES)))
    except KeyboardInterrupt:
        print("interrupted; everything is stopped", file=sys.stderr)
        return 130
    except (ClusterError, InstallationError) as error:
        print(f"bench/run: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
