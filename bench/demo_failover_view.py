"""The output of ./demo failover: live panels in a terminal, plain lines anywhere else."""

from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

PLAIN_WIDTH = 80
PICTURE_WIDTH = 64
LABEL_WIDTH = 10
PICTURE_S = 16.0  # what a picture shows at least
LEVELS = " ▁▂▃▄▅▆▇█"
FULL_RATE = 2000.0  # a second; more than that looks the same
NAMES = ("server a", "server b")
PICTURE_STYLES = ("yellow", "green", "", "dim")
COLOURS = {"primary": "green", "standby": "cyan", "killed": "red"}


@dataclass
class State:
    """What is known at one moment.

    roles    of the two servers
    history  the moments so far: the time, and how many were sent and received by then
    events   what has happened: the time, and a text
    marks    those that the picture shows, in few words
    """

    roles: list[str] = field(default_factory=lambda: ["primary", "standby"])
    elapsed_s: float = 0.0
    sent: int = 0
    received: int = 0
    is_connected: bool = False
    history: list[tuple[float, int, int]] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)

    @property
    def primary(self) -> int | None:
        """The number of the server that is a primary, if there is one."""
        return self.roles.index("primary") if "primary" in self.roles else None


def open_view(version: str):
    """The view for this standard output; a context manager."""
    console = Console()
    return TerminalView(console, version) if console.is_terminal else PlainView(Console(width=PLAIN_WIDTH), version)


def picture(state: State) -> list[str]:
    """How many were sent in each part of the time, and received; below that, when the marked events happened."""
    length_s = max(PICTURE_S, state.elapsed_s) / PICTURE_WIDTH
    lines = []
    for label, which in (("sent", 1), ("received", 2)):
        courses = [_at(state.history, which, part * length_s) for part in range(PICTURE_WIDTH + 1)]
        rates = [(after - before) / length_s for before, after in zip(courses, courses[1:])]
        lines.append(f"{label:<{LABEL_WIDTH}}" + "".join(map(_level, rates)).rstrip())
    marks = [" "] * (PICTURE_WIDTH + 1)
    for number, (elapsed_s, _) in enumerate(state.marks, 1):
        marks[min(int(elapsed_s / length_s), PICTURE_WIDTH)] = str(number)
    legend = ", ".join(f"{number} {text}" for number, (_, text) in enumerate(state.marks, 1))
    return [*lines, " " * LABEL_WIDTH + "".join(marks).rstrip(), " " * LABEL_WIDTH + legend]


def _at(history: list[tuple[float, int, int]], which: int, when_s: float) -> float:
    """The number at a time between two moments, as if it grew evenly between them."""
    before = (0.0, 0, 0)
    for moment in history:
        if moment[0] >= when_s > before[0]:
            return before[which] + (moment[which] - before[which]) * (when_s - before[0]) / (moment[0] - before[0])
        before = moment
    return before[which] if when_s > 0 else 0.0


def _level(rate: float) -> str:
    top = len(LEVELS) - 1
    return LEVELS[max(min(round(top * rate / FULL_RATE), top), int(rate > 0))]


class PlainView:
    """Prints one line a second, and one for each event."""

    def __init__(self, console: Console, version: str):
        self.console = console
        self.version = version
        self._next_s = 1.0

    def __enter__(self):
        self.print_lines([
            self.version,
            "A primary and a synchronous standby, on this machine. Each commit adds a row to",
            "a ledger, and notifies of it on a logged channel.", ""])
        return self

    def __exit__(self, *_exception) -> None:
        pass

    def note(self, state: State, elapsed_s: float, text: str) -> None:
        """Something has happened."""
        state.events.append((elapsed_s, text))
        self.print_lines([event(elapsed_s, text)])

    def draw(self, state: State) -> None:
        """Shows the present state."""
        if state.elapsed_s >= self._next_s and state.history:
            self._next_s = int(state.elapsed_s) + 1.0
            self.print_lines([event(state.elapsed_s, f"sent {state.sent:>7,}   received {state.received:>7,}")])

    def end(self, state: State) -> None:
        """Everything has come, or will not."""
        self.print_lines(["", *picture(state)])

    def print_lines(self, lines: list[str]) -> None:
        """Prints lines as they are."""
        for line in lines:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)


class TerminalView(PlainView):
    """A panel for each server and the client, the course of both rates, and what has happened."""

    def __init__(self, console: Console, version: str):
        super().__init__(console, version)
        self.live = Live(console=console, refresh_per_second=10)

    def __enter__(self):
        super().__enter__()
        self.live.__enter__()
        return self

    def __exit__(self, *exception) -> None:
        self.live.__exit__(*exception)

    def note(self, state: State, elapsed_s: float, text: str) -> None:
        state.events.append((elapsed_s, text))
        self.draw(state)

    def draw(self, state: State) -> None:
        row = Table.grid(expand=True)
        for _ in (*NAMES, "client"):
            row.add_column(ratio=1)
        row.add_row(*(self._server(state, number) for number in range(len(NAMES))), self._client(state))
        lines = [Text(line, style=style) for line, style in zip(picture(state), PICTURE_STYLES)]
        self.live.update(Group(row, *lines, Text(), *(Text(event(*one)) for one in state.events)))

    def end(self, state: State) -> None:
        self.draw(state)

    def _server(self, state: State, number: int) -> Panel:
        role = state.roles[number]
        count = f"sent {state.sent:,}" if role == "primary" else ""
        return Panel(Group(Text(role, style="bold " + COLOURS[role]), Text(count)), title=NAMES[number],
                     border_style=COLOURS[role])

    def _client(self, state: State) -> Panel:
        where = state.primary
        text = f"listens on {NAMES[where]}" if state.is_connected and where is not None else "has no connection"
        return Panel(Group(Text(text, style="bold"), Text(f"received {state.received:,}")), title="client",
                     border_style="green" if state.is_connected else "red")


def event(elapsed_s: float, text: str) -> str:
    """A line."""
    return f"{max(0.0, elapsed_s):5.1f} s  {text}"
