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
    ],
)
def test_the_text_of_a_body(body: bytes, kind: str, text: str | None) -> None:
    assert page_text(body, kind) == text


def test_a_page_that_is_never_closed_is_read_to_its_end() -> None:
    assert page_text(b"<p>a</script></p><div>" * 1000 + b"b", "text/html").endswith("b")  # type: ignore[union-attr]
