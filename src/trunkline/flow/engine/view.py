"""A run as its rows tell it: every row as it is shown, the state, where the run stands. Pure.

Stored rows leave out what follows from others: what a node gave stands once, a state is folded from the
outputs, a checkpoint holds no copy of either. Cancels, and ends that the spine gave, are rows too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from msgspec import Struct, to_builtins

from trunkline.flow.definition.document import Definition
from trunkline.flow.engine.rows import ASKED, is_command, node_of, shown
from trunkline.flow.engine.run_messages import asked_in, awaited_by
from trunkline.flow.state import next_state
from trunkline.log.events import AnyEvent, CancelRequested, FlowRow, FlowRows, Recorded, Status
from trunkline.log.fold import LIMITS
from trunkline.wire.types import Message, Metadata, TaskState

# The code of a run that has said more than a task may hold.
RUN_TOO_LARGE = "RUN_TOO_LARGE"


class ShownRow(Struct, frozen=True):
    """A row as its readers see it; `seq` counts the rows of the run, `at` is in milliseconds."""

    seq: int
    at: int
    name: str
    payload: Metadata

    @property
    def kind(self) -> str:
        """Whether it is a command or an event."""
        return "command" if is_command(self.name) else "event"


class RunView:
    """A run folded from the events of its log, in their order."""

    def __init__(self, execution_id: str, definition: Definition, given: dict[str, Any]) -> None:
        self.execution_id = execution_id
        self.definition = definition
        self.state: dict[str, Any] = dict(given)
        # How many rows there are, when the last was written, and up to which seq the log was read.
        self.count = self.updated_at = self.seq = 0
        self.node: str | None = None
        # The newest rows of these names: ends, delegations, nested runs.
        self.ended: FlowRow | None = None
        self.failure: FlowRow | None = None
        self.delegated: Metadata | None = None
        self.nested: Metadata | None = None
        self.started: Metadata | None = None
        self._outputs: dict[str | None, Any] = {}
        self._last: tuple[str | None, Any, bool] = (None, {}, False)
        self._answered: str | None = None
        self._reason = ""

    def read(self, records: Iterable[Recorded]) -> list[ShownRow]:
        """Take in what the log holds beyond what was read; gives the rows of it."""
        found: list[ShownRow] = []
        for recorded in records:
            if recorded.seq <= self.seq:
                continue
            self.seq = recorded.seq
            for row in self._rows(recorded.event):
                self.count += 1
                self.updated_at = recorded.at
                told = self._take(row)
                payload = {"executionId": self.execution_id, **(shown(row.payload) if told is None else told)}
                found.append(ShownRow(self.count, recorded.at, row.name, payload))
        return found

    def fold(self, records: Iterable[Recorded]) -> None:
        """Take in what the log holds beyond what was read, where only the run as it stands is wanted."""
        for recorded in records:
            if recorded.seq > self.seq:
                self.seq = recorded.seq
                for row in self._rows(recorded.event):
                    self.count += 1
                    self.updated_at = recorded.at
                    self._take(row)

    def _rows(self, event: AnyEvent) -> Iterable[FlowRow]:
        match event:
            case FlowRows(rows=rows):
                return rows
            case CancelRequested(reason=reason):
                self._reason = reason
            case Status(state=TaskState.INPUT_REQUIRED | TaskState.AUTH_REQUIRED, message=Message() as said):
                return self._asked(said)
            case Status(state=TaskState.CANCELED) if self.ended is None:
                told: Metadata = {} if self.node is None else {"nodeId": self.node}
                told.update({"reason": self._reason} if self._reason else {})
                return (FlowRow("CancelExecution", told), FlowRow("ExecutionCancelled", told))
            case Status(state=TaskState.FAILED, message=said) if self.ended is None:
                text = said.text if said is not None else ""
                code = {"code": RUN_TOO_LARGE} if LIMITS in text else {}
                return (FlowRow("ExecutionFailed", {"error": text, **code}),)
            case _:
                pass
        return ()

    def _asked(self, said: Message) -> Iterable[FlowRow]:
        """The row of a question that an agent asks to which this run has delegated."""
        about = awaited_by(said)
        if about.awaits != "agent" or about.execution_id != self.execution_id:
            return ()
        told: Metadata = {
            "nodeId": about.node_id,
            "agentId": about.agent_id,
            "delegateCorrelationId": about.delegate_correlation_id,
            "question": to_builtins(asked_in(said)),
        }
        return (FlowRow(ASKED, {name: value for name, value in told.items() if value}),)

    def _take(self, row: FlowRow) -> Metadata | None:
        """Take in a row; gives what is shown of it where that is more than what stands there."""
        node = row.payload.get("nodeId")
        if node is not None:
            self.node = node
        taken = self._taken.get(row.name)
        return None if taken is None else taken(self, row)

    def _begun(self, row: FlowRow) -> None:
        self.started = row.payload

    def _requested(self, row: FlowRow) -> None:
        if "delegateCorrelationId" in row.payload:
            self.delegated = row.payload

    def _given(self, row: FlowRow) -> None:
        self._outputs[node_of(row)] = row.payload.get("result", {})
        self._requested(row)

    def _resumed(self, row: FlowRow) -> None:
        node = node_of(row)
        self._outputs[node], self._answered = row.payload.get("_payload", {}), node

    def _delivered(self, row: FlowRow) -> None:
        self._outputs[node_of(row)] = row.payload.get("payload", {})

    def _received(self, row: FlowRow) -> Metadata:
        return {"payload": self._outputs.get(node_of(row), {}), **row.payload}

    def _nesting(self, row: FlowRow) -> None:
        self.nested = row.payload

    def _failing(self, row: FlowRow) -> None:
        self.failure = row

    def _ending(self, row: FlowRow) -> None:
        self.ended = row

    def _finished(self, row: FlowRow) -> Metadata:
        payload = {"result": row.payload.get("result", self.state), **row.payload}
        self.ended = FlowRow(row.name, payload)
        return payload

    def _completed(self, row: FlowRow) -> Metadata:
        node = node_of(row)
        kept = self._outputs.pop(node, {})
        output = row.payload.get("output", kept)
        self._last = (node, output, node == self._answered)
        self._answered = None
        return {**row.payload, "output": output}

    def _updated(self, row: FlowRow) -> Metadata:
        payload = row.payload
        node, output, overwrites = self._last
        if "state" in payload:
            self.state = payload["state"]
        elif node == payload.get("nodeId") and output:
            self.state = next_state(self.state, output, self.definition.reducers, overwrites=overwrites)
        return {**payload, "state": self.state}

    def _nested(self, row: FlowRow) -> Metadata:
        payload = self.nested = row.payload
        if payload.get("failed"):
            return shown(payload)
        output = payload.get("mergedOutput", payload.get("childFinalState", {}))
        self._outputs[payload.get("nodeId")] = output
        result = payload.get("childResult", output)
        return {**payload, "childResult": result, "mergedOutput": output}

    def _checkpoint(self, row: FlowRow) -> Metadata:
        payload = row.payload
        if "stateRef" in payload:
            return payload
        policy = self.definition.checkpoint
        every = {"intervalNodes": policy.n} if policy.strategy == "every_n_nodes" else {}
        return {
            "policy": policy.strategy,
            **every,
            "workflowVersion": self.definition.version,
            "definitionHash": self.definition.hash,
            "lastAppliedEventSeq": self.count - 1,
            **payload,
            "stateRef": {"kind": "inline_state", "state": self.state},
        }

    # The rows that change how a run stands, or that show more than what is stored of them.
    _taken: ClassVar[dict[str, Callable[[RunView, FlowRow], Metadata | None]]] = {
        "ExecutionStarted": _begun,
        "ActivityRequested": _requested,
        "ActivityCompleted": _given,
        "ResumeInterrupt": _resumed,
        "DeliverSignal": _delivered,
        "SignalReceived": _received,
        "SubworkflowStarted": _nesting,
        "SubworkflowCompleted": _nested,
        "CompleteNode": _completed,
        "StateUpdated": _updated,
        "CheckpointWritten": _checkpoint,
        "FailNode": _failing,
        "ExecutionCompleted": _finished,
        "ExecutionFailed": _ending,
        "ExecutionCancelled": _ending,
    }
