"""The demo's output: live panels in a terminal, plain lines anywhere else."""

from statistics import median

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from bench.live import Snapshot

TITLES = {"stock": "stock PostgreSQL", "herald": "with pg_herald"}
COLOURS = {"stock": "yellow", "herald": "green"}
PLAIN_WIDTH = 80
BAR_WIDTH = 30
LATENCIES = {"commit_us": "commit", "first_us": "first listener", "last_us": "last listener"}

# Why a row can be slower with pg_herald; printed only if it is.
REASONS = {
    "first_us": "The first listener: pg_herald notes all listeners before it wakes the first; "
                "stock wakes one after the other.",
    "last_us": "The last listener: each listener wakes two more, until three for each CPU are awake "
               "(herald.wakeup_concurrency). Stock wakes all at once; its sender does that "
               "before the commit returns, and other sessions wait for a CPU meanwhile.",
}
SAME = 1.05  # a smaller ratio counts as equal
OVERLAP = " *"
OVERLAP_NOTE = "* The rounds of the two overlap."
REASON_UNKNOWN = "{label}: measured on a machine that does other work as well. bench/run measures it with intervals."


def open_view(seconds: float, version: str):
    """The view for this standard output; a context manager. `seconds`: duration of the whole load."""
    console = Console()
    if console.is_terminal:
        return TerminalView(console, seconds, version)
    return PlainView(Console(width=PLAIN_WIDTH), seconds, version)


def topology_name(topology: tuple[int, int]) -> str:
    """The name of (notifiers, listeners)."""
    notifiers, listeners = topology
    return f"{notifiers} notif{'y' if notifiers > 1 else 'ies'}, {listeners} listen"


def probe_name(listeners: int) -> str:
    """The name of the phase that measures latency."""
    return f"1 NOTIFY, {listeners} listen"


def medians(probes: list[dict], key: str) -> list[float]:
    """The median of each round of the latency probe."""
    return [probe[key]["p50"] for probe in probes if probe[key]["p50"] is not None]


def compare(stock: list[float], herald: list[float]) -> str:
    """Compares the two sides' times, one per round; marked if the rounds of the two overlap."""
    ratio = median(stock) / median(herald)
    if 1 / SAME < ratio < SAME:
        return "as fast"
    mark = "" if max(herald) < min(stock) or min(herald) > max(stock) else OVERLAP
    return (f"{ratio:,.1f} x faster" if ratio > 1 else f"{1 / ratio:,.1f} x slower") + mark


class _View:
    """Common part of both views: prints the introduction and the closing table, keeps the current phase."""

    def __init__(self, console: Console, seconds: float, version: str):
        self.console = console
        self.seconds = seconds
        self.version = version
        self.side = ""
        self.phase = ""

    def __enter__(self):
        self.print_lines(["Stock PostgreSQL and pg_herald in turn, on this machine. More notifications a",
                          f"second are better, and shorter times. It takes {self.seconds:.0f} seconds, and some to start."])
        return self

    def __exit__(self, *_exception) -> None:
        pass

    def begin(self, side: str, phase: str, _seconds: float) -> None:
        """A load or a round of the probe begins on one side; the other side is idle."""
        self.side, self.phase = side, phase

    def print_lines(self, lines: list[str]) -> None:
        """Prints lines as they are."""
        for line in lines:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def closing_table(self, results: dict[str, dict]) -> None:
        """Prints all figures, stock beside herald, and for a slower row the reason."""
        table = Table(title=self.version)
        for heading in ("", TITLES["stock"], TITLES["herald"], "pg_herald is"):
            table.add_column(heading, justify="left" if not heading else "right")
        notes = []

        def row(key: str, label: str, unit: str, stock: float, herald: float, verdict: str) -> None:
            table.add_row(f"    {label}", f"{stock:,.0f}{unit}", f"{herald:,.0f}{unit}", verdict)
            if OVERLAP in verdict:
                notes.append(OVERLAP_NOTE)
            if "slower" in verdict:
                notes.append(REASONS.get(key) or REASON_UNKNOWN.format(label=label))

        loads = {side: result["loads"] for side, result in results.items()}
        for topology, stock in loads["stock"].items():
            herald = loads["herald"][topology]
            table.add_row(topology_name(topology), "", "", "")
            for key, label in (("value", "NOTIFY"), ("deliveries_per_s", "deliveries")):
                ratio = herald[key] / stock[key]
                row(key, label, " /s", stock[key], herald[key], compare([ratio], [1.0]))
            table.add_row("    all delivered", *("yes" if one["delivered"] else "NO" for one in (stock, herald)), "")
        table.add_section()
        probes = {side: result["probes"] for side, result in results.items()}
        table.add_row(probe_name(probes["stock"][0]["listeners"]), "", "", "")
        for key, label in LATENCIES.items():
            stock, herald = medians(probes["stock"], key), medians(probes["herald"], key)
            if stock and herald:
                row(key, label, " us", median(stock), median(herald), compare(stock, herald))
        self.console.print(table)
        for note in dict.fromkeys(notes):
            self.console.print(note, highlight=False)


class PlainView(_View):
    """Prints one line a second."""

    def __init__(self, console: Console, seconds: float, version: str):
        super().__init__(console, seconds, version)
        self.next_s = 0.0

    def begin(self, side: str, phase: str, seconds: float) -> None:
        super().begin(side, phase, seconds)
        self.next_s = 1.0

    def tick(self, snapshot: Snapshot) -> None:
        """Shows the progress of the load."""
        if snapshot.elapsed_s >= self.next_s:
            self.next_s += 1.0
            self._line(f"{snapshot.elapsed_s:.0f} s, {snapshot.heard_per_s:,.0f} deliveries/s, "
                       f"{snapshot.heard:,} in all")

    def end(self, result: dict) -> None:
        """The load has ended, and its notifications were waited for."""
        self._line(f"{result['value']:,.0f} NOTIFY/s, {result['deliveries_per_s']:,.0f} deliveries/s, "
                   f"all delivered: {'yes' if result['delivered'] else 'NO'}")

    def end_probe(self, probes: list[dict]) -> None:
        """A round of the probe has ended."""
        self._line(", ".join(f"{label} {probes[-1][key]['p50'] or 0:,.0f} us" for key, label in LATENCIES.items()))

    def _line(self, text: str) -> None:
        self.print_lines([f"{TITLES[self.side]}: {self.phase}: {text}"])


class TerminalView(_View):
    """A panel for each side with all its figures so far, and a progress bar below."""

    def __init__(self, console: Console, seconds: float, version: str):
        super().__init__(console, seconds, version)
        # For each side: the lines of each phase, a label and a figure, in the order of their arrival.
        self.figures: dict[str, dict[str, dict[str, str]]] = {side: {} for side in TITLES}
        self.rate = dict.fromkeys(TITLES, 0.0)  # the newest deliveries a second
        self.rate_max = 1.0  # the rate of a full bar
        self.progress = Progress(TextColumn("{task.description}"), BarColumn(bar_width=None),
                                 TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn(), console=console)
        self.task = self.progress.add_task("starting", total=seconds)
        self.done_s = 0.0  # of the phases that have ended
        self.phase_s = 0.0
        self.live = Live(console=console, refresh_per_second=10)

    def __enter__(self):
        super().__enter__()
        self.live.__enter__()
        self._draw()
        return self

    def __exit__(self, *exception) -> None:
        self.side = ""
        self._draw()
        self.live.__exit__(*exception)

    def begin(self, side: str, phase: str, seconds: float) -> None:
        super().begin(side, phase, seconds)
        self.phase_s = seconds
        self.progress.update(self.task, description=f"{TITLES[side]}: {phase}")
        self._draw()

    def tick(self, snapshot: Snapshot) -> None:
        """Shows the progress of the load."""
        self._show_load(snapshot.notified_per_s, snapshot.heard_per_s, f"{snapshot.heard:,}")
        self.progress.update(self.task, completed=self.done_s + min(snapshot.elapsed_s, self.phase_s))
        self._draw()

    def end(self, result: dict) -> None:
        """The load has ended, and its notifications were waited for."""
        self._show_load(result["value"], result["deliveries_per_s"],
                        f"{result['count']['notifications']:,}" + ("" if result["delivered"] else " NOT ALL"))
        self._end_phase()

    def end_probe(self, probes: list[dict]) -> None:
        """A round of the probe has ended."""
        self.figures[self.side][self.phase] = {
            label: f"{median(medians(probes, key) or [0]):,.0f} us" for key, label in LATENCIES.items()}
        self._end_phase()

    def _show_load(self, notified_per_s: float | None, delivered_per_s: float, delivered: str) -> None:
        notified = {} if notified_per_s is None else {"NOTIFY": f"{notified_per_s:,.0f} /s"}
        self.figures[self.side][self.phase] = notified | {"deliveries": f"{delivered_per_s:,.0f} /s",
                                                          "delivered": delivered}
        self.rate[self.side] = delivered_per_s
        self.rate_max = max(self.rate_max, delivered_per_s)

    def _end_phase(self) -> None:
        self.done_s += self.phase_s
        self.progress.update(self.task, completed=self.done_s)
        self._draw()

    def _draw(self) -> None:
        sides = Table.grid(expand=True, padding=(0, 1))
        for _ in TITLES:
            sides.add_column(ratio=1)
        sides.add_row(*(self._panel(side) for side in TITLES))
        self.live.update(Group(sides, self.progress))

    def _panel(self, side: str) -> Panel:
        lines = []
        for phase, figures in self.figures[side].items():
            body = Table.grid(padding=(0, 2))
            for label, figure in figures.items():
                body.add_row(f"  {label}", Text(f"{figure:>15}", style="bold"))
            lines += [Text(phase, style="bold"), body]
        bar = "█" * round(BAR_WIDTH * self.rate[side] / self.rate_max)
        lines += [Text("deliveries a second, as a bar", style="dim"), Text(bar.ljust(1), style=COLOURS[side])]
        running = side == self.side
        note = "under load" if running else "rests; these are its last figures" if self.figures[side] else "waits"
        return Panel(Group(*lines), title=TITLES[side], subtitle=note,
                     border_style=COLOURS[side] if running else "dim")
