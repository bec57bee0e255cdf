"""Measures several builds of pg_herald against each other, and the stock server, in one run; bench/compare starts it.

Each build comes from a tree of its own (a folder, or a revision of this repository). A cluster of each stands
beside the others; one at a time is under load. Each measurement goes through all of them in random order, so that what
slows the machine for a while slows all. Raw lines go to bench/results/<time>-compare.jsonl, a table in Markdown to the
screen: the first build's median, and for each other one the ratio to it.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.family import SETTINGS
from bench.measuring import measure
from bench.measuring.bystander import bystander, steady_commit
from bench.measuring.resume import reconnect
from bench.measuring.strangers import ATTACKS, stranger
from bench.measuring.wakeups import wakeups
from bench.reporting import figures
from bench.runner import RESULTS
from harness import server_user
from harness.cluster import Cluster

TOP = Path(__file__).resolve().parent.parent
STOCK = "stock"
ROUNDS = 4
SECONDS = 1.5
RESUME_RATE = 5_000  # NOTIFY per second, of the others


@dataclass(frozen=True)
class Measurement:
    """What is measured, and which of its figures are shown: (the text of a row, the figure's name, its unit's factor)."""

    name: str
    run: Callable[[Cluster, float], dict]
    shown: tuple[tuple[str, str], ...]


def _topology(name: str, **parameters) -> Measurement:
    return Measurement(name, partial(_with_cpu, **parameters), (
        (f"{name}, tps", "tps"), (f"{name}: CPU, µs a delivery", "cpu_us_a_delivery")))


def _with_cpu(cluster: Cluster, seconds: float, **parameters) -> dict:
    found = measure.topology(cluster, seconds, **parameters)
    return found | {"cpu_us_a_delivery": found["cpu_server_s"] * 1e6 / max(1, found["count"]["notifications"])}


def _latency(cluster: Cluster, seconds: float, listeners: int) -> dict:
    found = measure.latency(cluster, seconds, listeners=listeners, of="last_us", interval_ms=47)
    return found | {f"{name}_us": found["probe"][f"{name}_us"]["p50"] for name in ("commit", "first", "last")}


def _wakeups(cluster: Cluster, seconds: float, listeners: int) -> dict:
    """Only a server with pg_herald counts them."""
    if "shared_preload_libraries" not in cluster.settings:
        return {}
    found = wakeups(cluster, seconds, notifiers=1, listeners=listeners, counts=True)
    return found | {"wakeups_a_delivery": 1 / found["messages_per_wakeup"]}


def _resume(cluster: Cluster, seconds: float, clients: int, missed: int) -> dict:
    """Only a server with pg_herald has positions."""
    if "shared_preload_libraries" not in cluster.settings:
        return {}
    found = reconnect(cluster, seconds, way="herald", clients=clients, missed=missed, rate=RESUME_RATE)
    return found | {"caught_up_ms": found["caught_up_s"] * 1e3}


def _resumes(clients: int, missed: int) -> Measurement:
    name = f"{clients:,} resume, {missed:,} each"
    return Measurement(name, partial(_resume, clients=clients, missed=missed), (
        (f"{name}: caught up, ms", "caught_up_ms"), (f"{name}: NOTIFY/s of others", "tps")))


MEASUREMENTS = (
    _topology("1 → 1", notifiers=1, listeners=1),
    _topology("8 → 1", notifiers=8, listeners=1),
    _topology("32 → 1", notifiers=32, listeners=1),
    _topology("100 → 1", notifiers=100, listeners=1),
    _topology("1 → 100", notifiers=1, listeners=100),
    _topology("100 → 100", notifiers=100, listeners=100),
    _topology("100 → 100, own channels", notifiers=100, listeners=100, channel="channel_%d",
              script="notify_channel_client_id"),
    _topology("8 → 300", notifiers=8, listeners=300),
    Measurement("300 listeners", partial(_latency, listeners=300), (
        ("300 listeners: commit, µs", "commit_us"), ("the first, µs", "first_us"), ("the last, µs", "last_us"))),
    Measurement("a client that sleeps", partial(steady_commit, listeners=300, busy=False), (
        ("commit, a client that sleeps, µs", "value"),)),
    Measurement("a client that is busy", partial(steady_commit, listeners=300, busy=True), (
        ("commit, a client that is busy, µs", "value"),)),
    Measurement("bystander", partial(bystander, listeners=300), tuple(
        (f"bystander, {part}, µs", f"{part}_us") for part in ("p50", "p90", "p99"))),
    Measurement("wakeups", partial(_wakeups, listeners=100), (("1 → 100: wakeups a delivery", "wakeups_a_delivery"),)),
    _resumes(clients=1, missed=100_000),
    _resumes(clients=100, missed=1_000),
    *(Measurement(f"beside: {attack}", partial(stranger, attack=attack), tuple(
        (f"beside {attack}: {part}, µs", f"received_us_{part}") for part in ("p50", "p99"))) for attack in ATTACKS),
)


def parse_arguments() -> argparse.Namespace:
    """The command line; ends the program if it is wrong."""
    parser = argparse.ArgumentParser(prog="bench/compare", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("builds", nargs="+", metavar="NAME=TREE", help="a folder, or a revision; the first is the reference")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help="of each measurement")
    parser.add_argument("--only", metavar="TEXT", help="measurements whose name has this text in it")
    arguments = parser.parse_args()
    if any("=" not in build for build in arguments.builds):
        parser.error("a build is NAME=TREE")
    arguments.builds = dict(build.split("=", 1) for build in arguments.builds)
    return arguments


def tree_of(text: str, stack: ExitStack) -> Path:
    """The folder itself, or a copy of a revision that goes with the stack."""
    if Path(text).is_dir():
        return Path(text).resolve()
    folder = server_user.make_folder()
    stack.callback(subprocess.run, ["rm", "-rf", str(folder)], check=True)
    tree = folder / "tree"
    subprocess.run(["git", "clone", "--quiet", str(TOP), str(tree)], check=True)
    subprocess.run(["git", "-C", str(tree), "checkout", "--quiet", text], check=True)
    return tree


def start(name: str, tree: Path | None, stack: ExitStack) -> Cluster:
    """A cluster of the stock server, or with the module that a tree builds."""
    pg_config = None
    if tree:
        environment = {key: value for key, value in os.environ.items() if key != "PG_CONFIG"}
        built = subprocess.run([sys.executable, "-m", "harness.prefix"], cwd=tree, text=True, check=True,
                               stdout=subprocess.PIPE, env=environment)
        pg_config = built.stdout.strip()
    settings = SETTINGS if tree else {key: value for key, value in SETTINGS.items() if not key.startswith("herald.")}
    settings = {key: value for key, value in settings.items() if key != "herald.retain_size"}
    cluster = stack.enter_context(Cluster(preload=bool(tree), settings=settings, pg_config=pg_config))
    cluster.psql(f"CREATE DATABASE {measure.DBNAME}")
    if tree:
        cluster.create_herald(measure.DBNAME)
    print(f"{name}: {tree or 'no module'}", flush=True)
    return cluster


def table(lines: list[dict], chosen: list[Measurement], names: list[str]) -> str:
    """The rows: the reference's median, the ratios of the others to it."""
    reference, *others = names
    rows = [f"| | {reference} | {' | '.join(others)} |", f"|---|{'---|' * len(names)}"]
    for measurement in chosen:
        own = figures.select(lines, measurement=measurement.name)
        for text, figure in measurement.shown:
            cells = [figures.with_spread(figures.values(own, figure, reference))]
            cells += [figures.ratio(figures.ratios(own, figure, other, reference)) for other in others]
            rows.append(f"| {text} | {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def main() -> int:
    """The whole run; the exit status."""
    arguments = parse_arguments()
    chosen = [one for one in MEASUREMENTS if not arguments.only or arguments.only in one.name]
    RESULTS.mkdir(exist_ok=True)
    results = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S')}-compare.jsonl"
    lines: list[dict] = []
    with ExitStack() as stack, open(results, "a", encoding="utf-8") as file:
        clusters = {name: start(name, tree_of(text, stack), stack) for name, text in arguments.builds.items()}
        clusters[STOCK] = start(STOCK, None, stack)
        for number in range(arguments.rounds):
            for measurement in random.sample(chosen, len(chosen)):
                for name in random.sample(list(clusters), len(clusters)):
                    line = {"kind": "measurement", "family": "compare", "case": name, "round": number,
                            "point": {"measurement": measurement.name}}
                    try:
                        line["figures"] = measurement.run(clusters[name], arguments.seconds)
                        if line["figures"].get("delivered") is False:
                            line["error"] = "NOT ALL DELIVERED"
                    except measure.MEASURE_ERRORS as error:
                        line["error"] = str(error)
                    if "error" in line:
                        print(f"{measurement.name}, {name}: {line['error']}", flush=True)
                    lines.append(line)
                    print(json.dumps(line), file=file, flush=True)
            print(f"round {number + 1} of {arguments.rounds}, {time.strftime('%H:%M:%S')}", flush=True)
    print(table(lines, chosen, list(clusters)))
    return 1 if any("error" in line for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
