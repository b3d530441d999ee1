"""How a client behaves: its deadlines, its patience and what it may try again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from trunkline.config import LONGEST_S
from trunkline.errors import Misuse, TimedOut

T = TypeVar("T")
VERSIONS = ("", "1.0", "0.3")


class Options(Struct, frozen=True, kw_only=True):
    """All in seconds but `retries`, which counts.

    `timeout_s` is for a whole call, whatever it takes; `idle_s` for silence while an answer comes;
    `connect_s` for a connection; `poll_s` is the first pause between two looks at a task.
    """

    timeout_s: float = 300
    idle_s: float = 60
    connect_s: float = 5
    poll_s: float = 1
    retries: int = 3
    # Whether a message that comes twice is known to the agent; None is as its card says.
    deduplicates: bool | None = None
    version: str = ""
    bindings: tuple[str, ...] = ()
    card_url: str = ""
    card_ttl_s: float = 600

    def __post_init__(self) -> None:
        for name in ("timeout_s", "idle_s", "connect_s", "poll_s"):
            check_seconds(name, getattr(self, name))
        if self.retries < 0:
            raise Misuse(f"retries is {self.retries}; give 0 for none, or how often to try again")
        if self.card_ttl_s < 0:
            raise Misuse(f"card_ttl_s is {self.card_ttl_s}; give the seconds that a card is good for, or 0")
        if self.version not in VERSIONS:
            raise Misuse(f"version is {self.version!r}; give 1.0 or 0.3 to pin it, or leave it out")


def check_seconds(name: str, value: float) -> float:
    """The value, if a clock can wait for it.

    Raises:
        Misuse: it is zero, negative or endless.
    """
    if not 0 < value <= LONGEST_S:
        raise Misuse(f"{name} is {value}; give seconds between 0 and {LONGEST_S:g}")
    return value


async def in_time(seconds: float, work: Awaitable[T], late: Callable[[], TimedOut]) -> T:
    """What comes of the work; the error that `late` makes where it does not come in time."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
        raise late() from None
