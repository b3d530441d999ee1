"""A route of the operator's API. The method that answers it declares it, by its types and its docstring."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar, get_type_hints

from msgspec import Struct

from trunkline.auth.principal import Scope as AuthScope
from trunkline.fleet.call import ApiCall, ApiQuery
from trunkline.http.asgi import Receive, Scope, Send

MethodT = TypeVar("MethodT", bound=Callable[..., Awaitable[object]])
# Takes the call, the query as its form has it, and the body as its form has it.
Act = Callable[[ApiCall, Any, Any], Awaitable[object]]
# Takes the call, the query, and the rest of ASGI.
StreamAct = Callable[[ApiCall, Any, Scope, Receive, Send], Awaitable[None]]


class ApiRoute(Struct, frozen=True, kw_only=True):
    """A route by its pattern: who may ask, what it reads, what it does and what it answers.

    One with a `stream` answers by that, and by `act` only whether it would; its `answer` is None. Without a
    `scope` it is public. One whose `body` is bytes is handed it as it came.
    """

    pattern: str
    scope: AuthScope | None
    summary: str
    act: Act
    answer: Any
    query: type[ApiQuery] = ApiQuery
    body: Any = None
    status: int = 200
    stream: StreamAct | None = None


class _Declared(NamedTuple):
    pattern: str
    scope: AuthScope | None
    status: int
    stream: str


def api_route(
    pattern: str, scope: AuthScope | None, *, status: int = 200, stream: str = ""
) -> Callable[[MethodT], MethodT]:
    """Declare that a method answers a route.

    It takes what it needs of the call, the query and the body, in this order; their types say how they are
    read, and the first line of its docstring describes the route to callers. `stream` names the method that
    sends a stream; this one then only says whether it would.
    """

    def declare(method: MethodT) -> MethodT:
        vars(method)["api_route"] = _Declared(pattern, scope, status, stream)
        return method

    return declare


def routes_of(api: object) -> list[ApiRoute]:
    """The routes that the methods of an object declare, in their order."""
    declared = [(name, getattr(one, "api_route", None)) for name, one in vars(type(api)).items()]
    return [_route(api, getattr(api, name), one) for name, one in declared if isinstance(one, _Declared)]


def _route(api: object, method: Callable[..., Awaitable[object]], declared: _Declared) -> ApiRoute:
    hints = get_type_hints(method)
    answer = hints.pop("return")
    query = next((one for one in hints.values() if _is_query(one)), None)
    body = next((one for one in hints.values() if one is not query and one is not ApiCall), None)
    takes = (ApiCall in hints.values(), query is not None, body is not None)

    def act(*given: object) -> Awaitable[object]:
        return method(*[one for one, is_taken in zip(given, takes, strict=True) if is_taken])

    return ApiRoute(
        pattern=declared.pattern,
        scope=declared.scope,
        summary=(inspect.getdoc(method) or "").partition("\n")[0],
        act=act,
        answer=None if declared.stream else answer,
        query=query or ApiQuery,
        body=body,
        status=declared.status,
        stream=getattr(api, declared.stream) if declared.stream else None,
    )


def _is_query(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, ApiQuery)
