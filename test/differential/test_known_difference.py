"""The documented difference, which random schedules avoid.

A session that already listens runs LISTEN for another channel. A stock server delivers what was
committed on that channel after the session last read, and before this LISTEN took effect, although
the documentation says that LISTEN takes effect at its commit (up to 18; from 19 on it depends on
which other sessions listen). pg_herald delivers only what is committed after it.
"""

import pytest

from player import Difference
from schedule import SYNC, Schedule, Step
from statements import plain


def simple(session: int, sql: str, **known) -> Step:
    """A step with one statement."""
    return Step(session, "simple", (plain(sql, **known),))


LISTEN_A = {"listens": frozenset("a"), "changes": True}
NOTIFY_A = {"notifies": frozenset("a")}
MISSED_BEFORE = (simple(0, "BEGIN"), simple(1, "NOTIFY a", **NOTIFY_A), simple(0, "LISTEN a", **LISTEN_A),
                 simple(0, "COMMIT", ends=True))
MISSED_AFTER = (simple(0, "BEGIN"), simple(0, "LISTEN a", **LISTEN_A), simple(1, "NOTIFY a", **NOTIFY_A),
                simple(0, "COMMIT", ends=True))
MISSED_OWN = (Step(0, "simple", (plain("BEGIN"), plain("NOTIFY a", **NOTIFY_A), plain("COMMIT", ends=True),
                                 plain("LISTEN a", **LISTEN_A))),)
# Stock would have read the session's own notification, if another transaction had not followed at once.
MISSED_CHAINED = (simple(0, "NOTIFY a", **NOTIFY_A), simple(0, "BEGIN"), simple(0, "NOTIFY a", **NOTIFY_A),
                  simple(0, "COMMIT AND CHAIN", ends=True), simple(0, "LISTEN a", **LISTEN_A),
                  simple(0, "COMMIT", ends=True))
# The session listens only since the previous transaction of the chain.
MISSED_IN_CHAIN = (simple(0, "UNLISTEN *", changes=True), simple(0, "BEGIN"),
                   simple(0, "LISTEN b", listens=frozenset("b"), changes=True),
                   simple(0, "COMMIT AND CHAIN", ends=True), simple(1, "NOTIFY a", **NOTIFY_A),
                   simple(0, "LISTEN a", **LISTEN_A), simple(0, "COMMIT", ends=True))
# The same in a pipeline, whose Sync has ended the previous transaction.
MISSED_IN_PIPELINE = (simple(0, "UNLISTEN *", changes=True),
                      Step(0, "pipeline", (plain("LISTEN b", listens=frozenset("b"), changes=True), SYNC,
                                           plain("BEGIN"), SYNC)),
                      simple(1, "NOTIFY a", **NOTIFY_A), simple(0, "LISTEN a", **LISTEN_A),
                      simple(0, "COMMIT", ends=True))
CASES = pytest.mark.parametrize(
    "steps", [MISSED_BEFORE, MISSED_AFTER, MISSED_OWN, MISSED_CHAINED, MISSED_IN_CHAIN, MISSED_IN_PIPELINE],
    ids=["notified before", "notified after", "own", "own, chained", "in a chain", "in a pipeline"])


@CASES
def test_stock_delivers_what_came_before_its_listen(player, monkeypatch, steps):
    """Guards: pg_herald delivers nothing from before the LISTEN. (The stock server may.)"""
    monkeypatch.setattr(player, "_allowed", lambda step: True)
    try:
        player.play(Schedule(steps))
    except Difference as difference:
        assert "('A', " in str(difference).split("\n  herald")[0]
        assert "('A', " not in str(difference).split("\n  herald")[1]
        return
    version = int(player.sides[0].controls[0].ask("SHOW server_version_num")[1][1][6:])
    assert version >= 190000, "documented as a difference, but there is none"


@CASES
def test_it_is_left_out(player, steps):
    """Guards: random schedules avoid the difference."""
    before = player.steps_played
    player.play(Schedule(steps))
    assert player.steps_played - before < len(steps) + 4  # the 4 are ROLLBACKs
