"""Guards: a failing schedule is reduced to the part that is needed to fail."""

from schedule import Schedule, Step
from shrink import shrunk
from statements import plain


def test_shrunk():
    """Guards: needless steps and statements are removed; the others remain, in order."""
    def fails(schedule: Schedule) -> bool:
        said = [(step.session, statement.sql) for step in schedule.steps for statement in step.statements]
        return (1, "b") in said and (2, "c") in said[said.index((1, "b")):]

    noise = tuple(Step(number % 3, "simple", (plain("x"), plain("y"))) for number in range(37))
    needed = (Step(1, "simple", (plain("a"), plain("b"))), Step(2, "pipeline", (plain("c"), plain("d"))))
    schedule = Schedule(noise + needed[:1] + noise + needed[1:] + noise)
    assert shrunk(schedule, fails, 60) == Schedule(
        (Step(1, "simple", (plain("b"),)), Step(2, "pipeline", (plain("c"),))))


def test_no_time():
    """Guards: when the time is over, the schedule found so far is returned."""
    schedule = Schedule((Step(0, "simple", (plain("x"),)),))
    assert shrunk(schedule, lambda _: True, 0) == schedule
