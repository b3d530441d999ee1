"""Reads the answers of agents: JSON-RPC envelopes, and the bodies of REST, of every version and dialect.

What a task, a message or an update is, `answers` knows. Raises `Refused` for what the agent refuses and
`Unreadable` for what is no A2A at all; its text shows how the answer begins.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from trunkline.errors import ParseError, Refused, Unreadable
from trunkline.wire.answers import Notice, read_decoded, read_notice
from trunkline.wire.decode import DECODE_ERRORS, check_structure
from trunkline.wire.error_reader import decode_leniently, excerpt, read_rpc_error, take, text
from trunkline.wire.push import read_push_request
from trunkline.wire.raw import RawAnswer
from trunkline.wire.spellings import plain_task_id
from trunkline.wire.types import PushConfig, Task, TaskPage


class _Quick(Struct, frozen=True, gc=False):
    """An answer as most are: decoded to the bottom in one go."""

    result: RawAnswer
    id: str | int | float | None = None
    error: Any = None


class _RpcResponse(Struct, frozen=True):
    id: Raw = Raw()
    result: Raw = Raw()
    error: Raw = Raw()
    jsonrpc: Raw = Raw()


_quick = msgspec.json.Decoder(_Quick)
_reply = msgspec.json.Decoder(_RpcResponse)
_list: msgspec.json.Decoder[list[Raw] | None] = msgspec.json.Decoder(list[Raw] | None)
_members = msgspec.json.Decoder(dict[str, Raw])
_NULL = (b"", b"null")
# What a page says of itself, also as Python and the proto spell it; all else need not even be readable.
_TOLD = frozenset(("nextPageToken", "pageSize", "totalSize", "next_page_token", "page_size", "total_size"))


def rpc_notice(body: bytes, request_id: str) -> Notice:
    """The task, message or update that a JSON-RPC answer or a frame of a stream holds.

    Raises:
        Refused: the answer is an error.
        Unreadable: it is no JSON-RPC, or no A2A.
    """
    try:
        check_structure(body)
        quick = _quick.decode(body)
        if quick.id == request_id and quick.error is None:
            notice = read_decoded(quick.result)
            if notice is not None:
                return notice
    except (*DECODE_ERRORS, Refused):
        # Whatever is wrong, the other reader says it, or understands it after all.
        pass
    result = rpc_result(body, request_id)
    if result in _NULL:
        raise Unreadable(f"the agent's answer has neither result nor error: {excerpt(body)}")
    return read_answer(result)


def rpc_result(body: bytes, request_id: str) -> bytes:
    """The result of a JSON-RPC answer, as it came; empty or `null` if there is none.

    A missing id is forgiven, and so is one that means nothing to us. One of another request of ours is not.

    Raises:
        Refused: the answer is an error.
        Unreadable: it is no JSON-RPC.
    """
    try:
        reply = _reply.decode(body)
    except DECODE_ERRORS:
        said = excerpt(body) or "nothing"
        raise Unreadable(f"the agent did not answer with JSON-RPC but with: {said}") from None
    if bytes(reply.error) not in _NULL:
        raise read_rpc_error(decode_leniently(bytes(reply.error)))
    answered = bytes(reply.id).decode(errors="replace").strip('"')
    ours = request_id.rpartition("-")[0]
    if ours and answered != request_id and answered.startswith(f"{ours}-"):
        raise Unreadable(f"the agent answered request {answered[:64]} when {request_id} was asked")
    # Some agents stream the bare event over JSON-RPC too. Others leave a result out that would be null.
    return bytes(reply.result) or (b"" if bytes(reply.jsonrpc) else body)


def rest_notice(body: bytes, *, proto: bool = False) -> Notice:
    """The task, message or update in a body of REST or a frame of its streams.

    Raises:
        Refused: it is an error.
        Unreadable: it is no A2A.
    """
    try:
        return read_answer(body, proto=proto)
    except Unreadable:
        found = decode_leniently(body)
        if isinstance(found, dict) and "error" in found:
            raise read_rpc_error(cast("object", found)) from None
        if isinstance(found, dict) and "jsonrpc" in found:
            return read_answer(rpc_result(body, ""), proto=proto)
        raise


def read_answer(raw: bytes, *, proto: bool = False) -> Notice:
    """A task, a message or an update, wrapped or bare.

    Raises:
        Unreadable: it is none of them.
    """
    try:
        return read_notice(raw, proto=proto)
    except Refused as refused:
        what = f"{refused.message}; it begins: {excerpt(raw)}"
    raise Unreadable(f"the agent's answer is no task, message or update: {what}")


def task_of(notice: Notice, asked: str = "") -> Task:
    """The task that `get` and `cancel` answer with; `asked` is the id that was asked for.

    Raises:
        Unreadable: it is something else, or another task.
    """
    task = notice.answer
    if not isinstance(task, Task):
        raise Unreadable(f"the agent answered with {type(task).__name__} where a Task is due")
    if asked and task.id != plain_task_id(asked):
        raise Unreadable(f"the agent answered with task {task.id!a} when it was asked for {asked!a}")
    return task


def read_page(raw: bytes, *, proto: bool = False) -> TaskPage:
    """A page of tasks: in its envelope, or a bare list of them.

    Raises:
        Unreadable: it is neither.
    """
    try:
        check_structure(raw)
        page = {"tasks": Raw(raw)} if raw.lstrip()[:1] == b"[" else _members.decode(raw)
        listed = _list.decode(bytes(page.pop("tasks", b"null"))) or []
        told = {name: msgspec.json.decode(bytes(page[name])) for name in page if name in _TOLD}
    except (*DECODE_ERRORS, ParseError):
        raise Unreadable(f"the agent's list is no page of tasks: {excerpt(raw)}") from None
    tasks = tuple([task_of(read_answer(bytes(one), proto=proto)) for one in listed])
    size, total = (_count(take(told, name), len(tasks)) for name in ("pageSize", "totalSize"))
    return TaskPage(tasks, text(told, "nextPageToken"), size, total)


def _count(given: object, otherwise: int) -> int:
    # ProtoJSON of some writers has numbers as texts.
    if isinstance(given, str) and given.isdecimal() and len(given) < 16:
        return int(given)
    return given if isinstance(given, int) and given > 0 else otherwise


def read_config(raw: bytes) -> PushConfig:
    """A push config: flat, with its task around it, or with names of the proto.

    Raises:
        Unreadable: it is none.
    """
    try:
        # The task is known to who asks; a config that does not repeat it is no worse.
        return read_push_request(raw, "-").config
    except Refused as refused:
        what = f"{refused.message}; it begins: {excerpt(raw)}"
    raise Unreadable(f"the agent's answer is no push config: {what}")


def read_configs(raw: bytes) -> tuple[PushConfig, ...]:
    """All push configs of a task: a bare list, a page, one alone, or none.

    Raises:
        Unreadable: it is none of them.
    """
    if raw.strip() in _NULL:
        return ()
    try:
        if raw.lstrip()[:1] == b"[":
            items = _list.decode(raw) or []
        else:
            items = _of_page(_members.decode(raw), raw)
    except DECODE_ERRORS:
        raise Unreadable(f"the agent's answer is no list of push configs: {excerpt(raw)}") from None
    return tuple([read_config(bytes(item)) for item in items])


def _of_page(members: dict[str, Raw], raw: bytes) -> list[Raw]:
    for name in ("configs", "pushNotificationConfigs", "push_notification_configs"):
        if name in members:
            return _list.decode(bytes(members[name])) or []
    alone = {"url", "pushNotificationConfig", "push_notification_config"} & members.keys()
    return [Raw(raw)] if alone else []
