"""docs/performance.md: what the pages of docs/performance/ say, in short. It is made from their blocks alone, so that
it agrees with them whichever runs they are of.
"""

import re
from collections import defaultdict
from dataclasses import dataclass

from bench.family import Table
from bench.reporting import blocks, figures

MACHINE = "machine"
BOLD = re.compile(r"^\*\*(.*)\*\*$")
NUMBER = re.compile(r"[\d.,]+")
RANGE = re.compile(r" \(.*\)$")
NAMED_MAX = 4  # rows of one column
FROM_TO = "NOTIFY from → to"
LATENCY = "300 listeners, both servers at the same time: until"
OF_STOCK = ("stock, tps", "pg_herald, tps", "ratio")
OF_STOCK_US = ("stock, µs", "pg_herald, µs", "ratio")


@dataclass(frozen=True)
class Headline:
    """A row of the short page: a row of a block, and the columns of its two figures and their ratio."""

    text: str
    family: str
    block: str
    row: dict[str, str]  # heading -> cell
    columns: tuple[str, str, str | None]
    beside: str = "stock"


HEADLINES = (
    Headline("1 connection notifies 1 listener, tps", "signalling", "throughput", {FROM_TO: "1 → 1"}, OF_STOCK),
    Headline("100 connections notify 1 listener, tps", "signalling", "throughput", {FROM_TO: "100 → 1"}, OF_STOCK),
    Headline("1 connection notifies 100 listeners, tps", "scalability", "one_to_many", {FROM_TO: "1 → 100"}, OF_STOCK),
    Headline("8 connections notify 300 listeners, tps", "scalability", "one_to_many", {FROM_TO: "8 → 300"}, OF_STOCK),
    Headline("100 connections notify 100 listeners, a channel for each, tps", "scalability", "own_channels",
             {FROM_TO: "100 → 100, a channel for each"}, OF_STOCK),
    Headline("two sessions notify each other beside 1,000 idle listeners, round trips/s", "scalability", "idle_listeners",
             {"idle listeners": "1,000"}, ("stock, round trips/s", "pg_herald, round trips/s", "ratio")),
    Headline("commit of a NOTIFY with 300 listeners, µs", "latency", "latency", {LATENCY: "commit"}, OF_STOCK_US),
    Headline("until the first of 300 listeners receives it, µs", "latency", "latency",
             {LATENCY: "the first receives it"}, OF_STOCK_US),
    Headline("until the last of 300 listeners receives it, µs", "latency", "latency", {LATENCY: "the last does"},
             OF_STOCK_US),
    Headline("another session's `SELECT 1` meanwhile, p99, µs", "latency", "bystanders",
             {"a `SELECT 1` of another session takes": "p99"}, ("stock, µs", "pg_herald, µs", "pg_herald / stock")),
    Headline("32 clients insert, a trigger notifies, tps", "writers", "inserts", {"commit": "on", "clients": "32"},
             ("stock, NOTIFY, tps", "pg_herald, NOTIFY, tps", "ratio")),
    Headline("the same, a flush takes 5 ms longer, tps", "writers", "inserts",
             {"commit": "flush 5 ms longer", "clients": "32"}, ("stock, NOTIFY, tps", "pg_herald, NOTIFY, tps", "ratio")),
    Headline("NOTIFY in the transaction of an INSERT, a flush takes 3 ms longer, tps", "writers", "inserts",
             {"disk": "a flush takes 3 ms longer"}, ("INSERT, tps", "INSERT + NOTIFY, tps", "ratio"),
             "INSERT without NOTIFY"),
    Headline("the same on a logged channel, tps", "logged", "logged", {"flush": "3 ms longer", "clients": "32"},
             ("pg_herald, without NOTIFY", "pg_herald, logged", "logged / without NOTIFY"), "INSERT without NOTIFY"),
    Headline("an outbox with 100 readers and 32 writers, rows/s", "outbox", "outbox", {"readers": "100", "writers": "32"},
             ("stock, rows/s", "pg_herald, rows/s", "ratio")),
    Headline("the same", "outbox", "outbox", {"readers": "100", "writers": "32"},
             ("stock, outside of the transaction, rows/s", "pg_herald, rows/s", "to the one before"),
             "notifying outside of the transaction"),
    Headline("loaded and unused: `pgbench -S`, tps", "memory", "idle", {"load": "`pgbench -S`"},
             ("not loaded, tps", "loaded, tps", "ratio")),
    Headline("memory of a backend for each of 30,000 channels, bytes", "memory", "idle",
             {"channels of one backend": "30,000"}, ("stock, bytes a channel", "pg_herald, bytes a channel", None)),
    Headline("8 connections notify 1 listener beside 100 that are behind, tps", "laggard", "laggards",
             {"listeners behind": "100"}, ("stock, tps", "pg_herald, tps", None)),
    Headline("100 clients come back, each has missed 100,000, ms until all have them", "resume", "resume",
             {"clients": "100", "missed by each": "100,000"},
             ("table, ms", "`herald.listen()`, ms", "`herald.listen()` / table"), "a table"),
    Headline("each of 1,000 equal notifications in a transaction, µs", "duplicates", "duplicates",
             {"notifications": "1,000", "to channels": "1"}, ("stock, µs each", "pg_herald, µs each", "ratio")),
    Headline("a cached query, 10 backends, 1,000 changes/s, tps", "caches", "caches",
             {"backends": "10", "changes/s": "1,000"}, ("dummy relcache, tps", "pg_herald, tps", "/ dummy relcache"),
             "a dummy relcache"),
    Headline("1 publisher, 100 subscribers, TCP, publishes/s", "peers", "peers",
             {"publishers → subscribers": "1 → 100", "requests": "request and reply"}, ("Redis", "pg_herald", "/ Redis"),
             "Redis"),
    Headline("100 publishers, 1 subscriber, TCP, publishes/s", "peers", "peers",
             {"publishers → subscribers": "100 → 1", "requests": "request and reply"}, ("Redis", "pg_herald", "/ Redis"),
             "Redis"),
    Headline("the same", "peers", "peers", {"publishers → subscribers": "100 → 1", "requests": "request and reply"},
             ("NATS", "pg_herald", "/ NATS"), "NATS"),
)

PLOTS = (("signalling", "throughput", "signalling"), ("latency", "latency", "latency_single"))  # (family, block, plot)

Pages = dict[str, dict[str, str]]  # family -> name -> block


def _link(family: str) -> str:
    return f"[{family}](performance/{family}.md)"


def _row(headline: Headline, block: str) -> tuple:
    """The row's figures; none if no table has them."""
    wanted = [*headline.row, *filter(None, headline.columns)]
    for table in blocks.tables(block):
        if all(heading in table.columns for heading in wanted):
            for row in table.rows:
                by_heading = dict(reversed(list(zip(table.columns, row))))  # of equal headings, the first
                if all(by_heading[heading] == text for heading, text in headline.row.items()):
                    one, ours, ratio = (by_heading[heading] if heading else figures.NOTHING
                                        for heading in headline.columns)
                    return RANGE.sub("", one), RANGE.sub("", ours), ratio
    return (figures.NOTHING,) * 3


def _headlines(pages: Pages) -> str:
    rows = [(one.text, one.beside, *_row(one, pages[one.family][one.block]), _link(one.family)) for one in HEADLINES]
    return blocks.markdown(Table("", ("", "beside", "the other", "pg_herald", "ratio", "all figures"), rows))


def _plots(pages: Pages) -> list[str]:
    found = []
    for family, name, plot in PLOTS:
        image = re.search(rf"^!\[(.*)\]\(\.\./plots/{plot}\.svg\)$", pages[family][name], re.MULTILINE)
        found += [f"![{image[1]}](plots/{plot}.svg)"] if image else []
    return found


def _label(table: Table, row: tuple[str, ...]) -> str:
    """What names the row: the cells before the first figure; a number's heading belongs to it."""
    parts = []
    for heading, value in zip(table.columns, row):
        if parts and (value in ("", figures.NOTHING) or RANGE.search(value) or BOLD.match(value)):
            break
        parts.append(f"{heading} {value}" if NUMBER.fullmatch(value) else value)
    return ", ".join(parts)


def _bold(table: Table) -> list[tuple[str, str]]:
    """The columns with bold figures: what they are a ratio of; their rows or, if these are many, how many."""
    found = []
    for column, heading in enumerate(table.columns):
        bold = [(row, RANGE.sub("", match[1])) for row in table.rows if (match := BOLD.match(row[column]))]
        if len(bold) > NAMED_MAX:
            ratios = sorted((ratio for _, ratio in bold), key=lambda ratio: float(ratio.replace(",", "")))
            text = f"{len(bold)} of {len(table.rows)} rows: {ratios[0]} to {ratios[-1]}"
        else:
            targets = [dict(zip(table.columns, row)).get("target", figures.NOTHING) for row, _ in bold]
            text = "; ".join(f"{_label(table, row)}: {ratio}" + (f" (target {target})" if target != figures.NOTHING else "")
                             for (row, ratio), target in zip(bold, targets))
        if bold:
            found.append((f"{table.title}: {heading}" if table.title else heading, text))
    return found


def _behind(pages: Pages) -> str:
    """All bold figures of the pages."""
    rows = [(_link(family), *one) for family, of in pages.items() for name, block in of.items() if name != MACHINE
            for table in blocks.tables(block) for one in _bold(table)]
    return blocks.markdown(Table("", ("page", "figure", "rows"), rows)) if rows else "None."


def _runs(pages: Pages) -> str:
    """The runs that the pages are of, side by side."""
    runs = defaultdict(list)
    for family, of in pages.items():
        runs[tuple(row for table in blocks.tables(of[MACHINE]) for row in table.rows)].append(family)
    most = max(runs, key=lambda facts: len(runs[facts]))
    headings = ("all pages" if len(runs) == 1 else "all other pages" if facts == most else ", ".join(map(_link, runs[facts]))
                for facts in runs)
    names = dict.fromkeys(name for facts in runs for name, _ in facts)
    rows = [(name, *(dict(facts).get(name, figures.NOTHING) for facts in runs)) for name in names]
    return blocks.markdown(Table("", ("", *headings), rows))


def made(pages: Pages) -> dict[str, str]:
    """The blocks of the short page."""
    return {MACHINE: f"\n{_runs(pages)}\n",
            "headlines": "\n".join(["", "\n\n".join([_headlines(pages), *_plots(pages)]), ""]),
            "behind": f"\n{_behind(pages)}\n"}
