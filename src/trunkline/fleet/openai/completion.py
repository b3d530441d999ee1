"""Chat completions in the shapes of the OpenAI API: what is asked, and a task as its answer. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from trunkline.client.result import Result, text_of
from trunkline.errors import InvalidParams
from trunkline.fleet.routing.dispatch_api import Name, Short
from trunkline.fleet.views import answer_text
from trunkline.log.fold import State
from trunkline.wire.spellings import plain_state
from trunkline.wire.types import Metadata

TEXT_LIMIT = 1 << 20
_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class ContentPart(Struct, frozen=True):
    """A part of what is said; only text is read."""

    type: str
    text: str = ""


class ChatMessage(Struct, frozen=True):
    """A message of the conversation as the caller tells it."""

    role: str
    content: str | list[ContentPart] | None = None


class Conversation(Struct, frozen=True, rename="camel"):
    """The conversation that is gone on with; `taskId` names the task whose question is answered."""

    context_id: Short = ""
    task_id: Short = ""


class StreamOptions(Struct, frozen=True):
    """The options of a streamed completion: whether its usage is told at the end."""

    include_usage: bool = False


class CompletionForm(Struct, frozen=True, kw_only=True):
    """What is asked of a model; the members that are about sampling mean nothing to an agent."""

    model: Name
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    metadata: Conversation | None = None
    n: Annotated[int, Meta(ge=1, le=1)] | None = None


class TokenUsage(Struct, frozen=True):
    """The tokens that a run says it used."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class AnswerMetadata(Struct, frozen=True, rename="camel"):
    """The task behind an answer; while that is `input-required` or `auth-required` it is a question."""

    task_id: str
    context_id: str
    task_state: str


class AnswerMessage(Struct, frozen=True):
    """The message of a completion: the text of the agent."""

    content: str
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class CompletionChoice(Struct, frozen=True):
    """The one answer that there is."""

    message: AnswerMessage
    index: int = 0
    finish_reason: Literal["stop"] = "stop"
    logprobs: None = None


class Completion(Struct, frozen=True, kw_only=True):
    """The whole answer."""

    id: str
    created: int
    model: str
    choices: tuple[CompletionChoice, ...]
    metadata: AnswerMetadata
    usage: TokenUsage | UnsetType = UNSET
    object: Literal["chat.completion"] = "chat.completion"


class ChunkDelta(Struct, frozen=True):
    """The piece of the assistant's message that one streamed chunk adds."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True):
    """A piece of the one answer that there is."""

    delta: ChunkDelta
    finish_reason: Literal["stop"] | None = None
    index: int = 0
    logprobs: None = None


class CompletionChunk(Struct, frozen=True, kw_only=True):
    """A piece of an answer that is streamed; the last one tells of the task as the whole answer does."""

    id: str
    created: int
    model: str
    choices: tuple[ChunkChoice, ...]
    metadata: AnswerMetadata | UnsetType = UNSET
    usage: TokenUsage | UnsetType = UNSET
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"


def said_in(form: CompletionForm) -> str:
    """The text of the last message of the user.

    Raises:
        InvalidParams: there is none, it is not all text, or it is too long.
    """
    place, said = next(
        ((at, one) for at, one in reversed([*enumerate(form.messages)]) if one.role == "user"), (0, None)
    )
    if said is None:
        raise InvalidParams('there is no message of the role "user"', field="messages")
    field = f"messages[{place}].content"
    content = said.content or ""
    if not isinstance(content, str):
        if any([part.type != "text" for part in content]):
            raise InvalidParams("only parts of the type text are read", field=field)
        content = "\n".join([part.text for part in content])
    if not content:
        raise InvalidParams("the last message of the user is empty", field=field)
    if len(content) > TEXT_LIMIT:
        raise InvalidParams(f"a message has at most {TEXT_LIMIT} characters", field=field)
    return content


def completion_of(state: State, model: str) -> Completion:
    """The answer of a task that has come to rest."""
    result = Result(task=state.task(0))
    return Completion(
        id=completion_id(state),
        created=state.created_at // 1000,
        model=model,
        choices=(CompletionChoice(AnswerMessage(answer_text(state, result))),),
        metadata=metadata_of(state),
        usage=usage_of(result.usage),
    )


def completion_id(state: State) -> str:
    """The id of the answer of a task."""
    return f"chatcmpl-{state.task_id}"


def metadata_of(state: State) -> AnswerMetadata:
    """The task behind an answer."""
    return AnswerMetadata(state.task_id, state.context_id, plain_state(state.state))


def ending_text(state: State) -> str:
    """What a task says of the state in which it rests: what it asks, or why it failed."""
    return text_of(state.status_message)


def usage_of(reported: Metadata | None) -> TokenUsage | UnsetType:
    """The tokens of a report; nothing where it names none."""
    if reported is None:
        return UNSET
    prompt = sum([_count(reported.get(name)) for name in _INPUT])
    completion = _count(reported.get("output_tokens"))
    return TokenUsage(prompt, completion, prompt + completion) if prompt or completion else UNSET


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
