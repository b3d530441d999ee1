"""Trunkline: a Python runtime for the Agent2Agent protocol. A task is an append-only log of events."""

from trunkline.agent.agent import Agent
from trunkline.agent.declaration import Effect
from trunkline.agent.skill import SyncTurn
from trunkline.agent.turn import Turn
from trunkline.errors import Misuse, Refused, TrunklineError, TurnOver
from trunkline.wire.card import Provider
from trunkline.wire.types import Artifact, Message, Part, TaskState

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Artifact",
    "Effect",
    "Message",
    "Misuse",
    "Part",
    "Provider",
    "Refused",
    "SyncTurn",
    "TaskState",
    "TrunklineError",
    "Turn",
    "TurnOver",
]
