"""Answers of models that are none, or half of one, or may not go out: no caller takes them for whole ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.model.hub import answer, opened, reason, run
from tests.gateway.model.openai_server import ModelServer, Reply, results, told

AGENTS = "agents:\n  - {name: helper, model: 'openai:small', capabilities: [/list], maxTokens: 10}\n"


def _chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    about = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "small"}
    return f"data: {json.dumps({**about, 'choices': [choice], **more})}\n\n".encode()


TOKENS = {"prompt_tokens": 1.5, "completion_tokens": 2.5, "total_tokens": 4}
UNUSABLE = {
    "cut-at-its-tokens": ([_chunk({"content": "Half"}), _chunk({}, "length")], "limit_reached: ", "Half"),
    "held-back": ([_chunk({"content": "Half"}), _chunk({}, "content_filter")], "content_filtered: ", "Half"),
    "refused": ([_chunk({"refusal": "No."}), _chunk({}, "stop")], "content_filtered: ", ""),
    "empty": ([_chunk({}, "stop")], "provider_error: ", ""),
    "only-thoughts": ([_chunk({"reasoning_content": "Hm."}), _chunk({}, "stop")], "provider_error: ", ""),
    "parts-of-tokens": ([_chunk({"content": "Fine"}, "stop", usage=TOKENS)], "provider_error: ", "Fine"),
}


@pytest.mark.parametrize("name", UNUSABLE)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_an_answer_that_is_none_or_half_of_one_fails_with_a_code(tmp_path: Path, name: str) -> None:
    raw, why, shown = UNUSABLE[name]

    async def scene() -> None:
        with ModelServer(lambda body: Reply(raw=raw)) as server:
            async with opened(tmp_path, AGENTS, OPENAI_BASE_URL=server.url) as ask:
                await ask.ready("helper")
                task = await ask.say("helper", "go")
                assert reason(task).startswith(why) and answer(task) == shown

    run(scene())


@pytest.mark.parametrize(
    ("verdicts", "shown"),
    [
        (["HALT no"], []),
        (["REDIRECT", "CONTINUE"], ["a.txt", "tool_call", "tool_call", "sub_agent_response", "tool_call"]),
    ],
)
def test_nothing_passes_a_gate_beside_the_answer(
    tmp_path: Path, verdicts: list[str], shown: list[str]
) -> None:
    left = [*verdicts]
    calls = [("write", {"path": "a.txt", "text": "secret"}), ("a secret", {})]
    calls.append(("agent", {"name": "other", "message": "secret"}))

    def both(body: dict[str, Any]) -> Reply:
        if body["model"] == "wise":
            return Reply([left.pop(0)])
        if "You are other" in told(body):
            return Reply(["secret of the other"])
        return Reply(["Answer."]) if results(body) else Reply(calls=calls)

    agents = (
        "agents:\n  - {name: other, model: 'openai:small'}\n  - {name: helper, model: 'openai:small', "
        "capabilities: [/write, /agent], advisor: {model: 'openai:wise', mode: gate}}\n"
    )

    async def scene() -> None:
        with ModelServer(both) as server:
            async with opened(tmp_path, agents, OPENAI_BASE_URL=server.url) as ask:
                await ask.ready("helper")
                task = await ask.say("helper", "go")
                names = [one["name"] for one in task.get("artifacts", [])]
                assert names == [*shown, *(["response"] if shown else [])]
                judged = str([one for one in server.asked if one["model"] == "wise"][0]["messages"])
                assert all(word in judged for word in ("File a.txt", "a secret", "secret of the other"))

    run(scene())


def test_a_model_at_an_address_of_its_entry_may_advise_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def both(body: dict[str, Any]) -> Reply:
        return Reply(["CONTINUE"] if "You decide" in str(body["messages"][0]) else ["Fine."])

    async def scene() -> None:
        with ModelServer(both) as server:
            agents = (
                f"agents:\n  - {{name: helper, model: 'openai:small', baseUrl: '{server.url}', "
                "advisor: {model: 'openai:small', mode: gate}}\n"
            )
            async with opened(tmp_path, agents) as ask:
                assert (await ask.ready("helper"))["state"] == "ready"
                assert answer(await ask.say("helper", "go")) == "Fine."

    run(scene())


def test_after_its_tools_a_model_may_have_nothing_to_add(tmp_path: Path) -> None:
    def silent(body: dict[str, Any]) -> Reply:
        return Reply(raw=[_chunk({}, "stop")]) if results(body) else Reply(calls=[("list", {})])

    async def scene() -> None:
        with ModelServer(silent) as server:
            async with opened(tmp_path, AGENTS, OPENAI_BASE_URL=server.url) as ask:
                await ask.ready("helper")
                task = await ask.say("helper", "go")
                assert task["status"]["state"] == "TASK_STATE_COMPLETED"

    run(scene())
