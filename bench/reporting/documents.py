"""Writes the figures of a run into the project's documents: into the blocks of a page for each family that it measured,
of the short page, and of README.
"""

import re
from pathlib import Path

from bench import families
from bench.family import Plot
from bench.reporting import blocks, overview, plots, questions, raw

PERFORMANCE = "docs/performance.md"
PAGES = "docs/performance"
README = "README.md"
PLOTS = "docs/plots"


def _block(question: questions.Question, run: raw.Run, drawn: dict[str, Plot]) -> str:
    """The tables that answer a question, each with its plots below it, and a line for each family missing in the run."""
    parts, tables = [], 0
    waiting = [(after, name) for after, name in question.plots if name in drawn]

    def show_plots(until: int | None = None) -> None:
        while waiting and (until is None or waiting[0][0] <= until):
            name = waiting.pop(0)[1]
            parts.append(f"![{drawn[name].title}](../plots/{name}.svg)")

    for family, tables_of in question.parts:
        measured = run.measured(family)
        found = [table for table in tables_of(measured) if table.rows] if measured else []
        for table in found:
            parts.append(blocks.markdown(table))
            tables += 1
            show_plots(tables)
        if not found:
            parts.append(f"Not measured by this run; `bench/run {family}` does.")
    show_plots()
    return "\n" + "\n\n".join(parts) + "\n"


def _plots(run: raw.Run) -> dict[str, Plot]:
    """The plots that can be drawn from the run, by name."""
    return {plot.name: plot for family in families.load(run.families()) if run.measured(family.name)
            for plot in family.plots(run.measured(family.name))}


def _where(page: questions.Page) -> str:
    return f"{PAGES}/{page.family}.md"


def _names(page: questions.Page) -> set[str]:
    return {overview.MACHINE, *(question.name for question in page.questions)}


def _pages(tree: Path) -> dict[str, str]:
    """The pages of the families, as they are."""
    return {_where(page): (tree / _where(page)).read_text(encoding="utf-8") for page in questions.PAGES}


def _short_page(tree: Path, pages: dict[str, str]) -> str:
    """The short page, made from these."""
    shown = {page.family: blocks.read(pages[_where(page)], _where(page), _names(page)) for page in questions.PAGES}
    return blocks.fill((tree / PERFORMANCE).read_text(encoding="utf-8"), PERFORMANCE, overview.made(shown))


def write_short_page(tree: Path) -> list[Path]:
    """Writes the short page from the pages of the families, without a run."""
    text = _short_page(tree, _pages(tree))
    (tree / PERFORMANCE).write_text(text, encoding="utf-8")
    return [tree / PERFORMANCE]


def write(run: raw.Run, tree: Path) -> list[Path]:
    """Writes the documents and plots of a tree, either all or none, and returns their files.

    The pages of families that the run did not measure stay as they are, and so does README if it measured no targets.
    A plot that no page shows is deleted: it would show another run.
    """
    drawn, texts, images = _plots(run), _pages(tree), {}
    for page in questions.PAGES:
        if run.measured(page.family):
            own = {question.name: _block(question, run, drawn) for question in page.questions}
            texts[_where(page)] = blocks.fill(texts[_where(page)], _where(page),
                                              own | {overview.MACHINE: questions.machine(run, page)})
            images |= {name: drawn[name] for question in page.questions for _, name in question.plots if name in drawn}
    shown = set(re.findall(r"\]\(\.\./plots/(\w+\.svg)\)", "".join(texts.values())))
    texts[PERFORMANCE] = _short_page(tree, texts)
    readme = (tree / README).read_text(encoding="utf-8")
    figures = {"figures": "\n".join(["", questions.summary_machine(run), "", blocks.markdown(questions.summary(run)), ""])}
    filled = blocks.fill(readme, README, figures)
    texts[README] = filled if run.measured("targets") else readme
    folder = tree / PLOTS
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*.svg"):
        if path.name not in shown:
            path.unlink()
    written = {tree / name: text for name, text in texts.items()}
    written |= {folder / f"{name}.svg": plots.svg(plot) for name, plot in sorted(images.items())}
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
    return list(written)
