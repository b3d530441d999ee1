"""Tasks in the state a check needs, and what the frames of a stream say."""

from __future__ import annotations

from typing import Any

from tests.conformance.wire.bindings import Binding, Proto03, Rpc
from tests.harness import Frame, Frames

TERMINAL = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED")
INTERRUPTED = ("TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED")


def speaker(binding: Binding) -> Rpc:
    """The same server over plain 1.0 JSON-RPC, for what is not under test."""
    return Rpc(binding.base, binding.http, binding.headers)


def held(binding: Binding, chunks: int = 3, **message: Any) -> Any:
    """A task that is working and stays so until `release`; the stream that showed it is dropped."""
    rpc = speaker(binding)
    with rpc.stream(rpc.message(f"hold {chunks}", **message)) as frames:
        for frame in frames:
            if state_of(frame) == "TASK_STATE_WORKING":
                return rpc.get(update_of(frame)["taskId"]).result
    raise AssertionError("the task never worked")


def release(binding: Binding) -> None:
    """Let every held task go on."""
    speaker(binding).send("release")


def finished(binding: Binding, task_id: str) -> Any:
    """The task once it has ended; waits on its stream, not on the clock."""
    rpc = speaker(binding)
    with rpc.subscribe(task_id, last="0") as frames:
        frames.all()
    task = rpc.get(task_id).result
    assert task["status"]["state"] in TERMINAL, task
    return task


def ended(binding: Binding, state: str) -> Any:
    """A task that has ended in this state."""
    if state == "TASK_STATE_CANCELED":
        return speaker(binding).cancel(held(binding)["id"]).result
    words = {"TASK_STATE_COMPLETED": "echo", "TASK_STATE_FAILED": "fail", "TASK_STATE_REJECTED": "reject"}
    task = speaker(binding).send(words[state])
    assert task["status"]["state"] == state
    return task


def kind_of(frame: Frame) -> str:
    """Which of the four members a 1.0 frame has; exactly one."""
    (kind,) = frame.result
    return kind


def update_of(frame: Frame) -> Any:
    return frame.result[kind_of(frame)]


def state_of(frame: Frame) -> str:
    """The state in a 1.0 frame, if it carries one."""
    body = update_of(frame)
    return body["status"]["state"] if "status" in body else ""


def read_until(frames: Frames, state: str) -> list[Frame]:
    """Frames up to the first one in this state; the stream stays open."""
    seen: list[Frame] = []
    for frame in frames:
        seen.append(frame)
        if state_of(frame) == state:
            return seen
    raise AssertionError(f"{state} never came: {seen}")


def built(frames: list[Frame]) -> dict[str, str]:
    """The text of each artifact, put together from 1.0 frames as a client would."""
    texts: dict[str, str] = {}
    for frame in frames:
        body = update_of(frame)
        if kind_of(frame) == "task":
            texts.update({one["artifactId"]: text_of(one) for one in body.get("artifacts", [])})
        elif kind_of(frame) == "artifactUpdate":
            artifact = body["artifact"]
            before = texts[artifact["artifactId"]] if body.get("append") else ""
            texts[artifact["artifactId"]] = before + text_of(artifact)
    return texts


def text_of(holder: Any) -> str:
    return "".join(part.get("text", "") for part in holder["parts"])


def stored(task: Any) -> dict[str, str]:
    """The text of each artifact of a task."""
    return {one["artifactId"]: text_of(one) for one in task.get("artifacts", [])}


def done_in_03(binding: Binding, text: str, **more: Any) -> Any:
    """The task of a send that waits, out of its wrapper."""
    result = binding.send_message(binding.message(text, **more), wait=True).result
    return result.get("task", result)


def state_in_03(v03: Binding, name: str) -> str:
    if isinstance(v03, Proto03):
        return f"TASK_STATE_{name.upper().replace('-', '_')}"
    return name
