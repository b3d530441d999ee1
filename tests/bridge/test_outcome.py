"""PK 2: nothing of an answer is lost on its way to the model; every shape is what its reader validates."""

from __future__ import annotations

import base64

from mcp.types import CallToolResult

from trunkline.bridge.outcome import Handle, ToolOutcome
from trunkline.client.result import Result
from trunkline.wire.types import Artifact, Message, Part, Task, TaskState, TaskStatus

PNG = base64.b64encode(b"\x89PNG\xff\xfe\xfb").decode()
URLSAFE = PNG.replace("+", "-").replace("/", "_").rstrip("=")
PARTS = (
    Part(text="Here it is."),
    Part(data={"sum": 5}, metadata={"unit": "coins"}),
    Part(raw=PNG, filename="a.png", media_type="image/png", metadata={"page": 1}),
    Part(raw=PNG, filename="my report.pdf", media_type="application/pdf"),
    Part(url="https://x/y.csv", filename="y.csv", media_type="text/csv"),
    Part(data={"usage": {}}, metadata={"mimeType": "application/vnd.protolabs.cost-v1+json"}),
)


def outcome(*parts: Part, **more: object) -> ToolOutcome:
    status = TaskStatus(TaskState.COMPLETED)
    result = Result(Task("t-1", "c-1", status, (Artifact("a", parts=parts),)))
    return ToolOutcome(tool="x", text=result.text, result=result, **more)  # pyright: ignore[reportArgumentType]


def test_parts_keep_names_and_metadata_and_leave_out_reports() -> None:
    assert outcome(*PARTS).parts == PARTS[:5]


def test_parts_of_what_was_said_without_artifacts() -> None:
    said = Message("m", parts=(Part(text="hi"),))
    assert ToolOutcome(tool="x", text="", result=Result(message=said)).parts == said.parts
    working = Task("t", "c", TaskStatus(TaskState.WORKING, said))
    assert ToolOutcome(tool="x", text="", result=Result(working)).parts == said.parts
    assert ToolOutcome(tool="x", text="no answer", is_error=True).parts == ()


def test_words_say_everything_there_is() -> None:
    assert outcome(*PARTS, advice="Go on.").words.splitlines() == [
        "Here it is.",
        '{"sum":5}',
        "[file: a.png image/png]",
        "[file: my report.pdf application/pdf]",
        "[file: y.csv text/csv https://x/y.csv]",
        "Go on.",
    ]
    assert outcome().words == "The agent has finished and gave no answer."


def test_files_are_decoded_once() -> None:
    assert [file.content for file in outcome(*PARTS).files] == [b"\x89PNG\xff\xfe\xfb"] * 2 + [None]


def test_mcp() -> None:
    result = CallToolResult.model_validate(outcome(*PARTS).mcp())
    text, image, pdf, link = result.content
    assert text.type == "text" and text.text.startswith("Here it is.")
    assert (image.type, image.data) == ("image", PNG)  # pyright: ignore[reportAttributeAccessIssue]
    assert pdf.type == "resource" and str(pdf.resource.uri) == "a2a:t-1/3/my%20report.pdf"
    assert pdf.resource.blob == PNG  # pyright: ignore[reportAttributeAccessIssue]
    assert link.type == "resource_link" and str(link.uri) == "https://x/y.csv"
    assert not result.is_error
    assert result.structured_content == {
        "response": "Here it is.",
        "state": "completed",
        "task_id": "t-1",
        "context_id": "c-1",
        "data": [{"sum": 5}],
        "files": [
            {"name": "a.png", "media_type": "image/png"},
            {"name": "my report.pdf", "media_type": "application/pdf"},
            {"name": "y.csv", "media_type": "text/csv", "url": "https://x/y.csv"},
        ],
    }


def test_an_error_in_every_shape() -> None:
    broken = ToolOutcome(tool="x", text="it broke", is_error=True, advice="Call again.")
    result = CallToolResult.model_validate(broken.mcp())
    assert result.is_error and result.structured_content is None
    assert broken.anthropic("1")["is_error"] is True
    assert broken.openai("1") == {"role": "tool", "tool_call_id": "1", "content": "it broke\nCall again."}
    assert broken.openai_responses("1") == {
        "type": "function_call_output", "call_id": "1", "output": "it broke\nCall again.",
    }  # fmt: skip


def test_anthropic_sees_images_in_the_base64_they_came_in() -> None:
    block = outcome(
        Part(raw=URLSAFE, media_type="image/png"), Part(raw=PNG, media_type="image/bmp")
    ).anthropic("7")
    assert block["tool_use_id"] == "7"
    assert [one["type"] for one in block["content"]] == ["text", "image"]
    assert block["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": PNG}


def test_a_question_is_structured_too() -> None:
    asked = outcome(Part(text="?"), question="?", handle=Handle("x", "t-1", "c-1"))
    assert asked.structured["question"] == "?"
