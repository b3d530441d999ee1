"""Errors of decoding, told to the sender in words of JSON and with a path; and the limits of nesting."""

from __future__ import annotations

import re
from itertools import accumulate

import msgspec

from trunkline.errors import InvalidParams, ParseError

MAX_DEPTH = 100
_MAX_CONTAINERS = 100_000
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_QUOTED = re.compile(r"`([^`]*)`")
_PATH = re.compile(r" - at `\$\.?([^`]*)`\Z")
_JSON_WORDS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}

# What decoding foreign bytes can raise: bad syntax or types, bad UTF-8 inside a string, endless nesting.
DECODE_ERRORS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def parse_error(error: Exception) -> ParseError:
    """The ParseError for a body that is not JSON."""
    if isinstance(error, RecursionError):
        return too_deep()
    if isinstance(error, UnicodeDecodeError):
        return ParseError("the body is not JSON: a string is not UTF-8")
    said = str(error).removeprefix("JSON is malformed: ").lower()
    return ParseError(f"the body is not JSON: {_PATH.sub('', said)}")


def invalid_params(error: msgspec.ValidationError, whole: str) -> InvalidParams:
    """The InvalidParams for a member of the wrong type or size; `whole` names the object that was read."""
    said = str(error)
    at = _PATH.search(said)
    field = at[1] if at else ""
    what = _QUOTED.sub(lambda quoted: _words(quoted[1]), _PATH.sub("", said))
    return InvalidParams(f"{field or whole}: {what[:1].lower()}{what[1:]}", field=field)


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
    if body.count(b"{") + body.count(b"[") <= MAX_DEPTH:
        return
    brackets = _brackets(body)
    if brackets.count(b"\x01") > _MAX_CONTAINERS:
        raise ParseError(f"the body holds more than {_MAX_CONTAINERS} lists and objects")
    if _height(brackets) > MAX_DEPTH:
        raise too_deep()


def depth(body: bytes) -> int:
    """How deep the lists and objects of a JSON text are nested; an upper bound if they are few."""
    count = body.count(b"{") + body.count(b"[")
    return count if count <= MAX_DEPTH else _height(_brackets(body))


def _brackets(body: bytes) -> bytes:
    """A byte of 1 for every opening bracket outside strings, of -1 for every closing one."""
    bare = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(_STEPS, _NOT_STRUCTURE)
    return b"".join(bare.split(b'"')[::2])


def _height(brackets: bytes) -> int:
    # All of it runs in C.
    return max(accumulate(memoryview(brackets).cast("b")), default=0)
