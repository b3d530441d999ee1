"""The vectors that were supplied with the behaviour; none of them is part of this repository."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(
    os.environ.get("TRUNKLINE_VECTORS") or Path(__file__).resolve().parents[3] / "shared" / "workflow_vectors"
)
UNIT_TESTS = "urn:awp:wf:unit-tests"


def vectors(kind: str) -> list[Any]:
    """All vectors of a kind as parameters of a test; one that is skipped where there are none."""
    found = [json.loads(path.read_text()) for path in sorted((ROOT / "conformance").rglob("*.vector.json"))]
    chosen = [pytest.param(one, id=one["id"]) for one in found if one["kind"] == kind]
    return chosen or [
        pytest.param(None, marks=pytest.mark.skip(f"no vectors at {ROOT}: set TRUNKLINE_VECTORS"))
    ]


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
