"""The families of benchmarks, in the order of the report."""

from importlib import import_module

from bench.family import Family

NAMES = ("targets", "signalling", "scalability", "strangers", "duplicates", "huge", "writers", "outbox", "latency",
         "wakeups", "laggard", "mute", "resume", "retain", "readers", "logged", "standby", "memory", "caches",
         "invalidation", "peers", "micro")


def load(names: list[str]) -> list[Family]:
    """The families with these names, in the order of the report."""
    return [import_module(f"bench.families.{name}").FAMILY for name in NAMES if name in names]
