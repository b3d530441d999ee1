from __future__ import annotations

import pytest

from trunkline.errors import ParseError
from trunkline.wire.faults import check_depth


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
    check_depth(body)


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
        check_depth(body)
    assert "100 levels" in caught.value.message
