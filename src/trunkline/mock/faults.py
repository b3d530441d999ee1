"""What a mock does wrong on purpose: faults are data, so that schedules of them can be written or drawn.

The functions make them: `cut(2)` breaks a stream off after its second event. All take `on` (operations),
`requests` (which of them, counted from 1), `chance` and `path`; without these a fault strikes every time.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Literal, TypedDict, Unpack, get_args

from msgspec import Struct

from trunkline.errors import Misuse
from trunkline.wire.types import Metadata

Kind = Literal[
    "cut", "end", "duplicate", "reorder", "stall",
    "status", "html", "garbage", "empty", "truncate", "media_type", "version", "dialect", "wrong_id",
    "slow", "huge", "redirect", "drop", "lose", "gzip", "close", "lie",
]  # fmt: skip
OperationName = Literal[
    "card", "send", "stream", "subscribe", "get", "list", "cancel", "push", "extended_card"
]  # fmt: skip

OPERATIONS: tuple[str, ...] = get_args(OperationName)
STREAMS = frozenset({"stream", "subscribe"})
# What can only happen to a stream.
_STREAM_FAULTS = frozenset({"cut", "end", "duplicate", "reorder"})
# Sent before anything is done, unless the fault is `worked`.
REFUSALS = frozenset({"status", "html", "redirect"})


class MockFault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault, and the requests that it strikes."""

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
    on: tuple[OperationName, ...] = ()
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

    def concerns(self, operation: str, path: str) -> bool:
        """Whether it could strike this kind of request at all."""
        if self.path and self.path != path:
            return False
        if self.do == "lie":
            return operation in ("card", "extended_card")
        if self.on:
            return operation in self.on and (self.do not in _STREAM_FAULTS or operation in STREAMS)
        return operation in STREAMS if self.do in _STREAM_FAULTS else operation != "card"


Faults = tuple[MockFault, ...]


class FaultTarget(TypedDict, total=False):
    """The requests that a fault strikes."""

    on: Sequence[OperationName]
    requests: Sequence[int]
    chance: float
    path: str


class FaultSchedule:
    """Which faults are due, request by request. The same seed and requests always give the same."""

    def __init__(self, faults: Sequence[MockFault], seed: int) -> None:
        self._faults = faults
        self._counts = [0] * len(faults)
        self._random = random.Random(seed)

    def due(self, operation: str, path: str) -> Faults:
        """The faults that strike this request; counts it."""
        found: list[MockFault] = []
        for index, fault in enumerate(self._faults):
            if not fault.concerns(operation, path):
                continue
            self._counts[index] += 1
            counted = not fault.requests or self._counts[index] in fault.requests
            if counted and (fault.chance >= 1 or self._random.random() < fault.chance):
                found.append(fault)
        return tuple(found)


def _fault(do: Kind, target: FaultTarget, **more: object) -> MockFault:
    on = tuple(target.get("on", ()))
    for operation in on:
        if operation not in OPERATIONS:
            raise Misuse(f"on: {operation!r} is no operation; one of {', '.join(OPERATIONS)}")
    given: Any = {**target, **more, "on": on, "requests": tuple(target.get("requests", ()))}
    return MockFault(do=do, **given)


def cut(at: int = 1, **target: Unpack[FaultTarget]) -> MockFault:
    """The connection breaks off after event `at` of a stream."""
    return _fault("cut", target, at=at)


def end(at: int = 1, **target: Unpack[FaultTarget]) -> MockFault:
    """A stream ends cleanly after event `at`, whatever was still to come."""
    return _fault("end", target, at=at)


def duplicate(at: int = 1, **target: Unpack[FaultTarget]) -> MockFault:
    """Event `at` comes twice."""
    return _fault("duplicate", target, at=at)


def reorder(at: int = 1, **target: Unpack[FaultTarget]) -> MockFault:
    """Event `at` comes after the next one."""
    return _fault("reorder", target, at=at)


def stall(at: int = 1, seconds: float | None = None, **target: Unpack[FaultTarget]) -> MockFault:
    """Nothing comes after event `at` for so long, or ever; an answer that is no stream does not begin."""
    return _fault("stall", target, at=at, seconds=seconds)


def status(
    code: int, *, worked: bool = False, seconds: float | None = None, **target: Unpack[FaultTarget]
) -> MockFault:
    """An HTTP status instead of an answer; `seconds` is its Retry-After."""
    return _fault("status", target, status=code, worked=worked, seconds=seconds)


def unauthorized(
    challenge: str = "Bearer", *, worked: bool = False, **target: Unpack[FaultTarget]
) -> MockFault:
    """401 with `WWW-Authenticate`."""
    return _fault("status", target, status=401, worked=worked, headers={"WWW-Authenticate": challenge})


def busy(seconds: float = 1.0, **target: Unpack[FaultTarget]) -> MockFault:
    """429 with `Retry-After`."""
    return _fault("status", target, status=429, seconds=seconds)


def html(code: int = 502, *, worked: bool = False, **target: Unpack[FaultTarget]) -> MockFault:
    """A proxy's error page."""
    return _fault("html", target, status=code, worked=worked)


def garbage(at: int = 1, **target: Unpack[FaultTarget]) -> MockFault:
    """The work is done and the answer is no JSON; of a stream, event `at` is none."""
    return _fault("garbage", target, at=at)


def empty(**target: Unpack[FaultTarget]) -> MockFault:
    """The work is done and the answer has no body."""
    return _fault("empty", target)


def truncate(at: int = 1, **target: Unpack[FaultTarget]) -> MockFault:
    """The work is done and the connection breaks off amid the answer, or amid event `at`."""
    return _fault("truncate", target, at=at)


def media_type(to: str = "text/plain", **target: Unpack[FaultTarget]) -> MockFault:
    """The right answer under a wrong Content-Type."""
    return _fault("media_type", target, to=to)


def version(**target: Unpack[FaultTarget]) -> MockFault:
    """The version is not supported, whatever the card says: -32009."""
    return _fault("version", target)


def dialect(**target: Unpack[FaultTarget]) -> MockFault:
    """The answer is written in the other version."""
    return _fault("dialect", target)


def wrong_id(**target: Unpack[FaultTarget]) -> MockFault:
    """The answer carries the id of some other JSON-RPC request."""
    return _fault("wrong_id", target)


def slow(seconds: float = 0.05, **target: Unpack[FaultTarget]) -> MockFault:
    """The body comes in eight pieces, with so many seconds before each."""
    return _fault("slow", target, seconds=seconds)


def huge(size: int = 32 << 20, at: int = 1, **target: Unpack[FaultTarget]) -> MockFault:
    """The body, or event `at`, is padded with so many bytes."""
    return _fault("huge", target, size=size, at=at)


def redirect(to: str, code: int = 307, **target: Unpack[FaultTarget]) -> MockFault:
    """A redirect to a path or another host."""
    return _fault("redirect", target, to=to, status=code)


def drop(**target: Unpack[FaultTarget]) -> MockFault:
    """The request is taken and the connection closed; nothing is done."""
    return _fault("drop", target)


def lose(**target: Unpack[FaultTarget]) -> MockFault:
    """The work is done, and the connection closed without an answer."""
    return _fault("lose", target)


def gzip(**target: Unpack[FaultTarget]) -> MockFault:
    """The body is packed, though nobody asked for that."""
    return _fault("gzip", target)


def close(**target: Unpack[FaultTarget]) -> MockFault:
    """The connection is closed after the answer, which did not say so; only where there is a socket."""
    return _fault("close", target)


def lie(card: Metadata, **target: Unpack[FaultTarget]) -> MockFault:
    """The card says this instead; null leaves a member out."""
    return _fault("lie", target, card=card)
