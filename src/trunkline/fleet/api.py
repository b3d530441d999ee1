"""The operator's API: an ASGI application that a host mounts under `/api`.

It reads the log and calls the runner, and keeps nothing of its own. Whatever it raises is answered by the
door that it is behind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from trunkline.config import Settings
from trunkline.fleet.call import ApiCall, ApiPage, ApiQuery, read_body, read_form, tenant_of
from trunkline.fleet.event_stream import EventStream, place_in
from trunkline.fleet.inbox import AnswerForm, AnswerTaken, Inbox, InboxQuery
from trunkline.fleet.mount import PREFIX, SCOPES
from trunkline.fleet.openapi import describe
from trunkline.fleet.server_lists import DeliveryQuery, list_deliveries, list_settings
from trunkline.fleet.tasks import CancelForm, CancelOutcomes, LogQuery, TaskApi, TaskFilter
from trunkline.fleet.views import TaskDetail, TaskItem
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.http.exchange import JSON, read_query
from trunkline.run.feed import Feed
from trunkline.run.runner import Runner
from trunkline.wire.types import Message

EVENTS = "GET /tasks/{id}/events"
_HEADERS = [(b"content-type", JSON), (b"cache-control", b"no-store")]
Act = Callable[["OperatorApi", ApiCall, Any, Any], Awaitable[object]]


class ApiHost(Protocol):
    """What the API needs of the host that mounts it; a host that starts again has another runner."""

    @property
    def runner(self) -> Runner:
        """The runner that carries the tasks of this host."""
        ...

    @property
    def settings(self) -> Settings:
        """The settings of the host."""
        ...


class ApiRoute(Struct, frozen=True):
    """A route by its pattern: what it reads, what it does and what it answers."""

    pattern: str
    summary: str
    act: Act
    answer: Any
    query: type[ApiQuery] = ApiQuery
    body: type[Struct] | None = None


class OperatorApi:
    """Answers the routes below for one host."""

    def __init__(self, host: ApiHost) -> None:
        self.host = host
        self._runner = host.runner
        self.tasks, self.inbox = _parts(host.runner)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve ASGI; the door has found the route and read the body.

        Raises:
            Refused: it cannot be done as asked.
            StoreError: the store does not answer.
        """
        if self._runner is not self.host.runner:
            self._runner = self.host.runner
            self.tasks, self.inbox = _parts(self._runner)
        route = _BY_PATTERN[scope["trunkline.route"]]
        query = read_form(read_query(scope["query_string"]), route.query)
        call = _call(scope, route, query)
        if route.pattern == EVENTS and scope["method"] != "HEAD":
            await self._stream(call, scope, receive, send)
            return
        body = (await receive())["body"]
        form = None if route.body is None else read_body(body, route.body)
        answer = msgspec.json.encode(await route.act(self, call, query, form))
        length = (b"content-length", b"%d" % len(answer))
        await send({"type": "http.response.start", "status": 200, "headers": [*_HEADERS, length]})
        shown = b"" if scope["method"] == "HEAD" else answer
        await send({"type": "http.response.body", "body": shown, "more_body": False})

    async def _stream(self, call: ApiCall, scope: Scope, receive: Receive, send: Send) -> None:
        feed = await self.tasks.find(call)
        named = dict(scope["headers"]).get(b"last-event-id")
        after = place_in(feed, None if named is None else named.decode("latin-1"))
        log, keep_alive_s = self.host.runner.tasks.store.log, self.host.settings.keep_alive
        await EventStream(log, feed, after, keep_alive_s).serve(receive, send)

    async def settings(self) -> ApiPage:
        """The settings of the host."""
        return list_settings(self.host.settings)

    async def description(self) -> dict[str, Any]:
        """The OpenAPI document of this API."""
        return describe(ROUTES, SCOPES, PREFIX)


def _parts(runner: Runner) -> tuple[TaskApi, Inbox]:
    async def say(feed: Feed, message: Message, by: str) -> None:
        await runner.say(feed, message, by=by)

    return TaskApi(runner), Inbox(runner.tasks, say, runner.origin)


def _call(scope: Scope, route: ApiRoute, query: ApiQuery) -> ApiCall:
    principal = scope["trunkline.principal"]
    below = scope["path"].removeprefix(scope["root_path"]).split("/")
    wanted = route.pattern.partition(" ")[2].split("/")
    named = [text for name, text in zip(wanted, below, strict=True) if name.startswith("{")]
    return ApiCall(principal, tenant_of(principal, query.tenant), *named)


ROUTES = [
    ApiRoute(
        "GET /tasks",
        "A page of tasks, newest status first.",
        lambda api, call, query, _: api.tasks.list(call, query),
        ApiPage,
        TaskFilter,
    ),
    ApiRoute(
        "GET /tasks/{id}",
        "A task with the newest of its events, its deliveries, its parent and its children.",
        lambda api, call, _query, _form: api.tasks.get(call),
        TaskDetail,
    ),
    ApiRoute(
        "GET /tasks/{id}/log",
        "The events of a task after a seq.",
        lambda api, call, query, _: api.tasks.log(call, query),
        ApiPage,
        LogQuery,
    ),
    ApiRoute(
        EVENTS,
        "The events of a task as server-sent events, to its end; Last-Event-ID resumes.",
        lambda api, call, _query, _form: api.tasks.find(call),
        None,
    ),
    ApiRoute(
        "POST /tasks/{id}/cancel",
        "Cancel a task.",
        lambda api, call, _query, _form: api.tasks.cancel(call),
        TaskItem,
    ),
    ApiRoute(
        "POST /tasks:cancel",
        "Cancel several tasks.",
        lambda api, call, _, form: api.tasks.cancel_all(call, form),
        CancelOutcomes,
        body=CancelForm,
    ),
    ApiRoute(
        "GET /inbox",
        "A page of the questions that are open, or of those that are closed.",
        lambda api, call, query, _: api.inbox.list(call, query),
        ApiPage,
        InboxQuery,
    ),
    ApiRoute(
        "POST /inbox/{id}",
        "Answer the question of a task.",
        lambda api, call, _, form: api.inbox.answer(call, form),
        AnswerTaken,
        body=AnswerForm,
    ),
    ApiRoute(
        "GET /deliveries",
        "A page of deliveries, those of the newest tasks first.",
        lambda api, call, query, _: list_deliveries(api.host.runner.tasks.store, call, query),
        ApiPage,
        DeliveryQuery,
    ),
    ApiRoute(
        "GET /settings",
        "Every setting of the server, without secrets.",
        lambda api, _call, _query, _form: api.settings(),
        ApiPage,
    ),
    ApiRoute(
        "GET /openapi.json",
        "This description.",
        lambda api, _call, _query, _form: api.description(),
        dict[str, Any],
    ),
]
_BY_PATTERN = {route.pattern: route for route in ROUTES}
