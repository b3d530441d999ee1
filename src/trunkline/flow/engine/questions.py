"""What a run asks of its caller, and how it reads what it is answered. Pure."""

from __future__ import annotations

from typing import Any, cast

from msgspec import to_builtins
from msgspec.structs import replace

from trunkline.errors import Misuse
from trunkline.flow.engine.effects import Ask, Delegate, Done, Perform
from trunkline.flow.engine.run_messages import FLOW_KEY, Awaited, given_to, read_reply
from trunkline.flow.engine.walk import Lane, NodeFailed
from trunkline.log.events import Status
from trunkline.log.fold import State
from trunkline.wire.json_schema import mismatch, read_schema
from trunkline.wire.question import OTHERS, AnsweredBy, Question, Rejection, question_metadata, read_answer
from trunkline.wire.types import Message, Part, Role, TaskState


def awaited(lane: Lane, execution_id: str) -> Awaited:
    """What a lane waits for, in the words of the port."""
    effect = cast("Perform | Delegate | Ask", lane.effect)
    node = effect.node
    match effect:
        case Ask(awaits="signal"):
            return Awaited("signal", node.id, execution_id, signal_name=node.config["signal"])
        case Ask():
            return Awaited("interrupt", node.id, execution_id, fits=node.config["resume_schema"])
        case Perform():
            return Awaited(
                "activity",
                node.id,
                execution_id,
                node_type=node.type,
                attempt=effect.attempt,
                visit=effect.visit,
                timeout_ms=node.timeout_ms,
                parallel_span=effect.span,
                fits=node.config.get("output_schema") if node.type == "llm_call" else None,
            )
        case Delegate():
            return Awaited(
                "activity",
                node.id,
                execution_id,
                node_type=node.type,
                attempt=effect.attempt,
                visit=effect.visit,
                timeout_ms=node.timeout_ms,
                parallel_span=effect.span,
                agent_id=node.config["agent_id"],
                protocol=node.config["protocol"],
                delegate_input=effect.input,
                delegate_correlation_id=effect.correlation,
            )


def question(question_id: str, about: Awaited, lane: Lane, state: State) -> Status:
    """The question by which a run waits for something."""
    config: dict[str, Any] = cast("Perform | Delegate | Ask", lane.effect).node.config
    restriction: AnsweredBy = OTHERS if config.get("answered_by") == OTHERS else ""
    match about.awaits:
        case "interrupt":
            asked = Question(_words(config), schema=about.fits)
        case "signal":
            asked = Question(f"The workflow waits for the signal {about.signal_name!r}.")
        case _:
            asked = Question(f"The workflow waits for the result of {about.node_id!r} ({about.node_type}).")
    schema = asked.part()
    message = Message(
        question_id,
        state.context_id,
        state.task_id,
        Role.AGENT,
        (Part(text=asked.text), *([] if schema is None else [schema])),
        {**question_metadata(question_id, restriction), FLOW_KEY: to_builtins(about)},
    )
    return Status(TaskState.INPUT_REQUIRED, message)


def relayed(status: Status, lane: Lane, execution_id: str) -> Status:
    """Return the question of a child with the node that it works for; that of a run has more already."""
    message, effect = cast("Message", status.message), cast("Delegate", lane.effect)
    if FLOW_KEY in (message.metadata or {}):
        return status
    about = to_builtins(
        Awaited(
            "agent",
            effect.node.id,
            execution_id,
            agent_id=effect.node.config["agent_id"],
            delegate_correlation_id=effect.correlation,
        )
    )
    return replace(status, message=replace(message, metadata={**(message.metadata or {}), FLOW_KEY: about}))


def _words(config: dict[str, Any]) -> str:
    return str(config.get("prompt") or config.get("prompt_ref") or "")


def answered(lane: Lane, said: Message) -> Any:
    """The outcome that an answer gives a lane.

    Raises:
        NodeFailed: who was asked has declined.
    """
    effect, reply = cast("Perform | Delegate | Ask", lane.effect), read_reply(said)
    output = read_output(said, effect.node.config.get("resume_schema"))
    if isinstance(output, Rejection):
        raise NodeFailed("resume_not_allowed", output.text or "it was rejected", effect.node.id)
    if isinstance(effect, Ask):
        return output
    if reply is None:
        return Done(ok=True, output=output, by_host=True)
    return Done(
        ok=reply.ok,
        output=output if reply.ok else {},
        error=reply.error,
        code=reply.code,
        external_task=reply.external_task,
        by_host=True,
    )


def answer_part(schema: dict[str, Any] | None, payload: dict[str, Any]) -> Part:
    """Return the answer that the payload of a resume stands for, to an agent's question with this schema."""
    name, value = next(iter(payload.items())) if len(payload) == 1 else ("", None)
    if schema is None:
        return Part(text=value) if name == "text" and isinstance(value, str) else Part(data=payload)
    return Part(data=value) if name == "value" and not _fits(schema, payload) else Part(data=payload)


def _fits(schema: dict[str, Any], payload: dict[str, Any]) -> bool:
    try:
        return mismatch(read_schema(schema), payload) is None
    except Misuse:
        # The agent itself has to check answers to such a schema.
        return True


def read_output(said: Message, schema: dict[str, Any] | None) -> dict[str, Any] | Rejection:
    """Return the output that an answer gives the node which asked.

    A caller over A2A or a person in the inbox may also reject.
    """
    if read_reply(said) is None:
        found = read_answer(Question("", schema=schema), said)
        if isinstance(found, Rejection):
            return found
        if isinstance(found, dict):
            return cast("dict[str, Any]", found)
    return given_to(said)
