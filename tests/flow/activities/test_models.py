from __future__ import annotations

import asyncio
import json
import socket
import threading
from typing import Any

import pytest
from msgspec.structs import replace

from tests.flow.web import Answer, WrittenClient
from trunkline.auth.references import KeyReference, Secrets
from trunkline.flow.activities.base import Activity
from trunkline.flow.activities.models import ModelEndpoint, ModelExecutor
from trunkline.flow.definition.document import Node
from trunkline.flow.jq.pool import FilterLimits, WorkerPool
from trunkline.flow.jq.schemas import SchemaChecker

SCHEMA = {"type": "object", "required": ["intent"], "properties": {"intent": {"type": "string"}}}


def said(content: str) -> Answer:
    return 200, {"choices": [{"message": {"role": "assistant", "content": content}}]}


def call(state: dict[str, Any] | None = None, **config: Any) -> Activity:
    return Activity("e1", Node("classify", "llm_call", config), state or {}, timeout_ms=5000)


def executor(client: WrittenClient, *, model: str = "small", key: str = "sk-of-tests") -> ModelExecutor:
    endpoint = ModelEndpoint("http://models.test/v1/", KeyReference(env="MODEL_KEY"), model)
    return ModelExecutor(endpoint, client, Secrets({"MODEL_KEY": key}))


async def test_prompts_become_messages_and_the_answer_is_the_output() -> None:
    client = WrittenClient(said("Hello"))
    outcome = await executor(client).execute(call(system_prompt="Be kind.", user_prompt="Say it."))
    assert outcome.output == {"text": "Hello"}
    assert client.asked[0].url == "http://models.test/v1/chat/completions"
    assert client.header(0, "authorization") == "Bearer sk-of-tests"
    assert client.body(0) == {
        "model": "small",
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Say it."}],
    }


async def test_answer_of_a_model_does_not_repeat_the_key() -> None:
    outcome = await executor(WrittenClient(said("Bearer sk-of-tests"))).execute(call(prompt="go"))
    assert outcome.output == {"text": "Bearer ***"}


async def test_without_a_prompt_the_state_is_sent_and_the_node_names_the_model() -> None:
    client = WrittenClient(said('{"a": 1}'))
    outcome = await executor(client).execute(call({"ticket": 7}, model="large"))
    assert outcome.output == {"a": 1}
    assert client.body(0)["messages"] == [{"role": "user", "content": '{"ticket":7}'}]
    assert client.body(0)["model"] == "large"


async def test_an_answer_that_does_not_fit_is_repaired_once() -> None:
    client = WrittenClient(said("I think billing"), said('{"intent": "billing"}'))
    outcome = await executor(client).execute(call(prompt="Which?", output_schema=SCHEMA))
    assert outcome.output == {"intent": "billing"}
    assert client.body(0)["response_format"] == {"type": "json_object"}
    roles = [one["role"] for one in client.body(1)["messages"]]
    assert roles == ["user", "assistant", "user"]
    assert "not one JSON object" in client.body(1)["messages"][-1]["content"]


async def test_an_answer_that_never_fits_fails_after_one_repair() -> None:
    client = WrittenClient(said('{"intent": 5}'))
    outcome = await executor(client).execute(call(prompt="Which?", output_schema=SCHEMA))
    assert outcome.code == "LLM_OUTPUT_VALIDATION_FAILED"
    assert "/intent" in outcome.error
    assert len(client.asked) == 2


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "nobody answers"),
        ((500, "it burns"), "HTTP 500: it burns"),
        ((401, "sk-of-tests is no key"), "HTTP 401: *** is no key"),
        ((200, "no json"), "no message"),
        ((200, '{"choices": []}'), "no message"),
    ],
)
async def test_what_goes_wrong_at_the_endpoint_is_told(answer: Answer | None, text: str) -> None:
    outcome = await executor(WrittenClient(answer)).execute(call(prompt="Hi"))
    assert outcome.code == "LLM_PROVIDER_ERROR"
    assert text in outcome.error
    assert "sk-test" not in outcome.error


@pytest.mark.parametrize(
    ("activity", "key", "code"),
    [
        (call(prompt="Hi"), " ", "LLM_CREDENTIALS_MISSING"),
        (call(prompt="Hi", output_schema={"type": "nonsense"}), "sk", "LLM_CONFIG_INVALID"),
        (call(prompt="Hi", model=7), "sk", "LLM_CONFIG_INVALID"),
        (Activity("e1", Node("a", "step", {}), {}), "sk", "ACTIVITY_EXECUTOR_UNSUPPORTED_NODE"),
    ],
)
async def test_nothing_is_sent_where_something_is_missing(activity: Activity, key: str, code: str) -> None:
    client = WrittenClient(said("x"))
    assert (await executor(client, key=key).execute(activity)).code == code
    assert client.asked == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "written",
    [
        '{"$schema": "http://127.0.0.1:PORT/meta"}',
        # Draft 7 knows this keyword, and the one of workflows does not.
        '{"$schema": "http://json-schema.org/draft-07/schema#", "additionalItems": {"$ref": "http://127.0.0.1:PORT/x"}}',
        '{"properties": {"intent": {"$ref": "http://127.0.0.1:PORT/x"}}}',
    ],
)
async def test_what_a_schema_points_to_is_not_fetched(written: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as elsewhere:
        elsewhere.setblocking(False)
        schema = json.loads(written.replace("PORT", str(elsewhere.getsockname()[1])))

        async def ask() -> None:
            pool = WorkerPool(FilterLimits(deadline_s=60))
            activity = replace(call(prompt="Hi", output_schema=schema), check=SchemaChecker(pool).find_fault)
            await executor(WrittenClient(said("{}"), said("{}"))).execute(activity)
            await pool.close()

        # In a thread: what is dialled there would wait for an answer.
        asking = threading.Thread(target=lambda: asyncio.run(ask()), daemon=True)
        asking.start()
        while asking.is_alive():
            with pytest.raises(BlockingIOError):
                elsewhere.accept()
            asking.join(0.05)


async def test_a_model_must_be_named_somewhere() -> None:
    outcome = await executor(WrittenClient(said("x")), model="").execute(call(prompt="Hi"))
    assert outcome.code == "LLM_CONFIG_INVALID"
