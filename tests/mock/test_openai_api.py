"""A scripted model over HTTP, called by the official client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import openai
import pytest

from trunkline.mock.model_script import ModelCondition, ModelReply, ModelRule, ModelScript, ScriptedCall
from trunkline.mock.openai_api import ModelMock
from trunkline.mock.serve import BackgroundServer

SCRIPT = ModelScript(
    rules=(
        ModelRule(
            when=ModelCondition(contains="read"),
            reply=ModelReply(calls=(ScriptedCall(tool="read_file", arguments={"path": "p"}),)),
        ),
        ModelRule(when=ModelCondition(tool="read_file"), reply="It is read."),
        ModelRule(when=ModelCondition(contains="busy"), reply=ModelReply(error=429)),
        ModelRule(when=ModelCondition(contains="long"), reply=ModelReply(stream=("one ", "two"))),
    ),
    otherwise="Hello.",
)
TOOL: Any = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    with BackgroundServer(ModelMock(SCRIPT)) as url:
        yield f"{url}/v1"


@pytest.fixture
def client(base: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=base, api_key="none", max_retries=0)


def test_a_completion_has_text_and_usage(client: openai.OpenAI) -> None:
    found = client.chat.completions.create(model="any", messages=[{"role": "user", "content": "hi"}])
    assert (found.choices[0].message.content, found.choices[0].finish_reason) == ("Hello.", "stop")
    assert found.model == "any" and found.usage is not None and found.usage.total_tokens == 3


def test_a_stream_has_chunks_and_usage(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="any",
            messages=[{"role": "user", "content": [{"type": "text", "text": "a long one"}]}],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    texts = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert [text for text in texts if text] == ["one ", "two"]
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 2


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called_and_its_result_answered(client: openai.OpenAI, stream: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": "read it"}]
    if stream:
        deltas = [
            one.choices[0].delta
            for one in client.chat.completions.create(model="m", messages=messages, tools=[TOOL], stream=True)
        ]
        (call,) = [call for delta in deltas for call in delta.tool_calls or ()]
    else:
        message = (
            client.chat.completions.create(model="m", messages=messages, tools=[TOOL]).choices[0].message
        )
        (call,) = message.tool_calls or ()
    assert call.function.name == "read_file" and call.function.arguments == '{"path":"p"}'  # type: ignore[union-attr]
    messages += [
        {
            "role": "assistant",
            "tool_calls": [
                {"id": call.id, "type": "function", "function": {"name": "read_file", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": call.id, "content": "read busy long"},
    ]
    found = client.chat.completions.create(model="m", messages=messages, tools=[TOOL])
    assert found.choices[0].message.content == "It is read."


def test_failures_have_the_form_of_the_provider(client: openai.OpenAI, base: str) -> None:
    with pytest.raises(openai.RateLimitError):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "busy"}])
    answer = httpx2.post(f"{base}/chat/completions", content=b"{")
    assert answer.status_code == 400 and "invalid request" in answer.json()["error"]["message"]
    assert httpx2.get(f"{base}/files").status_code == 404


def test_the_model_is_listed(client: openai.OpenAI) -> None:
    assert [one.id for one in client.models.list()] == ["script"]
    assert client.models.retrieve("gpt-5").id == "gpt-5"
