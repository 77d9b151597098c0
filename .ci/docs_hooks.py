"""What the site's Markdown reads otherwise than GitHub's; mkdocs.yml names this file."""

from __future__ import annotations

import re
from typing import Any

_CODE = re.compile(r"`[^`\n]+`")
_EMPTY_HEAD = re.compile(r"<thead>\s*<tr>\s*(?:<th[^>]*></th>\s*)+</tr>\s*</thead>")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Unescape | in the code of tables: here it does not end a cell."""
    lines = markdown.split("\n")
    return "\n".join(
        _CODE.sub(lambda code: code[0].replace(r"\|", "|"), line) if line.startswith("|") else line for line in lines
    )


def on_page_content(html: str, **_: Any) -> str:
    """Leave out the heads of tables that have none."""
    return _EMPTY_HEAD.sub("", html)
