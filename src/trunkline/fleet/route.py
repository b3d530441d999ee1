"""A route of the operator's API; each resource makes a list of its own, bound to the part that answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from trunkline.auth.principal import Scope as AuthScope
from trunkline.fleet.call import ApiCall, ApiQuery
from trunkline.http.asgi import Receive, Scope, Send

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
