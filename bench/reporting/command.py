"""bench/report: makes the page of a run, its plots, or the project's documents, from the raw lines alone."""

import argparse
import sys
from pathlib import Path

from bench.reporting import blocks, documents, page, raw

TOP = Path(__file__).resolve().parent.parent.parent
RESULTS = TOP / "bench" / "results"


def parse_arguments() -> argparse.Namespace:
    """The command line; ends the program if it is wrong."""
    parser = argparse.ArgumentParser(prog="bench/report", description="Makes a report from the raw lines of a run.")
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE.jsonl",
                        help="the raw lines; with --docs the default is the newest in bench/results of a run that "
                        "was neither --quick nor --smoke")
    parser.add_argument("--svg", type=Path, metavar="FOLDER", help="write each plot to a file there, too")
    parser.add_argument("--docs", action="store_true",
                        help="instead of the page, write the tables and plots of docs/performance/, of the families "
                        "that the run measured, then docs/performance.md, and README's figures")
    parser.add_argument("--short-page", action="store_true",
                        help="without a run: write the tables of docs/performance.md from the pages of docs/performance/")
    parser.add_argument("--tree", type=Path, default=TOP, metavar="FOLDER",
                        help="whose documents these are (this tree's)")
    arguments = parser.parse_args()
    if arguments.short_page:
        if arguments.file or arguments.docs or arguments.svg:
            parser.error("--short-page is made without a run")
    elif arguments.file is None and not arguments.docs:
        parser.error("FILE.jsonl is needed")
    return arguments


def newest(folder: Path) -> Path:
    """The newest raw lines of a run that can be shown; RawError if there are none."""
    for path in sorted(folder.glob("*.jsonl"), reverse=True):
        try:
            run = raw.Run.load(path)
        except raw.RawError:
            continue  # of a run that was interrupted at its start
        if run.lines and not run.description.get("parameters", {}).get("quick"):
            return path
    raise raw.RawError(f"no run in {folder} but --quick and --smoke ones; name a file to take it nevertheless")


def written_by(arguments: argparse.Namespace) -> list[Path]:
    """Writes what the command line asks for, and returns the files."""
    if arguments.short_page:
        return documents.write_short_page(arguments.tree)
    file = arguments.file or newest(RESULTS)
    run = raw.Run.load(file)
    if arguments.docs:
        print(f"from {file}")
        return documents.write(run, arguments.tree)
    made = file.with_suffix(".html")
    made.write_text(page.render(run), encoding="utf-8")
    return [made, *(page.write_svg(run, arguments.svg) if arguments.svg else ())]


def main() -> int:
    """The command."""
    arguments = parse_arguments()
    try:
        written = written_by(arguments)
    except (OSError, raw.RawError, blocks.DocumentError) as error:
        print(f"bench/report: {error}", file=sys.stderr)
        return 1
    for path in written:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
