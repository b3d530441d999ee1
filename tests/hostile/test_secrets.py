"""Row 58: secrets are planted everywhere, everything is done at debug level, and then they are looked for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import ServerProcess, message
from tests.hostile.shapes import V1, forms, torn
from tests.hostile.sockets import flood, one, post, request
from trunkline.config import load

KEYS = ("planted-key-flag-1", "planted-key-environment-2", "planted-key-environment-3")
SENT = (
    "planted-bearer-4",
    "planted-x-api-key-5",
    "planted-basic-6",
    "planted-cookie-7",
    "planted-idempotency-8",
    "planted-query-9",
    "planted-token-10",
)
SAID = (
    "planted-text-11",
    "planted-metadata-12",
    "planted-data-13",
    "planted-file-14",
    "planted-context-15",
    "planted-message-id-16",
    "planted-answer-17",
    "planted-broken-18",
)
CONTEXT = SAID[4]
GOOD = b"X-API-Key: " + KEYS[0].encode()


def _requests() -> list[bytes]:
    def whole(text: str) -> dict[str, object]:
        return {
            "message": message(
                f"{text} {SAID[0]}", messageId=SAID[5], contextId=SAID[4], metadata={SAID[1]: SAID[1]},
                parts=[{"text": f"{text} {SAID[0]}"}, {"data": {SAID[2]: SAID[2]}}, {"raw": "aGk=", "filename": SAID[3]}, {"url": f"https://x.example/{SAID[3]}"}],
            ),
            "metadata": {SAID[1]: SAID[1]},
        }  # fmt: skip

    bodies = [
        json.dumps(whole(word)).encode()
        for word in (
            "echo",
            "fail",
            "reject",
            "count 3 0",
            "usage",
            "file",
            "toolerror",
            "message",
            "confidence x",
        )
    ]
    heads = [
        b"Authorization: Bearer " + SENT[0].encode(), b"X-API-Key: " + SENT[1].encode(), b"Authorization: Basic " + SENT[2].encode(),
        b"Cookie: session=" + SENT[3].encode(), b"Authorization: Bearer " + KEYS[1].encode(), b"X-API-Key: " + KEYS[2].encode(), GOOD,
    ]  # fmt: skip
    made = [
        post(path, body, head, V1, b"Idempotency-Key: " + SENT[4].encode() + b"-%d" % number)
        for number, body in enumerate(bodies)
        for head in heads
        for path in ("/message:send", "/message:stream")
    ]
    made += [
        request(
            "GET", f"{path}?pageToken={SENT[5]}&contextId={SENT[5]}&status={SENT[5]}&x={SENT[5]}", None, head
        )
        for head in heads
        for path in ("/tasks", "/v1/tasks", "/nowhere", "/a2a")
    ]
    push = {
        **whole("echo"),
        "configuration": {
            "pushNotificationConfig": {
                "url": f"https://x.example/{SENT[6]}",
                "token": SENT[6],
                "authentication": {"credentials": SENT[6]},
            }
        },
    }
    made += [
        post(path, json.dumps(push).encode(), GOOD, V1) for path in ("/message:send", "/v1/message:send")
    ]
    made += [
        post("/a2a", case_body, GOOD)
        for case_body in (
            f'{{"{SAID[7]}"'.encode(),
            f'["{SAID[7]}"]'.encode(),
            SAID[7].encode(),
            f'{{"jsonrpc":"2.0","id":"{SAID[7]}","method":"{SAID[7]}"}}'.encode(),
        )
    ]
    return made


@pytest.mark.parametrize("form", ["text", "json"])
def test_planted_secrets_are_in_no_log_error_card_or_metric(
    make: Callable[..., ServerProcess], form: str
) -> None:
    with make(
        "--log-level",
        "debug",
        "--log-format",
        form,
        "--metrics",
        "--key",
        KEYS[0],
        "--set",
        "keys=" + ",".join(KEYS),
        TRUNKLINE_KEYS=",".join(KEYS[1:]),
    ) as server:
        raws = _requests()
        answers = flood(server.port, raws, lines=8)
        answers += flood(server.port, [case.raw for case in torn(forms("x"), 300, 1)], lines=8)
        cards = [
            one(server.port, request("GET", path, None, *more))
            for path in ("/.well-known/agent-card.json", "/.well-known/agent.json")
            for more in ((), (V1,), (GOOD,))
        ]
        metrics = one(server.port, request("GET", "/metrics", None, GOOD))
        server.stop()
        log = server.text()
    assert {answer.status for answer in answers} >= {200, 400, 401, 404}
    assert "request.refused" in log and "task.state" in log, "nothing was logged: is the level right?"
    # The context is an ID of the caller's choice; the lines for machines have it.
    hidden = [secret for secret in (*KEYS, *SENT, *SAID) if secret != CONTEXT]
    found = [secret for secret in hidden if secret in log]
    assert found == [], [line for line in log.splitlines() if any(one in line for one in found)][:5]
    assert (CONTEXT in log) is (form == "json")
    assert metrics.status == 200 and b"trunkline_refusals_total" in metrics.body
    assert b"planted" not in metrics.body
    for card in cards:
        assert card.status == 200 and b"planted" not in card.body
    refusals = [answer.body for answer in answers if answer.status >= 400]
    assert refusals and not [
        body for body in refusals if any(key.encode() in body for key in (*KEYS, *SENT[:5], SENT[6]))
    ]
    # What was said comes back to the one who said it, and to nobody else.
    assert not any(b"planted" in answer.body for answer in answers if answer.status == 401)


FORGED = "2026-01-01 INFO forged"


def test_a_path_cannot_forge_a_line_of_the_log(make: Callable[..., ServerProcess]) -> None:
    with make() as server:
        one(server.port, request("GET", "/x%0d%0a2026-01-01%20INFO%20forged%1b[31m%E2%80%A8", None))
        server.stop()
        log = server.text()
    assert "request.refused path='/x\\r\\n2026" in log
    assert not any(line.startswith(FORGED) for line in log.splitlines())
    assert "\x1b" not in log


@pytest.mark.parametrize("form", ["text", "json"])
def test_nobody_can_forge_a_line_or_a_field(make: Callable[..., ServerProcess], form: str) -> None:
    """By a path, a context, a trace or the text of an exception."""
    path = f"/x%0a{FORGED.replace(' ', '%20')}%1b[31m%E2%80%A8%C2%9b state=forged".replace(" ", "%20")
    context = "c' state=forged level=error \u0430"
    body = json.dumps({"message": message(f"fail \n{FORGED}\u2028", contextId=context)}).encode()
    with make("--log-format", form, "--log-level", "debug") as server:
        one(server.port, request("GET", path, None))
        sent = one(server.port, post("/message:send", body, V1, b"traceparent: 00-state=forged"))
        server.stop()
        log = server.text()
    assert sent.status == 200, sent
    lines = log.splitlines()
    assert not any(line.lstrip().startswith(FORGED) for line in lines)
    assert all(line.isprintable() for line in lines)
    if form == "text":
        assert sum("task.state" in line for line in lines) == 3
        assert "state=forged level=error" not in log
    else:
        records = [json.loads(line) for line in lines]
        assert all(record.keys() >= {"time", "level", "logger", "event"} for record in records)
        assert {record.get("state") for record in records} <= {None, "submitted", "working", "failed"}
        assert [record["context"] for record in records if record["event"] == "task.state"] == [context] * 3


def test_one_caller_cannot_read_what_another_said(make: Callable[..., ServerProcess]) -> None:
    with make("--key", KEYS[0], "--key", KEYS[1]) as server:
        sent = one(
            server.port,
            post("/message:send", json.dumps({"message": message(f"echo {SAID[0]}")}).encode(), GOOD, V1),
        )
        task = json.loads(sent.body)["task"]["id"]
        other = b"Authorization: Bearer " + KEYS[1].encode()
        known = flood(
            server.port,
            [
                request(verb, path.format(task), None, other, V1)
                for verb, path in (
                    ("GET", "/tasks/{}"),
                    ("POST", "/tasks/{}:cancel"),
                    ("GET", "/tasks/{}:subscribe"),
                )
            ],
            lines=1,
        )
        absent = task[:-1] + ("0" if task[-1] != "0" else "1")
        unknown = flood(
            server.port,
            [
                request(verb, path.format(absent), None, other, V1)
                for verb, path in (
                    ("GET", "/tasks/{}"),
                    ("POST", "/tasks/{}:cancel"),
                    ("GET", "/tasks/{}:subscribe"),
                )
            ],
            lines=1,
        )
        listed = one(server.port, request("GET", "/tasks", None, other, V1))
    assert [(a.status, a.body.replace(task.encode(), b"T")) for a in known] == [
        (a.status, a.body.replace(absent.encode(), b"T")) for a in unknown
    ]
    assert SAID[0].encode() not in listed.body


def test_settings_print_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRUNKLINE_KEYS", ",".join(KEYS))
    monkeypatch.setenv("TRUNKLINE_SECRET_KEY", "planted-secret-key")
    settings = load({}, file=tmp_path / "none.toml")
    assert len(settings.keys) == 3 and settings.secret_key is not None
    assert "planted" not in f"{settings} {settings!r} {settings.keys!s}"


@pytest.mark.parametrize(
    "flags",
    [
        ["broken:agent"],
        ["nowhere:agent"],
        ["trunkline.demo:agent", "--port", "x"],
        ["trunkline.demo:agent", "--set", "port=x"],
        ["trunkline.demo:agent", "--store", "postgresql://me:planted-password@db/x"],
        ["trunkline.demo:agent", "--public-url", "https://me:planted-password@x.example"],
        ["trunkline.demo:agent", "--store", "memory:", "--port", "0", "--set", "secret_key=planted-brief"],
        ["trunkline.demo:agent", "--set", 'issuers=[{"issuer": "planted-password"'],
        ["trunkline.demo:agent", "--set", 'issuers=[{"issuer": 7, "audience": "planted-password"}]'],
    ],
    ids=lambda flags: " ".join(flags)[:40],
)
def test_a_failed_start_prints_no_secret(tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "broken.py").write_text(
        "from trunkline import Agent\nagent = Agent('x')\nraise RuntimeError('broken on purpose')\n"
    )
    command = [
        sys.executable,
        "-c",
        "from trunkline.cli.main import main; main()",
        "serve",
        *flags,
        "--key",
        KEYS[0],
    ]
    ended = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        env={"TRUNKLINE_KEYS": KEYS[1], "COLUMNS": "200", "PATH": ""},
    )
    assert ended.returncode in (1, 2, 3)
    assert ended.stderr
    assert "planted" not in ended.stdout + ended.stderr


@pytest.mark.parametrize("words", [["keys", "list"], ["keys", "list", "--json"], ["store", "check"]])
def test_a_command_that_fails_prints_no_secret(tmp_path: Path, words: list[str]) -> None:
    store = "postgresql://me:planted-password@127.0.0.1:1/x"
    command = [sys.executable, "-c", "from trunkline.cli.main import main; main()", *words, "--store", store]
    env = {"TRUNKLINE_KEYS": KEYS[1], "TRUNKLINE_SECRET_KEY": "planted-secret-key", "PATH": ""}
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=env)
    # With --json the error stands in place of the result.
    assert ended.returncode in (1, 2, 3) and "127.0.0.1:1/x" in ended.stdout + ended.stderr
    assert "planted" not in ended.stdout + ended.stderr
