"""The parts of a family of benchmarks; bench/families holds one module for each family.

A family asks one question. Its points are the steps of a series (8 notifiers, 16, ...); at each
point some cases are measured in turn (stock, herald, a peer). The figures that a case returns go to
the raw lines unchanged; tables and plots are made from those lines alone.
"""

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from bench.measuring import measure
from harness.cluster import Cluster

# Autovacuum would load the machine at random moments.
# Messages that all have read are not retained: the disk space that laggards cause is measured.
SETTINGS = {"max_connections": 1300, "shared_buffers": "128MB", "autovacuum": False, "herald.retain_size": 0}


class Skipped(Exception):
    """This case cannot be run here; the message says why, and appears in the report."""


def start_cluster(stack: ExitStack, name: str, settings: dict) -> Cluster:
    """A started cluster, "stock", "herald" or "caches" (pg_herald and pg_herald_cache), with database measure.DBNAME, until
    the stack ends.

    The extensions are created; settings that begin with herald. do not apply to "stock".
    """
    chosen = SETTINGS | {key: value for key, value in settings.items()
                         if name != "stock" or not key.startswith("herald.")}
    cluster = stack.enter_context(Cluster(preload=name != "stock", caches=name == "caches", settings=chosen))
    cluster.psql(f"CREATE DATABASE {measure.DBNAME}")
    if name != "stock":
        cluster.create_herald(measure.DBNAME)
    return cluster


@dataclass
class Context:
    """The servers and parameters for a case."""

    clusters: dict[str, Cluster]  # "stock" and "herald", started
    seconds: float  # duration of one measurement
    quick: bool  # leave out long measurements
    stack: ExitStack  # the family's own: its contexts are left when the family ends
    settings: dict = field(default_factory=dict)  # the user's settings for every cluster
    full: bool = False  # measure at full length
    _further: dict[str, Cluster] = field(default_factory=dict)

    def cluster_with(self, name: str, settings: dict) -> Cluster:
        """A further cluster (as start_cluster() names them) with other settings, started on first use."""
        key = json.dumps([name, settings], sort_keys=True)
        if key not in self._further:
            self._further[key] = start_cluster(self.stack, name, self.settings | settings)
        return self._further[key]


@dataclass(frozen=True)
class Case:
    """One side of a comparison; run returns figures, or raises one of measure.MEASURE_ERRORS or Skipped."""

    name: str
    run: Callable[[Context], dict]
    rounds_max: int | None = None  # for a case that only accompanies others, and needs fewer rounds


@dataclass(frozen=True)
class Point:
    """One step of a family, named by its parameters (which must be JSON)."""

    parameters: dict
    cases: tuple[Case, ...]
    rounds: int | None = None  # None: the number of the run, but
    rounds_min: int = 1  # at least this number
    together: bool = False  # the cases are measured at the same time, each on a cluster of its own


@dataclass(frozen=True)
class Table:
    """A table of the report. Cells may be text or numbers; figures.py formats them."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple]
    note: str = ""


@dataclass(frozen=True)
class Plot:
    """A plot of the report; name is its file name without the suffix."""

    name: str
    title: str
    draw: Callable  # (matplotlib.axes.Axes) -> None
    note: str = ""


def _none(*_lines: list[dict]) -> list:
    return []


@dataclass(frozen=True)
class Family:
    """A question and its measurements. tables() and plots() get this family's measured lines only."""

    name: str
    title: str
    question: str  # one sentence
    points: Callable[[bool], list[Point]]  # (quick) -> points; the first one is what --smoke runs
    tables: Callable[[list[dict]], list[Table]]
    plots: Callable[[list[dict]], list[Plot]] = _none
    full_points: Callable[[], list[Point]] = _none  # further points with --full
    seconds: float = 2  # default duration of one measurement
    quick_seconds: float = 1


def both(run: Callable[..., dict], **parameters) -> tuple[Case, Case]:
    """The cases "stock" and "herald" of run(cluster, seconds, **parameters)."""
    def on(name: str) -> Case:
        return Case(name, lambda context: run(context.clusters[name], context.seconds, **parameters))

    return on("stock"), on("herald")
