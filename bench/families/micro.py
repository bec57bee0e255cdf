"""Single operations of src/core/, without a server: their cost, and how it grows.

Time is CPU time, which other load on the machine hardly changes; instructions are counted by callgrind
and are the same in every run. Locked instructions and written cache lines are counted in the source.
"""

import functools
import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.family import Case, Context, Family, Plot, Point, Skipped, Table
from bench.measuring.measure import MeasureError
from bench.measuring.programs import build
from bench.reporting import figures, plots

FOLDER = Path(__file__).resolve().parent.parent / "micro"
PROGRAM = FOLDER / "build" / "micro"
TIMEOUT_S = 120
NOT_COUNTABLE = 3  # the program's status if it was built without callgrind's header

LISTENERS = (1, 10, 100, 1_000, 10_000)
ENTRIES = (1, 10, 100, 1_000)
BYTES = (8, 16, 63)
THREADS = (1, 2)
QUICK_SIZES = {"listeners": (1, 10_000), "entries": (1, 100)}
SIZES = {"listeners": LISTENERS, "entries": ENTRIES, "bytes": BYTES, "threads": THREADS, "nothing": (1,)}
ONE_MORE = {"listeners": "a listener", "entries": "an entry", "bytes": "a byte"}

# A smaller growth from the smallest to the largest size comes from the loop itself, or from its first round.
GROWTH_MIN = 1.5


@dataclass(frozen=True)
class Operation:
    """One of the program's operations; the counts are those of its most frequent path."""

    name: str  # as in bench/micro
    size_of: str
    what: str
    locked: str  # locked instructions: read-modify-write, or a store that is sequentially consistent
    lines: str  # shared cache lines written


OPERATIONS = (
    Operation("reserve", "entries", "take a stretch of the queue, write the header", "1", "2: head, header"),
    Operation("fill", "entries", "copy the entries in", "0", "the batch's own"),
    Operation("commit", "entries", "flip the batch's state", "1", "1: header"),
    Operation("send", "entries", "reserve, fill and commit", "2", "head, and the batch's own"),
    Operation("commit_dispatch", "entries", "commit, then dispatch that batch", "5",
              "2: header, dispatcher's"),
    Operation("dispatch_together", "entries", "dispatch many batches at once, for each", "2 a run of 64 kB",
              "1 a run: dispatcher's"),
    Operation("read_each", "entries", "a pass of a listener over one batch", "0", "0"),
    Operation("read_together", "entries", "a pass over many batches, for each", "0", "0"),
    Operation("skip_other_database", "entries", "the same, of another database", "0", "0"),
    Operation("recycle_segment", "nothing", "zero a segment of 2 MB, once in 32,768 small batches", "1",
              "1: recycler's, and the segment's 32,768"),
    Operation("hash_payload", "bytes", "hash a payload, to find duplicates", "0", "0"),
    Operation("mark_idle", "listeners", "mark a listener that is idle", "2", "2: word, set"),
    Operation("mark_pending", "listeners", "mark one that has something pending", "0", "0"),
    Operation("mark_reading", "listeners", "mark one that is reading", "1", "1: word"),
    Operation("mark_busy", "listeners", "mark one that is in a transaction", "1", "1: word"),
    Operation("pump_empty", "listeners", "look for a listener to wake, and find none", "0", "0"),
    Operation("wake_one", "listeners", "one of all is notified: mark, signal, read, hand over", "11",
              "4: word, turn, set, wakers'"),
    Operation("wake_all", "listeners", "all are notified and hand their turns on, for each", "11",
              "4: word, turn, set, wakers'"),
    Operation("busy_rest", "listeners", "a listener's statement begins and ends", "2", "1: word"),
    Operation("join_leave", "listeners", "the first LISTEN and the end of a session", "2", "2: word, turn"),
    Operation("waiting", "listeners", "how many are to be woken?", "0", "0"),
    Operation("needed", "listeners", "below which position is the queue free?", "0", "0"),
    Operation("reserve_at_once", "threads", "reserve", "1", "2: head, header"),
    Operation("send_dispatch_at_once", "threads", "recycle if need be, reserve, fill, commit, dispatch", "6",
              "3: head, header, dispatcher's"),
    Operation("words_in_one_line", "threads", "mark, signal, begin, finish; the words are neighbours", "4",
              "1: word"),
    Operation("words_in_own_lines", "threads", "the same; the words are far apart", "4", "1: word"),
    Operation("wake_at_once", "threads", "each wakes a listener of its own", "11",
              "4: word, turn, set, wakers'"),
)


def _time(context: Context, operation: Operation, size: int) -> dict:
    build(FOLDER)
    command = [str(PROGRAM), operation.name, str(size), "--ms", f"{1000 * context.seconds:g}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if result.returncode != 0:
        raise MeasureError(result.stderr.strip() or f"{command} ended with {result.returncode}")
    return json.loads(result.stdout)


@functools.cache
def _counted(operation: str, sizes: tuple[int, ...]) -> dict[int, float]:
    """Instructions per operation, by size; callgrind runs once for all sizes and all rounds."""
    build(FOLDER)
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise Skipped("valgrind is not installed (Debian's package valgrind)")
    with tempfile.TemporaryDirectory(prefix="herald-", dir="/var/tmp") as folder:
        command = [valgrind, "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out",
                   str(PROGRAM), "--count"]
        for size in sizes:
            command += [operation, str(size)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        if result.returncode == NOT_COUNTABLE:
            raise Skipped(result.stderr.strip().splitlines()[-1])
        if result.returncode != 0:
            raise MeasureError(f"callgrind failed: {result.stderr.strip()[-500:]}")
        texts = [path.read_text(encoding="utf-8") for path in Path(folder).iterdir()]
    return dict(dump for text in texts for dump in _dumps(text))


def _dumps(text: str) -> list[tuple[int, float]]:
    """The size, and the instructions per operation, of one dump; empty for the dump at the program's end."""
    found = re.search(r"^desc: Trigger: Client Request: \S+ (\d+) (\d+)$", text, re.MULTILINE)
    if not found:
        return []
    total = re.search(r"^totals: (\d+)$", text, re.MULTILINE).group(1)
    return [(int(found.group(1)), int(total) / int(found.group(2)))]


def _count(_context: Context, operation: Operation, size: int, sizes: tuple[int, ...]) -> dict:
    return {"instructions_per_operation": round(_counted(operation.name, sizes)[size], 1)}


def points(quick: bool) -> list[Point]:
    """Every operation at every size: timed, and counted unless it takes two threads or `quick` is set."""
    found = []
    for operation in OPERATIONS:
        sizes = SIZES[operation.size_of]
        if quick:
            sizes = QUICK_SIZES.get(operation.size_of, sizes)
        for size in sizes:
            cases = [Case("time", partial(_time, operation=operation, size=size))]
            if operation.size_of != "threads" and not quick:
                count = partial(_count, operation=operation, size=size, sizes=sizes)
                cases.append(Case("instructions", count))
            key = {} if operation.size_of == "nothing" else {operation.size_of: size}
            found.append(Point({"operation": operation.name} | key, tuple(cases)))
    return found


def _sizes(lines: list[dict], size_of: str) -> list[int]:
    return sorted({line["point"][size_of] for line in lines if size_of in line["point"]})


def _at(lines: list[dict], operation: Operation, figure: str, size: int | None) -> float | None:
    size_key = {} if size is None else {operation.size_of: size}
    return figures.middle(figures.values(lines, figure, operation=operation.name, **size_key))


def _growth(counts: dict[int, float | None], one_more: str) -> str:
    """The instructions that one more adds, between the largest two sizes: "15 a listener", or "none"."""
    known = [(size, count) for size, count in sorted(counts.items()) if count is not None]
    if len(known) < 2:
        return figures.NOTHING
    (_, first), (size, last) = known[0], known[-1]
    before_size, before = known[-2]
    if last < GROWTH_MIN * first:
        return "none"
    return f"{figures.number((last - before) / (size - before_size))} {one_more}"


def _grown(lines: list[dict], size_of: str, figure: str, title: str, note: str) -> Table | None:
    sizes = _sizes(lines, size_of)
    rows = []
    for operation in OPERATIONS:
        if operation.size_of != size_of or not sizes:
            continue
        found = {size: _at(lines, operation, figure, size) for size in sizes}
        if any(value is not None for value in found.values()):
            growth = (_growth(found, ONE_MORE[size_of]),) if figure.startswith("instructions") else ()
            rows.append((operation.name, operation.what, *(found[size] for size in sizes), *growth))
    columns = ("operation", "what it does", *(f"{size:,}" for size in sizes),
               *(("growth",) if figure.startswith("instructions") else ()))
    return Table(title, columns, rows, note) if rows else None


def _threads(lines: list[dict]) -> Table | None:
    rows = []
    for operation in OPERATIONS:
        if operation.size_of == "threads":
            one, two = (_at(lines, operation, "ns_per_operation", size) for size in THREADS)
            running = _at(lines, operation, "running_share", THREADS[-1])
            if one is not None and two is not None:
                rows.append((operation.name, operation.what, one, two, f"{two / one:.2f}",
                             figures.percent(running)))
    return Table("Two threads at once, ns per operation of each", (
        "operation", "what it does", "1 thread", "2 threads", "2 / 1", "both running"), rows,
        "Without contention the two columns are the same. Each thread is on a CPU of its own; where both ran "
        "for less than most of the time, others used the machine, and the two met less than they would."
    ) if rows else None


def _reckoned(lines: list[dict]) -> Table:
    rows = []
    for operation in OPERATIONS:
        smallest = min(SIZES[operation.size_of])
        size = None if operation.size_of == "nothing" else smallest
        if any(line["point"]["operation"] == operation.name for line in lines):
            measured = (_at(lines, operation, figure, size)
                        for figure in ("ns_per_operation", "instructions_per_operation"))
            rows.append((operation.name, operation.what, *measured, operation.locked, operation.lines))
    return Table("Each operation at its smallest size", (
        "operation", "what it does", "ns", "instructions", "locked instructions",
        "shared cache lines written"), rows,
        "ns (of CPU time) and instructions are measured. Locked instructions and cache lines are reckoned "
        "from the source: on x86 an atomic read-modify-write and a sequentially consistent store lock a "
        "line, all other stores do not.")


def tables(lines: list[dict]) -> list[Table]:
    """Counts from the source, instructions and time over each size, two threads."""
    found = [_reckoned(lines)]
    for size_of, about in (("listeners", "Listening backends: all of them have joined"),
                           ("entries", "Notifications in a batch, of 32 bytes each"),
                           ("bytes", "Length of the channel's name")):
        found.append(_grown(lines, size_of, "instructions_per_operation",
                            f"Instructions per operation, by {size_of}",
                            f"{about}. Growth: what one more adds, between the two largest."))
        found.append(_grown(lines, size_of, "ns_per_operation", f"ns per operation, by {size_of}",
                            f"{about}."))
    found.append(_threads(lines))
    return [table for table in found if table]


# The operations to plot, each as a line of its own.
DRAWN = {
    "listeners": ("mark_idle", "pump_empty", "wake_one", "wake_all", "needed"),
    "entries": ("reserve", "send", "commit_dispatch", "dispatch_together", "read_together",
                "skip_other_database"),
}


def _draw(axes, lines: list[dict], size_of: str, figure: str, ylabel: str) -> None:
    named = [line | {"case": line["point"]["operation"]} for line in lines
             if line["point"]["operation"] in DRAWN[size_of] and figure in line["figures"]]
    shown = [name for name in DRAWN[size_of] if name in figures.cases(named)]
    plots.line_by_case(axes, named, size_of, figure, xlabel=size_of, ylabel=ylabel, cases=shown)


def plots_of(lines: list[dict]) -> list[Plot]:
    """Instructions and time over listeners and entries."""
    found = []
    for size_of in DRAWN:
        for figure, what in (("instructions_per_operation", "instructions"), ("ns_per_operation", "ns")):
            if _sizes([line for line in lines if figure in line["figures"]], size_of):
                found.append(Plot(f"micro_{size_of}_{what}", f"One operation of core/, by {size_of}",
                                  partial(_draw, lines=lines, size_of=size_of, figure=figure,
                                          ylabel=f"{what} per operation")))
    return found


FAMILY = Family(
    name="micro", title="Single operations", points=points, tables=tables, plots=plots_of,
    seconds=0.02, quick_seconds=0.01,
    question="What does each operation of src/core/ cost, and which grow with listeners or with the batch?")
