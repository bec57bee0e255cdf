"""What the demo shows: live panels in a terminal, plain lines anywhere else."""

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from bench.live import Snapshot

TITLES = {"stock": "stock PostgreSQL", "herald": "with pg_herald"}
COLOURS = {"stock": "yellow", "herald": "green"}
PLAIN_WIDTH = 100
BAR_WIDTH = 30


def open_view(seconds: float, version: str):
    """The view for this standard output; a context manager. `seconds`: how long the load takes in all."""
    console = Console()
    if console.is_terminal:
        return TerminalView(console, seconds, version)
    return PlainView(Console(width=PLAIN_WIDTH), version)


def _topology(notifiers: int, listeners: int) -> str:
    return f"{notifiers} notifier{'s' if notifiers > 1 else ''} -> {listeners} listeners"


class _View:
    """What both views do: keep track of the phase, and print the end."""

    def __init__(self, console: Console, version: str):
        self.console = console
        self.version = version
        self.side = ""
        self.topology = ""

    def __enter__(self):
        return self

    def __exit__(self, *_exception) -> None:
        pass

    def begin(self, side: str, notifiers: int, listeners: int, _seconds: float) -> None:
        """A load begins."""
        self.side, self.topology = side, _topology(notifiers, listeners)

    def begin_probe(self, side: str, listeners: int, _seconds: float) -> None:
        """A latency probe begins."""
        self.side, self.topology = side, f"latency, {listeners} listeners"

    def print_lines(self, lines: list[str]) -> None:
        """Prints lines as they are."""
        for line in lines:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def closing_table(self, results: dict[str, dict], topologies) -> None:
        """Prints all figures, stock beside herald."""
        table = Table(title=self.version)
        for heading in ("", TITLES["stock"], TITLES["herald"], "ratio"):
            table.add_column(heading, justify="left" if not heading else "right")

        def row(label: str, unit: str, stock: float, herald: float, ratio: str) -> None:
            table.add_row(label, f"{stock:,.0f}{unit}", f"{herald:,.0f}{unit}", ratio)

        def more(label: str, stock: float, herald: float) -> None:
            row(label, " /s", stock, herald, f"{herald / stock:,.1f} x")

        def sooner(label: str, stock: float | None, herald: float | None) -> None:
            if stock and herald:
                row(label, " us", stock, herald,
                    f"{stock / herald:,.1f} x faster" if herald <= stock else f"{herald / stock:,.1f} x slower")

        for topology in topologies:
            stock, herald = results["stock"][topology], results["herald"][topology]
            more(_topology(*topology), stock["value"], herald["value"])
            more("    deliveries", stock["deliveries_per_s"], herald["deliveries_per_s"])
            table.add_row("    all delivered", *("yes" if one["delivered"] else "NO" for one in (stock, herald)), "")
        stock, herald = results["stock"]["latency"], results["herald"]["latency"]
        table.add_section()
        table.add_row(f"one NOTIFY, {stock['listeners']} listeners", "", "", "")
        for key, label in (("commit_us", "committed"), ("first_us", "first listener hears it"),
                           ("last_us", "last listener hears it")):
            sooner(f"    {label}", stock[key]["p50"], herald[key]["p50"])
        self.console.print(table)


class PlainView(_View):
    """One line a second."""

    def __init__(self, console: Console, version: str):
        super().__init__(console, version)
        self.next_s = 0.0

    def begin(self, side: str, notifiers: int, listeners: int, seconds: float) -> None:
        super().begin(side, notifiers, listeners, seconds)
        self.next_s = 1.0

    def tick(self, snapshot: Snapshot) -> None:
        """Where the load stands."""
        if snapshot.elapsed_s >= self.next_s:
            self.next_s += 1.0
            self._line(f"{snapshot.elapsed_s:.0f} s, {snapshot.heard_per_s:,.0f} heard/s, {snapshot.heard:,} in all")

    def end(self, result: dict) -> None:
        """The load has ended and all is delivered."""
        self._line(f"{result['value']:,.0f} NOTIFY/s, {result['deliveries_per_s']:,.0f} deliveries/s, "
                   f"all delivered: {'yes' if result['delivered'] else 'NO'}")

    def end_probe(self, latency: dict) -> None:
        """The probe has ended."""
        self._line(f"commit {latency['commit_us']['p50']:,.0f} us, last listener {latency['last_us']['p50']:,.0f} us (median)")

    def _line(self, text: str) -> None:
        self.print_lines([f"{TITLES[self.side]}: {self.topology}: {text}"])


class TerminalView(_View):
    """A panel for either side, and a progress bar below."""

    def __init__(self, console: Console, seconds: float, version: str):
        super().__init__(console, version)
        self.panels = {side: {"topology": "waiting", "notified": 0.0, "heard_per_s": 0.0, "heard": 0, "note": ""}
                       for side in TITLES}
        self.rate_max = 1.0  # what a full bar stands for
        self.progress = Progress(TextColumn("{task.description}"), BarColumn(bar_width=None),
                                 TextColumn("{task.percentage:>3.0f}%"), TimeRemainingColumn(), console=console)
        self.task = self.progress.add_task("starting", total=seconds)
        self.done_s = 0.0  # of the phases that have ended
        self.phase_s = 0.0
        self.live = Live(console=console, refresh_per_second=10)

    def __enter__(self):
        self.live.__enter__()
        self._draw()
        return self

    def __exit__(self, *exception) -> None:
        self.live.__exit__(*exception)

    def begin(self, side: str, notifiers: int, listeners: int, seconds: float) -> None:
        super().begin(side, notifiers, listeners, seconds)
        self._begin_phase(seconds, {"notifiers": notifiers, "listeners": listeners})

    def begin_probe(self, side: str, listeners: int, seconds: float) -> None:
        super().begin_probe(side, listeners, seconds)
        self._begin_phase(seconds, {"notifiers": 1, "listeners": listeners, "note": "one NOTIFY every 20 ms"})

    def _begin_phase(self, seconds: float, further: dict) -> None:
        self.phase_s = seconds
        self.panels[self.side] = {"topology": self.topology, "notified": 0.0, "heard_per_s": 0.0, "heard": 0,
                                  "note": "", **further}
        self.progress.update(self.task, description=f"{TITLES[self.side]}: {self.topology}")
        self._draw()

    def tick(self, snapshot: Snapshot) -> None:
        """Where the load stands."""
        self.panels[self.side].update(notified=snapshot.notified_per_s, heard=snapshot.heard,
                                      heard_per_s=snapshot.heard_per_s)
        self.rate_max = max(self.rate_max, snapshot.heard_per_s)
        self.progress.update(self.task, completed=self.done_s + min(snapshot.elapsed_s, self.phase_s))
        self._draw()

    def end(self, result: dict) -> None:
        """The load has ended and all is delivered."""
        self._end_phase(notified=result["value"], heard_per_s=result["deliveries_per_s"],
                        heard=result["count"]["notifications"],
                        note="all delivered" if result["delivered"] else "NOT ALL DELIVERED")

    def end_probe(self, latency: dict) -> None:
        """The probe has ended."""
        self._end_phase(note=f"commit {latency['commit_us']['p50'] or 0:,.0f} us, "
                             f"last listener {latency['last_us']['p50'] or 0:,.0f} us")

    def _end_phase(self, **figures) -> None:
        self.panels[self.side].update(figures)
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
        state = self.panels[side]
        bar = "█" * round(BAR_WIDTH * state["heard_per_s"] / self.rate_max)
        body = Table.grid(padding=(0, 2))
        body.add_row("NOTIFY", Text(f"{state['notified']:>12,.0f} /s", style="bold"))
        body.add_row("heard", Text(f"{state['heard_per_s']:>12,.0f} /s", style="bold"))
        body.add_row("in all", Text(f"{state['heard']:>12,}"))
        lines = Group(Text(state["topology"], style="bold"), body, Text(bar.ljust(1), style=COLOURS[side]),
                      Text(state["note"], style="dim"))
        active = side == self.side
        return Panel(lines, title=TITLES[side], border_style=COLOURS[side] if active else "dim")
