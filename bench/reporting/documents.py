"""Writes the figures of a run into the project's documents.

A block of figures is the text between the lines `<!-- NAME: begin -->` and `<!-- NAME: end -->`. This
text is generated from the run; all other text is written by people.
"""

import re
from pathlib import Path

from bench import families
from bench.family import Plot, Table
from bench.progress import cell, is_numeric
from bench.reporting import plots, questions, raw

PERFORMANCE = "docs/performance.md"
README = "README.md"
PLOTS = "docs/plots"
MARKER = re.compile(r"^<!-- (\w+): (begin|end) -->$", re.MULTILINE)


class DocumentError(ValueError):
    """A document cannot be written; the message says which, and why."""


def fill(text: str, where: str, blocks: dict[str, str]) -> str:
    """The document with new blocks; DocumentError if its markers are not exactly one pair for each block."""
    marks = list(MARKER.finditer(text))
    begun = [mark[1] for mark in marks if mark[2] == "begin"]
    for name in blocks:
        if name not in begun:
            raise DocumentError(f"{where}: the line <!-- {name}: begin --> is missing")
    for name in begun:
        if name not in blocks:
            raise DocumentError(f"{where}: <!-- {name}: begin --> names no block that a run writes")
    for begin, end in zip(marks[::2], marks[1::2]):
        if begin[2] != "begin" or end.groups() != (begin[1], "end"):
            raise DocumentError(f"{where}: <!-- {begin[1]}: {begin[2]} --> is followed by <!-- {end[1]}: {end[2]} -->")
    if len(marks) % 2:
        raise DocumentError(f"{where}: the line <!-- {marks[-1][1]}: end --> is missing")
    for begin, end in reversed(list(zip(marks[::2], marks[1::2]))):
        text = f"{text[:begin.end()]}\n{blocks[begin[1]]}\n{text[end.start():]}"
    return text


def _markdown(table: Table) -> str:
    """A table in Markdown."""
    def row(values: tuple) -> str:
        return f"| {' | '.join(cell(value).replace('|', chr(92) + '|') for value in values)} |"

    # A bold number counts as a number.
    plain = Table("", table.columns, [tuple(cell(value).strip("*") for value in values) for values in table.rows])
    rule = "|".join("---:" if column and is_numeric(plain, column) else "---" for column in range(len(table.columns)))
    parts = [f"*{table.title}*", ""] if table.title else []
    parts += [row(table.columns), f"|{rule}|", *map(row, table.rows)]
    return "\n".join(parts + (["", table.note] if table.note else []))


def _block(question: questions.Question, run: raw.Run, drawn: dict[str, Plot]) -> str:
    """The tables and plots that answer a question, and a line for each family missing in the run."""
    parts = []
    for family, tables_of in question.parts:
        measured = run.measured(family)
        found = [table for table in tables_of(measured) if table.rows] if measured else []
        parts += map(_markdown, found)
        if not found:
            parts.append(f"Not measured by this run; `bench/run {family}` does.")
    parts += [f"![{drawn[name].title}](plots/{name}.svg)" for name in question.plots if name in drawn]
    return "\n" + "\n\n".join(parts) + "\n"


def _plots(run: raw.Run) -> dict[str, Plot]:
    """The plots that can be drawn from the run, by name."""
    return {plot.name: plot for family in families.load(run.families()) if run.measured(family.name)
            for plot in family.plots(run.measured(family.name))}


def write(run: raw.Run, tree: Path) -> list[Path]:
    """Writes the documents and plots of a tree, either all or none, and returns their files.

    A plot that this run did not make is deleted: it would show another run.
    """
    possible = _plots(run)
    named = {name for question in questions.QUESTIONS for name in question.plots}
    drawn = {name: plot for name, plot in possible.items() if name in named}
    blocks = {
        PERFORMANCE: {"machine": questions.machine(run)}
        | {question.name: _block(question, run, drawn) for question in questions.QUESTIONS},
        README: {"figures": "\n".join(["", questions.summary_machine(run), "", _markdown(questions.summary(run)), ""])},
    }
    texts = {tree / name: fill((tree / name).read_text(encoding="utf-8"), name, of) for name, of in blocks.items()}
    folder = tree / PLOTS
    folder.mkdir(exist_ok=True)
    images = {folder / f"{name}.svg": plots.svg(plot) for name, plot in sorted(drawn.items())}
    for path in set(folder.glob("*.svg")) - set(images):
        path.unlink()
    for path, text in (texts | images).items():
        path.write_text(text, encoding="utf-8")
    return [*texts, *images]
