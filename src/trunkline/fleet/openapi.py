"""The description of the operator's API, made from its routes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from trunkline.auth.principal import Scope
from trunkline.wire.problem import Problem

_JSON = "application/json"


class DescribedRoute(Protocol):
    """A route of the API as its OpenAPI document describes it."""

    @property
    def pattern(self) -> str:
        """The method and the path of the route."""
        ...

    @property
    def summary(self) -> str:
        """One sentence that says what the route does."""
        ...

    @property
    def answer(self) -> Any:
        """The type of its answer; None for a stream."""
        ...

    @property
    def query(self) -> type[Struct]:
        """The form of its query."""
        ...

    @property
    def body(self) -> type[Struct] | None:
        """The form of its body, if it has one."""
        ...


def describe(routes: Sequence[DescribedRoute], scopes: Mapping[str, Scope], prefix: str) -> dict[str, Any]:
    """An OpenAPI 3.1 document over these routes."""
    types = [Problem, *[one.query for one in routes]]
    types += [kind for one in routes for kind in (one.answer, one.body) if kind is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in routes:
        verb, path = one.pattern.split()
        query = components[one.query.__name__]["properties"]
        kind = "text/event-stream" if one.answer is None else _JSON
        answer = {kind: {"schema": {"type": "string"} if one.answer is None else by_type[one.answer]}}
        named = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
        told: dict[str, Any] = {
            "summary": one.summary,
            "description": f"Needs the scope {scopes[one.pattern].value}, or admin.",
            "parameters": [
                *(named if "{id}" in path else []),
                *[{"name": name, "in": "query", "schema": schema} for name, schema in query.items()],
            ],
            "responses": {
                "200": {"description": "OK", "content": answer},
                "default": {
                    "description": "Refused",
                    "content": {"application/problem+json": {"schema": by_type[Problem]}},
                },
            },
        }  # fmt: skip
        if one.body is not None:
            told["requestBody"] = {"required": True, "content": {_JSON: {"schema": by_type[one.body]}}}
        paths.setdefault(prefix + path, {})[verb.lower()] = told
    return {
        "openapi": "3.1.0",
        "info": {"title": "The operator's API of Trunkline", "version": "1"},
        "paths": paths,
        "components": {"schemas": components},
    }
