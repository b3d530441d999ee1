"""Checks of the wire itself, on everything that the other checks have brought back."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trunkline.doctor.check import ERROR, RPC, V1, Family, expect
from trunkline.doctor.exchange import (
    KINDS,
    ProbeExchange,
    ProtocolObject,
    Undecided,
    at,
    is_wrapped,
    items,
    nested_objects,
    objects,
    snake_members,
    text,
)
from trunkline.doctor.probe import InterfaceProbe
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import STATES

shapes = Family("shapes", late=True)

# Not sets: what an agent sends here need not be hashable.
_STATES_V1 = tuple(state.value for state in STATES)
_STATES_V03 = (*map(plain_state, STATES), "unknown")
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


def _objects(probe: InterfaceProbe, *kinds: str) -> Iterator[tuple[ProtocolObject, ProbeExchange]]:
    """Every object of these kinds, or of any, that was received or is inside one that was."""
    for top, exchange in _answers(probe):
        for found in nested_objects(top):
            if not kinds or found.kind in kinds:
                yield found, exchange


def _answers(probe: InterfaceProbe) -> Iterator[tuple[ProtocolObject, ProbeExchange]]:
    """The answers to requests that were not wrong on purpose.

    Raises:
        Undecided: nothing has come.
    """
    if not probe.received:
        raise Undecided("nothing came to look at")
    for top, exchange in probe.received:
        if text(top.value.get("id")) not in probe.subject.malformed_tasks:
            yield top, exchange


@shapes.interface("wire-kind", ERROR, "0.3 §7, DAT-07, AG-45", bindings=RPC)
async def kind(probe: InterfaceProbe) -> None:
    """`kind` is on every object of 0.3, and on none of 1.0.

    Means: Clients of 0.3 drop objects without `kind` in silence; clients of 1.0 refuse it, and `final` too.
    Fix: Write kind on every task, message, update and part in 0.3, and neither kind nor final in 1.0.
    """
    for found, exchange in _objects(probe):
        said = found.value.get("kind")
        if probe.is_v1:
            for name in ("kind", "final"):
                expect(name not in found.value, f"{found.path} has {name} in 1.0", exchange)
        elif found.kind == "part":
            expect(said in ("text", "file", "data"), f"{found.path} has kind {said!r}", exchange)
        elif found.kind in KINDS:
            expect(said == found.kind, f"{found.path} has kind {said!r}, not {found.kind!r}", exchange)


@shapes.interface("wire-wrapper", ERROR, "§3.2.3, A.2")
async def wrapper(probe: InterfaceProbe) -> None:
    """The answer of a send and each frame of a stream are wrapped in 1.0 and bare in 0.3.

    Means: Clients look for the result in another place and find nothing.
    Fix: In 1.0 wrap what a send gives, and each frame, as {task: …}, {message: …} …; in 0.3 give it bare.
    """
    answer = await probe.fixtures.sent()
    seen = [("the result", answer.result, answer.exchange)]
    if probe.subject.flag("streaming"):
        stream = await probe.fixtures.streamed()
        results = [
            at(frame.envelope, "result") if probe.is_rpc else frame.envelope for frame in stream.frames
        ]
        seen += [(f"frame {index}", one, stream.exchange) for index, one in enumerate(results, 1) if one]
    wrong = "bare" if probe.is_v1 else "wrapped"
    for what, result, exchange in seen:
        expect(is_wrapped(result) == probe.is_v1, f"{what} is {wrong}", exchange)


@shapes.interface("wire-states", ERROR, "§4.1.3, DAT-02")
async def states(probe: InterfaceProbe) -> None:
    """States are spelled as in the version.

    Means: Clients do not know this state and treat the task as unfinished, or as broken.
    Fix: Spell states as the version does: TASK_STATE_COMPLETED in 1.0, completed in 0.3.
    """
    allowed = _STATES_V1 if probe.is_v1 else _STATES_V03
    for found, exchange in _objects(probe, "status"):
        state = found.value.get("state")
        expect(state in allowed, f"{found.path}.state is {state!r}", exchange)


@shapes.interface("wire-roles", ERROR, "§4.1.5, DAT-02")
async def roles(probe: InterfaceProbe) -> None:
    """Roles are spelled as in the version.

    Means: Clients do not know who has said it.
    Fix: Spell roles as the version does: ROLE_USER and ROLE_AGENT in 1.0, user and agent in 0.3.
    """
    allowed = ("ROLE_USER", "ROLE_AGENT") if probe.is_v1 else ("user", "agent")
    for found, exchange in _objects(probe, "message"):
        role = found.value.get("role")
        expect(role in allowed, f"{found.path}.role is {role!r}", exchange)


@shapes.interface("wire-camel-case", ERROR, "§5.5, DAT-01, AG-45")
async def camel_case(probe: InterfaceProbe) -> None:
    """No member of the protocol has an underscore.

    Means: Clients do not see members under these names.
    Fix: Spell members in camelCase on the wire: contextId, artifactId, lastChunk.
    """
    for top, exchange in _answers(probe):
        odd = next(snake_members(top.value, top.path), "")
        expect(not odd, f"{odd} is spelled with underscores", exchange)


@shapes.interface("wire-timestamps", ERROR, "§5.6.1, DAT-03", versions=V1)
async def timestamps(probe: InterfaceProbe) -> None:
    """Times are UTC and end in Z.

    Means: Clients cannot read the time, or are hours off.
    Fix: Write times as RFC 3339 in UTC, such as 2026-01-31T12:00:00.000Z.
    """
    for found, exchange in _objects(probe, "status"):
        said = found.value.get("timestamp")
        expect(said is None or _TIME.fullmatch(text(said)), f"{found.path}.timestamp is {said!r}", exchange)


@shapes.interface("wire-required-members", ERROR, "§5.7, DAT-04")
async def required(probe: InterfaceProbe) -> None:
    """Required members are there.

    Means: Typed clients refuse the object.
    Fix: Write all required members: id and status of a task, messageId, role and parts of a message …
    """
    for found, exchange in _objects(probe):
        needed = _NEEDED.get(found.kind, ())
        # In 1.0 that is for `send-context-made` to say.
        if found.kind == "task" and not probe.is_v1:
            needed = (*needed, "contextId")
        for name in needed:
            expect(found.value.get(name) not in (None, ""), f"{found.path} lacks {name}", exchange)


@shapes.interface("wire-parts", ERROR, "§4.1.6, SND-23")
async def parts(probe: InterfaceProbe) -> None:
    """A part holds exactly one thing.

    Means: Clients cannot tell what a part is.
    Fix: Write exactly one of text, raw, url and data in 1.0; the member that kind names in 0.3.
    """
    for found, exchange in _objects(probe, "part"):
        if probe.is_v1:
            held = [name for name in _CONTENTS if name in found.value]
            expect(len(held) == 1, f"{found.path} holds {', '.join(held) or 'nothing'}", exchange)
        elif said := text(found.value.get("kind")):
            expect(said in found.value, f"{found.path} has no member {said}", exchange)


@shapes.interface("wire-artifacts", ERROR, "§4.1.7, DAT-05")
async def artifacts(probe: InterfaceProbe) -> None:
    """Artifacts have parts, and ids that differ.

    Means: Clients that keep artifacts by id lose one, or show an empty one.
    Fix: Give each artifact of a task an id of its own and at least one part.
    """
    for found, exchange in _objects(probe, "artifact", "task"):
        if found.kind == "artifact":
            expect(items(found.value.get("parts")), f"{found.path} has no parts", exchange)
            continue
        names = [text(one.get("artifactId")) for one in objects(found.value.get("artifacts"))]
        expect(len(set(names)) == len(names), f"{found.path} has two artifacts of one id", exchange)
