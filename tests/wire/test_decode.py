from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from trunkline.errors import ParseError
from trunkline.wire.decode import check_structure, invalid_params


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


class Inner(msgspec.Struct):
    word: Literal["left", "right"] | None = None


class Form(msgspec.Struct):
    mode: Literal["fast", "slow"] = "fast"
    items: list[Inner] | None = None
    several: tuple[Literal["a", "b"], ...] = ()
    by_name: dict[str, Inner] = {}


@pytest.mark.parametrize(
    ("given", "field", "said"),
    [
        ({"mode": "x"}, "mode", "invalid enum value 'x'; choose fast, slow"),
        ({"items": [{"word": "x"}]}, "items[0].word", "invalid enum value 'x'; choose left, right"),
        ({"several": ["a", "x"]}, "several[1]", "invalid enum value 'x'; choose a, b"),
        (
            {"by_name": {"n": {"word": "x"}}},
            "by_name[...].word",
            "invalid enum value 'x'; choose left, right",
        ),
        ({"mode": 5}, "mode", "expected string, got integer"),
    ],
)
def test_a_wrong_word_is_told_with_those_that_fit(given: object, field: str, said: str) -> None:
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.convert(given, Form)
    refused = invalid_params(error.value, "the form", Form)
    assert (refused.field, refused.message) == (field, f"{field}: {said}")
    assert ";" not in invalid_params(error.value, "the form").message


class Place(msgspec.Struct, forbid_unknown_fields=True):
    city: str = ""


class Visit(msgspec.Struct, forbid_unknown_fields=True):
    timezone: str = ""
    place: Place | None = None


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"timzone": "UTC"}, "the form: unknown field 'timzone'; did you mean 'timezone'?"),
        ({"place": {"ctiy": ""}}, "place: unknown field 'ctiy'; did you mean 'city'?"),
    ],
)
def test_unknown_member_of_a_form_suggests_the_one_that_is_meant(given: object, text: str) -> None:
    with pytest.raises(msgspec.ValidationError) as failed:
        msgspec.convert(given, Visit)
    assert invalid_params(failed.value, "the form", Visit).message == text
