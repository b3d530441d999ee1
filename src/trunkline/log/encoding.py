"""Events as the JSON that a store keeps, and back; each at its place in the log. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import msgspec

from trunkline.log.events import AnyEvent, Compacted, Known, Recorded, Unread, span, spanned

# What a body that is damaged raises; nested too deep it is a RecursionError.
DECODE_ERRORS = (ValueError, RecursionError)

_decode_known = msgspec.json.Decoder(list[Known]).decode
_decode_one = msgspec.json.Decoder(Known).decode
_decode_raw = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode_kind = msgspec.json.Decoder(dict[str, object]).decode
_KINDS = frozenset(kind.__name__.lower() for kind in get_args(Known))
_encode = msgspec.json.Encoder().encode
# What stands for several seqs, or is not ours to encode; no executor says them.
_RARE = frozenset({Compacted, Unread})


def encode(events: Sequence[AnyEvent]) -> bytes:
    """Events as the JSON array that a store keeps."""
    return written(events)[1]


def written(events: Sequence[AnyEvent]) -> tuple[int, bytes]:
    """How many seqs these events stand for, and the JSON array that a store keeps."""
    for event in events:
        if type(event) in _RARE:
            return spanned(events), b"[%b]" % b",".join([encode_one(event) for event in events])
    return len(events), _encode(events)


def encode_one(event: AnyEvent) -> bytes:
    """One event as JSON."""
    return event.body if isinstance(event, Unread) else _encode(event)


def decode(body: bytes | str) -> list[AnyEvent]:
    """The events of a stored JSON array; what a newer version wrote comes as `Unread`.

    Raises:
        msgspec.ValidationError: an event of a known kind does not fit.
    """
    try:
        return list[AnyEvent](_decode_known(body))
    except msgspec.ValidationError:
        return [decode_one(raw) for raw in _decode_raw(body)]


def decode_one(body: bytes | str | msgspec.Raw) -> AnyEvent:
    """The event in a JSON object."""
    try:
        return _decode_one(body)
    except msgspec.ValidationError:
        kind = _decode_kind(body).get("kind")
        if not isinstance(kind, str) or kind in _KINDS:
            raise
        return Unread(body.encode() if isinstance(body, str) else bytes(body))


def placed(last: int, at: int, events: Sequence[AnyEvent]) -> list[Recorded]:
    """The events of one append at their places; `last` is the seq of the last one."""
    if _RARE.isdisjoint(map(type, events)):
        return [Recorded(seq, at, event) for seq, event in enumerate(events, last - len(events) + 1)]
    found: list[Recorded] = []
    seq = last - spanned(events)
    for event in events:
        seq += span(event)
        found.append(Recorded(seq, at, event))
    return found
