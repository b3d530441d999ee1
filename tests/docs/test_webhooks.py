"""The commands of the webhooks page, one after the other as printed, beside a server."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

from tests.cli.conftest import Run, trunkline
from tests.conformance.agent.talk import until
from tests.docs.pages import blocks
from tests.harness import ServerProcess
from tests.hooks import Hooks

__all__ = ["trunkline"]

LINES = [line for block in blocks("docs/webhooks.md", "sh") for line in block.splitlines()]


def run(trunkline: Run, words: list[str]) -> str:
    if words[0] == "trunkline":
        code, out, err = trunkline(*words[1:], "--store", "sqlite:///tasks.db")
        assert code == 0, err
        return out
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands(tmp_path: Path, trunkline: Run) -> None:
    with Hooks() as hooks, ServerProcess(tmp_path, "trunkline.demo:agent", "--dev") as server:
        hooks.scripts["/hook"] = [404, 404, 200]
        said: list[str] = []
        delivery_id = ""
        for line in LINES:
            line = line.replace("http://127.0.0.1:8000", server.base)
            line = line.replace("http://127.0.0.1:9000/hook", hooks.url("/hook"))
            words = [delivery_id if word == "ID" else word for word in shlex.split(line)]
            if words[0] == "curl":
                words.insert(1, "-s")
            said.append(run(trunkline, words))
            if words[0] == "curl":
                task = json.loads(said[-1])["result"]["task"]
                posts = hooks.wait("/hook", 2)
                assert {post.headers["authorization"] for post in posts} == {"Bearer a-long-random-token"}
                until(lambda: server.text().count("delivery.dead") == 2)
                delivery_id = posts[0].id
        _, listed, shown, replayed, rest = said
        assert delivery_id in listed and task["id"] in shown
        assert "due again" in replayed and "deliveries are due again" in rest
        assert [post.id for post in hooks.wait("/hook", 4)[2:]] == [post.id for post in posts]


def test_the_receiver_keeps_a_text_that_came_before_the_end() -> None:
    space: dict[str, Any] = {}
    exec(compile(blocks("docs/webhooks.md", "python")[0], "docs/webhooks.md", "exec"), space)
    headers = {"Authorization": "Bearer a-long-random-token"}
    piece = {"artifactId": "a1", "parts": [{"kind": "text", "text": "4 words"}]}
    ids = {"taskId": "t1", "contextId": "c1"}
    end = {"state": "completed", "timestamp": "2026-01-31T12:00:00Z"}
    for body in (
        {"kind": "artifact-update", **ids, "artifact": piece},
        {"kind": "status-update", **ids, "final": True, "status": end},
    ):
        notification = space["receiver"].receive(headers, json.dumps(body).encode())
        asyncio.run(space["listen"](notification))
    assert space["results"] == {"t1": "4 words"}
