"""The way out, made when somebody first goes it: what it stands on takes long to load.

An agent that pushes nothing never loads it; one that does loads it in a thread, beside its other work.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trunkline.net.outbound import Answer, Outbound


class Way:
    """An `Outbound` that is not there before it is needed."""

    def __init__(self, make: Callable[[], Outbound]) -> None:
        self._make = make
        self._made: Future[Outbound] | None = None

    async def _out(self) -> Outbound:
        if self._made is None:
            self._made = asyncio.get_running_loop().run_in_executor(None, self._make)
            self._made.add_done_callback(self._check)
        # Whoever gives up waiting must not take it from the others.
        return self._made.result() if self._made.done() else await asyncio.shield(self._made)

    def _check(self, made: Future[Outbound]) -> None:
        if made.cancelled() or made.exception() is not None:
            # Whoever waits is told; the next one tries again.
            self._made = None

    async def open(self) -> None:
        """Make it now, for whoever wants to know at once what is wrong with it."""
        await self._out()

    async def check(self, url: str) -> None:
        """Let an address pass if it could be called now.

        Raises:
            Unreachable: it could not.
        """
        await (await self._out()).check(url)

    async def post(self, url: str, body: bytes, headers: Sequence[tuple[str, str]]) -> Answer:
        """See `Outbound`."""
        return await (await self._out()).post(url, body, headers)

    async def get(self, url: str) -> Answer:
        """See `Outbound`."""
        return await (await self._out()).get(url)

    async def close(self) -> None:
        """Let go of every connection."""
        if self._made is not None:
            await (await self._out()).close()
