"""Bytes or a query string → one of the raw structs, lenient in spelling and exact in its errors.

Only requests that spell something unusually are normalized: every member renamed, kept or dropped by the
fields of its raw struct. Errors are told in words of JSON and with a path; nesting has its limits.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from itertools import accumulate
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Raw, Struct, inspect

from trunkline.errors import InvalidParams, ParseError
from trunkline.wire import raw

S = TypeVar("S", bound=raw.RawStruct)
MAX_DEPTH = 100
_MAX_CONTAINERS = 100_000
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_MALFORMED = re.compile(r"(?:JSON is malformed: )?(.*) \(byte ([0-9]+)\)")
_NAMED = re.compile(r"Object (?:contains )?(missing required field|unknown field) `(.*)`")
_QUOTED = re.compile(r"`([^`]*)`")
_PATH = re.compile(r" - at `\$\.?([^`]*)`\Z")
# `about` and `[0]` in `notify[0].about`; of a mapping it is `[...]`, whichever key is meant.
_MEMBER = re.compile(r"[^.\[\]]+|\[[^\]]+\]")
_JSON_WORDS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}

# What decoding foreign bytes can raise: bad syntax or types, bad UTF-8 inside a string, endless nesting.
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class MemberPlan(Struct, frozen=True):
    """How to normalize one object: every spelling of each member, and the plans of the objects inside it."""

    names: dict[str, str]
    inner: dict[str, MemberPlan]
    keeps: bool


def _plan(
    struct: type[raw.RawStruct], inner: dict[str, MemberPlan] | None = None, **aliases: str
) -> MemberPlan:
    names = dict(aliases)
    for field in msgspec.structs.fields(struct):
        if field.encode_name != raw.EXTRA:
            names[field.name] = names[field.encode_name] = field.encode_name
    # `bytes` is the wire name of a field that Python calls otherwise.
    if struct is raw.RawFile:
        del names["content"]
    return MemberPlan(names, inner or {}, keeps=struct in (raw.RawPart, raw.RawMessage))


_FILE = _plan(raw.RawFile, mediaType="mimeType", media_type="mimeType", filename="name")
_PART = _plan(raw.RawPart, {"file": _FILE})
_MESSAGE = _plan(raw.RawMessage, {"parts": _PART, "content": _PART})
_AUTHENTICATION = _plan(raw.RawAuthentication)
_PUSH = _plan(raw.RawPushConfig, {"authentication": _AUTHENTICATION})
_CONFIGURATION = _plan(
    raw.RawConfiguration,
    {"pushNotificationConfig": _PUSH, "taskPushNotificationConfig": _PUSH, "pushNotification": _PUSH},
)
_PUSH_ENVELOPE = _plan(raw.RawPushEnvelope, {"pushNotificationConfig": _PUSH})
_ARTIFACT = _plan(raw.RawArtifact, {"parts": _PART})
# `update` is what 0.3's proto calls the message of a status; a session is what later is a context.
_STATUS = _plan(raw.RawStatus, {"message": _MESSAGE}, update="message")
_RESULTS = {"status": _STATUS, "artifact": _ARTIFACT, "artifacts": _ARTIFACT, "history": _MESSAGE}

_PLANS: dict[type[raw.RawStruct], MemberPlan] = {
    raw.RawSend: _plan(
        raw.RawSend, {"message": _MESSAGE, "request": _MESSAGE, "configuration": _CONFIGURATION}
    ),
    raw.RawTaskQuery: _plan(raw.RawTaskQuery),
    raw.RawListQuery: _plan(raw.RawListQuery),
    raw.RawPushRequest: _plan(
        raw.RawPushRequest,
        {"authentication": _AUTHENTICATION, "pushNotificationConfig": _PUSH, "config": _PUSH_ENVELOPE},
    ),
    raw.RawPushQuery: _plan(raw.RawPushQuery),
    raw.RawMessage: _MESSAGE,
    raw.RawTask: _plan(raw.RawTask, _RESULTS, sessionId="contextId"),
    raw.RawUpdate: _plan(raw.RawUpdate, _RESULTS, sessionId="contextId"),
}


def read_params(decoder: msgspec.json.Decoder[S], struct: type[S], params: bytes | Raw | None) -> S:
    """The raw struct of params as they came; none are the same as empty ones.

    Raises:
        ParseError: the bytes are not JSON.
        InvalidParams: a member does not fit.
    """
    body = b"{}" if params is None else bytes(params)
    check_structure(body)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        return _read_normalized(struct, body)
    except DECODE_ERRORS as error:
        raise parse_error(error) from None


def _read_normalized(struct: type[S], body: bytes) -> S:
    try:
        value = msgspec.json.decode(body)
    except DECODE_ERRORS as error:
        raise parse_error(error) from None
    try:
        return msgspec.convert(_normalize(value, _PLANS[struct]), struct)
    except msgspec.ValidationError as error:
        raise invalid_params(error, "params") from None


def read_query(struct: type[S], query: dict[str, str]) -> S:
    """The raw struct of a query string in camelCase or snake_case; an empty value is an absent one.

    Raises:
        InvalidParams: a parameter does not fit.
    """
    given = {name: text for name, text in query.items() if text}
    try:
        return msgspec.convert(_normalize(given, _PLANS[struct]), struct, strict=False)
    except msgspec.ValidationError as error:
        raise invalid_params(error, "query") from None


def _normalize(value: Any, plan: MemberPlan) -> Any:
    """The same value with every known member under its one name; wrong types are left to be refused."""
    if isinstance(value, list):
        return [_normalize(item, plan) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    kept: dict[str, Any] = {}
    known: dict[str, Any] = {}
    for spelling, member in cast("dict[str, Any]", value).items():
        name = plan.names.get(spelling)
        if name is None:
            kept[spelling] = member
        elif spelling == name or name not in value:
            # When both spellings are there, the proper one is the truth.
            known[name] = _normalize(member, plan.inner[name]) if name in plan.inner else member
    if kept and plan.keeps:
        known[raw.EXTRA] = kept
    return known


def parse_error(error: Exception) -> ParseError:
    """The ParseError for a body that is not JSON."""
    if isinstance(error, RecursionError):
        return too_deep()
    if isinstance(error, UnicodeDecodeError):
        return ParseError("the body is not JSON: a string is not UTF-8")
    said = str(error).removeprefix("JSON is malformed: ").lower()
    return ParseError(f"the body is not JSON: {_PATH.sub('', said)}")


def invalid_params(
    error: msgspec.ValidationError, whole: str, form: type[object] | None = None
) -> InvalidParams:
    """The InvalidParams for a member of the wrong type or size; `whole` names the object that was read.

    With the form of that object the text also says what could be given in the place of a wrong word.
    """
    said = str(error)
    at = _PATH.search(said)
    field = at[1] if at else ""
    what = in_words(_PATH.sub("", said))
    if form is not None and said.startswith("Invalid enum"):
        what += choices(form, field)
    named = _NAMED.fullmatch(_PATH.sub("", said))
    if form is not None and named is not None and named[1] == "unknown field":
        what += choices(form, field, named[2])
    return InvalidParams(f"{field or whole}: {what}", field=field)


def in_words(said: str) -> str:
    """Return a message of msgspec with the types of JSON and a quoted name."""
    if named := _NAMED.fullmatch(said):
        return f"{named[1]} {named[2]!r}"
    what = _QUOTED.sub(lambda quoted: _words(quoted[1]), said)
    return what[:1].lower() + what[1:]


def locate_json_error(error: Exception, raw: bytes) -> str:
    """Return the position and the reason of an error, as the end of a sentence about the JSON."""
    found = _MALFORMED.fullmatch(str(error))
    if found is None:
        return f": {str(error).lower()}"
    before = raw[: int(found[2])]
    column = len(before) - before.rfind(b"\n")
    line = f"line {before.count(10) + 1}, " if b"\n" in raw.strip() else ""
    return f" at {line}column {column}: {found[1]}"


def choices(form: type[object], path: str, given: str = "") -> str:
    """Return the end of an error about a wrong word at this path of a form: the words, or members, that fit.

    Of members, the one that is closest to the given name is enough.
    """
    found = [inspect.type_info(form)]
    for step in _MEMBER.findall(path):
        found = [inner for one in found for inner in _below(one, step)]
    words = [str(word) for one in found for word in _literals(one)]
    names = [name for one in found for name in _members(one)]
    near = get_close_matches(given, names, 1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; choose {', '.join(words)}" if words else f"; there are {', '.join(names)}"


def _below(kind: inspect.Type, step: str) -> list[inspect.Type]:
    if isinstance(kind, inspect.StructType):
        return [field.type for field in kind.fields if field.encode_name == step]
    if isinstance(kind, inspect.DictType):
        return [kind.value_type]
    if isinstance(kind, inspect.UnionType):
        return [inner for one in kind.types for inner in _below(one, step)]
    return [kind.item_type] if isinstance(kind, inspect.ListType | inspect.VarTupleType) else []


def _members(kind: inspect.Type) -> list[str]:
    if isinstance(kind, inspect.UnionType):
        return [name for one in kind.types for name in _members(one)]
    return [field.encode_name for field in kind.fields] if isinstance(kind, inspect.StructType) else []


def _literals(kind: inspect.Type) -> list[object]:
    if isinstance(kind, inspect.UnionType):
        return [word for one in kind.types for word in _literals(one)]
    return [*kind.values] if isinstance(kind, inspect.LiteralType) else []


def _words(types: str) -> str:
    return " or ".join(_JSON_WORDS.get(word, word) for word in types.split(" | ") if word != "null") or "null"


def too_deep() -> ParseError:
    """The ParseError for endless nesting."""
    return ParseError(f"the body is nested deeper than {MAX_DEPTH} levels")


def check_structure(body: bytes) -> None:
    """Check a body: it nests at most 100 levels, as in ProtoJSON, and holds a bounded number of containers.

    What can be read can so also be written, and two bytes of `{}` cannot become 64 half a million times.

    Raises:
        ParseError: it nests deeper or holds more.
    """
    if _opened(body) <= MAX_DEPTH:
        return
    brackets = _brackets(body)
    if brackets.count(b"\x01") > _MAX_CONTAINERS:
        raise ParseError(f"the body holds more than {_MAX_CONTAINERS} lists and objects")
    if _height(brackets) > MAX_DEPTH:
        raise too_deep()


def depth(body: bytes) -> int:
    """How deep the lists and objects of a JSON text are nested; an upper bound if they are few."""
    count = _opened(body)
    return count if count <= MAX_DEPTH else _height(_brackets(body))


def _opened(body: bytes) -> int:
    """How many brackets open in a JSON text and in its strings; over the limit not all of them count."""
    # `replace` jumps from one to the next, where `count` looks at every byte (until Python 3.13).
    most = MAX_DEPTH + 1
    return len(body) - len(body.replace(b"{", b"", most).replace(b"[", b"", most))


def _brackets(body: bytes) -> bytes:
    """A byte of 1 for every opening bracket outside strings, of -1 for every closing one."""
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(_STEPS, _NOT_STRUCTURE)
    return b"".join(bare.split(b'"')[::2])


def _height(brackets: bytes) -> int:
    # All of it runs in C.
    return max(accumulate(memoryview(brackets).cast("b")), default=0)
