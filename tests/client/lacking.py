"""An agent that lacks every operation, asked for each of them: one body for every transport."""

from __future__ import annotations

from typing import Any

import pytest

from trunkline import errors as e
from trunkline.client.transport import Call, Frame, Transport
from trunkline.wire.types import (
    ListQuery,
    Message,
    Part,
    PushConfig,
    PushQuery,
    PushRequest,
    Role,
    SendRequest,
    TaskQuery,
)

REQUEST = SendRequest(Message("m", role=Role.USER, parts=(Part(text="hi"),)))


async def all_of(frames: Any) -> list[Frame]:
    return [frame async for frame in frames]


async def lacks_everything(transport: Transport, missing: type[e.Refused]) -> None:
    """What an agent need not have is not supported; what it must have is missing."""
    call = Call()
    for ask in (
        lambda: transport.list(ListQuery(), call),
        lambda: all_of(transport.subscribe(TaskQuery("t"), call)),
        lambda: transport.extended_card(call),
    ):
        with pytest.raises(e.UnsupportedOperation, match="this agent has no"):
            await ask()
    for ask in (
        lambda: transport.set_push(PushRequest("t", PushConfig("https://x.example")), call),
        lambda: transport.get_push(PushQuery("t", "c"), call),
        lambda: transport.list_push(PushQuery("t"), call),
        lambda: transport.delete_push(PushQuery("t", "c"), call),
    ):
        with pytest.raises(e.PushNotSupported):
            await ask()
    for ask in (
        lambda: transport.send(REQUEST, call),
        lambda: all_of(transport.stream(REQUEST, call)),
        lambda: transport.get(TaskQuery("t"), call),
        lambda: transport.cancel(TaskQuery("t"), call),
    ):
        with pytest.raises(missing):
            await ask()
