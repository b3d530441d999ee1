"""An HTTP client whose answers are written down, and that remembers what it was asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from trunkline.errors import Unreachable
from trunkline.net.http import HttpRequest

Answer = tuple[int, Any]


class WrittenResponse:
    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.headers: dict[str, str] = {}
        self._body = body

    async def read(self, limit: int, *, idle_s: float | None = None) -> bytes:
        return self._body

    def chunks(self, *, idle_s: float | None = None) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        pass


class WrittenClient:
    """Gives answers in turn, the last one for ever; a text is sent as it is, None is nobody there."""

    def __init__(self, *answers: Answer | None, each: Callable[[HttpRequest], Answer] | None = None) -> None:
        self._answers = list(answers)
        self._each = each
        self.asked: list[HttpRequest] = []

    async def open(self, request: HttpRequest) -> WrittenResponse:
        self.asked.append(request)
        if self._each is not None:
            answer: Answer | None = self._each(request)
        else:
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is None:
            raise Unreachable("nobody answers there", reason="connect")
        status, body = answer
        return WrittenResponse(status, body.encode() if isinstance(body, str) else msgspec.json.encode(body))

    async def close(self) -> None:
        pass

    def body(self, index: int) -> Any:
        return msgspec.json.decode(self.asked[index].body or b"")

    def header(self, index: int, name: str) -> str:
        return dict(self.asked[index].headers).get(name, "")
