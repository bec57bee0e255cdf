"""The scenarios, named by topology, and the targets that they are held to.

A scenario compares a subject with a baseline in the same run. Where nothing else is said the
baseline is the stock server and the subject is the one with pg_herald.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bench import measure


@dataclass(frozen=True)
class Target:
    """What the ratio subject / baseline must reach."""

    ratio: float
    at_least: bool = True

    def met(self, ratio: float) -> bool:
        return ratio >= self.ratio if self.at_least else ratio <= self.ratio

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.ratio:g}"


@dataclass(frozen=True)
class Case:
    """One side of a comparison."""

    name: str
    cluster: str  # "stock" or "herald"
    run: Callable  # (cluster, seconds) -> dict, see measure.py


@dataclass(frozen=True)
class Scenario:
    """What is measured, in which unit, and what it is held to."""

    name: str
    title: str
    unit: str
    baseline: Case
    subject: Case
    target: Target | None = None
    beside: tuple[Case, ...] = ()  # for the reader only
    rounds_factor: int = 1  # more rounds than --repeat asks for ...
    seconds_factor: float = 1  # ... each shorter

    @property
    def cases(self) -> tuple[Case, ...]:
        return (self.baseline, self.subject, *self.beside)


def _both(name: str, title: str, unit: str, run: Callable, target: Target | None = None) -> Scenario:
    return Scenario(name, title, unit, Case("stock", "stock", run), Case("herald", "herald", run), target)


def _topology(name: str, title: str, target: float | None, **parameters) -> Scenario:
    return _both(name, title, "tps", partial(measure.topology, **parameters),
                 Target(target) if target else None)


def _insert_notify(name: str, disk: str, commit_delay_us: int = 0) -> Scenario:
    def run(script: str) -> Callable:
        return partial(measure.insert, script=script, commit_delay_us=commit_delay_us)

    alone = run("insert")
    notify = run("insert_notify")
    no_op = run("insert_and_no_op")  # what any second statement costs
    return Scenario(name, f"INSERT + NOTIFY against INSERT alone, 32 clients, synchronous_commit on{disk}",
                    "tps", Case("INSERT, herald", "herald", alone),
                    Case("INSERT + NOTIFY, herald", "herald", notify), Target(0.97),
                    beside=(Case("INSERT + NOTIFY, stock", "stock", notify),
                            Case("INSERT + a statement that does nothing, herald", "herald", no_op)))


def _commit_latency() -> Scenario:
    one = partial(measure.latency, listeners=1, of="commit_us")
    many = partial(measure.latency, listeners=300, of="commit_us")
    return Scenario("commit_latency", "commit of a NOTIFY every 20 ms, 300 listeners against 1, median",
                    "us", Case("1 listener, herald", "herald", one),
                    Case("300 listeners, herald", "herald", many), Target(1.2, at_least=False),
                    beside=(Case("300 listeners, stock", "stock", many),))


def _idle_cost() -> Scenario:
    run = measure.select_only
    return Scenario("idle_cost", "pgbench -S -M prepared, scale 10: loaded but unused against not loaded",
                    "tps", Case("not loaded", "stock", run), Case("loaded, unused", "herald", run),
                    Target(0.99), rounds_factor=40, seconds_factor=0.04)


SCENARIOS = (
    _topology("one_to_one", "1 notifier, 1 listener", 1.8, notifiers=1, listeners=1),
    _topology("eight_to_one", "8 notifiers, 1 listener", 2.5, notifiers=8, listeners=1),
    _topology("thirtytwo_to_one", "32 notifiers, 1 listener", 4.5, notifiers=32, listeners=1),
    _topology("hundred_to_one", "100 notifiers, 1 listener", 5, notifiers=100, listeners=1),
    _topology("one_to_hundred", "1 notifier, 100 listeners, one channel", 50,
              notifiers=1, listeners=100),
    _topology("hundred_to_hundred", "100 notifiers, 100 listeners, one channel", 30,
              notifiers=100, listeners=100),
    _topology("hundred_to_hundred_own_channels", "100 notifiers, 100 listeners, a channel for each", 28,
              notifiers=100, listeners=100, channel="channel_%d", script="notify_channel_client_id"),
    _topology("eight_to_three_hundred", "8 notifiers, 300 listeners, one channel", 80,
              notifiers=8, listeners=300),
    _insert_notify("insert_notify", ""),
    _insert_notify("insert_notify_slower_disk", ", a flush takes 2 ms longer", commit_delay_us=2000),
    _commit_latency(),
    _both("last_listener_latency", "the last of 300 listeners hears it, median", "us",
          partial(measure.latency, listeners=300, of="last_us"), Target(1.0, at_least=False)),
    _idle_cost(),
    _topology("thousand_listeners", "1 notifier, 1,000 listeners, one channel", None,
              notifiers=1, listeners=1000),
    _topology("hundred_thousand_channels", "8 notifiers; 100 listeners to 1,000 channels each", None,
              notifiers=8, listeners=100, channel="channel_%d", channels_each=1000,
              script="notify_random_channel"),
    _both("thirty_thousand_channels_one_backend", "LISTEN to 30,000 channels in one transaction", "ms",
          partial(measure.listen_time, channels=30000), Target(1.0, at_least=False)),
)
