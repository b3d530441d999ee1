"""How a command reaches an agent: credentials, transports, versions, TLS, interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.peers import Scripted, served, task
from tests.cli.test_send import fields
from tests.net.authority import Authority

Make = Callable[..., Scripted]


def ready(make: Make, **card: Any) -> Scripted:
    peer = make(**card)
    peer.methods["SendMessage"] = lambda _: {"task": task("COMPLETED")}
    return peer


def sent(peer: Scripted) -> dict[str, str]:
    return next(headers for name, _, headers in peer.asked if name == "SendMessage")


@pytest.mark.parametrize(
    ("scheme", "flag", "header", "value"),
    [
        ({"httpAuthSecurityScheme": {"scheme": "Bearer"}}, "--bearer", "authorization", "Bearer s3cret-text"),
        (
            {"apiKeySecurityScheme": {"location": "header", "name": "X-Own"}},
            "--api-key",
            "x-own",
            "s3cret-text",
        ),
        (
            {"apiKeySecurityScheme": {"location": "cookie", "name": "k"}},
            "--api-key",
            "cookie",
            "k=s3cret-text",
        ),
    ],
)
def test_credentials_go_where_the_card_wants_them(
    trunkline: Run, scripted: Make, monkeypatch: pytest.MonkeyPatch,
    scheme: dict[str, Any], flag: str, header: str, value: str,
) -> None:  # fmt: skip
    peer = ready(scripted, securitySchemes={"own": scheme})
    trunkline("send", peer.url, "hi", flag, "s3cret-text")
    assert sent(peer)[header] == value
    peer.asked.clear()
    monkeypatch.setenv("A2ACLI_" + flag[2:].replace("-", "_").upper(), "s3cret-text")
    trunkline("send", peer.url, "hi")
    assert sent(peer)[header] == value


def test_a_flag_beats_the_environment_also_with_another_kind_of_credential(
    trunkline: Run, scripted: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = ready(scripted)
    monkeypatch.setenv("A2ACLI_BEARER", "from-the-environment")
    trunkline("send", peer.url, "hi", "--api-key", "from-the-flag")
    assert sent(peer)["x-api-key"] == "from-the-flag"
    assert "authorization" not in sent(peer)


@pytest.mark.parametrize(
    ("schemes", "hint"),
    [
        ({"k": {"apiKeySecurityScheme": {"location": "header", "name": "X-K"}}}, "A2ACLI_API_KEY"),
        ({"b": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}, "A2ACLI_BEARER"),
        (
            {
                "b": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
                "k": {"apiKeySecurityScheme": {"location": "header", "name": "X-K"}},
            },
            "export A2ACLI_API_KEY=KEY",
        ),
        (
            {"o": {"oauth2SecurityScheme": {"flows": {"clientCredentials": {"tokenUrl": "https://x", "scopes": {}}}}}},
            "auth login -a",
        ),
    ],
)  # fmt: skip
def test_a_refused_caller_is_told_what_to_give(
    trunkline: Run, scripted: Make, schemes: dict[str, Any], hint: str
) -> None:
    peer = scripted(securitySchemes=schemes)
    peer.routes["/a2a"] = lambda _headers, _body: (401, {"detail": "who?"})
    code, out, _ = trunkline("send", peer.url, "hi", "-o", "json")
    error = json.loads(out)["error"]
    assert (code, error["code"]) == (4, "A2ACLI_ERR_CREDENTIALS_MISSING")
    assert hint in error["hint"]
    assert "give" not in error["message"] and "who?" not in error["message"]
    assert error["message"].startswith("no credentials were sent; the agent requires ")
    code, out, _ = trunkline("send", peer.url, "hi", "--bearer", "wrong-token", "-o", "json")
    error = json.loads(out)["error"]
    assert (code, error["code"]) == (4, "A2ACLI_ERR_AUTH_FAILED")
    assert error["message"].startswith("the agent refused the credentials: who?")
    assert "wrong-token" not in out


def test_the_first_interface_that_is_spoken_is_used_and_told_ones_come_first(
    trunkline: Run, demo_url: str
) -> None:
    def chosen(*flags: str) -> str:
        code, out, err = trunkline("card", demo_url, *flags)
        assert code == 0, err
        return fields(out)["Interface"]

    assert chosen() == f"JSONRPC 1.0 at {demo_url}/a2a"
    assert chosen("--transport", "HTTP+JSON") == f"HTTP+JSON 1.0 at {demo_url}"
    # What the card does not offer is passed over; what is said first wins.
    assert chosen("--transport", "GRPC", "--transport", "rest", "--transport", "jsonrpc").startswith(
        "HTTP+JSON"
    )
    assert chosen("--transport", "GRPC").startswith("JSONRPC")


def test_the_cards_order_counts(trunkline: Run, scripted: Make) -> None:
    peer = scripted()
    both = [
        {"url": f"{peer.url}/grpc", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
        {"url": peer.url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
        {"url": f"{peer.url}/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
    ]
    peer.card["supportedInterfaces"] = both
    assert fields(trunkline("card", peer.url)[1])["Interface"].startswith("HTTP+JSON")


@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON"])
def test_both_transports_give_the_same(trunkline: Run, demo_url: str, transport: str) -> None:
    code, out, _ = trunkline("send", demo_url, "hello", "--transport", transport, "-o", "json")
    assert code == 0
    assert json.loads(out)["task"]["artifacts"][0]["parts"] == [{"text": "hello"}]
    for stream in ((), ("--stream",)):
        code, out, _ = trunkline("get", demo_url, "none", "--transport", transport, "-o", "json", *stream)
        assert (code, json.loads(out)["error"]["code"]) == (1, "TaskNotFoundError")


@pytest.mark.parametrize("tenant", ["acme", ""])
def test_a_tenant_of_the_interface_is_in_every_request(trunkline: Run, scripted: Make, tenant: str) -> None:
    peer = scripted()
    one = {"url": f"{peer.url}/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    peer.card["supportedInterfaces"] = [{**one, "tenant": tenant} if tenant else one]
    peer.methods["SendMessage"] = lambda _: {"task": task("COMPLETED")}
    peer.methods["GetTask"] = peer.methods["CancelTask"] = lambda _: task("CANCELED")
    for words in (("send", peer.url, "hi"), ("get", peer.url, "t1"), ("cancel", peer.url, "t1")):
        assert trunkline(*words)[0] == 0
    asked = [params for name, params, _ in peer.asked if not name.startswith("/")]
    assert len(asked) == 3
    assert [params.get("tenant") for params in asked] == [tenant or None] * 3


def test_a_card_that_lies_is_told_in_words(trunkline: Run, scripted: Make) -> None:
    peer = ready(scripted)
    wrong = {"url": "http://127.0.0.1:1/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    peer.card["supportedInterfaces"] = [wrong]
    code, _, err = trunkline("send", peer.url, "hi")
    assert code == 0
    assert err == (
        f"Warning: the card says http://127.0.0.1:1/a2a; {peer.url}/a2a is called, by the address that was given\n"
    )


def test_the_version_is_said_with_every_request(trunkline: Run, scripted: Make) -> None:
    peer = ready(scripted)
    peer.methods["GetTask"] = lambda _: task("COMPLETED")
    trunkline("send", peer.url, "hi")
    trunkline("get", peer.url, "t1")
    said = [headers.get("a2a-version") for name, _, headers in peer.asked if not name.startswith("/")]
    assert said == ["1.0", "1.0"]


def older(scripted: Make, version: str = "0.3") -> Scripted:
    peer = scripted()
    one = {"url": f"{peer.url}/a2a", "protocolBinding": "JSONRPC", "protocolVersion": version}
    peer.card["supportedInterfaces"] = [one]
    old = {"kind": "task", "id": "t1", "contextId": "c1", "status": {"state": "completed"}}
    peer.methods["message/send"] = peer.methods["tasks/get"] = lambda _: old
    return peer


@pytest.mark.parametrize("version", ["0.3", "0.3.0", "0.2.6"])
def test_older_agent_is_called_in_its_version_and_a_note_says_so_once(
    trunkline: Run, scripted: Make, version: str
) -> None:
    peer = older(scripted, version)
    code, out, err = trunkline("send", peer.url, "hi", "-o", "json")
    assert (code, json.loads(out)) == (0, {"task": task("COMPLETED")})
    short = version[:3]
    assert err == f"Note: the agent does not speak 1.0; it is called in {short}\n"
    # Nobody asked for a version, so none is said to an agent that does not know the header.
    assert "a2a-version" not in peer.asked[-1][2]
    code, out, err = trunkline("send", peer.url, "hi", "--watch")
    assert (code, err.count("Note:")) == (0, 1)
    assert fields(out)["Next"] == f"trunkline send -a {peer.url} --context-id c1 '<reply>'"
    assert trunkline("get", peer.url, "t1")[0] == 0
    shown = fields(trunkline("card", peer.url)[1])
    assert shown["Interface"].startswith("JSONRPC 0.3")
    assert shown["Next"] == f"trunkline send -a {peer.url} '<text>'"


def test_tools_of_an_older_agent_are_called_in_its_version(trunkline: Run, scripted: Make) -> None:
    peer = older(scripted)
    peer.card |= {"name": "n", "skills": [{"id": "s", "name": "s"}]}
    called = ("tools", peer.url, "--call", "a2a__n__s", "--arguments", '{"query": "hi"}')
    code, _, err = trunkline(*called)
    assert (code, len(peer.params("message/send"))) == (0, 1)
    assert err == "Note: the agent does not speak 1.0; it is called in 0.3\n"
    code, _, err = trunkline(*called, "--a2a-version", "1.0")
    assert (code, "leave out --a2a-version" in err) == (1, True)
    assert len(peer.params("message/send")) == 1
    # An agent that is missing is reported as before, and keeps no other one from being used.
    code, out, err = trunkline("tools", peer.url, "http://127.0.0.1:9")
    assert (code, out.count('"name"'), "127.0.0.1:9" in err) == (0, 1, True)


def test_version_that_the_caller_insists_on_is_not_given_up(
    trunkline: Run, scripted: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = older(scripted)
    code, out, _ = trunkline("send", peer.url, "hi", "--a2a-version", "1.0", "-o", "json")
    error = json.loads(out)["error"]
    assert (code, error["code"]) == (1, "VersionNotSupportedError")
    assert "the agent speaks 0.3, and not 1.0; leave out --a2a-version" in error["message"]
    assert error["hint"] == f"trunkline send -a {peer.url} --a2a-version 0.3 '<text>'"
    assert not peer.params("message/send")
    code, out, err = trunkline("send", peer.url, "hi", "--a2a-version", "0.3", "-o", "json")
    assert (code, json.loads(out), err) == (0, {"task": task("COMPLETED")}, "")
    assert peer.asked[-1][2]["a2a-version"] == "0.3"
    _, out, _ = trunkline("send", peer.url, "hi", "--a2a-version", "0.3")
    assert fields(out)["Next"] == f"trunkline send -a {peer.url} --a2a-version 0.3 --context-id c1 '<reply>'"
    monkeypatch.setenv("A2ACLI_A2A_VERSION", "1.0")
    assert trunkline("send", peer.url, "hi")[0] == 1


def test_version_that_nobody_here_speaks_is_refused(trunkline: Run, scripted: Make) -> None:
    peer = older(scripted, "2.0")
    code, out, _ = trunkline("send", peer.url, "hi", "-o", "json")
    error = json.loads(out)["error"]
    assert (code, error["code"]) == (1, "VersionNotSupportedError")
    assert "the agent speaks 2.0, and none of 1.0, 0.3" in error["message"]
    assert not peer.params("message/send") and not peer.params("SendMessage")


def test_an_agent_with_a_send_alone_needs_no_version(trunkline: Run, scripted: Make) -> None:
    """Its card names neither a place nor a version, and no task can be read."""
    peer = scripted(supportedInterfaces=[])
    peer.methods.clear()
    peer.methods["message/send"] = lambda _: {
        "kind": "task",
        "id": "t1",
        "contextId": "c1",
        "status": {"state": "completed"},
    }
    code, out, _ = trunkline("send", peer.url, "hi", "-o", "json")
    assert (code, json.loads(out)) == (0, {"task": task("COMPLETED")})
    assert len(peer.params("message/send")) == 1


def test_a_version_that_is_told_is_not_given_up(trunkline: Run, demo_url: str) -> None:
    assert "0.3" in fields(trunkline("card", demo_url, "--a2a-version", "0.3")[1])["Interface"]


def test_certificates_are_checked_unless_told_and_then_it_is_said(trunkline: Run, tmp_path: Path) -> None:
    peer = Scripted()
    with served(peer, tls=Authority(tmp_path).server("127.0.0.1", self_signed=True)) as url:
        peer.url = url
        peer.methods["SendMessage"] = lambda _: {"task": task("COMPLETED")}
        code, out, _ = trunkline("send", url, "hi", "-o", "json")
        error = json.loads(out)["error"]
        assert (code, error["code"]) == (3, "A2ACLI_ERR_UNREACHABLE")
        assert "--insecure" in error["hint"]
        code, _, err = trunkline("send", url, "hi", "--insecure", "--bearer", "tok-en-1")
        assert code == 0
        assert "Warning: --insecure" in err and "credential" in err
        assert "credential" not in trunkline("send", url, "hi", "--insecure")[2]


def test_an_agent_without_a_card_is_spoken_to_as_told(trunkline: Run, scripted: Make) -> None:
    peer = ready(scripted)
    for path in ("/.well-known/agent-card.json", "/.well-known/agent.json"):
        peer.routes[path] = lambda _headers, _body: (404, {})
    code, _, err = trunkline("send", peer.url, "hi", "--transport", "JSONRPC")
    assert code == 0
    assert "there is no card" in err


def test_an_interrupted_wait_says_the_task_and_how_to_go_on(demo_url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trunkline.cli", "send", demo_url, "sleep 60", "--debug"]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stderr is not None
        seen = ""
        deadline = time.monotonic() + 60
        while "TASK_STATE_WORKING" not in seen and time.monotonic() < deadline:
            seen += process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120)
    assert process.returncode == 130
    (said,) = [line for line in err.splitlines() if line.startswith("Next: ")]
    assert said.startswith(f"Next: trunkline task get -a {demo_url} ")
    known = said.split()[-2]
    assert f"task {known} continues" in err and known in seen
