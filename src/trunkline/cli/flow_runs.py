"""`trunkline flow run|status|resume|submit|signal|cancel|list|events`: runs of workflows."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, cast

import msgspec
from rich.console import Console

from trunkline.cli.console import one_line, print_field, print_json, print_notice
from trunkline.cli.flow import Written
from trunkline.cli.flow_operations import FlowOperations, opened
from trunkline.cli.flow_tree import LiveTree, drawn, states_of
from trunkline.clock import Ids
from trunkline.errors import FlowRefused, Misuse, StoreInUse
from trunkline.flow.definition.drawing import mermaid

FAILED = 1
_READS = frozenset({"status", "list"})
_LABELS = {
    "execution_id": "Run", "status": "Status", "phase": "Phase", "node_id": "Node", "current_node_id": "Node",
    "signal_name": "Signal", "agent_id": "Agent", "delegate_correlation_id": "Correlation",
    "child_execution_id": "Child", "parent_execution_id": "Parent", "error": "Error", "code": "Code",
    "last_error": "Error", "reason": "Reason", "result": "Result",
}  # fmt: skip


class FlowRuns:
    """The commands on the runs of a store, which print what they find as text or as JSON."""

    def __init__(self, store: str | None, *, manifest: str = "", as_json: bool) -> None:
        self._store = store
        self._manifest = manifest
        self._as_json = as_json

    def run(self, file: str, given: str, execution_id: str, mode: str) -> int:
        """Start a run and print where it comes to rest; gives the exit code."""
        written = Written(file)
        document = cast("dict[str, Any]", written.document)
        execution_id = execution_id or Ids().new()
        order = {
            "definition": document,
            "input": read_object(given, "--input"),
            "execution_id": execution_id,
            "activity_execution_mode": mode,
        }

        async def work(operations: FlowOperations) -> dict[str, Any]:
            starting = asyncio.ensure_future(_rested(operations, order))
            if self._as_json or not sys.stderr.isatty():
                return await starting
            return await LiveTree(operations, written.definition(), execution_id).during(starting)

        return self._tell(self._perform(work, reads=False))

    def call(self, operation: str, given: dict[str, Any]) -> int:
        """Perform an operation and print what it gives; gives the exit code."""

        async def work(operations: FlowOperations) -> dict[str, Any]:
            return await operations.call(operation, given)

        return self._tell(self._perform(work, reads=operation in _READS))

    def list(self, query: dict[str, Any]) -> None:
        """Print runs, the one that moved last first."""

        async def work(operations: FlowOperations) -> dict[str, Any]:
            return await operations.call("list", query)

        found = self._perform(work, reads=True)
        if self._as_json:
            print_json(msgspec.json.encode(found), compact=False)
            return
        for one in found["executions"]:
            told = [one.get(name, "") for name in ("updated_at", "phase", "execution_id", "definition_name")]
            print("  ".join([one_line(word) for word in told]).rstrip())
        if not found["executions"]:
            print("no runs")
        if "next_cursor" in found:
            print_field("Next", f"--cursor '{found['next_cursor']}'")

    def events(self, execution_id: str, from_seq: int, limit: int) -> None:
        """Print rows of a run."""

        async def work(operations: FlowOperations) -> dict[str, Any]:
            return {"events": await _rows(operations, execution_id, from_seq, limit)}

        for row in self._perform(work, reads=True)["events"]:
            if self._as_json:
                print_json(msgspec.json.encode(row), compact=True)
            else:
                payload = {name: one for name, one in row["payload"].items() if name != "executionId"}
                text = one_line(msgspec.json.encode(payload).decode())
                print(f"{row['seq']:>5}  {row['created_at']}  {row['kind']:<7}  {row['name']}  {text}")

    def graph(self, file: str, execution_id: str, form: str) -> None:
        """Draw a run: its definition, each node with how it stands."""
        definition = Written(file).definition()

        async def work(operations: FlowOperations) -> dict[str, Any]:
            return {"events": await _rows(operations, execution_id, 1, None)}

        states = states_of(self._perform(work, reads=True)["events"])
        if self._as_json:
            print_json(msgspec.json.encode(states), compact=False)
        elif form == "mermaid":
            print(mermaid(definition, states), end="")
        else:
            Console(highlight=False, markup=False, color_system=None).print(
                drawn(definition, states), soft_wrap=True
            )

    def _perform(self, work: Any, *, reads: bool) -> dict[str, Any]:
        async def within() -> dict[str, Any]:
            async with opened(self._store, reads=reads, manifest=self._manifest) as operations:
                return await work(operations)

        try:
            return asyncio.run(within())
        except StoreInUse as busy:
            raise StoreInUse(f"{busy}; or ask again once the server that has it is up") from None
        except FlowRefused as refused:
            run = refused.details.get("execution_id")
            if run is None:
                raise Misuse(f"{refused.message} [{refused.code}]") from None
            # A run of a server that failed.
            return {
                "execution_id": run,
                "status": "failed",
                "error": refused.message,
                "code": refused.code,
            }

    def _tell(self, found: dict[str, Any]) -> int:
        if self._as_json:
            print_json(msgspec.json.encode(found), compact=False)
        else:
            for name, label in _LABELS.items():
                if name in found:
                    value = found[name]
                    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
                    print_field(label, one_line(text))
            hint = _hint(found)
            if hint:
                print_notice("Next", hint)
        return FAILED if found.get("status") == "failed" else 0


async def _rested(operations: FlowOperations, order: dict[str, Any]) -> dict[str, Any]:
    """A run that is started, once it rests, however long that takes."""
    found = await operations.call("start", order)
    while found["status"] == "running":
        found = await operations.call("start", {**order, "allow_existing_execution_id": True})
    return found


async def _rows(
    operations: FlowOperations, execution_id: str, from_seq: int, limit: int | None
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while limit is None or len(found) < limit:
        wanted = 1000 if limit is None else min(limit - len(found), 1000)
        page = await operations.events(execution_id, from_seq, wanted)
        found += page["events"]
        if "next_cursor" not in page:
            break
        from_seq = int(page["next_cursor"])
    return found


def _hint(found: dict[str, Any]) -> str:
    """The command that makes a run go on."""
    run = found.get("execution_id", "")
    match found.get("status") or found.get("phase"):
        case "interrupted":
            return f"trunkline flow resume {run} --payload '{{…}}'"
        case "awaiting_signal":
            return f"trunkline flow signal {run} {found.get('signal_name', 'NAME')}"
        case "awaiting_activity":
            node = found.get("node_id") or found.get("current_node_id") or "NODE"
            return f"trunkline flow submit {run} {node} --result '{{…}}'"
        case "running":
            return f"trunkline flow status {run}"
        case _:
            return ""


def read_object(text: str, flag: str) -> dict[str, Any]:
    """An object in JSON, or in the file behind an @.

    Raises:
        Misuse: it is none.
    """
    try:
        source = Path(text[1:]).read_text("utf-8") if text.startswith("@") else text
        found = msgspec.json.decode(source)
    except (OSError, ValueError, RecursionError) as error:
        raise Misuse(f"{flag} is an object in JSON, or @FILE: {error}") from None
    if not isinstance(found, dict):
        raise Misuse(f'{flag} is an object in JSON, such as {{"topic": "tea"}}')
    return cast("dict[str, Any]", found)
