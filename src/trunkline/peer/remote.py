"""A remote agent as an operator or author names it, and a task that is for one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, Protocol, TypedDict
from uuid import NAMESPACE_URL, uuid5

import msgspec
from msgspec import Struct, ValidationError, convert, field

from trunkline.auth.principal import ANONYMOUS
from trunkline.errors import InvalidParams, Misuse, Unreachable
from trunkline.log.correlation import correlation_id_of
from trunkline.log.events import Status
from trunkline.log.fold import State
from trunkline.net.egress import target
from trunkline.run import hops
from trunkline.run.executor import Work
from trunkline.wire.types import Message, Metadata, Part, Role, TaskState

# In the metadata of the message that opens a task: who is to do it, by which skill, in which context.
CALL_KEY = "trunkline.call"
# In the metadata of the message that comes with the end of a task: why, for programs.
REASON_KEY = "trunkline.reason"
# How the id ends under which such tasks are recorded; no author can take it.
CALLS = "/remote"
# What a remote agent is told of the metadata of a message: the chain of agents that it is part of.
_PASSED_ON = frozenset({hops.KEY})
_LONGEST_URL = 2048


class PeerLogin(Struct, frozen=True, kw_only=True):
    """The login of a program for tokens of a remote agent: by its secret, or in exchange for its token."""

    token_url: str
    client_id: str = ""
    scopes: tuple[str, ...] = ()
    audience: str = ""
    grant: Literal["client_credentials", "token_exchange"] = "client_credentials"


class Peer(Struct, frozen=True, kw_only=True):
    """A remote agent: where it is, what is shown to it, and what to do when the fate of a message is unknown.

    A `foreign` one came from somebody else than the operator: it is called only where the egress rule allows.
    An `external` one does not reach this machine by its own address, however near its own looks.
    `sealed` is a secret of it that only the vault opens, with the scheme before it: `bearer …`, `apiKey …`.
    With a `login` that secret, or the one that `bearer_env` names, is shown only to its token endpoint.
    `uncertain` is `fail`, or `ask`: then whoever asked for the work decides whether it is sent again.
    """

    url: str
    api_key_env: str = ""
    bearer_env: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    version: str = ""
    card_url: str = ""
    verify_tls: bool = True
    uncertain: Literal["fail", "ask"] = "fail"
    foreign: bool = False
    external: bool = False
    sealed: str = ""
    login: PeerLogin | None = None

    def __post_init__(self) -> None:
        check_address(self.url)
        if self.uncertain not in ("fail", "ask"):
            raise Misuse(f"uncertain is 'fail' or 'ask', not {self.uncertain!r}")

    def __repr__(self) -> str:
        # An address may hold a secret, and so may headers.
        return f"Peer(url={self.url.partition('?')[0]!r})"


class Calling(TypedDict, total=False):
    """The options of a call beside its content; `timeout` is in seconds."""

    data: object
    skill: str
    context: str
    task: str
    timeout: float | None
    questions: Literal["ask", "raise"]


class Target(Struct, frozen=True):
    """Whom a task is for: a name or an address, and what is asked for there."""

    target: str
    skill: str = ""
    context: str = ""


def is_address(named: str) -> bool:
    """Whether somebody is named by an address rather than by a name."""
    return "://" in named


def check_address(url: str) -> None:
    """Let an address pass that can be called.

    Raises:
        Misuse: it is too long or none.
    """
    if len(url) > _LONGEST_URL:
        raise Misuse(f"the address of an agent has at most {_LONGEST_URL} characters")
    try:
        target(url)
    except Unreachable as error:
        raise Misuse(f"{url.partition('?')[0]!r} is no address of an agent: {error}") from None


class ToolCaller(Protocol):
    """Calls tools of the MCP servers that the operator allows."""

    async def call_tool(
        self, server: str, tool: str, arguments: Mapping[str, Any], timeout_s: float, *, tenant: str = ""
    ) -> dict[str, Any]:
        """The result of a tool, for a tenant.

        Raises:
            CallFailed: it gave nothing.
        """
        ...


# Takes a tenant, an agent and a skill.
LacksSkill = Callable[[str, str, str], bool]


def lacks_nothing(tenant: str, agent: str, skill: str) -> bool:
    """Leave it to each agent to refuse what it cannot do."""
    del tenant, agent, skill
    return False


class Reachable(Struct, frozen=True):
    """Whom the skills of one agent may call: those near, those with a name, and who calls what is remote.

    `tools` are those of the operator's MCP servers. `lacks` says of a tenant's agent that is near whether
    it is known to have no such skill.
    """

    remote: str = ""
    peers: Collection[str] = ()
    local: Collection[str] = ()
    tools: ToolCaller | None = None
    lacks: LacksSkill = lacks_nothing

    def agent(self, target: str) -> str:
        """The id of the agent whose task a call is.

        Raises:
            Misuse: nobody is called so.
        """
        if is_address(target):
            check_address(target)
            return self.remote
        if target in self.peers:
            return self.remote
        if target in self.local:
            return target
        # Without those that are near: on a hub they are of many tenants, and one of these may read this.
        known = "".join([f", {name}" for name in self.peers])
        raise Misuse(
            f"there is no agent {target!r} to call; give an address, or an agent of this host{known}"
        )


def find(peers: Mapping[str, Peer], named: str) -> Peer:
    """The agent of this name or at this address.

    Raises:
        Misuse: there is none of this name, or the address is none.
    """
    if is_address(named):
        return Peer(url=named)
    found = peers.get(named)
    if found is None:
        raise Misuse(f"there is no agent {named!r} here; known are {', '.join(peers) or 'none'}")
    return found


def read_target(message: Message) -> Target:
    """Whom the message that opens a task is for.

    Raises:
        InvalidParams: it does not say.
    """
    try:
        return convert((message.metadata or {}).get(CALL_KEY), Target)
    except ValidationError:
        raise InvalidParams(
            "the message does not say whom it is for", field=f"message.metadata.{CALL_KEY}"
        ) from None


def context_of(tenant: str, state: State) -> str:
    """The context of a remote agent for one that a caller has named.

    We have one key there for all who call us: by the caller's word alone it would let whoever names
    somebody else's context hear what was said in it. Where nobody shows a key there is only one caller.
    """
    named = state.context_id
    if (tenant, state.principal) == (ANONYMOUS.tenant, ANONYMOUS.name):
        return named
    return str(uuid5(NAMESPACE_URL, msgspec.json.encode((tenant, state.principal, named)).decode()))


def correlation_of(state: State) -> str:
    """Return the correlation ID of a task: the one that its caller named, or the ID of the task."""
    return correlation_id_of(state.correlation, state.metadata) or state.task_id


def passed_on(metadata: Metadata | None) -> Metadata | None:
    """What of the metadata of a message is for whoever does the work; the rest is our caller's and ours."""
    if not metadata:
        return None
    return {key: value for key, value in metadata.items() if key in _PASSED_ON} or None


def spoken(work: Work, state: TaskState, text: str, reason: str = "") -> Status:
    """A state of a task with a word of ours, and the reason for it that programs read."""
    known = work.state
    parts = (Part(text=text.encode(errors="replace").decode()),)
    metadata = {REASON_KEY: reason} if reason else None
    return Status(
        state, Message(work.ids.new(), known.context_id, known.task_id, Role.AGENT, parts, metadata)
    )
