"""The channels of receivers: the kinds that are built in, installed, or modules of the workspace."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import cast

from trunkline.errors import Misuse, Unreachable
from trunkline.fleet.notify.apprise_channel import AppriseChannel
from trunkline.fleet.notify.channel import (
    Channel,
    ChannelFactory,
    ChannelSettings,
    EditableChannel,
    receives,
)
from trunkline.fleet.notify.discord import DiscordChannel
from trunkline.fleet.notify.receiver import NoticeReceiver
from trunkline.fleet.notify.webhook_channel import WebhookChannel
from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher

# The group of entry points in which installed packages offer kinds of channels.
GROUP = "trunkline.channels"
BUILT_IN: dict[str, ChannelFactory] = {
    "apprise": AppriseChannel,
    "discord": DiscordChannel,
    "webhook": WebhookChannel,
}


def find_kind(kind: str) -> ChannelFactory:
    """Return what makes channels of a kind: a built-in name, `module:object`, or the name of an entry point.

    Raises:
        Misuse: there is no such kind, or it cannot be imported.
    """
    if kind in BUILT_IN:
        return BUILT_IN[kind]
    installed = {one.name: one for one in entry_points(group=GROUP)}
    module, _, attribute = kind.partition(":")
    try:
        if attribute:
            found = getattr(importlib.import_module(module), attribute, None)
        elif kind in installed:
            found = installed[kind].load()
        else:
            names = ", ".join(sorted({*BUILT_IN, *installed}))
            raise Misuse(f"channel {kind!r} not found; choose {names}, or name an object as module:Class")
    except Misuse:
        raise
    except Exception as error:
        # The module is code of others and may raise anything.
        raise Misuse(f"channel {kind!r} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise Misuse(f"channel {kind!r} is no class that makes channels")
    return cast("ChannelFactory", found)


def make_channel(receiver: NoticeReceiver, settings: ChannelSettings) -> Channel:
    """Return the channel of a receiver.

    Raises:
        Misuse: there is no such kind, or it cannot do what the receiver needs.
    """
    try:
        made = find_kind(receiver.kind)(settings)
    except Unreachable:
        # Not the address: it may hold a secret.
        raise Misuse("its address cannot be called") from None
    if "progress" in receiver.about and not isinstance(made, EditableChannel):
        raise Misuse(f"progress needs messages that can be edited, and {receiver.kind} has none")
    if receiver.calls and not receives(made):
        raise Misuse(f"channels of the kind {receiver.kind} accept no calls; remove calls")
    return made


def find_channel(channels: Mapping[str, Channel], place: str) -> Channel | None:
    """Return the channel of the receiver with this name, or another channel that one reaches by this ID."""
    others = (other for one in channels.values() if (other := one.find_other(place)) is not None)
    return channels.get(place) or next(others, None)


def check_receivers(
    receivers: Sequence[NoticeReceiver], variable: Callable[[str], str | None]
) -> dict[str, Channel]:
    """Return a channel for each receiver, with which nothing can be sent.

    Raises:
        Misuse: two receivers have one name, a variable is not set, or an option is wrong.
    """
    names = [one.name for one in receivers]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise Misuse(f"notify: two receivers are called {twice[0]}; give one another name")
    # A channel does nothing when it is made, so this one is never used.
    http = Fetcher(Egress())
    made: dict[str, Channel] = {}
    for one in receivers:
        settings = ChannelSettings(
            name=one.name,
            options=one.channel_options,
            accepts_calls=one.calls,
            http=http,
            variable=variable,
            sign=lambda _id, _moment, _body: "",
            now_ms=lambda: 0,
        )
        try:
            made[one.name] = make_channel(one, settings)
        except Misuse as error:
            raise Misuse(f"notify {one.name}: {error}") from None
    return made
