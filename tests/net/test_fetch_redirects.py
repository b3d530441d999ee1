"""Redirects: never followed by a post, three times at most by a get, and judged at every hop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.net.targets import OK, Call, fetching, names, site
from trunkline.errors import Unreachable
from trunkline.net.egress import Egress

STATUSES = [301, 302, 303, 307, 308]
CREDENTIALS = [("Authorization", "Bearer s3cret"), ("X-API-Key", "s3cret"), ("Cookie", "s=s3cret")]


def away(status: int, location: str) -> bytes:
    return f"HTTP/1.1 {status} Away\r\nLocation: {location}\r\ncontent-length: 0\r\n\r\n".encode()


def failing(run: Any) -> Unreachable:
    with pytest.raises(Unreachable) as error:
        asyncio.run(run())
    return error.value


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("location", ["/other", "http://127.0.0.1:1/", "file:///etc/passwd", "//h.example/x"])
def test_a_post_follows_none(status: int, location: str) -> None:
    async def respond(call: Call) -> bytes:
        return away(status, location)

    async def main() -> None:
        async with site(respond) as there, fetching() as client:
            answer = await client.post(there.url(), b"x", [])
            assert (answer.status, answer.headers["location"]) == (status, location)
            assert len(there.calls) == 1

    asyncio.run(main())


@pytest.mark.parametrize("status", STATUSES)
def test_a_get_follows_as_a_get(status: int) -> None:
    async def respond(call: Call) -> bytes:
        return OK if call.path == "/b/there?x=1" else away(status, "there?x=1#part")

    async def main() -> None:
        async with site(respond) as there, fetching() as client:
            answer = await client.get(there.url("/b/here"), headers=CREDENTIALS)
            assert answer.body == b"ok"
            assert [call.line for call in there.calls] == [
                "GET /b/here HTTP/1.1",
                "GET /b/there?x=1 HTTP/1.1",
            ]
            assert there.calls[1].headers["authorization"] == "Bearer s3cret"

    asyncio.run(main())


def test_other_answers_with_a_location_and_redirects_without_one() -> None:
    async def respond(call: Call) -> bytes:
        if call.path == "/made":
            return away(201, "/x")
        return b"HTTP/1.1 302 Away\r\ncontent-length: 0\r\n\r\n"

    async def main() -> None:
        async with site(respond) as there, fetching() as client:
            assert (await client.get(there.url("/made"))).status == 201
            assert (await client.get(there.url("/lost"))).status == 302
            assert len(there.calls) == 2

    asyncio.run(main())


@pytest.mark.parametrize("status", STATUSES)
def test_inward(status: int) -> None:
    """A host that may be called sends the client to one that may not."""

    async def main() -> None:
        async with site() as inner:

            async def respond(call: Call) -> bytes:
                return away(status, inner.url(host=call.path[1:]))

            egress = Egress(hosts=["hooks.example"], resolver=names())
            async with site(respond) as there, fetching(egress=egress) as client:
                for host in ("127.0.0.1", "inner.example", "2130706433", "[::1]", "[::ffff:7f00:1]"):
                    with pytest.raises(Unreachable) as error:
                        await client.get(there.url(f"/{host}"))
                    assert error.value.reason == "refused"
                    assert host.strip("[]") in str(error.value)
            assert inner.calls == []

    asyncio.run(main())


@pytest.mark.parametrize(
    "location",
    ["file:///etc/passwd", "ftp://hooks.example/", "gopher://h.example/", "javascript:x", "ws://h.example/"],
)
def test_to_another_scheme(location: str) -> None:
    async def respond(call: Call) -> bytes:
        return away(302, location)

    async def main() -> None:
        async with site(respond) as there, fetching() as client:
            await client.get(there.url())

    assert failing(main).reason == "url"


@pytest.mark.parametrize("location", ["http://[::1", "http://a:b:c/", "http://h.example:99999/"])
def test_to_no_url(location: str) -> None:
    async def respond(call: Call) -> bytes:
        return away(302, location)

    async def main() -> None:
        async with site(respond) as there, fetching() as client:
            await client.get(there.url())

    assert failing(main).reason == "url"


@pytest.mark.parametrize(("hops", "calls"), [(0, 1), (3, 4), (5, 6)])
def test_a_chain_of_twenty(hops: int, calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.net.fetch.HOPS", hops)
    seen: list[Call] = []

    async def respond(call: Call) -> bytes:
        seen.append(call)
        step = int(call.path[1:])
        return OK if step == 20 else away(307, f"/{step + 1}")

    async def main() -> None:
        async with site(respond) as there, fetching() as client:
            await client.get(there.url("/0"))

    error = failing(main)
    assert (error.reason, len(seen)) == ("refused", calls)
    assert f"more than {hops} times" in str(error)


def test_a_chain_of_three() -> None:
    async def respond(call: Call) -> bytes:
        step = int(call.path[1:])
        return OK if step == 3 else away(302, f"/{step + 1}")

    async def main() -> None:
        async with site(respond) as there, fetching() as client:
            assert (await client.get(there.url("/0"))).body == b"ok"

    asyncio.run(main())


def test_credentials_stay_with_their_origin() -> None:
    async def main() -> None:
        async with site() as other:

            async def respond(call: Call) -> bytes:
                return away(
                    302, other.url() if call.path == "/port" else there.url("/end", host="h2.example")
                )

            async with site(respond) as there, fetching() as client:
                await client.get(there.url("/port"), headers=[*CREDENTIALS, ("Accept", "text/plain")])
                with pytest.raises(Unreachable):
                    await client.get(there.url("/host"), headers=CREDENTIALS)
                for call in (*other.calls, *there.calls[2:]):
                    assert "s3cret" not in str(call.headers)
                assert other.calls[0].headers["accept"] == "text/plain"
                assert len(there.calls) > 2

    asyncio.run(main())
