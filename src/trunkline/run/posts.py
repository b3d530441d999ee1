"""What the courier needs of the world outside: somebody who posts, and somebody who knows when not to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Answer(Protocol):
    """What a receiver said."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> dict[str, str]:
        """Its headers, by names in lower case."""
        ...


class Posts(Protocol):
    """The way out."""

    async def post(self, url: str, body: bytes, headers: Sequence[tuple[str, str]]) -> Answer:
        """Post and read the answer.

        Raises:
            Unreachable: nobody answered, or nobody may be asked.
        """
        ...


class Trips(Protocol):
    """Which lanes are not worth trying now."""

    def busy(self, now: float) -> list[str]:
        """Lanes that nothing may be sent on."""
        ...

    def allows(self, lane: str, now: float) -> bool:
        """Whether something may; on a lane that was down, whoever asks first tries it for the others."""
        ...

    def succeeded(self, lane: str) -> None:
        """The other side is up."""
        ...

    def failed(self, lane: str, now: float) -> bool:
        """The other side is down; whether this was the time too many, or one try too early."""
        ...
