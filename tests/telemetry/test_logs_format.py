"""The form of log lines: every field is there, and text from outside forges nothing."""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trunkline
from trunkline.clock import Ids
from trunkline.config import Secret
from trunkline.log.head import Head
from trunkline.telemetry.logs import FORMATS, Change, timestamp
from trunkline.wire.types import TaskState

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HOSTILE = "x\r\n2026-01-01T00:00:00.000Z INFO forged state=done\x1b[31m\u2028\x00\ud800"


def _record(
    template: str, *args: object, name: str = "trunkline.test", error: BaseException | None = None
) -> logging.LogRecord:
    info = (type(error), error, error.__traceback__) if error is not None else None
    record = logging.LogRecord(name, logging.WARNING, __file__, 1, template, args, info)
    record.created = 1_700_000_000.25
    return record


def _json(*given: Any, **more: Any) -> dict[str, Any]:
    line = FORMATS["json"].record(_record(*given, **more))
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    return json.loads(line)


def _text(*given: Any, **more: Any) -> str:
    return FORMATS["text"].record(_record(*given, **more)).decode()


AT = 1_700_000_000_007


def _change(
    context: str = "c",
    tenant: str = "default",
    trace: str = TRACE,
    task_id: str = "t",
    correlation: str = "",
) -> Change:
    return (
        AT,
        tenant,
        Head(task_id, context, "me", TaskState.WORKING, 5, 3, "n", "scribe"),
        "working",
        3,
        trace,
        correlation,
    )


def test_a_moment_is_utc_with_milliseconds() -> None:
    assert [timestamp(0), timestamp(1_700_000_000_007)] == [
        "1970-01-01T00:00:00.000Z",
        "2023-11-14T22:13:20.007Z",
    ]


def test_a_line_is_an_event_with_its_fields() -> None:
    line = _json("request.refused path=%a reason=%s field=%s seq=%d", "/a b", "NO", "", 7)
    assert line == {
        "time": "2023-11-14T22:13:20.250Z", "level": "warning", "logger": "trunkline.test",
        "event": "request.refused", "path": "/a b", "reason": "NO", "field": "", "seq": 7,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("template", "args", "event", "fields"),
    [
        ("request.broke", (), "request.broke", {}),
        ("store.failed reason=%s: %s", ("OSError", "full"), "store.failed", {"reason": "OSError: full"}),
        ("store.failed share=%d%% of=%.1f", (5, 2.25), "store.failed", {"share": "5%", "of": 2.25}),
        ("task.done note=100%", (), "task.done", {"note": "100%"}),
        ("a.b event=%s time=%s", ("x", "y"), "a.b", {"event_": "x", "time_": "y"}),
        ("no key is set: %s", ("anybody",), "no key is set: anybody", {}),
        ("serving %s card=%s", ("here", "there"), "serving here card=there", {}),
        ("task.done %s", ("x=5",), "task.done x=5", {}),
        ("task.key key=%s", (Secret("planted"),), "task.key", {"key": "***"}),
        ("task.done all=%s", ((1, "x"),), "task.done", {"all": "(1, 'x')"}),
    ],
)
def test_whatever_was_logged_is_in_the_line(
    template: str, args: tuple[Any, ...], event: str, fields: dict[str, Any]
) -> None:
    line = _json(template, *args)
    assert line.pop("event") == event
    assert {name: line[name] for name in line if name not in ("time", "level", "logger")} == fields


def test_a_mapping_is_filled_in() -> None:
    assert _json("task.done x=%(x)s", {"x": 5})["event"] == "task.done x=5"


def test_lines_of_others_are_not_taken_apart() -> None:
    """An author may format what people say into a message; that must not become a field."""
    line = _json("task.done state=forged level=error", name="somebody.else")
    assert line["event"] == "task.done state=forged level=error" and "state" not in line


def test_an_exception_is_a_field() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError as caught:
        line, text = _json("request.broke", error=caught), _text("request.broke", error=caught)
    assert line["exception"].startswith("Traceback") and "forged" in line["exception"]
    first, *rest = text.splitlines()
    assert first.endswith("WARNING request.broke")
    assert rest and all(one.startswith("    ") for one in rest)


@pytest.mark.parametrize("template", ["request.refused path=%s", "said %s", "request.refused path=%a"])
def test_a_foreign_text_forges_nothing(template: str) -> None:
    line = _json(template, HOSTILE)
    assert set(line) <= {"time", "level", "logger", "event", "path"}
    text = _text(template, HOSTILE)
    assert text.count("\n") == 1 and len(text.splitlines()) == 1
    assert text[:-1].isprintable()


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_context_forges_nothing(form: str) -> None:
    hostile = "c' state=failed\n\u2028"
    lines = FORMATS[form].changes([_change(hostile, hostile), _change()])
    assert lines.count(b"\n") == 2 and len(lines.decode().splitlines()) == 2
    if form == "json":
        first = json.loads(lines.splitlines()[0])
        assert (first["context"], first["tenant"], first["state"]) == (hostile, hostile, "working")
    else:
        assert b' tenant="c\' state=failed\\n\\u2028"\n' in lines


def test_a_changed_task_has_all_its_ids() -> None:
    (line,) = map(json.loads, FORMATS["json"].changes([_change()]).splitlines())
    assert line == {
        "time": "2023-11-14T22:13:20.007Z", "level": "info", "logger": "trunkline.task", "event": "task.state",
        "task": "t", "context": "c", "tenant": "default", "state": "working", "seq": 3, "node": "n",
        "trace": "0af7651916cd43dd8448eb211c80319c", "agent": "scribe",
    }  # fmt: skip
    assert "trace" not in json.loads(FORMATS["json"].changes([_change(trace="")]))
    correlated = json.loads(FORMATS["json"].changes([_change(correlation="a\nb")]))
    assert correlated == {**line, "correlation": "a\nb"}


def test_a_changed_task_as_text() -> None:
    assert FORMATS["text"].changes([_change()]).decode() == (
        "22:13:20.007Z INFO task.state agent=scribe task=t state=working\n"
    )


@pytest.mark.parametrize(
    ("age", "text", "field"),
    [(0, "0ms", 0), (9_999, "9999ms", 9_999), (12_345, "12s", 12_345), (-5, "0ms", 0)],
    ids=["new", "milliseconds", "seconds", "clock stepped back"],
)
def test_a_changed_task_has_its_agent_and_duration(age: int, text: str, field: int) -> None:
    task_id = Ids(lambda: AT - age).new()
    change = _change(task_id=task_id)
    shown = FORMATS["text"].changes([change]).decode()
    assert (
        shown
        == f"22:13:20.007Z INFO task.state agent=scribe task={task_id[-8:]} state=working duration={text}\n"
    )
    line = json.loads(FORMATS["json"].changes([change]))
    assert (line["task"], line["agent"], line["duration_ms"]) == (task_id, "scribe", field)


def test_a_line_of_another_library_names_its_logger() -> None:
    assert _text("connected", name="asyncpg").endswith(" WARNING asyncpg connected\n")


def _log_calls() -> Iterator[tuple[str, ast.expr]]:
    for path in sorted(Path(trunkline.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and re.fullmatch(
                r"_?(task_)?log\.(debug|info|warning|error|exception|critical)", ast.unparse(node.func)
            ):
                yield f"{path.name}:{node.lineno}", node.args[0]


def test_every_line_of_ours_is_an_event_with_fields() -> None:
    """A sentence in a log line has no name that a machine can filter by."""
    templates = [
        (place, argument.value) for place, argument in _log_calls() if isinstance(argument, ast.Constant)
    ]
    assert len(templates) > 100
    broken = [
        (place, text)
        for place, text in templates
        if not re.fullmatch(
            r"[a-z_]+(\.[a-z_]+)+( \w+=([^\s%]+|%[-.\d]*[a-z](: %s|/%d)?|[^\s%]*(%[a-z][^\s%]*)+))*",
            str(text),
        )
    ]
    assert broken == []
