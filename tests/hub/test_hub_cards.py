"""Cards that need a key, names on cards, and the reply on the last status of a task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.model.hub import V1, Caller, answer, opened, reason, run
from tests.gateway.model.openai_server import ModelServer, Reply

KEY = "operators-key-1"
ENTRY = "agents:\n  - {name: carded, title: The Writer, import: 'carded_agent:agent'}\n"
MODULE = """
from trunkline import Agent, Turn

agent = Agent("Local")

@agent.skill
async def answer(turn: Turn) -> str:
    await turn.write("half ")
    await turn.write("and half")
"""
CARD = "GET /v1/a2a/agents/carded/agent-card.json"
ORIGIN = "GET /.well-known/agent-card.json"


def workspace(folder: Path, hub: str = "") -> Path:
    (folder / "carded_agent.py").write_text(MODULE)
    (folder / "hub.yaml").write_text(hub or "name: desk\n")
    return folder


@pytest.mark.parametrize("cards", ["", "cards: public\n", "cards: authenticated\n"])
def test_cards_name_no_agent_without_a_key_where_they_need_one(tmp_path: Path, cards: str) -> None:
    async def scene() -> None:
        async with opened(workspace(tmp_path, cards), ENTRY, key=KEY) as boss:
            await boss.ready("carded")
            nobody = Caller(boss.hub)
            hidden = cards == "cards: authenticated\n"
            status, told = await nobody(CARD)
            assert (status, told.get("name")) == ((401, None) if hidden else (200, "The Writer"))
            status, stub = await nobody(ORIGIN)
            assert (status, "carded" in str(stub)) == (200, not hidden)
            for caller_card in (CARD, ORIGIN):
                status, told = await boss(caller_card)
                assert (status, "answer" in str(told)) == (200, True)

    run(scene())


@pytest.mark.parametrize(
    "scope", ["tasks:read", "tasks:write", "answer", "admin", "announce", "metrics", "read_history"]
)
def test_hidden_cards_name_no_agent_to_keys_that_neither_use_nor_manage_agents(
    tmp_path: Path, scope: str
) -> None:
    async def scene() -> None:
        async with opened(workspace(tmp_path, "cards: authenticated\n"), ENTRY, key=KEY) as boss:
            await boss.ready("carded")
            made = await boss.hub.host.key_store.create("narrow", scopes=[scope])
            reads = scope in ("tasks:read", "tasks:write", "answer", "admin")
            narrow = Caller(boss.hub, made.token)
            status, told = await narrow(CARD)
            assert (status, "answer" in str(told)) == ((200, True) if reads else (403, False))
            status, told = await narrow(ORIGIN)
            assert (status, "carded" in str(told)) == (200, reads)

    run(scene())


def test_a_title_with_control_characters_is_refused(tmp_path: Path) -> None:
    async def scene() -> None:
        async with opened(workspace(tmp_path), ENTRY, key=KEY) as boss:
            entry = {"name": "other", "title": "a\nb", "url": "https://other.example"}
            status, told = await boss("POST /api/agents", entry)
            assert (status, told["field"]) == (400, "title")

    run(scene())


@pytest.mark.parametrize("setting", [False, True])
def test_the_reply_is_on_the_last_status_where_the_setting_says_so(tmp_path: Path, setting: bool) -> None:
    hub = f"settings: {{final_message: {str(setting).lower()}}}\n"
    message = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "go"}]}

    async def scene() -> None:
        async with opened(workspace(tmp_path, hub), ENTRY) as ask:
            await ask.ready("carded")
            frames: list[Any] = await ask.stream(
                "/v1/a2a/agents/carded/message:stream", {"message": message}, V1
            )
            status = frames[-1]["statusUpdate"]["status"]
            assert status["state"] == "TASK_STATE_COMPLETED"
            replies = [part["text"] for part in status.get("message", {}).get("parts", [])]
            assert replies == (["half and half"] if setting else [])
            _, listed = await ask("GET /api/tasks")
            assert [one["text"] for one in listed["items"]] == ["half and half"]

    run(scene())


def test_a_conversation_has_a_reply_once_though_it_is_on_the_last_status_too(tmp_path: Path) -> None:
    agents = 'agents:\n  - {name: helper, model: "openai:small"}\n'

    async def scene(models: ModelServer) -> None:
        folder = workspace(tmp_path, "settings: {final_message: true}\n")
        async with opened(folder, agents, OPENAI_BASE_URL=models.url) as ask:
            await ask.ready("helper")
            first = await ask.say("helper", "one")
            assert reason(first) == answer(first) == "A reply."
            await ask.say("helper", "two", contextId=first["contextId"])
            said = [one["content"] for one in models.asked[-1]["messages"] if one["role"] != "system"]
            assert said == ["one", "A reply.", "two"]

    with ModelServer(lambda asked: Reply(["A reply."])) as models:
        run(scene(models))
