"""How much a schema has checked of a value. Pure.

Nothing ends the check of a schema that was begun, and everybody waits for it; alternatives of alternatives
multiply. So whatever may take long is counted before it is begun.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

import msgspec

# How many schemas may be held against a value and all of its members: some tenths of a second.
CHECKS_LIMIT = 20_000_000
# The same where each of them is counted, and what one counts for whose pattern looks back or ahead.
COUNTED_LIMIT = 200_000
PATTERN_COST = 200
# So many characters cost a pattern as much as one schema counts: where each is counted, and where none is.
_COUNTED_CHARS = 100
_CHARS = 2
# One that looks back or ahead may look at all of a text from each place in it: so many looks are one.
_LOOKS = 1000
# One that lists much counts as several: so many listed values are compared in the time of one check.
_LISTED = 16
_SAME = ("not", "if", "then", "else", "allOf", "anyOf", "oneOf")
_SAME_NAMED = ("dependentSchemas", "dependencies")
_OF_OBJECTS = ("additionalProperties", "unevaluatedProperties")
_OF_LISTS = ("items", "additionalItems", "contains", "unevaluatedItems")
# What leads elsewhere than a plain reference does.
_ELSEWHERE = ("$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor")
Json = dict[str, Any]
_PATTERN: Json = {"pattern": ""}


class SchemaCost:
    """What one schema costs; `is_quick` says that none of its patterns looks back or ahead."""

    def __init__(self, schema: Json | bool, *, is_quick: bool) -> None:
        """Look at a schema.

        Raises:
            ValueError: what it refers to cannot be followed; says what.
        """
        self._root: Json = {} if isinstance(schema, bool) else schema
        # By the identities of schemas, which the root keeps.
        self._sizes: dict[int, int] = {}
        self._parts: dict[int, _Parts] = {}
        self._is_quick = is_quick
        self._has_patterns = False
        try:
            # None where it has no end, as it holds itself.
            self._size = self._counted(self._root)
        except RecursionError:
            raise ValueError("its references lead too deep") from None

    def allows(self, value: object, share: int = 1) -> bool:
        """Whether a value may be checked: that takes no longer than a share of what others may wait."""
        counted = COUNTED_LIMIT // share
        if self._size is None or not self._is_quick:
            return self._steps(value) <= counted
        most = CHECKS_LIMIT // share // self._size
        # A value has fewer members than bytes; only of a large one they have to be counted.
        if len(msgspec.json.encode(value)) <= most or _members_of(value, most, self._has_patterns) <= most:
            return True
        # Its long texts may be where no pattern is.
        return self._has_patterns and self._steps(value) <= counted

    def _counted(self, schema: Json) -> int | None:
        """How many schemas there are with each reference in its place; None where there is no end of them."""
        place = id(schema)
        if place in self._sizes:
            # 0 where it is being counted: it holds itself.
            return self._sizes[place] or None
        self._sizes[place] = 0
        parts = self._read(schema)
        held = (*parts.same, *parts.names, *parts.own.values(), *parts.others, *parts.first, *parts.rest)
        # All are looked at, also where there is no end: so each of them can be followed.
        sizes = [self._counted(one) for one in held]
        known = [size for size in sizes if size is not None]
        if len(known) < len(sizes):
            return None
        # Which members were looked at, it has to find out once more.
        twice = any(one in schema for one in ("unevaluatedProperties", "unevaluatedItems"))
        self._sizes[place] = found = (parts.weight + sum(known)) * (1 + twice)
        return found

    def _read(self, schema: Json) -> _Parts:
        found = self._parts.get(id(schema))
        if found is not None:
            return found
        if any(name in schema for name in _ELSEWHERE) or ("$id" in schema and schema is not self._root):
            raise ValueError("it refers by other means than #/ and a path")
        same = [one for name in _SAME for one in _listed(schema, name)]
        same += [one for name in _SAME_NAMED for one in _named(schema, name).values()]
        if isinstance(ref := schema.get("$ref"), str) and isinstance(referred := self._referred(ref), dict):
            same.append(cast("Json", referred))
        patterned = list(_named(schema, "patternProperties").values())
        self._has_patterns |= "pattern" in schema or "patternProperties" in schema
        found = self._parts[id(schema)] = _Parts(
            weight=_weight(schema),
            same=same,
            # A pattern for names is held against each of them.
            names=[*_listed(schema, "propertyNames"), *[_PATTERN for _ in patterned]],
            own=_named(schema, "properties"),
            others=[*patterned, *[one for name in _OF_OBJECTS for one in _listed(schema, name)]],
            first=_listed(schema, "prefixItems"),
            rest=[one for name in _OF_LISTS for one in _listed(schema, name)],
        )
        return found

    def _referred(self, ref: str) -> Any:
        at: Any = self._root
        if not ref.startswith("#/") and ref != "#":
            raise ValueError(
                f"{ref[:80]!r} is no reference to a path of its own; give one such as #/$defs/name"
            )
        for step in unquote(ref).split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if isinstance(at, list) and name.isdecimal() and int(name) < len(cast("list[Any]", at)):
                at = cast("list[Any]", at)[int(name)]
            elif isinstance(at, dict) and name in at and (at is self._root or "$id" not in at):
                at = cast("Json", at)[name]
            else:
                raise ValueError(f"{ref[:80]!r} leads nowhere, or cannot be followed")
        return at

    def _steps(self, value: object) -> int:
        """How many schemas are held against a value and its members, as far as that is allowed."""
        steps, left = 0, [(self._root, value)]
        while left and steps <= COUNTED_LIMIT:
            schema, one = left.pop()
            parts = self._read(schema)
            steps += parts.weight
            if isinstance(one, str) and "pattern" in schema:
                steps += self._pattern_steps(len(one))
            left += [(inner, one) for inner in parts.same]
            # Each of them counts: of more than are allowed the rest need not be known.
            left += islice(parts.below(one), COUNTED_LIMIT + 1)
        return steps

    def _pattern_steps(self, length: int) -> int:
        return length // _COUNTED_CHARS if self._is_quick else PATTERN_COST + length * length // _LOOKS


class _Parts(NamedTuple):
    """What a schema holds against the value itself, its names, its members and its items."""

    weight: int
    same: list[Json]
    names: list[Json]
    own: dict[str, Json]
    others: list[Json]
    first: list[Json]
    rest: list[Json]

    def below(self, value: object) -> Iterator[tuple[Json, object]]:
        """The schemas that are held against the members of a value, each with its member."""
        if isinstance(value, dict) and (self.names or self.own or self.others):
            for name, member in cast("Json", value).items():
                for one in self.names:
                    yield one, name
                if (named := self.own.get(name)) is not None:
                    yield named, member
                for one in self.others:
                    yield one, member
        elif isinstance(value, list) and (self.first or self.rest):
            for place, item in enumerate(cast("list[object]", value)):
                for one in (*self.first[place : place + 1], *self.rest):
                    yield one, item


def _listed(schema: Json, name: str) -> list[Json]:
    """The schema, or the schemas of a list, that a keyword has; `true` and `false` cost nothing."""
    inner: Any = schema.get(name)
    found = cast("list[Any]", inner) if isinstance(inner, list) else [inner]
    return [cast("Json", one) for one in found if isinstance(one, dict)]


def _named(schema: Json, name: str) -> dict[str, Json]:
    """The schemas that a keyword has by name."""
    inner: Any = schema.get(name)
    found = cast("Json", inner).items() if isinstance(inner, dict) else ()
    return {key: cast("Json", one) for key, one in found if isinstance(one, dict)}


def _weight(schema: Json) -> int:
    listed: list[Any] = [schema.get(name) for name in ("enum", "required", "type")]
    needing: Any = schema.get("dependentRequired")
    # Each of its names is looked for in each value.
    needed: list[Any] = [*cast("Json", needing).values()] if isinstance(needing, dict) else []
    count = sum([len(cast("list[Any]", one)) for one in (*listed, *needed) if isinstance(one, list)])
    return 1 + len(needed) + count // _LISTED


def _members_of(value: object, most: int, with_texts: bool) -> int:
    """How many values there are in a value, itself included, as far as that is allowed.

    With its texts, these count by their length, and names too.
    """
    found, left = 0, [value]
    while left and found <= most:
        one = left.pop()
        found += 1
        if isinstance(one, dict):
            left += cast("Json", one).values()
            if with_texts:
                found += sum(map(len, cast("Json", one))) // _CHARS
        elif isinstance(one, list):
            left += cast("list[object]", one)
        elif with_texts and isinstance(one, str):
            found += len(one) // _CHARS
    return found
