"""The text of a page: what a reader would see."""

from __future__ import annotations

import pytest

from trunkline.gateway.model.page_text import page_text

PAGE = b"""<html><head><title>T</title><style>p {}</style><script>steal()</script></head>
<body><h1>Tea &amp; milk</h1><p>One   <b>two</b></p><svg><text>no</text></svg><ul><li>a<li>b</ul></body></html>"""


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (PAGE, "text/html; charset=utf-8", "T\nTea & milk\nOne two\na\nb"),
        ("grün".encode("latin-1"), "text/plain; charset=latin-1", "grün"),
        (b"x", "text/plain; charset=no-such", "x"),
        (b'{"a": 1}', "application/problem+json", '{"a": 1}'),
        (b"\xff", "", "\ufffd"),
        (b"\x89PNG", "image/png", None),
        (b"a < b<!-- x > y -->c<!--->d<a title='1>2' x=\"'\">e</a><p it's>f", "text/html", "a < bcde\nf"),
        (
            b"a<SCRIPT>'<p></scrip>'</SCRIPT >b<svg/>c<template>d<template></template></template>e",
            "text/html",
            "abce",
        ),
        (b"a<!-- b", "text/html", "a"),
        (b"a<p title='b", "text/html", "a"),
        (b"a<script>b", "text/html", "a"),
        (b"<![x<?y>a</>b&#x41;&nbsp;c&lt;", "text/html", "abA c<"),
        # Python reads no number of so many digits.
        (b"&#" + b"9" * 5000 + b";a", "text/html", "\ufffda"),
        # Names of codecs that are none of the web, and that raise, or make what no text may hold.
        (b"\\ud800", "text/plain; charset=unicode_escape", "\\ud800"),
        (b"+2AA-", "text/plain; charset=utf-7", "+2AA-"),
        (b"x", "text/plain; charset=undefined", "x"),
    ],
)
def test_the_text_of_a_body(body: bytes, kind: str, text: str | None) -> None:
    assert page_text(body, kind) == text


def test_a_page_that_is_never_closed_is_read_to_its_end() -> None:
    assert page_text(b"<p>a</script></p><div>" * 1000 + b"b", "text/html").endswith("b")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "<!",
        "<!--",
        "<![",
        "<a ",
        "</",
        "</a ",
        "<?",
        '<a b="',
        "<a b='",
        "<a b=",
        "<script>",
        "<svg>",
        "&#",
        "= ",
    ],
)
@pytest.mark.parametrize("before", ["", "<a ", "<script>", "<!--", "<textarea>"])
def test_a_page_that_was_made_to_be_slow_is_read_as_fast_as_others(before: str, piece: str) -> None:
    """Each of them would take the parser of the standard library minutes, and the hub with it."""
    assert page_text(before.encode() + piece.encode() * ((1 << 20) // len(piece)), "text/html") is not None


def test_a_page_in_no_encoding_of_the_web_is_read_as_fast_as_others() -> None:
    body = b"x-" + b"abcz9" * 200_000
    assert page_text(body, "text/plain; charset=punycode") == body.decode()
