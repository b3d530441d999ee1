"""What a run is asked for, and the words that it hears later, as they stand in messages of its log. Pure."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Literal, cast

from msgspec import UNSET, Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.errors import FlowRefused, InvalidParams
from trunkline.log.fold import State
from trunkline.wire.question import question_metadata, read_question
from trunkline.wire.types import Message, Part, Role

# In the metadata of messages: what they say to a workflow's run, or what its run waits for.
FLOW_KEY = "trunkline.flow"
Mode = Literal["in_process", "host_mediated"]
DEPTH_LIMIT = 4


class RunOrder(Struct, frozen=True, omit_defaults=True):
    """The order for a run: its execution ID, its definition by hash and name, its nesting depth."""

    execution: str
    definition: str
    mode: Mode = "in_process"
    depth: int = 0
    # Empty in logs of versions that did not say it.
    name: str = ""
    # Whether the operator provided the definition: such a run may call every tool, step and model.
    by_operator: bool = False
    # Whether answers leave the mode as it is: the run is an agent of a catalogue, nested in such a run, or
    # has more rights than its tenant.
    is_fixed: bool = False

    def message(self, message_id: str, given: dict[str, Any]) -> Message:
        """The message that opens the run."""
        metadata = {FLOW_KEY: to_builtins(self)}
        return Message(message_id, role=Role.USER, parts=(Part(data=given),), metadata=metadata)


class RunReply(Struct, frozen=True, omit_defaults=True):
    """The answer of a caller to a run that waits: the outcome of an activity, a signal, a resume payload."""

    mode: Mode
    # Only in logs of older versions: the run executes the activity itself that it asked its host for.
    takes_over: bool = False
    ok: bool = True
    error: str = ""
    code: str = ""
    external_task: str = ""

    def message(self, message_id: str, question: str, payload: Part) -> Message:
        """Return the message that answers the question which the run asks."""
        metadata = {FLOW_KEY: to_builtins(self), **question_metadata(question)}
        return Message(message_id, role=Role.USER, parts=(payload,), metadata=metadata)


class Awaited(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a run waits for, in the metadata of its question; `execution_id` is that of the run which asks."""

    awaits: Literal["interrupt", "signal", "activity", "agent"]
    node_id: str
    execution_id: str
    signal_name: str = ""
    node_type: str = ""
    attempt: int = 0
    # How often the run has come to the node, including this time; 0 in logs of older versions.
    visit: int = 0
    timeout_ms: int | None = None
    parallel_span: dict[str, str] | None = None
    agent_id: str = ""
    protocol: str = ""
    delegate_input: dict[str, Any] | None = None
    delegate_correlation_id: str = ""
    # What the answer must fit: the `resume_schema` of an interrupt, the `output_schema` of a model's call.
    fits: dict[str, Any] | None = None

    @property
    def activity_id(self) -> str:
        """The ID of the activity that the run awaits; empty if it awaits none."""
        if self.awaits != "activity":
            return ""
        return f"{self.execution_id}:{self.node_id}:{self.visit}.{self.attempt}"


class RunQuestion(Struct, frozen=True, omit_defaults=True):
    """The question of an interrupt or of a delegated agent: its text, and what its answer must be."""

    text: str
    choices: list[str] = []
    schema: dict[str, Any] | None = None
    deadline: str = ""


def run_task_id(execution_id: str, tenant: str = DEFAULT_TENANT) -> str:
    """The id of the task that a run is: the log of the task decides who was first to start it.

    Ids of tasks are those of a whole store, execution ids those of a tenant.
    """
    # No tenant has a control character in its name, but a caller may write one into an execution id.
    is_plain = tenant == DEFAULT_TENANT and "\x1e" not in execution_id
    whole = execution_id if is_plain else f"{tenant}\x1e{execution_id}"
    return f"run-{blake2b(whole.encode(errors='surrogatepass'), digest_size=18).hexdigest()}"


def read_order(message: Message) -> RunOrder | None:
    """What the message that opens a run says of it; None where it comes from somebody who knows no runs.

    Raises:
        InvalidParams: it cannot be read.
    """
    told = (message.metadata or {}).get(FLOW_KEY)
    if told is None:
        return None
    try:
        return convert(told, RunOrder)
    except ValidationError as error:
        raise InvalidParams(str(error), field=f"message.metadata.{FLOW_KEY}") from None


def order_of(tenant: str, state: State) -> RunOrder | None:
    """What a task says of the run that it is; None where somebody asked for it who knows no runs."""
    try:
        order = read_order(state.message)
    except InvalidParams:
        return None
    # To an agent that is a workflow anybody may have said anything: an order leads to the task it opened.
    return order if order is not None and run_task_id(order.execution, tenant) == state.task_id else None


def read_reply(message: Message) -> RunReply | None:
    """What a message says to a run; None where its sender knows no runs."""
    try:
        return convert((message.metadata or {}).get(FLOW_KEY), RunReply)
    except ValidationError:
        return None


def read_awaited(state: State) -> tuple[str, Awaited] | None:
    """What the task of a run waits for, with the id of the question; None where it asks nothing."""
    question = state.question
    if question is None:
        return None
    return question.message_id, awaited_by(question)


def awaited_by(question: Message) -> Awaited:
    """Return what a run awaits that asks this question."""
    try:
        return convert((question.metadata or {}).get(FLOW_KEY), Awaited)
    except ValidationError:
        return Awaited("agent", "", "")


def asked_in(message: Message) -> RunQuestion:
    """Return the question that a message asks."""
    found = read_question(message)
    return RunQuestion(found.text, list(found.choices), found.schema, found.deadline)


def given_to(message: Message) -> dict[str, Any]:
    """The input of a run: the object of a data part, else the text."""
    for part in message.parts:
        if part.data is not UNSET:
            value: Any = part.data
            return cast("dict[str, Any]", value) if isinstance(value, dict) else {"value": value}
    return {"text": message.text} if message.text else {}


def mode_of(state: State, order: RunOrder) -> Mode:
    """Return the mode of the last answer that was read, or of the order where answers do not change it."""
    if order.is_fixed:
        return order.mode
    for said in reversed(state.answers[: state.taken]):
        if isinstance(said, Message) and (reply := read_reply(said)) is not None:
            return reply.mode
    return order.mode


def check_mode(tenant: str, state: State, mode: Mode, default: Mode, code: str) -> None:
    """Check that an answer does not change the mode of a run whose mode is fixed.

    Raises:
        FlowRefused: the answer names neither this mode nor the default of such answers.
    """
    order = order_of(tenant, state)
    fixed = order.mode if order is not None else "in_process"
    if (order is None or order.is_fixed) and mode not in (fixed, default):
        run = order.execution if order is not None else state.task_id
        text = f"the mode of run {run!r} is {fixed} since its start"
        raise FlowRefused(code, f"{text}; leave activity_execution_mode out")


def fixes_mode(tenant: str, *, by_operator: bool) -> bool:
    """Return whether the definition of a run fixes its mode: it has rights that its tenant does not have.

    Otherwise a tenant could submit a forged result of one node and have the operator execute the next.
    """
    return by_operator and tenant != DEFAULT_TENANT


def own(question: Message, state: State) -> Message:
    """The question of a child, as this task asks it."""
    return replace(question, task_id=state.task_id, context_id=state.context_id)
