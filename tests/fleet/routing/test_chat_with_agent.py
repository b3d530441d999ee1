"""`chat_with_agent` against a real API: it goes on, waits for what takes long, and tells what is wrong."""

from __future__ import annotations

from tests.fleet.routing.fleet import Hub, hub
from trunkline.fleet.routing.chat_with_agent import CHAT_WITH_AGENT, ChatTool
from trunkline.net.in_process import BASE, InProcessHttpClient


def tool(at: Hub, at_most_s: float = 30.0) -> ChatTool:
    client = InProcessHttpClient(at.at.application)
    return ChatTool(BASE, at.at.keys["alice"], http_client=client, every_s=0.01, at_most_s=at_most_s)


def test_an_agent_talks_to_another() -> None:
    async def work(at: Hub) -> None:
        chat = tool(at)
        asked = await chat("desk", "ask", skill=None)
        assert (asked["taskState"], asked["response"]) == ("input-required", "Which one?")
        heard = await chat("desk", "red", taskId=asked["taskId"], done=True)
        assert (heard["response"], "contextId" in heard) == ("heard red", False)
        assert "409" in (await chat("desk", "more", contextId=asked["contextId"]))["error"]
        assert "404" in (await chat("dusk", "hello"))["error"]
        assert "502" in (await chat("desk", "fail"))["error"]
        assert "400" in (await chat("desk", "hello", nonsense=1))["error"]
        await chat.close()

    hub(work)


def test_what_takes_longer_than_the_wait_stays_pending() -> None:
    async def work(at: Hub) -> None:
        chat = tool(at, at_most_s=0.05)
        held = await chat("desk", "hold")
        assert held["pending"] and held["taskState"] == "working"
        await chat.close()
        patient = tool(at)
        assert (await patient("desk", "hello", returnImmediately=True))["response"] == "did hello"
        await patient.close()

    hub(work, wait_s=0.02)


def test_the_tool_names_what_the_call_takes() -> None:
    parameters = CHAT_WITH_AGENT["parameters"]
    assert parameters["required"] == ["agent", "message"]
    assert set(parameters["properties"]) == {"agent", "message", "contextId", "taskId", "skill", "done"}
