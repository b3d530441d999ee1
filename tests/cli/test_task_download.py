"""`trunkline task download`: what an agent calls a file decides nothing but its last name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.peers import Scripted, task
from tests.cli.test_send import fields
from trunkline.cli.task import safe_name
from trunkline.wire.types import Artifact, Part

Make = Callable[..., Scripted]


def holding(make: Make, *parts: Any, name: str = "report") -> Scripted:
    peer = make()
    artifact = {"artifactId": "a1", "name": name, "parts": list(parts)}
    peer.methods["GetTask"] = lambda _: task("COMPLETED", artifacts=[artifact])
    return peer


def test_every_part_becomes_a_file(trunkline: Run, scripted: Make, tmp_path: Path) -> None:
    peer = holding(
        scripted,
        {"text": "words"},
        {"data": {"a": 1}},
        {"raw": "AAEC", "filename": "pic.png", "mediaType": "image/png"},
        {"raw": "AAED", "filename": "pic.png"},
        {"url": "https://example.com/big.iso"},
    )
    code, out, err = trunkline("task", "download", peer.url, "t1", "--dir", "out")
    assert code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "report-0.txt", "report-1.json", "pic.png", "pic-2.png",
    }  # fmt: skip
    assert (tmp_path / "out/report-0.txt").read_text() == "words"
    assert json.loads((tmp_path / "out/report-1.json").read_text()) == {"a": 1}
    assert (tmp_path / "out/pic.png").read_bytes() == b"\x00\x01\x02"
    assert fields(out)["Files"] == "4"
    assert fields(out)["State"] == "TASK_STATE_COMPLETED"
    assert "https://example.com/big.iso" in err


def test_nothing_is_written_over_unless_told(trunkline: Run, scripted: Make, tmp_path: Path) -> None:
    peer = holding(scripted, {"raw": "AAEC", "filename": "a.bin"})
    (tmp_path / "a.bin").write_text("mine")
    code, _, err = trunkline("task", "download", peer.url, "t1")
    assert code == 2
    assert "--force" in err and (tmp_path / "a.bin").read_text() == "mine"
    assert trunkline("task", "download", peer.url, "t1", "--force", "-o", "json")[0] == 0
    assert (tmp_path / "a.bin").read_bytes() == b"\x00\x01\x02"


def test_a_link_leads_nowhere(trunkline: Run, scripted: Make, tmp_path: Path) -> None:
    peer = holding(scripted, {"raw": "AAEC", "filename": "a.bin"})
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "a.bin").symlink_to(tmp_path / "precious")
    assert trunkline("task", "download", peer.url, "t1", "--force")[0] == 2
    assert (tmp_path / "precious").read_text() == "mine"


@pytest.mark.parametrize(
    ("told", "name"),
    [
        ("../../etc/passwd", "passwd"),
        ("/etc/cron.d/x", "x"),
        ("..\\..\\boot.ini", "boot.ini"),
        (".bashrc", "bashrc"),
        ("..", "artifact-0"),
        ("a\x00b\n.txt", "a_b_.txt"),
        ("nul.txt", "_nul.txt"),
        ("ends. ", "ends"),
        ("x" * 500 + ".pdf", "x" * 120 + ".pdf"),
        ("Übung.txt", "_bung.txt"),
        ("C:evil.txt", "C_evil.txt"),
    ],
)
def test_names(told: str, name: str) -> None:
    part = Part(raw="AA==", filename=told)
    assert safe_name(Artifact("id", parts=(part,)), 0, part) == name
