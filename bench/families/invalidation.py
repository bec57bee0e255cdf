"""The queue of invalidations under three policies, old, published, and pg_herald's; without a server."""

import json
import subprocess
from functools import partial
from pathlib import Path

from bench.family import Case, Context, Family, Plot, Point, Table
from bench.measuring.measure import MeasureError
from bench.measuring.programs import build
from bench.reporting import figures, plots

FOLDER = Path(__file__).resolve().parent.parent / "inval"
PROGRAM = FOLDER / "build" / "inval"
TIMEOUT_S = 120

POLICIES = {"old": "old", "published": "as published", "herald": "herald"}
PUBLISHED_GAIN = 1.44  # 485 -> 700 transactions a second
BACKENDS = 40  # of the published test
MESSAGES = 50  # of one transaction: about what CREATE and DROP of a small table make
SIZE = 4096  # messages in the ring, before and after
ROUNDS = 5  # of the published test
WORK = 500_000  # steps of some 1.3 ns: about a transaction's worth of CPU time

# The loads: number of backends, how many of them are active, steps of work. The first is the published test.
LOADS = {"40 backends": (BACKENDS, BACKENDS, WORK), "10 backends": (10, 10, WORK),
         "20 backends": (20, 20, WORK), "80 backends": (80, 80, WORK),
         "short transactions": (BACKENDS, BACKENDS, WORK // 5),
         "long transactions": (BACKENDS, BACKENDS, 4 * WORK), "32 of 40 idle": (BACKENDS, 8, WORK)}
QUICK_LOADS = ("40 backends", "32 of 40 idle")
AT_40 = ("short transactions", "40 backends", "long transactions", "32 of 40 idle")


def _run(context: Context, policy: str, load: str) -> dict:
    """The program's counts, and these per transaction, per second or per read.

    delivered       no message was missed without a reset
    waiting_share   the share of waiting for the lock in the time of all active backends
    """
    build(FOLDER)
    backends, active, work = LOADS[load]
    command = [str(PROGRAM), policy, "--backends", str(backends), "--active", str(active),
               "--work", str(work), "--size", str(SIZE), "--messages", str(MESSAGES),
               "--seconds", f"{context.seconds:g}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if result.returncode != 0:
        raise MeasureError(result.stderr.strip() or f"{command} ended with {result.returncode}")
    counted = json.loads(result.stdout)
    transactions, elapsed_s = max(1, counted["transactions"]), counted["elapsed_s"]
    acquired = counted["shared"] + counted["exclusive"]
    return {
        "tps": counted["transactions"] / elapsed_s,
        "delivered": counted["missed"] == 0,
        "resets_per_s": counted["resets"] / elapsed_s,
        "signals_per_s": counted["signals"] / elapsed_s,
        "catch_ups_per_s": counted["catch_ups"] / elapsed_s,
        "messages_per_read": counted["messages"] / max(1, counted["reads"]),
        "rebuilt_per_transaction": counted["rebuilt"] / transactions,
        "shared_per_transaction": counted["shared"] / transactions,
        "exclusive_per_transaction": counted["exclusive"] / transactions,
        "waits_per_transaction": counted["waits"] / transactions,
        "wait_share": counted["waits"] / max(1, acquired),
        "waiting_share": counted["waited_ns"] / 1e9 / elapsed_s / active,
        "switches_per_transaction": counted["switches"],
        "cpu_us": counted["cpu_us"],
        "work_us": counted["work_us"],
        "counted": counted,
    }


def points(quick: bool) -> list[Point]:
    """Each load under every policy."""
    return [Point({"load": load, "backends": LOADS[load][0]},
                  tuple(Case(policy, partial(_run, policy=policy, load=load)) for policy in POLICIES),
                  rounds=ROUNDS if load == "40 backends" and not quick else None)
            for load in (QUICK_LOADS if quick else LOADS)]


def _tps_row(lines: list[dict], point: dict) -> tuple:
    def tps(policy: str) -> str:
        return figures.with_spread(figures.values(lines, "tps", policy, **point))

    def gain(policy: str) -> str:
        return figures.ratio(figures.ratios(lines, "tps", subject=policy, baseline="old", **point))

    work_us = figures.middle(figures.values(lines, "work_us", **point))
    cpu = figures.ratios(lines, "cpu_us", subject="old", baseline="herald", **point)
    return (point["load"], str(point["backends"]), work_us, tps("old"), tps("published"), gain("published"),
            tps("herald"), gain("herald"), figures.ratio(cpu))


COUNTS = {
    "resets/s": "resets_per_s", "entries rebuilt": "rebuilt_per_transaction", "signals/s": "signals_per_s",
    "catch-ups/s": "catch_ups_per_s", "messages per read": "messages_per_read",
    "lock, shared": "shared_per_transaction", "alone": "exclusive_per_transaction",
    "had to wait": "waits_per_transaction", "waiting": "waiting_share",
    "context switches": "switches_per_transaction", "CPU, µs": "cpu_us",
}


def _count_row(lines: list[dict], point: dict, policy: str) -> tuple:
    middles = {column: figures.middle(figures.values(lines, figure, policy, **point))
               for column, figure in COUNTS.items()}
    middles["waiting"] = figures.percent(middles["waiting"])
    return (point["load"], POLICIES[policy], *middles.values())


def tables(lines: list[dict]) -> list[Table]:
    """Throughput, and the work of each policy."""
    return [
        Table("Transactions a second, by the policy of the queue",
              ("load", "backends", "own work, µs", "old", "as published", "/ old", "herald", "/ old",
               "CPU: old / herald"),
              [_tps_row(lines, point) for point in figures.points(lines)],
              "Processes, signals and a lock, no server. A transaction works, looks ten times whether others "
              f"have invalidated something, and inserts {MESSAGES} messages; the ring holds {SIZE:,}. Old: "
              "a message for each acquisition of the lock, clean-up by whoever has read, everybody signalled "
              "when the ring is 7/10 full, everybody reset when it is full. As published: up to 32 messages "
              "for each acquisition, one signalled at a time, only those reset who were overrun. herald: the "
              f"same, and readers take no lock. Published were 485 and 700 tps: {PUBLISHED_GAIN:g}. CPU: the "
              "time for a transaction, which other users of the machine disturb least."),
        Table("What that takes", ("load", "policy", *COUNTS),
              [_count_row(lines, point, policy) for point in figures.points(lines) for policy in POLICIES],
              "Rebuilt entries, acquisitions of the lock, waits, context switches and CPU time (all of it, "
              "own work included) are for a transaction. Waiting: the share of the active backends' time. A "
              "catch-up is a read because of a signal."),
    ]


def _draw_backends(axes, lines: list[dict]) -> None:
    alike = [line for line in lines if line["point"]["load"].endswith("backends")]
    plots.line_by_case(axes, alike, "backends", "tps", log_y=False, xlabel="backends, all of them active",
                       ylabel="transactions per second", cases=POLICIES, label=POLICIES.get)


def _draw_loads(axes, lines: list[dict], figure: str, ylabel: str) -> None:
    shown = [line for load in AT_40 for line in figures.select(lines, load=load)]
    plots.marks_by_case(axes, shown, "load", figure, ylabel=ylabel, cases=POLICIES, label=POLICIES.get,
                        names=lambda load: load.replace(" ", "\n", 1))


def plots_of(lines: list[dict]) -> list[Plot]:
    """Throughput over backends; throughput, CPU time and contention by the load."""
    return [
        Plot("invalidation_backends", "Transactions, by the policy of the queue",
             partial(_draw_backends, lines=lines)),
        Plot("invalidation_loads", f"The same with {BACKENDS} backends, by what they do",
             partial(_draw_loads, lines=lines, figure="tps", ylabel="transactions per second")),
        Plot("invalidation_cpu", f"CPU time for a transaction, own work included, {BACKENDS} backends",
             partial(_draw_loads, lines=lines, figure="cpu_us", ylabel="µs")),
        Plot("invalidation_switches", f"Context switches for a transaction, {BACKENDS} backends",
             partial(_draw_loads, lines=lines, figure="switches_per_transaction",
                     ylabel="for each transaction")),
    ]


FAMILY = Family(
    name="invalidation",
    title="Policies of the invalidation queue",
    question="What do turns to catch up, single resets and clean-up by inserters buy?",
    points=points, tables=tables, plots=plots_of, seconds=1, quick_seconds=0.5)
