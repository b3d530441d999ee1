"""Scripts of models: which rule answers a request, and which files are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from trunkline.errors import Misuse
from trunkline.mock.model_script import ModelTurn, load_model_script, reply_to

SCRIPT = """
rules:
  - when: {contains: HELLO, turn: 1}
    reply: first
  - when: {regex: "^h.llo$"}
    reply: {stream: [a, b]}
  - when: {text: fail}
    reply: {error: 429}
  - when: {tool: read_file}
    reply: read
otherwise: nothing fits
"""


@pytest.mark.parametrize(
    ("request_", "chunks"),
    [
        (ModelTurn("well, hello", "", 1), ("first",)),
        (ModelTurn("hello", "", 2), ("a", "b")),
        (ModelTurn("well, hello", "", 2), ("nothing fits",)),
        (ModelTurn("fail", "", 1), ()),
        (ModelTurn("hello", "read_file", 1), ("read",)),
        (ModelTurn("hello", "other", 1), ("nothing fits",)),
    ],
)
def test_the_first_rule_that_fits_answers(
    tmp_path: Path, request_: ModelTurn, chunks: tuple[str, ...]
) -> None:
    (tmp_path / "model.yaml").write_text(SCRIPT)
    assert reply_to(load_model_script(tmp_path / "model.yaml"), request_).chunks == chunks


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "model.yaml: there is no such file"),
        ("", "model.yaml: the script is empty"),
        ("rules: [", "model.yaml, line 1"),
        (
            "otherwise: x\nrules:\n  - when: {contians: a}\n    reply: b\n",
            "line 3: rules[0].when.contians: unknown field; did you mean 'contains'?",
        ),
        ("rules:\n  - when: {contains: a}\n", "line 2: Object missing required field `reply`"),
        ("rules:\n  - when: {regex: '('}\n    reply: b\n", "line 2: regex '(' is invalid"),
    ],
)
def test_an_invalid_file_is_refused_with_its_line(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "model.yaml").write_text(text)
    with pytest.raises(Misuse) as refused:
        load_model_script(tmp_path / "model.yaml")
    assert message in str(refused.value)
