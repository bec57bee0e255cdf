"""The memory of listening backends, and pg_herald's shared memory."""

from functools import partial

from bench.family import Case, Family, Plot, Point, Table, both
from bench.measuring.idle import listening_memory, shared_memory
from bench.reporting import figures, plots

CHANNELS = (1_000, 30_000)


def points(quick: bool) -> list[Point]:
    """A backend that listens to many channels, and the server's shared memory."""
    found = [Point({"channels": channels}, both(listening_memory, channels=channels))
             for channels in (CHANNELS[:1] if quick else CHANNELS)]
    shared = Case("herald", lambda context: shared_memory(context.clusters["herald"]))
    return [*found, Point({"shared memory": True}, (shared,), rounds=1)]


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
        "five listeners fit into a channel's entry, and each 38 beyond take 160 bytes.")


def tables(lines: list[dict]) -> list[Table]:
    """Memory of a listening backend, shared memory."""
    memory = [point for point in figures.points(lines) if "channels" in point]
    found = []
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


def _draw(axes, lines: list[dict]) -> None:
    plots.bars_by_case(axes, lines, "channels", "private_bytes_per_channel", xlabel="channels of one backend",
                       ylabel="bytes per channel", names="{:,}".format)


def plots_of(lines: list[dict]) -> list[Plot]:
    """A listening backend's memory."""
    if not any("channels" in point for point in figures.points(lines)):
        return []
    return [Plot("memory", "A listening backend's own memory", partial(_draw, lines=lines))]


FAMILY = Family(
    name="memory",
    title="Memory",
    question="What memory does listening take?",
    points=points, tables=tables, plots=plots_of, seconds=0.25, quick_seconds=0.1)
