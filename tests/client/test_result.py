"""What an answer says, whatever shape it came in."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from trunkline.client.result import File, Result, report_in
from trunkline.wire.answers import read_notice
from trunkline.wire.types import Artifact, Message, Part, Task, TaskState

COST = "application/vnd.protolabs.cost-v1+json"


def result_of(told: dict[str, Any]) -> Result:
    answer = read_notice(msgspec.json.encode(told)).answer
    if isinstance(answer, Message):
        return Result(None, answer)
    assert isinstance(answer, Task)
    return Result(answer)


def a_task(*artifacts: list[Any], state: str = "completed", said: str = "") -> dict[str, Any]:
    status: dict[str, Any] = {"state": state}
    if said:
        status["message"] = {"messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": said}]}
    found = [{"artifactId": f"a{place}", "parts": parts} for place, parts in enumerate(artifacts)]
    return {"kind": "task", "id": "t", "contextId": "c", "status": status, "artifacts": found}


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (a_task([{"text": "one"}, {"text": "two"}], [{"text": "three"}]), "onetwo\nthree"),
        (a_task([{"text": "artifact"}], said="status"), "artifact"),
        (a_task(said="status"), "status"),
        (a_task([{"data": {"a": 1}}], said="status"), "status"),
        ({**a_task(), "message": {"role": "agent", "parts": [{"kind": "text", "text": "beside"}]}}, "beside"),
        ({**a_task(), "message": "beside"}, "beside"),
        (a_task(), ""),
        ({"messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": "direct"}]}, "direct"),
    ],
    ids=[
        "artifacts",
        "artifacts first",
        "then the status",
        "no text in artifacts",
        "beside the status",
        "in words",
        "nothing",
        "a message",
    ],
)
def test_text_is_found_in_the_order_of_the_first_seed(told: dict[str, Any], text: str) -> None:
    assert result_of(told).text == text


def test_data_is_the_first_that_is_no_report() -> None:
    report = {"data": {"usage": {"input_tokens": 1}}, "metadata": {"mimeType": COST}}
    found = result_of(a_task([{"text": "x"}, report, {"data": [1, 2]}, {"data": None}]))
    assert found.data == [1, 2]
    assert found.all_data == ([1, 2], None)
    assert result_of(a_task([report])).data is None


def test_the_result_of_a_skill_with_a_type_of_its_own_is_data() -> None:
    own = {"data": {"a": 1}, "metadata": {"mimeType": "application/vnd.protolabs.review-result-v2+json"}}
    assert result_of(a_task([own])).data == {"a": 1}
    foreign = {"data": {"b": 2}, "metadata": {"mimeType": "application/json"}}
    assert result_of(a_task([foreign])).data == {"b": 2}


def test_files_are_decoded_or_named_by_their_address() -> None:
    parts = [
        {"raw": "aGVsbG8=", "filename": "a.txt", "mediaType": "text/plain"},
        {"kind": "file", "file": {"uri": "https://example.com/b", "name": "b", "mimeType": "image/png"}},
    ]
    assert result_of(a_task(parts)).files == (
        File("a.txt", "text/plain", "", b"hello"),
        File("b", "image/png", "https://example.com/b", None),
    )


def test_states_and_questions() -> None:
    asked = result_of(a_task(state="input-required", said="which?"))
    assert (asked.question, asked.ok, asked.ended) == ("which?", False, False)
    failed = result_of(a_task(state="failed", said="broke"))
    assert (failed.question, failed.ok, failed.ended, failed.text) == ("", False, True, "broke")
    direct = result_of({"messageId": "m", "role": "agent", "parts": [{"text": "hi"}], "contextId": "c7"})
    assert (direct.state, direct.ok, direct.task_id, direct.context_id) == (
        TaskState.COMPLETED,
        True,
        "",
        "c7",
    )


@pytest.mark.parametrize("form", ["part", "artifact", "message", "task"])
def test_cost_and_confidence_are_read_from_parts_and_from_metadata(form: str) -> None:
    cost = {"usage": {"input_tokens": 3, "output_tokens": 4}, "costUsd": 0.5, "durationMs": 7}
    sure = {"confidence": 1, "confidenceExplanation": "seen twice"}
    told = a_task([{"text": "x"}], said="done")
    uris = {
        f"https://proto-labs.ai/a2a/ext/{name}": body
        for name, body in (("cost-v1", cost), ("confidence-v1", sure))
    }
    if form == "part":
        told["artifacts"][0]["parts"] += [
            {"data": cost, "metadata": {"mimeType": COST}},
            {"data": sure, "mediaType": "application/vnd.protolabs.confidence-v1+json"},
        ]
    elif form == "artifact":
        told["artifacts"][0]["metadata"] = uris
    elif form == "message":
        told["status"]["message"]["metadata"] = uris
    else:
        told["metadata"] = uris
    found = result_of(told)
    assert found.usage == {"input_tokens": 3, "output_tokens": 4}
    assert (found.cost_usd, found.confidence, found.confidence_explanation) == (0.5, 1.0, "seen twice")


@pytest.mark.parametrize("version", ["-v1", ""])
def test_a_report_is_found_by_its_media_type_with_or_without_version(version: str) -> None:
    kind = f"application/vnd.protolabs.worldstate-delta{version}+json"
    for part in (
        Part(data={"deltas": []}, media_type=kind),
        Part(data={"deltas": []}, metadata={"mimeType": kind}),
    ):
        assert report_in(Artifact("a", parts=(part,)), "worldstate-delta-v1") == {"deltas": []}
        assert report_in(Artifact("a", parts=(part,)), "delta-v1") is None


def test_who_reports_nothing_has_no_cost() -> None:
    found = result_of(a_task([{"text": "x"}]))
    assert (found.usage, found.cost_usd, found.confidence, found.confidence_explanation) == (
        None,
        None,
        None,
        "",
    )


def test_pk_2_no_part_loses_anything() -> None:
    parts: list[dict[str, Any]] = [
        {"text": "t", "metadata": {"a": 1}, "filename": "t.md"},
        {"raw": "AAA=", "mediaType": "image/png", "filename": "i.png", "metadata": {"b": 2}},
        {"url": "https://example.com/x", "mediaType": "audio/wav"},
        {"data": {"deep": [{"x": None}]}, "metadata": {"c": 3}},
    ]
    (artifact,) = result_of(a_task(parts)).artifacts
    assert list(msgspec.to_builtins(artifact.parts)) == parts
