"""What pg_herald costs those who do not use it, and the memory of those who do."""

from functools import partial
from statistics import quantiles

from bench.family import Case, Family, Plot, Point, Table, both
from bench.measuring.idle import SCALE, listening_memory, shared_memory, unused
from bench.reporting import figures, plots

LOADS = {"select": "pgbench -S", "tpcb": "TPC-B-like"}
CHANNELS = (1_000, 30_000)
ROUNDS = 30  # each short: what is to be seen is less than the machine's noise in one
QUICK_ROUNDS = 6


def points(quick: bool) -> list[Point]:
    """The two loads, and a backend that listens to many channels."""
    found = [Point({"load": load}, both(unused, load=load), rounds=QUICK_ROUNDS if quick else ROUNDS)
             for load in LOADS]
    found += [Point({"channels": channels}, both(listening_memory, channels=channels))
              for channels in (CHANNELS[:1] if quick else CHANNELS)]
    shared = Case("herald", lambda context: shared_memory(context.clusters["herald"]))
    return [*found, Point({"shared memory": True}, (shared,), rounds=1)]


def _load_row(lines: list[dict], load: str) -> tuple:
    ratios = figures.ratios(lines, "tps", load=load)
    quarters = quantiles(ratios, method="inclusive") if len(ratios) > 1 else [0, 0, 0]
    return (LOADS[load], str(len(ratios)), figures.middle(figures.values(lines, "tps", "stock", load=load)),
            figures.middle(figures.values(lines, "tps", "herald", load=load)), figures.ratio(ratios),
            f"{quarters[0]:.3f}–{quarters[2]:.3f}")


def _memory_row(lines: list[dict], point: dict) -> tuple:
    def middles(figure: str) -> tuple:
        return tuple(figures.middle(figures.values(lines, figure, case, **point))
                     for case in ("stock", "herald"))

    return (f"{point['channels']:,}", *middles("private_kb"), *middles("private_bytes_per_channel"),
            *middles("shared_bytes_per_channel"), *middles("first_private_kb"), *middles("backend_kb"))


def _shared_table(measured: dict) -> Table:
    rows = [(name, size) for name, size in measured["sizes_kb"].items()]
    return Table(
        "Shared memory that pg_herald sets aside when the server starts", ("structure", "kB"),
        [*rows, ("all", sum(measured["sizes_kb"].values()))],
        "queue: herald.queue_memory; channel memory: herald.channel_memory. slots and wakeup grow with the number "
        f"of backends that the server's settings allow, here {measured['backends']:,}: "
        f"{measured['bytes_per_backend']:,.0f} bytes for each. That is a listener's share; in the channel memory "
        "four listeners fit into a channel's entry, and each beyond takes 4 to 8 bytes.")


def tables(lines: list[dict]) -> list[Table]:
    """Throughput, memory of a listening backend, shared memory."""
    loads = [load for load in LOADS if figures.select(lines, load=load)]
    memory = [point for point in figures.points(lines) if "channels" in point]
    found = [Table(
        "Loaded, created in the database, and unused, against not loaded: tps",
        ("load", "rounds", "not loaded", "loaded", "loaded / not loaded", "middle half of the rounds"),
        [_load_row(lines, load) for load in loads],
        f"One client, prepared statements, scale {SCALE}, synchronous_commit off (the disk's noise would "
        "hide the rest). Many short rounds in turn.")]
    if memory:
        found.append(Table(
            "Memory of a backend that LISTENs to many channels in one transaction",
            ("channels", "own, kB: stock", "herald", "per channel, bytes: stock", "herald",
             "shared, bytes per channel: stock", "herald", "by the first LISTEN, kB: stock", "herald",
             "whole backend, kB: stock", "herald"),
            [_memory_row(lines, point) for point in memory],
            "How much the backend's resident memory has grown: its own, and shared memory that it has "
            "touched, which the kernel maps up to 64 kB at a time: of few channels that part is rough. "
            "herald registers every channel with the server as well."))
    shared = figures.select(lines, **{"shared memory": True})
    if shared:
        found.append(_shared_table(shared[0]["figures"]))
    return found


def _draw_ratios(axes, lines: list[dict]) -> None:
    loads = [load for load in LOADS if figures.ratios(lines, "tps", load=load)]
    axes.boxplot([figures.ratios(lines, "tps", load=load) for load in loads], widths=0.4, whis=(5, 95),
                 showfliers=False, medianprops={"color": plots.COLOURS["herald"], "linewidth": 2})
    axes.set_xticks(range(1, len(loads) + 1), [LOADS[load] for load in loads])
    axes.axhline(1, linestyle="--", color=plots.COLOURS["stock"])
    axes.set_ylabel("tps, loaded / not loaded")
    axes.grid(False, axis="x")


def _draw_memory(axes, lines: list[dict]) -> None:
    plots.bars_by_case(axes, lines, "channels", "private_bytes_per_channel", xlabel="channels of one backend",
                       ylabel="bytes per channel", names="{:,}".format)


def plots_of(lines: list[dict]) -> list[Plot]:
    """The rounds' ratios; a listening backend's memory."""
    found = [Plot("idle_cost_ratio", "Throughput, loaded but unused against not loaded",
                  partial(_draw_ratios, lines=lines),
                  "The box holds the middle half of the rounds, the line across it is their median; "
                  "the whiskers reach from 5 to 95 % of them.")]
    if any("channels" in point for point in figures.points(lines)):
        found.append(Plot("idle_cost_memory", "A listening backend's own memory",
                          partial(_draw_memory, lines=lines)))
    return found


FAMILY = Family(
    name="idle_cost",
    title="Idle cost",
    question="What does pg_herald cost when it is loaded and not used, and what memory does listening take?",
    points=points, tables=tables, plots=plots_of, seconds=0.25, quick_seconds=0.1)
