#!/usr/bin/env python3
"""Includes go one way.  Prints each that does not; the exit status is 1 then.

  test/architecture.py          check
  test/architecture.py --dot    the folders and their includes, as a graph for Graphviz

The floors of src/, from the top; what stands on a floor includes only what stands below it, and on
its own floor only within its folder or as LEADS says. Within a folder, units (a .c and its .h) form
no circle.

There are two libraries, as the makefiles say. A unit of one includes no unit of the other, except the few
that are linked into both.
"""

import re
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
SRC = TOP / "src"

# Each folder, and the folders that its files may include from, besides its own.
GROUND = {"base", "core"}
LEADS = {
    "core": set(),
    "base": {"core"},
    "inval": GROUND | {"api/pg_herald_api"},
    "cache": GROUND | {"api/pg_herald_api", "inval"},
    "notify/storage": GROUND,
    "notify/channels": GROUND,
    "notify/wal": GROUND,
    "notify/relay": GROUND | {"notify/wal"},
    "notify/dispatch": GROUND | {"notify/channels", "notify/storage"},
    "notify/position": GROUND | {"notify/relay", "notify/storage", "notify/wal"},
    "notify/settings": GROUND | {"notify/position", "notify/relay", "notify/wal"},
    "notify/sender": GROUND | {"notify/channels", "notify/dispatch", "notify/position", "notify/relay", "notify/settings",
                               "notify/storage", "notify/wal"},
    "notify/cursor": GROUND | {"notify/dispatch", "notify/position", "notify/relay", "notify/settings", "notify/storage",
                               "notify/wal"},
    "notify/listener": GROUND | {"notify/channels", "notify/cursor", "notify/dispatch", "notify/position", "notify/relay",
                                 "notify/settings", "notify/storage"},
    "notify/sql": GROUND | {"notify/channels", "notify/cursor", "notify/dispatch", "notify/listener", "notify/position",
                            "notify/relay", "notify/sender", "notify/settings", "notify/storage"},
}
MAKEFILES = ("Makefile", "cache.mk")
IN_BOTH = {"base/row", "base/slow_ends", "base/subtransaction_levels"}
WINGS = set(LEADS) - {"cache", "inval"}
LEADS |= {
    "api": WINGS,
    "workers": WINGS,
    "views": WINGS,
    "testing": WINGS | {"inval"},
}
LEADS["."] = set(LEADS) - {"cache", "inval"}  # the roof


def unit(path: Path) -> str:
    """A .c and its .h are one."""
    return str(path.relative_to(SRC).with_suffix(""))


def folder(name: str) -> str:
    """Of a unit."""
    return str(Path(name).parent)


def includes() -> dict[str, set[str]]:
    """Each unit, and the units that it includes."""
    graph: dict[str, set[str]] = {}
    for path in sorted([*SRC.rglob("*.c"), *SRC.rglob("*.h")]):
        found = graph.setdefault(unit(path), set())
        for name in re.findall(r'^#include "([^"]+\.h)"', path.read_text(encoding="utf-8"), re.MULTILINE):
            for target in (SRC / name, path.parent / name):
                if target.exists():
                    found.add(unit(target))
                    break
    for name, found in graph.items():
        found.discard(name)
    return graph


def linked(makefile: str) -> set[str]:
    """The units of a library."""
    return set(re.findall(r"\bsrc/(\S+)\.o\b", (TOP / makefile).read_text(encoding="utf-8")))


def between_libraries(graph: dict[str, set[str]]) -> list[str]:
    """Units that need what their library does not link, and units that should not be in both, or are in none."""
    compiled = {unit(path) for path in SRC.rglob("*.c")}
    found, libraries = [], [linked(makefile) for makefile in MAKEFILES]
    for makefile, library in zip(MAKEFILES, libraries):
        for name in sorted(library & graph.keys()):
            reached, left = set(), [name]
            while left:  # through headers that have no .c
                new = graph[left.pop()] - reached
                reached |= new
                left += new - compiled
            found += [f"src/{name} includes {target}.h, which {makefile} does not link"
                      for target in sorted((reached & compiled) - library)]
    found += [f"src/{name} is linked into both libraries" for name in sorted(libraries[0] & libraries[1] - IN_BOTH)]
    found += [f"src/{name}.c is linked into no library" for name in sorted(compiled - libraries[0] - libraries[1])]
    return found


def problems() -> list[str]:
    """In words."""
    graph = includes()
    found = [f"src/{name}: {folder(name)}/ must not include {target}.h"
             for name in graph for target in sorted(graph[name])
             if folder(target) != folder(name) and not {target, folder(target)} & LEADS.get(folder(name), set())]
    found += [f"src/{name}: no floor is known for {folder(name)}/; see test/architecture.py"
              for name in graph if folder(name) not in LEADS]
    found += between_libraries(graph)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append("a circle of includes: " + " → ".join(reversed(error.args[1])))
    stems: dict[str, str] = {}
    for name in graph:
        stem = Path(name).name
        if stem in stems:
            found.append(f"src/{name} and src/{stems[stem]} have one name")
        stems[stem] = name
    return found


def dot() -> str:
    """The folders."""
    arrows = {(folder(name), folder(target)) for name, targets in includes().items() for target in targets
              if folder(name) != folder(target)}
    lines = [f'  "{source}" -> "{target}";' for source, target in sorted(arrows)]
    return "digraph src {\n" + "\n".join(lines) + "\n}"


if __name__ == "__main__":
    if sys.argv[1:] == ["--dot"]:
        print(dot())
        sys.exit()
    for problem in problems():
        print(problem)
    sys.exit(bool(problems()))
