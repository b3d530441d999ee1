"""What a worker process does with one request; tests/flow/jq/test_filters.py has it as a process."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from trunkline.flow.jq import worker


def test_programs_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "CACHED", 2)
    programs: OrderedDict[str, Any] = OrderedDict()
    first = worker.compiled(programs, ".a")
    assert worker.compiled(programs, ".a") is first
    worker.compiled(programs, ".b")
    worker.compiled(programs, ".a")
    worker.compiled(programs, ".c")
    assert list(programs) == [".a", ".c"], "the one that was not used for longest has gone"


@pytest.mark.parametrize(
    ("program", "text"), [("1, 2", "[1,2]"), ("empty", "[]"), ('"é"', '["é"]'), (".", "[{}]")]
)
def test_outputs(program: str, text: str) -> None:
    compiled = worker.compiled(OrderedDict(), program)
    assert worker.outputs_of(compiled, "{}", 10, 100).decode() == text


@pytest.mark.parametrize("program", ["range(4)", '"x" * 90, "x" * 9'])
def test_outputs_have_a_bound(program: str) -> None:
    compiled = worker.compiled(OrderedDict(), program)
    with pytest.raises(ValueError, match="more than 3 values or 100 characters"):
        worker.outputs_of(compiled, "null", 3, 100)


def test_words_about_a_mistake_show_the_program_as_it_was_written() -> None:
    with pytest.raises(ValueError, match="line 1, column 7"):
        worker.compiled(OrderedDict(), "debug )")
