"""What pages of the tree need to become pages of the site."""

import posixpath
import re

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

LINK = re.compile(r"(?<!!)\[([^][]*)\]\((?![a-z]+:|#)([^)#]+)(#[^)]*)?\)")

ROW_IN_TEXT = re.compile(r"<p>(?:[^<]*\n)?(\|[^\n]*\|)")

BADGES = re.compile(r"^\[!\[.*\]\(.*/actions/.*\)\n", re.MULTILINE)


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_arguments) -> str:
    """Links to what the site does not have, such as sources, become plain text; badges go. ./check lint has
    looked at the links."""
    folder = posixpath.dirname(page.file.src_uri)

    def keep(link: re.Match) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        return link[0] if files.get_file_from_path(target) else link[1]

    return LINK.sub(keep, BADGES.sub("", markdown))


def on_page_content(html: str, *, page: Page, **_arguments) -> None:
    """A row of a table that has become text, as one does after an empty line, is an error."""
    if row := ROW_IN_TEXT.search(html):
        raise PluginError(f"{page.file.src_uri}: this row is in no table: {row[1]}")
