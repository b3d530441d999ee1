"""Where an agent's card is, and the card itself: looked for once, kept for a while, then asked if it changed.

Every step is told in words; `explanation` has them.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Awaitable

from trunkline.client.card_places import agents_url, card_places, describes, listed_names, wrong_card
from trunkline.client.http_transport import HttpAnswer
from trunkline.errors import (
    Forbidden,
    RouteNotFound,
    TimedOut,
    TooManyRequests,
    TrunklineError,
    Unauthenticated,
    Unavailable,
    Unreachable,
    Unreadable,
)
from trunkline.net.egress import join, shown, target
from trunkline.net.http import Headers, HttpClient, HttpRequest
from trunkline.wire.peer_card import PeerCard, read_card

log = logging.getLogger("trunkline.client")
LIMIT = 1 << 20
HOPS = 3
TTL_S = 600.0
# For looking in all the places, or asking again in one.
TIMEOUT_S = 15.0
# An old card is kept this long before the agent is asked again that could not be asked.
PATIENCE_S = 30.0
_SAID = 200
_REDIRECTS = {301, 302, 303, 307, 308}
_MAX_AGE = re.compile(r"(?:^|[\s,])max-age\s*=\s*\"?(\d{1,10})", re.IGNORECASE)


class Discovery:
    """The card of one agent. Whoever asks while it is being fetched waits for the same answer.

    The http_client shows credentials where they may be shown; see `credentials.Guarded`.
    """

    def __init__(
        self,
        url: str,
        http_client: HttpClient,
        *,
        card_url: str = "",
        ttl_s: float = TTL_S,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        # A client may live for months.
        self.explanation: deque[str] = deque(maxlen=50)
        # Where the card was found; empty before that.
        self.found_at = ""
        self._places = (card_url,) if card_url else card_places(url)
        # Only a card that was searched for may turn out to describe another agent.
        self._url = "" if card_url else url
        self._http_client = http_client
        self._ttl_s = ttl_s
        self._timeout_s = timeout_s
        self._card: PeerCard | None = None
        self._etag = ""
        self._until = 0.0
        self._asking: asyncio.Future[PeerCard] | None = None

    async def card(self, *, refresh: bool = False) -> PeerCard:
        """The card, fetched if need be; with `refresh` the agent is asked in any case.

        Raises:
            RouteNotFound: there is no card in any place, or only one that describes another agent.
            Unauthenticated: the agent shows it only to callers whom it knows.
            Unreadable: what is there is no card.
            Unreachable: nobody is there.
        """
        loop = asyncio.get_running_loop()
        if self._card is not None and not refresh and loop.time() < self._until:
            return self._card
        while (asking := self._asking) is not None:
            await asyncio.wait([asking])
            if not asking.cancelled():
                return asking.result()
        asking = self._asking = loop.create_future()
        try:
            found = await self._renewed(refresh)
        except TrunklineError as error:
            asking.set_exception(error)
            # It is told here; nobody else needs to have waited for it.
            asking.exception()
            raise
        except BaseException:
            asking.cancel()
            raise
        else:
            asking.set_result(found)
            return found
        finally:
            self._asking = None

    async def _renewed(self, refresh: bool) -> PeerCard:
        known = self._card
        work = self._look() if known is None else self._again(known)
        try:
            return await self._within(work)
        except TrunklineError as error:
            if known is None or refresh:
                raise
            self._until = asyncio.get_running_loop().time() + min(PATIENCE_S, self._ttl_s)
            log.warning("client.card_stale url=%a why=%a", shown(self.found_at), str(error))
            self._tell(self.found_at, f"the card could not be fetched again ({error}); the old one is kept")
            return known

    async def _within(self, work: Awaitable[PeerCard]) -> PeerCard:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await work
        except TimeoutError as error:
            # Ours, or that of whoever sends for us: an old card is kept in both cases.
            message = f"no card from {shown(self._places[0])} within {self._timeout_s:g} seconds"
            raise TimedOut(message, reason="total") from error

    async def _again(self, known: PeerCard) -> PeerCard:
        headers = (("if-none-match", self._etag),) if self._etag else ()
        answer = await self._get(self.found_at, headers)
        if answer.status == 304:
            self._keep(answer)
            self._tell(self.found_at, "the card has not changed")
            return known
        if answer.status in (404, 405, 410):
            self._tell(self.found_at, f"HTTP {answer.status}; the card is looked for again")
            return await self._look()
        card = self._read(self.found_at, answer)
        if card is None:
            raise Unreadable(self.explanation[-1])
        if not self._accept(self.found_at, answer, card):
            raise await self._refusal(answer.url, card)
        return card

    async def _look(self) -> PeerCard:
        other: tuple[str, PeerCard] | None = None
        for place in self._places:
            try:
                answer = await self._get(place, ())
                card = self._read(place, answer)
            except TrunklineError:
                if other is None:
                    raise
                break
            if card is not None and self._accept(place, answer, card):
                return card
            if card is not None:
                other = other or (answer.url, card)
        if other is not None:
            raise await self._refusal(*other)
        raise RouteNotFound(
            f"no agent card is there; asked: {'; '.join([*self.explanation][-len(self._places) :])}"
        )

    def _read(self, place: str, answer: HttpAnswer) -> PeerCard | None:
        """Return the card in an answer, or None if it has none; the explanation records either."""
        if answer.status != 200:
            self._tell(place, f"HTTP {answer.status}")
            self._stop(place, answer)
            return None
        try:
            return read_card(answer.body)
        except Unreadable as error:
            self._tell(place, str(error))
            if len(self._places) == 1:
                raise
            return None

    def _accept(self, place: str, answer: HttpAnswer, card: PeerCard) -> bool:
        """Keep a card if it describes the agent that was searched for, and return whether it does."""
        name = card.name[:_SAID]
        # The answer's URL, not the place: a host may redirect each unknown path to the card at its origin.
        if self._url and not describes(card, answer.url, self._url):
            self._tell(answer.url, f"the card of {name!r}, which is another agent")
            return False
        self._card = card
        self.found_at = place
        self._etag = answer.headers.get("etag", "")
        self._keep(answer)
        self._tell(place, f"the card of {name!r}")
        return True

    async def _refusal(self, place: str, card: PeerCard) -> RouteNotFound:
        """Return the error for a card of another agent, with names from the list of its hub if it has one."""
        try:
            answer = await self._get(agents_url(place), ())
        except TrunklineError:
            return wrong_card(card, place, self._url)
        return wrong_card(card, place, self._url, listed_names(answer.body))

    def _stop(self, place: str, answer: HttpAnswer) -> None:
        """Raise where the other places would say the same."""
        if answer.status == 401:
            asked = answer.headers.get("www-authenticate", "")[:_SAID]
            how = f" ({asked})" if asked and asked.isprintable() else ""
            raise Unauthenticated(
                f"{shown(place)} shows the card only to callers it knows{how}; give api_key=… or bearer=…"
            )
        if answer.status == 403:
            raise Forbidden(f"{shown(place)}: this caller may not see the card")
        if answer.status == 429:
            wait = answer.headers.get("retry-after", "")
            raise TooManyRequests(
                f"{shown(place)}: too many requests",
                retry_after_s=min(float(wait), 3600.0) if wait.isdecimal() else 1.0,
            )
        if answer.status in (502, 503, 504):
            raise Unavailable(f"{shown(place)}: HTTP {answer.status}; the agent is not there now")

    def _keep(self, answer: HttpAnswer) -> None:
        """Good for as long as the agent says, but not for longer than the operator does."""
        said = answer.headers.get("cache-control", "")
        lasts = self._ttl_s
        if "no-cache" in said or "no-store" in said:
            lasts = 0.0
        elif found := _MAX_AGE.search(said):
            lasts = min(lasts, float(found[1]))
        self._until = asyncio.get_running_loop().time() + lasts

    async def _get(self, url: str, headers: Headers) -> HttpAnswer:
        for _ in range(HOPS + 1):
            # Without A2A-Version: who knows the header answers with a card for every version.
            request = HttpRequest("GET", url, (("accept", "application/json"), *headers))
            reply = await self._http_client.open(request)
            try:
                location = reply.headers.get("location", "")
                if reply.status not in _REDIRECTS or not location:
                    return HttpAnswer(reply.status, reply.headers, await reply.read(LIMIT), url)
            finally:
                await reply.close()
            following = join(url, location)
            # Invariant: a card comes from the configured origin, so that its host opens no other port.
            if target(following).origin != target(url).origin:
                raise Unreachable(
                    f"{shown(url)} redirects to {target(following).origin}, which is another origin; "
                    "configure the URL that it redirects to if the agent is there",
                    reason="refused",
                )
            self._tell(url, f"HTTP {reply.status}, on to {shown(following)}")
            url = following
        raise Unreachable(f"{shown(url)}: redirects more than {HOPS} times", reason="refused")

    def _tell(self, place: str, what: str) -> None:
        self.explanation.append(f"{shown(place)}: {what}")
