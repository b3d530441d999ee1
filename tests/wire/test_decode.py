from __future__ import annotations

import pytest

from trunkline.errors import ParseError
from trunkline.wire.decode import check_structure


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100 + b"]" * 100,
        b"[" + b"[]," * 500 + b"[]]",
        b'["' + b"[" * 500 + b'"]' + b"[]" * 60,
        b'["\\\\", "\\"' + b"{" * 500 + b'"]',
        b'["\\\\\\"' + b"{" * 500 + b'"]',
    ],
)
def test_wide_is_not_deep(body: bytes) -> None:
    check_structure(body)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 101 + b"]" * 101,
        b'{"a":' * 101,
        b'["\\\\",' * 101,
        b"[],{}" * 50 + b'[{"a":' * 51,
    ],
)
def test_SEC_06_deep_is_refused(body: bytes) -> None:
    with pytest.raises(ParseError) as caught:
        check_structure(body)
    assert "100 levels" in caught.value.message


@pytest.mark.parametrize("pair", [b"[]", b"{}"])
def test_containers_are_counted_outside_strings_only(pair: bytes) -> None:
    check_structure(b"[" + b",".join([pair] * 99_999) + b"]")
    check_structure(b'"' + pair * 200_000 + b'"')
    with pytest.raises(ParseError, match="100000 lists and objects"):
        check_structure(b"[" + b",".join([pair] * 100_000) + b"]")
