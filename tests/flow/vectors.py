"""The vectors that were supplied with the behaviour; none of them is part of this repository."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from trunkline.flow.definition.diagnostics import Diagnostic
from trunkline.flow.definition.signing import SignaturePolicy, sign, signature_policy

ROOT = Path(
    os.environ.get("TRUNKLINE_VECTORS") or Path(__file__).resolve().parents[3] / "shared" / "workflow_vectors"
)
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
UNIT_TESTS = "urn:awp:wf:unit-tests"


def vectors(kind: str) -> list[Any]:
    """All vectors of a kind as parameters of a test; one that is skipped where there are none."""
    chosen = [pytest.param(one, id=one["id"], marks=_marks(one)) for one in _of_kind(kind)]
    return chosen or [
        pytest.param(None, marks=pytest.mark.skip(f"no vectors at {ROOT}: set TRUNKLINE_VECTORS"))
    ]


def _marks(vector: dict[str, Any]) -> list[pytest.MarkDecorator]:
    """Its delegate is an agent in a process of its own."""
    return [pytest.mark.slow] if vector.get("useProductionA2ADelegate") else []


def last_sign_changed(value: str) -> str:
    """A text with another last sign."""
    return value[:-1] + "X"


def _of_kind(kind: str) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in sorted((ROOT / "conformance").rglob("*.vector.json"))]
    return [one for one in found if one["kind"] == kind]


def of_kind(kind: str) -> list[dict[str, Any]]:
    """All vectors of a kind for a test that goes through them."""
    found = _of_kind(kind)
    if not found:
        pytest.skip(f"no vectors at {ROOT}: set TRUNKLINE_VECTORS")
    return found


def check_diagnostics(vector: dict[str, Any], found: Sequence[Diagnostic]) -> None:
    """Have one of the diagnostics that were found be one that a schema vector names."""
    wanted = vector["expect"].get("diagnostics", [])
    assert not wanted or any(
        one.instance_path == each.get("instancePath", one.instance_path)
        and one.keyword == each.get("keyword", one.keyword)
        and each.get("messageIncludes", "").lower() in one.message.lower()
        for one in found
        for each in wanted
    )


def signed(vector: dict[str, Any]) -> tuple[dict[str, Any], SignaturePolicy]:
    """The definition and the policy of a signing vector.

    The private half of the vectors' key is not supplied: where one is to sign, a key of ours does.
    """
    definition = document(vector["definition"])
    policy = signature_policy(vector["signingPolicy"]["mode"], json.dumps(vector["publicKeys"]))
    if vector.get("signFixture"):
        (key_id,) = vector["publicKeys"]
        definition = sign(definition, KEY, key_id)
        policy = SignaturePolicy(policy.mode, {key_id: KEY.public_key()})
    if vector.get("tamperSignatureValue"):
        block = definition["document"]["signature"]
        block["value"] = last_sign_changed(block["value"])
    return definition, policy


def document(path: str) -> dict[str, Any]:
    """A definition of the vectors."""
    return json.loads((ROOT / path).read_text())


def example(name: str) -> dict[str, Any]:
    """An example by its name."""
    path = ROOT / "examples" / f"{name}.workflow.json"
    if not path.exists():
        pytest.skip(f"no examples at {ROOT}: set TRUNKLINE_VECTORS")
    return json.loads(path.read_text())


def child_workflow() -> dict[str, Any] | None:
    """The workflow that the vectors nest."""
    path = ROOT / "examples" / "r3-unit-tests-child.workflow.json"
    return json.loads(path.read_text()) if path.exists() else None
