"""Notifications to people: open questions, alerts, results, and the channels that carry them.

Packages that add a channel import from here; see `docs/channels.md`.
"""

from trunkline.fleet.inbox import AnswerForm, AnswerTaken, InboxItem
from trunkline.fleet.notify.channel import (
    Channel,
    ChannelRequest,
    ChannelResponse,
    ChannelSettings,
    EditableChannel,
)
from trunkline.fleet.notify.channel_hub import ChannelCall, ChannelHub
from trunkline.fleet.notify.notice import ChannelMessage

__all__ = [
    "AnswerForm",
    "AnswerTaken",
    "Channel",
    "ChannelCall",
    "ChannelHub",
    "ChannelMessage",
    "ChannelRequest",
    "ChannelResponse",
    "ChannelSettings",
    "EditableChannel",
    "InboxItem",
]
