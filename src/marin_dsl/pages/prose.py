"""Text with a little markup, safely as HTML: `code` and *emphasis*, everything else escaped."""

from __future__ import annotations

import re
from html import escape

_SPAN = re.compile(r"`([^`\n]+)`|(?<![\w*])\*(?=\S)([^*\n]*[^*\s])\*(?![\w*])")


def inline(text: str) -> str:
    """One run of text as HTML.

    >>> inline("*really* `a<b` & 2*3*4")
    '<em>really</em> <code>a&lt;b</code> &amp; 2*3*4'
    """
    parts, end = [], 0
    for match in _SPAN.finditer(text):
        parts.append(escape(text[end : match.start()]))
        code, emphasis = match.groups()
        parts.append(f"<code>{escape(code)}</code>" if code is not None else f"<em>{escape(emphasis)}</em>")
        end = match.end()
    return "".join([*parts, escape(text[end:])])


def paragraphs(text: str) -> str:
    r"""Text as HTML paragraphs, which blank lines separate.

    >>> paragraphs("one\n\ntwo")
    '<p>one</p>\n<p>two</p>'
    """
    blocks = (block.strip() for block in re.split(r"\n\s*\n", text))
    return "\n".join(f"<p>{inline(block)}</p>" for block in blocks if block)
