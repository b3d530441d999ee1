"""Delegates that do nothing: mocks for development and tests, and what stands where nobody is set up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trunkline.flow.activities.base import DelegateExecutor, DelegateOrder, Outcome, failed

PROTOCOLS = ("a2a", "mcp", "sdk")
_SHOWN = 120


def derived_task(kind: str, correlation: str) -> str:
    """The id of a task that nobody outside has given one."""
    return f"{kind}-task-{correlation.replace(':', '-')}"


class MockDelegate:
    """Says that everything is done: in programs that name nobody, and where an operator asks for a demo."""

    async def delegate(self, order: DelegateOrder) -> Outcome:
        """See `DelegateExecutor`."""
        if order.protocol not in PROTOCOLS:
            return unsupported(order)
        output: dict[str, Any] = {"delegate_status": "completed"}
        if order.protocol == "a2a":
            task = order.input.get("task")
            output["patch"] = f"// done: {task[:_SHOWN] if isinstance(task, str) else 'the task'}"
        else:
            output["protocol"] = order.protocol
        return Outcome(
            ok=True,
            output=output,
            correlation=order.correlation,
            external_task=derived_task("a2a", order.correlation),
        )


class UnknownAgents:
    """Fails delegations to agents that the catalogue of a hub does not list."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings

    async def delegate(self, order: DelegateOrder) -> Outcome:
        """See `DelegateExecutor`."""
        text = f"{order.node.id}: the catalogue has no agent {agent_id_of(order)!r} that takes work"
        return failed("DELEGATE_AGENT_NOT_FOUND", text + _how(order, self._settings, "add it, or set"))


class ProtocolDelegates:
    """Passes each delegation to the executor of its protocol, or to a fallback.

    Args:
        settings: the settings that configure each protocol, for the error of one that is not configured.
    """

    def __init__(
        self,
        by_protocol: Mapping[str, DelegateExecutor],
        fallback: DelegateExecutor | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._by_protocol = by_protocol
        self._fallback = fallback
        self._settings = settings or {}

    async def delegate(self, order: DelegateOrder) -> Outcome:
        """See `DelegateExecutor`."""
        executor = self._by_protocol.get(order.protocol, self._fallback)
        return unsupported(order, self._settings) if executor is None else await executor.delegate(order)


def unsupported(order: DelegateOrder, settings: Mapping[str, str] | None = None) -> Outcome:
    """Return the outcome of a delegation by a protocol that nothing is configured for."""
    text = f"{order.node.id}: nothing is configured for delegations by {order.protocol!r}"
    return failed("DELEGATE_PROTOCOL_UNSUPPORTED", text + _how(order, settings or {}, "set"))


def _how(order: DelegateOrder, settings: Mapping[str, str], what: str) -> str:
    return f"; {what} {settings[order.protocol]}" if order.protocol in settings else ""


def agent_id_of(order: DelegateOrder) -> str:
    """The agent that a node names, or nothing."""
    found = order.node.config.get("agent_id")
    return found.strip() if isinstance(found, str) else ""
