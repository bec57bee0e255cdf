"""What ./demo shows, with real servers under a short load."""

import io
import re
import sys

import pytest

from harness.prefix import TOP

sys.path.append("/usr/lib/python3/dist-packages")  # Debian's python3-rich
sys.path.insert(0, str(TOP))

from rich.console import Console  # noqa: E402  pylint: disable=wrong-import-position

from bench import demo, demo_view  # noqa: E402  pylint: disable=wrong-import-position

WIDTH = 80
FIGURE = re.compile(r"([\d,]+)( NOT ALL)? *(/s|us)?$")


class Recorder(demo_view.TerminalView):
    """The view, which also records each frame as text: one string for each side."""

    def __init__(self):
        super().__init__(Console(file=io.StringIO(), force_terminal=True, width=WIDTH), 10, "a version")
        self.frames = []

    def _draw(self) -> None:
        super()._draw()
        text = Console(file=io.StringIO(), width=WIDTH)
        text.print(self.live.renderable)
        lines = [line for line in text.file.getvalue().splitlines() if line.lstrip().startswith(("│", "╭", "╰"))]
        self.frames.append((self.side, ["\n".join(line[:WIDTH // 2] for line in lines),
                                        "\n".join(line[WIDTH // 2:] for line in lines)]))


@pytest.fixture
def shown(cluster, stock, monkeypatch):
    """The frames, the results, and all that was printed at the end."""
    monkeypatch.setattr(demo, "TOPOLOGIES", ((1, 5), (5, 5)))
    monkeypatch.setattr(demo, "LOAD_S", 1)
    monkeypatch.setattr(demo, "PROBE_LISTENERS", 5)
    monkeypatch.setattr(demo, "PROBE_COUNT", 10)
    with Recorder() as view:
        results = demo.show(view, {"stock": stock, "herald": cluster})
    output = io.StringIO()
    view.console = Console(file=output, width=WIDTH)
    view.closing_table(results)
    return view.frames, results, output.getvalue()


def test_in_80_columns(shown):
    """Guards: nothing is cut off, no figure is shown before it is known, and the bar has a label."""
    frames, _, printed = shown
    panels = [panel for _, sides in frames for panel in sides]
    assert not any("…" in panel or re.search(r"NOTIFY +0 /s", panel) for panel in panels)
    assert all("deliveries a second" in panel for panel in frames[-1][1])
    assert "…" not in printed and max(map(len, printed.splitlines())) <= WIDTH


def figures(panel: str) -> list[int]:
    """All figures of a panel."""
    found = (FIGURE.search(line.strip("│ ")) for line in panel.splitlines())
    return [int(match[1].replace(",", "")) for match in found if match]


def test_both_sides_show_their_figures_to_the_end(shown):
    frames, results, _ = shown
    _, last = frames[-1]
    for panel, side in zip(last, ("stock", "herald")):
        load = results[side]["loads"][1, 5]
        assert f"{load['value']:,.0f} /s" in panel and f"{load['deliveries_per_s']:,.0f} /s" in panel
        assert len(figures(panel)) == 9 and 0 not in figures(panel)

    # Once stock has a figure, its panel keeps it: also while the other side is under load.
    while_herald = [sides[0] for side, sides in frames if side == "herald"]
    assert len(while_herald) > 10
    for panel in while_herald:
        assert "rests" in panel and figures(panel) and 0 not in figures(panel)


def test_a_slower_row_is_explained(shown):
    _, results, printed = shown
    assert printed.count("all delivered") == 2 and " NO " not in printed
    for key, reason in demo_view.REASONS.items():
        times = [demo_view.medians(results[side]["probes"], key) for side in ("stock", "herald")]
        slower = "slower" in demo_view.compare(*times)
        assert (reason[:30] in printed) == slower


def test_each_row_that_is_slower_has_a_reason(shown):
    """The same results with the sides exchanged: now pg_herald is slower where it was faster."""
    _, results, _ = shown
    output = io.StringIO()
    demo_view.PlainView(Console(file=output, width=WIDTH), 10, "a version").closing_table(
        {"stock": results["herald"], "herald": results["stock"]})
    table, _, notes = output.getvalue().rpartition("┘")
    slower = [line.split("│")[1].strip() for line in table.splitlines() if "slower" in line]
    assert slower
    reasons = {label: demo_view.REASONS.get(key) for key, label in demo_view.LATENCIES.items()}
    for label in slower:
        assert (reasons.get(label) or demo_view.REASON_UNKNOWN.format(label=label)) in " ".join(notes.split())


@pytest.mark.parametrize("stock, herald, verdict", [
    ([400, 500], [200, 100], "3.0 x faster"),
    ([100, 200], [400, 500], "3.0 x slower"),
    ([100, 300], [200, 400], "1.5 x slower *"),
    ([100, 300], [195, 210], "as fast"),
])
def test_compare(stock, herald, verdict):
    assert demo_view.compare(stock, herald) == verdict
