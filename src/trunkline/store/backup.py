"""A store as JSON lines, out and in: a header, documents, one event a line, task after task, and an end.

Heads are folded from the logs; deliveries stay where they are. The caller names the kinds of documents that
are exported, and what of them may leave. Damaged documents and logs are left out and reported.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, NoReturn, TypeVar

import msgspec
from msgspec import Meta, Struct

from trunkline.errors import Conflict, Misuse, StoreError
from trunkline.log import encoding
from trunkline.log import events as ev
from trunkline.log.encoding import DECODE_ERRORS
from trunkline.log.fold import State
from trunkline.log.head import head_after
from trunkline.log.ids import is_task_id
from trunkline.store.base import Store
from trunkline.store.check import check_next, every_task
from trunkline.store.records import TaskRef, TenantDoc

# Of format 1 were exports without documents, of format 2 those without an end.
FORMAT = 3
PAGE = 2000
# No time later than this can be told: the last millisecond of the year 9999.
LAST_MOMENT = 253_402_300_799_999
APPEND_EVENTS = 500
APPEND_BYTES = 1 << 20
WAVE_TASKS = 32
WAVE_BYTES = 4 << 20

log = logging.getLogger("trunkline.store")
_encode = msgspec.json.Encoder().encode
_DOCUMENT, _END = b'{"document":', b'{"end":'
_NO_TASK = "nothing of this task was written"
_NO_DOCUMENT = "the document was not written"
T = TypeVar("T")
# Takes the tenant, the ID and the body of a document; returns its owner and the body that may leave.
Shown = Callable[[str, str, bytes], tuple[str, bytes]]


class _BackupHeader(Struct):
    trunkline: str
    format: int


class _EndLine(Struct, forbid_unknown_fields=True):
    """The last line: without it, what is torn between two lines would be taken for the whole."""

    end: int


class _Line(Struct, forbid_unknown_fields=True):
    tenant: Annotated[str, Meta(min_length=1)]
    task: str
    seq: Annotated[int, Meta(ge=1)]
    at: Annotated[int, Meta(ge=0, le=LAST_MOMENT)]
    event: msgspec.Raw


class _DocumentLine(Struct, forbid_unknown_fields=True):
    document: str
    tenant: Annotated[str, Meta(min_length=1, max_length=256)]
    id: Annotated[str, Meta(min_length=1, max_length=256)]
    body: msgspec.Raw


class Restored(Struct):
    """The counts of an import; `skipped` are tasks and documents that were there already."""

    tasks: int = 0
    events: int = 0
    documents: int = 0
    skipped: int = 0


class _TaskLines(Struct):
    """The lines of one task; `first` is the number of the first, `state` what they fold to."""

    tenant: str
    first: int
    state: State
    events: list[ev.Recorded]
    size: int = 0


def _log_left_out(reason: str) -> None:
    log.error("export.left_out reason=%a", reason)


async def export(
    store: Store,
    version: str,
    tenant: str | None = None,
    kinds: Mapping[str, Shown] | None = None,
    *,
    left_out: Callable[[str], None] = _log_left_out,
) -> AsyncIterator[bytes]:
    """Yield the lines, a page at a time, by their IDs, so that the same store always gives the same bytes.

    `left_out` is called with the reason for each damaged document or log, which is not in the lines.
    """
    yield _encode(_BackupHeader(version, FORMAT)) + b"\n"
    count = 1
    for kind, shown in (kinds or {}).items():
        after = ("", "")
        while documents := await store.docs.list_all(kind, after, PAGE):
            after = (documents[-1].tenant, documents[-1].id)
            for one in documents:
                try:
                    whose, body = shown(one.tenant, one.id, one.body)
                except (*DECODE_ERRORS, StoreError) as error:
                    left_out(_damage(kind, one, error))
                    continue
                if tenant is None or whose == tenant:
                    count += 1
                    line = _DocumentLine(kind, one.tenant, one.id, msgspec.Raw(body))
                    yield _encode(line) + b"\n"
    async for page in every_task(store):
        for ref in page:
            if tenant is not None and ref.tenant != tenant:
                continue
            try:
                lines = await _task_lines(store, ref)
            except StoreError as error:
                if not error.damaged_task:
                    raise
                left_out(str(error))
                continue
            count += len(lines)
            yield b"".join(lines)
    yield _encode(_EndLine(count)) + b"\n"


async def _task_lines(store: Store, ref: TaskRef) -> list[bytes]:
    """Return the lines of a task, all of them or none: an import ends at one that does not follow.

    Raises:
        StoreError: the log is damaged, or the store does not answer.
    """
    state, lines = State(ref.task_id), list[bytes]()
    while found := await store.log.read(ref.tenant, ref.task_id, state.seq, PAGE):
        for recorded in found:
            try:
                check_next(state, recorded)
                state.apply(recorded)
            except ValueError as error:
                raise StoreError.damaged(ref.task_id, error) from error
            lines.append(_written(ref.tenant, ref.task_id, recorded))
    return lines


def _damage(kind: str, one: TenantDoc, error: Exception) -> str:
    is_known = isinstance(error, StoreError)
    return str(error if is_known else StoreError.damaged_doc(kind, one.id, str(error)))


def _written(tenant: str, task_id: str, recorded: ev.Recorded) -> bytes:
    event = msgspec.Raw(encoding.encode_one(recorded.event))
    return _encode(_Line(tenant, task_id, recorded.seq, recorded.at, event)) + b"\n"


def find_document(
    lines: Iterable[bytes], tenant: str, kind: str, doc_id: str, texts: Collection[str] = ()
) -> bytes:
    """Return the body of one document of an export, as it is in a store.

    Raises:
        Misuse: the export has no such document, or it is damaged before it.
    """
    for number, text in enumerate(lines, 1):
        if number == 1:
            _has_end(text)
        elif text.startswith(_DOCUMENT):
            line = _document(number, text)
            if (line.tenant, line.document, line.id) == (tenant, kind, doc_id):
                return _body_of(number, line, texts)
    raise Misuse(f"the export has no document {doc_id!r} of kind {kind!r} and tenant {tenant!r}")


def _body_of(number: int, line: _DocumentLine, texts: Collection[str]) -> bytes:
    if line.document in texts:
        return _decoded(number, line.body, str, _NO_DOCUMENT).encode()
    return bytes(line.body)


async def restore(
    store: Store,
    lines: Iterable[bytes],
    kinds: Mapping[str, Shown] | None = None,
    texts: Collection[str] = (),
) -> Restored:
    """Write the lines of an export into a store; what is there already, event for event, is skipped.

    A document that could not be exported again is damaged. Those of the kinds in `texts` are no JSON in the
    store, and strings in the lines.

    Raises:
        Misuse: a line is damaged, or a task or document is there and differs. What is before it is written.
    """
    carried = kinds or {}
    done = Restored()
    wave: list[_TaskLines] = []
    try:
        for group in _groups(lines):
            if isinstance(group, tuple):
                number, line = group
                line.body = msgspec.Raw(_body_of(number, line, texts))
                await _write_document(store, number, line, carried, done)
                continue
            wave.append(group)
            if len(wave) >= WAVE_TASKS or sum(one.size for one in wave) >= WAVE_BYTES:
                ready, wave = wave, []
                await _write(store, ready, done)
    except Misuse:
        await _write(store, wave, done)
        raise
    await _write(store, wave, done)
    return done


def _groups(lines: Iterable[bytes]) -> Iterable[_TaskLines | tuple[int, _DocumentLine]]:
    """The lines of each task together, and every document with the number of its line."""
    group: _TaskLines | None = None
    numbered = enumerate(lines, 1)
    number, header = next(numbered, (1, b""))
    is_ended = not _has_end(header)
    for number, text in numbered:
        if text.startswith(_END):
            is_ended = _decoded(number, text, _EndLine, _NO_TASK).end == number - 1
            break
        if text.startswith(_DOCUMENT):
            yield number, _document(number, text)
            continue
        line = _line(number, text)
        if group is None or (line.tenant, line.task) != (group.tenant, group.state.task_id):
            if group is not None:
                yield group
            group = _TaskLines(line.tenant, number, State(line.task), [])
        _take(group, number, line)
        group.size += len(text)
    if not is_ended or next(numbered, None) is not None:
        # Of its last task there may have been more.
        raise Misuse(f"line {number}: the export is not whole, or two are in one; {_NO_TASK}")
    if group is not None:
        yield group


def _has_end(text: bytes) -> bool:
    """Whether an export that begins like this has a last line that says so."""
    try:
        header = msgspec.json.decode(text, type=_BackupHeader)
    except DECODE_ERRORS:
        raise Misuse('line 1: an export begins with {"trunkline":…,"format":3}') from None
    if not 1 <= header.format <= FORMAT:
        raise Misuse(
            f"line 1: format {header.format} is not known here, only 1 to {FORMAT}; upgrade trunkline"
        )
    return header.format == FORMAT


def _decoded(number: int, text: bytes | msgspec.Raw, kind: type[T], lost: str) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except DECODE_ERRORS as error:
        raise Misuse(f"line {number}: {error}; {lost}") from None


def _line(number: int, text: bytes) -> _Line:
    line = _decoded(number, text, _Line, _NO_TASK)
    if not is_task_id(line.task):
        _refuse(number, f"{line.task!r} is no task id")
    return line


def _document(number: int, text: bytes) -> _DocumentLine:
    line = _decoded(number, text, _DocumentLine, _NO_DOCUMENT)
    if not (line.tenant + line.id).isprintable():
        raise Misuse(f"line {number}: tenant and id of a document are printable; it was not written")
    return line


async def _write_document(
    store: Store, number: int, line: _DocumentLine, kinds: Mapping[str, Shown], done: Restored
) -> None:
    body = bytes(line.body)
    if line.document not in kinds:
        raise Misuse(f"line {number}: documents of kind {line.document!r} are not imported here")
    try:
        kinds[line.document](line.tenant, line.id, body)
    except (*DECODE_ERRORS, StoreError) as error:
        raise Misuse(f"line {number}: {error}; {_NO_DOCUMENT}") from None
    known = await store.docs.get(line.tenant, line.document, line.id)
    if known is None:
        await store.docs.put(line.tenant, line.document, line.id, body, 0)
        done.documents += 1
    elif known.body == body:
        done.skipped += 1
    else:
        raise Misuse(
            f"line {number}: the document {line.id!r} of kind {line.document} is here already "
            "and differs; import into another store"
        )


def _take(group: _TaskLines, number: int, line: _Line) -> None:
    state = group.state
    try:
        event = encoding.decode_one(line.event)
    except DECODE_ERRORS as error:
        _refuse(number, f"task {line.task}, event {line.seq}: {error}")
    recorded = ev.Recorded(line.seq, line.at, event)
    try:
        check_next(state, recorded)
    except ValueError as error:
        _refuse(number, f"task {line.task}: {error}")
    state.apply(recorded)
    group.events.append(recorded)


def _refuse(number: int, what: str) -> NoReturn:
    raise Misuse(f"line {number}: {what}; {_NO_TASK}")


async def _write(store: Store, groups: Sequence[_TaskLines], done: Restored) -> None:
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


async def _stored(store: Store, group: _TaskLines) -> list[ev.Recorded]:
    found: list[ev.Recorded] = []
    while page := await store.log.read(
        group.tenant, group.state.task_id, found[-1].seq if found else 0, PAGE
    ):
        found += page
    return found


def _left(group: _TaskLines, found: Sequence[ev.Recorded]) -> list[ev.Recorded]:
    """The events that are not there yet: all, none, or the rest after an import that was cut."""
    line = partial(_written, group.tenant, group.state.task_id)
    for place, stored in enumerate(found):
        if place >= len(group.events) or line(group.events[place]) != line(stored):
            number = group.first + min(place, len(group.events) - 1)
            raise Misuse(
                f"line {number}: task {group.state.task_id} is here already and differs "
                f"from event {stored.seq} on; import into another store"
            )
    return group.events[len(found) :]


async def _append(store: Store, group: _TaskLines, events: Sequence[ev.Recorded]) -> None:
    task_id = group.state.task_id
    state = State(task_id)
    for recorded in group.events[: len(group.events) - len(events)]:
        state.apply(recorded)
    for part in _appends(events):
        at, written = part[0].at, [recorded.event for recorded in part]
        head = head_after(state, written, at)
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
