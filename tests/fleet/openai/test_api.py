"""Chat completions over the agents of a hub: answers, questions, failures and streams of the OpenAI API."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx2
import pytest

from tests.fleet.office import Office, office
from tests.fleet.routing.test_dispatcher import Few, agent
from trunkline.fleet.catalogue.entry import Entry, EntrySkill
from trunkline.fleet.catalogue.listed import list_entry
from trunkline.fleet.openai import api
from trunkline.fleet.openai.api import OpenAiApi, openai_mounts
from trunkline.fleet.routing.dispatcher import Dispatcher, Policy

PATH = "/v1/chat/completions"


class Caller:
    """What callers of the API do."""

    def __init__(self, at: Office) -> None:
        self.at = at

    async def ask(self, said: Any, model: str = "desk", **members: Any) -> httpx2.Response:
        body = {"model": model, "messages": [{"role": "user", "content": said}], **members}
        return await self.at.ask("alice", "POST", PATH, body)

    async def answer(self, said: Any, model: str = "desk", **members: Any) -> Any:
        got = await self.ask(said, model, **members)
        assert got.status_code == 200, got.text
        return got.json()

    async def error(self, status: int, said: Any, model: str = "desk", **members: Any) -> Any:
        got = await self.ask(said, model, **members)
        assert got.status_code == status, got.text
        return got.json()["error"]

    async def stream(self, said: Any, **members: Any) -> list[Any]:
        got = await self.ask(said, stream=True, **members)
        assert got.headers["content-type"] == "text/event-stream"
        lines = [line.removeprefix("data: ") for line in got.text.split("\n\n") if line.startswith("data: ")]
        return [line if line == "[DONE]" else json.loads(line) for line in lines]


def hub(work: Callable[[Caller], Awaitable[None]], *, wait_s: float = 60.0) -> None:
    """Do something with the agent `desk`, which is the helm of the hub `home`, and one that is disabled."""

    async def main(at: Office) -> None:
        host = at.application.host
        fleet = Few(agent("desk", "work", "other"), agent("off", "work", excluded="it is disabled"))
        skills = tuple([EntrySkill(id=one, name=one) for one in ("work", "other")])
        listed = [
            list_entry(Entry(name="desk", owner="file", skills=skills), None, "", ""),
            list_entry(Entry(name="off", owner="file", enabled=False), None, "", ""),
        ]
        made = OpenAiApi(
            host.runner,
            Dispatcher(host.runner, fleet, Policy(helm="desk")),
            fleet,
            lambda _: listed,
            hub="home",
            keep_alive_s=15,
            wait_s=wait_s,
        )
        for mount in openai_mounts(made):
            host.mounts.add(mount)
        await work(Caller(at))

    office(main)


def test_the_models_are_the_agents_their_skills_and_the_helm() -> None:
    async def work(to: Caller) -> None:
        found = await to.at.get("alice", "/v1/models")
        assert found["object"] == "list"
        assert [one["id"] for one in found["data"]] == ["home", "desk", "desk/work", "desk/other"]
        assert {one["object"] for one in found["data"]} == {"model"}
        for one in found["data"]:
            assert await to.at.get("alice", f"/v1/models/{one['id']}") == one
        unknown = await to.at.ask("alice", "GET", "/v1/models/desk/nothing")
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
        head = await to.at.ask("alice", "HEAD", "/v1/models")
        assert (head.status_code, head.content) == (200, b"")

    hub(work)


def test_a_list_of_models_has_every_agent_and_a_limited_number_of_skills(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api, "_MODELS_LIMIT", 3)

    async def work(to: Caller) -> None:
        found = await to.at.get("alice", "/v1/models")
        assert [one["id"] for one in found["data"]] == ["home", "desk", "desk/work"]

    hub(work)


def test_the_last_message_of_the_user_is_answered_by_the_model() -> None:
    async def work(to: Caller) -> None:
        first = await to.answer("hello")
        assert (first["object"], first["model"]) == ("chat.completion", "desk")
        (choice,) = first["choices"]
        assert choice["message"] == {"role": "assistant", "content": "did hello", "refusal": None}
        assert (choice["finish_reason"], "usage" in first) == ("stop", False)
        assert (await to.answer("x", "home"))["choices"][0]["message"]["content"] == "did x"
        assert (await to.answer("x", "desk/other"))["choices"][0]["message"]["content"] == "otherwise"
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        said = [
            {"role": "user", "content": "not this"},
            {"role": "user", "content": parts},
            {"role": "assistant", "content": None},
        ]
        context = first["metadata"]["contextId"]
        more = await to.answer("", messages=said, metadata={"contextId": context}, temperature=1)
        assert more["choices"][0]["message"]["content"] == "did a\nb"
        assert more["metadata"]["contextId"] == context
        assert more["metadata"]["taskId"] != first["metadata"]["taskId"]
        used = (await to.answer("report"))["usage"]
        assert used == {"prompt_tokens": 1, "completion_tokens": 0, "total_tokens": 1}

    hub(work)


def test_a_question_is_the_text_of_the_assistant_and_is_answered_by_its_task() -> None:
    async def work(to: Caller) -> None:
        for streams in (False, True):
            if streams:
                *_, text, last, done = await to.stream("ask")
                asked, about = text["choices"][0]["delta"]["content"], last["metadata"]
                assert (last["choices"][0]["finish_reason"], done) == ("stop", "[DONE]")
            else:
                whole = await to.answer("ask")
                asked, about = whole["choices"][0]["message"]["content"], whole["metadata"]
                assert whole["choices"][0]["finish_reason"] == "stop"
            assert (asked, about["taskState"]) == ("Which one?", "input-required")
            answer = {"taskId": about["taskId"], "contextId": about["contextId"]}
            heard = await to.answer("red", metadata=answer)
            assert heard["choices"][0]["message"]["content"] == "heard red"
            assert heard["metadata"] == {**about, "taskState": "completed"}

    hub(work)


def test_a_stream_tells_the_text_as_it_comes() -> None:
    async def work(to: Caller) -> None:
        *pieces, last, done = await to.stream("write")
        deltas = [one["choices"][0]["delta"] for one in pieces]
        assert [one["content"] for one in deltas] == ["one ", "two", "\nthree"]
        assert ["role" in one for one in deltas] == [True, False, False]
        assert {one["object"] for one in pieces} == {"chat.completion.chunk"}
        assert (last["choices"][0]["delta"], last["choices"][0]["finish_reason"]) == ({}, "stop")
        assert (last["metadata"]["taskState"], done) == ("completed", "[DONE]")
        assert (await to.answer("write"))["choices"][0]["message"]["content"] == "one two\nthree"
        *_, used, done = await to.stream("report", stream_options={"include_usage": True})
        assert (used["choices"], used["usage"]["total_tokens"], done) == ([], 1, "[DONE]")
        *_, failed = await to.stream("fail")
        assert (failed["error"]["code"], failed["error"]["message"]) == ("task_failed", "it broke")

    hub(work)


def test_what_cannot_be_done_is_an_error_body() -> None:
    async def work(to: Caller) -> None:
        for model in ("dusk", "desk/fly", "desk/", "off/fly", "home/work"):
            said = await to.error(404, "x", model)
            assert (said["code"], said["param"]) == ("model_not_found", "model")
            assert said["type"] == "invalid_request_error"
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"messages": []}, "messages"),
            ({"messages": [{"role": "system", "content": "x"}]}, "messages"),
            ({"messages": [{"role": "user", "content": ""}]}, "messages[0].content"),
            ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
            ({"model": 7}, "model"),
            ({"n": 2}, "n"),
        ]
        for members, param in wrong:
            body = {"model": "desk", "messages": [{"role": "user", "content": "x"}], **members}
            got = await to.at.ask("alice", "POST", PATH, body)
            assert (got.status_code, got.json()["error"]["param"]) == (400, param), got.text
        assert (await to.at.get("alice", "/api/tasks"))["items"] == []
        assert (await to.error(502, "fail"))["message"] == "it broke"
        assert "it is disabled" in (await to.error(503, "x", "off", stream=True))["message"]
        # Clients must not repeat by themselves what was a task.
        assert (await to.ask("fail")).headers["x-should-retry"] == "false"
        got = await to.at.ask("alice", "POST", PATH, b" " * (5 << 20))
        assert (got.status_code, got.json()["error"]["code"]) == (413, "body_too_large")
        got = await to.at.ask("alice", "POST", PATH, {}, **{"X-API-Key": "wrong"})
        assert (got.status_code, got.json()["error"]["type"]) == (401, "authentication_error")
        # The rest of the prefix is A2A's.
        task = await to.at.send("alice", "hello")
        assert (await to.at.get("alice", f"/v1/tasks/{task['id']}"))["id"] == task["id"]

    hub(work)


def test_what_takes_too_long_goes_on_and_says_where() -> None:
    async def work(to: Caller) -> None:
        got = await to.ask("hold")
        said = got.json()
        assert (got.status_code, said["error"]["code"]) == (504, "task_pending")
        assert said["metadata"]["taskId"] in said["error"]["message"]
        assert said["metadata"]["taskState"] == "working"
        await to.at.ask("alice", "POST", f"/api/tasks/{said['metadata']['taskId']}/cancel")

    hub(work, wait_s=0.3)
