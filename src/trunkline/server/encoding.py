"""Operations answered in bytes: what JSON-RPC and REST share of writing results in the caller's dialect.

A finished task does not change, so its bytes are kept for the next who asks, bounded in size. The principal
is part of an entry: nobody is answered from here who would not be answered by `Tasks.find`; and so is the
time when the task ended, as the store does not keep it for ever.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct, field

from trunkline.server.caller import READ, Caller
from trunkline.server.operations import Operations
from trunkline.server.streams import Subscription
from trunkline.telemetry import traces
from trunkline.wire.operations import Operation
from trunkline.wire.push import write_config, write_configs
from trunkline.wire.spellings import milliseconds
from trunkline.wire.types import (
    TERMINAL,
    ListQuery,
    Message,
    PushQuery,
    PushRequest,
    SendRequest,
    Task,
    TaskQuery,
)
from trunkline.wire.writer import WRITERS

LIMIT_BYTES = 4 << 20
ENTRY_BYTES = 64 << 10
# What a binding reads of a request, for each operation its own.
Params = SendRequest | TaskQuery | ListQuery | PushRequest | PushQuery
Key = tuple[str, str, object]


class _EncodedTask(Struct, gc=False):
    principal: str
    body: bytes
    ended_at: int


class AnswerCache(Struct, eq=False):
    """Encoded finished tasks by tenant, id and dialect; the least recently read goes first."""

    limit: int = LIMIT_BYTES
    _size: int = 0
    _entries: OrderedDict[Key, _EncodedTask] = field(default_factory=OrderedDict[Key, _EncodedTask])

    def get(self, key: Key, principal: str, kept_since: int) -> bytes | None:
        """The encoded task, if it is here, this principal's, and did not end before what the store keeps."""
        entry = self._entries.get(key)
        if entry is None or entry.principal != principal:
            return None
        if entry.ended_at < kept_since:
            self._size -= len(self._entries.pop(key).body)
            return None
        self._entries.move_to_end(key)
        return entry.body

    def put(self, key: Key, principal: str, body: bytes, ended_at: int) -> None:
        """Keep an encoded task that ended at this moment."""
        if len(body) > ENTRY_BYTES or key in self._entries:
            return
        self._entries[key] = _EncodedTask(principal, body, ended_at)
        self._size += len(body)
        while self._size > self.limit:
            self._size -= len(self._entries.popitem(last=False)[1].body)


class EncodedOperations(Struct, eq=False):
    """The operations of one agent, each result that is a document in bytes of the caller's dialect."""

    operations: Operations
    _cache: AnswerCache = field(default_factory=AnswerCache)

    def perform(
        self, caller: Caller, operation: Operation, params: Params
    ) -> Awaitable[bytes | Subscription]:
        """The call of any operation but that of the extended card; an empty answer stands for none."""
        return _CALLS[operation](self, caller, params)

    async def send(self, caller: Caller, request: SendRequest) -> bytes:
        """Take a message; the task, or the message that answers it."""
        given = await self.operations.send(caller, request)
        writer = WRITERS[caller.dialect]
        if isinstance(given, Message):
            return writer.message_frame(given)
        return writer.task_frame(writer.task(given))

    async def get(self, caller: Caller, query: TaskQuery) -> bytes:
        """A task as it stands."""
        if query.history_length is None and not query.tenant and READ in caller.principal.scopes:
            principal = caller.principal
            key = (principal.tenant, query.id, caller.dialect)
            body = self._cache.get(key, principal.name, self.operations.pruned_before)
            if body is not None:
                traces.about(query.id)
                return body
        return self._task(caller, query, await self.operations.get(caller, query))

    async def cancel(self, caller: Caller, query: TaskQuery) -> bytes:
        """Stop a task; the canceled task."""
        return self._task(caller, query, await self.operations.cancel(caller, query))

    def _task(self, caller: Caller, query: TaskQuery, task: Task) -> bytes:
        dialect, principal = caller.dialect, caller.principal
        body = WRITERS[dialect].task(task)
        status = task.status
        if READ not in principal.scopes:
            # It may see less than whoever else has its name.
            return body
        if query.history_length is None and status.state in TERMINAL and status.timestamp:
            ended_at = milliseconds(status.timestamp, "timestamp")
            self._cache.put((principal.tenant, task.id, dialect), principal.name, body, ended_at)
        return body

    async def list(self, caller: Caller, query: ListQuery) -> bytes:
        """A page of the caller's tasks."""
        return WRITERS[caller.dialect].page(await self.operations.list(caller, query))

    async def set_push(self, caller: Caller, request: PushRequest) -> bytes:
        """The push config as it was set."""
        return write_config(request.task_id, await self.operations.push.set(caller, request), caller.dialect)

    async def get_push(self, caller: Caller, query: PushQuery) -> bytes:
        """One push config of a task."""
        return write_config(query.task_id, await self.operations.push.get(caller, query), caller.dialect)

    async def list_push(self, caller: Caller, query: PushQuery) -> bytes:
        """All push configs of a task."""
        return write_configs(query.task_id, await self.operations.push.list(caller, query), caller.dialect)

    async def delete_push(self, caller: Caller, query: PushQuery) -> bytes:
        """Forget a push config of a task; there is nothing to tell of it."""
        await self.operations.push.delete(caller, query)
        return b""


_CALLS: dict[Operation, Callable[[EncodedOperations, Caller, Any], Awaitable[bytes | Subscription]]] = {
    Operation.SEND: EncodedOperations.send,
    Operation.STREAM: lambda encoded, caller, request: encoded.operations.stream(caller, request),
    Operation.GET: EncodedOperations.get,
    Operation.LIST: EncodedOperations.list,
    Operation.CANCEL: EncodedOperations.cancel,
    Operation.SUBSCRIBE: lambda encoded, caller, query: encoded.operations.subscribe(caller, query),
    Operation.PUSH_SET: EncodedOperations.set_push,
    Operation.PUSH_GET: EncodedOperations.get_push,
    Operation.PUSH_LIST: EncodedOperations.list_push,
    Operation.PUSH_DELETE: EncodedOperations.delete_push,
}
