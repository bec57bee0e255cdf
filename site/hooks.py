"""What pages of the tree need to become pages of the site."""

import posixpath
import re

from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

LINK = re.compile(r"(?<!!)\[([^][]*)\]\((?![a-z]+:|#)([^)#]+)(#[^)]*)?\)")

BADGES = re.compile(r"^\[!\[.*\]\(\.\./\.\./actions/.*\)\n", re.MULTILINE)


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_arguments) -> str:
    """Links to what the site does not have, such as sources, become plain text; badges go. ./check lint has
    looked at the links."""
    folder = posixpath.dirname(page.file.src_uri)

    def keep(link: re.Match) -> str:
        target = posixpath.normpath(posixpath.join(folder, link[2]))
        return link[0] if files.get_file_from_path(target) else link[1]

    return LINK.sub(keep, BADGES.sub("", markdown))
