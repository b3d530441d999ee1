"""The text of a page of the web: what a reader would see, without scripts and styles. Pure.

Read in one go from its beginning to its end, as the page is a stranger's: the parser of the standard library
looks for the end of each tag anew, and needs minutes for a megabyte of tags without one.
"""

from __future__ import annotations

import re
from html import unescape

_UNSEEN = frozenset({"noscript", "template", "svg", "iframe"})
_BREAKS = frozenset(
    {"p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "section", "article", "ul", "ol"}
)
# Those of the web. Others that Python knows take hours for a megabyte, or make halves of characters.
_CHARSET = re.compile(
    r"charset=[\"']?((?:utf-?(?:8|16)|us-ascii|iso-?8859-|windows-|cp1|latin|koi8|gb|big5|euc-|shift_?jis|iso-2022-)"
    r"[a-z0-9_-]{0,20})",
    re.IGNORECASE,
)
_SPACES = re.compile(r"[ \t\r\f\v\u00a0]+")
# What a `<` begins: a comment, which may be empty, a tag with its name, or something else in brackets.
_MARKUP = re.compile(r"<(?:!--(?:-?>)?|(/?)([a-zA-Z][^\s/>]*)|[/!?])")
# The rest of a tag; a `>` in the value of an attribute does not end it.
_REST_OF_TAG = re.compile(r"(?:=\s*+(?:\"[^\"]*\"|'[^']*')|[^>])*+>")
# What these hold is no markup, up to their own end.
_RAW = {name: re.compile(f"</{name}(?=[\\s/>])", re.IGNORECASE) for name in ("script", "style")}
# No character has a longer number, and Python refuses to read one of thousands of digits.
_LONG_NUMBER = re.compile(r"&#[xX]?[0-9a-fA-F]{20,};?")


def page_text(body: bytes, content_type: str) -> str | None:
    """What a body says, by its media type; None if that is no text."""
    kind = content_type.partition(";")[0].strip().lower()
    if not (kind.startswith("text/") or kind.endswith(("json", "xml")) or not kind):
        return None
    text = _decoded(body, content_type)
    return _visible(text) if "html" in kind else text


def _decoded(body: bytes, content_type: str) -> str:
    named = _CHARSET.search(content_type)
    try:
        return body.decode(named[1] if named else "utf-8", errors="replace")
    except LookupError:
        return body.decode(errors="replace")


def _visible(html: str) -> str:
    text = unescape(_LONG_NUMBER.sub("\ufffd", "".join(_seen(html))))
    lines = _SPACES.sub(" ", text).splitlines()
    return "\n".join(line.strip() for line in lines if line and not line.isspace())


def _seen(html: str) -> list[str]:
    """The pieces of text between tags, and a line break for each tag that makes one."""
    found: list[str] = []
    place = unseen = 0
    while (markup := _MARKUP.search(html, place)) is not None:
        if not unseen:
            found.append(html[place : markup.start()])
        closes, name = markup[1], (markup[2] or "").lower()
        place = _end(html, markup)
        if name in _RAW and not closes:
            closing = _RAW[name].search(html, place)
            place = len(html) if closing is None else closing.start()
        elif name in _UNSEEN and closes:
            unseen = max(unseen - 1, 0)
        elif name in _UNSEEN and not html.endswith("/>", 0, place):
            unseen += 1
        elif name in _BREAKS:
            found.append("\n")
    if not unseen:
        found.append(html[place:])
    return found


def _end(html: str, markup: re.Match[str]) -> int:
    """Where a tag or a comment ends: with the page, if nothing else ends it."""
    place = markup.end()
    if markup[2]:
        rest = _REST_OF_TAG.match(html, place)
        return len(html) if rest is None else rest.end()
    if markup[0].endswith(">"):
        return place
    end = "-->" if markup[0] == "<!--" else ">"
    found = html.find(end, place)
    return len(html) if found < 0 else found + len(end)
