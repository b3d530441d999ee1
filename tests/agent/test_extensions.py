"""What a run says about itself, on success and on failure."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent.drive import parts, send, state
from trunkline import Agent, Turn

URI = "https://proto-labs.ai/a2a/ext/"


def reports(task: Any) -> dict[str, Any]:
    """The extension parts by name; each must also be in the artifact's metadata."""
    found: dict[str, Any] = {}
    for artifact in task.get("artifacts", []):
        for part in artifact["parts"]:
            kind = part.get("mediaType", "")
            if kind.startswith("application/vnd.protolabs."):
                assert part["metadata"] == {"mimeType": kind}
                name = kind.removeprefix("application/vnd.protolabs.").removesuffix("+json")
                assert name not in found
                found[name] = part["data"]
                assert artifact["metadata"][URI + name] == part["data"]
                assert URI + name in artifact["extensions"]
    return found


def saying(how: str, ending: str) -> Agent:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> str | None:
        turn.usage(input_tokens=10, output_tokens=2)
        turn.usage(input_tokens=5, cache_read_input_tokens=7, cost_usd=0.25)
        turn.usage(cache_creation_input_tokens=9)
        turn.confidence(0.5, "half sure")
        turn.effect("board", "open", -1)
        turn.effect("board", "labels", "bug", op="push")
        if how == "written":
            await turn.write("some text")
        elif how == "artifact":
            await turn.artifact(text="some text")
        if ending == "raise":
            raise ValueError("no")
        if ending != "return":
            getattr(turn, ending)("the end")
        return "a result" if how == "result" else None

    return agent


@pytest.mark.parametrize("how", ["written", "artifact", "result", "silent"])
@pytest.mark.parametrize("ending", ["return", "finish", "fail", "reject", "raise"])
def test_shapes(how: str, ending: str) -> None:
    task = send(saying(how, ending), "go")
    success = ending in ("return", "finish")
    assert state(task) == {"return": "completed", "finish": "completed", "reject": "rejected"}.get(
        ending, "failed"
    )
    found = reports(task)
    cost = found.pop("cost-v1")
    assert cost.pop("durationMs") >= 1
    assert cost == {
        "usage": {
            "input_tokens": 15,
            "output_tokens": 2,
            "cache_creation_input_tokens": 9,
            "cache_read_input_tokens": 7,
        },
        "costUsd": 0.25,
        "success": success,
    }
    assert found.pop("confidence-v1") == {"confidence": 0.5, "explanation": "half sure", "success": success}
    effects = found.pop("worldstate-delta-v1", None)
    assert found == {}
    if success:
        assert effects == {
            "deltas": [
                {"domain": "board", "path": "open", "op": "inc", "value": -1},
                {"domain": "board", "path": "labels", "op": "push", "value": "bug"},
            ]
        }
    else:
        assert effects is None


def test_nothing_said_is_nothing_reported() -> None:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> str:
        turn.usage()
        await turn.write("text")
        return turn.written

    task = send(agent, "go")
    assert reports(task) == {}
    assert parts(task) == [{"text": "text"}]
    assert "metadata" not in task["artifacts"][0]


@pytest.mark.parametrize(
    ("given", "kept"),
    [(1.7, 1.0), (-3, 0.0), (0, 0.0), (1, 1.0), (float("inf"), 1.0), (float("nan"), 0.0), (True, 1.0)],
)
def test_confidence_is_clamped(given: float, kept: float) -> None:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> None:
        turn.confidence(given)

    assert reports(send(agent, "go")) == {"confidence-v1": {"confidence": kept, "success": True}}
