"""`trunkline flow validate|sign|graph`."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.cli.conftest import Run
from tests.flow.definition.sample import line, node
from trunkline.flow.definition.signing import signature_policy

PUT = node("set_state", "put", assignments={"a": {"jq": ".a | map(. + 1)"}})


def written(document: object, name: str = "flow.json") -> str:
    Path(name).write_text(json.dumps(document, indent=1))
    return name


@pytest.mark.slow
def test_a_definition_that_is_right(trunkline: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, told = trunkline("flow", "validate", written(line(PUT)))
    assert (code, told) == (0, "")
    assert out.startswith("OK: sample 1.2.0, ")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(line()).encode())))
    code, out, _ = trunkline("flow", "validate", "-", "-o", "json")
    said = json.loads(out)
    assert (code, said["valid"], said["errors"], said["name"]) == (0, True, [], "sample")


def test_a_definition_that_is_wrong(trunkline: Run) -> None:
    ask = node("agent_delegate", "ask", agent_id="a", protocol="smtp", input_mapping={})
    code, out, told = trunkline("flow", "validate", written(line(ask)))
    assert (code, out) == (1, "")
    assert told.startswith("Error: flow.json, line ")
    assert "/nodes/1/config/protocol: must be equal to one of" in told
    assert "enum" in told
    assert '{"allowedValues":["a2a","mcp","sdk"]}' in told
    code, out, _ = trunkline("flow", "validate", "flow.json", "-o", "json")
    assert code == 1
    assert {"/nodes/1", "/nodes/1/config/protocol"} <= {
        one["instancePath"] for one in json.loads(out)["errors"]
    }


@pytest.mark.slow
def test_rules_of_runs_and_filters_count(trunkline: Run) -> None:
    code, _, told = trunkline("flow", "validate", written({**line(), "edges": []}))
    assert code == 1
    assert "needs exactly one edge from __start__" in told
    bad = node("set_state", "put", assignments={"a": {"jq": ".a |"}})
    code, _, told = trunkline("flow", "validate", written(line(bad)))
    assert code == 1
    assert "/nodes/1/config/assignments/a/jq: this filter does not compile: syntax error" in told


def test_unknown_nodes_are_errors(trunkline: Run) -> None:
    document = line()
    document["edges"].append({"source": "gone", "target": "done"})
    code, out, told = trunkline("flow", "validate", written(document))
    assert (code, out) == (1, "")
    assert told.startswith("Error: flow.json, line ")
    assert "/edges/2/source: there is no node 'gone'" in told


def test_warnings(trunkline: Run) -> None:
    document = line(node("switch", "turn", cases=[{"when": ".a", "target": "done"}]))
    code, out, told = trunkline("flow", "validate", written(document))
    assert (code, out[:3]) == (0, "OK:")
    assert told.startswith("Warning: flow.json, line ")
    assert "without a default the run fails" in told
    code, out, told = trunkline("flow", "validate", "flow.json", "--strict")
    assert (code, out, told[:6]) == (1, "", "Error:")


@pytest.mark.parametrize("words", [["nowhere.json"], ["broken.json"], []])
def test_what_cannot_be_read(trunkline: Run, words: list[str]) -> None:
    Path("broken.json").write_text("{")
    code, out, told = trunkline("flow", "validate", *words)
    assert (code, out) == (2, "")
    assert "A2ACLI_ERR_USAGE" in told


def test_signing(trunkline: Run) -> None:
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    Path("key.pem").write_bytes(pem)
    code, out, told = trunkline("flow", "sign", written(line()), "--key", "key.pem", "--key-id", "ours")
    assert code == 0
    signed: dict[str, Any] = json.loads(out)
    keys = told.removeprefix("Public key: ")
    assert signature_policy("require", keys).check(signed).verified
    code, out, _ = trunkline("flow", "validate", written(signed, "signed.json"))
    assert (code, out[:3]) == (0, "OK:")
    code, _, told = trunkline("flow", "sign", "flow.json", "--key", "flow.json", "--key-id", "ours")
    assert code == 2
    assert "openssl genpkey" in told
    code, _, told = trunkline(
        "flow", "sign", written({}, "empty.json"), "--key", "key.pem", "--key-id", "ours"
    )
    assert code == 2
    assert "empty.json, line 1: " in told


def test_drawing(trunkline: Run) -> None:
    file = written(line(PUT))
    code, out, _ = trunkline("flow", "graph", file)
    assert (code, out) == (0, "sample 1.2.0\n├── begin (start)\n├── put (set_state)\n└── done (end)\n")
    code, out, _ = trunkline("flow", "graph", file, "--format", "mermaid")
    assert (code, out.splitlines()[0]) == (0, "flowchart TD")
    code, out, _ = trunkline("flow", "graph", file, "-o", "json")
    assert [(one["source"], one["target"]) for one in json.loads(out)["edges"]] == [
        ("__start__", "begin"), ("begin", "put"), ("put", "done"),
    ]  # fmt: skip
    code, _, told = trunkline("flow", "graph", file, "--format", "svg")
    assert code == 2
    assert "--format is tree or mermaid" in told


def test_without_the_extra(trunkline: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "trunkline.cli.flow", raising=False)
    monkeypatch.delattr("trunkline.cli.flow", raising=False)
    monkeypatch.setitem(sys.modules, "trunkline.flow.definition.read", None)
    code, _, told = trunkline("flow", "validate", "x.json")
    assert code == 2
    assert "pip install 'trunkline[flow]'" in told


def test_step_that_nobody_provides_is_reported_with_its_line(
    trunkline: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(line(node("step", "put", handler="my_steps:gone")))
    code, _, told = trunkline("flow", "validate", file)
    assert code == 0 and told.startswith("Warning: flow.json, line ") and "no steps are configured" in told
    assert trunkline("flow", "validate", file, "--strict")[0] == 1
    Path("my_steps.py").write_text("raise SystemExit('this is not imported')\n")
    monkeypatch.setenv("TRUNKLINE_FLOW_STEPS", "my_steps")
    code, out, told = trunkline("flow", "validate", file)
    assert (code, out) == (1, "") and "module 'my_steps' has no 'gone'" in told
    Path("my_steps.py").write_text("gone = 1\n")
    assert trunkline("flow", "validate", file)[0] == 0


def test_agents_and_settings_of_a_hub_count(trunkline: Run, tmp_path: Path) -> None:
    ask = node("agent_delegate", "ask", agent_id="coder", protocol="a2a", input_mapping={})
    file = written(line(ask))
    hub = tmp_path / "hub"
    hub.mkdir()
    (hub / "hub.yaml").write_text("name: here\nsettings: {flow_steps: [my_steps]}\n")
    (hub / "my_steps.py").write_text("def put(context): ...\n")
    code, _, told = trunkline("flow", "validate", file, "--hub", str(hub))
    assert code == 1 and "agent 'coder' not found in the files of this hub" in told
    (hub / "agents.yaml").write_text("agents: [{name: coder, url: 'https://coder.example'}]")
    put = written(line(ask, node("step", "put", handler="my_steps:put")))
    code, _, told = trunkline("flow", "validate", put, "--hub", str(hub))
    assert (code, told) == (0, "")
    Path("agents.yaml").write_text("of another program")
    code, _, told = trunkline("flow", "validate", file)
    assert code == 0 and "nothing is configured for delegations by 'a2a'" in told
    code, _, told = trunkline("flow", "validate", file, "--hub", "nowhere")
    assert code == 2 and "it has neither hub.yaml nor agents.yaml" in told
