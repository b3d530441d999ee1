"""The inbox right on a store, beside no server: whoever runs the task next hears the answer."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trunkline.auth.principal import Principal, tenant_of
from trunkline.errors import RouteNotFound
from trunkline.fleet.call import ApiCall, ApiQuery, read_body, read_form
from trunkline.fleet.inbox import AnswerForm, Inbox, InboxQuery
from trunkline.log.decide import Say
from trunkline.run.feed import Feed
from trunkline.run.tasks import Tasks
from trunkline.wire.types import Message

# Code of an act that only a server performs.
NO_SERVER = "NO_SERVER"


async def perform_on_store(
    tasks: Tasks, method: str, path: str, query: Mapping[str, str], body: bytes, *, principal: Principal
) -> bytes:
    """One route of the inbox; gives its answer.

    Raises:
        Refused: it cannot be done as asked.
    """

    async def say(feed: Feed, message: Message, by: str) -> None:
        await tasks.change(feed, Say(message, by=by))

    inbox = Inbox(tasks, say)
    match method, path.split("/")[1:]:
        case "GET", ["inbox"]:
            asked = read_form(query, InboxQuery)
            found = await inbox.list(ApiCall(principal, tenant_of(principal, asked.tenant)), asked)
        case "POST", ["inbox", task_id]:
            tenant = tenant_of(principal, read_form(query, ApiQuery).tenant)
            found = await inbox.answer(ApiCall(principal, tenant, task_id), read_body(body, AnswerForm))
        case _:
            raise RouteNotFound("no server has this store; start it", missing=NO_SERVER)
    return msgspec.json.encode(found)
