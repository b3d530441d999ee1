"""The lenient reader: params of every dialect → the one request. Raises nothing but `Refused`.

The fast path is one strict decode into a raw struct. Whatever that refuses is decoded
again without types, normalized and converted, so that odd spellings are read and errors are exact.
"""

from __future__ import annotations

import binascii
from typing import Any, NoReturn, cast

import msgspec
from msgspec import UNSET, Raw

from trunkline.errors import InvalidParams
from trunkline.wire.decode import read_params, read_query
from trunkline.wire.push import inline_config
from trunkline.wire.raw import (
    RawConfiguration,
    RawFile,
    RawListQuery,
    RawMessage,
    RawPart,
    RawSend,
    RawTaskQuery,
)
from trunkline.wire.spellings import check_id, milliseconds, plain_task_id, role_named, state_named
from trunkline.wire.types import STATES, ListQuery, Message, Part, Role, SendRequest, TaskQuery, TaskState
from trunkline.wire.writer import Dialect

_send = msgspec.json.Decoder(RawSend)
_task = msgspec.json.Decoder(RawTaskQuery)
_list = msgspec.json.Decoder(RawListQuery)
_NO_CONFIGURATION = RawConfiguration()
# As nearly everybody spells it.
_USER = frozenset({"ROLE_USER", "user"})
_STATE_NAMES = ", ".join(state.value for state in STATES)
# Which members each discriminator of 0.3 (`kind`) and of its ancestors (`type`) may announce.
_CONTENTS_OF_KIND = {
    "text": ("text",),
    "file": ("file", "raw", "url"),
    "data": ("data",),
    "raw": ("raw",),
    "url": ("url",),
}


def read_send(body: bytes | Raw | None, dialect: Dialect = Dialect.V1) -> SendRequest:
    """Params of `send` and `stream`. In 0.3 the message may come without an id: see `_may_lack_id`.

    Raises:
        ParseError: the bytes are not JSON.
        InvalidParams: a member is missing, of the wrong type or out of range.
    """
    raw = read_params(_send, RawSend, body)
    said, path = (raw.request, "request") if raw.message is None else (raw.message, "message")
    if said is None:
        raise InvalidParams("message is missing", field="message")
    wanted = raw.configuration or _NO_CONFIGURATION
    hasty = wanted.return_immediately
    proto = dialect is Dialect.V03_PROTO
    return SendRequest(
        message=_message(said, path, raw, dialect),
        accepted_output_modes=wanted.accepted_output_modes or (),
        # In the proto of 0.3 a history length of 0 is the same as none given.
        history_length=(wanted.history_length or None) if proto else wanted.history_length,
        wait=wanted.blocking if hasty is None else not hasty,
        push=None if wanted is _NO_CONFIGURATION else inline_config(wanted),
        metadata=raw.metadata,
        tenant=raw.tenant or "",
        flat=dialect is Dialect.V03 and _is_flat(said),
    )


def read_task_query(body: bytes | Raw | None) -> TaskQuery:
    """Params of `get`, `cancel` and `subscribe`: the id as `id`, `taskId` or `name`, bare or `tasks/{id}`.

    Raises:
        ParseError: the bytes are not JSON.
        InvalidParams: the id is missing, or a member does not fit.
    """
    raw = read_params(_task, RawTaskQuery, body)
    task_id = plain_task_id(raw.id or raw.task_id or raw.name or "")
    if not task_id:
        raise InvalidParams("id is missing; name the task", field="id")
    return TaskQuery(task_id, raw.history_length, raw.tenant or "")


def task_query_from(task_id: str, query: dict[str, str], body: bytes = b"") -> TaskQuery:
    """The same for REST: the id of the path, the query string, and the tenant of a body where there is one.

    Raises:
        ParseError: the body is not JSON.
        InvalidParams: a parameter does not fit.
    """
    raw = read_query(RawTaskQuery, query)
    return TaskQuery(task_id, raw.history_length, raw.tenant or (read_tenant(body) if body else ""))


def read_tenant(body: bytes | Raw | None) -> str:
    """The tenant that a request names which has no other member that matters.

    Raises:
        ParseError: the bytes are not JSON.
        InvalidParams: it is no text.
    """
    return read_params(_task, RawTaskQuery, body).tenant or ""


def read_list_query(body: bytes | Raw | None) -> ListQuery:
    """Params of `list`; absent ones ask for the first page of everything.

    Raises:
        ParseError: the bytes are not JSON.
        InvalidParams: a member does not fit.
    """
    return _list_query(read_params(_list, RawListQuery, body))


def list_query_from(query: dict[str, str]) -> ListQuery:
    """The same for REST: a query string in camelCase or snake_case; an empty value is an absent one.

    Raises:
        InvalidParams: a parameter does not fit.
    """
    return _list_query(read_query(RawListQuery, query))


def _message(raw: RawMessage, path: str, params: RawSend, dialect: Dialect) -> Message:
    parts = raw.parts or raw.content
    if not raw.message_id and not _may_lack_id(raw, dialect):
        raise InvalidParams(f"{path}.messageId is missing", field=f"{path}.messageId")
    if not parts:
        raise InvalidParams(f"{path}.parts must have at least one part", field=f"{path}.parts")
    if raw.role not in _USER:
        _check_role(raw.role, f"{path}.role")
    place = f"{path}.{'parts' if raw.content is None else 'content'}"
    proto = dialect is Dialect.V03_PROTO
    return Message(
        check_id(raw.message_id, f"{path}.messageId") if raw.message_id else "",
        _context(raw.context_id or "", params.context_id or "", path),
        _given_once("taskId", plain_task_id(raw.task_id or ""), plain_task_id(params.task_id or ""), path),
        Role.USER,
        tuple([read_part(part, place, index, proto=proto) for index, part in enumerate(parts)]),
        raw.metadata,
        raw.extensions or (),
        raw.reference_task_ids or (),
        raw.extra,
    )


def _is_flat(raw: RawMessage) -> bool:
    """Return whether neither a message nor its parts have a `kind`, and no part nests a file."""
    parts = raw.parts or ()
    return raw.kind is None and all([(one.kind or one.type or one.file) is None for one in parts])


def _may_lack_id(raw: RawMessage, dialect: Dialect) -> bool:
    """Whether a message without an id gets one of ours: in 0.3, if the id is empty or the message sketchy.

    Whoever writes messages of 0.3 with their `kind` knows the specification, which demands an id.
    """
    return dialect is not Dialect.V1 and (
        raw.message_id == "" or (raw.kind is None and dialect is Dialect.V03)
    )


def _check_role(spelled: str | None, field: str) -> None:
    if spelled is None:
        raise InvalidParams(f"{field} is missing", field=field)
    if role_named(spelled) is not Role.USER:
        raise InvalidParams(f"{field} must be ROLE_USER (user in 0.3) in what a client sends", field=field)


def _context(inner: str, outer: str, path: str) -> str:
    context = _given_once("contextId", inner, outer, path)
    return check_id(context, f"{path}.contextId" if inner else "contextId") if context else ""


def _given_once(name: str, inner: str, outer: str, path: str) -> str:
    """Return the ID that the message or else the params give under this name."""
    if inner and outer and inner != outer:
        raise InvalidParams(f"{name} differs between params and {path}; give it once", field=f"{path}.{name}")
    return inner or outer


def _list_query(raw: RawListQuery) -> ListQuery:
    after = raw.status_timestamp_after
    return ListQuery(
        context_id=check_id(raw.context_id, "contextId") if raw.context_id else "",
        status=_status(raw.status),
        page_size=50 if raw.page_size is None else raw.page_size,
        page_token=raw.page_token or "",
        history_length=raw.history_length,
        status_timestamp_after=milliseconds(after, "statusTimestampAfter") if after else None,
        include_artifacts=raw.include_artifacts or False,
        tenant=raw.tenant or "",
    )


def _status(spelled: str | None) -> TaskState | None:
    # The proto's zero value is its way to ask for no filter.
    if not spelled or spelled == "TASK_STATE_UNSPECIFIED":
        return None
    state = state_named(spelled)
    if state not in STATES:
        raise InvalidParams(f"status: no such state; one of {_STATE_NAMES}", field="status")
    return state


def read_part(raw: RawPart, path: str, index: int, *, proto: bool) -> Part:
    """One part; `path[index]` is its place in the request.

    Raises:
        InvalidParams: it has no content, two contents, or one that contradicts its discriminator.
    """
    data = raw.data
    absent = (raw.text, raw.raw, raw.url, raw.file).count(None)
    # A null beside another content is a serializer's way to say "not set"; alone it is the value null.
    if data is None and absent < 4:
        data = UNSET
    if absent != (3 if data is UNSET else 4):
        _refuse(path, index, "", "must have exactly one of text, raw, url, data (or file in 0.3)")
    announced = raw.kind or raw.type
    if announced is not None and (content := _content(raw)) not in _CONTENTS_OF_KIND.get(announced, ()):
        member = "kind" if raw.kind else "type"
        _refuse(path, index, f".{member}", f"{announced!r} does not name its content, which is {content}")
    if raw.file is not None:
        return _file_part(raw, raw.file, path, index)
    if raw.raw is not None:
        _check_base64(raw.raw, path, index, ".raw")
    if proto and data is not UNSET:
        data = _unwrapped(data)
    return Part(
        raw.text,
        raw.raw,
        raw.url,
        data,
        raw.filename or "",
        raw.media_type or "",
        raw.metadata,
        raw.extra,
    )


def _content(raw: RawPart) -> str:
    """Which content a part has."""
    for name in ("text", "raw", "url", "file"):
        if getattr(raw, name) is not None:
            return name
    return "data"


def _file_part(raw: RawPart, file: RawFile, path: str, index: int) -> Part:
    raws = [text for text in (file.content, file.file_with_bytes) if text is not None]
    urls = [text for text in (file.uri, file.url, file.file_with_uri) if text is not None]
    if len(raws) + len(urls) != 1:
        _refuse(path, index, ".file", "must have exactly one of bytes and uri")
    for text in raws:
        _check_base64(text, path, index, ".file.bytes" if file.content is not None else ".file.fileWithBytes")
    return Part(
        raw=raws[0] if raws else None,
        url=urls[0] if urls else None,
        filename=file.name or raw.filename or "",
        media_type=file.mime_type or raw.media_type or "",
        metadata=raw.metadata,
        extra=raw.extra,
    )


def _check_base64(text: str, path: str, index: int, member: str) -> None:
    try:
        binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        _refuse(path, index, member, "must be standard base64 with padding")


def _unwrapped(data: Any) -> Any:
    if isinstance(data, dict) and "data" in data and len(cast("dict[str, Any]", data)) == 1:
        return cast("dict[str, Any]", data)["data"]
    return cast("Any", data)


def _refuse(path: str, index: int, member: str, what: str) -> NoReturn:
    field = f"{path}[{index}]{member}"
    raise InvalidParams(f"{field}: {what}", field=field)
