"""How a request to a route of the operator's API is read and answered."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trunkline.auth.principal import tenant_of
from trunkline.fleet.call import ApiCall, ApiQuery, NoBody, key_of, read_body, read_form
from trunkline.fleet.route import ApiRoute
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.http.exchange import JSON, read_query
from trunkline.http.mounts import WEBSOCKET


async def answer_route(routes: Mapping[str, ApiRoute], scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request by the route that the door has found for it; its body is read.

    Raises:
        Refused: it cannot be done as asked.
        StoreError: the store does not answer.
    """
    # A WebSocket tells what the same path streams otherwise.
    route = routes[scope["trunkline.route"].replace(WEBSOCKET, "GET")]
    query = read_form(read_query(scope["query_string"]), route.query)
    call = _call(scope, route, query)
    is_head = scope.get("method") == "HEAD"
    if route.stream is not None and not is_head:
        await route.stream(call, query, scope, receive, send)
        return
    body = (await receive())["body"]
    form = body if route.body is bytes else read_body(body, route.body or NoBody)
    answer = msgspec.json.encode(await route.act(call, query, form))
    kind, length = (JSON, len(answer)) if route.stream is None else (b"text/event-stream", 0)
    headers = [
        (b"content-type", kind),
        (b"cache-control", b"no-store"),
        (b"content-length", b"%d" % length),
    ]
    await send({"type": "http.response.start", "status": route.status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if is_head else answer, "more_body": False})


def _call(scope: Scope, route: ApiRoute, query: ApiQuery) -> ApiCall:
    principal = scope["trunkline.principal"]
    below = (scope["path"].removeprefix(scope["root_path"]) or "/").split("/")
    wanted = route.pattern.partition(" ")[2].split("/")
    named = [text for name, text in zip(wanted, below, strict=True) if name.startswith("{")]
    headers = scope["headers"]
    return ApiCall(principal, tenant_of(principal, query.tenant), "".join(named), key_of(headers), headers)
