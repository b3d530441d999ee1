"""The files of callers: what a model is told of them, and how those are refused that it does not read."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import BinaryContent
from pydantic_ai.models.test import TestModel as AnyModel

from tests.gateway.model.hub import answer, opened, reason, run
from tests.gateway.model.openai_server import ModelServer, Reply
from tests.gateway.model.test_tools import web
from trunkline.errors import ContentTypeNotSupported, InvalidParams, TooLarge
from trunkline.gateway.model.files import FILES_LIMIT, CallerFiles, input_modes
from trunkline.wire.types import Part

PNG = b"\x89PNG\r\n\x1a\n\x00\xff"
AGENTS = """
agents:
  - {name: helper, model: "openai:small", limits: {fileBytes: 2000}}
  - {name: blind, model: "openai:small", limits: {fileBytes: 0}}
"""


def raw(body: bytes) -> str:
    return base64.b64encode(body).decode()


def contents(body: dict[str, Any]) -> list[Any]:
    return [one["content"] for one in body["messages"] if one["role"] == "user"]


def test_a_model_is_told_the_files_of_its_caller_byte_for_byte(tmp_path: Path) -> None:
    parts = [
        {"text": "what is this?"},
        {"raw": raw(PNG), "mediaType": "image/png", "filename": "a.png"},
        {"raw": raw("grün".encode()), "mediaType": "text/csv; charset=utf-8", "filename": "b\nc.csv"},
        {"raw": raw(b"%PDF-"), "filename": "d.pdf"},
    ]

    async def scene(base: str) -> None:
        with ModelServer(lambda _: Reply(["Seen."])) as server:
            async with opened(tmp_path, AGENTS, OPENAI_BASE_URL=server.url) as ask:
                await ask.ready("helper")
                _, card = await ask("GET /v1/a2a/agents/helper/agent-card.json")
                assert card["defaultInputModes"] == [
                    "text/plain", "application/json", "image/*", "application/pdf",
                ]  # fmt: skip
                first = await ask.say("helper", "", parts=parts)
                assert answer(first) == "Seen."
                text, image, table, document = contents(server.asked[-1])[0]
                assert text["text"] == "what is this?"
                assert image["image_url"]["url"] == f"data:image/png;base64,{raw(PNG)}"
                assert table["text"] == "[file b c.csv]\ngrün"
                assert document["file"]["file_data"] == f"data:application/pdf;base64,{raw(b'%PDF-')}"
                fetched = [{"url": f"{base}/picture"}, {"url": f"{base}/page", "mediaType": "text/plain"}]
                await ask.say("helper", "", parts=fetched, contextId=first["contextId"])
                before, now = contents(server.asked[-1])
                # What was shown before is still seen.
                assert before == [text, image, table, document]
                assert now[0]["image_url"]["url"] == "data:image/png;base64," + raw(b"\x89PNG")
                assert now[1]["text"].startswith("[file text/plain]\n<p>Tea")
                await ask.say("helper", "and?", contextId=first["contextId"])
                assert contents(server.asked[-1])[1][0]["text"] == "[a file that is left out here: unnamed]"

    with web() as base:
        run(scene(base))


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ({"raw": "AA==", "mediaType": "image/tiff"}, "content_type_not_supported: message.parts[1]: "),
        ({"raw": "AA==", "mediaType": "audio/mpeg"}, "content_type_not_supported: message.parts[1]: "),
        ({"raw": "AA==", "mediaType": "application/zip"}, "content_type_not_supported: message.parts[1]: "),
        ({"raw": "AA=="}, "content_type_not_supported: message.parts[1]: "),
        (
            {"raw": "/w==", "mediaType": "text/plain"},
            "content_type_not_supported: message.parts[1]: this agent does not read text that is no UTF-8",
        ),
        ({"raw": raw(b"x" * 2001), "mediaType": "image/png"}, "request_too_large: message.parts[1]: "),
        ({"url": "BASE/none", "mediaType": "image/png"}, "file_not_fetched: message.parts[1]: HTTP 404"),
        ({"url": "BASE/long", "mediaType": "image/png"}, "file_not_fetched: message.parts[1]: "),
        ({"url": "http://169.254.169.254/x"}, "file_not_fetched: message.parts[1]: 169.254.169.254 cannot"),
        ({"url": "file:///etc/passwd"}, "file_not_fetched: message.parts[1]: "),
    ],
)
def test_a_file_that_a_model_does_not_read_is_refused_by_name(
    tmp_path: Path, part: dict[str, str], why: str
) -> None:
    async def scene(base: str) -> None:
        with ModelServer(lambda _: Reply(["Seen."])) as server:
            async with opened(tmp_path, AGENTS, OPENAI_BASE_URL=server.url) as ask:
                await ask.ready("helper")
                given = {name: value.replace("BASE", base) for name, value in part.items()}
                task = await ask.say("helper", "", parts=[{"text": "look"}, given])
                assert task["status"]["state"] == "TASK_STATE_REJECTED"
                assert reason(task).startswith(why), reason(task)
                assert server.asked == []

    with web() as base:
        run(scene(base))


def test_an_agent_without_files_says_so_and_refuses_them(tmp_path: Path) -> None:
    async def scene() -> None:
        with ModelServer(lambda _: Reply(["Seen."])) as server:
            async with opened(tmp_path, AGENTS, OPENAI_BASE_URL=server.url) as ask:
                await ask.ready("blind")
                _, card = await ask("GET /v1/a2a/agents/blind/agent-card.json")
                assert card["defaultInputModes"] == ["text/plain", "application/json"]
                task = await ask.say("blind", "", parts=[{"raw": "AA==", "mediaType": "image/png"}])
                assert reason(task).startswith("request_too_large: ")

    run(scene())


def test_files_are_counted_and_what_is_no_base64_is_named() -> None:
    files = CallerFiles(AnyModel(), 100)
    part = Part(raw="AA==", media_type="image/png")
    for _ in range(FILES_LIMIT):
        assert isinstance(files.read(part, "p"), BinaryContent)
    with pytest.raises(TooLarge, match="at most 16 files"):
        files.read(part, "p")
    assert files.left == 100 - FILES_LIMIT
    with pytest.raises(InvalidParams, match="p: raw is no base64"):
        CallerFiles(AnyModel(), 100).read(Part(raw="!", media_type="image/png"), "p")
    with pytest.raises(ContentTypeNotSupported):
        CallerFiles(AnyModel(), 100).read(Part(raw="AA==", media_type="chemical/x"), "p")
    assert "application/pdf" in input_modes(AnyModel())
