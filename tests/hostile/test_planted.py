"""Row 58 for what goes out and for operators: webhooks, their secrets, keys, tokens, the file beside the store."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from tests.harness import ServerProcess, message
from tests.hostile.shapes import V1
from tests.hostile.sockets import Answer, flood, one, post, request

KEY = "planted-key-of-settings-1"
SECRET_KEY = "planted-secret-key-of-the-vault-2"
PUSH = [f"planted-{name}" for name in (
    "token-in-10-3", "credentials-in-10-4", "token-in-03-5", "credentials-in-03-6", "inline-token-7", "inline-credentials-8",
    "url-query-9", "url-path-10", "url-login-11", "url-fragment-12", "refused-token-13", "said-back-14", "redirect-15",
)]  # fmt: skip
CLAIMS = "planted-claim-of-a-jwt-16"
ISSUER = "planted-issuer-path-17"
JWT = ".".join(
    base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
    for part in ({"alg": "RS256", "kid": CLAIMS}, {"sub": CLAIMS, "iss": "https://issuer.invalid"}, "x")
)
SENT = [
    "planted-bearer-18",
    "planted-x-api-key-19",
    "tl_aaaaaaaaaaaa_planted-stored-20",
    "planted-notification-21",
]
GOOD = b"X-API-Key: " + KEY.encode()


class _Hook(BaseHTTPRequestHandler):
    """Answers 200, or as its path says, and gives a secret of its own back."""

    def do_POST(self) -> None:
        self.server.heard.append(dict(self.headers))  # type: ignore[attr-defined]
        self.rfile.read(int(self.headers["content-length"]))
        status = next((int(word) for word in self.path.partition("?")[0].split("/") if word.isdigit()), 200)
        body = f"{PUSH[11]} {self.headers.get('authorization')}".encode()
        self.send_response(status)
        self.send_header("Location", f"http://127.0.0.1:9/?{PUSH[12]}")
        self.send_header("Set-Cookie", PUSH[11])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def _hook() -> Iterator[tuple[str, list[dict[str, str]]]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hook)
    server.heard = heard = []  # type: ignore[attr-defined]
    serving = Thread(target=server.serve_forever, args=(0.02,))
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", heard
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def _requests(hook: str) -> list[bytes]:
    def config(url: str, token: str, credentials: str) -> dict[str, Any]:
        return {"url": url, "token": token, "authentication": {"scheme": "Basic", "schemes": ["Basic"], "credentials": credentials}}  # fmt: skip

    def send(push: dict[str, Any], text: str = "echo hi") -> bytes:
        configuration = {"pushNotificationConfig": push, "taskPushNotificationConfig": push, "blocking": True}
        return json.dumps({"message": message(text), "configuration": configuration}).encode()

    inline = [
        config(f"{hook}/{path}?key={PUSH[6]}", PUSH[4], PUSH[5])
        for path in (PUSH[7], "500", "404", "410", "302", "429")
    ]
    refused = [
        config(f"http://{PUSH[8]}:{PUSH[8]}@127.0.0.1:9/", PUSH[10], PUSH[10]),
        config(f"http://10.0.0.1/{PUSH[7]}?{PUSH[6]}", PUSH[10], PUSH[10]),
        config(f"{hook}/#{PUSH[9]}", PUSH[10] + "\n", PUSH[10]),
        config(f"{hook}/#{PUSH[9]}", PUSH[10], PUSH[10] + "\0"),
        config(f"nowhere://{PUSH[8]}@{PUSH[7]}", PUSH[10], PUSH[10]),
        config(f"http://127.0.0.1:9/{PUSH[7]}?key={PUSH[6]}", PUSH[10], PUSH[10]),
    ]
    made = [
        post(path, send(push, text), GOOD, *version)
        for push in (*inline, *refused)
        for text in ("echo hi", "fail now")
        for path, version in (("/message:send", (V1,)), ("/v1/message:send", ()), ("/message:send", ()))
    ]
    heads = [
        b"Authorization: Bearer " + SENT[0].encode(), b"X-API-Key: " + SENT[1].encode(), b"X-API-Key: " + SENT[2].encode(),
        b"Authorization: Bearer " + JWT.encode(), b"Authorization: Bearer " + SENT[2].encode(), b"X-A2A-Notification-Token: " + SENT[3].encode(),
    ]  # fmt: skip
    paths = (
        "/tasks",
        "/metrics",
        "/admin/keys",
        "/admin/deliveries",
        "/extendedAgentCard",
        "/delegate/tasks/x",
        "/nowhere",
    )
    made += [request("GET", path, None, head) for head in heads for path in paths]
    return made


def _configs(task: str, hook: str) -> list[bytes]:
    v1 = {"taskId": task, "id": "a", "url": f"{hook}/x?{PUSH[6]}", "token": PUSH[0], "authentication": {"scheme": "Basic", "credentials": PUSH[1]}}  # fmt: skip
    v03 = {"taskId": task, "pushNotificationConfig": {"id": "b", "url": f"{hook}/x?{PUSH[6]}", "token": PUSH[2], "authentication": {"schemes": ["Basic"], "credentials": PUSH[3]}}}  # fmt: skip

    def rpc(method: str, params: dict[str, Any], *headers: bytes) -> bytes:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return post("/a2a", json.dumps(body).encode(), GOOD, *headers)

    return [
        rpc("CreateTaskPushNotificationConfig", v1, V1),
        rpc("tasks/pushNotificationConfig/set", v03),
        rpc("ListTaskPushNotificationConfigs", {"taskId": task}, V1),
        rpc("tasks/pushNotificationConfig/list", {"id": task}),
        rpc("GetTaskPushNotificationConfig", {"taskId": task, "id": "a"}, V1),
        rpc("tasks/pushNotificationConfig/get", {"id": task, "pushNotificationConfigId": "b"}),
        request("GET", f"/tasks/{task}/pushNotificationConfigs", None, GOOD),
        request("GET", f"/v1/tasks/{task}/pushNotificationConfigs/b", None, GOOD),
        request("GET", f"/tasks/{task}", None, GOOD, V1),
    ]


@pytest.mark.slow
def test_planted_secrets_go_nowhere_but_to_their_target(make: Callable[..., ServerProcess]) -> None:
    issuers = json.dumps([{"issuer": "https://issuer.invalid", "audience": "us", "jwks_url": f"https://127.0.0.1:9/{ISSUER}"}])  # fmt: skip
    with _hook() as (hook, heard), make(
        "--dev", "--metrics", "--log-level", "debug", "--set", f"issuers={issuers}",
        TRUNKLINE_SECRET_KEY=SECRET_KEY, TRUNKLINE_KEYS=KEY,
    ) as server:  # fmt: skip
        answers = flood(server.port, _requests(hook), lines=8)
        made = one(server.port, post("/admin/keys", b'{"owner":"me","scopes":["admin"]}', _operator(server)))
        assert made.status == 201, made
        stored = json.loads(made.body)["token"]
        shown = _shown(server, hook)
        commands = (("keys", "list"), ("deliveries", "list"), ("deliveries", "show", _delivery(server)))
        said = [_told(server, *words) for words in commands]
        assert '"me"' in said[0] and all("127.0.0.1" in text for text in said[1:]), said
        _until(lambda: server.text().count("delivery.dead") >= 1 and len(heard) >= 10)
        metrics = one(server.port, request("GET", "/metrics", None, b"X-API-Key: " + stored.encode()))
        operator = _operator(server).partition(b": ")[2].decode()
        server.stop()
        log = server.text()
        at_rest = b"".join(path.read_bytes() for path in server.directory.glob("tasks.db*"))
    sent_out = json.dumps(heard)
    # They were used, and what is grepped below is there.
    assert all(word in sent_out for word in (*PUSH[:6:2],)), sent_out[:2000]
    assert metrics.status == 200 and {200, 202, 400, 401} <= {answer.status for answer in answers}
    assert "delivery.retry" in log and "request.refused" in log and b"hook" not in metrics.body
    secrets = [KEY, SECRET_KEY, *PUSH, CLAIMS, JWT, JWT.split(".")[1], *SENT, stored, operator]
    assert len(secrets) >= 20
    assert [word for word in (*secrets, ISSUER) if word in log] == [], _lines(log, secrets)
    refusals = b"".join(answer.body for answer in (*answers, metrics) if answer.status != 200)
    assert [word for word in secrets if word.encode() in refusals + metrics.body] == []
    # The address of a webhook is shown to who set it, and stands in its task's log; its secrets are not.
    hidden = [word for word in secrets if word not in PUSH[6:8]]
    assert [word for word in hidden if any(word.encode() in answer.body for answer in shown)] == []
    assert [word for word in hidden if word.encode() in at_rest] == []
    assert [word for word in secrets if any(word in text for text in said)] == []


def _operator(server: ServerProcess) -> bytes:
    endpoint = json.loads((server.directory / "tasks.db.admin").read_text())
    return b"X-API-Key: " + endpoint["token"].encode()


def _shown(server: ServerProcess, hook: str) -> list[Answer]:
    first = one(
        server.port, post("/message:send", json.dumps({"message": message("echo x")}).encode(), GOOD, V1)
    )
    answers = flood(server.port, _configs(json.loads(first.body)["task"]["id"], hook), lines=1)
    assert {answer.status for answer in answers} == {200}, answers
    assert all(b"error" not in answer.body[:60] for answer in answers), answers
    return answers


def _told(server: ServerProcess, *words: str) -> str:
    """What a command of operators prints."""
    command = [sys.executable, "-c", "from trunkline.cli.main import main; main()", *words, "--json"]
    store = f"sqlite:///{server.directory}/tasks.db"
    ended = subprocess.run(
        [*command, "--store", store], capture_output=True, text=True, timeout=120, cwd=server.directory
    )
    return ended.stdout + ended.stderr


def _delivery(server: ServerProcess) -> str:
    listed = json.loads(one(server.port, request("GET", "/admin/deliveries", None, _operator(server))).body)
    return listed["deliveries"][0]["id"]


def _until(done: Callable[[], bool], limit_s: float = 15.0) -> None:
    deadline = time.monotonic() + limit_s
    while not done():
        assert time.monotonic() < deadline, "nothing was posted"
        time.sleep(0.05)


def _lines(log: str, secrets: list[str]) -> list[str]:
    return [line[:300] for line in log.splitlines() if any(word in line for word in secrets)][:5]
