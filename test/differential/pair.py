"""A stock server and one with pg_herald, and random schedules for them."""

import random
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.configuration import set_hypothesis_home_dir

from harness import cleanup
from harness.cluster import Cluster
from crowd import crowd
from player import Difference, Player
from schedule import Schedule
from sessions import SETTINGS, SETTINGS_HERALD, Side, prepare_server
from shrink import shrunk
from statements import schedules

EXAMPLES_OF_A_ROUND = 100
EXAMPLES_IN_A_CROWD = 10  # each takes longer to play, and as long to generate
SHRINK_S = 120
CROWD_RATE = 2000  # notifications per second of each sender, at most
RESULTS = Path(__file__).resolve().parent.parent / "results"

set_hypothesis_home_dir(RESULTS / "hypothesis")


@contextmanager
def pair():
    """Yields a Player. Afterwards neither server's log may report damage."""
    cleanup.interrupt_by_signals()  # Hypothesis would try to shrink the cause of a SystemExit
    with Cluster(preload=False, settings=SETTINGS) as stock, \
            Cluster(preload=True, settings=SETTINGS | SETTINGS_HERALD) as herald:
        prepare_server(stock, False)
        prepare_server(herald, True)
        player = Player(Side("stock", stock), Side("herald", herald))
        try:
            yield player
        finally:
            player.close()
        for cluster in (stock, herald):
            assert not cluster.damage()


@contextmanager
def crowds(player: Player):
    """Within, both servers are busy with other sessions, which notify and listen on their own channel."""
    with ExitStack() as stack:
        for side in player.sides:
            stack.enter_context(crowd(side.cluster, rate=CROWD_RATE))
        yield


def rounds(player: Player, first_seed: int | None, seconds: float, tell=print, *, kind=schedules,
           examples_each: int = EXAMPLES_OF_A_ROUND) -> int:
    """Plays rounds of schedules for `seconds`, each with its own seed; returns the number of schedules.

    Raises Difference, for the shrunk schedule. The same first seed gives the same rounds.
    """
    examples = 0
    seeds = random.Random(first_seed) if first_seed is not None else random.SystemRandom()
    end = time.monotonic() + seconds
    next_seed = first_seed if first_seed is not None else seeds.randrange(2 ** 32)
    while time.monotonic() < end:
        examples += one_round(player, next_seed, end, kind, examples_each)
        tell(f"seed {next_seed}: {examples} schedules, {player.steps_played} steps,"
             f" {player.notifications} notifications", flush=True)
        next_seed = seeds.randrange(2 ** 32)
    return examples


def one_round(player: Player, round_seed: int, end: float = float("inf"), kind=schedules,
              examples: int = EXAMPLES_OF_A_ROUND) -> int:
    """Plays one round; returns the number of schedules."""
    played = 0
    failed: tuple[Schedule, Difference] | None = None

    @seed(round_seed)
    @settings(max_examples=examples, deadline=None, database=None, phases=(Phase.generate,),
              suppress_health_check=list(HealthCheck), verbosity=Verbosity.quiet,
              print_blob=False, report_multiple_bugs=False)
    @given(kind())
    def play(schedule):
        nonlocal played, failed
        if time.monotonic() > end or failed:
            return
        played += 1
        try:
            player.play(schedule)
        except Difference as difference:
            failed = schedule, difference

    play()
    if failed:
        schedule, difference = failed
        difference = shortest(player, schedule, difference)
        difference.add_note(f"HERALD_DIFFERENTIAL_SEED={round_seed}")
        raise difference
    return played


def shortest(player: Player, schedule: Schedule, difference: Difference) -> Difference:
    """The difference that the shortest schedule found shows."""
    last = None

    def fails(candidate: Schedule) -> bool:
        nonlocal last
        try:
            player.play(candidate)
        except Difference as another:
            if type(another) is type(difference):
                last = another
                return True
        return False

    if not fails(schedule):
        difference.add_note("It did not happen again.")
        return difference
    shrunk(schedule, fails, SHRINK_S)
    return last
