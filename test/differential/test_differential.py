"""Guards: clients see the same with pg_herald as on the stock server, whatever they do."""

import os
import signal
import time

import pytest

from pair import EXAMPLES_IN_A_CROWD, crowds, rounds
from player import Difference, NoAnswer, Player
from schedule import Schedule, Step
from statements import plain, schedules_of_encounters

SECONDS = float(os.environ.get("HERALD_DIFFERENTIAL_SECONDS", "25"))
SECONDS_CROWD = float(os.environ.get("HERALD_DIFFERENTIAL_CROWD_SECONDS", "25"))
SEED = os.environ.get("HERALD_DIFFERENTIAL_SEED")


def simple(session: int, *sql: str) -> Step:
    """A step with one query string."""
    return Step(session, "simple", tuple(plain(one) for one in sql))


def test_random_schedules(player):
    """Guards: random schedules. Prints seeds, and a script for psql if the servers differ."""
    assert rounds(player, int(SEED) if SEED else None, SECONDS) > 0
    assert player.notifications > player.steps_played / 10, "hardly anything was notified"


def test_encounters_in_a_crowd(player):
    """Guards: a notification whose sender has been answered before a client runs a query, or UNLISTEN, arrives with the
    answer, however busy the server is with other sessions."""
    with crowds(player):
        assert rounds(player, int(SEED) if SEED else None, SECONDS_CROWD, kind=schedules_of_encounters,
                      examples_each=EXAMPLES_IN_A_CROWD) > 0


@pytest.mark.parametrize("within", ["SELECT 1", "SELECT 1 / 0"])
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK", "COMMIT AND CHAIN"])
def test_end_of_block_and_unlisten_in_one_message(player, within, end):
    """Guards: between the end of a block and an UNLISTEN in the same message, a session is not idle."""
    player.play(Schedule((
        simple(1, "LISTEN a"), simple(1, "BEGIN"), simple(1, within), simple(0, "NOTIFY a"),
        simple(1, end, "UNLISTEN a"), simple(0, "NOTIFY a"))))
    player.play(Schedule((
        simple(1, "LISTEN a"), simple(1, "BEGIN"), simple(1, within), simple(0, "NOTIFY a"),
        simple(1, end, "SELECT 1", "UNLISTEN a", "SELECT 1"), simple(0, "NOTIFY a"))))


@pytest.mark.parametrize("steps, what", [
    ((Step(0, "herald", (plain("NOTIFY barrier, 'only here'"),)),), None),
    ((Step(0, "herald", (plain("LISTEN a"),)), simple(1, "NOTIFY a")), "what connection 0 hears differs"),
    ((Step(0, "herald", (plain("NOTIFY a"),)), simple(1, "NOTIFY a")), "all that was notified differs"),
    ((Step(0, "herald", (plain("BEGIN"),)), simple(0, "SELECT 1")), "the answer to connection 0 differs"),
    ((simple(0, "LISTEN a"), simple(0, "BEGIN", "NOTIFY a"), Step(0, "herald", (plain("COMMIT"),))),
     "the answer to connection 0 differs"),
], ids=["nothing", "heard", "notified", "state", "own"])
def test_finds_a_difference(player, monkeypatch, steps, what):
    """Guards: the player detects what only one server was made to do."""
    monkeypatch.setattr(player, "_allowed", lambda step: True)
    if what is None:
        player.play(Schedule(steps))
        return
    with pytest.raises(Difference, match=what):
        player.play(Schedule(steps))


def test_sees_a_crash(player):
    """Guards: a crash of a server is a difference, and the next schedule is played after its recovery."""
    player.play(Schedule(()))
    os.kill(player.sides[1].sessions[0].pid, signal.SIGKILL)
    with pytest.raises(NoAnswer):
        while True:
            player.play(Schedule((simple(1, "SELECT 1"),)))
    player.play(Schedule((simple(1, "SELECT 1"),)))


def test_expects_silence_in_a_block(player):
    """Guards: a message that a connection receives between its steps is detected."""
    player.play(Schedule((simple(0, "BEGIN"),)))
    session = player.sides[0].sessions[0]
    session.send(("Q", b"SELECT 1\0"))
    player.known[0].in_block = True
    with pytest.raises(Difference, match="unasked"):
        until_difference(player)
    player.connected = False


def until_difference(player: Player) -> None:
    """Checks repeatedly until the answer has arrived, for a limited time."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        player._expect_silence(0)
