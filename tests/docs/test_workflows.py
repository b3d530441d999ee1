"""The page on workflows: its definition, its commands and its drawing, as printed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.cli.conftest import Run, trunkline
from tests.docs.pages import blocks
from trunkline.flow.definition.checks import LARGEST_SCHEMA, SMALL_SCHEMA
from trunkline.flow.definition.schema import CONFIGS
from trunkline.flow.definition.signing import signature_policy
from trunkline.flow.engine.run import WORKER_S
from trunkline.flow.engine.view import RUN_TOO_LARGE
from trunkline.flow.jq.pool import FilterLimits
from trunkline.flow.jq.worker import BACKTRACKS, PATTERN_BYTES, PATTERNS

__all__ = ["trunkline"]
PAGE = "docs/workflows.md"
(DEFINITION,) = blocks(PAGE, "yaml")
(DRAWN,) = blocks(PAGE, "text")
FIRST, SIGNING = [block.splitlines() for block in blocks(PAGE, "sh")]


def test_the_page(trunkline: Run, tmp_path: Path) -> None:
    (tmp_path / "review.yaml").write_text(DEFINITION)
    valid, tree, chart = [trunkline(*shlex.split(line)[1:]) for line in FIRST]
    assert valid[0] == 0 and valid[1].startswith("OK: review 1.0.0, ")
    assert (
        valid[2].count("Warning: ") == valid[2].count("nothing is configured for delegations by 'a2a'") == 2
    )
    (tmp_path / "hub.yaml").touch()
    (tmp_path / "agents.yaml").write_text(
        "agents: [{name: writer, url: http://x}, {name: reviewer, url: http://y}]"
    )
    assert trunkline(*shlex.split(FIRST[0])[1:])[2] == ""
    assert tree == (0, DRAWN, "")
    assert chart[1].startswith("flowchart TD\n")


def test_the_signature(trunkline: Run, tmp_path: Path) -> None:
    (tmp_path / "review.yaml").write_text(DEFINITION)
    make, sign, again = [shlex.split(line) for line in SIGNING]
    assert make[:4] == ["openssl", "genpkey", "-algorithm", "ed25519"], "what the next lines make here"
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / make[-1]).write_bytes(pem)
    assert sign[-2] == ">"
    code, out, told = trunkline(*sign[1:-2])
    assert code == 0
    assert signature_policy("require", told.removeprefix("Public key: ")).check(json.loads(out)).verified
    (tmp_path / sign[-1]).write_text(out)
    assert trunkline(*again[1:])[0] == 0


def test_every_type_of_node_and_every_limit_is_on_the_page() -> None:
    text = (Path(__file__).parents[2] / PAGE).read_text(encoding="utf-8")
    assert [kind for kind in CONFIGS if f"| `{kind}` |" not in text] == []
    limits = FilterLimits()
    assert f"{limits.deadline_s:g} seconds of processor time, {limits.memory >> 20} MiB" in text
    assert f"{limits.outputs:,} outputs" in text
    for row in (
        f"| Size of one schema as JSON | {LARGEST_SCHEMA >> 10} KiB |",
        f"| Patterns of one schema | {PATTERNS} |",
        f"| Size of one compiled pattern | {PATTERN_BYTES >> 20} MiB |",
        f"for one text | {BACKTRACKS:,} |",
        f"check one value | {limits.deadline_s:g} s of processor time, {limits.memory >> 20} MiB |",
        f"| {limits.workers}; after {limits.stuck_s:g} s a request moves to one of {limits.slow_workers} slower",
        f"| {limits.workers - 1} of the {limits.workers}, and {limits.slow_workers - 1} of the {limits.slow_workers}.",
        f"| {limits.patience_s:g} s, then the request fails |",
        f"| {WORKER_S:g} s, then the run fails with `{RUN_TOO_LARGE}` |",
        f"schemas of up to {SMALL_SCHEMA >> 10} KiB",
    ):
        assert row in text, row
