"""Delegates work over the task API of workflow engines: submits a task, then polls it until it ends.

`A2ATransport` is the seam for vendors whose API has another shape: it replaces HTTP wholly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, cast
from urllib.parse import quote

import msgspec
from msgspec import Struct

from trunkline.auth.references import KeyReference, Secrets
from trunkline.client.http_transport import JSON, HttpAnswer, answered
from trunkline.client.transport import Call
from trunkline.config import Secret
from trunkline.errors import CallFailed, Unreachable
from trunkline.flow.activities.base import DelegateOrder, Outcome, failed
from trunkline.flow.delegates.mock import agent_id_of, unsupported
from trunkline.net.http import HttpClient, HttpRequest
from trunkline.net.redacted import RedactingHttpClient
from trunkline.wire.delegate import Submission

STATUSES = frozenset({"submitted", "working", "input-required", "completed", "failed"})
_EXCERPT = 500
_POLL_MS, _TIMEOUT_MS = 500, 120_000
# Of one exchange; how long the whole takes is the operator's word.
_REQUEST_S = 60.0
# Failures of an exchange that leave the task as it is.
PASSING = (Unreachable, ConnectionError, TimeoutError)
_PASSING_STATUS = frozenset({408, 429, 500, 502, 503, 504})
_encode = msgspec.json.Encoder().encode


class TaskRecord(Struct, frozen=True):
    """A task as the other side tells of it."""

    id: str
    status: str
    output: Any = None
    error: str = ""


class A2ATransport(Protocol):
    """Submits and reads tasks.

    `Unreachable`, `ConnectionError` and `TimeoutError` pass: the same call is repeated until the delegation
    times out. Any other error ends the delegation as a provider's error.
    """

    async def submit_task(
        self, *, api_key: str, agent_id: str, correlation_id: str, input: dict[str, Any]
    ) -> TaskRecord:
        """Submit a task; a correlation id that is sent again is the same task."""
        ...

    async def get_task(self, api_key: str, task_id: str) -> TaskRecord:
        """A task as it stands."""
        ...


class TasksConfig(Struct, frozen=True):
    """What an operator says of the task API: never a part of a workflow."""

    url: str = ""
    key: KeyReference = KeyReference()
    poll_ms: float = _POLL_MS
    timeout_ms: float = _TIMEOUT_MS


class TasksDelegate:
    """Executes delegations of the protocol `a2a` over the task API.

    Each attempt is one task. Its ID is recorded before the first poll; a restarted run polls the same task.

    Args:
        config: the address and the key; None if the transport has its own.
    """

    def __init__(self, config: TasksConfig | None, transport: A2ATransport, secrets: Secrets) -> None:
        self._config = config
        self._transport = transport
        self._secrets = secrets
        times = config or TasksConfig()
        self._poll_s = (times.poll_ms if times.poll_ms > 0 else _POLL_MS) / 1000
        self._timeout_ms = times.timeout_ms if times.timeout_ms > 0 else _TIMEOUT_MS

    async def delegate(self, order: DelegateOrder) -> Outcome:
        """See `DelegateExecutor`."""
        refusal, key = self._refusal(order)
        if refusal is not None:
            return refusal
        order.note_remote()
        deadline = asyncio.get_running_loop().time() + self._timeout_ms / 1000
        try:
            task = await self._submit(order, key.reveal(), deadline)
            task = await self._poll(task, key.reveal(), deadline)
        except Exception as error:  # noqa: BLE001 - a vendor's transport may raise whatever it likes
            return failed("A2A_PROVIDER_ERROR", str(error)[:1000] or type(error).__name__)
        return _outcome(task, order, self._timeout_ms)

    def _refusal(self, order: DelegateOrder) -> tuple[Outcome | None, Secret]:
        none = Secret("")
        if order.protocol != "a2a":
            return unsupported(order), none
        key = none if self._config is None else self._key(self._config)
        if isinstance(key, Outcome):
            return key, none
        if not agent_id_of(order):
            return failed("A2A_CONFIG_INVALID", f"{order.node.id}: agent_id is missing"), none
        return None, key

    def _key(self, config: TasksConfig) -> Secret | Outcome:
        """Return the key of the task API, or the outcome if the configuration is not complete."""
        reference = config.key
        if not config.url.strip():
            return failed("A2A_CONFIG_INVALID", "the configuration has no baseUrl for delegations")
        if reference.env and reference.ref:
            text = "the configuration has both apiKeyEnv and apiKeySecretRef; give one"
            return failed("A2A_CONFIG_INVALID", text)
        key = self._secrets.key(reference)
        if key is None:
            text = "the key for delegations is not set: give apiKeyEnv or apiKeySecretRef, and what it names"
            return failed("A2A_CREDENTIALS_MISSING", text)
        return key

    async def _submit(self, order: DelegateOrder, key: str, deadline: float) -> TaskRecord:
        """Submit the task, unless an earlier process did, and record its ID."""
        if order.external_task:
            return TaskRecord(order.external_task, "submitted")
        submit = partial(
            self._transport.submit_task,
            api_key=key,
            agent_id=agent_id_of(order),
            correlation_id=order.submission,
            input=order.input,
        )
        task = await self._repeat(submit, deadline)
        if task.status not in ("completed", "failed"):
            await order.record(task.id)
        return task

    async def _poll(self, task: TaskRecord, key: str, deadline: float) -> TaskRecord:
        """Poll at once, then at each interval, until the task ends, requires input, or times out."""
        if task.status in ("completed", "failed"):
            return task
        loop = asyncio.get_running_loop()
        while loop.time() <= deadline:
            task = await self._repeat(partial(self._transport.get_task, key, task.id), deadline)
            if task.status in ("completed", "failed", "input-required"):
                return task
            await asyncio.sleep(self._poll_s)
        return task

    async def _repeat(self, call: Callable[[], Awaitable[TaskRecord]], deadline: float) -> TaskRecord:
        """Call at each interval until a failure that passes is over or the deadline has come.

        Another attempt of the node would be another task, while this one may be in work.
        """
        loop = asyncio.get_running_loop()
        while True:
            try:
                return await call()
            except PASSING:
                if loop.time() + self._poll_s > deadline:
                    raise
                await asyncio.sleep(self._poll_s)


def _outcome(task: TaskRecord, order: DelegateOrder, timeout_ms: float) -> Outcome:
    match task.status:
        case "completed":
            output = (
                cast("dict[str, Any]", task.output)
                if isinstance(task.output, dict)
                else {"delegate_status": "completed"}
            )
            return Outcome(ok=True, output=output, correlation=order.correlation, external_task=task.id)
        case "failed":
            return failed("A2A_TASK_FAILED", task.error[:_EXCERPT] or f'A2A task "{task.id}" failed')
        case "input-required":
            text = (
                f'A2A task "{task.id}" requires input (input-required); '
                "use activity_execution_mode host_mediated for delegates that ask"
            )
            return failed("A2A_PROVIDER_ERROR", text)
        case _:
            text = f'A2A task "{task.id}" did not end within {timeout_ms:g} ms (last status: {task.status})'
            return failed("A2A_PROVIDER_ERROR", text)


class HttpTasks:
    """The task API over HTTP."""

    def __init__(self, url: str, http_client: HttpClient) -> None:
        self._url = f"{url.strip().removesuffix('/')}/tasks"
        # Errors and outputs of the task API reach tenants, which must not read the key of the operator.
        self._http_client = RedactingHttpClient(http_client)

    async def submit_task(
        self, *, api_key: str, agent_id: str, correlation_id: str, input: dict[str, Any]
    ) -> TaskRecord:
        """See `A2ATransport`."""
        body = _encode(Submission(agent_id, correlation_id, input))
        headers = (("content-type", JSON), *_headers(api_key))
        return await self._record("submit", HttpRequest("POST", self._url, headers, body))

    async def get_task(self, api_key: str, task_id: str) -> TaskRecord:
        """See `A2ATransport`."""
        url = f"{self._url}/{quote(task_id, safe='')}"
        return await self._record("poll", HttpRequest("GET", url, _headers(api_key)))

    async def _record(self, phase: str, request: HttpRequest) -> TaskRecord:
        try:
            async with asyncio.timeout(_REQUEST_S):
                answer = await answered(self._http_client, request, Call())
        except TimeoutError:
            text = f"A2A {phase}: no answer within {_REQUEST_S:g} seconds"
            raise Unreachable(text, reason="timeout") from None
        except Unreachable as error:
            raise _unanswered(phase, error) from error
        if not answer.ok:
            text = f"A2A {phase} failed with HTTP {answer.status}: "
            text += answer.body.decode(errors="replace")[:_EXCERPT]
            if answer.status in _PASSING_STATUS:
                raise Unreachable(text, reason="protocol")
            raise CallFailed(text)
        return _read(phase, answer)


def _unanswered(phase: str, error: Unreachable) -> Exception:
    """Return the error of an exchange without an answer; an address that may not be called stays so."""
    text = f"A2A {phase}: {error}"
    is_final = error.reason in ("refused", "url", "size")
    return CallFailed(text) if is_final else Unreachable(text, reason=error.reason)


def _headers(key: str) -> tuple[tuple[str, str], ...]:
    return (("accept", JSON), ("authorization", f"Bearer {key}"))


def _read(phase: str, answer: HttpAnswer) -> TaskRecord:
    try:
        found = msgspec.json.decode(answer.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise CallFailed(f"A2A {phase}: the answer is not JSON") from None
    record = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    task_id, status, error = record.get("id"), record.get("status"), record.get("error")
    if not isinstance(task_id, str) or not task_id:
        raise CallFailed(f"A2A {phase}: the answer has no id of a task")
    if not isinstance(status, str) or status not in STATUSES:
        raise CallFailed(f"A2A {phase}: {str(status)[:_EXCERPT]!r} is no status of a task")
    return TaskRecord(task_id, status, record.get("output"), error if isinstance(error, str) else "")
