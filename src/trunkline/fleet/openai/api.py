"""The OpenAI-compatible API of a hub: its models, and chat completions that are tasks of its agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from trunkline.auth.principal import Scope as AuthScope
from trunkline.auth.principal import tenant_of
from trunkline.fleet.call import ApiCall, key_of, read_body
from trunkline.fleet.catalogue.listed import Listed
from trunkline.fleet.event_stream import until_left
from trunkline.fleet.openai.completion import CompletionForm, Conversation, completion_of, said_in
from trunkline.fleet.openai.failure import ErrorBody, failure, failure_of, write_failure
from trunkline.fleet.openai.stream import CompletionStream
from trunkline.fleet.routing.chat_api import ChatApi, ChatForm
from trunkline.fleet.routing.dispatch_api import DispatchApi
from trunkline.fleet.routing.dispatcher import Dispatcher
from trunkline.fleet.routing.standings import CatalogueFleet
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.http.exchange import JSON, read_query
from trunkline.http.mounts import App, Mount, Route
from trunkline.run.feed import Feed
from trunkline.run.runner import Runner

# The official client gives up after ten minutes, and would then ask again for the same work.
WAIT_S = 540.0
_BODY_LIMIT = 4 << 20
_MODELS, _MODEL = "GET /", "GET /{id...}"
# Limit of the models in one list.
_MODELS_LIMIT = 10_000
_NOT_AGAIN = (b"x-should-retry", b"false")


class ModelItem(Struct, frozen=True):
    """A model by its name; `created` is when the card of its agent came, in seconds."""

    id: str
    created: int
    owned_by: str
    object: Literal["model"] = "model"


class ModelList(Struct, frozen=True):
    """All models."""

    data: list[ModelItem]
    object: Literal["list"] = "list"


class OpenAiApi:
    """An ASGI application; the door that it is behind has found the route and read the body."""

    def __init__(
        self,
        runner: Runner,
        dispatcher: Dispatcher,
        fleet: CatalogueFleet,
        listed: Callable[[str], Sequence[Listed]],
        *,
        hub: str,
        keep_alive_s: float,
        wait_s: float = WAIT_S,
    ) -> None:
        """Take what lists the agents of a tenant, and the name of the hub, which stands for its helm."""
        self._runner = runner
        self._fleet = fleet
        self._listed = listed
        self._hub = hub
        self._helm = dispatcher.policy.helm
        self._keep_alive_s = keep_alive_s
        self._wait_s = wait_s
        self._chat = ChatApi(runner, dispatcher, fleet)
        self._work = DispatchApi(runner, dispatcher)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve ASGI.

        Raises:
            Refused: it cannot be done as asked.
        """
        principal = scope["trunkline.principal"]
        tenant = tenant_of(principal, read_query(scope["query_string"]).get("tenant", ""))
        if scope["trunkline.route"] in (_MODELS, _MODEL):
            name = scope["path"].removeprefix(scope["root_path"]).strip("/")
            agents = self._listed(tenant)
            if name:
                meant = (name.partition("/")[0], self._helm)
                agents = [one for one in agents if one.entry.name in meant]
            models = _models_of(agents, self._hub, self._helm)
            found = {one.id: one for one in models}.get(name) if name else ModelList(models)
            answer = (200, found) if found is not None else (404, _unknown(name))
            await _answer(send, *answer, is_head=scope["method"] == "HEAD")
            return
        form = read_body((await receive())["body"], CompletionForm)
        headers = scope["headers"]
        call = ApiCall(principal, tenant, "", key_of(headers), headers)
        await self._complete(call, form, receive, send)

    async def _complete(self, call: ApiCall, form: CompletionForm, receive: Receive, send: Send) -> None:
        said = said_in(form)
        meant = self._meant(call.tenant, form.model)
        if meant is None:
            await _answer(send, 404, _unknown(form.model))
            return
        about = form.metadata or Conversation()
        # What a task has told before it is gone on with was heard.
        after = (await self._work.find(call, about.task_id)).state.seq if about.task_id else 0
        feed = await self._chat.say(
            call,
            ChatForm(
                agent=meant[0],
                skill=meant[1],
                message=said,
                context_id=about.context_id,
                task_id=about.task_id,
            ),
        )
        is_refused = feed.state.resting and failure_of(feed.state) is not None
        if form.stream and not is_refused:
            with_usage = form.stream_options is not None and form.stream_options.include_usage
            stream = CompletionStream(
                self._runner.tasks.store.log,
                feed,
                after,
                self._keep_alive_s,
                model=form.model,
                with_usage=with_usage,
            )
            await stream.serve(receive, send)
            return
        await self._rest(feed, receive)
        failed = failure_of(feed.state)
        if failed is not None:
            await _answer(send, *failed)
            return
        await _answer(send, 200, completion_of(feed.state, form.model))

    def _meant(self, tenant: str, model: str) -> tuple[str, str] | None:
        """The agent and the skill that a model stands for."""
        name, slash, skill = model.partition("/")
        found = self._fleet.find(tenant, name, skill)
        if found is not None:
            is_known = not slash or (skill and (found.skills is None or skill in found.skills))
            return (name, skill) if is_known else None
        if model == self._hub and self._fleet.find(tenant, self._helm, "") is not None:
            return self._helm, ""
        return None

    async def _rest(self, feed: Feed, receive: Receive) -> None:
        """Wait until a task rests or its caller has left; the task goes on without one."""
        waits = [
            asyncio.ensure_future(until_left(receive)),
            asyncio.ensure_future(self._runner.tasks.rest(feed, self._wait_s)),
        ]
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            for one in waits:
                one.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


def openai_mounts(app: App) -> list[Mount]:
    """The places of the API; all else below `/v1` is A2A's."""
    read, write = AuthScope.READ.value, AuthScope.WRITE.value
    return [
        Mount("/v1/models", app, [Route(_MODELS, read, 0), Route(_MODEL, read, 0)], write_failure),
        Mount("/v1/chat", app, [Route("POST /completions", write, _BODY_LIMIT)], write_failure),
    ]


async def _answer(send: Send, status: int, answer: msgspec.Struct, *, is_head: bool = False) -> None:
    body = msgspec.json.encode(answer)
    headers = [
        (b"content-type", JSON),
        (b"cache-control", b"no-store"),
        (b"content-length", b"%d" % len(body)),
    ]
    if isinstance(answer, ErrorBody):
        # Clients repeat by themselves what failed, and each time it would be another task.
        headers.append(_NOT_AGAIN)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if is_head else body, "more_body": False})


def _unknown(model: str) -> ErrorBody:
    message = f"there is no model {model!r} here; GET /v1/models lists those that there are"
    return failure(404, message, "model_not_found", "model")


def _models_of(listed: Sequence[Listed], hub: str, helm: str) -> list[ModelItem]:
    """Return the models of the agents that can be asked; the hub's own name stands for its helm.

    Every agent is among them, and of their skills as many as a list has room for.
    """
    able = {one.entry.name: one for one in listed if one.state not in ("disabled", "invalid")}
    found: list[ModelItem] = []
    if helm in able and hub not in able:
        found.append(ModelItem(hub, able[helm].card_at // 1000, hub))
    for name, one in able.items():
        created = one.card_at // 1000
        found.append(ModelItem(name, created, hub))
        skills = one.skills[: max(_MODELS_LIMIT - len(found), 0)]
        found += [ModelItem(f"{name}/{skill.id}", created, hub) for skill in skills]
    return found
