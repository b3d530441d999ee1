"""Tokens over real HTTP: an issuer on this machine, its keys by discovery, through the egress guard."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.auth.issuing import key, public, token
from tests.harness import V1, ServerProcess, message

O1, O2 = key("OKP", "o1"), key("OKP", "o2")
AUDIENCE = "trunkline-test"


class Issuer:
    """Serves its discovery document and its keys, and remembers who asked for what."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.keys = public(O1)
        issuer = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append((self.path, self.headers.get("Authorization", "")))
                body = issuer.page(self.path)
                self.send_response(200 if body else 404)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.name = f"http://127.0.0.1:{self.server.server_port}"

    def page(self, path: str) -> bytes:
        found = {
            "/.well-known/openid-configuration": json.dumps(
                {"issuer": self.name, "jwks_uri": f"{self.name}/keys"}
            ).encode(),
            "/keys": self.keys,
        }
        return found.get(path, b"")

    def token(self, by: Any = O1, **more: Any) -> str:
        now = int(time.time())
        said = {"iss": self.name, "aud": AUDIENCE, "sub": "alice", "exp": now + 60, "iat": now, **more}
        return token(by, said).decode()


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield made
    made.server.shutdown()
    thread.join(60)
    made.server.server_close()


@contextmanager
def serving(issuer: Issuer, folder: Path, *flags: str) -> Iterator[ServerProcess]:
    issuers = json.dumps([{"issuer": issuer.name, "audience": AUDIENCE, "tenant": "blue"}])
    with ServerProcess(folder, "trunkline.demo:agent", *flags, env={"TRUNKLINE_ISSUERS": issuers}) as server:
        yield server


def test_a_token_opens_and_names_the_owner(issuer: Issuer, tmp_path: Path) -> None:
    with serving(issuer, tmp_path, "--dev") as server:

        def call(sent: str, method: str = "ListTasks", params: Any = None) -> httpx2.Response:
            body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
            headers = {"Authorization": f"Bearer {sent}", **V1}
            return httpx2.post(server.url, json=body, headers=headers, timeout=60)

        assert httpx2.get(f"{server.base}/tasks", timeout=60).headers["www-authenticate"] == "Bearer"
        alice, bob = issuer.token(), issuer.token(sub="bob")
        task = call(alice, "SendMessage", {"message": message("echo hi")}).json()["result"]["task"]
        assert call(alice, "GetTask", {"id": task["id"]}).json()["result"]["id"] == task["id"]
        assert call(bob, "GetTask", {"id": task["id"]}).json()["error"]["code"] == -32001
        reader = issuer.token(scope="openid tasks:read")
        assert call(reader, "GetTask", {"id": task["id"]}).json()["result"]["id"] == task["id"]
        assert call(reader, "CancelTask", {"id": task["id"]}).status_code == 403
        assert [
            call(issuer.token(**wrong)).status_code for wrong in ({"aud": "x"}, {"exp": 1}, {"by": O2})
        ] == [401] * 3
        assert [path for path, _ in issuer.asked] == ["/.well-known/openid-configuration", "/keys"]
        assert not [sent for _, sent in issuer.asked if sent], "a caller's token never leaves"
        text = server.text()
    assert "token.refused reason='the token is not accepted: it has expired'" in text
    assert alice not in text and alice.split(".")[2] not in text


def test_without_dev_an_issuer_on_this_machine_is_not_asked(issuer: Issuer, tmp_path: Path) -> None:
    issuer.asked.clear()
    with serving(issuer, tmp_path) as server:
        headers = {"Authorization": f"Bearer {issuer.token()}"}
        answer = httpx2.get(f"{server.base}/tasks", headers=headers, timeout=60)
        text = server.text()
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "issuer.unreachable" in text and "egress" in text
    assert issuer.asked == []
