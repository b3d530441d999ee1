"""The official JavaScript SDKs, unchanged, drive the demo agent: 0.3.x and 1.x, JSON-RPC and HTTP+JSON.

One Node process per SDK plays every scene (js/scenes.mjs) and prints what it got; here it is judged.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.agent.talk import until
from tests.conftest import Shelf
from tests.harness import SECRET, ServerProcess, plain_state, text_of
from tests.hooks import Hooks, Post
from tests.node import JS, NODE

pytestmark = pytest.mark.js

WIRES = [
    "sdk_03 0.3-JSONRPC",
    "sdk_03 0.3-HTTP+JSON",
    "sdk_1 1.0-JSONRPC",
    "sdk_1 1.0-HTTP+JSON",
    "sdk_1 0.3-JSONRPC",
    "sdk_1 0.3-HTTP+JSON",
]


class Shown:
    """What one SDK got from the agent over one wire, scene by scene."""

    def __init__(self, wire: str, scenes: dict[str, Any]) -> None:
        self.version = wire.partition("-")[0]
        self._scenes = scenes

    def __getitem__(self, scene: str) -> Any:
        line = self._scenes[scene]
        assert "result" in line, line["broke"]
        return line["result"]


@pytest.fixture(scope="module")
def hooks() -> Iterator[Hooks]:
    with Hooks() as made:
        yield made


@pytest.fixture(scope="module")
def played(
    tmp_path_factory: pytest.TempPathFactory, shelf: Shelf, hooks: Hooks
) -> Iterator[dict[str, dict[str, Any]]]:
    """Every line of every SDK, by script and wire, then by scene."""
    directory, store = tmp_path_factory.mktemp("js"), shelf.store()
    with ServerProcess(directory, "trunkline.demo:agent", "--dev", store=store, env=SECRET) as server:
        yield play({"sdk_03": server.base, "sdk_1": server.base}, hooks.url("/js"))


def play(bases: dict[str, str], hook: str) -> dict[str, dict[str, Any]]:
    """What each script got from the agent at its address."""
    found: dict[str, dict[str, Any]] = {}
    for script, base in bases.items():
        command = [NODE, f"{script}.mjs", base, hook]
        ended = subprocess.run(command, cwd=JS, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0, ended.stderr
        for text in ended.stdout.splitlines():
            line = json.loads(text)
            found.setdefault(f"{script} {line['wire']}", {})[line["scene"]] = line
    return found


@pytest.fixture(params=WIRES)
def shown(request: pytest.FixtureRequest, played: dict[str, dict[str, Any]]) -> Shown:
    return Shown(request.param.split(" ")[1], played[request.param])


def told(message: Any) -> str:
    return "".join(part.get("text", "") for part in message["parts"])


def inner(event: Any) -> Any:
    """What an event of a stream is about, without the member that 1.0 puts around it."""
    return event if "kind" in event else next(iter(event.values()))


def streamed_text(events: list[Any]) -> str:
    """What a reader has at the end: appended chunks, or the last whole artifact."""
    text = ""
    for event in map(inner, events):
        if "artifact" in event:
            text = (text if event.get("append") else "") + told(event["artifact"])
        elif event.get("artifacts"):
            text = text_of(event)
    return text


def states_of(events: list[Any]) -> list[str]:
    return [plain_state(event) for event in map(inner, events) if "status" in event]


def test_every_scene_was_played(played: dict[str, dict[str, Any]]) -> None:
    assert sorted(played) == sorted(WIRES)
    assert len({tuple(scenes) for scenes in played.values()}) == 1


def test_card(shown: Shown) -> None:
    assert shown["card"]["name"] == "Trunkline demo"
    assert shown["card"]["capabilities"]["streaming"] is True
    assert {skill["id"] for skill in shown["card"]["skills"]} >= {"demo", "echo", "add"}


def test_send_and_wait(shown: Shown) -> None:
    task = shown["send"]
    assert (plain_state(task), text_of(task)) == ("completed", "echo hello")
    assert [told(message) for message in task["history"]] == ["echo hello"]


def test_receipt_and_poll(shown: Shown) -> None:
    assert plain_state(shown["receipt"]["first"]) in ("submitted", "working")
    assert text_of(shown["receipt"]["last"]) == "slept 0.1 s"


def test_history_length(shown: Shown) -> None:
    assert not shown["history"]["none"].get("history")
    assert len(shown["history"]["one"]["history"]) == 1


def test_stream(shown: Shown) -> None:
    events = shown["stream"]
    assert streamed_text(events) == "1 2 3 4 5 "
    assert states_of(events) == ["submitted", "working", "completed"]
    assert sum("artifact" in inner(event) for event in events) >= 2


def test_drop_the_stream_and_resubscribe(shown: Shown) -> None:
    events = shown["resubscribe"]
    assert (states_of(events)[0], states_of(events)[-1]) == ("working", "completed")
    assert streamed_text(events) == "".join(f"{number} " for number in range(1, 21))


def test_list(shown: Shown) -> None:
    if shown.version == "0.3":
        assert shown["list"] is None, "0.3 has no list for these clients"
        return
    first, last = shown["list"]["first"], shown["list"]["last"]
    assert [task["id"] for task in (*last["tasks"], *first["tasks"])] == shown["list"]["sent"]
    assert (first["totalSize"], first["pageSize"]) == (2, 1)
    assert not last.get("nextPageToken")


def test_cancel(shown: Shown) -> None:
    assert plain_state(shown["cancel"]) == "canceled"


def test_question_and_answer(shown: Shown) -> None:
    asked, done = shown["question"]["asked"], shown["question"]["done"]
    assert (plain_state(asked), told(asked["status"]["message"])) == ("input-required", "Which colour?")
    assert (done["id"], plain_state(done), text_of(done)) == (asked["id"], "completed", "blue")


def test_question_and_answer_streamed(shown: Shown) -> None:
    asked, answered = shown["question_streamed"]["asked"], shown["question_streamed"]["answered"]
    assert states_of(asked)[-1] == "input-required"
    assert (states_of(answered)[-1], streamed_text(answered)) == ("completed", "green")


def test_direct_message(shown: Shown) -> None:
    assert told(shown["message"]) == "hi"
    assert [told(inner(event)) for event in shown["message_streamed"]] == ["hi"]


def test_file_artifact(shown: Shown) -> None:
    part = shown["file"]["artifacts"][0]["parts"][0]
    content = part["file"]["bytes"] if "file" in part else part["raw"]
    assert base64.b64decode(content) == b"Hello, file.\n"
    assert (part.get("mediaType") or part["file"]["mimeType"]) == "text/plain"


def test_data(shown: Shown) -> None:
    assert shown["data"]["artifacts"][0]["parts"][0]["data"] == {
        "answer": 42,
        "list": [1, 2, 3],
        "nothing": None,
    }
    assert shown["data_in"]["artifacts"][0]["parts"][0]["data"] == {"sum": 5}


@pytest.mark.parametrize(
    ("scene", "state", "reason"),
    [
        ("fail", "failed", "no luck"),
        ("reject", "rejected", "not mine"),
        ("auth", "auth-required", "Who are you?"),
    ],
)
def test_other_ends(shown: Shown, scene: str, state: str, reason: str) -> None:
    status = shown[scene]["status"]
    assert (plain_state(shown[scene]), told(status["message"])) == (state, reason)


def test_push_configs(shown: Shown) -> None:
    found = shown["push"]
    assert plain_config(found["set"]) == plain_config(found["got"]) == ("c", True)
    listed = [plain_config(one) for one in configs_of(found["listed"])]
    # The one that came with the message has an id of ours.
    assert ("c", True) in listed and len(listed) == 2
    assert len(configs_of(found["left"])) == 1


def test_push_notifications(shown: Shown, hooks: Hooks) -> None:
    task_id = shown["push"]["id"]

    def told() -> list[Post]:
        """What the config was told that came with the message; the other may have gone before its turn."""
        by_config: dict[str, list[Post]] = {}
        for post in hooks.on("/js"):
            if post.id.startswith(task_id):
                by_config.setdefault(post.id.rpartition("_")[2], []).append(post)
        return next((posts for posts in by_config.values() if len(posts) == 2), [])

    posts = until(told)
    assert [post.state for post in posts] == ["working", "completed"]
    assert {"kind" in post.body for post in posts} == {shown.version == "0.3"}


def plain_config(config: Any) -> tuple[str, bool]:
    """The id of a config and whether its url is ours, out of whatever is around it."""
    inner = config.get("pushNotificationConfig", config)
    return inner["id"], inner["url"].endswith("/js")


def configs_of(listed: Any) -> list[Any]:
    return listed if isinstance(listed, list) else listed["configs"]


def test_subscribe_to_a_finished_task(shown: Shown) -> None:
    error, events = shown["subscribe_finished"]["error"], shown["subscribe_finished"]["events"]
    if shown.version == "1.0":
        assert kind_of(error) == "UnsupportedOperation"
    else:
        assert error["type"] == "none"
        assert (states_of(events)[-1], streamed_text(events)) == ("completed", "echo done")


def kind_of(error: Any) -> str:
    """The name of an error class without the transport in it."""
    return re.sub(r"JsonRpc|Rest|JSONRPC|Error$", "", error["type"])


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ("get_unknown", "TaskNotFound"),
        ("cancel_unknown", "TaskNotFound"),
        ("send_unknown", "TaskNotFound"),
        ("stream_unknown", "TaskNotFound"),
        ("subscribe_unknown", "TaskNotFound"),
        ("cancel_finished", "TaskNotCancelable"),
        ("send_finished", "UnsupportedOperation"),
        ("stream_finished", "UnsupportedOperation"),
        ("push_set_unknown", "TaskNotFound"),
        ("push_get_unknown", "TaskNotFound"),
        ("push_get_nothing", "TaskNotFound"),
    ],
)
def test_refusal(shown: Shown, call: str, kind: str) -> None:
    assert kind_of(shown["refusals"][call]) == kind


def test_media_type(shown: Shown) -> None:
    assert kind_of(shown["refusals"]["media_type"]) == "ContentTypeNotSupported"


def test_extended_card(shown: Shown) -> None:
    kind = kind_of(shown["refusals"]["extended_card"])
    if shown.version == "1.0":
        assert kind == "UnsupportedOperation"
    else:
        assert kind in ("ExtendedAgentCardNotConfigured", "AuthenticatedExtendedCardNotConfigured")


def test_unknown_version(shown: Shown) -> None:
    error = shown["refusals"]["version"]
    # 0.3 has no such error, so its clients have no class for it; they still pass on what was said.
    if shown.version == "1.0":
        assert kind_of(error) == "VersionNotSupported"
    assert "ask for 1.0 or 0.3" in error["message"]
