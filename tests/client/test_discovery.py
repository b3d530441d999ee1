"""Where cards are found, how long they are kept, and what is said when there is none."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from tests.client.web import Asked, Page, Web
from tests.net.targets import Call, names, site
from trunkline.client.credentials import Bearer, Guarded
from trunkline.client.discovery import LIMIT, Discovery
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
from trunkline.net.egress import Egress
from trunkline.net.http_client import SocketHttpClient

HOST = "https://agent.example"
NEW, OLD = f"{HOST}/.well-known/agent-card.json", f"{HOST}/.well-known/agent.json"
CARD = b'{"name":"scribe","url":"https://agent.example/a2a","protocolVersion":"0.3.0"}'
FOUND = Page(200, CARD)
WELL_KNOWN = ("/.well-known/agent-card.json", "/.well-known/agent.json", "/agent-card.json")


def run(work: Any) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(60):
            return await work()

    return asyncio.run(main())


def found(pages: dict[str, Any], url: str = HOST, **options: Any) -> tuple[Web, Discovery]:
    """What was asked when the card was looked for."""

    async def work() -> tuple[Web, Discovery]:
        web = Web(pages)
        discovery = Discovery(url, web, **options)
        assert (await discovery.card()).name == "scribe"
        return web, discovery

    return run(work)


def test_both_well_known_paths_and_no_more_requests_than_needed() -> None:
    web, discovery = found({NEW: FOUND, OLD: FOUND})
    assert web.urls == [NEW]
    assert web.asked[0].headers["accept"] == "application/json"
    assert "a2a-version" not in web.asked[0].headers
    assert discovery.found_at == NEW
    assert [*discovery.explanation] == [f"{NEW}: the card of 'scribe'"]
    web, discovery = found({OLD: FOUND})
    assert web.urls == [NEW, OLD]
    assert [*discovery.explanation] == [f"{NEW}: HTTP 404", f"{OLD}: the card of 'scribe'"]


def test_a_card_at_an_odd_place() -> None:
    assert (
        found({f"{HOST}/v1/x/agent-card.json": FOUND}, f"{HOST}/v1/x")[0].urls[-1]
        == f"{HOST}/v1/x/agent-card.json"
    )
    assert found({f"{HOST}/c.json": FOUND}, f"{HOST}/c.json")[0].urls == [f"{HOST}/c.json"]
    other = "https://cards.example/one"
    assert found({other: FOUND}, card_url=other)[0].urls == [other]


def test_a_page_that_is_no_card_is_passed_over() -> None:
    """Some sites answer every path with their front page."""
    web, discovery = found({NEW: Page(200, b"<html>welcome"), OLD: FOUND})
    assert web.urls == [NEW, OLD]
    assert "no agent card" in discovery.explanation[0]


def test_no_card_anywhere_lists_what_was_asked() -> None:
    with pytest.raises(RouteNotFound) as error:
        found({NEW: Page(500, b"oops")})
    assert f"{NEW}: HTTP 500; {OLD}: HTTP 404" in str(error.value)
    with pytest.raises(Unreadable, match="agent card"):
        found({f"{HOST}/c.json": Page(200, b"[]")}, f"{HOST}/c.json")


@pytest.mark.parametrize(
    ("page", "error", "words"),
    [
        (Page(401, b"", {"www-authenticate": "Bearer"}), Unauthenticated, r"callers it knows \(Bearer\); give api_key"),
        (Page(401, b"", {"www-authenticate": "x\x85"}), Unauthenticated, "callers it knows; give"),
        (Page(403), Forbidden, "may not see the card"),
        (Page(429, b"", {"retry-after": "7"}), TooManyRequests, "too many"),
        (Page(429, b"", {"retry-after": "tomorrow"}), TooManyRequests, "too many"),
        (Page(503), Unavailable, "HTTP 503"),
        (Page(200, b"x" * (LIMIT + 1)), Unreachable, "over 1048576 bytes"),
        (Page(302, b"", {"location": NEW}), Unreachable, "more than 3 times"),
        (Page(302, b"", {"location": "https://[x/"}), Unreachable, "redirects to no URL"),
        (Page(302, b"", {"location": "http://agent.example/card"}), Unreachable, "redirects to http://agent.example:80,"),
        (Page(302, b"", {"location": "https://agent.example:8443/c"}), Unreachable, "redirects to https://agent.example:8443,"),
        (Page(302, b"", {"location": "https://cards.example/c"}), Unreachable, "https://cards.example:443, which is another origin"),
    ],
)  # fmt: skip
def test_where_it_stops_at_once(page: Page, error: type[TrunklineError], words: str) -> None:
    async def work() -> None:
        web = Web({NEW: page, OLD: FOUND})
        with pytest.raises(error, match=words) as caught:
            await Discovery(HOST, web).card()
        assert OLD not in web.urls
        if isinstance(caught.value, TooManyRequests):
            assert caught.value.retry_after_s in (7.0, 1.0)

    run(work)


def test_redirects_within_the_origin_are_followed_with_credentials() -> None:
    async def work() -> None:
        web = Web(
            {
                NEW: Page(301, b"", {"location": "/card"}),
                f"{HOST}/card": Page(308, b"", {"location": "https://agent.example:443/c"}),
                f"{HOST}/c": FOUND,
            }
        )
        discovery = Discovery(HOST, Guarded(web, Bearer("s3cret"), HOST))
        await discovery.card()
        assert web.urls == [NEW, f"{HOST}/card", f"{HOST}/c"]
        assert all("authorization" in one.headers for one in web.asked)
        assert discovery.explanation[0] == f"{NEW}: HTTP 301, on to {HOST}/card"

    run(work)


@pytest.mark.parametrize(
    ("path", "accepted"), [("/agents/buyer", False), ("/a2a", True), ("/a2a/rpc", False)]
)
def test_card_that_a_wrong_path_redirects_to_is_refused(path: str, accepted: bool) -> None:
    """A host may redirect every unknown path to the card at its origin."""

    async def work() -> None:
        there = {
            f"{HOST}{path}{one}": Page(302, b"", {"location": "/.well-known/agent-card.json"})
            for one in WELL_KNOWN
        }
        discovery = Discovery(HOST + path, Web({**there, NEW: FOUND}))
        if accepted:
            assert (await discovery.card()).name == "scribe"
            assert (await discovery.card(refresh=True)).name == "scribe"
        else:
            with pytest.raises(
                RouteNotFound, match=f"no agent has the path '{path}': {NEW} is the card of 'scribe'"
            ):
                await discovery.card()

    run(work)


@pytest.mark.parametrize("location", ["http://127.0.0.1:9/card", "http://169.254.169.254/latest/meta-data"])
def test_a_redirect_into_the_network_is_refused(location: str) -> None:
    """Row 63, over sockets: the operator's own host may be on this machine, what it redirects to may not."""

    async def work() -> None:
        async def redirect(call: Call) -> bytes:
            return f"HTTP/1.1 302 Found\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n".encode()

        async def card(call: Call) -> bytes:
            return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(CARD) + CARD

        async with site(redirect) as there, site(card) as good:
            caller = SocketHttpClient(Egress(hosts=["agent.example"], resolver=names()))
            with pytest.raises(Unreachable, match="another origin") as error:
                await Discovery(there.url(host="agent.example"), caller).card()
            assert error.value.reason == "refused"
            assert (await Discovery(good.url(host="agent.example"), caller).card()).name == "scribe"
            await caller.close()

    run(work)


def test_many_who_ask_at_once_share_one_answer() -> None:
    async def work() -> None:
        go = asyncio.Event()

        async def slow(asked: Asked) -> Page:
            await go.wait()
            return FOUND

        web = Web({NEW: slow})
        discovery = Discovery(HOST, web)
        asking = [asyncio.create_task(discovery.card()) for _ in range(10)]
        await asyncio.sleep(0)
        # The one that fetches gives up: another one does it.
        asking[0].cancel()
        await asyncio.sleep(0.01)
        go.set()
        cards = await asyncio.gather(*asking, return_exceptions=True)
        assert isinstance(cards[0], asyncio.CancelledError)
        assert {id(card) for card in cards[1:]} == {id(cards[1])}
        assert len(web.asked) == 2
        await discovery.card()
        assert len(web.asked) == 2
        await web.close()

    run(work)


def test_many_who_ask_at_once_share_one_failure() -> None:
    async def work() -> None:
        web = Web({NEW: Page(503)})
        discovery = Discovery(HOST, web)
        ends = await asyncio.gather(*[discovery.card() for _ in range(10)], return_exceptions=True)
        assert all(isinstance(end, Unavailable) for end in ends)
        assert len(web.asked) == 1
        with pytest.raises(Unavailable):
            await discovery.card()
        assert len(web.asked) == 2

    run(work)


@pytest.mark.parametrize(
    ("said", "lasts"),
    [
        ("", 600),
        ("public, max-age=60", 60),
        ('max-age="60"', 60),
        ("max-age=86400", 600),
        ("s-maxage=5", 600),
        ("max-age=soon", 600),
        ("no-cache", 0),
        ("no-store, max-age=60", 0),
    ],
)
def test_how_long_a_card_is_good(said: str, lasts: float) -> None:
    async def work() -> float:
        discovery = Discovery(HOST, Web({NEW: Page(200, CARD, {"cache-control": said})}))
        await discovery.card()
        return discovery._until - asyncio.get_running_loop().time()  # noqa: SLF001 - an hour is long to wait

    assert abs(run(work) - lasts) < 5


def test_an_old_card_is_asked_for_by_its_tag() -> None:
    async def work() -> None:
        def tagged(asked: Asked) -> Page:
            same = asked.headers.get("if-none-match") == '"1"'
            return Page(304) if same else Page(200, CARD, {"etag": '"1"'})

        web = Web({OLD: tagged})
        discovery = Discovery(HOST, web, ttl_s=0)
        first = await discovery.card()
        # Only where it was found.
        assert await discovery.card() is first
        assert web.urls == [NEW, OLD, OLD]
        assert discovery.explanation[-1] == f"{OLD}: the card has not changed"
        web.pages[OLD] = Page(200, CARD.replace(b"scribe", b"other"))
        assert (await discovery.card(refresh=True)).name == "other"
        await discovery.card()
        assert "if-none-match" not in web.asked[-1].headers

    run(work)


def test_a_fresh_card_is_not_asked_for_unless_it_must_be() -> None:
    async def work() -> None:
        web = Web({NEW: FOUND})
        discovery = Discovery(HOST, web)
        for _ in range(3):
            await discovery.card()
        assert len(web.asked) == 1
        await discovery.card(refresh=True)
        assert len(web.asked) == 2

    run(work)


@pytest.mark.parametrize("page", [Page(503), Page(200, b"<html>"), Page(500), Page(404)])
def test_an_old_card_is_kept_when_a_new_one_cannot_be_had(
    page: Page, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        web = Web({NEW: FOUND})
        discovery = Discovery(HOST, web, ttl_s=0.001)
        card = await discovery.card()
        await asyncio.sleep(0.002)
        web.pages[NEW] = page
        with caplog.at_level(logging.WARNING):
            assert await discovery.card() is card
        assert "client.card_stale" in caplog.text
        assert "the old one is kept" in discovery.explanation[-1]
        with pytest.raises(TrunklineError):
            await discovery.card(refresh=True)

    run(work)


def test_a_card_that_moved_is_found_again() -> None:
    async def work() -> None:
        web = Web({NEW: FOUND})
        discovery = Discovery(HOST, web, ttl_s=0)
        await discovery.card()
        web.pages = {OLD: FOUND}
        await discovery.card()
        assert discovery.found_at == OLD

    run(work)


def test_a_card_that_takes_too_long() -> None:
    async def never(asked: Asked) -> Page:
        await asyncio.Event().wait()
        return FOUND

    async def work() -> None:
        web = Web({NEW: never})
        with pytest.raises(TimedOut, match=r"no card from .* within 0.02 seconds") as error:
            await Discovery(HOST, web, timeout_s=0.02).card()
        assert error.value.reason == "total"

    run(work)


def test_who_sends_for_us_may_have_a_clock_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def late(request: Any) -> Any:
        raise TimeoutError

    async def work() -> None:
        web = Web({NEW: FOUND})
        discovery = Discovery(HOST, web, ttl_s=0)
        card = await discovery.card()
        monkeypatch.setattr(web, "open", late)
        assert await discovery.card() is card
        with pytest.raises(TimedOut, match="no card from"):
            await Discovery(HOST, web).card()

    run(work)


HUB = b"""{"name":"shop hub","supportedInterfaces":[{"url":"https://agent.example/a2a",
  "protocolBinding":"JSONRPC","protocolVersion":"1.0"}],
  "skills":[{"id":"buy","tags":["routed","buyer"]}]}"""
AGENTS = Page(200, b'{"items":[{"name":"buyer"},{"name":"seller"}],"next":null}')


@pytest.mark.parametrize("name", ["Buyer", "nonexistent", "Buyer/a2a"])
@pytest.mark.parametrize("prefix", ["", "/mounted/here"])
@pytest.mark.parametrize("listed", [{}, {"agents": AGENTS}])
def test_card_of_another_agent_is_refused(name: str, prefix: str, listed: dict[str, Page]) -> None:
    hub = f"{HOST}{prefix}"
    pages: dict[str, Any] = {f"{hub}/.well-known/agent-card.json": Page(200, HUB)}
    if listed:
        pages[f"{hub}/api/agents"] = listed["agents"]
    path = f"{prefix}/v1/a2a/agents/{name}"
    with pytest.raises(RouteNotFound) as error:
        found(pages, HOST + path)
    text = str(error.value)
    assert error.value.missing == "AGENT_NOT_FOUND"
    assert f"no agent has the path '{path}'" in text
    assert f"{hub}/.well-known/agent-card.json is the card of 'shop hub'" in text
    assert "'buyer'" in text
    assert ("'seller'" in text) is bool(listed and name == "nonexistent")


def test_nearest_refused_card_is_named_when_a_farther_place_fails() -> None:
    pages = {f"{HOST}/x/.well-known/agent-card.json": Page(200, HUB), NEW: Page(503)}
    with pytest.raises(
        RouteNotFound, match=r"example/x/\.well-known/agent-card\.json is the card of 'shop hub'"
    ):
        found(pages, f"{HOST}/x/wrong")


def test_card_that_stops_describing_the_agent_is_refused_on_refresh() -> None:
    async def work() -> None:
        web = Web({NEW: Page(200, CARD.replace(b"/a2a", b"/one"))})
        discovery = Discovery(f"{HOST}/one", web)
        assert (await discovery.card()).name == "scribe"
        web.pages[NEW] = Page(200, HUB)
        with pytest.raises(RouteNotFound, match="'shop hub'"):
            await discovery.card(refresh=True)

    run(work)


def test_card_by_its_own_url_is_used_for_any_agent_url() -> None:
    web, _ = found({NEW: FOUND}, f"{HOST}/wrong", card_url=NEW)
    assert web.urls == [NEW]


def test_the_explanation_is_bounded() -> None:
    async def work() -> int:
        discovery = Discovery(HOST, Web({NEW: FOUND}), ttl_s=0)
        for _ in range(80):
            await discovery.card()
        return len(discovery.explanation)

    assert run(work) == 50
