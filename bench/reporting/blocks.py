"""Blocks of figures in the project's documents.

A block is the text between the lines `<!-- NAME: begin -->` and `<!-- NAME: end -->`. This text is generated; all
other text is written by people.
"""

import re

from bench.family import Table
from bench.progress import cell, is_numeric

MARKER = re.compile(r"^<!-- (\w+): (begin|end) -->$", re.MULTILINE)


class DocumentError(ValueError):
    """A document cannot be written; the message says which, and why."""


def _places(text: str, where: str, names: set[str]) -> dict[str, tuple[int, int]]:
    """Where each block begins and ends; DocumentError if the markers are not exactly one pair for each of these names."""
    marks = list(MARKER.finditer(text))
    begun = [mark[1] for mark in marks if mark[2] == "begin"]
    for name in names:
        if name not in begun:
            raise DocumentError(f"{where}: the line <!-- {name}: begin --> is missing")
    for name in begun:
        if name not in names:
            raise DocumentError(f"{where}: <!-- {name}: begin --> names no block that a run writes")
    for begin, end in zip(marks[::2], marks[1::2]):
        if begin[2] != "begin" or end.groups() != (begin[1], "end"):
            raise DocumentError(f"{where}: <!-- {begin[1]}: {begin[2]} --> is followed by <!-- {end[1]}: {end[2]} -->")
    if len(marks) % 2:
        raise DocumentError(f"{where}: the line <!-- {marks[-1][1]}: end --> is missing")
    return {begin[1]: (begin.end() + 1, end.start()) for begin, end in zip(marks[::2], marks[1::2])}


def read(text: str, where: str, names: set[str]) -> dict[str, str]:
    """The document's blocks, by name."""
    return {name: text[begin:end].removesuffix("\n") for name, (begin, end) in _places(text, where, names).items()}


def fill(text: str, where: str, blocks: dict[str, str]) -> str:
    """The document with new blocks."""
    for name, (begin, end) in sorted(_places(text, where, set(blocks)).items(), key=lambda one: one[1], reverse=True):
        text = f"{text[:begin]}{blocks[name]}\n{text[end:]}"
    return text


def markdown(table: Table) -> str:
    """A table in Markdown."""
    def row(values: tuple) -> str:
        return f"| {' | '.join(cell(value).replace('|', chr(92) + '|') for value in values)} |"

    # A bold number counts as a number.
    plain = Table("", table.columns, [tuple(cell(value).strip("*") for value in values) for values in table.rows])
    rule = "|".join("---:" if column and is_numeric(plain, column) else "---" for column in range(len(table.columns)))
    parts = [f"*{table.title}*", ""] if table.title else []
    parts += [row(table.columns), f"|{rule}|", *map(row, table.rows)]
    return "\n".join(parts + (["", table.note] if table.note else []))


def tables(block: str) -> list[Table]:
    """The tables of a block; their cells are text."""
    def cells(line: str) -> tuple[str, ...]:
        return tuple(value.strip().replace("\\|", "|") for value in re.split(r"(?<!\\)\|", line)[1:-1])

    found = []
    for title, lines in re.findall(r"^(?:\*([^*\n]+)\*\n\n)?((?:\|.*\n)+)", block, re.MULTILINE):
        heading, _, *rows = lines.splitlines()
        found.append(Table(title, cells(heading), list(map(cells, rows))))
    return found
