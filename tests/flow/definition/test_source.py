"""Definitions are written in JSON or in YAML."""

from __future__ import annotations

import json

import pytest

from tests.flow.definition.sample import line
from trunkline.errors import Misuse
from trunkline.flow.definition.diagnostics import Diagnostic
from trunkline.flow.definition.source import line_at, line_of, positions, read_source

YAML = """\
# a comment
document: {schema: x, name: sample, version: "1"}
nodes:
  - id: a
    type: start
    metadata:
      when: 2026-01-02
      3: a/b
"""


def test_json_and_yaml() -> None:
    assert read_source(f" {json.dumps(line())}", "x") == line()
    assert read_source(YAML, "x") == {
        "document": {"schema": "x", "name": "sample", "version": "1"},
        "nodes": [{"id": "a", "type": "start", "metadata": {"when": "2026-01-02", "3": "a/b"}}],
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "x: there is nothing in it"),
        ("{", "x: invalid JSON: input data was truncated"),
        ('{"a": ' + "[" * 100_000, "x: invalid JSON"),
        ("a: [", "x, line 1: "),
        ("a: &b [1]\nc: *b", "aliases are not read"),
        ("? [1]\n: 2", "x"),
    ],
)
def test_what_is_neither(text: str, reason: str) -> None:
    with pytest.raises(Misuse, match=reason):
        read_source(text, "x")


@pytest.mark.parametrize(
    ("path", "number"), [("", 2), ("/nodes/0/type", 5), ("/nodes/0/metadata/3", 8), ("/nodes/7/id", 4)]
)
def test_lines(path: str, number: int) -> None:
    found = positions(YAML, "x")
    assert found is not None
    assert line_at(found, path) == number


def test_line_of_a_member_that_is_unknown_is_that_of_its_name() -> None:
    found = positions("a: 1\nstate:\n  type: object\n", "x")
    assert found is not None
    assert line_of(found, Diagnostic("", "k", "#", {"additionalProperty": "state"}, "")) == 2
    assert line_of(found, Diagnostic("/state", "k", "#", {}, "")) == 3


def test_lines_that_cannot_be_told() -> None:
    assert positions('{\n\t"a": [', "x") is None
    assert positions(" " * (2 << 20), "x") is None
