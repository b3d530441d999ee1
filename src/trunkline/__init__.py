"""Trunkline: a Python runtime for the Agent2Agent protocol. A task is an append-only log of events."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trunkline.agent.agent import Agent
from trunkline.agent.declaration import Effect
from trunkline.agent.sync_turn import SyncTurn
from trunkline.agent.turn import Turn
from trunkline.errors import (
    CallFailed,
    Misuse,
    Refused,
    TrunklineError,
    TurnOver,
    Unanswered,
    Unreachable,
    Unreadable,
)
from trunkline.http.mounts import Route
from trunkline.peer.remote import Peer
from trunkline.wire.card import Provider
from trunkline.wire.types import Artifact, Message, Part, PushConfig, TaskState

if TYPE_CHECKING:
    from trunkline.bridge.tools import tools
    from trunkline.client.client import Client
    from trunkline.client.credentials import ApiKey, Bearer
    from trunkline.client.executor import A2AExecutor, SkillResult
    from trunkline.client.oauth import ClientCredentials
    from trunkline.client.result import Result
    from trunkline.client.sync import SyncClient
    from trunkline.host import lifespan

__version__ = "0.1.0"

__all__ = [
    "A2AExecutor",
    "Agent",
    "ApiKey",
    "Artifact",
    "Bearer",
    "CallFailed",
    "Client",
    "ClientCredentials",
    "Effect",
    "Message",
    "Misuse",
    "Part",
    "Peer",
    "Provider",
    "PushConfig",
    "Refused",
    "Result",
    "Route",
    "SkillResult",
    "SyncClient",
    "SyncTurn",
    "TaskState",
    "TrunklineError",
    "Turn",
    "TurnOver",
    "Unanswered",
    "Unreachable",
    "Unreadable",
    "lifespan",
    "tools",
]

# Loaded when first asked for: an agent that calls nobody, or is not mounted with others, starts without it.
_LAZY = {
    "A2AExecutor": "client.executor",
    "ApiKey": "client.credentials",
    "Bearer": "client.credentials",
    "Client": "client.client",
    "ClientCredentials": "client.oauth",
    "Result": "client.result",
    "SkillResult": "client.executor",
    "SyncClient": "client.sync",
    "lifespan": "host",
    "tools": "bridge.tools",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    globals()[name] = value
    return value
