"""The page on workflow runs: its commands and its requests, as printed."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import msgspec
import pytest

from tests.cli.conftest import Run, trunkline
from tests.docs.pages import ROOT, blocks
from tests.docs.test_mock import served
from tests.examples.test_examples import FlowProcess
from tests.harness import ServerProcess
from trunkline.flow.forms import SubmitForm
from trunkline.flow.operator import read_operator
from trunkline.flow.rest import FlowApi

__all__ = ["trunkline"]
PAGE = "docs/workflow-runs.md"
(DEFINITION,) = blocks(PAGE, "json")
(ASK,) = blocks(PAGE, "yaml")
(COMMANDS,) = [block.splitlines() for block in blocks(PAGE, "sh")]
REQUESTS, MODEL = [block.splitlines() for block in blocks(PAGE, "bash")]
RESULT = {"title": "TEA", "text": "Tea is hot.", "approved": True}


def test_the_commands(trunkline: Run, tmp_path: Path) -> None:
    (tmp_path / "note.json").write_text(DEFINITION)
    shown = [trunkline(*shlex.split(line)[1:]) for line in COMMANDS]
    assert [code for code, _, _ in shown] == [0] * 4, shown
    assert 'Agent: writer\nInput: {"task":"tea"}\n' in shown[0][1]
    assert COMMANDS[1].partition(" --result")[0] in shown[0][1]
    assert "ExecutionCompleted" in shown[3][1]


@pytest.mark.slow
def test_the_requests(tmp_path: Path) -> None:
    (tmp_path / "note.json").write_text(DEFINITION)
    with FlowProcess(tmp_path) as server:
        answers = [_perform(line, server, tmp_path) for line in REQUESTS]
    registered, started, submitted, resumed, status = answers
    assert registered["wf_id"] == "note"
    assert (started["status"], submitted["status"]) == ("awaiting_activity", "interrupted")
    assert (resumed["result"], status["phase"]) == (RESULT, "completed")


def _perform(line: str, server: ServerProcess, folder: Path) -> dict[str, object]:
    line = line.replace("http://127.0.0.1:8787", server.base)
    done = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, check=True)
    return msgspec.json.decode(done.stdout, type=dict[str, object])


def test_every_route_is_on_the_page() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    api = FlowApi(lambda: pytest.fail("no request"), read_operator({}).signatures)
    for mount in api.mounts():
        for one in mount.compiled:
            method, _, below = one.route.pattern.partition(" ")
            path = f"{mount.prefix}{below.replace('{id...}', '{id}').rstrip('/')}"
            if mount.prefix.endswith("workflows"):
                path = path.replace("{id}", "{wf_id}")
            if (method, below) != ("POST", "/{id...}"):
                assert f"| `{method} {path}` |" in text, path
    assert [name for name in SubmitForm.__struct_fields__ if f"`{name}`" not in text] == []


@pytest.mark.slow
def test_the_model_call_gives_the_printed_result(
    trunkline: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ask.yaml").write_text(ASK)
    (tmp_path / "model.yaml").write_text(blocks("docs/mock.md", "yaml")[0])
    variable, _, value = shlex.split(MODEL[0])[2].partition("=")
    with served(tmp_path, "trunkline mock model.yaml --openai") as url:
        monkeypatch.setenv(variable, value.replace("http://127.0.0.1:8200/v1", url))
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        code, out, said = trunkline(*shlex.split(MODEL[1])[1:])
    assert code == 0, said
    (printed,) = re.findall(r"The result is `(.*)`:", (ROOT / PAGE).read_text(encoding="utf-8"))
    assert f"Result: {printed}\n" in out


def test_the_configuration_is_read() -> None:
    variable, _, value = shlex.split(MODEL[0])[2].partition("=")
    models = read_operator({variable: value}).models
    assert models is not None
    assert (models.url, models.model) == ("http://127.0.0.1:8200/v1", json.loads(value)["model"])
