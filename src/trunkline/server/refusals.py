"""How a request that is refused is answered and logged."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from math import ceil
from typing import TypeVar

from msgspec import Struct

from trunkline import errors
from trunkline.auth.identity import Identity
from trunkline.http.exchange import Disconnected, Exchange, Headers
from trunkline.http.mounts import RefusalWriter
from trunkline.server import rest
from trunkline.telemetry.traces import TraceSeen
from trunkline.wire.codes import code_of, reason_of
from trunkline.wire.writer import Dialect

log = logging.getLogger("trunkline.server")
Given = TypeVar("Given")


class Refusals(Struct, frozen=True):
    """Answers what is refused in the shape of REST, with the headers that belong to it."""

    _identity: Identity

    def guard(
        self,
        operation: str,
        handler: Callable[[Exchange, TraceSeen], Awaitable[Given]],
        dialect: Dialect = Dialect.V1,
    ) -> Callable[[Exchange, TraceSeen], Awaitable[Given | None]]:
        """A handler that raises what is wrong with a request, as one that answers it; it is counted so."""

        async def guarded(exchange: Exchange, seen: TraceSeen) -> Given | None:
            seen.operation = operation
            try:
                return await handler(exchange, seen)
            except Exception as error:  # noqa: BLE001 - logged with a reason id; the caller gets that id
                await self.answer(exchange, seen, refusal_of(error), dialect)
                return None

        return guarded

    async def answer(
        self, exchange: Exchange, seen: TraceSeen, refused: errors.Refused, dialect: Dialect
    ) -> None:
        """Say what is wrong, in the words of a dialect."""
        await self.answer_by(self.writer(exchange, dialect), exchange, seen, refused)

    def writer(self, exchange: Exchange, dialect: Dialect = Dialect.V1) -> RefusalWriter:
        """What writes a refusal in the words of a dialect."""
        kind = rest.media_type(exchange, dialect)
        return lambda refused: (*rest.error(refused, dialect), kind)

    async def answer_by(
        self,
        write: RefusalWriter,
        exchange: Exchange,
        seen: TraceSeen,
        refused: errors.Refused,
        *,
        more: Headers = (),
    ) -> None:
        """Say what is wrong as somebody else writes it, with headers of theirs beside ours."""
        note(exchange, seen, refused)
        status, body, media_type = write(refused)
        await exchange.respond(status, body, media_type, [*self.headers(refused), *more])

    def headers(self, refused: errors.Refused) -> Headers:
        """What HTTP wants said beside the status."""
        if isinstance(refused, errors.Unauthenticated):
            return [(b"www-authenticate", self._identity.challenge)]
        if isinstance(refused, errors.RouteNotFound) and refused.allow:
            return [(b"allow", refused.allow.encode())]
        if isinstance(refused, errors.Unavailable):
            return [(b"retry-after", b"1")]
        if isinstance(refused, errors.TooManyRequests):
            return [(b"retry-after", b"%d" % max(1, ceil(refused.retry_after_s)))]
        return ()


def note(exchange: Exchange, seen: TraceSeen, refused: errors.Refused) -> None:
    """Log a refusal, and count it by its reason."""
    # No text of the refusal: it may quote the caller. The reason and the field are ours; a path is
    # written in ASCII with escapes, or a line end in it would forge a line of the log.
    seen.outcome = code_of(refused).reason
    if isinstance(refused, errors.TooManyRequests):
        # Who counts them says so once a second: there may be very many.
        return
    log.info(
        "request.refused path=%a reason=%s field=%s", exchange.path[:64], reason_of(refused), refused.field
    )


def refusal_of(error: Exception) -> errors.Refused:
    """What a caller hears of what was raised: a refusal as it is, little of a failure; the log has the rest.

    Raises:
        Disconnected: it is that; nobody is there to hear.
    """
    if isinstance(error, Disconnected):
        try:
            raise error
        finally:
            # Its traceback leads to this frame, a circle that keeps what has come of the body in memory until
            # somebody collects garbage.
            del error
    if isinstance(error, errors.Refused):
        return error
    if isinstance(error, errors.StoreError) and error.damaged_task:
        log.error("task.damaged task=%s error=%s", error.damaged_task, error)
        return errors.InternalError("the log of this task is damaged and cannot be read")
    if isinstance(error, errors.StoreError) and error.damage:
        log.error("document.unread error=%s", error)
        return errors.InternalError(str(error))
    if isinstance(error, errors.StoreError):
        log.error("store.failed error=%s", error)
        return errors.Unavailable("the store cannot answer now; try again")
    log.error("request.broke", exc_info=error)
    return errors.InternalError("something broke on our side; the log has it")
