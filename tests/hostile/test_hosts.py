"""Row 51: a foreign Host or Origin is turned away on every route, before anything else is looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.harness import ServerProcess
from tests.hostile.shapes import V1
from tests.hostile.sockets import flood, one, request

ROUTES = [
    ("POST", "/delegate/tasks"), ("GET", "/delegate/tasks/x"), ("GET", "/delegate/"),
    ("GET", "/.well-known/agent-card.json"), ("HEAD", "/.well-known/agent-card.json"), ("GET", "/.well-known/agent.json"),
    ("POST", "/.well-known/agent.json"), ("POST", "/"), ("POST", "/a2a"), ("POST", "/a2a/"), ("GET", "/a2a"), ("OPTIONS", "/a2a"),
    ("POST", "/message:send"), ("POST", "/message:stream"), ("POST", "/v1/message:send"), ("POST", "/v1/message:stream"),
    ("GET", "/tasks"), ("GET", "/v1/tasks"), ("GET", "/tasks/x"), ("GET", "/v1/tasks/x"), ("POST", "/tasks/x:cancel"),
    ("GET", "/tasks/x:subscribe"), ("POST", "/v1/tasks/x:subscribe"), ("GET", "/tasks/x/pushNotificationConfigs"),
    ("POST", "/tasks/x/pushNotificationConfigs"), ("DELETE", "/tasks/x/pushNotificationConfigs/y"), ("GET", "/card"), ("GET", "/v1/card"),
    ("GET", "/extendedAgentCard"), ("GET", "/metrics"), ("HEAD", "/metrics"), ("POST", "/metrics"), ("GET", "/healthz/x"), ("GET", "/readyz/"), ("GET", "/"), ("GET", "/nowhere"), ("GET", "/default/tasks"), ("PUT", "/tasks"), ("GET", "/tasks?A2A-Version=9"),
]  # fmt: skip
FOREIGN = [
    b"evil.example", b"evil.example:8000", b"127.0.0.1.evil.example", b"localhost.evil.example", b"evil.localhost", b"127.0.0.2",
    b"0.0.0.0", b"127.1", b"2130706433", b"localhost:80@evil.example", b"evil.example#localhost", b"[::1].evil.example", b"[::1]evil",
    b"[::2]", b"::1", b"localhost:", b"localhost:abc", b"localhost:8\xb2", b"local host", b"localhost/", b"", b"\xff", b"localhost,evil.example", b"[",
]  # fmt: skip
OWN = [b"localhost", b"127.0.0.1", b"LOCALHOST", b"localhost:9", b"127.0.0.1:65535", b"[::1]", b"[::1]:80"]
PAGES = [
    b"http://evil.example", b"https://evil.example:8443", b"null", b"", b"file://", b"http://localhost:80@evil.example", b"http://127.0.0.1.evil.example",
    b"http://[::1", b"http://[", b"http://]", b"//localhost", b"localhost", b"chrome-extension://localhost", b"http://localhost/evil", b"http://\xff",
    b"http://localhost http://evil.example", b"http://xn--/", b"http://\xe2\x84\x80localhost",
]  # fmt: skip


@pytest.mark.parametrize("foreign", [*FOREIGN, None], ids=repr)
def test_a_foreign_host_is_turned_away_everywhere(target: ServerProcess, foreign: bytes | None) -> None:
    raws = [
        request(verb, path, b"{}" if verb == "POST" else None, *more, host=foreign)
        for verb, path in ROUTES
        for more in ((), (V1,), (b"A2A-Version: 7",))
    ]
    for raw, answer in zip(raws, flood(target.port, raws, lines=4), strict=True):
        assert answer.status in ((403,) if foreign is not None else (400, 403)), (raw, answer)


@pytest.mark.parametrize("page", PAGES, ids=repr)
def test_a_foreign_page_is_turned_away_everywhere(target: ServerProcess, page: bytes) -> None:
    raws = [
        request(verb, path, b"{}" if verb == "POST" else None, b"Origin: " + page) for verb, path in ROUTES
    ]
    for raw, answer in zip(raws, flood(target.port, raws, lines=4), strict=True):
        assert answer.status == 403, (raw, answer)


@pytest.mark.parametrize("own", OWN, ids=repr)
def test_our_own_names_are_let_in(target: ServerProcess, own: bytes) -> None:
    for origin in ((), (b"Origin: http://" + own,), (b"Origin: http://localhost:3000",)):
        answer = one(target.port, request("GET", "/tasks", None, *origin, host=own))
        assert answer.status == 200, answer


def test_no_answer_lets_a_page_read_it(target: ServerProcess) -> None:
    """No CORS headers: what a page of another origin sends unasked, it cannot read, and a preflight fails."""
    raws = [
        request(verb, path, None, b"Origin: http://localhost:3000", b"Access-Control-Request-Method: POST")
        for verb, path in [*ROUTES, ("OPTIONS", "/message:send")]
    ]
    for answer in flood(target.port, raws, lines=4):
        assert not any(name.startswith(b"access-control-") for name, _ in answer.headers)


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    flags = (
        "--public-url",
        "https://agent.example:8443/base",
        "--set",
        "allowed_hosts=inner.example:99,10.0.0.7",
        "--host",
        "0.0.0.0",
        "--open",
    )
    with ServerProcess(tmp_path_factory.mktemp("public"), "trunkline.demo:agent", *flags) as server:
        yield server


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"agent.example", 200),
        (b"AGENT.example:1", 200),
        (b"inner.example", 200),
        (b"10.0.0.7:8000", 200),
        (b"127.0.0.1", 403),
        (b"localhost", 403),
        (b"agent.example.", 403),
        (b"evil.example", 403),
    ],
)
def test_a_public_server_answers_to_its_own_names(public: ServerProcess, host: bytes, status: int) -> None:
    assert one(public.port, request("GET", "/tasks", None, host=host)).status == status


def test_a_host_is_checked_before_a_key(make: Callable[..., ServerProcess]) -> None:
    with make("--key", "a-long-enough-key") as server:
        foreign = flood(
            server.port, [request(verb, path, None, host=b"evil.example") for verb, path in ROUTES], lines=4
        )
        own = flood(server.port, [request(verb, path, None) for verb, path in ROUTES], lines=4)
    assert {answer.status for answer in foreign} == {403}
    for (verb, path), answer in zip(ROUTES, own, strict=True):
        # The card is for everybody; nothing else is, not even the word that a path does not exist.
        assert answer.status == (401 if "/.well-known/" not in path else 200 if verb != "POST" else 405), (
            verb,
            path,
            answer,
        )


def test_metrics_are_guarded_where_they_are_served(make: Callable[..., ServerProcess]) -> None:
    with make("--metrics", "--key", "a-long-enough-key") as server:
        key = b"X-API-Key: a-long-enough-key"
        raws = [request("GET", "/metrics", None, key, host=foreign) for foreign in FOREIGN]
        raws += [request("GET", "/metrics", None, key, b"Origin: " + page) for page in PAGES]
        assert {answer.status for answer in flood(server.port, raws, lines=4)} == {403}
        assert one(server.port, request("GET", "/metrics", None)).status == 401
        assert one(server.port, request("GET", "/metrics", None, key)).status == 200


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_have_no_door(target: ServerProcess, path: str) -> None:
    """A kubelet sends the address of the pod; there is nothing in the answer to protect."""
    for foreign in FOREIGN:
        answer = one(target.port, request("GET", path, None, b"Origin: http://evil.example", host=foreign))
        assert (answer.status, len(answer.body)) == (200, 15 if path == "/healthz" else 18), (foreign, answer)
