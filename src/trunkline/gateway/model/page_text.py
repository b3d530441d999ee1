"""The text of a page of the web: what a reader would see, without scripts and styles. Pure."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_UNSEEN = frozenset({"script", "style", "noscript", "template", "svg", "iframe"})
_BREAKS = frozenset(
    {"p", "div", "br", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "section", "article", "ul", "ol"}
)
_CHARSET = re.compile(r"charset=[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_SPACES = re.compile(r"[ \t\r\f\v\u00a0]+")


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
    reader = _Reader()
    reader.feed(html)
    reader.close()
    lines = _SPACES.sub(" ", "".join(reader.found)).splitlines()
    return "\n".join(line.strip() for line in lines if line and not line.isspace())


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._unseen = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        if tag in _UNSEEN:
            self._unseen += 1
        elif tag in _BREAKS:
            self.found.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in _UNSEEN:
            self._unseen = max(self._unseen - 1, 0)
        elif tag in _BREAKS:
            self.found.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self.found.append(data)
