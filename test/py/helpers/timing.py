"""Comparisons of times. A time is compared with another one in the same run: no bound in seconds holds on every
machine, and beside whatever else it does."""

import time
from collections.abc import Callable

ATTEMPTS = 5


def seconds(action: Callable[[], object]) -> float:
    """How long the action takes."""
    began = time.monotonic()
    action()
    return time.monotonic() - began


def one_within(pair: Callable[[], tuple[float, float]], factor: float, attempts: int = ATTEMPTS) -> None:
    """Measures two times, repeatedly, until the first is at most `factor` times the second; fails if it never is."""
    measured = []
    while len(measured) < attempts:
        measured.append(pair())
        print(f"{measured[-1][0] * 1000:.2f} ms, beside it {measured[-1][1] * 1000:.2f} ms")
        if measured[-1][0] <= factor * measured[-1][1]:
            return
    shown = ", ".join(f"{ours * 1000:.1f} and {theirs * 1000:.1f}" for ours, theirs in measured)
    raise AssertionError(f"in no attempt at most {factor} times as long as what is beside it, in ms: {shown}")


def as_fast(measured: Callable[[], float], beside: Callable[[], float], factor: float, attempts: int = ATTEMPTS) -> None:
    """The same with two functions, which are measured alternately."""
    one_within(lambda: (measured(), beside()), factor, attempts)
