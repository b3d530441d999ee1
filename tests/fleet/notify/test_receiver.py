"""Receivers as a file describes them: what they want, and what is refused."""

from __future__ import annotations

import msgspec
import pytest

from trunkline.fleet.notify.receiver import NoticeReceiver

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
        ({"tenants": []}, "tenants"),
        ({"options": {"a": 1}}, "options belong to channel"),
        ({"webhook_secret_env": "KEY"}, "set calls: true too"),
    ],
)
def test_what_does_not_fit_is_refused(members: dict[str, object], word: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=word) as refused:
        read(**members)
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("members", "kind", "options"),
    [
        ({"webhook": HOOK}, "webhook", {"url": HOOK}),
        (
            {"webhook_env": "HOOK", "webhook_secret_env": "KEY", "calls": True},
            "webhook",
            {"url_env": "HOOK", "secret_env": "KEY"},
        ),
        ({"apprise_env": "MAIL"}, "apprise", {"url_env": "MAIL"}),
        (
            {"discord": "1", "discord_token_env": "T", "discord_public_key": "00" * 32},
            "discord",
            {"channel": "1", "token_env": "T", "public_key": "00" * 32},
        ),
        ({"channel": "team", "options": {"room": "x"}}, "team", {"room": "x"}),
    ],
)
def test_short_forms_are_options_of_a_channel(
    members: dict[str, object], kind: str, options: dict[str, object]
) -> None:
    found = msgspec.convert({"name": "office", **members}, NoticeReceiver)
    assert (found.kind, found.channel_options) == (kind, options)


def test_a_receiver_has_a_home_tenant_and_a_realm() -> None:
    assert (read().home, read(tenants="all").home, read(tenants=["north", "south"]).home) == (
        "default",
        "default",
        "north",
    )
    own = msgspec.convert({"name": "office", "channel": "own_channels:Team"}, NoticeReceiver)
    assert (read().realm, own.realm) == ("webhook", "office")
