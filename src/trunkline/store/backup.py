"""Logs as JSON lines, out and in: a header, then one event a line, task after task.

Only logs are carried. Heads are folded from them; keys, deliveries and documents stay where they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Annotated, NoReturn

import msgspec
from msgspec import Meta, Struct

from trunkline.errors import Conflict, Misuse
from trunkline.log import encoding
from trunkline.log import events as ev
from trunkline.log.fold import State
from trunkline.log.ids import is_task_id
from trunkline.store.base import Store
from trunkline.store.check import AFTER_END, every_task

FORMAT = 1
PAGE = 2000
APPEND_EVENTS = 500
APPEND_BYTES = 1 << 20
WAVE_TASKS = 32
WAVE_BYTES = 4 << 20

_encode = msgspec.json.Encoder().encode


class _Header(Struct):
    trunkline: str
    format: int


class _Line(Struct, forbid_unknown_fields=True):
    tenant: Annotated[str, Meta(min_length=1)]
    task: str
    seq: Annotated[int, Meta(ge=1)]
    at: Annotated[int, Meta(ge=0)]
    event: msgspec.Raw


class Restored(Struct):
    """What an import did."""

    tasks: int = 0
    events: int = 0
    skipped: int = 0


class _Group(Struct):
    """The lines of one task; `first` is the number of the first, `state` what they fold to."""

    tenant: str
    first: int
    state: State
    events: list[ev.Recorded]
    size: int = 0


async def export(store: Store, version: str, tenant: str | None = None) -> AsyncIterator[bytes]:
    """The lines, a page at a time; tasks by their ids, so that the same logs always give the same bytes."""
    yield _encode(_Header(version, FORMAT)) + b"\n"
    async for page in every_task(store):
        for ref in page:
            if tenant is not None and ref.tenant != tenant:
                continue
            prefix = b'{"tenant":%b,"task":%b,' % (_encode(ref.tenant), _encode(ref.task_id))
            after = 0
            while found := await store.log.read(ref.tenant, ref.task_id, after, PAGE):
                after = found[-1].seq
                yield b"".join([prefix + _rest(recorded) for recorded in found])


def _rest(recorded: ev.Recorded) -> bytes:
    return b'"seq":%d,"at":%d,"event":%b}\n' % (
        recorded.seq,
        recorded.at,
        encoding.encode_one(recorded.event),
    )


async def restore(store: Store, lines: Iterable[bytes]) -> Restored:
    """Write the lines of an export into a store; tasks that are there already, event for event, are skipped.

    Raises:
        Misuse: a line is damaged, or a task is there with other events. Tasks before it are written.
    """
    done = Restored()
    wave: list[_Group] = []
    size = 0
    try:
        for group in _groups(lines):
            wave.append(group)
            size += group.size
            if len(wave) >= WAVE_TASKS or size >= WAVE_BYTES:
                ready, wave, size = wave, [], 0
                await _write(store, ready, done)
    except Misuse:
        await _write(store, wave, done)
        raise
    await _write(store, wave, done)
    return done


def _groups(lines: Iterable[bytes]) -> Iterable[_Group]:
    group: _Group | None = None
    number = 0
    for number, text in enumerate(lines, 1):
        if number == 1:
            _check_header(text)
            continue
        line = _line(number, text)
        if group is None or (line.tenant, line.task) != (group.tenant, group.state.task_id):
            if group is not None:
                yield group
            group = _Group(line.tenant, number, State(line.task), [])
        _take(group, number, line)
        group.size += len(text)
    if number == 0:
        _check_header(b"")
    if group is not None:
        yield group


def _check_header(text: bytes) -> None:
    try:
        header = msgspec.json.decode(text, type=_Header)
    except msgspec.MsgspecError:
        raise Misuse('line 1: an export begins with {"trunkline":…,"format":1}') from None
    if header.format != FORMAT:
        raise Misuse(f"line 1: format {header.format} is not known here, only {FORMAT}; upgrade trunkline")


def _line(number: int, text: bytes) -> _Line:
    try:
        line = msgspec.json.decode(text, type=_Line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        _refuse(number, str(error))
    if not is_task_id(line.task):
        _refuse(number, f"{line.task!r} is no task id")
    return line


def _take(group: _Group, number: int, line: _Line) -> None:
    state = group.state
    try:
        event = encoding.decode_one(line.event)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        _refuse(number, f"task {line.task}, event {line.seq}: {error}")
    if line.seq - ev.span(event) != state.seq or line.seq <= state.seq:
        _refuse(number, f"task {line.task}: event {line.seq} does not follow {state.seq}")
    if state.seq == 0 and not isinstance(event, ev.Submitted):
        _refuse(number, f"task {line.task} does not begin with what was submitted")
    if state.over and not isinstance(event, AFTER_END):
        _refuse(number, f"task {line.task}: event {line.seq} comes after its end")
    recorded = ev.Recorded(line.seq, line.at, event)
    state.apply(recorded)
    group.events.append(recorded)


def _refuse(number: int, what: str) -> NoReturn:
    raise Misuse(f"line {number}: {what}; nothing of this task was written")


async def _write(store: Store, groups: Sequence[_Group], done: Restored) -> None:
    there = await asyncio.gather(*(_stored(store, group) for group in groups))
    left: list[list[ev.Recorded]] = []
    different: Misuse | None = None
    for group, found in zip(groups, there, strict=True):
        try:
            left.append(_left(group, found))
        except Misuse as error:
            different = error
            break
    works = [_append(store, group, events) for group, events in zip(groups, left, strict=False)]
    for failed in (*await asyncio.gather(*works, return_exceptions=True), different):
        if failed is not None:
            raise failed
    for events in left:
        done.tasks += bool(events)
        done.skipped += not events
        done.events += len(events)


async def _stored(store: Store, group: _Group) -> list[ev.Recorded]:
    found: list[ev.Recorded] = []
    while page := await store.log.read(
        group.tenant, group.state.task_id, found[-1].seq if found else 0, PAGE
    ):
        found += page
    return found


def _left(group: _Group, found: Sequence[ev.Recorded]) -> list[ev.Recorded]:
    """The events that are not there yet: all, none, or the rest after an import that was cut."""
    for place, stored in enumerate(found):
        if place >= len(group.events) or _rest(group.events[place]) != _rest(stored):
            number = group.first + min(place, len(group.events) - 1)
            raise Misuse(
                f"line {number}: task {group.state.task_id} is here already and differs "
                f"from event {stored.seq} on; import into another store"
            )
    return group.events[len(found) :]


async def _append(store: Store, group: _Group, events: Sequence[ev.Recorded]) -> None:
    task_id = group.state.task_id
    state = State(task_id)
    for recorded in group.events[: len(group.events) - len(events)]:
        state.apply(recorded)
    for part in _appends(events):
        at, written = part[0].at, [recorded.event for recorded in part]
        head = state.head_after(written, at)
        try:
            await store.log.append(group.tenant, task_id, state.seq, written, at=at, head=head)
        except Conflict:
            raise Misuse(
                f"line {group.first}: the id of task {task_id} is taken by another tenant; "
                "import into another store"
            ) from None
        for recorded in part:
            state.apply(recorded)


def _appends(events: Sequence[ev.Recorded]) -> Iterable[list[ev.Recorded]]:
    """The events in appends: of one moment, and not too large."""
    part: list[ev.Recorded] = []
    size = 0
    for recorded in events:
        length = len(encoding.encode_one(recorded.event))
        if part and (recorded.at != part[0].at or len(part) >= APPEND_EVENTS or size + length > APPEND_BYTES):
            yield part
            part, size = [], 0
        part.append(recorded)
        size += length
    if part:
        yield part
