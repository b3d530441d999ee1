"""Agents whose model is a script: answers, tools, failures, and who may name one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.model.hub import answer, named, opened, reason, run
from tests.harness import params
from trunkline.hub import carried

AGENTS = """
agents:
  - {name: scout, model: "script:model.yaml", capabilities: [/write]}
  - {name: lost, model: "script:missing.yaml"}
"""
SCRIPT = """
rules:
  - when: {contains: write}
    reply: {calls: [{tool: write_file, arguments: {path: plan.txt, content: done}}]}
  - when: {tool: write_file}
    reply: It is written.
  - when: {contains: busy}
    reply: {error: 429}
otherwise: {stream: [Good, " morning."]}
"""


def test_a_script_answers_uses_tools_and_fails_as_a_provider_does(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(SCRIPT)

    async def scene() -> None:
        async with opened(tmp_path, AGENTS, dev=True) as ask:

            async def send(text: str) -> Any:
                return (await ask("POST /v1/a2a/agents/scout/message:send", params(text)))[1]["task"]

            assert answer(await send("hello")) == "Good morning."
            written = await send("write it")
            assert answer(written) == "It is written." and named(written, "tool_call")
            failed = await send("busy")
            assert failed["status"]["state"] == "TASK_STATE_FAILED" and reason(failed).startswith(
                "rate_limited"
            )
            await ask("POST /api/agents", {"name": "mine", "model": "script:model.yaml"})
            for name, why in (("lost", "missing.yaml"), ("mine", "only files may name a script")):
                found = await ask.ready(name)
                assert found["state"] == "invalid" and why in found["reason"], found

    run(scene())


def test_agent_is_ready_once_its_script_is_fixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carried, "SCRIPTS_S", 0.02)
    script = tmp_path / "model.yaml"
    script.write_text(SCRIPT.replace("otherwise", "otherwize"))

    async def scene() -> None:
        async with opened(tmp_path, AGENTS) as ask:
            assert "otherwize" in (await ask.ready("scout"))["reason"]
            script.write_text(SCRIPT)
            await ask.until("GET /api/agents/scout", lambda one: one["state"] == "ready")

    run(scene())
