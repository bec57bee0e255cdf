"""Makes a failing schedule as short as possible, by removing steps, and statements of steps.

Hypothesis can do that too, but takes minutes where this takes seconds: for Hypothesis a schedule is
thousands of choices, and each attempt costs the time to play a schedule.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from schedule import Schedule


def shrunk(schedule: Schedule, fails: Callable[[Schedule], bool], seconds: float) -> Schedule:
    """The shortest schedule found within this time for which `fails` is still true."""
    end = time.monotonic() + seconds

    def still_fails(candidate: Schedule) -> bool:
        return time.monotonic() < end and fails(candidate)

    before = None
    while before != schedule:
        before = schedule
        schedule = replace(schedule, steps=fewest(
            schedule.steps, lambda steps: still_fails(replace(schedule, steps=steps))))
        for place, step in enumerate(schedule.steps):
            def with_statements(statements: tuple, place: int = place) -> Schedule:
                changed = replace(schedule.steps[place], statements=statements)
                steps = schedule.steps[:place] + (changed,) + schedule.steps[place + 1:]
                return replace(schedule, steps=steps)

            schedule = with_statements(fewest(
                step.statements, lambda some: len(some) > 0 and still_fails(with_statements(some))))
    return schedule


def fewest(items: tuple, fails: Callable[[tuple], bool]) -> tuple:
    """Removes halves, quarters, ... single items as long as it fails without them."""
    size = len(items)
    while size > 0:
        place = 0
        while place < len(items):
            without = items[:place] + items[place + size:]
            if fails(without):
                items = without
            else:
                place += size
        size //= 2
    return items
