"""The description of the operator's API, made from its routes. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from trunkline.fleet.route import ApiRoute
from trunkline.wire.codes import Problem

_JSON = "application/json"
_NAMED = re.compile(r"\{(\w+)\}")


def describe(routes: Sequence[ApiRoute], prefix: str) -> dict[str, Any]:
    """An OpenAPI 3.1 document over these routes."""
    types = [Problem, *[one.query for one in routes]]
    types += [kind for one in routes for kind in (one.answer, one.body) if kind not in (None, bytes)]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in routes:
        verb, path = one.pattern.split()
        query = components[one.query.__name__]["properties"]
        kind = "text/event-stream" if one.answer is None else _JSON
        answer = {kind: {"schema": {"type": "string"} if one.answer is None else by_type[one.answer]}}
        told: dict[str, Any] = {
            "summary": one.summary,
            "description": _needs(one),
            "parameters": [
                *[
                    {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                    for name in _NAMED.findall(path)
                ],
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
            schema: dict[str, Any] = {"type": "object"} if one.body is bytes else by_type[one.body]
            told["requestBody"] = {"required": True, "content": {_JSON: {"schema": schema}}}
        paths.setdefault(prefix + path, {})[verb.lower()] = told
    return {
        "openapi": "3.1.0",
        "info": {"title": "The operator's API of Trunkline", "version": "1"},
        "paths": paths,
        "components": {"schemas": components},
    }


def _needs(route: ApiRoute) -> str:
    if route.scope is None:
        return "Needs the token that came with the push config."
    return f"Needs the scope {route.scope.value}, or admin."
