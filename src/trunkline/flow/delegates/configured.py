"""Delegates and transports of an operator: objects in Python, named by the setting `flow_delegates`."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from trunkline.errors import Misuse
from trunkline.flow.activities.base import DelegateExecutor
from trunkline.flow.delegates.functions import FunctionDelegates
from trunkline.flow.delegates.tasks import A2ATransport

_KINDS = (
    "a mapping of agent IDs to functions, an object with delegate(), "
    "or for a2a one with submit_task() and get_task()"
)


class NamedDelegate(Struct, frozen=True):
    """An entry of `flow_delegates`: `protocol=module:object`."""

    protocol: str
    module: str
    attribute: str

    def __str__(self) -> str:
        """Return the entry as it is written."""
        return f"{self.protocol}={self.module}:{self.attribute}"


class ConfiguredDelegates(Struct, frozen=True):
    """What the operator's objects execute: delegations by protocol, and the transport of the task API."""

    executors: Mapping[str, DelegateExecutor] = {}
    transport: A2ATransport | None = None


def read_delegates(entries: Sequence[str]) -> tuple[NamedDelegate, ...]:
    """Return the entries of the setting `flow_delegates`, whose form is checked; nothing is imported."""
    parts = [re.split("[=:]", entry) for entry in entries]
    return tuple([NamedDelegate(*one) for one in parts])


def load_delegates(entries: Sequence[NamedDelegate]) -> ConfiguredDelegates:
    """Import the objects of the setting `flow_delegates`; a class is called without arguments.

    Raises:
        Misuse: a module cannot be imported, or an object cannot execute delegations.
    """
    executors: dict[str, DelegateExecutor] = {}
    transport: A2ATransport | None = None
    for entry in entries:
        found = _imported(entry)
        if isinstance(found, Mapping):
            executors[entry.protocol] = FunctionDelegates(cast("Mapping[str, Any]", found), entry.protocol)
        elif entry.protocol == "a2a" and hasattr(found, "submit_task") and hasattr(found, "get_task"):
            transport = cast("A2ATransport", found)
        elif hasattr(found, "delegate"):
            executors[entry.protocol] = cast("DelegateExecutor", found)
        else:
            raise Misuse(f"flow_delegates: {entry}: {type(found).__name__} is not {_KINDS}")
    return ConfiguredDelegates(executors, transport)


def _imported(entry: NamedDelegate) -> object:
    try:
        module = importlib.import_module(entry.module)
        found: Any = getattr(module, entry.attribute)
        return found() if isinstance(found, type) else found
    except Exception as error:  # the module is the operator's and may raise anything
        raise Misuse(f"flow_delegates: {entry}: {type(error).__name__}: {error}") from error
