"""Checks of the wire itself, on everything that the other checks have brought back."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trunkline.doctor.binding import ProbeBinding
from trunkline.doctor.exchange import ProbeExchange
from trunkline.doctor.finding import ERROR, PASSED, RPC, CheckVerdict, failed, of_way, unknown
from trunkline.doctor.json_access import JsonPiece, items, members, pieces, snake_members, text

_TYPED = frozenset(("task", "message", "status-update", "artifact-update"))
_STATES = "submitted working input-required completed canceled failed rejected auth-required".split()
_STATES_V1 = frozenset(f"TASK_STATE_{one.upper().replace('-', '_')}" for one in _STATES)
_STATES_V03 = frozenset((*_STATES, "unknown"))
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_CONTENTS = ("text", "raw", "url", "data")
_NEEDED = {
    "task": ("id", "status"),
    "status": ("state",),
    "message": ("messageId", "role", "parts"),
    "artifact": ("artifactId", "parts"),
    "status-update": ("taskId", "contextId", "status"),
    "artifact-update": ("taskId", "contextId", "artifact"),
}


def _all(way: ProbeBinding) -> Iterator[tuple[JsonPiece, ProbeExchange]]:
    for top, exchange in _tops(way):
        for piece in pieces(top):
            yield piece, exchange


def _tops(way: ProbeBinding) -> Iterator[tuple[JsonPiece, ProbeExchange]]:
    for top, exchange in way.heard:
        if text(top.value.get("id")) not in way.subject.odd:
            yield top, exchange


def _quiet(way: ProbeBinding) -> CheckVerdict:
    return PASSED if way.heard else unknown("nothing came to look at")


@of_way(
    "wire-kind",
    ERROR,
    "0.3 §7, DAT-07, AG-45",
    means="Clients of 0.3 drop objects without `kind` in silence; clients of 1.0 refuse it, and `final` too.",
    fix="Write kind on every task, message, update and part in 0.3, and neither kind nor final in 1.0.",
    bindings=RPC,
    late=True,
)
async def kind(way: ProbeBinding) -> CheckVerdict:
    """`kind` is on every object of 0.3, and on none of 1.0."""
    for piece, exchange in _all(way):
        if way.version == "1.0":
            for name in ("kind", "final"):
                if name in piece.value:
                    return failed(f"{piece.path} has {name} in 1.0", exchange)
        elif piece.kind in _TYPED and piece.value.get("kind") != piece.kind:
            return failed(f"{piece.path} has kind {piece.value.get('kind')!r}, not {piece.kind!r}", exchange)
        elif piece.kind == "part" and piece.value.get("kind") not in ("text", "file", "data"):
            return failed(f"{piece.path} has kind {piece.value.get('kind')!r}", exchange)
    return _quiet(way)


@of_way(
    "wire-wrapper",
    ERROR,
    "§3.2.3, A.2",
    means="Clients look for the result in another place and find nothing.",
    fix="In 1.0 wrap what a send gives as {task: …} or {message: …}; in 0.3 give it bare.",
    late=True,
    sends=True,
)
async def wrapper(way: ProbeBinding) -> CheckVerdict:
    """The answer of a send is wrapped in 1.0 and bare in 0.3."""
    answer = await way.subject.trials(way).sent()
    found = members(answer.result)
    wrapped = "task" in found or ("message" in found and "parts" not in found)
    if wrapped == (way.version == "1.0"):
        return PASSED
    return failed(f"the result is {'wrapped' if wrapped else 'bare'}", answer.exchange)


@of_way(
    "wire-states",
    ERROR,
    "§4.1.3, DAT-02",
    means="Clients do not know this state and treat the task as unfinished, or as broken.",
    fix="Spell states as the version does: TASK_STATE_COMPLETED in 1.0, completed in 0.3.",
    late=True,
)
async def states(way: ProbeBinding) -> CheckVerdict:
    """States are spelled as in the version."""
    allowed = _STATES_V1 if way.version == "1.0" else _STATES_V03
    for piece, exchange in _all(way):
        if piece.kind == "status" and piece.value.get("state") not in allowed:
            return failed(f"{piece.path}.state is {piece.value.get('state')!r}", exchange)
    return _quiet(way)


@of_way(
    "wire-roles",
    ERROR,
    "§4.1.5, DAT-02",
    means="Clients do not know who has said it.",
    fix="Spell roles as the version does: ROLE_USER and ROLE_AGENT in 1.0, user and agent in 0.3.",
    late=True,
)
async def roles(way: ProbeBinding) -> CheckVerdict:
    """Roles are spelled as in the version."""
    allowed = ("ROLE_USER", "ROLE_AGENT") if way.version == "1.0" else ("user", "agent")
    for piece, exchange in _all(way):
        if piece.kind == "message" and piece.value.get("role") not in allowed:
            return failed(f"{piece.path}.role is {piece.value.get('role')!r}", exchange)
    return _quiet(way)


@of_way(
    "wire-camel-case",
    ERROR,
    "§5.5, DAT-01, AG-45",
    means="Clients do not see members under these names.",
    fix="Spell members in camelCase on the wire: contextId, artifactId, lastChunk.",
    late=True,
)
async def camel_case(way: ProbeBinding) -> CheckVerdict:
    """No member of the protocol has an underscore."""
    for top, exchange in _tops(way):
        odd = next(snake_members(top.value, top.path), "")
        if odd:
            return failed(f"{odd} is spelled with underscores", exchange)
    return _quiet(way)


@of_way(
    "wire-timestamps",
    ERROR,
    "§5.6.1, DAT-03",
    means="Clients cannot read the time, or are hours off.",
    fix="Write times as RFC 3339 in UTC, such as 2026-01-31T12:00:00.000Z.",
    versions=("1.0",),
    late=True,
)
async def timestamps(way: ProbeBinding) -> CheckVerdict:
    """Times are UTC and end in Z."""
    for piece, exchange in _all(way):
        said = piece.value.get("timestamp")
        if piece.kind == "status" and said is not None and not _TIME.fullmatch(text(said)):
            return failed(f"{piece.path}.timestamp is {said!r}", exchange)
    return _quiet(way)


@of_way(
    "wire-required-members",
    ERROR,
    "§5.7, DAT-04",
    means="Typed clients refuse the object.",
    fix="Write all required members: id and status of a task, messageId, role and parts of a message …",
    late=True,
)
async def required(way: ProbeBinding) -> CheckVerdict:
    """Required members are there."""
    for piece, exchange in _all(way):
        needed = _NEEDED.get(piece.kind, ())
        # In 1.0 that is for `send-context-made` to say.
        if piece.kind == "task" and way.version != "1.0":
            needed = (*needed, "contextId")
        for name in needed:
            if piece.value.get(name) in (None, ""):
                return failed(f"{piece.path} lacks {name}", exchange)
    return _quiet(way)


@of_way(
    "wire-parts",
    ERROR,
    "§4.1.6, SND-23",
    means="Clients cannot tell what a part is.",
    fix="Write exactly one of text, raw, url and data in 1.0; the member that kind names in 0.3.",
    late=True,
)
async def parts(way: ProbeBinding) -> CheckVerdict:
    """A part holds exactly one thing."""
    for piece, exchange in _all(way):
        if piece.kind != "part":
            continue
        if way.version == "1.0":
            held = [name for name in _CONTENTS if name in piece.value]
            if len(held) != 1:
                return failed(f"{piece.path} holds {', '.join(held) or 'nothing'}", exchange)
        elif text(piece.value.get("kind")) and text(piece.value["kind"]) not in piece.value:
            return failed(f"{piece.path} has no member {piece.value['kind']}", exchange)
    return _quiet(way)


@of_way(
    "wire-artifacts",
    ERROR,
    "§4.1.7, DAT-05",
    means="Clients that keep artifacts by id lose one, or show an empty one.",
    fix="Give each artifact of a task an id of its own and at least one part.",
    late=True,
)
async def artifacts(way: ProbeBinding) -> CheckVerdict:
    """Artifacts have parts, and ids that differ."""
    for piece, exchange in _all(way):
        if piece.kind == "artifact" and not items(piece.value.get("parts")):
            return failed(f"{piece.path} has no parts", exchange)
        names = [text(members(one).get("artifactId")) for one in items(piece.value.get("artifacts"))]
        if piece.kind == "task" and len(set(names)) < len(names):
            return failed(f"{piece.path} has two artifacts of one id", exchange)
    return _quiet(way)
