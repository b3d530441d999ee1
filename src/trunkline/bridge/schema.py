"""What a model may say to a skill, as a JSON schema: by the skill's parameters, else by its media types.

A card is a stranger's: signs that do not show, which could tell a model what nobody else sees, are taken out.
"""

from __future__ import annotations

import logging
from typing import Any, cast

import msgspec
from msgspec import Struct

from trunkline.wire.card import SKILL_PARAMETERS, Extension, Skill
from trunkline.wire.peer_card import PeerCard

# What a person reads of a schema: made legible. The rest is for programs: left as it is, or left out.
_PROSE = frozenset({"description", "title", "$comment"})
_PROSE_LIMIT = 1024
# Python calls them printable, and nobody sees them: fillers, joiners and selectors of variants.
_UNSEEN = dict.fromkeys(
    (0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2800, 0x3164, *range(0xFE00, 0xFE10),
     0xFFA0, *range(0xE0100, 0xE01F0))
)  # fmt: skip
_SPACES = frozenset("\n\r\t")


def sanitize(text: str, limit: int) -> str:
    """A text as a person sees it too, and no longer than this."""
    text = text[: limit * 4].translate(_UNSEEN).strip()
    if not text.isprintable():
        text = "".join([one if one.isprintable() or one == "\n" else " " for one in text]).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"


def is_legible(text: str) -> bool:
    """Whether a person sees every character of a text."""
    if text.isascii() and text.isprintable():
        return True
    return all([(one.isprintable() or one in _SPACES) and ord(one) not in _UNSEEN for one in text])


def sanitize_schema(value: Any, left_out: list[str], path: str = "") -> Any:
    """A JSON schema that a person could read too.

    Names, values, defaults and patterns mean something to the agent only as they are: one that has
    characters which do not show is left out, and its place is added to `left_out`.
    """
    if isinstance(value, dict):
        return _members(cast("dict[str, Any]", value), left_out, path)
    if isinstance(value, list):
        listed = cast("list[Any]", value)
        kept = [one for one in listed if not isinstance(one, str) or is_legible(one)]
        if len(kept) < len(listed):
            left_out.append(f"{path}[]")
        return [sanitize_schema(one, left_out, f"{path}[]") for one in kept]
    return value


def _members(members: dict[str, Any], left_out: list[str], path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, one in members.items():
        here = f"{path}.{name}" if path else name
        if not is_legible(name):
            left_out.append(ascii(here)[1:-1])
        elif isinstance(one, str):
            if name in _PROSE:
                found[name] = sanitize(one, _PROSE_LIMIT)
            elif is_legible(one):
                found[name] = one
            else:
                left_out.append(here)
        else:
            kept = sanitize_schema(one, left_out, here)
            # A list of values that has become empty would allow none at all.
            if kept or not one or not isinstance(one, list):
                found[name] = kept
    return found


log = logging.getLogger("trunkline.bridge")
Schema = dict[str, Any]
# Every call of a model has the schemas of all its tools before it.
SCHEMA_LIMIT = 64 << 10
JSON = "application/json"
TEXT = "text/plain"
# What the first agents wrote instead of media types.
_LEGACY_MODES = {
    "text": TEXT,
    "data": JSON,
    "json": JSON,
    "image": "image/*",
    "audio": "audio/*",
    "file": "application/octet-stream",
}
_SCHEMA_MEMBERS = ("x-parameters", "inputSchema", "input_schema", "parameters")
_TASK_ID_HELP = "Only to answer a question that this tool has asked: the task_id that came with the question."
_ANSWER_HELP = "Only with the task id of a question: the answer to it. The other arguments are not read then."


class Inputs(Struct, frozen=True):
    """The inputs of a tool. `typed` is the skill's own schema; the other names are those of our arguments."""

    schema: Schema
    modes: tuple[str, ...]
    typed: bool = False
    task_id: str = "task_id"
    # Where the answer to a question stands.
    answer: str = "query"


def inputs_of(skill: Skill, card: PeerCard) -> Inputs:
    """The inputs of a skill's tool; the skill's media types win over the card's."""
    modes = _modes(skill.input_modes or card.default_input_modes)
    own = parameters_of(skill.id, card)
    return _typed(own, modes) if own is not None else _by_modes(modes)


def output_of(skill: Skill, card: PeerCard) -> Schema:
    """The schema of a tool's structured content."""
    modes = _modes(skill.output_modes or card.default_output_modes)
    properties: Schema = {
        "response": {"type": "string", "description": "What the agent answered."},
        "state": {"type": "string", "description": "Where the task stands, for example completed."},
        "task_id": {"type": "string"},
        "context_id": {"type": "string"},
        "question": {"type": "string", "description": "What the agent asks before it can go on."},
    }
    if any(_is_json(mode) or mode == "*/*" for mode in modes):
        properties["data"] = {"type": "array", "description": "The data parts of the answer."}
    if any(not mode.startswith("text/") and not _is_json(mode) for mode in modes):
        file = {"name": {"type": "string"}, "media_type": {"type": "string"}, "url": {"type": "string"}}
        properties["files"] = {"type": "array", "items": {"type": "object", "properties": file}}
    return {"type": "object", "properties": properties, "required": ["response"]}


def parameters_of(skill_id: str, card: PeerCard) -> Schema | None:
    """The JSON schema that a card gives for a skill's data part, where it gives one.

    By our extension; or as a member of the skill on the card, as some agents write it.
    """
    for extension in card.extensions:
        if extension.uri == SKILL_PARAMETERS:
            found = _object(_declared(extension, skill_id), skill_id)
            if found is not None:
                return found
    for raw in _dicts(card.document.get("skills")):
        if raw.get("id") == skill_id:
            return next(
                (found for name in _SCHEMA_MEMBERS if (found := _object(raw.get(name), skill_id))), None
            )
    return None


def _modes(given: tuple[str, ...]) -> tuple[str, ...]:
    bare = (mode.partition(";")[0].strip().lower() for mode in given)
    return tuple(dict.fromkeys(_LEGACY_MODES.get(mode, mode) for mode in bare if mode)) or (TEXT,)


def _declared(extension: Extension, skill_id: str) -> object:
    skills = (extension.params or {}).get("skills")
    own = cast("Schema", skills).get(skill_id) if isinstance(skills, dict) else None
    return cast("Schema", own).get("schema") if isinstance(own, dict) else None


def _object(schema: object, skill_id: str) -> Schema | None:
    """A schema whose value is an object with named members: nothing else can be a tool's arguments."""
    if not isinstance(schema, dict):
        return None
    found = cast("Schema", schema)
    if found.get("type") != "object" or not isinstance(found.get("properties"), dict):
        return None
    if len(msgspec.json.encode(found)) > SCHEMA_LIMIT:
        log.warning("tools.schema_too_large skill=%a limit=%d", skill_id, SCHEMA_LIMIT)
        return None
    left_out: list[str] = []
    legible = sanitize_schema(found, left_out)
    if left_out:
        log.warning("tools.schema_illegible skill=%a left_out=%a", skill_id, left_out)
    return legible


def _dicts(value: object) -> list[Schema]:
    if not isinstance(value, list):
        return []
    return [cast("Schema", one) for one in cast("list[object]", value) if isinstance(one, dict)]


def _typed(own: Schema, modes: tuple[str, ...]) -> Inputs:
    properties: Schema = own["properties"]
    task_id, answer = _free("task_id", properties), _free("answer", properties)
    ours = {task_id: _text(_TASK_ID_HELP), answer: _text(_ANSWER_HELP)}
    schema = {name: value for name, value in own.items() if name not in ("$schema", "$id", "title")}
    schema["properties"] = {**properties, **ours}
    return Inputs(schema, modes, typed=True, task_id=task_id, answer=answer)


def _free(name: str, taken: Schema) -> str:
    while name in taken:
        name = f"a2a_{name}"
    return name


def _by_modes(modes: tuple[str, ...]) -> Inputs:
    properties: Schema = {}
    anything = "*/*" in modes
    reads_text = anything or any(mode.startswith("text/") for mode in modes)
    if reads_text:
        properties["query"] = _text("What to ask the agent, in words.")
    if anything or any(_is_json(mode) for mode in modes):
        properties["data"] = {"type": "object", "description": "Structured input for the agent."}
    if any(mode.startswith("image/") for mode in modes):
        properties["image_url"] = _text("The address of an image.")
        properties["image_data"] = _text("An image in base64.")
    if any(mode.startswith("audio/") for mode in modes):
        properties["audio_data"] = _text("A sound recording in base64.")
    if anything or any(map(is_file, modes)):
        properties["file_url"] = _text("The address of a file.")
        properties["file_data"] = _text("A file in base64.")
        properties["file_name"] = _text("What the file is called.")
    required = ["query"] if reads_text else []
    if not reads_text:
        # Never left out: many an agent that names other types on its card reads words all the same.
        properties["query"] = _text("Words that go with it, or the answer to a question.")
    properties["task_id"] = _text(_TASK_ID_HELP)
    return Inputs(
        {"type": "object", "properties": properties, "required": required, "additionalProperties": False},
        modes,
    )


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _is_json(mode: str) -> bool:
    return mode == JSON or mode.endswith("+json")


def is_file(mode: str) -> bool:
    """Whether it is neither text nor data nor an image nor sound."""
    named = mode.startswith(("text/", "image/", "audio/"))
    return not named and not _is_json(mode) and mode != "*/*"
