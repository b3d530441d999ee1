"""The functions of an author: how their parameters are filled from a message, and where they run.

A `Turn` is passed as it is; a single `str` (or a bare name) takes the text; a dataclass, msgspec
struct, TypedDict or pydantic model takes a data part as a whole; several parameters take its fields,
and `**rest` those that are left. Text alone fills the one field that is required, if it is a `str`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import difflib
import inspect
import threading
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from functools import partial

import msgspec
from msgspec import Struct

from trunkline.errors import InvalidParams, Misuse
from trunkline.wire.decode import in_words
from trunkline.wire.types import Message

AuthorFunction = Callable[..., object]
T = typing.TypeVar("T")
_TURNS = ("Turn", "SyncTurn")
# Up to here a float holds every integer exactly.
_EXACT = 2**53
_MOST_FAULTS = 100
_LONGEST_PATHS = 32 << 20
# To a coroutine, or to the loop, they mean something else; and no signal ever interrupts such a thread.
_NOT_CARRIED = (StopIteration, GeneratorExit, KeyboardInterrupt)
Schema = dict[str, typing.Any]
_LONGEST_NAME = 100
# A body may hold far more numbers than lists and objects, so that only these are looked into.
_WITH_NAMES = (dict, list)


class Binding(Struct, frozen=True):
    """Which parameter of a function takes the turn, which the text, which the data of a message."""

    turn: str = ""
    text: str = ""
    whole: str = ""
    # Takes the members of a data part that are nobody else's.
    rest: str = ""
    rest_type: object = None
    # The type of the data part that the function reads; None if it reads none.
    model: object = None
    schema: Schema | None = None
    # The member of the data that a message of text alone fills.
    text_member: str = ""

    def read(self, message: Message) -> dict[str, object]:
        """The arguments that a message holds as data, or as the text that stands for it.

        Raises:
            InvalidParams: there is no data part, or it does not fit; the field is named.
        """
        for place, part in enumerate(message.parts):
            if part.data is not msgspec.UNSET:
                return self._read(part.data, f"message.parts[{place}].data")
        if self.text_member and any(part.text is not None for part in message.parts):
            return self._read({self.text_member: message.text}, "message.parts")
        members = ", ".join((self.schema or {}).get("properties", {})) or "an object"
        raise InvalidParams(f"this skill reads a data part with {members}", field="message.parts")

    def _read(self, data: object, field: str) -> dict[str, object]:
        schema = self.schema or {}
        refuse_unknown(data, schema, self.model, field)
        value = _convert(data, self.model, field)
        filled = {self.whole: value} if self.whole else msgspec.structs.asdict(typing.cast("Struct", value))
        if not self.rest:
            return filled
        given = typing.cast("dict[str, object]", data)
        others = {name: one for name, one in given.items() if name not in schema["properties"]}
        return typing.cast("dict[str, object]", _convert(others, self.rest_type, field)) | filled


def bind(function: AuthorFunction) -> Binding:
    """The binding of a function, read from its signature.

    Raises:
        Misuse: it takes something that a message cannot fill.
    """
    if inspect.isclass(function):
        raise Misuse(f"{function.__name__} is a class; a skill is a function, or a method of an object")
    signature = inspect.signature(function)
    hints = _hints(function)
    turn, rest, rest_type, taken = "", "", object, list[inspect.Parameter]()
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise Misuse(f"{name_of(function)}: parameters must be named; {parameter} cannot be filled")
        hint = hints.get(parameter.name)
        if parameter.kind is parameter.VAR_KEYWORD:
            rest, rest_type = parameter.name, dict[str, hints.get(parameter.name, typing.Any)]
        elif parameter.name == "turn" or getattr(hint, "__name__", "") in _TURNS:
            turn = parameter.name
        else:
            taken.append(parameter)
    if not taken and not rest:
        return Binding(turn=turn)
    only = hints.get(taken[0].name, str) if len(taken) == 1 else None
    if only is str and not rest:
        return Binding(turn=turn, text=taken[0].name)
    whole = taken[0].name if _is_model(only) else ""
    model = only if whole else _model_of(taken, hints, function)
    try:
        schema = schema_of(model, is_open=bool(rest))
    except TypeError as error:
        raise Misuse(f"{name_of(function)}: no JSON schema for its parameters: {error}") from error
    return Binding(turn, "", whole, rest, rest_type, model, schema, text_member(schema))


def _hints(function: AuthorFunction) -> dict[str, object]:
    plain = inner(function)
    target = plain if inspect.isroutine(plain) else type(plain).__call__
    try:
        return dict(typing.get_type_hints(target))
    except NameError as error:
        raise Misuse(f"{name_of(function)}: annotation not found: {error}") from error


def inner(function: AuthorFunction) -> AuthorFunction:
    """The function inside `partial` ones."""
    return inner(function.func) if isinstance(function, partial) else function


def name_of(function: AuthorFunction) -> str:
    """The name of a function, for errors and as the id of its skill."""
    plain = inner(function)
    return getattr(plain, "__name__", type(plain).__name__)


def routine_of(function: AuthorFunction) -> AuthorFunction:
    """The function that runs when one is called, however it is wrapped; of an object its `__call__`."""
    plain = inspect.unwrap(inner(function))
    return plain if inspect.isroutine(plain) else type(plain).__call__


def is_async(function: AuthorFunction) -> bool:
    """Whether calling it gives a coroutine."""
    return inspect.iscoroutinefunction(routine_of(function))


async def in_thread(work: Callable[[], T]) -> T:
    """Run work in a thread that cannot hold up the end of the process, however long it hangs."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def tell(settle: Callable[[], None]) -> None:
        # Without its loop there is nobody left to hear how the function ended.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if future.done() else settle())

    def body() -> None:
        try:
            value = context.run(work)
        except BaseException as error:  # noqa: BLE001 - carried to the awaiting coroutine
            foreign = isinstance(error, _NOT_CARRIED)
            carried = RuntimeError(f"the function raised {error!r}") if foreign else error
            tell(lambda: future.set_exception(carried))
        else:
            tell(lambda: future.set_result(value))

    threading.Thread(target=body, name="trunkline-skill", daemon=True).start()
    return await future


def _model_of(
    rest: list[inspect.Parameter], hints: Mapping[str, object], function: AuthorFunction
) -> type[Struct]:
    fields: list[tuple[str, type] | tuple[str, type, object]] = []
    for parameter in sorted(rest, key=lambda one: one.default is not one.empty):
        hint = typing.cast("type", hints.get(parameter.name, object))
        plain = typing.cast("type", typing.Any) if hint is object else hint
        has_default = parameter.default is not parameter.empty
        fields.append((parameter.name, plain, parameter.default) if has_default else (parameter.name, plain))
    return msgspec.defstruct(name_of(function), fields, frozen=True)


def _is_model(hint: object) -> bool:
    if not isinstance(hint, type):
        return False
    kind = typing.cast("type[object]", hint)
    return (
        is_dataclass(kind)
        or issubclass(kind, Struct)
        or typing.is_typeddict(kind)
        or hasattr(kind, "model_validate")
    )


def _convert(data: object, model: object, field: str) -> object:
    validate = getattr(model, "model_validate", None)
    if callable(validate):
        if _path_sizes(data, 0) > _LONGEST_PATHS:
            raise InvalidParams(f"{field}: the names of its members are too long for so many", field=field)
        try:
            return validate(data)
        except ValueError as error:
            raise _pydantic_error(error, field) from None
    try:
        return msgspec.convert(_with_integers(data), typing.cast("type[object]", model))
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        path = path.rstrip("`")
        what = in_words(text)
        if not path:
            what = what.replace("missing required field", "missing parameter")
        raise InvalidParams(f"{field}{path}: {what}", field=field + path) from None


def _path_sizes(data: object, path: int) -> int:
    """How many characters the paths of all members have: pydantic copies the path of each fault."""
    if not isinstance(data, dict | list):
        return 0
    several = typing.cast("dict[str, object] | list[object]", data)
    pairs = several.items() if isinstance(several, dict) else (("", one) for one in several)
    inside = [_path_sizes(one, path + len(name)) for name, one in pairs if type(one) in (dict, list)]
    return path * len(several) + sum(inside)


def _with_integers(data: object) -> object:
    """2.0 as 2: JSON has one kind of number, and clients built on Protobuf write them all as fractions."""
    if isinstance(data, float) and data.is_integer() and abs(data) <= _EXACT:
        return int(data)
    if isinstance(data, list):
        return [_with_integers(one) for one in typing.cast("list[object]", data)]
    if isinstance(data, dict):
        return {name: _with_integers(one) for name, one in typing.cast("dict[str, object]", data).items()}
    return data


def _pydantic_error(error: ValueError, field: str) -> InvalidParams:
    """The mistakes that pydantic found, each with its place; the first is the field of the refusal."""
    listing, count = getattr(error, "errors", None), getattr(error, "error_count", None)
    if not callable(listing) or not callable(count):
        return InvalidParams(f"{field}: {error}", field=field)
    if (faults := typing.cast("int", count())) > _MOST_FAULTS:
        # A row for each takes a hundred times the memory of what was sent.
        return InvalidParams(f"{field}: {faults} members do not fit", field=field)
    rows = typing.cast("list[dict[str, typing.Any]]", listing())
    found = [(field + "".join(map(_path_step, row["loc"])), row["msg"]) for row in rows]
    return InvalidParams("; ".join(f"{place}: {text}" for place, text in found), field=found[0][0])


def _path_step(step: str | int) -> str:
    return f"[{step}]" if isinstance(step, int) else f".{step}"


def schema_of(model: object, *, is_open: bool) -> Schema:
    """The schema of a type; an open one takes names at its top that it does not list.

    Raises:
        TypeError: JSON has no form for it.
    """
    pydantic_schema = getattr(model, "model_json_schema", None)
    if callable(pydantic_schema):
        found = typing.cast("Schema", pydantic_schema())
        # What its author said of other names counts; inside, pydantic's own types keep their own rule.
        told = is_open or "properties" not in found or "extra" in getattr(model, "model_config", {})
        return found if told else {**found, "additionalProperties": False}
    schema = msgspec.json.schema(model)
    for one in schema.get("$defs", {}).values():
        if "properties" in one:
            one.setdefault("additionalProperties", False)
    schema = _flat(schema)
    return {**schema, "additionalProperties": True} if is_open else schema


def _flat(schema: Schema) -> Schema:
    """A schema whose top is an object and not a reference to one."""
    reference: str = schema.get("$ref", "")
    if not reference:
        return schema
    definitions = dict[str, typing.Any](schema.get("$defs", {}))
    top = definitions.pop(reference.rsplit("/", 1)[-1])
    return {**top, "$defs": definitions} if definitions else top


def text_member(schema: Schema) -> str:
    """The member that plain text fills: the only one that is required, if it is text of any form."""
    required: list[str] = schema.get("required", [])
    if len(required) != 1:
        return ""
    about = schema["properties"][required[0]]
    return (
        required[0] if about.get("type") == "string" and not {"format", "contentEncoding"} & {*about} else ""
    )


def refuse_unknown(data: object, schema: Schema, model: object, field: str) -> None:
    """Refuse names that a closed schema does not list.

    Raises:
        InvalidParams: there is one; the nearest known name is said.
    """
    found = _unknown(data, schema, schema.get("$defs", {}), {*_pydantic_names(model)})
    if found is not None:
        path, name, known = found
        place = field + path
        # A name of a megabyte is near to none, and comparing it would take seconds.
        near = difflib.get_close_matches(name[:_LONGEST_NAME], known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        what = "field" if path else "parameter"
        raise InvalidParams(f"{place}: unknown {what} {name!r}; {hint}", field=f"{place}.{name}")


def _unknown(
    data: object, schema: Schema, types: Schema, others: set[str]
) -> tuple[str, str, list[str]] | None:
    """The first name that is not listed where it stands: its place, itself, and what is listed there.

    `types` are those of the whole schema, `others` the names that are let pass wherever they stand.
    """
    schema = _choose(data, schema, types)
    if isinstance(data, dict):
        known: Schema = schema.get("properties", {})
        rest = schema.get("additionalProperties")
        members = typing.cast("dict[str, object]", data)
        if rest is False:
            for name in members:
                if name not in known and name not in others:
                    return "", name, list(known)
        inside = [
            (name, one, known.get(name, rest)) for name, one in members.items() if type(one) in _WITH_NAMES
        ]
    elif isinstance(data, list):
        items, listed = schema.get("items"), typing.cast("list[object]", data)
        inside = [(place, one, items) for place, one in enumerate(listed) if type(one) in _WITH_NAMES]
    else:
        return None
    for step, one, within in inside:
        if isinstance(within, dict):
            found = _unknown(one, typing.cast("Schema", within), types, others)
            if found is not None:
                return _path_step(step) + found[0], found[1], found[2]
    return None


def _choose(data: object, schema: Schema, types: Schema) -> Schema:
    """The schema that is meant: behind a reference, and of several the one that the data names."""
    several = [one for one in schema.get("anyOf", ()) if one.get("type") != "null"]
    tag = schema.get("discriminator", {})
    if tag and isinstance(data, dict):
        value = typing.cast("dict[str, object]", data).get(tag["propertyName"])
        schema = {"$ref": tag.get("mapping", {}).get(value, "")}
    elif len(several) == 1:
        schema = several[0]
    return types.get(schema["$ref"].rsplit("/", 1)[-1], {}) if "$ref" in schema else schema


def _pydantic_names(model: object) -> Iterator[str]:
    """The other names that a pydantic model reads: of its fields, and their further aliases."""
    for name, field in getattr(model, "model_fields", {}).items():
        yield name
        for alias in getattr(field.validation_alias, "choices", ()):
            yield alias if isinstance(alias, str) else str(alias.path[0])
