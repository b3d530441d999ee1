"""Model calls: a completion of an OpenAI-compatible endpoint, checked by a schema and repaired once."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta, Struct

from trunkline.auth.references import KeyReference, Secrets
from trunkline.client.http_transport import JSON, HttpAnswer, answered
from trunkline.client.transport import Call
from trunkline.errors import Unreachable
from trunkline.flow.activities.base import Activity, Outcome, failed
from trunkline.flow.definition.checks import SchemaCheck
from trunkline.net.egress import shown
from trunkline.net.http import HttpClient, HttpRequest
from trunkline.net.places import TenantPlaces
from trunkline.net.redacted import RedactingHttpClient
from trunkline.run.spending import TOKEN_BYTES

DEFAULT_URL = "https://api.openai.com/v1"
DEFAULT_KEY = KeyReference(env="OPENAI_API_KEY")
_TIMEOUT_S = 120.0
_EXCERPT = 500
# Calls at a time, in total and of one tenant; so many calls may be under way when a quota is spent.
CALLS_LIMIT, CALLS_OF_TENANT = 64, 16
# What is asked where neither the node nor the state says anything.
_NOTHING = "Go on with the task."
_encode = msgspec.json.Encoder().encode


class ModelEndpoint(Struct, frozen=True):
    """Where models are asked, with which key, and which model where a node names none."""

    url: str = DEFAULT_URL
    key: KeyReference = DEFAULT_KEY
    model: str = ""
    timeout_s: float = _TIMEOUT_S


class _ModelMessage(Struct, frozen=True):
    content: str | None = None


class _Choice(Struct, frozen=True):
    message: _ModelMessage


class _CompletionUsage(Struct, frozen=True):
    prompt_tokens: Annotated[int, Meta(ge=0)] = 0
    completion_tokens: Annotated[int, Meta(ge=0)] = 0


class _MeteredCompletion(Struct, frozen=True):
    usage: _CompletionUsage | None = None


class _ModelCompletion(Struct, frozen=True):
    choices: tuple[_Choice, ...]


class ModelExecutor:
    """Does model calls at the endpoint that the operator has configured."""

    def __init__(self, endpoint: ModelEndpoint, http_client: HttpClient, secrets: Secrets) -> None:
        self._endpoint = endpoint
        self._http_client = RedactingHttpClient(http_client)
        self._secrets = secrets
        self.places = TenantPlaces(CALLS_LIMIT, CALLS_OF_TENANT)

    async def execute(self, activity: Activity) -> Outcome:
        """See `ActivityExecutor`."""
        node = activity.node
        if node.type != "llm_call":
            return failed("ACTIVITY_EXECUTOR_UNSUPPORTED_NODE", f"{node.id}: {node.type} is no model call")
        model = node.config.get("model") or self._endpoint.model
        if not isinstance(model, str) or not model.strip():
            return failed(
                "LLM_CONFIG_INVALID", f"{node.id}: name a model in the node or in the configuration"
            )
        schema: Any = node.config.get("output_schema")
        try:
            check = None if schema is None else SchemaCheck(schema)
        except ValueError as error:
            return failed("LLM_CONFIG_INVALID", f"{node.id}: output_schema: {error}"[:_EXCERPT])
        key = self._secrets.key(self._endpoint.key)
        if key is None:
            text = "the API key is not set; set OPENAI_API_KEY, or apiKeyEnv of WORKFLOW_ENGINE_LLM_CONFIG"
            return failed("LLM_CREDENTIALS_MISSING", f"{node.id}: {text}")
        ask = _Asking(self, activity, model.strip(), key.reveal())
        messages = _messages(node.config, activity.state)
        first = await ask(messages, as_json=check is not None)
        if isinstance(first, Outcome):
            return first
        if check is None:
            return Outcome(ok=True, output=_object(first) or {"text": first})
        wrong = await _fault(activity, check, first)
        if not wrong:
            return Outcome(ok=True, output=cast("dict[str, Any]", _object(first)))
        # Once more, with what was wrong: models mend their form when they are told of it.
        repair = (
            f"{wrong} Answer again, with one JSON object that fits this schema: {_encode(schema).decode()}"
        )
        messages += [{"role": "assistant", "content": first}, {"role": "user", "content": repair}]
        second = await ask(messages, as_json=True)
        if isinstance(second, Outcome):
            return second
        wrong = await _fault(activity, check, second)
        if wrong:
            return failed("LLM_OUTPUT_VALIDATION_FAILED", f"{node.id}: {wrong}")
        return Outcome(ok=True, output=cast("dict[str, Any]", _object(second)))

    async def post(self, body: bytes, key: str) -> HttpAnswer:
        """Ask the endpoint.

        Raises:
            Unreachable: the endpoint does not answer.
        """
        url = f"{self._endpoint.url.strip().rstrip('/')}/chat/completions"
        headers = (("content-type", JSON), ("accept", JSON), ("authorization", f"Bearer {key}"))
        return await answered(self._http_client, HttpRequest("POST", url, headers, body), Call())

    def timeout_s(self, activity: Activity) -> float:
        """Return how long a call may take, in seconds."""
        return seconds(activity.timeout_ms, self._endpoint.timeout_s)

    @property
    def place(self) -> str:
        """The endpoint as errors name it."""
        return shown(self._endpoint.url)


class _Asking:
    """One model, asked once or twice within one time."""

    def __init__(self, executor: ModelExecutor, activity: Activity, model: str, key: str) -> None:
        self._executor = executor
        self._activity = activity
        self._model = model
        self._key = key
        self._timeout_s = executor.timeout_s(activity)

    async def __call__(self, messages: list[dict[str, str]], *, as_json: bool) -> str | Outcome:
        """Ask the model; gives its text, or the outcome of a failed call."""
        order: dict[str, Any] = {"model": self._model, "messages": messages}
        if as_json:
            order["response_format"] = {"type": "json_object"}
        place, meter, body = self._executor.place, self._activity.meter, _encode(order)
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._executor.places.held(self._activity.tenant),
            ):
                if (refused := meter.refusal()) is not None:
                    return refused
                with meter.calling(self._model, len(body) // TOKEN_BYTES + 1):
                    answer = await self._executor.post(body, self._key)
                if answer.ok:
                    await meter.count(self._model, *_tokens(answer.body, len(body)))
        except TimeoutError:
            return failed("LLM_PROVIDER_ERROR", f"{place}: no answer within {self._timeout_s:g} seconds")
        except Unreachable as error:
            return failed("LLM_PROVIDER_ERROR", f"{place}: {error}")
        if not answer.ok:
            said = answer.body.decode(errors="replace")[:_EXCERPT]
            return failed("LLM_PROVIDER_ERROR", f"{place}: HTTP {answer.status}: {said}")
        try:
            found = msgspec.json.decode(answer.body, type=_ModelCompletion)
            said = found.choices[0].message.content
        except (msgspec.MsgspecError, UnicodeDecodeError, IndexError, RecursionError):
            said = None
        if said is None:
            return failed("LLM_PROVIDER_ERROR", f"{place}: the answer holds no message of a model")
        return said


def _tokens(answer: bytes, sent: int) -> tuple[int, int]:
    """Return the tokens in and out of a call; an estimate where the provider does not report them."""
    try:
        told = msgspec.json.decode(answer, type=_MeteredCompletion).usage
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        told = None
    if told is None or not (told.prompt_tokens or told.completion_tokens):
        return sent // TOKEN_BYTES + 1, len(answer) // TOKEN_BYTES + 1
    return told.prompt_tokens, told.completion_tokens


def seconds(timeout_ms: int | None, most: float) -> float:
    """How long a call may take: what its node says, and never more than the operator's."""
    return most if timeout_ms is None else min(timeout_ms / 1000, most)


def _messages(config: dict[str, Any], state: dict[str, Any]) -> list[dict[str, str]]:
    system = config.get("system_prompt")
    prompts = (config.get("user_prompt"), config.get("prompt"))
    user = next((one for one in prompts if isinstance(one, str) and one), "")
    user = user or (_encode(state).decode() if state else _NOTHING)
    first = [{"role": "system", "content": system}] if isinstance(system, str) and system else []
    return [*first, {"role": "user", "content": user}]


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


async def _fault(activity: Activity, check: SchemaCheck, text: str) -> str:
    found = _object(text)
    if found is None:
        return "The answer is not one JSON object."
    wrong = await activity.check(check, found)
    return "" if wrong is None else f"The answer does not fit its schema at {wrong}."
