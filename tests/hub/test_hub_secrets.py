"""No secret of a hub is told by anything it answers, streams, logs or stores; and without a key it tells nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.wire.routes import HUB_API
from tests.gateway.model.hub import opened, run
from tests.harness import V1, Agent, ServerProcess, params
from tests.hub.remote_agents import COMPLETED, RemoteAgent, RemoteAgents, call_back, until
from tests.hub.test_hub import HubProcess
from trunkline.fleet import mount
from trunkline.hub.workspace import STORE
from trunkline.mock.serve import BackgroundServer

# Each stands for another secret; whoever finds one knows what has leaked.
CANARIES = {
    name: f"canary{name.lower().replace('_', '')}7f3a91"
    for name in ("BEARER", "API_KEY", "HEADER", "CARD_QUERY", "READER", "HOOK", "UNUSED", "SECRET_KEY")
}
ENV = {f"T_{name}": value for name, value in CANARIES.items()}
OPERATOR = "canary-of-the-operator-81c2"
BY_API = "canary-given-by-api-55d0"
KEYS = "keys: {reader: {env: T_READER, scopes: ['tasks:read']}}"
AGENTS = """
agents:
  - {name: bearer, url: "URL/bearer", auth: {scheme: bearer, credentialsEnv: T_BEARER}}
  - {name: keyed, url: "URL/keyed", apiKeyEnv: T_API_KEY, headers: {X-Extra: "${T_HEADER}"}}
  - {name: gone, url: "http://127.0.0.1:1", skills: [gone], cardUrl: "http://127.0.0.1:1/card?k=${T_CARD_QUERY}"}
  - {name: broken, url: "${T_UNUSED} is no address"}
"""
CEREMONY = """
name: Told
schedule: "0 9 * * *"
skill: bearer
targets: [bearer]
notifyWebhookEnv: T_HOOK_URL
"""
_SCOPE = re.compile(r"Needs the scope (\S+),")
PUBLIC = ("/healthz", "/readyz", "/.well-known/agent-card.json", "/v1/a2a/agents/keyed/agent-card.json")


class Vault:
    """A hub that has many secrets, and what was heard of it."""

    def __init__(self, hub: ServerProcess, remote: RemoteAgents) -> None:
        self.hub = hub
        self.remote = remote
        self.agent = Agent(hub.base, headers={"X-API-Key": OPERATOR})
        self.secrets = {**CANARIES, "OPERATOR": OPERATOR, "BY_API": BY_API}
        self.heard: list[tuple[str, str]] = []
        self.names = {"id": "nothing", "name": "bearer"}

    def ask(self, verb: str, path: str, body: Any = None, **headers: str) -> Any:
        content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = {"Content-Type": "application/json", **headers}
        answer = self.agent.http.request(verb, self.hub.base + path, content=content, headers=kind)
        self.heard.append((f"{verb} {path} {answer.status_code}", f"{answer.headers}{answer.text}"))
        return answer

    def paths(self) -> Iterator[tuple[str, str]]:
        described = self.ask("GET", "/api/openapi.json").json()["paths"]
        for path, verbs in described.items():
            for verb in verbs:
                yield verb.upper(), re.sub(r"\{(\w+)\}", lambda found: self.names[found[1]], path)

    def leaks(self, *more: tuple[str, str]) -> list[str]:
        return [
            f"{place}: {name}"
            for place, text in (*self.heard, *more)
            for name, secret in self.secrets.items()
            if secret in text
        ]


@pytest.fixture(scope="module")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vault]:
    workspace: Path = tmp_path_factory.mktemp("secrets")
    remote = RemoteAgents(RemoteAgent("bearer", push=True), RemoteAgent("keyed", streaming=True))
    (workspace / "keys.yaml").write_text(KEYS)
    (workspace / "ceremonies").mkdir()
    (workspace / "ceremonies" / "told.yaml").write_text(CEREMONY)
    flags = ("--key", OPERATOR, "--log-level", "debug", "--metrics", "--set", "egress_hosts=127.0.0.1")
    with BackgroundServer(remote) as url:
        (workspace / "agents.yaml").write_text(AGENTS.replace("URL", url))
        env = {
            **ENV,
            "T_HOOK_URL": f"{url}/keyed/{CANARIES['HOOK']}",
            "TRUNKLINE_SECRET_KEY": CANARIES["SECRET_KEY"],
        }
        with HubProcess(workspace, *flags, env=env) as hub:
            made = Vault(hub, remote)
            until(lambda: made.ask("GET", "/api/agents/keyed").json()["state"] == "ready")
            yield made
            made.agent.close()


def test_hb33_every_route_but_the_public_ones_needs_a_key(vault: Vault) -> None:
    known = [*vault.paths(), ("GET", "/metrics"), ("GET", "/v1/models"), ("POST", "/v1/chat/completions")]
    known += [("POST", "/a2a"), ("POST", "/v1/a2a/agents/keyed"), ("POST", "/v1/a2a/agents/nobody")]
    known += [("GET", "/tasks"), ("GET", "/v1/a2a/agents/keyed/v1/tasks/x"), ("GET", "/admin/keys")]
    assert len(known) > 50
    stranger = Agent(vault.hub.base)
    for verb, path in known:
        body = b"{}" if verb in ("POST", "PUT") else b""
        for headers in ({}, {"X-API-Key": "nobody has this one"}):
            answer = stranger.http.request(
                verb,
                vault.hub.base + path,
                content=body,
                headers={"Content-Type": "application/json", **headers},
            )
            assert answer.status_code == 401, (verb, path, answer.text)
    for path in PUBLIC:
        assert stranger.http.get(vault.hub.base + path).status_code == 200, path
    stranger.close()


def test_hb34_no_secret_is_told_by_any_answer_topic_log_or_error(vault: Vault) -> None:
    told = {
        "name": "added",
        "url": "http://127.0.0.1:1/x",
        "auth": {"scheme": "bearer", "credentials": BY_API},
    }
    assert vault.ask("POST", "/api/agents", told).status_code == 200
    # Errors too: whoever puts a secret where none belongs does not read it back.
    wrong = {**told, "name": "wrong", "auth": {"scheme": "unheard", "credentials": BY_API}}
    assert vault.ask("POST", "/api/agents", wrong).status_code == 400
    tasks = {
        agent: vault.ask(
            "POST", "/api/dispatch", {"agent": agent, "skill": agent, "message": f"for {agent}", "wait": 0}
        ).json()["tasks"][0]["taskId"]
        for agent in ("bearer", "keyed", "gone", "broken", "added")
    }
    bearer, keyed = (vault.remote.agents[name] for name in ("bearer", "keyed"))
    work = bearer.find("for bearer")
    assert work.push is not None and work.push["token"]
    vault.secrets["CALLBACK"] = work.push["token"]
    for agent, text in ((bearer, "for bearer"), (keyed, "for keyed")):
        vault.remote.say(
            agent.find(text), state=COMPLETED, artifacts=[{"artifactId": "a", "parts": [{"text": "ok"}]}]
        )
    assert call_back(work, {"task": work.task()}) == 200
    for name in ("bearer", "keyed"):
        until(lambda name=name: vault.ask("GET", f"/api/tasks/{tasks[name]}").json()["state"] == "completed")
    # The agents themselves were shown what is theirs: the canaries are alive.
    assert any(one.get("authorization") == f"Bearer {CANARIES['BEARER']}" for one in bearer.headers)
    assert any(one.get("x-extra") == CANARIES["HEADER"] for one in keyed.headers)
    run = vault.ask("POST", "/api/ceremonies/told/run").json()
    vault.remote.say(bearer.find("Told"), state=COMPLETED)
    until(lambda: any(CANARIES["HOOK"] in path for path in keyed.calls))
    created = vault.ask("POST", "/admin/keys", {"owner": "somebody"}).json()
    vault.heard.pop()
    vault.secrets["CREATED"] = created["token"]
    _sweep(vault, [*tasks.values(), run["taskId"]])
    files = [*vault.hub.directory.glob(f"{STORE}*"), vault.hub.log]
    stored = [
        (file.name, file.read_bytes().decode("latin-1")) for file in files if not file.name.endswith(".key")
    ]
    assert len(stored) >= 2 and len(vault.heard) > 150
    assert vault.leaks(*stored) == []
    assert [place for place, _ in vault.heard if place.endswith(" 500")] == []


def _sweep(vault: Vault, tasks: list[str]) -> None:
    """Ask everything: each route with each name, with bodies that fit nothing, and the other surfaces."""
    vault.ask("GET", "/api/bus/history?limit=200")
    with vault.agent.open(
        "GET", "/api/bus/subscribe?topic=%23&after=0", Accept="text/event-stream"
    ) as frames:
        for line in frames.response.iter_lines():
            vault.heard.append(("bus", line))
            if tasks[-1] in line:
                break
    names = [
        {"id": one, "name": one} for one in (*tasks, "told", "bearer", "keyed", "gone", "broken", "added")
    ]
    for vault.names in names:
        for verb, path in vault.paths():
            if path.endswith(("/events", "/bus/subscribe")):
                continue
            if verb == "GET":
                vault.ask(verb, path)
            elif "delete" not in path and verb != "DELETE":
                vault.ask(verb, path, b"{" if "callback" in path else {"unheard": 1})
    for task in tasks:
        vault.ask("GET", f"/api/bus/history?correlationId={task}&limit=200")
        vault.ask("POST", "/a2a", _rpc("GetTask", {"id": task}), **V1)
    for path in (*PUBLIC, "/metrics", "/v1/models", "/admin/keys", "/admin/tasks", "/admin/deliveries"):
        vault.ask("GET", path)
    vault.ask("POST", "/a2a", _rpc("ListTasks", {}), **V1)
    vault.ask("POST", "/a2a", _rpc("GetExtendedAgentCard", {}), **V1)
    to_gone = params("quick", metadata={"targets": ["gone"]}) | {"configuration": {"returnImmediately": True}}
    vault.ask("POST", "/a2a", _rpc("SendMessage", to_gone), **V1)
    vault.ask(
        "POST", "/v1/chat/completions", {"model": "broken", "messages": [{"role": "user", "content": "x"}]}
    )
    vault.ask("POST", "/api/a2a/probe", {"url": f"http://127.0.0.1:1/?k={CANARIES['UNUSED']}"})


def _rpc(method: str, body: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": body}


def test_sec_03_every_route_that_only_a_hub_has_asks_for_its_scope(vault: Vault) -> None:
    described = vault.ask("GET", "/api/openapi.json").json()["paths"]
    needed = {
        f"{verb.upper()} {path.removeprefix('/api')}": _SCOPE.findall(about["description"])
        for path, verbs in described.items()
        for verb, about in verbs.items()
    }
    hubs = {pattern: "".join(scope) for pattern, scope in needed.items() if pattern not in mount.SCOPES}
    assert hubs == HUB_API, "a route of the hub without a row"
    reader = Agent(
        vault.hub.base, headers={"X-API-Key": CANARIES["READER"], "Content-Type": "application/json"}
    )
    for pattern, scope in hubs.items():
        verb, path = pattern.split()
        url = f"{vault.hub.base}/api" + path.replace("{id}", "nothing").replace("{name}", "nothing")
        answer = reader.http.request(verb, url, content=b"" if verb == "GET" else b"{}")
        # Before anything is looked up or read: nobody learns what there is.
        assert (answer.status_code == 403) == (scope != "tasks:read"), (pattern, answer.text)
        assert answer.status_code != 403 or scope in answer.text
    reader.close()


RAISING = {
    "at_import": 'raise RuntimeError("postgres://u:canary-of-a-module-0b7e@db")',
    "at_exit": 'raise SystemExit("canary-of-a-module-0b7e")',
    "no_syntax": 'password = "canary-of-a-module-0b7e" :',
    "no_module": "import canary_free_and_missing",
    "by_card": """
from trunkline import Agent, Turn

class Leaking(Agent):
    def card(self):
        raise ValueError("canary-of-a-module-0b7e")

agent = Leaking("Leaking")

@agent.skill
async def answer(turn: Turn) -> str:
    return "never"
""",
}
REASONS = {
    "at_import": "raising_at_import:agent: RuntimeError at raising_at_import.py:1",
    "at_exit": "raising_at_exit:agent: SystemExit at raising_at_exit.py:1",
    "no_syntax": "raising_no_syntax:agent: SyntaxError at raising_no_syntax.py:1",
    "no_module": "raising_no_module:agent: there is no module 'canary_free_and_missing'",
    "by_card": "raising_by_card:agent: ValueError at raising_by_card.py:6",
}


def test_gw_05_whoever_makes_a_card_and_raises_a_secret_tells_it_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    for name, text in RAISING.items():
        (tmp_path / f"raising_{name}.py").write_text(text)
    entries = [f"  - {{name: {name}, import: 'raising_{name}:agent'}}\n" for name in RAISING]
    fine = (tmp_path / "raising_nothing.py").write_text(
        RAISING["by_card"].replace("raise", "return super().card() or")
    )
    assert fine
    entries.append("  - {name: fine, import: 'raising_nothing:agent'}\n")
    said: list[str] = []

    async def scene() -> None:
        async with opened(tmp_path, f"agents:\n{''.join(entries)}") as caller:
            await caller.ready("fine")
            for name, reason in REASONS.items():
                found = await caller.ready(name)
                assert (found["state"], found["reason"]) == ("invalid", reason)
                for path in ("agent-card.json", ".well-known/agent-card.json", "extendedAgentCard"):
                    said.append(str(await caller(f"GET /v1/a2a/agents/{name}/{path}")))
                said.append(str(await caller(f"POST /v1/a2a/agents/{name}", {"jsonrpc": "2.0", "id": 1})))
                order = {"agent": name, "message": "go", "wait": 1}
                said.append(str(await caller("POST /api/dispatch", order)))
            for name in ("one", "two"):
                status, _ = await caller("POST /api/agents", {"name": name, "url": "http://127.0.0.1:1"})
                assert status == 200
                await caller.until(f"GET /api/agents/{name}", lambda one: one["state"] == "unreachable")
            # The others are served.
            assert (await caller("GET /v1/a2a/agents/fine/agent-card.json"))[0] == 200

    run(scene())
    assert "canary-of-a-module" not in caplog.text + "".join(said)
    # Said once, whatever else comes and goes.
    assert caplog.text.count("agent.unloaded agent=by_card") == 1


PARROT = "canary-that-is-repeated-3e0c"
PARROTS = """
agents:
  - {name: polly, url: "URL", auth: {scheme: bearer, credentialsEnv: T_PARROT}}
  - {name: lori, url: "URL", apiKeyEnv: T_PARROT}
  - {name: thinker, model: "openai:small", baseUrl: "URL/refused", apiKeyEnv: T_PARROT}
"""


async def parrot(scope: Any, receive: Any, send: Any) -> None:
    """An agent and a server of models that repeat the key they were shown, wherever they may say something."""
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return
    sent = {name.decode(): value.decode() for name, value in scope["headers"]}
    key = sent.get("x-api-key") or sent.get("authorization", "").removeprefix("Bearer ")
    url = f"http://{sent['host']}"
    asked = json.loads((await receive())["body"] or b"{}")
    text = str(asked.get("params", {}).get("message", {}).get("parts"))
    skill = {"id": "say", "name": "say", "description": f"I know {key}", "tags": [key]}
    card = {
        "name": "parrot", "description": f"my key is {key}", "version": key, "capabilities": {"streaming": True},
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "skills": [skill],
    }  # fmt: skip
    envelope = {"jsonrpc": "2.0", "id": asked.get("id")}
    error = {**envelope, "error": {"code": -32602, "message": f"no, {key}"}}
    said = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": f"yes, {key}"}]}
    status, kind, told = 200, b"application/json", json.dumps(error)
    if scope["method"] == "GET":
        told = json.dumps(card)
    elif "stream" in text:
        kind, told = b"text/event-stream", f"data: {told}\n\n"
    elif "refuse" in text or "refused" in scope["path"]:
        status, told = 401, json.dumps({"error": {"message": f"not with {key}"}})
    elif "answer" in text:
        told = json.dumps({**envelope, "result": {"message": said}})
    headers = [(b"content-type", kind), (b"www-authenticate", f"Bearer {key}".encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": told.encode()})


def test_a_key_that_its_agent_repeats_is_told_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("T_PARROT", PARROT)
    caplog.set_level("DEBUG")
    heard: list[str] = []

    async def scene(url: str) -> None:
        async with opened(tmp_path, PARROTS.replace("URL", url), T_PARROT=PARROT) as caller:
            for name in ("polly", "lori"):
                heard.append(str(await caller.ready(name)))
                assert "my key is ***" in heard[-1]
                heard.append(str(await caller(f"GET /v1/a2a/agents/{name}/agent-card.json")))
                for text in ("error", "stream", "refuse", "answer"):
                    heard.append(str(await caller.say(name, text)))
                assert "yes, ***" in heard[-1]
            await caller.ready("thinker")
            heard.append(str(await caller.say("thinker", "go")))

    with BackgroundServer(parrot) as url:
        run(scene(url))
    assert "model.failed" in caplog.text
    assert PARROT not in caplog.text + "".join(heard)
