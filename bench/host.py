"""Describes the machine and the parameters of a run."""

import os
import platform
import subprocess
import time
from pathlib import Path

from harness.cluster import Cluster

TOP = Path(__file__).resolve().parent.parent


def _first(path: str, key: str) -> str:
    try:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key:
                return value.strip()
    except OSError:
        pass
    return "unknown"


def _commit() -> str:
    try:
        result = subprocess.run(["git", "-C", str(TOP), "describe", "--always", "--dirty", "--abbrev=12"],
                                capture_output=True, text=True)
    except FileNotFoundError:  # git itself is missing
        return "unknown"
    return result.stdout.strip() or "unknown"


def describe(clusters: dict[str, Cluster], dbname: str, parameters: dict) -> dict:
    """Host, versions and parameters of a run, for the first line of its results."""
    herald = clusters["herald"]
    version = herald.psql("SELECT extversion FROM pg_extension WHERE extname = 'pg_herald'", dbname)
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "host": platform.node(),
        "cpu": _first("/proc/cpuinfo", "model name"),
        "cpus": os.cpu_count(),
        "memory": _first("/proc/meminfo", "MemTotal"),
        "kernel": f"{platform.system()} {platform.release()}",
        "postgres": herald.installation.version,
        "pg_herald": version,
        "git": _commit(),
        "settings": {name: cluster.settings for name, cluster in clusters.items()},
        "parameters": parameters,
    }


def header(description: dict) -> list[str]:
    """The description for people, line by line."""
    lines = []
    for key, value in description.items():
        if isinstance(value, dict):
            value = ", ".join(f"{name} {part}" for name, part in value.items())
        if key != "kind":
            lines.append(f"{key + ':':<12} {value}")
    return lines
