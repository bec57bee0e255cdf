"""The documentation's table of settings agrees with the server."""

import re

from harness.prefix import TOP

PAGES = (TOP / "README.md", TOP / "docs/operations.md")
TABLE = re.compile(r"^\| setting \| default \|.*\n\|[-|]+\n(?P<rows>(?:\|.*\n)+)", re.MULTILINE)

# The words in the last cell of a setting's row, which says how it is changed, by its context.
WORDS = {"user": r"\bany user\b|\banyone may set it\b", "superuser": r"\bsuperusers\b", "sighup": r"\breload\b",
         "postmaster": r"\brestart\b"}


UNITS = {"B": 1, "kB": 1024, "MB": 1024 ** 2, "GB": 1024 ** 3, "ms": 1, "s": 1000, "min": 60_000}


def amount(value: str) -> str | int:
    """A size in bytes, or a time in milliseconds; other values as they are."""
    match = re.fullmatch(r"(\d+)([a-zA-Z]+)", value)
    return int(match[1]) * UNITS[match[2]] if match else 0 if value == "0" else value


def tables() -> list[dict[str, tuple[str, str]]]:
    """Each table of settings: the default and the last cell, by the setting's name."""
    found = []
    for page in PAGES:
        for table in TABLE.finditer(page.read_text()):
            rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table["rows"].splitlines()]
            found.append({name.strip("`"): (default, rest[-1]) for name, default, *rest in rows})
    return found


def test_settings(caching, connect):
    """Guards: each table has every setting, with its default in its unit, and says how it is changed."""
    session = connect(caching)
    settings = session.execute("SELECT name, boot_val, coalesce(unit, ''), context FROM pg_settings"
                               " WHERE name ~ '^herald(_cache)?[.]'").fetchall()
    assert settings and tables()
    for table in tables():
        assert sorted(table) == sorted(name for name, *_ in settings)
        for name, boot, unit, context in settings:
            default, changed_by = table[name]
            assert amount(default) == amount(boot if boot == "-1" else boot + unit), name
            said = [key for key, words in WORDS.items() if re.search(words, changed_by)]
            assert said == [context], f"{name}: {changed_by!r}"
