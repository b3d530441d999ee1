"""The extended card: there exactly when callers say who they are, with the skills the public one leaves out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from tests.harness import V1
from trunkline import Agent
from trunkline.host import Application
from trunkline.wire.card import Card

KEY = "a-key-of-this-agent"
PATH = "/.well-known/agent-card.json"
HEADERS = {"X-API-Key": KEY}


def agent() -> Agent:
    made = Agent("clerk")

    @made.skill
    async def greet(text: str) -> str:
        """Say hello."""
        return f"hello {text}"

    @made.skill(public=False, effects=[{"domain": "ledger", "path": "balance", "delta": 1}])
    async def pay(text: str) -> str:
        """Move money."""
        return text

    return made


def serve(
    work: Callable[[Application, httpx2.AsyncClient], Awaitable[Any]],
    of: Agent | None = None,
    **settings: object,
) -> Any:
    async def main() -> Any:
        application = (of or agent()).asgi(store="memory:", drain_limit=0, **settings)
        transport = httpx2.ASGITransport(application)
        async with (
            application.lifespan(),
            httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            return await work(application, client)

    return asyncio.run(main())


async def rpc(client: httpx2.AsyncClient, method: str, **headers: str) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {}}
    return await client.post("/a2a", json=body, headers=headers)


def ids(card: Any) -> list[str]:
    return [skill["id"] for skill in card["skills"]]


def test_all_four_ways_give_the_whole_card() -> None:
    async def work(_: Application, client: httpx2.AsyncClient) -> None:
        public = {
            version: (await client.get(PATH, headers=head)).json()
            for version, head in (("1.0", V1), ("0.3", {}))
        }
        asked = {
            "1.0": [
                (await rpc(client, "GetExtendedAgentCard", **HEADERS, **V1)).json()["result"],
                (await client.get("/extendedAgentCard", headers={**HEADERS, **V1})).json(),
            ],
            "0.3": [
                (await rpc(client, "agent/getAuthenticatedExtendedCard", **HEADERS)).json()["result"],
                (await client.get("/v1/card", headers=HEADERS)).json(),
            ],
        }
        for version, cards in asked.items():
            for card in cards:
                assert ids(public[version]) == ["greet"]
                assert ids(card) == ["greet", "pay"]
                without = {"skills", "capabilities"}
                assert {name: card[name] for name in card.keys() - without} == {
                    name: public[version][name] for name in public[version].keys() - without
                }
                assert card["capabilities"]["extendedAgentCard"] is True
        assert public["0.3"]["supportsAuthenticatedExtendedCard"] is True
        assert "supportsAuthenticatedExtendedCard" not in public["1.0"]

    serve(work, keys=[KEY])


def test_nothing_of_a_private_skill_is_on_the_public_card() -> None:
    async def work(_: Application, client: httpx2.AsyncClient) -> tuple[str, str]:
        whole = (await client.get("/extendedAgentCard", headers={**HEADERS, **V1})).text
        return (await client.get(PATH, headers=V1)).text, whole

    public, whole = serve(work, keys=[KEY])
    assert "pay" not in public and "balance" not in public and "Move money" not in public
    assert "Move money" in whole
    assert '"id":"pay"' in whole and '"pay":{"effects"' in whole


@pytest.mark.parametrize("headers", [{}, {"X-API-Key": "another-key-12345"}])
def test_it_is_not_for_strangers(headers: dict[str, str]) -> None:
    async def work(_: Application, client: httpx2.AsyncClient) -> list[int]:
        return [
            (await rpc(client, "GetExtendedAgentCard", **headers, **V1)).status_code,
            (await rpc(client, "agent/getAuthenticatedExtendedCard", **headers)).status_code,
            (await client.get("/extendedAgentCard", headers={**headers, **V1})).status_code,
            (await client.get("/v1/card", headers=headers)).status_code,
        ]

    assert serve(work, keys=[KEY]) == [401] * 4


def test_while_everybody_is_let_in_there_is_none() -> None:
    async def work(_: Application, client: httpx2.AsyncClient) -> None:
        card = (await client.get(PATH)).json()
        assert card["capabilities"]["extendedAgentCard"] is False
        assert card["supportsAuthenticatedExtendedCard"] is False
        assert "securitySchemes" not in card and "security" not in card
        assert ids(card) == ["greet"]
        answer = (await rpc(client, "GetExtendedAgentCard", **V1)).json()
        assert answer["error"]["code"] == -32004
        answer = (await rpc(client, "agent/getAuthenticatedExtendedCard")).json()
        assert answer["error"]["code"] == -32007

    serve(work)


def test_a_key_alone_declares_none_where_every_skill_is_public() -> None:
    made = Agent("clerk")

    @made.skill
    def greet(text: str) -> str:
        """Say hello."""
        return text

    async def work(_: Application, client: httpx2.AsyncClient) -> None:
        # Whoever sees it declared fetches it, without a key too, and takes the refusal for that of the agent.
        card = (await client.get(PATH)).json()
        assert card["securitySchemes"]
        assert card["capabilities"]["extendedAgentCard"] is False
        assert card["supportsAuthenticatedExtendedCard"] is False
        answer = (await rpc(client, "GetExtendedAgentCard", **V1, **HEADERS)).json()
        assert answer["error"]["code"] == -32004

    serve(work, made, keys=[KEY])


def test_the_card_follows_the_first_stored_key() -> None:
    async def work(application: Application, client: httpx2.AsyncClient) -> None:
        before = await client.get(PATH)
        made = await application.host.key_store.create("alice")
        after = await client.get(PATH, headers={"If-None-Match": before.headers["etag"]})
        assert (after.status_code, after.headers["etag"] != before.headers["etag"]) == (200, True)
        assert list(after.json()["securitySchemes"]) == ["apiKey", "bearer"]
        assert after.json()["security"] == [{"apiKey": []}, {"bearer": []}]
        headers = {"Authorization": f"Bearer {made.token}"}
        assert ids((await client.get("/v1/card", headers=headers)).json()) == ["greet", "pay"]
        same = await client.get(PATH, headers={"If-None-Match": after.headers["etag"]})
        assert (same.status_code, same.content) == (304, b"")
        await application.host.key_store.revoke(made.key.id)
        assert (await client.get("/v1/card", headers=headers)).status_code == 401
        assert (await client.get(PATH)).json() == after.json(), "the last key's end does not open the door"

    serve(work)


def test_the_card_says_whose_tokens_are_taken() -> None:
    issuers = [
        {"issuer": "https://a.example", "audience": "x"},
        {"issuer": "https://b.example", "audience": "y", "jwks_url": "https://b.example/keys"},
    ]

    async def work(_: Application, client: httpx2.AsyncClient) -> tuple[Any, Any, httpx2.Response]:
        return (
            (await client.get(PATH, headers=V1)).json(),
            (await client.get(PATH)).json(),
            await client.get("/tasks"),
        )

    pure, both, refused = serve(work, issuers=issuers)
    url = "https://a.example/.well-known/openid-configuration"
    found = {"openIdConnectUrl": url, "description": "A token for x."}
    assert pure["securitySchemes"] == {
        "openIdConnect1": {"openIdConnectSecurityScheme": found},
        "jwt2": {
            "httpAuthSecurityScheme": {
                "scheme": "Bearer",
                "bearerFormat": "JWT",
                "description": "A token of https://b.example for y.",
            }
        },
    }
    assert [list(one["schemes"]) for one in pure["securityRequirements"]] == [["openIdConnect1"], ["jwt2"]]
    first = both["securitySchemes"]["openIdConnect1"]
    assert (first["type"], first["openIdConnectUrl"]) == ("openIdConnect", url)
    assert both["security"] == [{"openIdConnect1": []}, {"jwt2": []}]
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")


def test_the_public_halves_of_the_signing_keys() -> None:
    async def work(application: Application, client: httpx2.AsyncClient) -> None:
        path = "/.well-known/jwks.json"
        first = await client.get(path)
        assert first.headers["content-type"] == "application/json"
        assert "max-age" in first.headers["cache-control"]
        (key,) = first.json()["keys"]
        assert (key["kty"], key["crv"], key["use"]) == ("OKP", "Ed25519", "sig")
        etag = {"If-None-Match": first.headers["etag"]}
        assert (await client.get(path, headers=etag)).status_code == 304
        assert (await client.head(path)).status_code == 200
        refused = await client.post(path)
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
        assert application.host.notifier is not None
        await application.host.notifier.signer.rotate()
        again = await client.get(path, headers=etag)
        assert (again.status_code, len(again.json()["keys"])) == (200, 2)
        assert "sealed" not in json.dumps(again.json()) and "d" not in again.json()["keys"][0]

    serve(work)


def test_without_push_nothing_is_signed() -> None:
    async def work(_: Application, client: httpx2.AsyncClient) -> int:
        return (await client.get("/.well-known/jwks.json")).status_code

    assert serve(work, push=False) == 404


@pytest.mark.parametrize(
    ("sent", "url"),
    [
        ({"Host": "a.example", "Proto": "http", "Prefix": "/x/y/"}, "http://a.example/x/y"),
        ({"Host": "[fd00::1]:8443"}, "https://[fd00::1]:8443"),
        ({"Host": "sent.by.anybody, a.example:80"}, "https://a.example:80"),
        ({"Host": "a.example", "Prefix": "@evil.example"}, "http://10.0.0.1:8000"),
        ({"Host": "a.example", "Prefix": "//evil.example"}, "http://10.0.0.1:8000"),
        ({"Host": "a.example", "Prefix": "/x?y="}, "http://10.0.0.1:8000"),
        ({"Host": "a.example", "Proto": "javascript"}, "http://10.0.0.1:8000"),
        ({"Host": "a.example@evil.example"}, "http://10.0.0.1:8000"),
        ({"Host": "evil.example/?"}, "http://10.0.0.1:8000"),
        ({"Host": ""}, "http://10.0.0.1:8000"),
    ],
)
def test_only_what_a_proxy_would_write_is_an_address(sent: dict[str, str], url: str) -> None:
    async def work(_: Application, client: httpx2.AsyncClient) -> Any:
        headers = {f"X-Forwarded-{name}": value for name, value in sent.items()}
        return (await client.get("http://10.0.0.1:8000" + PATH, headers=headers)).json()["url"]

    names = ["10.0.0.1", "a.example", "[fd00::1]"]
    assert serve(work, trust_forwarded=True, allowed_hosts=names) == f"{url}/a2a"


@pytest.mark.parametrize("host", ["evil.example", "a.example, evil.example:443", "a.example.evil.example"])
def test_a_forwarded_host_is_held_to_allowed_hosts(host: str, caplog: pytest.LogCaptureFixture) -> None:
    """2.11: a card that a cache keeps must not lead to a host that some caller has named."""

    async def work(_: Application, client: httpx2.AsyncClient) -> list[str]:
        headers = {"X-Forwarded-Host": host}
        answers = [await client.get("http://10.0.0.1:8000" + PATH, headers=headers) for _ in range(3)]
        return [answer.json()["url"] for answer in answers]

    shown = serve(work, trust_forwarded=True, allowed_hosts=["10.0.0.1", "a.example"])
    assert shown == ["http://10.0.0.1:8000/a2a"] * 3
    assert caplog.text.count("card.forwarded_host_ignored") == 1


@pytest.mark.parametrize("host", ["me@evil.example", "evil.example/x", "a.example, evil.example", " "])
def test_a_host_that_is_none_is_not_repeated(host: str) -> None:
    async def work(application: Application, _: httpx2.AsyncClient) -> Any:
        transport = httpx2.ASGITransport(application)
        async with httpx2.AsyncClient(transport=transport, base_url="http://10.0.0.1:8000") as client:
            return (await client.get(PATH, headers={"Host": host})).json()["url"]

    assert serve(work, host="10.0.0.1", open=True) == "http://10.0.0.1:8000/a2a"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        # The connection's own address, loopback, and what the operator has listed.
        ("10.0.0.1:8000", "http://10.0.0.1:8000"),
        ("10.0.0.1:9000", "http://10.0.0.1:9000"),
        ("localhost:8000", "http://localhost:8000"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("Agent.Example", "http://agent.example"),
        ("localhost:123456", "http://10.0.0.1:8000"),
    ],
)
def test_the_card_follows_a_host_that_is_known(host: str, url: str) -> None:
    async def work(_: Application, client: httpx2.AsyncClient) -> tuple[str, str]:
        answer = await client.get("http://10.0.0.1:8000" + PATH, headers={"Host": host})
        return answer.json()["url"], answer.headers["vary"]

    listed = ["agent.example"] if "Example" in host else []
    assert serve(work, host="0.0.0.0", open=True, allowed_hosts=listed) == (f"{url}/a2a", "A2A-Version, Host")


def test_a_card_for_another_host_has_another_etag() -> None:
    async def work(_: Application, client: httpx2.AsyncClient) -> set[str]:
        answers = [await client.get(PATH, headers={"Host": name}) for name in ("localhost", "127.0.0.1")]
        return {answer.headers["etag"] for answer in answers}

    assert len(serve(work)) == 2


@pytest.mark.parametrize("trusted", [True, False])
def test_without_a_list_no_caller_writes_the_card(trusted: bool) -> None:
    """2.2: an agent that serves every Host names none that it does not know to be its own."""

    async def work(_: Application, client: httpx2.AsyncClient) -> str:
        headers = {"Host": "evil.example", "X-Forwarded-Host": "evil.example"}
        return (await client.get("http://10.0.0.1:8000" + PATH, headers=headers)).json()["url"]

    shown = serve(work, host="0.0.0.0", open=True, trust_forwarded=trusted)
    assert shown == "http://10.0.0.1:8000/a2a"


@pytest.mark.parametrize("path", ["/", "/a2a", "/agents/clerk", "/agents/clerk/"])
def test_json_rpc_is_taken_at_the_base_too(path: str) -> None:
    async def work(_: Application, client: httpx2.AsyncClient) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}
        return (await client.post(path, json=body, headers=V1)).json()

    assert serve(work)["result"]["tasks"] == []


def test_the_base_is_no_resource_of_rest() -> None:
    async def work(_: Application, client: httpx2.AsyncClient) -> list[int]:
        page = await client.get("/", headers={"Accept": "text/html"})
        return [page.status_code, (await client.get("/")).status_code, (await client.delete("/")).status_code]

    assert serve(work) == [200, 404, 404]


def test_a_card_that_changes_often_is_made_when_somebody_looks(caplog: pytest.LogCaptureFixture) -> None:
    async def work(served: Application, client: httpx2.AsyncClient) -> None:
        cards = served.host.router.origin.cards
        made: list[Card] = []

        def make(name: str) -> Card:
            made.append(replace(cards.public, name=name))
            return made[-1]

        for place in range(1000):
            cards.show_next(partial(make, f"clerk {place}"))
        assert not made
        assert [(await client.get(PATH)).json()["name"] for _ in range(2)] == ["clerk 999"] * 2
        assert len(made) == 1
        cards.show_next(partial(make, "cl\x00erk"))
        assert (await client.get(PATH)).json()["name"] == "clerk 999"
        assert "card.unshown" in caplog.text

    serve(work)
