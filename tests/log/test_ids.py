"""What an id may be; tokens are good for one list only."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import InvalidParams
from trunkline.log.ids import UUID, Position, is_task_id, page_token, read_page_token

positions = st.builds(
    Position, st.integers(0, 2**53), st.from_regex(r"[A-Za-z0-9._~-]{1,20}", fullmatch=True)
)


@pytest.mark.parametrize(
    ("text", "uuid", "task_id"),
    [
        ("0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b", True, True),
        ("0190A1B2-C3D4-7E5F-8A9B-0C1D2E3F4A5B", True, True),
        ("0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b\n", False, False),
        ("0190a1b2c3d47e5f8a9b0c1d2e3f4a5b", False, True),
        ("msg-1", False, True),
        ("", False, False),
        ("a/b", False, False),
        ("../etc", False, False),
        ("é", False, False),
        ("x" * 128, False, True),
        ("x" * 129, False, False),
    ],
)
def test_grammar(text: str, uuid: bool, task_id: bool) -> None:
    assert (UUID.match(text) is not None, is_task_id(text)) == (uuid, task_id)


@given(positions, st.text(max_size=20))
def test_a_token_gives_its_position_back(position: Position, scope: str) -> None:
    assert read_page_token(page_token(position, scope), scope) == position


@given(positions, st.text(max_size=9), st.text(max_size=9))
def test_a_token_is_good_for_its_own_list_only(position: Position, scope: str, other: str) -> None:
    token = page_token(position, scope)
    if scope != other:
        with pytest.raises(InvalidParams, match="not from this list"):
            read_page_token(token, other)


@given(positions, st.data())
def test_a_damaged_token_is_refused(position: Position, data: st.DataObject) -> None:
    token = page_token(position, "s")
    place = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.sampled_from("AZaz09-_=+/ é"))
    for damaged in {token[:place], token[:place] + letter + token[place + 1 :], token + letter} - {token}:
        with pytest.raises(InvalidParams):
            read_page_token(damaged, "s")


@given(st.text(max_size=40))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidParams):
        read_page_token(text, "s")


def test_a_token_of_a_task_that_cannot_be_is_refused() -> None:
    """Whoever knows how tokens are made can make any; not every store can be asked for any text."""
    for task_id in ("a\0b", "", "x" * 129, "a\n"):
        with pytest.raises(InvalidParams):
            read_page_token(page_token(Position(1, task_id), "s"), "s")


def test_a_well_sealed_token_with_a_foreign_body_is_refused() -> None:
    token = page_token(Position(1, "t"), "s")
    raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    assert raw[12:] == b'[1,"t"]'
