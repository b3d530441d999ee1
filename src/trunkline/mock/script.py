"""Scenarios as YAML: one agent, several under `agents`, or PromptKit's `a2a_agents`; and back into YAML.

What is misspelled is refused with the line and the member that are wrong.
"""

from __future__ import annotations

import re
import shlex
from io import StringIO
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from trunkline.errors import Misuse
from trunkline.mock.faults import OPERATIONS
from trunkline.mock.quirks import quirks_of
from trunkline.mock.scenario import (
    Persona,
    Reply,
    Rule,
    Scenario,
    ScriptedArtifact,
    ScriptedPart,
    ScriptedSkill,
    Strict,
    When,
    check_rules,
)
from trunkline.wire.decode import choices
from trunkline.yaml_reader import read_text

_PATH = re.compile(r" - at `\$([^`]*)`\Z")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
# Members that only scripts of models have.
_OF_MODELS = ("calls", "tool")
_SEVERAL = ("agents", "a2a_agents")


class _Match(Strict, frozen=True):
    contains: str = ""
    regex: str = ""


class _Response(Strict, frozen=True):
    parts: tuple[ScriptedPart, ...] = ()


class _Canned(Strict, frozen=True):
    skill: str = ""
    match: _Match = _Match()
    response: _Response | None = None
    error: str = ""


class _About(Strict, frozen=True):
    name: str = ""
    description: str = ""
    skills: tuple[ScriptedSkill, ...] = ()


class _Registered(Strict, frozen=True):
    """An entry of PromptKit's registry; one with a `url` is a real agent, and no mock is made of it."""

    name: str
    card: _About = _About()
    responses: tuple[_Canned, ...] = ()
    url: str = ""
    auth: dict[str, str] = {}
    headers: dict[str, str] = {}
    headers_from_env: tuple[str, ...] = ()
    timeout_ms: int = 0
    skill_filter: dict[str, tuple[str, ...]] = {}


class _Several(Strict, frozen=True):
    agents: tuple[Scenario, ...] = ()
    a2a_agents: tuple[_Registered, ...] = ()

    def scenarios(self) -> tuple[Scenario, ...]:
        return (*self.agents, *[_scenario(each) for each in self.a2a_agents if not each.url])


def load_scenarios(path: Path | str) -> tuple[Scenario, ...]:
    """The scenarios in a file.

    Raises:
        Misuse: it cannot be read, or is no scenario; the text names line and member.
    """
    try:
        text = read_text(Path(path))
    except FileNotFoundError:
        hint = shlex.join(["trunkline", "mock", "record", "URL", "--output", str(path)])
        raise Misuse(f"{path}: no such file or directory", hint=hint) from None
    return read_scenarios(text, where=str(path))


def read_scenarios(text: str, *, where: str = "scenario") -> tuple[Scenario, ...]:
    """The scenarios in a text.

    Raises:
        Misuse: it is no scenario; the text names line and member.
    """
    try:
        value = _yaml().load(text)
    except MarkedYAMLError as error:
        marked = cast("Any", error)
        line = marked.problem_mark.line + 1 if marked.problem_mark else 1
        raise Misuse(f"{where}, line {line}: invalid YAML: {marked.problem}") from None
    except YAMLError as error:
        raise Misuse(f"{where}: invalid YAML: {error}") from None
    except RecursionError:
        raise Misuse(f"{where}: it is nested deeper than can be read") from None
    if not isinstance(value, dict):
        raise Misuse(f"{where}: a scenario is a mapping with `rules`, or with a list of `agents`")
    several = any(name in value for name in _SEVERAL)
    try:
        found = msgspec.convert(value, _Several if several else Scenario)
    except msgspec.ValidationError as error:
        raise _misfit(error, text, where, _Several if several else Scenario) from None
    scenarios = (found,) if isinstance(found, Scenario) else found.scenarios()
    _check(scenarios, where)
    return scenarios


def _check(scenarios: tuple[Scenario, ...], where: str) -> None:
    if not scenarios:
        raise Misuse(f"{where}: it holds no agent to mock; one with a `url` is there already")
    names = [scenario.name for scenario in scenarios]
    if len(scenarios) > 1 and (not all(names) or len(set(names)) < len(names)):
        raise Misuse(f"{where}: each of several agents has a `name` of its own; it is served under /NAME")
    for scenario in scenarios:
        if "/" in scenario.name:
            raise Misuse(f"{where}: name {scenario.name!r} goes into a path: it may not hold a slash")
        quirks_of(scenario.dialect)
        try:
            check_rules(scenario)
        except Misuse as error:
            raise Misuse(f"{where}: {error}") from None


def _scenario(entry: _Registered) -> Scenario:
    """An entry as PromptKit's own mock answers: -32000 where nothing fits, `failed` where it has an error."""
    persona = Persona(
        name=entry.card.name or entry.name,
        description=entry.card.description or entry.name,
        skills=entry.card.skills,
    )
    rules = tuple(
        Rule(
            when=When(skill=each.skill, contains=each.match.contains, regex=each.match.regex),
            reply=_reply(each),
        )
        for each in entry.responses
    )
    return Scenario(name=entry.name, agent=persona, rules=rules)


def _reply(canned: _Canned) -> Reply:
    if canned.error or canned.response is None:
        return Reply(fail=canned.error or "the mock has neither a response nor an error for this")
    texts = [piece.text for piece in canned.response.parts]
    if len(texts) == 1 and texts[0] is not None:
        return Reply(text=texts[0])
    return Reply(artifacts=(ScriptedArtifact(parts=canned.response.parts),)) if texts else Reply()


def _misfit(error: msgspec.ValidationError, text: str, where: str, form: type[object]) -> Misuse:
    complaint = str(error)
    at = _PATH.search(complaint)
    path = at[1] if at else ""
    unknown = _UNKNOWN.search(complaint)
    member = f"{path}.{unknown[1]}" if unknown else path
    line = _line(text, member)
    what = _PATH.sub("", complaint)
    if unknown:
        meant = choices(form, path.lstrip("."), unknown[1])
        if unknown[1] in _OF_MODELS:
            meant = "; a script of a model is served with --openai"
        what = f"there is no member {unknown[1]!r} here{meant}"
    elif "Invalid enum value" in what and ".on" in path:
        what = f"no operation; one of {', '.join(OPERATIONS)}"
    return Misuse(f"{where}, line {line}, {member.lstrip('.') or 'the whole'}: {what}")


def _line(text: str, path: str) -> int:
    """The line on which a member stands, or the nearest thing around it."""
    node = _yaml().compose(text)
    line: int = node.start_mark.line
    for name, index in _STEP.findall(path):
        found = _inside(node, name, int(index) if index else None)
        if found is None:
            break
        line, node = found
    return line + 1


def _inside(node: Any, name: str, index: int | None) -> tuple[int, Any] | None:
    if node.id == "mapping" and name:
        for key, value in node.value:
            if key.value == name:
                return key.start_mark.line, value
    elif node.id == "sequence" and index is not None and index < len(node.value):
        return node.value[index].start_mark.line, node.value[index]
    return None


def _yaml() -> Any:
    # It has no types to speak of.
    return YAML(typ="safe", pure=True)


def write_scenario(scenario: Scenario) -> str:
    """The scenario as YAML; what is as by default is left out."""
    writer = _yaml()
    writer.default_flow_style = False
    writer.width = 100
    writer.sort_base_mapping_type_on_output = False
    out = StringIO()
    writer.dump(_lean(scenario), out)
    return out.getvalue()


def _lean(value: Any) -> Any:
    if isinstance(value, Struct):
        kept: dict[str, Any] = {}
        for field in msgspec.structs.fields(value):
            given = getattr(value, field.name)
            if field.required or given != _default(field):
                kept[field.encode_name] = _lean(given)
        return kept
    if isinstance(value, tuple | list):
        return [_lean(item) for item in cast("tuple[Any, ...]", value)]
    return msgspec.to_builtins(value)


def _default(field: FieldInfo) -> Any:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()
