"""Many notifications in one transaction: the cost of removing duplicates (PostgreSQL's mailing list, 2011)."""

from functools import partial

from bench.family import Case, Context, Family, Plot, Point, Skipped, Table
from bench.measuring.transaction import notify_many
from bench.reporting import figures, plots

COUNTS = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
QUICK_COUNTS = (10, 1_000, 10_000, 100_000)
SAVEPOINT_COUNTS = (100, 1_000, 10_000, 100_000)
QUICK_SAVEPOINT_COUNTS = (1_000, 10_000)
REPEAT_MAX = 10  # as published
REPEATED_MAX = 10_000  # notifications; a larger transaction is not repeated

FITS_MEMORY_MAX = 10_000  # different notifications; more go to a temporary file

# Stock keeps a memory context of 8 kB for every subtransaction that has notified.
SAVEPOINT_STOCK_KB = 8.5

# (n, m) to the published microseconds per NOTIFY: the server of 2011, and the same with the fix.
PUBLISHED = {
    (10, 1): (43.730, 43.810), (100, 1): (37.630, 38.256), (1_000, 1): (42.990, 36.950),
    (10_000, 1): (36.225, 36.638), (10, 10): (43.960, 44.830), (100, 100): (46.537, 38.684),
    (1_000, 1_000): (126.115, 38.924), (10_000, 10_000): (906.501, 38.032),
}


def _check_memory(savepoints: int) -> None:
    with open("/proc/meminfo", encoding="ascii") as meminfo:
        available_kb = next(int(line.split()[1]) for line in meminfo if line.startswith("MemAvailable"))
    needed_kb = 2 * savepoints * SAVEPOINT_STOCK_KB
    if available_kb < needed_kb:
        raise Skipped(f"less than {needed_kb / 1024:,.0f} MB of memory are available")


def _run(context: Context, name: str, n: int, m: int, savepoints: bool) -> dict:
    if savepoints:
        _check_memory(n)
    repeat = 1 if n > REPEATED_MAX else REPEAT_MAX
    return notify_many(context.clusters[name], n, m, savepoints=savepoints, repeat=repeat)


def _point(n: int, m: int, savepoints: bool = False) -> Point:
    return Point({"n": n, "m": m, "savepoints": savepoints},
                 tuple(Case(name, partial(_run, name=name, n=n, m=m, savepoints=savepoints))
                       for name in ("stock", "herald")))


def points(quick: bool) -> list[Point]:
    """The published table, larger ones, and the same with savepoints."""
    counts = QUICK_COUNTS if quick else COUNTS
    found = [_point(n, 1) for n in counts] + [_point(n, n) for n in counts]
    return found + [_point(n, n, True) for n in (QUICK_SAVEPOINT_COUNTS if quick else SAVEPOINT_COUNTS)]


def _middle(lines: list[dict], point: dict, figure: str, case: str) -> float | None:
    return figures.middle(figures.values(lines, figure, case, **point))


def _time_row(lines: list[dict], point: dict) -> tuple:
    def commit_ms(case: str) -> float | None:
        us = _middle(lines, point, "commit_us", case)
        return None if us is None else us / 1000

    before, after = PUBLISHED.get((point["n"], point["m"]), (None, None))
    return (f"{point['n']:,}", f"{point['m']:,}", before, after,
            figures.with_spread(figures.values(lines, "notify_us", "stock", **point)),
            figures.with_spread(figures.values(lines, "notify_us", "herald", **point)),
            figures.ratio(figures.ratios(lines, "notify_us", **point)),
            commit_ms("stock"), commit_ms("herald"))


def _memory_row(lines: list[dict], point: dict) -> tuple:
    return (f"{point['n']:,}", f"{point['m']:,}",
            *(_middle(lines, point, figure, case)
              for figure in ("peak_private_mb", "peak_shared_mb", "peak_mb") for case in ("stock", "herald")))


def tables(lines: list[dict]) -> list[Table]:
    """Time per NOTIFY as published, memory, and both with savepoints."""
    plain = figures.points(figures.select(lines, savepoints=False))
    nested = figures.points(figures.select(lines, savepoints=True))
    time_columns = ("n", "m", "published, µs", "with the fix of 2011, µs", "stock, µs", "herald, µs",
                    "herald / stock", "commit stock, ms", "commit herald, ms")
    memory_columns = ("n", "m", "stock, MB", "herald, MB", "stock, shared, MB", "herald, shared, MB",
                      "stock, VmHWM, MB", "herald, VmHWM, MB")
    found = [
        Table("Average time per NOTIFY, n in one transaction to m different channels", time_columns,
              [_time_row(lines, point) for point in plain],
              "pg_notify() in a loop of PL/pgSQL, timed by the server, the loop included; medians "
              f"(least–most) of the rounds, each of {REPEAT_MAX} transactions up to n = "
              f"{REPEATED_MAX:,}, of one beyond. "
              "There is no listener. A commit's time includes a round trip of the client. Above m = "
              f"{FITS_MEMORY_MAX:,} a transaction does not fit an eighth of herald.queue_memory, and herald "
              "writes it to a temporary file."),
        Table("Memory of the notifying backend at its peak", memory_columns,
              [_memory_row(lines, point) for point in plain],
              "How much the backend's peak grew: its own memory; shared memory that it touched for the first "
              "time (herald: the queue, which is set aside when the server starts). VmHWM: the peak, all in "
              "all."),
    ]
    if nested:
        found += [
            Table("The same, each NOTIFY in a subtransaction of its own", time_columns[:2] + time_columns[4:],
                  [row[:2] + row[4:] for row in (_time_row(lines, point) for point in nested)],
                  "BEGIN ... EXCEPTION ... END around each pg_notify()."),
            Table("Memory at its peak, each NOTIFY in a subtransaction of its own", memory_columns,
                  [_memory_row(lines, point) for point in nested],
                  "Stock keeps the memory context of every subtransaction that has notified, 8 kB each, to "
                  "the end."),
        ]
    return found


def _draw_times(axes, lines: list[dict]) -> None:
    distinct = [line for line in figures.select(lines, savepoints=False)
                if line["point"]["n"] == line["point"]["m"]]
    published = sorted((n, us) for (n, m), (us, _) in PUBLISHED.items() if n == m)
    axes.plot(*zip(*published), ":", color=plots.FURTHER_COLOURS[-1], label="published in 2011")
    plots.line_by_case(axes, distinct, "n", "notify_us", xlabel="notifications in one transaction, each to "
                       "another channel", ylabel="µs per NOTIFY")


def _draw_memory(axes, lines: list[dict]) -> None:
    plots.line_by_case(axes, figures.select(lines, savepoints=True), "n", "peak_private_mb",
                       xlabel="notifications in one transaction, each in a subtransaction", ylabel="MB")


def plots_of(lines: list[dict]) -> list[Plot]:
    """Time per NOTIFY, and memory with savepoints, over the transaction's size."""
    found = [Plot("duplicates_time", "Time per NOTIFY", partial(_draw_times, lines=lines))]
    if figures.select(lines, savepoints=True):
        found.append(Plot("duplicates_savepoints_memory", "Peak of the backend's own memory, with savepoints",
                          partial(_draw_memory, lines=lines)))
    return found


FAMILY = Family(
    name="duplicates",
    title="Many notifications in one transaction",
    question="Does the time of a NOTIFY, or the memory, grow with what the transaction has notified before?",
    points=points, tables=tables, plots=plots_of, seconds=1, quick_seconds=1)
