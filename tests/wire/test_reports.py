"""Reports of runs as 1.0 and 0.3 have them: metadata under a URI, and data parts."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from trunkline.wire import v1
from trunkline.wire.push import notification_body
from trunkline.wire.reports import URI, report_part
from trunkline.wire.types import Artifact, ArtifactUpdate, Part, Task, TaskPage, TaskState, TaskStatus
from trunkline.wire.writer import WRITERS, Dialect

COST = URI + "cost-v1"
BODY = {"success": True, "durationMs": 3}
TEXT = Part(text="done")
OLDER = [Dialect.V03, Dialect.V03_PROTO]
decode: Any = msgspec.json.decode


def artifact(*parts: Part, **more: Any) -> Artifact:
    return Artifact("answer", parts=parts, **{"metadata": {COST: BODY}, "extensions": (COST,), **more})


def task(*artifacts: Artifact, **more: Any) -> Task:
    return Task("t", "c", TaskStatus(TaskState.COMPLETED), artifacts, **more)


def data_in(written: Any) -> list[Any]:
    """The values of the data parts of an artifact, in either dialect of 0.3."""
    found = [part["data"] for part in written["parts"] if "data" in part]
    return [one.get("data", one) for one in found]


@pytest.mark.parametrize("dialect", OLDER)
@pytest.mark.parametrize("parts", [(), (TEXT,), (TEXT, report_part(COST, BODY))])
def test_0_3_has_each_report_once_as_a_part(dialect: Dialect, parts: tuple[Part, ...]) -> None:
    writer, made = WRITERS[dialect], artifact(*parts)
    assert data_in(decode(writer.task(task(made)))["artifacts"][0]) == [BODY]
    (listed,) = decode(writer.page(TaskPage((task(made),), "", 1, 1)))["tasks"]
    assert data_in(listed["artifacts"][0]) == [BODY]
    frame = decode(writer.artifact_frame(ArtifactUpdate("t", "c", made)))
    assert data_in(frame.get("artifactUpdate", frame)["artifact"]) == [BODY]


@pytest.mark.parametrize("dialect", OLDER)
def test_0_3_makes_no_part_of_what_is_no_report(dialect: Dialect) -> None:
    made = artifact(TEXT, metadata={"urn:x": BODY, "own": BODY}, extensions=("urn:x", COST))
    assert data_in(decode(WRITERS[dialect].task(task(made)))["artifacts"][0]) == []


def test_1_0_has_them_as_they_are_recorded() -> None:
    made = artifact(TEXT)
    (written,) = decode(v1.task(task(made)))["artifacts"]
    assert (written["parts"], written["metadata"]) == ([{"text": "done"}], {COST: BODY})


def test_1_0_has_no_artifact_of_reports_alone() -> None:
    made = task(artifact(), Artifact("other", parts=(TEXT,)), metadata={"own": 1})
    (listed,) = decode(v1.page(TaskPage((made,), "", 1, 1)))["tasks"]
    posted = decode(notification_body(made, "1.0", whole=False))["task"]
    for written in (decode(v1.task(made)), listed, posted):
        assert [one["artifactId"] for one in written["artifacts"]] == ["other"]
        assert written["metadata"] == {"own": 1, COST: BODY}
    assert v1.artifact_frame(ArtifactUpdate("t", "c", artifact())) == b""


def test_a_piece_of_reports_alone_has_a_part_in_1_0() -> None:
    update = ArtifactUpdate("t", "c", artifact(), append=True, last_chunk=True)
    written = decode(v1.artifact_frame(update))["artifactUpdate"]["artifact"]
    assert (written["parts"], written["metadata"]) == ([{"text": ""}], {COST: BODY})


def test_webhooks_of_0_3_bring_the_parts() -> None:
    body = decode(notification_body(task(artifact()), "0.3", whole=False))
    assert data_in(body["artifact"]) == [BODY]
