"""The way through each type of node: its rows in their order, and what it needs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import msgspec

from trunkline.flow.definition.document import LONGEST_MS, Node
from trunkline.flow.definition.duration import duration_ms
from trunkline.flow.definition.programs import mapped_program
from trunkline.flow.engine.effects import (
    Ask,
    CheckState,
    Delegate,
    Done,
    Evaluate,
    Nest,
    Perform,
    RecordRows,
    Sleep,
    Span,
)
from trunkline.flow.engine.walk import Fork, NodeFailed, Steps, Walk, spanned
from trunkline.wire.types import Metadata

PROMPT_LIMIT = 200
# After so many nodes without a wait, which take less than a millisecond, others have their turn.
_TURN = 16
# Limit of the values that the filters of one node return, together and as JSON.
VALUES_LIMIT = 16 << 20
_WAY = Callable[[Walk, Node, "Span | None"], Steps]


def way(walk: Walk) -> Steps:
    """Yield what a whole run needs: its input must fit the schema first."""
    yield from walk.check_state("the input of the run")
    return (yield from chain(walk, walk.definition.first, None, None))


def chain(walk: Walk, at: str | None, until: str | None, span: Span | None) -> Steps:
    """The way from a node to another, or to the end."""
    while at is not None and at != until:
        node = walk.definition.nodes.get(at)
        if node is None:
            raise NodeFailed("orchestration_error", f"there is no node {at!r}")
        walk.nodes += 1
        walk.unpaused += 1
        if not walk.unpaused % _TURN or walk.is_heavy:
            yield RecordRows()
        walk.command("ScheduleNode", at)
        walk.event("NodeScheduled", at)
        at = yield from WAYS[node.type](walk, node, span)
    return None


def _after(walk: Walk, node: Node) -> str:
    following = walk.definition.next.get(node.id)
    if following is None:
        raise NodeFailed("orchestration_error", f"no edge leads on from {node.id!r}")
    return following


def _complete(
    walk: Walk, node: Node, output: dict[str, Any], *, told: bool = False, overwrites: bool = False
) -> Generator[CheckState, Any, None]:
    """Complete a node; `told` if a row before it holds its output."""
    walk.command("CompleteNode", node.id, **({} if told else {"output": output}))
    yield from walk.change(node.id, output, overwrites=overwrites)


def _start(walk: Walk, node: Node, span: Span | None) -> Steps:
    yield from _complete(walk, node, {})
    if span is not None or walk.resumed:
        walk.checkpoint(node.id, span)
    return _after(walk, node)


def _end(walk: Walk, node: Node, span: Span | None) -> Steps:
    if span is not None:
        raise NodeFailed("orchestration_error", f"the end {node.id!r} stands inside a parallel branch")
    walk.command("CompleteNode", node.id, output={})
    program = str(node.config.get("output_mapping", "")).strip() or "."
    if program == ".":
        walk.complete(walk.state, whole=True)
        return None
    try:
        result = yield Evaluate(program, walk.state)
    except ValueError as error:
        prefix = f"output_mapping of {node.id!r} failed: "
        raise NodeFailed("output_mapping_jq_failed", str(error), node.id, prefix=prefix) from error
    walk.complete(result, whole=False)
    return None


def _activity(walk: Walk, node: Node, span: Span | None) -> Steps:
    visit, attempt = walk.visit(node.id), 1
    while True:
        limit = {} if node.timeout_ms is None else {"timeoutMs": node.timeout_ms}
        walk.event(
            "ActivityRequested", node.id, nodeType=node.type, attempt=attempt, **limit, **spanned(span)
        )
        done = cast("Done", (yield Perform(node, visit, attempt, walk.state, span)))
        if done.by_host:
            walk.hear()
        if done.ok:
            break
        yield from _failed(walk, node, done, attempt, "activity_failed")
        attempt += 1
    host = {"nodeType": node.type, **spanned(span)} if done.by_host else {}
    walk.event("ActivityCompleted", node.id, result=done.output, **host)
    yield from _complete(walk, node, done.output, told=True)
    if span is not None or done.by_host or walk.resumed:
        walk.checkpoint(node.id, span)
    return _after(walk, node)


def _failed(
    walk: Walk, node: Node, done: Done, attempt: int, reason: str, *, counted: bool = True
) -> Generator[Sleep, Any, None]:
    """Record that an attempt has failed, and wait for the next.

    Raises:
        NodeFailed: there is none.
    """
    told: Metadata = {"error": done.error}
    again = node.retry is not None and node.retry.again(attempt, done.code)
    if counted or again:
        told["attempt"] = attempt
    if done.code:
        told["code"] = done.code
    if done.by_host:
        told["_host"] = True
    if node.retry is None or not again:
        walk.event("ActivityFailed", node.id, **told)
        raise NodeFailed(reason, done.error, node.id, done.code)
    length_ms = node.retry.backoff_ms(attempt)
    due = walk.clock() + length_ms
    stands = walk.event("ActivityFailed", node.id, **told, willRetry=True, _due=due)
    yield Sleep(node, stands.get("_due", due), length_ms, fires=False)


def _delegate(walk: Walk, node: Node, span: Span | None) -> Steps:
    given = yield from _mapped(walk, node, "delegate_failed")
    correlation = f"{walk.execution_id}:delegate:{node.id}"
    visit, attempt = walk.visit(node.id), 1
    asked: Metadata = {
        "nodeType": node.type,
        "agentId": node.config["agent_id"],
        "protocol": node.config["protocol"],
        "delegateCorrelationId": correlation,
        "delegateInput": given,
        **spanned(span),
    }
    while True:
        until = 0 if node.timeout_ms is None else walk.clock() + min(node.timeout_ms, LONGEST_MS)
        limit = {} if node.timeout_ms is None else {"timeoutMs": node.timeout_ms, "_until": until}
        again = {"attempt": attempt} if attempt > 1 else {}
        until = walk.event("ActivityRequested", node.id, **asked, **limit, **again).get("_until", until)
        wanted = Delegate(
            node, visit, attempt, walk.state, given, correlation, until, span, walk.call()
        )  # fmt: skip
        done = cast("Done", (yield wanted))
        if done.by_host:
            walk.hear()
        if done.ok:
            break
        yield from _failed(walk, node, done, attempt, "delegate_failed", counted=done.by_host)
        attempt += 1
    host = {"nodeType": node.type, **spanned(span)} if done.by_host else {}
    outside = {"externalTaskId": done.external_task} if done.external_task else {}
    walk.event(
        "ActivityCompleted",
        node.id,
        result=done.output,
        **host,
        delegateCorrelationId=correlation,
        **outside,
    )
    yield from _complete(walk, node, done.output, told=True)
    walk.checkpoint(node.id, span)
    return _after(walk, node)


def _mapped(walk: Walk, node: Node, reason: str) -> Generator[Evaluate, Any, dict[str, Any]]:
    """The input that a node maps from the state.

    Raises:
        NodeFailed: a filter of it failed.
    """
    mapped: dict[str, Any] = {}
    left = VALUES_LIMIT
    for name, given in cast("Mapping[str, Any]", node.config["input_mapping"]).items():
        program = mapped_program(given)
        if program is None:
            mapped[name] = given["literal"] if _is_only(given, "literal") else given
            continue
        try:
            if not program.strip():
                raise ValueError("the filter is blank")
            mapped[name] = yield Evaluate(program, walk.state)
            left = _weighed(walk, mapped[name], left)
        except ValueError as error:
            raise NodeFailed(reason, f"input_mapping {name!r}: {error}", node.id) from error
    return mapped


def _weighed(walk: Walk, value: object, left: int) -> int:
    """Count the bytes of a filter's value; return how many the other values of its node may have.

    Raises:
        ValueError: the values of the node have more bytes than the limit.
    """
    size = len(msgspec.json.encode(value))
    if size > left:
        raise ValueError(f"the filters of one node return at most {VALUES_LIMIT >> 20} MiB together")
    walk.unrecorded += size
    return left - size


def _is_only(given: object, name: str) -> bool:
    return isinstance(given, dict) and given.keys() == {name}


def _switch(walk: Walk, node: Node, span: Span | None) -> Steps:
    target = node.config.get("default")
    for case in node.config["cases"]:
        try:
            value = yield Evaluate(case["when"], walk.state)
        except ValueError as error:
            raise NodeFailed("switch_routing_failed", str(error), node.id) from error
        if value is not None and value is not False:
            target = case["target"]
            break
    if target is None:
        raise NodeFailed(
            "switch_routing_failed", f"no case of {node.id!r} fits, and it has no default", node.id
        )
    if target not in walk.definition.nodes:
        raise NodeFailed(
            "switch_routing_failed", f"{node.id!r} leads to {target!r}, which is no node", node.id
        )
    yield from _complete(walk, node, {})
    walk.checkpoint(node.id, span)
    return target


def _set_state(walk: Walk, node: Node, span: Span | None) -> Steps:
    before, output = walk.state, dict[str, Any]()
    left = VALUES_LIMIT
    for name, given in node.config["assignments"].items():
        if "literal" in given:
            output[name] = given["literal"]
            continue
        try:
            output[name] = yield Evaluate(given["jq"], before)
            left = _weighed(walk, output[name], left)
        except ValueError as error:
            raise NodeFailed("set_state_failed", f"{name!r}: {error}", node.id) from error
    yield from _complete(walk, node, output)
    walk.checkpoint(node.id, span)
    return _after(walk, node)


def _wait(walk: Walk, node: Node, span: Span | None) -> Steps:
    kind = node.config["kind"]
    if kind == "signal":
        return (yield from _signal(walk, node, span))
    moment: Metadata
    length_ms = None
    if kind == "duration":
        wait_ms = _duration_ms(node)
        length_ms = min(wait_ms, LONGEST_MS)
        moment, due = {"wait_ms": wait_ms}, walk.clock() + length_ms
    else:
        moment, due = {"until": node.config["until"]}, _moment(node)
    # The moment that was recorded counts, whenever the walk comes by again.
    due = walk.command("StartTimer", node.id, kind=kind, **moment, _due=due).get("_due", due)
    walk.event("TimerStarted", node.id, kind=kind)
    yield Sleep(node, due, length_ms, fires=True)
    walk.event("TimerFired", node.id, kind=kind)
    yield from _complete(walk, node, {})
    walk.checkpoint(node.id, span)
    return _after(walk, node)


def _duration_ms(node: Node) -> int:
    if "duration_ms" in node.config:
        return int(node.config["duration_ms"])
    found = duration_ms(node.config["duration"])
    if found is None:
        raise NodeFailed("wait_failed", f"{node.config['duration']!r} is no duration", node.id)
    return found


def _moment(node: Node) -> int:
    given = str(node.config["until"])
    try:
        moment = datetime.fromisoformat(given)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise NodeFailed("wait_failed", f"{given!r} is no date", node.id) from error


def _signal(walk: Walk, node: Node, span: Span | None) -> Steps:
    name = node.config["signal"]
    walk.command("StartSignalWait", node.id, signalName=name)
    walk.event("SignalWaitStarted", node.id, signalName=name)
    payload = yield Ask(node, walk.visit(node.id), "signal", span)
    walk.hear()
    walk.command("DeliverSignal", node.id, signalName=name, payload=payload)
    walk.event("SignalReceived", node.id, signalName=name)
    yield from _complete(walk, node, payload, told=True)
    walk.checkpoint(node.id, span)
    return _after(walk, node)


def _interrupt(walk: Walk, node: Node, span: Span | None) -> Steps:
    if span is not None:
        raise NodeFailed(
            "interrupt_in_parallel_branch",
            f"INTERRUPT_IN_PARALLEL_BRANCH: {node.id!r} stands inside a parallel branch",
            node.id,
            "INTERRUPT_IN_PARALLEL_BRANCH",
        )
    told = prompt(node)
    walk.command("RaiseInterrupt", node.id, prompt=told)
    walk.event("InterruptRaised", node.id, prompt=told)
    walk.checkpoint(node.id, span)
    payload = yield Ask(node, walk.visit(node.id), "interrupt", span)
    walk.hear(resumed=True)
    walk.command("ResumeInterrupt", node.id, _payload=payload)
    walk.event("InterruptResumed", node.id)
    yield from _complete(walk, node, payload, told=True, overwrites=True)
    walk.checkpoint(node.id, span)
    return _after(walk, node)


def prompt(node: Node) -> str:
    """The words of an interrupt as rows show them."""
    text = str(node.config.get("prompt", ""))
    return text if len(text) <= PROMPT_LIMIT else text[:PROMPT_LIMIT] + "…"


def _parallel(walk: Walk, node: Node, span: Span | None) -> Steps:
    config, target = node.config, _after(walk, node)
    join, branches = config["join"], config["branches"]
    names = [branch["name"] for branch in branches]
    need = {"all": len(names), "any": 1}.get(join) or int(config["n"])
    count = {"n": need} if join == "n_of_m" else {}
    walk.command("StartParallel", node.id, join=join, branchNames=names, **count)
    walk.event("ParallelForked", node.id, join=join, branchNames=names)
    if need > len(names):
        raise NodeFailed(
            "parallel_join_failed", f"{node.id!r} needs {need} of its {len(names)} branches", node.id
        )
    spans: list[Span] = [
        {
            "parallelNodeId": node.id,
            "joinTargetId": target,
            "branchName": branch["name"],
            "branchEntryNodeId": branch["entry"],
        }
        for branch in branches
    ]
    ways = [
        partial(chain, walk, branch["entry"], target, inner)
        for branch, inner in zip(branches, spans, strict=True)
    ]
    yield Fork(node, ways, need)
    walk.command("JoinParallel", node.id, join=join)
    walk.event("ParallelJoined", node.id, join=join)
    if span is None:
        yield from _complete(walk, node, {})
    walk.checkpoint(node.id, span)
    return target


def _subworkflow(walk: Walk, node: Node, span: Span | None) -> Steps:
    given = yield from _mapped(walk, node, "subworkflow_failed")
    visit = walk.visit(node.id)
    # In a loop each run of the child is one of its own.
    child = f"{walk.execution_id}:sub:{node.id}" + (f":{visit}" if visit > 1 else "")
    told: Metadata = {"workflowRef": node.config["workflow_ref"]}
    walk.command("StartSubworkflow", node.id, **told, childExecutionId=child)
    both = {**told, "parentExecutionId": walk.execution_id, "childExecutionId": child}
    walk.event("SubworkflowStarted", node.id, **both)
    done = cast("Done", (yield Nest(node, child, given, walk.call())))
    if not done.ok:
        code = {"_code": done.code} if done.code else {}
        walk.event("SubworkflowCompleted", node.id, **both, failed=True, error=done.error, **code)
        raise NodeFailed("subworkflow_failed", done.error, node.id, done.code)
    result = {} if done.result == done.output else {"childResult": done.result}
    walk.event("SubworkflowCompleted", node.id, **both, childFinalState=done.output, **result)
    walk.command("CompleteSubworkflow", node.id, **told, childExecutionId=child)
    yield from _complete(walk, node, done.output, told=True)
    walk.checkpoint(node.id, span)
    return _after(walk, node)


WAYS: dict[str, _WAY] = {
    "start": _start,
    "end": _end,
    "step": _activity,
    "llm_call": _activity,
    "tool_call": _activity,
    "agent_delegate": _delegate,
    "switch": _switch,
    "set_state": _set_state,
    "wait": _wait,
    "interrupt": _interrupt,
    "parallel": _parallel,
    "subworkflow": _subworkflow,
}
