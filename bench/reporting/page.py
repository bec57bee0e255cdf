"""The report of a run: one self-contained page of HTML, made from the raw lines alone."""

from html import escape
from pathlib import Path

from bench import families
from bench.family import Family, Table
from bench.progress import cell, is_numeric
from bench.reporting import figures, plots, raw

STYLE = """
:root { color-scheme: light dark;
        --ink: #1f2328; --dim: #59636e; --line: #d1d9e0; --paper: #ffffff; --bad: #b42318; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --dim: #9198a1; --line: #3d444d; --paper: #0d1117; --bad: #ff7b72; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 78rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: break-word; }
h1, h2, h3 { line-height: 1.2; }
h2 { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1.5rem; }
nav { line-height: 1.9; }
nav a { margin-right: 1rem; white-space: nowrap; }
a { color: inherit; }
/* A table that is wider than the page scrolls in its own frame; the shade says that there is more. */
.scroll { overflow-x: auto; margin: 0.5rem 0;
          background: linear-gradient(to right, var(--paper) 30%, transparent) left / 3rem 100% no-repeat local,
                      linear-gradient(to left, var(--paper) 30%, transparent) right / 3rem 100% no-repeat local,
                      linear-gradient(to right, var(--line), transparent) left / 0.8rem 100% no-repeat scroll,
                      linear-gradient(to left, var(--line), transparent) right / 0.8rem 100% no-repeat scroll; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.93rem; }
.title { font-weight: 600; margin: 1.5rem 0 0; }
th, td { padding: 0.2rem 0.6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { vertical-align: bottom; min-width: 4.5rem; max-width: 9rem; }
td { white-space: pre-wrap; max-width: 22rem; }
td:first-child { min-width: 7rem; }
.number { text-align: right; }
td.number { white-space: nowrap; }
.met, .missed, .open { white-space: nowrap; }
.met { border-left: 0.3rem solid var(--ink); }
.missed { border: 2px solid var(--bad); background: var(--bad); color: var(--paper); font-weight: 700; }
.open { border-left: 0.3rem dotted var(--dim); color: var(--dim); font-style: italic; }
.note { color: var(--dim); max-width: 50rem; }
.trouble { color: var(--bad); }
.failures { border: 2px solid var(--bad); padding: 0 1rem; }
figure { margin: 1rem 0; max-width: 44rem; }
svg { max-width: 100%; height: auto; }
dl { display: grid; grid-template-columns: minmax(5rem, max-content) minmax(0, 1fr); gap: 0 1rem; }
dt { color: var(--dim); }
dd { margin: 0; overflow-wrap: anywhere; }
"""


VERDICTS = {figures.MET: "met", figures.MISSED: "missed", figures.NO_VERDICT: "open"}


def _class(text: str, number: bool) -> str:
    """The class attribute of a cell: verdicts have a style of their own, and numbers are aligned to the right."""
    names = [name for verdict, name in VERDICTS.items() if text.startswith(verdict)] or ["number"] * number
    return f' class="{names[0]}"' if names else ""


def _table(table: Table) -> str:
    numbers = [column > 0 and is_numeric(table, column) for column in range(len(table.columns))]

    def row(tag: str, values: tuple) -> str:
        cells = (f"<{tag}{_class(text, number)}>{escape(text)}</{tag}>"
                 for text, number in zip(map(cell, values), numbers))
        return f"<tr>{''.join(cells)}</tr>"

    lines = [f'<p class="title">{escape(table.title)}</p>', '<div class="scroll"><table>',
             f"<thead>{row('th', table.columns)}</thead><tbody>",
             *(row("td", values) for values in table.rows), "</tbody></table></div>"]
    if table.note:
        lines.append(f'<p class="note">{escape(table.note)}</p>')
    return "\n".join(lines)


def _failures(failures: list[str]) -> str:
    """The reasons for the run's exit status 1; empty if it was 0."""
    if not failures:
        return ""
    items = "".join(f"<li>{escape(text)}</li>" for text in failures)
    return f'<div class="failures"><p class="trouble">Not in order: {len(failures)}</p><ul>{items}</ul></div>'


def _family(family: Family, run: raw.Run) -> str:
    lines = [f'<h2 id="{family.name}">{escape(family.title)}</h2>', f"<p>{escape(family.question)}</p>"]
    measured = run.measured(family.name)
    if measured:
        for plot in family.plots(measured):
            note = f'<figcaption class="note">{escape(plot.note)}</figcaption>' if plot.note else ""
            lines.append(f"<figure>{plots.svg(plot, inline=True)}{note}</figure>")
        lines += [_table(table) for table in family.tables(measured)]
    troubles = run.troubles(family.name)
    if troubles:
        lines.append("<h3>Skipped or failed</h3><ul>")
        lines += [f'<li class="trouble">{escape(text)}</li>' for text in troubles]
        lines.append("</ul>")
    return "\n".join(lines)


def _plain(value: object) -> str:
    """A value of the description as plain text."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(part)}" for name, part in value.items())
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _description(description: dict) -> str:
    items = []
    for key, value in description.items():
        if key != "kind":
            items.append(f"<dt>{escape(key)}</dt><dd>{escape(_plain(value))}</dd>")
    return f"<dl>{''.join(items)}</dl>"


def render(run: raw.Run) -> str:
    """The page."""
    chosen = families.load(run.families())
    links = " ".join(f'<a href="#{family.name}">{escape(family.title)}</a>' for family in chosen)
    return "\n".join([
        "<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<title>pg_herald: a benchmark run</title>", f"<style>{STYLE}</style></head><body>",
        "<h1>pg_herald beside the stock server</h1>",
        "<p>Medians of the rounds; from the lowest round to the highest in brackets. A ratio is the "
        f"median of the rounds' ratios; of {figures.INTERVAL_ROUNDS_MIN} rounds and more, its 95 % interval "
        "stands in brackets. Of fewer, no verdict is given about a target.</p>",
        _failures(run.failures()), f"<nav>{links}</nav>", _description(run.description),
        *(_family(family, run) for family in chosen), "</body></html>", ""])


def write_svg(run: raw.Run, folder: Path) -> list[Path]:
    """Writes each plot to a file named after it, and returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for family in families.load(run.families()):
        measured = run.measured(family.name)
        for plot in family.plots(measured) if measured else []:
            path = folder / f"{plot.name}.svg"
            path.write_text(plots.svg(plot), encoding="utf-8")
            written.append(path)
    return written
