"""YAML with the line of each value; what stands for more than it says is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from trunkline.errors import Misuse
from trunkline.yaml_reader import read_text, read_yaml


def test_values_have_their_lines() -> None:
    found = read_yaml("agents:\n  - name: a\n    apiKeyEnv: KEY\n  - name: b\n", "f.yaml")
    assert found is not None
    document, where = found
    assert document == {"agents": [{"name": "a", "apiKeyEnv": "KEY"}, {"name": "b"}]}
    assert where("agents[0].api_key_env") == "f.yaml, line 3"
    assert where("agents[1].colour") == "f.yaml, line 4"
    assert read_yaml("# nothing\n", "f.yaml") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [\n", "f.yaml, line 2: invalid YAML: expected"),
        ("a: 1\na: 2\n", "f.yaml, line 2: "),
        ("a: &one [x]\nb: *one\n", "f.yaml, line 1: aliases are not read"),
        ("a: &a {k: v}\nb: {<<: *a}\n", "aliases are not read"),
        (
            "a: !!python/object:os.system x\n",
            "f.yaml, line 1: invalid YAML: could not determine a constructor",
        ),
        ("a: 2026-13-41\n", "f.yaml: month must be in"),
        ("[" * 5000, "nested deeper than 64 levels"),
    ],
)
def test_what_is_refused(text: str, words: str) -> None:
    with pytest.raises(Misuse) as refused:
        read_yaml(text, "f.yaml")
    assert words in str(refused.value)


def test_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trunkline.yaml_reader.FILE_LIMIT", 8)
    file = tmp_path / "a.yaml"
    file.write_bytes(b"a: 1234\n")
    assert read_text(file) == "a: 1234\n"
    file.write_bytes(b"a: 12345\n")
    with pytest.raises(Misuse, match="more than"):
        read_text(file)
    file.write_bytes(b"\xff")
    with pytest.raises(Misuse, match="decode"):
        read_text(file)
