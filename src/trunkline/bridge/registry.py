"""A file that lists agents, in YAML or JSON: `load_agents("agents.yaml")` gives a client for each.

Secrets stay in the environment; the file names the variables. What does not fit is told with its line.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any, cast

import msgspec
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from trunkline.bridge.entry import AgentEntry, AuthEntry, SkillEntry, normalize_keys, snake_case
from trunkline.bridge.skill_filter import SkillFilter
from trunkline.bridge.sources import Agents
from trunkline.config import Secret
from trunkline.errors import Misuse
from trunkline.net.http import HttpClient

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
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        log.warning("registry.missing file=%s", file)
        return Agents({}, {})
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(f"{file}: {error}") from None
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


class _YamlPosition:
    """Says where in the file a field of one entry stands."""

    def __init__(self, file: str, node: Node) -> None:
        self._file = file
        self._node = node

    def __call__(self, path: str = "") -> str:
        node = self._node
        for step in re.findall(r"[\w$-]+", path):
            inner = _child(node, step)
            if inner is None:
                break
            node = inner
        return f"{self._file}, line {cast('Any', node).start_mark.line + 1}"


def _entries(text: str, file: str) -> Iterator[tuple[AgentEntry, _YamlPosition]]:
    # Untyped; twice, as the values carry no lines and the nodes no values.
    yaml: Any = YAML(typ="safe", pure=True)
    try:
        tree: Node | None = yaml.compose(StringIO(text))
        document: object = yaml.load(StringIO(text))
    except YAMLError as error:
        raise Misuse(f"{file}{_problem(error)}") from None
    except RecursionError:
        raise Misuse(f"{file}: it is nested deeper than can be read") from None
    if tree is None or document is None:
        return
    if not isinstance(document, dict):
        raise Misuse(f"{file}: begin with `agents:` and a list below it")
    for name, listed in cast("dict[object, object]", document).items():
        if name not in _LISTS:
            where = _YamlPosition(file, tree)(str(name))
            raise Misuse(f"{where}: unknown field {name!r}; the list is called agents")
        for raw, node in _rows(listed, _child(tree, str(name)) or tree, file):
            where = _YamlPosition(file, node)
            yield _entry(raw, where), where


def _problem(error: Any) -> str:
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    line = f", line {mark.line + 1}" if mark is not None else ""
    return f"{line}: {problem or error}"


def _rows(listed: object, node: Node, file: str) -> Iterator[tuple[dict[str, Any], Node]]:
    """The entries of a list, or of a mapping from names."""
    rows: list[tuple[object, Node]] = []
    if isinstance(listed, list) and isinstance(node, SequenceNode):
        rows = list(zip(cast("list[object]", listed), cast("list[Node]", node.value), strict=True))
    elif isinstance(listed, dict):
        for name, raw in cast("dict[str, object]", listed).items():
            named = {"name": name, **cast("dict[str, Any]", raw)} if isinstance(raw, dict) else raw
            rows.append((named, _child(node, name) or node))
    elif listed is not None:
        raise Misuse(f"{_YamlPosition(file, node)()}: agents must be a list, or a mapping from names")
    for raw, at in rows:
        if not isinstance(raw, dict):
            raise Misuse(f"{_YamlPosition(file, at)()}: an agent has at least name and url")
        yield cast("dict[str, Any]", raw), at


def _entry(raw: dict[str, Any], where: _YamlPosition) -> AgentEntry:
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


def _child(node: Node, step: str) -> Node | None:
    if isinstance(node, SequenceNode) and step.isdigit():
        items = cast("list[Node]", node.value)
        return items[int(step)] if int(step) < len(items) else None
    if isinstance(node, MappingNode):
        for key, value in cast("list[tuple[Any, Node]]", node.value):
            if key.value == step or snake_case(str(key.value)) == step:
                return value
    return None


def _secret(kind: type, value: object) -> object:
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    # The value stays unsaid: it was meant to be a secret.
    raise ValueError(f"expected text, not {type(value).__name__}")
