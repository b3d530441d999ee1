"""What a worker process does with one request; tests/flow/jq/test_filters.py runs it as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trunkline.flow.jq import worker

REFUSED = "a filter may not use '{}'"


@pytest.mark.parametrize(("limit", "value"), [("CACHED", 2), ("CACHED_CHARS", 5)])
def test_programs_are_compiled_once(monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    monkeypatch.setattr(worker, limit, value)
    made: list[str] = []
    programs = worker.CompiledTexts(lambda text: made.append(text) or text)
    for text in (".a", ".a", ".b", ".a", ".c", ".a", ".b"):
        assert programs.find(text) == text
    assert made == [".a", ".b", ".c", ".b"], "the least recently used program is evicted"


@pytest.mark.parametrize(
    ("program", "text"), [("1, 2", "[1,2]"), ("empty", "[]"), ('"é"', '["é"]'), (".", "[{}]")]
)
def test_outputs(program: str, text: str) -> None:
    compiled = worker.compiled_filter(program)
    assert worker.outputs_of(compiled, "{}", 10, 100).decode() == text


@pytest.mark.parametrize("program", ["range(4)", '"x" * 90, "x" * 9'])
def test_outputs_have_a_bound(program: str) -> None:
    compiled = worker.compiled_filter(program)
    with pytest.raises(ValueError, match="more than 3 values or 100 characters"):
        worker.outputs_of(compiled, "null", 3, 100)


@pytest.mark.parametrize(
    ("program", "place"),
    [
        ("debug )", "line 1, column 7"),
        (".a |\n  nobody", "line 2, column 3"),
        ("1 + nobody", "nobody/0 is not defined at <top-level>, line 1, column 5"),
    ],
)
def test_error_shows_the_position_in_the_program_as_written(program: str, place: str) -> None:
    with pytest.raises(ValueError, match=place) as caught:
        worker.compiled_filter(program)
    assert "def " not in str(caught.value), "the prelude is not shown"


@pytest.mark.parametrize(
    ("program", "construct"),
    [
        ("input", "input"),
        ("[inputs]", "inputs"),
        ('"\\(input)"', "input"),
        ("{a: 1, b: (2, input)}", "input"),
        ("{a: if . then 1, input else 2 end}", "input"),
        ("def f: input; f", "input"),
        ("env", "env"),
        ("env.PATH", "env"),
        ("# a\\\n b\nenv", "env"),
        ("$ENV", "$ENV"),
        ("$ENV.PATH", "$ENV"),
        ("{$ENV}", "$ENV"),
        ('"\\( "a (\\( $ENV )" )"', "$ENV"),
        ('"a" # "\n| $ENV', "$ENV"),
        ("1 # a \\\\\n| $ENV", "$ENV"),
        ('("\\((1))" | $ENV)', "$ENV"),
        ("input_filename", "input_filename"),
        ("input_line_number", "input_line_number"),
        ("get_search_list", "get_search_list"),
        ("get_jq_origin", "get_jq_origin"),
        ("get_prog_origin", "get_prog_origin"),
        ('"m" | modulemeta', "modulemeta"),
        ("debug", "debug"),
        ('debug("x")', "debug"),
        (".a | stderr", "stderr"),
        ("halt", "halt"),
        ('"x" | halt_error', "halt_error"),
        ("halt_error(1)", "halt_error"),
        ("module {}; .", "module"),
        ('\nimport "a" as a; .', "import"),
        ('# include\ninclude "a"; .', "include"),
    ],
)
def test_what_reads_more_than_the_value_is_refused_by_name(program: str, construct: str) -> None:
    with pytest.raises(ValueError, match="a filter may not use") as caught:
        worker.compiled_filter(program)
    assert str(caught.value).startswith(REFUSED.format(construct))


@pytest.mark.parametrize(
    ("program", "output"),
    [
        ("{input: 1, env, debug, import: 2, include: 3, module: 4}",
         {"input": 1, "env": "e", "debug": None, "import": 2, "include": 3, "module": 4}),
        (".env, .import, .input", ["e", None, None]),
        ('"costs $ENV, import \\"a\\" as $a; input"', 'costs $ENV, import "a" as $a; input'),
        ("1 # $ENV and \\\n $ENV too", 1),
        ("1 as $input | $input", 1),
        ("1 as $import | $import", 1),
        ("def input: 7; input", 7),
        ("def f(env): env; f(3)", 3),
        ("$__loc__", {"file": "<top-level>", "line": 1}),
        ("getpath([\"env\"])", "e"),
        ('@sh "\\(.env)"', "'e'"),
        ('.env | ltrimstr("e")', ""),
        ("[splits(\"a\")?]", []),
        ("builtins | length > 100", True),
        ("now | localtime | mktime | type", "number"),
        ("def f: 1; def g: 2; f + g", 3),
    ],
)  # fmt: skip
def test_programs_that_only_look_like_refused_ones(program: str, output: Any) -> None:
    compiled = worker.compiled_filter(program)
    outputs = json.loads(worker.outputs_of(compiled, '{"env":"e"}', 10, 1000))
    assert outputs == (output if isinstance(output, list) and len(outputs) != 1 else [output])


def test_process_opens_no_file_even_for_a_program_that_was_not_checked(tmp_path: Path) -> None:
    (tmp_path / "a2a_agents.json").write_text('{"token": "hunter2"}')
    program = f'import "a2a_agents" as $x {{search: "{tmp_path}"}}; $x'
    script = f"""
import runpy, jq
worker = runpy.run_path({worker.__file__!r})
print("before", jq.compile({program!r}).input_text("null").all())
worker["limit_resources"](1 << 30)
try:
    print("after", jq.compile({program!r}).input_text("null").all())
except ValueError as error:
    print("after", error)
"""
    ran = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True, env={}
    )
    before, after = ran.stdout.split("after", 1)
    assert "hunter2" in before, "without the limit, jq reads the file"
    assert "Too many open files" in after
    assert "hunter2" not in after
