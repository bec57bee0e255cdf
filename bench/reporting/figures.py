"""From raw lines to the numbers and texts of tables: groups, medians, spreads, ratios.

A line is one measurement: {"point": {...}, "case": "stock", "round": 0, "figures": {"tps": ...}}.
Functions that take lines and the name of a figure ignore lines without that figure.
"""

import re
from collections.abc import Callable, Iterable
from math import comb
from statistics import mean, median, stdev

NOTHING = "–"  # the cell of a figure that was not measured
INTERVAL_ROUNDS_MIN = 6  # with fewer rounds, not even the lowest and the highest bound a 95 % interval
MET, MISSED, NO_VERDICT = "✓ met", "✗ MISSED", "? no verdict"


class Ratio(str):
    """A ratio as text, with its median as a number."""

    middle: float | None = None


def points(lines: Iterable[dict]) -> list[dict]:
    """The points that were measured, in the order of the lines."""
    found: list[dict] = []
    for line in lines:
        if line["point"] not in found:
            found.append(line["point"])
    return found


def cases(lines: Iterable[dict]) -> list[str]:
    """The cases that were measured; stock and herald first, the others in the order of the lines."""
    found = dict.fromkeys(line["case"] for line in lines)
    return [name for name in ("stock", "herald") if name in found] + [
        name for name in found if name not in ("stock", "herald")]


def select(lines: Iterable[dict], case: str | None = None, **point) -> list[dict]:
    """The lines of a case at the points that have these parameters."""
    return [line for line in lines if (case is None or line["case"] == case)
            and all(line["point"].get(key) == value for key, value in point.items())]


def values(lines: Iterable[dict], figure: str, case: str | None = None, **point) -> list[float]:
    """A figure, from every round of a case at a point."""
    return [line["figures"][figure] for line in select(lines, case, **point)
            if line.get("figures", {}).get(figure) is not None]


def group(lines: Iterable[dict], figure: str) -> list[tuple[dict, dict[str, list[float]]]]:
    """For every point, the values of a figure by case: [({"notifiers": 8}, {"stock": [..]}), ...]."""
    lines = list(lines)
    return [(point, {case: values(at, figure, case) for case in cases(at)})
            for point in points(lines)
            for at in [[line for line in lines if line["point"] == point]]]


def ratios(lines: Iterable[dict], figure: str, subject: str = "herald", baseline: str = "stock",
           **point) -> list[float]:
    """subject / baseline of every round that measured both.

    The measurements of one round are close together in time, so a temporary slowdown of the machine
    affects both; the median of these ratios is the one to show.
    """
    return [of / to for of, to in _pairs(lines, figure, subject, baseline, **point) if to]


def differences(lines: Iterable[dict], figure: str, subject: str, baseline: str, **point) -> list[float]:
    """subject - baseline of every round that measured both."""
    return [of - to for of, to in _pairs(lines, figure, subject, baseline, **point)]


def _pairs(lines: Iterable[dict], figure: str, subject: str, baseline: str, **point) -> list[tuple[float, float]]:
    rounds: dict[int, dict[str, float]] = {}
    for line in select(lines, **point):
        value = line.get("figures", {}).get(figure)
        if value is not None:
            rounds.setdefault(line["round"], {})[line["case"]] = value
    return [(one[subject], one[baseline]) for _, one in sorted(rounds.items()) if subject in one and baseline in one]


def public_name(text: str) -> str:
    """A heading or a label for readers: a leading "herald", as in the cases, becomes "pg_herald"; settings stay."""
    return re.sub(r"^herald\b(?!\.)", "pg_herald", text)


def middle(numbers: list[float]) -> float | None:
    """The median; None if there are no numbers."""
    return median(numbers) if numbers else None


def median_interval(numbers: list[float]) -> tuple[float, float]:
    """The interval of the true median at 95 % confidence: it lies between two of the sorted numbers.

    A number is below the true median with probability 1/2, so the count of those below is binomial. With
    fewer than INTERVAL_ROUNDS_MIN numbers: the lowest and the highest, at a lower confidence.
    """
    ordered = sorted(numbers)
    below, outside = 0, 2 / 2 ** len(ordered)
    while (more := outside + 2 * comb(len(ordered), below + 1) / 2 ** len(ordered)) <= 0.05:
        below, outside = below + 1, more
    return ordered[below], ordered[-1 - below]


def average(numbers: list[float]) -> float | None:
    """The arithmetic mean; None if there are no numbers."""
    return mean(numbers) if numbers else None


def deviation(numbers: list[float]) -> float | None:
    """The standard deviation of a sample; None for fewer than two numbers."""
    return stdev(numbers) if len(numbers) > 1 else None


def number(value: float | None, unit: str = "") -> str:
    """A number for people: at least three significant digits, with thousands separators."""
    if value is None:
        return NOTHING
    size = abs(value)
    digits = 0 if size >= 100 or value == int(value) else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{digits}f}{' ' + unit if unit else ''}"


def with_spread(numbers: list[float], unit: str = "") -> str:
    """The median and the range of the rounds: "1,234 tps (1,200–1,250)"."""
    if not numbers:
        return NOTHING
    text = number(middle(numbers), unit)
    low, high = number(min(numbers)), number(max(numbers))
    return text if low == high else f"{text} ({low}–{high})"


def ratio(numbers: list[float]) -> Ratio:
    """The median of ratios and their spread, with more digits below 2: "5.0 (4.8–5.2)".

    In brackets: with fewer than INTERVAL_ROUNDS_MIN rounds their range, otherwise the 95 % interval
    of the true median.
    """
    if not numbers:
        return Ratio(NOTHING)
    digits = 3 if middle(numbers) < 2 else 1
    low, high = median_interval(numbers)
    low, at, high = (f"{one:,.{digits}f}" for one in (low, middle(numbers), high))
    text = Ratio(at if low == high else f"{at} ({low}–{high})")
    text.middle = middle(numbers)
    return text


def verdict(numbers: list[float], reached: Callable[[float], bool]) -> str:
    """Whether the median reaches a target; no verdict if the rounds are too few for an interval."""
    if not numbers:
        return ""
    if len(numbers) < INTERVAL_ROUNDS_MIN:
        return f"{NO_VERDICT}: {len(numbers)} of {INTERVAL_ROUNDS_MIN} rounds"
    return MET if reached(middle(numbers)) else MISSED


def percent(share: float | None) -> str:
    """A share, from 0 to 1, in percent."""
    return NOTHING if share is None else f"{100 * share:.1f} %"


def difference(subject: float | None, baseline: float | None) -> str:
    """The difference of the subject to the baseline, in percent of the baseline: "+24.9 %"."""
    if subject is None or not baseline:
        return NOTHING
    return f"{100 * (subject / baseline - 1):+,.1f} %"
