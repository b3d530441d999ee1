"""Receivers as a file describes them: what they want, and what is refused."""

from __future__ import annotations

import msgspec
import pytest

from trunkline.errors import Misuse
from trunkline.fleet.notify.receiver import NoticeReceiver

NO_VARIABLE = dict[str, str]().get
HOOK = "https://hooks.example.com/canary"


def read(**members: object) -> NoticeReceiver:
    return msgspec.convert({"name": "office", "webhook": HOOK, **members}, NoticeReceiver)


def test_what_a_receiver_wants() -> None:
    plain = read()
    assert plain.wants("questions", "default") and plain.wants("alerts", "default")
    assert not plain.wants("questions", "north")
    assert read(tenants="all").wants("alerts", "north")
    late = read(tenants=["north"], about=["questions"], after="10m")
    assert (late.wants("questions", "north"), late.wants("alerts", "north"), late.after_ms) == (
        True,
        False,
        600_000,
    )


@pytest.mark.parametrize(
    ("members", "word"),
    [
        ({"apprise": "json://x"}, "give one of webhook"),
        ({"webhook": ""}, "give one of webhook"),
        ({"after": "soon"}, "after"),
        ({"about": ["weather"]}, "about"),
        ({"name": "a b"}, "name"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_what_does_not_fit_is_refused(members: dict[str, object], word: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=word) as refused:
        read(**members)
    assert "canary" not in str(refused.value)


def test_an_address_may_be_a_variable() -> None:
    named = msgspec.convert({"name": "a", "webhook_env": "HOOK"}, NoticeReceiver)
    assert named.address({"HOOK": HOOK}.get) == HOOK
    with pytest.raises(Misuse, match="the environment has no HOOK"):
        named.address(NO_VARIABLE)
