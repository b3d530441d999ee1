"""What an entry says of an agent that is a model with tools. Pure."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from msgspec import Meta, Struct

from trunkline.errors import InvalidParams, Misuse
from trunkline.peer.remote import check_address

# The name of the step that holds the entry which a task was begun with.
MODEL_ENTRY = "model.entry"
Brevity = Literal["lite", "full", "ultra"]
_MODEL = re.compile(r"[a-z][a-z0-9-]{0,62}:[!-~]{1,200}")
_Text = Annotated[str, Meta(max_length=4096)]
_Long = Annotated[str, Meta(max_length=16_384)]
# By capability: the id of the skill that a card shows for it, and what it lets the agent do.
CAPABILITIES = {
    "/fetch": ("fetch-url", "Fetches a page of the web and reads its text."),
    "/search": ("web-search", "Searches the web."),
    "/read": ("read-file", "Reads files of its tenant."),
    "/write": ("write-file", "Writes files of its tenant, and hands them over."),
    "/list": ("list-files", "Lists the files of its tenant."),
    "/mem": ("memory", "Keeps notes, and finds them again."),
    "/mcp": ("mcp-tools", "Uses tools of the operator's MCP servers."),
    "/agent": ("delegate", "Has other agents do a part of the work."),
    "/a2a": ("a2a", "Asks agents elsewhere, and knows their cards."),
    "/advise": ("advisor-consult", "Asks a second model for advice."),
    "/todo": ("todos", "Keeps a list of what is to be done."),
    "/schedule": ("schedule", "Has itself asked again by schedule."),
}

# Members that agents of other gateways have, in snake case, and what there is here in their place.
NOT_TAKEN = {
    "mode": "how an agent speaks is said by personality, rules and brevity",
    "channel": "an answer is text; rules may ask for one that can be read aloud",
    "intent": "who is asked follows from the skill or agent that a caller names, else it is helm of hub.yaml",
    "event_types": "a caller sees every event of its task; artifacts says whether also those of tools",
    "index": "the agent before all others is the hub; helm of hub.yaml takes what names nobody",
    "advisor_model": "write it as advisor",
    "memory.search_expand": "notes are found by the words that they have",
    "memory.auto_tag": "notes have no tags; the model chooses their words",
    "memory.auto_supersede": "a note stays until the model deletes it",
    "memory.intent_routing": "notes are searched when the model asks for it",
}


class ModelLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much one task may use: calls of its model, of tools, of other agents, and seconds for each answer.

    `result_bytes` is what a model is told of the result of one tool, `file_bytes` what it is told of files of
    its caller; with 0 it takes none.
    """

    model_calls: Annotated[int, Meta(ge=1, le=200)] = 16
    tool_calls: Annotated[int, Meta(ge=0, le=1000)] = 48
    delegations: Annotated[int, Meta(ge=0, le=100)] = 16
    seconds: Annotated[float, Meta(gt=0, le=3600)] = 180.0
    result_bytes: Annotated[int, Meta(ge=256, le=1 << 20)] = 16_384
    file_bytes: Annotated[int, Meta(ge=0, le=64 << 20)] = 8 << 20


class ModelMemory(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is remembered: of a conversation its last messages within some bytes; and how notes grow old.

    A note that is as old as the half-life counts half in a search, and never less than the floor.
    """

    messages: Annotated[int, Meta(ge=0, le=400)] = 40
    bytes: Annotated[int, Meta(ge=0, le=1 << 20)] = 65_536
    age_decay: bool = True
    age_half_life_days: Annotated[float, Meta(gt=0, le=36_500)] = 90.0
    age_floor: Annotated[float, Meta(ge=0, le=1)] = 0.5


class Advisor(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is asked for advice: a second model, and what it is told first.

    One that is a `gate` also decides whether an answer goes out, is written again (`max_redirects` times at
    most) or is held back; `malformed_halts` says what a reply means that decides nothing.
    """

    model: str
    mode: Literal["off", "consult", "gate"] = "consult"
    prompt: _Long = ""
    max_redirects: Annotated[int, Meta(ge=0, le=10)] = 2
    malformed_halts: bool = True


class ModelEntry(Struct, frozen=True, kw_only=True):
    """An agent that is a model: who it is, what it may use and how far it may go.

    Without an advisor its own model is asked for advice, which then knows nothing but the question.
    `artifacts` says whether calls of tools and replies of agents are shown as artifacts. `base_url` and
    `api_key_env` are of the operator's machine, so only files have them. A `foreign` one came from somebody
    else than the operator: its provider is called only where the egress rule of its tenant allows.
    """

    model: str
    role: str = ""
    goal: str = ""
    personality: str = ""
    rules: tuple[str, ...] = ()
    brevity: Brevity = "full"
    max_tokens: int = 4096
    temperature: float | None = None
    capabilities: tuple[str, ...] = ()
    artifacts: bool = True
    limits: ModelLimits = ModelLimits()
    memory: ModelMemory = ModelMemory()
    advisor: Advisor | None = None
    base_url: str = ""
    api_key_env: str = ""
    foreign: bool = False

    @property
    def description(self) -> str:
        """The description of the agent on its card."""
        return " — ".join([one for one in (self.role, self.goal) if one])


class ModelForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The members of an entry that only an agent with a `model` has, as they are written."""

    role: _Text = ""
    goal: _Text = ""
    personality: _Text = ""
    rules: Annotated[tuple[_Text, ...], Meta(max_length=100)] = ()
    brevity: Brevity = "full"
    max_tokens: Annotated[int, Meta(ge=1, le=1_000_000)] = 4096
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    capabilities: Annotated[tuple[str, ...], Meta(max_length=64)] = ()
    artifacts: bool = True
    limits: ModelLimits = ModelLimits()
    memory: ModelMemory = ModelMemory()
    advisor: str | Advisor | None = None
    base_url: str = ""


def read_model(model: str, form: ModelForm, api_key_env: str, *, searches: bool) -> ModelEntry:
    """The agent that these members describe; without `searches` the operator has set up no search.

    Raises:
        InvalidParams: a member does not fit; `field` is its name as it is written.
    """
    _check_model(model, "model")
    advisor = Advisor(model=form.advisor) if isinstance(form.advisor, str) else form.advisor
    if advisor is not None:
        _check_model(advisor.model, "advisor" if isinstance(form.advisor, str) else "advisor.model")
    _check_capabilities(form.capabilities, searches=searches)
    if form.base_url:
        _check_address(form.base_url)
    return ModelEntry(
        model=model,
        role=form.role,
        goal=form.goal,
        personality=form.personality,
        rules=form.rules,
        brevity=form.brevity,
        max_tokens=form.max_tokens,
        temperature=form.temperature,
        capabilities=form.capabilities,
        artifacts=form.artifacts,
        limits=form.limits,
        memory=form.memory,
        advisor=advisor,
        base_url=form.base_url,
        api_key_env=api_key_env,
    )


def _check_model(model: str, field: str) -> None:
    if _MODEL.fullmatch(model) is None:
        raise InvalidParams("a model is provider:name, as openai:gpt-5-mini", field=field)


def _check_address(url: str) -> None:
    try:
        check_address(url)
    except Misuse:
        raise InvalidParams("this is not an http:// or https:// address", field="baseUrl") from None


def _check_capabilities(given: tuple[str, ...], *, searches: bool) -> None:
    for n, one in enumerate(given):
        field = f"capabilities[{n}]"
        if one not in CAPABILITIES:
            raise InvalidParams(
                f"there is no capability {one[:80]!r}; there are {', '.join(CAPABILITIES)}", field=field
            )
        if one in given[:n]:
            raise InvalidParams(f"{one} stands here twice", field=field)
        if one == "/search" and not searches:
            raise InvalidParams(
                "/search needs a search engine: the operator names one as search in hub.yaml", field=field
            )
