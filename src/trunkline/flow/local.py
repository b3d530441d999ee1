"""Workflows without a server: an engine with a store and a runner of its own, for programs and tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Unpack

import msgspec

from trunkline.clock import Ids
from trunkline.errors import FlowRefused, Misuse
from trunkline.flow.assembly import FlowEngine, NodeExecutors
from trunkline.flow.definition.signing import SignaturePolicy
from trunkline.flow.engine.run_messages import Mode
from trunkline.flow.engine.view import ShownRow
from trunkline.flow.forms import ActivitySubmission
from trunkline.flow.port import FlowCaller, FlowPort
from trunkline.flow.results import RunResult, RunStatus
from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher
from trunkline.run.node import HostedAgent, Limits
from trunkline.run.runner import Runner
from trunkline.store.url import store_from_url
from trunkline.yaml_reader import read_yaml

# As long as a caller that waits without a limit waits at a time.
_LONG_S = 3600.0
_CALLER = FlowCaller()


def load(path: str | Path) -> dict[str, Any]:
    """The document in a file, JSON or YAML by its name; it is checked when a run of it is started.

    Raises:
        FlowRefused: it is neither.
    """
    file = Path(path)
    text = file.read_bytes()
    try:
        if file.suffix in (".yaml", ".yml"):
            read = read_yaml(text.decode(), file.name)
            found: object = None if read is None else read[0]
        else:
            found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, Misuse) as error:
        raise FlowRefused("VALIDATION_ERROR", f"{file.name}: {error}") from None
    if not isinstance(found, dict):
        raise FlowRefused("VALIDATION_ERROR", f"{file.name} holds no object")
    return found  # pyright: ignore[reportUnknownVariableType]


class RunHandle:
    """A run that was started, by its execution id."""

    def __init__(self, port: FlowPort, execution_id: str) -> None:
        self._port = port
        self.execution_id = execution_id

    async def wait(self, at_most_s: float | None = None) -> RunResult:
        """The run when it rests: when it has ended, or waits for somebody. `running` where that is later."""
        if at_most_s is not None:
            return await self._port.result(_CALLER, self.execution_id, at_most_s)
        while True:
            result = await self._port.result(_CALLER, self.execution_id, _LONG_S)
            if result.status != "running":
                return result

    async def status(self) -> RunStatus:
        """The status of the run."""
        return await self._port.status(_CALLER, self.execution_id)

    async def events(self) -> AsyncIterator[ShownRow]:
        """The rows of the run as they are written, commands too, until it has ended."""
        seen = 0
        while True:
            rows, is_over = await self._port.news(_CALLER, self.execution_id, seen)
            for row in rows:
                yield row
            seen += len(rows)
            if is_over:
                return

    async def resume(self, payload: dict[str, Any], mode: Mode = "in_process") -> RunResult:
        """Answer the interrupt at which the run waits."""
        return await self._port.resume(_CALLER, self.execution_id, payload, mode=mode)

    async def signal(self, name: str, payload: dict[str, Any] | None = None) -> RunResult:
        """Deliver the signal for which the run waits."""
        return await self._port.signal(_CALLER, self.execution_id, name, payload or {})

    async def submit(
        self,
        node_id: str,
        outcome: ActivitySubmission,
        span: dict[str, str] | None = None,
        activity_id: str = "",
    ) -> RunResult:
        """Submit the outcome of the activity for which the run waits."""
        return await self._port.submit_activity(
            _CALLER, self.execution_id, node_id, outcome, span=span, activity_id=activity_id
        )

    async def cancel(self, reason: str = "") -> RunResult:
        """Stop the run."""
        return await self._port.cancel(_CALLER, self.execution_id, reason)


class LocalFlows:
    """The runs of one program: `async with LocalFlows("sqlite:///runs.db") as flows`.

    In a file they outlive the program: when it is opened again, what was left goes on.
    """

    def __init__(
        self,
        store: str = "memory:",
        *,
        carried: Sequence[HostedAgent] = (),
        limits: Limits | None = None,
        egress: Egress | None = None,
        signatures: SignaturePolicy | None = None,
        **executors: Unpack[NodeExecutors],
    ) -> None:
        """Take a store; `egress` says where workflows may be fetched from by their addresses."""
        self.store = store_from_url(store)
        self.engine = FlowEngine(self.store.docs, executors)
        self._fetcher = Fetcher(egress or Egress())
        self.engine.fetch_by(lambda tenant: self._fetcher, signatures or SignaturePolicy())
        self.runner = Runner(self.store, [self.engine.hosted(), *carried], Ids(), limits)
        self.port = self.engine.port(self.runner)
        self._open = AsyncExitStack()

    async def __aenter__(self) -> LocalFlows:
        """Open the store and take up what was left."""
        await self.store.open()
        self._open.push_async_callback(self.store.close)
        self._open.push_async_callback(self._fetcher.close)
        self._open.push_async_callback(self.engine.close)
        await self.runner.start()
        self._open.push_async_callback(self.runner.stop)
        return self

    async def __aexit__(self, *error: object) -> None:
        """Let go of everything; what runs goes on at the next start, where the store is kept."""
        await self._open.aclose()

    async def start(
        self,
        definition: dict[str, Any],
        given: dict[str, Any],
        *,
        execution_id: str = "",
        mode: Mode = "in_process",
    ) -> RunHandle:
        """Start a run.

        Raises:
            FlowRefused: the definition breaks a rule, or there is a run of this id.
        """
        started = await self.port.start(
            _CALLER, definition, given, execution_id=execution_id, mode=mode, wait_s=0.0
        )
        return RunHandle(self.port, started.execution_id)

    def handle(self, execution_id: str) -> RunHandle:
        """A run that was started before."""
        return RunHandle(self.port, execution_id)


async def run(
    definition: dict[str, Any], given: dict[str, Any], **executors: Unpack[NodeExecutors]
) -> RunResult:
    """Run a workflow here and now, and keep nothing of it.

    Raises:
        FlowRefused: the definition breaks a rule.
    """
    async with LocalFlows(**executors) as flows:
        return await (await flows.start(definition, given)).wait()
