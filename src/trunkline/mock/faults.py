"""What a mock does wrong on purpose: faults are data, so that schedules of them can be written or drawn.

The functions make them: `cut(2)` breaks a stream off after its second event. All take `on` (operations),
`requests` (which of them, counted from 1), `chance` and `path`; without these a fault strikes every time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal, TypedDict, Unpack, get_args

from msgspec import Struct

from trunkline.errors import Misuse
from trunkline.wire.types import Metadata

Kind = Literal[
    "cut", "end", "duplicate", "reorder", "stall",
    "status", "html", "garbage", "empty", "truncate", "media_type", "version", "dialect", "wrong_id",
    "slow", "huge", "redirect", "drop", "lose", "gzip", "close", "lie",
]  # fmt: skip
Asked = Literal[
    "card", "send", "stream", "subscribe", "get", "list", "cancel", "push", "extended_card"
]  # fmt: skip

OPERATIONS: tuple[str, ...] = get_args(Asked)
STREAMS = frozenset({"stream", "subscribe"})
# What can only happen to a stream, and what to a card.
_OF_STREAMS = frozenset({"cut", "end", "duplicate", "reorder"})
# Said before anything is done, unless the fault is `worked`.
REFUSALS = frozenset({"status", "html", "redirect", "version"})


class MockFault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that goes wrong, and when."""

    do: Kind
    # The event of a stream that it is about, from 1; 0 is before the first.
    at: int = 1
    # How long: a stall without it never ends. For a status of 429 or 503 it is the `Retry-After`.
    seconds: float | None = None
    status: int = 500
    # The work is done all the same, and only its answer is this.
    worked: bool = False
    # Of huge: how many bytes.
    size: int = 32 << 20
    # Of a redirect: where to. Of media_type: which.
    to: str = ""
    headers: dict[str, str] = {}
    # Of a lie: what the card says instead; null leaves a member out.
    card: Metadata = {}
    on: tuple[Asked, ...] = ()
    path: str = ""
    requests: tuple[int, ...] = ()
    chance: float = 1.0

    def __post_init__(self) -> None:
        if self.at < 0:
            raise ValueError("at counts events from 1; 0 is before the first")
        if not 0 <= self.chance <= 1:
            raise ValueError("chance is between 0 and 1")
        if any(number < 1 for number in self.requests):
            raise ValueError("requests are counted from 1")
        if not 200 <= self.status <= 599:
            raise ValueError("status is that of an HTTP answer, 200 to 599")

    def concerns(self, asked: str, path: str) -> bool:
        """Whether it could strike this kind of request at all."""
        if self.path and self.path != path:
            return False
        if self.do == "lie":
            return asked in ("card", "extended_card")
        if self.on:
            return asked in self.on and (self.do not in _OF_STREAMS or asked in STREAMS)
        return asked in STREAMS if self.do in _OF_STREAMS else asked != "card"


class Aim(TypedDict, total=False):
    """When a fault strikes."""

    on: Sequence[Asked]
    requests: Sequence[int]
    chance: float
    path: str


class FaultSchedule:
    """Which faults are due, request by request. The same seed and requests always give the same."""

    def __init__(self, faults: Sequence[MockFault], seed: int) -> None:
        self._faults = faults
        self._counts = [0] * len(faults)
        self._dice = random.Random(seed)

    def due(self, asked: str, path: str) -> tuple[MockFault, ...]:
        """The faults of this request."""
        found: list[MockFault] = []
        for place, fault in enumerate(self._faults):
            if not fault.concerns(asked, path):
                continue
            self._counts[place] += 1
            counted = not fault.requests or self._counts[place] in fault.requests
            if counted and (fault.chance >= 1 or self._dice.random() < fault.chance):
                found.append(fault)
        return tuple(found)


def _aimed(aim: Aim) -> Aim:
    on = tuple(aim.get("on", ()))
    for asked in on:
        if asked not in OPERATIONS:
            raise Misuse(f"on: {asked!r} is no operation; one of {', '.join(OPERATIONS)}")
    return {
        "on": on,
        "requests": tuple(aim.get("requests", ())),
        "chance": aim.get("chance", 1.0),
        "path": aim.get("path", ""),
    }


def _made(do: Kind, aim: Aim, **more: object) -> MockFault:
    return MockFault(do=do, **_aimed(aim), **more)  # pyright: ignore[reportArgumentType]


def cut(at: int = 1, **aim: Unpack[Aim]) -> MockFault:
    """The connection breaks off after event `at` of a stream."""
    return _made("cut", aim, at=at)


def end(at: int = 1, **aim: Unpack[Aim]) -> MockFault:
    """A stream ends cleanly after event `at`, whatever was still to come."""
    return _made("end", aim, at=at)


def duplicate(at: int = 1, **aim: Unpack[Aim]) -> MockFault:
    """Event `at` comes twice."""
    return _made("duplicate", aim, at=at)


def reorder(at: int = 1, **aim: Unpack[Aim]) -> MockFault:
    """Event `at` comes after the next one."""
    return _made("reorder", aim, at=at)


def stall(at: int = 1, seconds: float | None = None, **aim: Unpack[Aim]) -> MockFault:
    """Nothing comes after event `at` for so long, or ever; an answer that is no stream does not begin."""
    return _made("stall", aim, at=at, seconds=seconds)


def status(code: int, *, worked: bool = False, seconds: float | None = None, **aim: Unpack[Aim]) -> MockFault:
    """An HTTP status instead of an answer; `seconds` is its Retry-After."""
    return _made("status", aim, status=code, worked=worked, seconds=seconds)


def unauthorized(challenge: str = "Bearer", *, worked: bool = False, **aim: Unpack[Aim]) -> MockFault:
    """401 with `WWW-Authenticate`."""
    return _made("status", aim, status=401, worked=worked, headers={"WWW-Authenticate": challenge})


def busy(seconds: float = 1.0, **aim: Unpack[Aim]) -> MockFault:
    """429 with `Retry-After`."""
    return _made("status", aim, status=429, seconds=seconds)


def html(code: int = 502, *, worked: bool = False, **aim: Unpack[Aim]) -> MockFault:
    """A proxy's error page."""
    return _made("html", aim, status=code, worked=worked)


def garbage(at: int = 1, **aim: Unpack[Aim]) -> MockFault:
    """The work is done and the answer is no JSON; of a stream, event `at` is none."""
    return _made("garbage", aim, at=at)


def empty(**aim: Unpack[Aim]) -> MockFault:
    """The work is done and the answer has no body."""
    return _made("empty", aim)


def truncate(at: int = 1, **aim: Unpack[Aim]) -> MockFault:
    """The work is done and the connection breaks off amid the answer, or amid event `at`."""
    return _made("truncate", aim, at=at)


def media_type(to: str = "text/plain", **aim: Unpack[Aim]) -> MockFault:
    """The right answer under a wrong Content-Type."""
    return _made("media_type", aim, to=to)


def version(**aim: Unpack[Aim]) -> MockFault:
    """The version is not supported, whatever the card says: -32009."""
    return _made("version", aim)


def dialect(**aim: Unpack[Aim]) -> MockFault:
    """The answer is written in the other version."""
    return _made("dialect", aim)


def wrong_id(**aim: Unpack[Aim]) -> MockFault:
    """The answer carries the id of some other JSON-RPC request."""
    return _made("wrong_id", aim)


def slow(seconds: float = 0.05, **aim: Unpack[Aim]) -> MockFault:
    """The body comes in eight pieces, with so many seconds before each."""
    return _made("slow", aim, seconds=seconds)


def huge(size: int = 32 << 20, at: int = 1, **aim: Unpack[Aim]) -> MockFault:
    """The body, or event `at`, is padded with so many bytes."""
    return _made("huge", aim, size=size, at=at)


def redirect(to: str, code: int = 307, **aim: Unpack[Aim]) -> MockFault:
    """A redirect to a path or another host."""
    return _made("redirect", aim, to=to, status=code)


def drop(**aim: Unpack[Aim]) -> MockFault:
    """The request is taken and the connection closed; nothing is done."""
    return _made("drop", aim)


def lose(**aim: Unpack[Aim]) -> MockFault:
    """The work is done, and the connection closed without an answer."""
    return _made("lose", aim)


def gzip(**aim: Unpack[Aim]) -> MockFault:
    """The body is packed, though nobody asked for that."""
    return _made("gzip", aim)


def close(**aim: Unpack[Aim]) -> MockFault:
    """The connection is closed after the answer, which did not say so; only where there is a socket."""
    return _made("close", aim)


def lie(card: Metadata, **aim: Unpack[Aim]) -> MockFault:
    """The card says this instead; null leaves a member out."""
    return _made("lie", aim, card=card)
