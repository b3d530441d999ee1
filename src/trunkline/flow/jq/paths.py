"""Plain filters, evaluated in this process: paths, comparisons, `and`, `or`, `not`, `//`, literals, `+`, `-`.

They are what most conditions and mappings are. Tests compare them with jq. Where jq might see something
else, as with a number that is not exact or a value that an operator refuses, there is no value from here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn, cast

from msgspec import UNSET, UnsetType

Evaluate = Callable[[Any], Any]

# Longer ones are not plain.
_PROGRAM_LIMIT = 1000
_DEPTH_LIMIT = 20
_EXACT = 2**53
_TEXT_LIMIT = 64 << 10
# Nobody else has a turn meanwhile: so many members may a value have, and one that is compared.
_MEMBERS_LIMIT, _COMPARED_LIMIT = 20_000, 1000
# Limit of the characters of all texts in a value. A text that a filter repeats counts each time.
_CHARS_LIMIT = 1 << 20
_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
        (?P<field>\.[A-Za-z_][A-Za-z0-9_]*|\."[^"\\\x00-\x1f]*")
      | (?P<number>[0-9]{1,15}(?:\.[0-9]{1,3})?(?![A-Za-z0-9_.]))
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*(?!::))
      | (?P<string>"[^"\\\x00-\x1f]*")
      | (?P<sign>==|!=|<=|>=|//(?!=)|[.\[\](){}:,|<>+-](?!=))
    )""",
    re.VERBOSE | re.ASCII,
)
_COMPARISONS = {"==", "!=", "<", "<=", ">", ">="}
_CONSTANTS = {"true": True, "false": False, "null": None}
# Words that jq keeps for itself.
_RESERVED = {
    "if", "then", "else", "elif", "end", "and", "or", "not", "def", "reduce", "foreach", "try", "catch",
    "label", "import", "include", "as", "length", *_CONSTANTS,
}  # fmt: skip


def quick_value(program: str, root: object) -> object | UnsetType:
    """The one output of a plain filter; `UNSET` where the filter is not plain, or jq alone knows."""
    if not is_plain(program):
        return UNSET
    evaluate = cast("Evaluate", _compiled(program))
    try:
        value = evaluate(root)
        _require_exact(value)
    except (LookupError, RecursionError):
        return UNSET
    return value


def is_plain(program: str) -> bool:
    """Return whether this process evaluates a filter itself, at least for simple values."""
    return len(program) <= _PROGRAM_LIMIT and _compiled(program) is not None


# Compiled, a program takes up to 300 bytes for each of its characters.
@lru_cache(maxsize=64)
def _compiled(program: str) -> Evaluate | None:
    try:
        return _Parser(program).whole()
    except LookupError:
        return None


def _leave() -> NoReturn:
    """Give up: this is for jq."""
    raise LookupError


class _Parser:
    """Recursive descent, one method for each level of jq's precedence."""

    def __init__(self, program: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        self._next = 0
        self._depth = 0
        at, text = 0, program.rstrip(" \t\r\n")
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                _leave()
            self._tokens.append((cast("str", found.lastgroup), found[cast("str", found.lastgroup)]))
            at = found.end()

    def whole(self) -> Evaluate:
        made = self._pipe()
        if self._next < len(self._tokens):
            _leave()
        return made

    def _peek(self) -> str:
        return self._tokens[self._next][1] if self._next < len(self._tokens) else ""

    def _take(self) -> tuple[str, str]:
        if self._next >= len(self._tokens):
            _leave()
        self._next += 1
        return self._tokens[self._next - 1]

    def _takes(self, text: str) -> bool:
        if self._peek() != text:
            return False
        self._next += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            _leave()

    def _pipe(self) -> Evaluate:
        self._depth += 1
        if self._depth > _DEPTH_LIMIT:
            _leave()
        made = self._alternative()
        while self._takes("|"):
            made = _piped(made, self._alternative())
        self._depth -= 1
        return made

    def _alternative(self) -> Evaluate:
        left = self._either()
        if not self._takes("//"):
            return left
        right = self._alternative()
        return lambda root: value if _is_true(value := left(root)) else right(root)

    def _either(self) -> Evaluate:
        made = self._both()
        while self._takes("or"):
            made = _or(made, self._both())
        return made

    def _both(self) -> Evaluate:
        made = self._comparison()
        while self._takes("and"):
            made = _and(made, self._comparison())
        return made

    def _comparison(self) -> Evaluate:
        left = self._sum()
        sign = self._peek()
        if sign not in _COMPARISONS or self._tokens[self._next][0] != "sign":
            return left
        self._next += 1
        right = self._sum()
        if sign in {"==", "!="}:
            wanted = sign == "=="
            return lambda root: _same(left(root), right(root)) is wanted
        return lambda root: _ordered(sign, left(root), right(root))

    def _sum(self) -> Evaluate:
        made = self._term()
        while self._peek() in {"+", "-"} and self._tokens[self._next][0] == "sign":
            made = _combined(self._take()[1], made, self._term())
        return made

    def _term(self) -> Evaluate:
        kind, text = self._take()
        match kind, text:
            case "number", _:
                return _constant(_number(text))
            case "sign", "-":
                kind, text = self._take()
                return _constant(-_number(text)) if kind == "number" else _leave()
            case "string", _:
                return _constant(text[1:-1])
            case "word", "not":
                return lambda root: not _is_true(root)
            case "word", "length":
                return _length
            case "word", "true" | "false" | "null":
                return _constant(_CONSTANTS[text])
            case "field", _:
                return self._path(_field(lambda root: root, _name(text)))
            case "sign", ".":
                # An index may follow the dot at once, but not a second dot.
                return self._path(lambda root: root)
            case "sign", "(":
                made = self._pipe()
                self._expect(")")
                return self._path(made)
            case "sign", "{":
                return self._object()
            case "sign", "[":
                return self._array()
            case _:
                _leave()

    def _path(self, made: Evaluate) -> Evaluate:
        """The fields and indexes that follow a term."""
        while self._next < len(self._tokens):
            kind, text = self._tokens[self._next]
            if kind == "field":
                self._next += 1
                made = _field(made, _name(text))
            elif (kind, text) == ("sign", "["):
                self._next += 1
                made = self._index(made)
            else:
                break
        return made

    def _index(self, made: Evaluate) -> Evaluate:
        minus = self._takes("-")
        kind, text = self._take()
        self._expect("]")
        if kind == "string" and not minus:
            return _field(made, text[1:-1])
        if kind != "number" or "." in text or len(text) > 9:
            _leave()
        return _item(made, -int(text) if minus else int(text))

    def _object(self) -> Evaluate:
        members: list[tuple[str, Evaluate]] = []
        while not self._takes("}"):
            if members:
                self._expect(",")
            kind, text = self._take()
            if kind not in {"word", "string"} or text in _RESERVED:
                _leave()
            key = text.strip('"')
            if self._takes(":"):
                members.append((key, self._member()))
            elif kind == "word":
                members.append((key, _field(lambda root: root, key)))
            else:
                _leave()
        return lambda root: {key: evaluate(root) for key, evaluate in members}

    def _member(self) -> Evaluate:
        """The value of a member of an object is a term, not a whole expression."""
        return _leave() if self._peek() == "-" else self._term()

    def _array(self) -> Evaluate:
        if self._takes("]"):
            return lambda _root: []
        items = [self._alternative()]
        while self._takes(","):
            items.append(self._alternative())
        self._expect("]")
        return lambda root: [evaluate(root) for evaluate in items]


def _constant(value: Any) -> Evaluate:
    return lambda _root: value


def _piped(left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda root: right(left(root))


def _or(left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda root: _is_true(left(root)) or _is_true(right(root))


def _and(left: Evaluate, right: Evaluate) -> Evaluate:
    return lambda root: _is_true(left(root)) and _is_true(right(root))


def _field(inner: Evaluate, name: str) -> Evaluate:
    def evaluate(root: Any) -> Any:
        value = inner(root)
        if value is None:
            return None
        return value.get(name) if isinstance(value, dict) else _leave()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

    return evaluate


def _item(inner: Evaluate, index: int) -> Evaluate:
    def evaluate(root: Any) -> Any:
        value = inner(root)
        if value is None:
            return None
        if not isinstance(value, list):
            _leave()
        items = cast("list[Any]", value)
        return items[index] if -len(items) <= index < len(items) else None

    return evaluate


def _combined(sign: str, left: Evaluate, right: Evaluate) -> Evaluate:
    def evaluate(root: Any) -> Any:
        one, other = left(root), right(root)
        if type(one) is int and type(other) is int:
            _require_exact(one)
            _require_exact(other)
            return one + other if sign == "+" else one - other
        if sign == "+" and isinstance(one, str) and isinstance(other, str):
            return one + other if len(one) + len(other) <= _TEXT_LIMIT else _leave()
        _leave()

    return evaluate


def _length(root: Any) -> int:
    return 0 if root is None else len(root) if isinstance(root, str | list | dict) else _leave()  # pyright: ignore[reportUnknownArgumentType]


def _name(text: str) -> str:
    return text[1:].strip('"')


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() else value


def _is_true(value: Any) -> bool:
    return value is not None and value is not False


def _rank(value: Any) -> int:
    """The place of a value's type in the order of all values."""
    match value:
        case None:
            return 0
        case bool():
            return 1 + value
        case int() | float():
            _require_exact(value)
            return 3
        case str():
            return 4
        case list():
            return 5
        case dict():
            return 6
        case _:
            _leave()


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list | dict):
        _require_exact(one, _COMPARED_LIMIT)
    return _equal(one, other)


def _equal(one: Any, other: Any) -> bool:
    rank = _rank(one)
    if rank != _rank(other):
        return False
    match rank:
        case 3 | 4:
            return one == other
        case 5:
            return len(one) == len(other) and all(map(_equal, one, other))
        case 6:
            return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
        case _:
            return True


def _ordered(sign: str, one: Any, other: Any) -> bool:
    ranks = _rank(one), _rank(other)
    if ranks[0] != ranks[1] or ranks[0] < 3:
        one, other = ranks
    elif ranks[0] > 4:
        _leave()
    match sign:
        case "<":
            return one < other
        case "<=":
            return one <= other
        case ">":
            return one > other
        case _:
            return one >= other


def _require_exact(value: Any, most: int = _MEMBERS_LIMIT) -> None:
    """Leave where a value is large, or a number in it is not the same after jq has read and written it."""
    left, room, chars = [value], most, _CHARS_LIMIT
    while left:
        room -= 1
        one = left.pop()
        match one:
            case bool() | None:
                pass
            case str():
                chars -= len(one)
            case int():
                if abs(one) > _EXACT:
                    _leave()
            case float():
                if not math.isfinite(one) or one.is_integer():
                    _leave()
            case list():
                items = cast("list[Any]", one)
                left += items if len(items) <= room else _leave()
            case dict():
                members = cast("dict[Any, Any]", one)
                if len(members) > room or not all([isinstance(key, str) for key in members]):
                    _leave()
                chars -= sum(map(len, members))
                left += members.values()
            case _:
                _leave()
        if len(left) > room or chars < 0:
            _leave()
