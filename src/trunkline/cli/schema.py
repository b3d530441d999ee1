"""Whether a card is as its version of the protocol says: what is missing, and what is of the wrong type."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct


class _Interface(Struct, rename="camel"):
    url: str
    protocol_binding: str
    protocol_version: str
    tenant: str = ""


class _Capabilities(Struct, rename="camel"):
    streaming: bool | None = None
    push_notifications: bool | None = None
    extended_agent_card: bool | None = None
    extensions: list[dict[str, Any]] = []


class _Skill(Struct, rename="camel"):
    id: str
    name: str
    description: str
    tags: list[str]
    examples: list[str] = []
    input_modes: list[str] = []
    output_modes: list[str] = []


class _Provider(Struct):
    organization: str
    url: str


class _Signature(Struct):
    protected: str
    signature: str
    header: dict[str, Any] | None = None


_NEEDED: dict[str, Any] = {
    "name": str,
    "description": str,
    "version": str,
    "capabilities": _Capabilities,
    "defaultInputModes": list[str],
    "defaultOutputModes": list[str],
    "skills": list[_Skill],
}
_OPTIONAL: dict[str, Any] = {
    "provider": _Provider,
    "documentationUrl": str,
    "iconUrl": str,
    "securitySchemes": dict[str, dict[str, Any]],
    "signatures": list[_Signature],
}
_CURRENT: dict[str, Any] = {"supportedInterfaces": list[_Interface]}
_OLDER: dict[str, Any] = {"url": str, "protocolVersion": str}


def faults(card: dict[str, Any]) -> list[str]:
    """What is wrong with a card, each with the member it is about; one without `supportedInterfaces` is
    judged as of 0.3 if it says so.
    """
    older = "supportedInterfaces" not in card and str(card.get("protocolVersion", "")).startswith("0.")
    needed = {**_NEEDED, **(_OLDER if older else _CURRENT)}
    found = [f"{name} is missing" for name in needed if name not in card]
    for name, kind in {**needed, **_OPTIONAL}.items():
        if name in card:
            found.extend(_misfit(name, card[name], kind))
    if card.get("supportedInterfaces") == []:
        found.append("supportedInterfaces is empty")
    return found


def _misfit(name: str, value: object, kind: Any) -> list[str]:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        return [f"{name}{path.rstrip('`')}: {text}"]
    return []
