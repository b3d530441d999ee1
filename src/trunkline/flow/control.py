"""The seven operations on runs for the surfaces: what a caller says goes in, what it is shown comes out.

Both are objects in snake_case. A refusal is raised; a run that failed is a result like others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from trunkline.errors import FlowRefused
from trunkline.flow.definition.signing import SignaturePolicy
from trunkline.flow.definitions import beside
from trunkline.flow.forms import (
    ActivitySubmission,
    CancelForm,
    ListForm,
    ResumeForm,
    SignalForm,
    StartForm,
    StatusForm,
    SubmitForm,
    check_size,
    read_form,
)
from trunkline.flow.listing import RunListQuery
from trunkline.flow.port import FlowCaller, FlowPort
from trunkline.flow.results import RunPage, RunResult, RunStatus

_SPAN = {
    "parallelNodeId": "parallel_node_id",
    "joinTargetId": "join_target_id",
    "branchName": "branch_name",
    "branchEntryNodeId": "branch_entry_node_id",
}


class Control:
    """The operations of one caller."""

    def __init__(self, port: FlowPort, caller: FlowCaller, signatures: SignaturePolicy) -> None:
        self._port = port
        self._caller = caller
        self._signatures = signatures
        self._operations: dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]] = {
            "start": self._start,
            "status": self._status,
            "resume": self._resume,
            "submit_activity": self._submit,
            "signal": self._signal,
            "cancel": self._cancel,
            "list": self._list,
        }

    async def call(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        """Perform an operation by its name; gives its answer.

        Raises:
            FlowRefused: it cannot be done; nothing has changed.
        """
        return await self._operations[operation](given)

    async def start(self, form: StartForm, definition: object) -> dict[str, Any]:
        """Start a run of a definition.

        Raises:
            FlowRefused: it cannot be started.
        """
        check_size("input", form.input)
        found = await self._port.start(
            self._caller,
            definition,
            form.input,
            execution_id=form.execution_id or "",
            mode=form.activity_execution_mode,
            allow_existing=form.allow_existing_execution_id,
        )
        return shown_run(found)

    async def _start(self, given: dict[str, Any]) -> dict[str, Any]:
        form = read_form(given, StartForm)
        if form.definition is None:
            raise _missing("definition")
        await self.check(form.definition)
        return await self.start(form, form.definition)

    async def check(self, document: dict[str, Any]) -> None:
        """Let a definition pass that is not too large and signed as it must be.

        Raises:
            FlowRefused: it is not.
        """
        size = check_size("definition", document)
        await beside(size, self._signatures.check, document)

    async def _status(self, given: dict[str, Any]) -> dict[str, Any]:
        form = read_form(given, StatusForm)
        return shown_status(await self._port.status(self._caller, form.execution_id))

    async def _resume(self, given: dict[str, Any]) -> dict[str, Any]:
        form = read_form(given, ResumeForm)
        check_size("resume_payload", form.resume_payload)
        if form.definition is not None:
            await self.check(form.definition)
            # Here what is wrong with it is told as it is at the start.
            await self._port.definitions.load(form.definition)
        found = await self._port.resume(
            self._caller,
            form.execution_id,
            form.resume_payload,
            definition=form.definition,
            mode=form.activity_execution_mode,
        )
        return shown_run(found)

    async def _submit(self, given: dict[str, Any]) -> dict[str, Any]:
        form = read_form(given, SubmitForm)
        told, span = form.outcome, form.parallel_span
        if not told.ok and not told.error:
            raise _missing("outcome.error")
        found = await self._port.submit_activity(
            self._caller,
            form.execution_id,
            form.node_id,
            ActivitySubmission(
                ok=told.ok,
                result=told.result,
                error=told.error,
                code=told.code,
                delegate_correlation_id=told.delegate_correlation_id,
                external_task_id=told.external_task_id,
            ),
            activity_id=form.activity_id or "",
            definition=form.definition,
            given=form.input,
            span=None if span is None else {camel: getattr(span, snake) for camel, snake in _SPAN.items()},
            mode=form.activity_execution_mode,
        )
        return shown_run(found)

    async def _signal(self, given: dict[str, Any]) -> dict[str, Any]:
        form = read_form(given, SignalForm)
        found = await self._port.signal(
            self._caller,
            form.execution_id,
            form.signal_name,
            form.payload,
            definition=form.definition,
            given=form.input,
            mode=form.activity_execution_mode,
        )
        return shown_run(found)

    async def _cancel(self, given: dict[str, Any]) -> dict[str, Any]:
        form = read_form(given, CancelForm, "CANCEL_VALIDATION_ERROR")
        return shown_run(await self._port.cancel(self._caller, form.execution_id, form.reason or ""))

    async def _list(self, given: dict[str, Any]) -> dict[str, Any]:
        form = read_form(given, ListForm, strict=False)
        query = RunListQuery(
            phase=form.phase or "",
            definition_name=form.definition_name or "",
            updated_after=form.updated_after or "",
            updated_before=form.updated_before or "",
            limit=form.limit,
            cursor=form.cursor or "",
        )
        return shown_page(await self._port.list(self._caller, query))


def _missing(field: str) -> FlowRefused:
    issue = {"path": field, "message": "it is missing"}
    return FlowRefused("VALIDATION_ERROR", f"{field} is missing", {"issues": [issue]})


def shown_run(found: RunResult) -> dict[str, Any]:
    """A run as callers are shown it."""
    return _on_wire(found)


def shown_status(found: RunStatus) -> dict[str, Any]:
    """The status of a run with the member names of the wire."""
    return _on_wire(found)


def _on_wire(found: RunResult | RunStatus) -> dict[str, Any]:
    members = msgspec.to_builtins(found)
    if found.parallel_span is not None:
        members["parallel_span"] = {_SPAN[name]: value for name, value in found.parallel_span.items()}
    return members


def shown_page(found: RunPage) -> dict[str, Any]:
    """A page of runs as callers are shown it."""
    return msgspec.to_builtins(found)
