"""The common style of all plots, and their conversion to SVG.

matplotlib is loaded only when something is drawn. The same lines always give the same bytes of SVG:
no date, no random names.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator

from bench.family import Plot
from bench.reporting import figures

COLOURS = {"stock": "#d9822b", "herald": "#1f9d72"}  # readable on light and on dark backgrounds
FURTHER_COLOURS = ("#4a86c8", "#b4558f", "#8a74d6", "#c0504d", "#5b9aa0", "#8c8c8c")
MARKERS = "osD^vP*X"
INK = "#24292f"
PAPER = "#ffffff"
INCHES = (6.4, 4.0)
GROUP_WIDTH = 0.8  # of the bars or marks at one place of the x axis
LEGEND_SIZE = 9
TEXT_MIN = 12  # longer tick labels are texts, not numbers
LEGEND_POINTS = 415  # width of a row of the legend
STYLE = {
    "svg.hashsalt": "pg_herald", "svg.fonttype": "none", "font.family": "DejaVu Sans", "font.size": 10,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK,
    "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "axes.axisbelow": True, "grid.color": INK, "grid.alpha": 0.15, "legend.frameon": False,
    "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "lines.linewidth": 1.8, "lines.markersize": 5,
}


def colour(case: str, cases: Iterable[str] = ()) -> str:
    """The colour of a case; cases other than stock and herald get theirs by their place among `cases`."""
    if case in COLOURS:
        return COLOURS[case]
    others = [name for name in cases if name not in COLOURS]
    place = others.index(case) if case in others else -1
    return FURTHER_COLOURS[place % len(FURTHER_COLOURS)]


def line_by_case(axes, lines: list[dict], x: str, figure: str, *, log_x: bool = True,
                 log_y: bool = True, xlabel: str = "", ylabel: str = "", cases: Iterable[str] | None = None,
                 label: Callable[[str], str] = str) -> None:
    """A line for each case: the medians of a figure over the parameter x, with the rounds' spread.

    Both axes are logarithmic by default; if the parameter is 0 at a point, the x axis is symlog. Its
    ticks are at the points.
    """
    shown = list(cases) if cases is not None else figures.cases(lines)
    places = sorted({line["point"][x] for line in lines if x in line["point"]})
    for number, case in enumerate(shown):
        measured = [(place, figures.values(lines, figure, case, **{x: place})) for place in places]
        measured = [(place, values) for place, values in measured if values]
        if not measured:
            continue
        middles = [figures.middle(values) for _, values in measured]
        below = [middle - min(values) for middle, (_, values) in zip(middles, measured)]
        above = [max(values) - middle for middle, (_, values) in zip(middles, measured)]
        axes.errorbar([place for place, _ in measured], middles, yerr=[below, above], label=label(case),
                      color=colour(case, shown), marker=MARKERS[number % len(MARKERS)], capsize=2)
    if log_x and places:
        axes.set_xscale("symlog" if places[0] <= 0 else "log")
    mark_places(axes, places)
    _finish(axes, log_y, xlabel or x, ylabel or figure)


def _grouped(axes, lines: list[dict], x: str, figure: str, cases: Iterable[str] | None,
             names: Callable[[object], str]) -> Iterator[tuple[str, str, float, list[float]]]:
    """Yields case, colour, place on the x axis and values, side by side for each value of the parameter x."""
    shown = list(cases) if cases is not None else figures.cases(lines)
    places = list(dict.fromkeys(line["point"][x] for line in lines if x in line["point"]))
    for number, case in enumerate(shown):
        for place_number, place in enumerate(places):
            values = figures.values(lines, figure, case, **{x: place})
            if values:
                offset = (number - (len(shown) - 1) / 2) * GROUP_WIDTH / len(shown)
                yield case, colour(case, shown), place_number + offset, values
    axes.set_xticks(range(len(places)), [names(place) for place in places])
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.grid(False, axis="x")


def _whiskers(values: list[float]) -> list[list[float]]:
    """The distances of the lowest and the highest value from the median, in matplotlib's form for yerr."""
    middle = figures.middle(values)
    return [[middle - min(values)], [max(values) - middle]]


def bars_by_case(axes, lines: list[dict], x: str, figure: str, *, xlabel: str = "", ylabel: str = "",
                 cases: Iterable[str] | None = None, label: Callable[[str], str] = str,
                 names: Callable[[object], str] = str) -> None:
    """A group of bars for each value of the parameter x, in the order of the lines, a bar for each case."""
    width = 0.9 * GROUP_WIDTH / max(1, len(list(cases or figures.cases(lines))))
    for case, shade, place, values in _grouped(axes, lines, x, figure, cases, names):
        axes.bar(place, figures.middle(values), width, color=shade, label=label(case), ecolor=INK, capsize=2,
                 yerr=_whiskers(values))
    _finish(axes, False, xlabel, ylabel or figure)


def marks_by_case(axes, lines: list[dict], x: str, figure: str, *, xlabel: str = "", ylabel: str = "",
                  cases: Iterable[str] | None = None, label: Callable[[str], str] = str,
                  names: Callable[[object], str] = str) -> None:
    """The same with marks over a logarithmic axis, where a bar's length says nothing."""
    shown = list(cases or figures.cases(lines))
    for case, shade, place, values in _grouped(axes, lines, x, figure, cases, names):
        axes.errorbar(place, figures.middle(values), yerr=_whiskers(values), color=shade, label=label(case),
                      marker=MARKERS[shown.index(case) % len(MARKERS)], markersize=7, linestyle="none", capsize=3)
    for between in axes.get_xticks()[:-1]:
        axes.axvline(between + 0.5, color=INK, alpha=0.15, linewidth=0.8)
    _finish(axes, True, xlabel, ylabel or figure)


def _place_legend(axes) -> None:
    """Puts the legend between the title and the axes, where it covers nothing.

    Texts as labels of the y axis take much of the width: then the height of the plot depends on their
    number, and the legend may extend over them as well.
    """
    texts = [label.get_text() for label in axes.get_yticklabels()]
    beside = max(map(len, texts), default=0) > TEXT_MIN
    if beside:
        axes.figure.set_size_inches(INCHES[0], 2 + 0.28 * len(texts))
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(map(figures.public_name, labels), handles))
    if len(unique) < 2:
        return
    longest = max(map(len, unique))
    columns = max(1, min(len(unique), int(LEGEND_POINTS / (48 + 0.6 * LEGEND_SIZE * longest))))
    rows = -(-len(unique) // columns)
    axes.legend(unique.values(), unique.keys(), loc="lower right" if beside else "lower left",
                bbox_to_anchor=(int(beside), 1), ncols=columns, fontsize=LEGEND_SIZE, borderaxespad=0.2,
                borderpad=0.2)
    axes.set_title(axes.get_title(loc="left"), pad=8 + 1.55 * LEGEND_SIZE * rows)


def mark_places(axes, places: list) -> None:
    """Marks the x axis at these numbers, and nowhere else."""
    from matplotlib.ticker import NullLocator

    axes.set_xticks(places, [f"{place:,}" for place in places])
    axes.xaxis.set_minor_locator(NullLocator())


def thousands(axis) -> None:
    """Labels an axis with plain numbers and thousands separators, not with powers of ten."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _place: f"{value:,.10g}"))


def log_scale(axes) -> None:
    """A logarithmic y axis whose ends are 1, 2 or 5 times a power of ten, with plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    steps = [step * 10.0 ** power for power in range(-9, 13) for step in (1, 2, 5)]
    axes.set_ylim(max((one for one in steps if one <= low), default=low),
                  min((one for one in steps if one >= high), default=high))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,), numticks=20))
    axes.yaxis.set_minor_formatter(NullFormatter())
    thousands(axes.yaxis)


def _finish(axes, log_y: bool, xlabel: str, ylabel: str) -> None:
    if log_y:
        log_scale(axes)
    else:
        axes.set_ylim(bottom=0)
        thousands(axes.yaxis)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)


def svg(plot: Plot, *, inline: bool = False) -> str:
    """The plot as SVG, inline for a page (no background, in the page's text colour) or for a file of its own."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=INCHES, layout="tight", facecolor="none" if inline else PAPER)
        FigureCanvasSVG(figure)
        axes = figure.add_subplot(facecolor="none")
        axes.set_title(plot.title)
        plot.draw(axes)
        _place_legend(axes)
        output = io.StringIO()
        figure.savefig(output, format="svg", metadata={"Date": None, "Creator": None})
    text = output.getvalue()
    text = re.sub(r"font: ([^;\"]*)'DejaVu Sans'[^;\"]*", r"font: \1sans-serif", text)
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    if inline:
        text = text[text.index("<svg"):].replace(INK, "currentColor")
        text = re.sub(r'<g id="[^"]*"', "<g", text)  # the page's other plots have the same ids
    return text
