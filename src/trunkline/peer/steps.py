"""What the log of a task says of its messages to a remote agent: that one is sent, and what it became."""

from __future__ import annotations

from msgspec import Struct

SENT, TAKEN = "peer.sent", "peer.taken"


class Sent(Struct, frozen=True):
    """A message to a remote agent, recorded before it is sent."""

    message: str
    interface: str


class RemoteTask(Struct, frozen=True):
    """The task that a remote agent has made of it; with `lost` nobody knows whether it did."""

    task: str = ""
    context: str = ""
    lost: bool = False
