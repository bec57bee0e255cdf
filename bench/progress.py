"""The output of a run, its progress and its tables: rich on a terminal, plain lines anywhere else."""

import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table as RichTable

from bench.family import Family, Table
from bench.reporting import figures, raw

FIGURES_SHOWN = 3


def cell(value: object) -> str:
    """A table's cell as text."""
    if value is None or isinstance(value, (int, float)) and not isinstance(value, bool):
        return figures.number(value)
    return str(value)


def _result(line: dict) -> str:
    trouble = raw.trouble(line)
    if trouble:
        return trouble
    shown = [f"{name} {figures.number(value)}" for name, value in line["figures"].items()
             if isinstance(value, (int, float)) and not isinstance(value, bool) and name != "value"]
    return ", ".join(shown[:FIGURES_SHOWN])


class PlainProgress:
    """Prints a line for each measurement."""

    def __init__(self, total: int):
        self.total = total
        self.done = 0

    def __enter__(self):
        return self

    def __exit__(self, *_exception) -> None:
        pass

    def family(self, family: Family) -> None:
        """A family begins."""
        self.print(f"\n{family.title}. {family.question}")

    def begin(self, _text: str) -> None:
        """A measurement begins."""

    def end(self, line: dict) -> None:
        """A measurement has ended."""
        self.done += 1
        self.print(f"[{self.done}/{self.total}] {line['family']}: {raw.name(line['point'])}, {line['case']}: "
                   f"{_result(line)}")

    def leave_out(self, measurements: int) -> None:
        """This number of measurements will not be made."""
        self.total -= measurements

    def table(self, table: Table) -> None:
        """Prints a table."""
        rows = [tuple(map(cell, row)) for row in (table.columns, *table.rows)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(table.columns))]
        self.print(f"\n{table.title}")
        for row in rows:
            self.print("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())
        if table.note:
            self.print(table.note)

    def print(self, text: str) -> None:
        """Prints a line."""
        print(text, flush=True)


class TerminalProgress(PlainProgress):
    """A bar that stays below the tables."""

    def __init__(self, console: Console, total: int):
        super().__init__(total)
        self.console = console
        self.bar = Progress(BarColumn(bar_width=24), MofNCompleteColumn(), TimeElapsedColumn(),
                            TextColumn("{task.description}"), console=console)
        self.task = self.bar.add_task("starting two servers", total=total)

    def __enter__(self):
        self.bar.__enter__()
        return self

    def __exit__(self, *exception) -> None:
        self.bar.__exit__(*exception)

    def family(self, family: Family) -> None:
        self.console.rule(f"[bold]{family.title}")
        self.console.print(family.question, markup=False, highlight=False)

    def begin(self, text: str) -> None:
        self.bar.update(self.task, description=text)

    def end(self, line: dict) -> None:
        self.bar.advance(self.task)
        if raw.trouble(line):
            self.print(f"{raw.name(line['point'])}, {line['case']}: {raw.trouble(line)}")

    def leave_out(self, measurements: int) -> None:
        super().leave_out(measurements)
        self.bar.update(self.task, total=self.total)

    def table(self, table: Table) -> None:
        rich_table = RichTable(title=table.title, title_justify="left", caption=table.note or None,
                               caption_justify="left", title_style="bold")
        for number, column in enumerate(table.columns):
            to_right = number > 0 and is_numeric(table, number)
            rich_table.add_column(column, overflow="fold", justify="right" if to_right else "left")
        for row in table.rows:
            rich_table.add_row(*map(cell, row))
        self.console.print(rich_table, markup=False)

    def print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def is_numeric(table: Table, column: int) -> bool:
    """Whether a column holds numbers, which are aligned to the right."""
    texts = [cell(row[column]) for row in table.rows]
    return all(not text or text == figures.NOTHING or text[0].isdigit() or text[0] in "+-" for text in texts)


def open_progress(total: int) -> PlainProgress:
    """The progress for this standard output; a context manager. total: number of measurements."""
    return TerminalProgress(Console(), total) if sys.stdout.isatty() else PlainProgress(total)
