"""A client of workflows over REST: the seven operations, registered definitions and rows, as objects."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from urllib.parse import quote, urlencode

import msgspec

from trunkline.client.http_transport import JSON, answered
from trunkline.client.transport import Call
from trunkline.errors import FlowRefused, Unreachable
from trunkline.net.http import Headers, HttpClient, HttpRequest

TIMEOUT_S = 120.0
_VERBS = frozenset({"resume", "submit_activity", "signal", "cancel"})
_encode = msgspec.json.Encoder().encode


class FlowClient:
    """The workflows of a server at a base address; whoever gave the HTTP client closes it."""

    def __init__(
        self, url: str, http_client: HttpClient, headers: Headers = (), *, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._url = url.rstrip("/")
        self._http_client = http_client
        self._headers = headers
        self._timeout_s = timeout_s

    async def call(self, operation: str, given: dict[str, Any]) -> dict[str, Any]:
        """Call one of the seven operations; see `Control`.

        Raises:
            FlowRefused: it was refused, or the run failed; the code says why.
        """
        if operation == "start":
            return await self._ask("POST", "/v1/executions", given)
        if operation == "list":
            query = {name: str(value) for name, value in given.items() if value is not None}
            return await self._ask("GET", f"/v1/executions?{urlencode(query)}")
        rest = {name: value for name, value in given.items() if name != "execution_id"}
        path = _run(given.get("execution_id", ""))
        if operation in _VERBS:
            return await self._ask("POST", f"{path}:{operation}", rest)
        return await self._ask("GET", path)

    async def register(self, definition: dict[str, Any]) -> str:
        """Have a definition registered; gives its id.

        Raises:
            FlowRefused: it breaks a rule, or its name is taken.
        """
        return (await self._ask("POST", "/v1/workflows", {"definition": definition}))["wf_id"]

    async def definition(self, workflow_id: str) -> dict[str, Any]:
        """A definition that is registered.

        Raises:
            FlowRefused: there is none of this id.
        """
        return (await self._ask("GET", f"/v1/workflows/{quote(workflow_id, safe='')}"))["definition"]

    async def start(self, workflow_id: str, given: dict[str, Any]) -> dict[str, Any]:
        """Start a run of a definition that is registered; `given` holds its input, and what else a start has.

        Raises:
            FlowRefused: it was refused, or the run failed.
        """
        return await self._ask("POST", f"/v1/workflows/{quote(workflow_id, safe='')}/executions", given)

    async def events(self, execution_id: str, from_seq: int = 1, limit: int = 100) -> dict[str, Any]:
        """A page of the rows of a run.

        Raises:
            FlowRefused: there is no such run.
        """
        query = urlencode({"from_seq": from_seq, "limit": limit})
        return await self._ask("GET", f"{_run(execution_id)}/events?{query}")

    async def _ask(self, method: str, path: str, given: dict[str, Any] | None = None) -> dict[str, Any]:
        body = None if given is None else _encode(given)
        headers = (("accept", JSON), ("content-type", JSON), *self._headers)
        request = HttpRequest(method, f"{self._url}{path}", headers, body)
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await answered(self._http_client, request, Call())
        except TimeoutError:
            raise Unreachable(f"no answer within {self._timeout_s:g} seconds", reason="timeout") from None
        try:
            told = msgspec.json.decode(answer.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            told = None
        if not isinstance(told, dict):
            raise FlowRefused("INTERNAL_ERROR", f"the server answered HTTP {answer.status} without JSON")
        found = cast("dict[str, Any]", told)
        if answer.ok:
            return found
        error = found.get("error")
        said = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
        code, message = said.get("code") or "INTERNAL_ERROR", said.get("message") or f"HTTP {answer.status}"
        raise FlowRefused(str(code), str(message), cast("dict[str, Any]", said.get("details") or {}))


def _run(execution_id: str) -> str:
    # The host takes no escaped slash: one within an id is written as it is.
    return f"/v1/executions/{quote(execution_id, safe='/')}"
