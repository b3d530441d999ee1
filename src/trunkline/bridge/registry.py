"""A file that lists agents, in YAML or JSON: `load_agents("agents.yaml")` gives a client for each.

Secrets stay in the environment; the file names the variables. What does not fit is told with its line.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec

from trunkline.bridge.entry import AgentEntry, AuthEntry, SkillEntry, normalize_keys
from trunkline.bridge.skill_filter import SkillFilter
from trunkline.bridge.sources import Agents
from trunkline.config import Secret
from trunkline.errors import Misuse
from trunkline.net.http import HttpClient
from trunkline.yaml_reader import YamlPosition, read_text, read_yaml

log = logging.getLogger("trunkline.bridge")
_LISTS = ("agents", "a2a_agents")
_UNKNOWN = re.compile("unknown field `(.*?)`")


def load_agents(path: str | Path, *, http_client: HttpClient | None = None) -> Agents:
    """A client for each agent of the file, by name; none where there is no file.

    All clients go by `http_client` where one is given.

    Raises:
        Misuse: the file is not what it should be; the text names line and field.
    """
    file = Path(path)
    try:
        text = read_text(file)
    except FileNotFoundError:
        log.warning("registry.missing file=%s", file)
        return Agents({}, {})
    clients: dict[str, Any] = {}
    extras: dict[str, Any] = {}
    for entry, where in _entries(text, str(file)):
        if entry.name in clients:
            raise Misuse(f"{where('name')}: there are two agents {entry.name!r}")
        try:
            clients[entry.name] = entry.client(http_client)
        except Misuse as error:
            raise Misuse(f"{where(str(error).partition(':')[0])} of agent {entry.name}: {error}") from None
        extras[entry.name] = entry.extra
    return Agents(clients, extras)


def _entries(text: str, file: str) -> Iterator[tuple[AgentEntry, YamlPosition]]:
    found = read_yaml(text, file)
    if found is None:
        return
    document, top = found
    if not isinstance(document, dict):
        raise Misuse(f"{file}: begin with `agents:` and a list below it")
    for name, listed in cast("dict[object, object]", document).items():
        if name not in _LISTS:
            raise Misuse(f"{top(str(name))}: unknown field {name!r}; the list is called agents")
        for raw, where in _rows(listed, top.child(str(name)) or top):
            yield _entry(raw, where), where


def _rows(listed: object, at: YamlPosition) -> Iterator[tuple[dict[str, Any], YamlPosition]]:
    """The entries of a list, or of a mapping from names."""
    rows: list[tuple[object, YamlPosition]] = []
    if isinstance(listed, list):
        rows = [(raw, at.child(str(n)) or at) for n, raw in enumerate(cast("list[object]", listed))]
    elif isinstance(listed, dict):
        for name, raw in cast("dict[str, object]", listed).items():
            named = {"name": name, **cast("dict[str, Any]", raw)} if isinstance(raw, dict) else raw
            rows.append((named, at.child(str(name)) or at))
    elif listed is not None:
        raise Misuse(f"{at()}: agents must be a list, or a mapping from names")
    for raw, where in rows:
        if not isinstance(raw, dict):
            raise Misuse(f"{where()}: an agent has at least name and url")
        yield cast("dict[str, Any]", raw), where


def _entry(raw: dict[str, Any], where: YamlPosition) -> AgentEntry:
    try:
        return msgspec.convert(normalize_keys(raw), AgentEntry, dec_hook=_secret)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        field = path.rstrip("`").lstrip(".")
        if unknown := _UNKNOWN.search(text):
            field = f"{field}.{unknown[1]}" if field else unknown[1]
            text = f"unknown field; there are {', '.join(_members(field))}"
        raise Misuse(f"{where(field)}: {field + ': ' if field else ''}{text}") from None


def _members(field: str) -> tuple[str, ...]:
    """What an object of the file may have beside the field that it may not."""
    kind: object = AgentEntry
    for step in field.split(".")[:-1]:
        name = step.partition("[")[0]
        kind = {"auth": AuthEntry, "skill_filter": SkillFilter, "skills": SkillEntry}.get(name, AgentEntry)
    return cast("type[msgspec.Struct]", kind).__struct_fields__


def _secret(kind: type, value: object) -> object:
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    # The value stays unsaid: it was meant to be a secret.
    raise ValueError(f"expected text, not {type(value).__name__}")
