"""The report of a run: one page of HTML, with nothing outside of it, made from the raw lines alone.

    python3 -m bench.page FILE.jsonl [--svg FOLDER]
"""

import argparse
import sys
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
       max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1, h2, h3 { line-height: 1.2; }
h2 { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1.5rem; }
nav a { margin-right: 1rem; }
a { color: inherit; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 0.5rem 0; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: 0.5rem 0; }
th, td { padding: 0.2rem 0.8rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top;
         white-space: pre; }
.number { text-align: right; }
.note { color: var(--dim); max-width: 50rem; }
.trouble { color: var(--bad); }
figure { margin: 1rem 0; }
svg { max-width: 100%; height: auto; }
dl { display: grid; grid-template-columns: max-content auto; gap: 0 1rem; }
dt { color: var(--dim); }
dd { margin: 0; overflow-wrap: anywhere; }
"""


def _table(table: Table) -> str:
    classes = [' class="number"' if column and is_numeric(table, column) else ""
               for column in range(len(table.columns))]

    def row(tag: str, values: tuple) -> str:
        cells = (f"<{tag}{kind}>{escape(cell(value))}</{tag}>" for value, kind in zip(values, classes))
        return f"<tr>{''.join(cells)}</tr>"

    lines = [f'<div class="scroll"><table><caption>{escape(table.title)}</caption>',
             f"<thead>{row('th', table.columns)}</thead><tbody>",
             *(row("td", values) for values in table.rows), "</tbody></table></div>"]
    if table.note:
        lines.append(f'<p class="note">{escape(table.note)}</p>')
    return "\n".join(lines)


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


def _description(description: dict) -> str:
    items = []
    for key, value in description.items():
        if key != "kind":
            if isinstance(value, dict):
                value = "; ".join(f"{name}: {part}" for name, part in value.items())
            items.append(f"<dt>{escape(key)}</dt><dd>{escape(str(value))}</dd>")
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
        "stands in brackets.</p>",
        f"<nav>{links}</nav>", _description(run.description),
        *(_family(family, run) for family in chosen), "</body></html>", ""])


def write_svg(run: raw.Run, folder: Path) -> list[Path]:
    """Writes each plot to a file that is named after it, and returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for family in families.load(run.families()):
        measured = run.measured(family.name)
        for plot in family.plots(measured) if measured else []:
            path = folder / f"{plot.name}.svg"
            path.write_text(plots.svg(plot), encoding="utf-8")
            written.append(path)
    return written


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/report",
                                     description="Makes a report from the raw lines of a run.")
    parser.add_argument("file", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--svg", type=Path, metavar="FOLDER", help="write each plot to a file there, too")
    arguments = parser.parse_args()
    try:
        run = raw.Run.load(arguments.file)
    except (OSError, raw.RawError) as error:
        print(f"bench/report: {error}", file=sys.stderr)
        return 1
    page = arguments.file.with_suffix(".html")
    page.write_text(render(run), encoding="utf-8")
    for path in (page, *(write_svg(run, arguments.svg) if arguments.svg else ())):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
