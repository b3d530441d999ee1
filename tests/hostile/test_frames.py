"""Row 57: nothing that a caller or an agent says can forge, split or drop an event of a stream."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness import ServerProcess, message
from tests.hostile.shapes import V1
from tests.hostile.sockets import flood, post, request
from tests.sample import at_most

FORGED = 'id: 999\nevent: forged\ndata: {"forged":true}\n\n'
EVIL = {
    "LF": f"x\n\n{FORGED}", "CR": f"x\r\r{FORGED}".replace("\n", "\r"), "CRLF": f"x\r\n\r\n{FORGED}".replace("\n", "\r\n"), "mixed": f"x\n\r\n\r{FORGED}", "NUL": "x\0id: 9\0\n",
    "U+2028": f"x\u2028\u2028{FORGED}".replace("\n", "\u2028"), "U+2029": "x\u2029data: y", "NEL": "x\u0085\u0085data: y", "VT": "x\x0b\x0cdata: y\x1c\x1d\x1e", "BOM": "\ufeffdata: y", "comment": ": x\n: y",
    "retry": "retry: 0\n\nretry: 1\r", "escaped": "x\\n\\ndata: y", "end": "\n", "only CR": "\r", "many": "\r\n" * 50,
}  # fmt: skip
KINDS = ("all", "message", "failure", "rejection", "artifact")


class Event(NamedTuple):
    id: str
    name: str
    data: str


def parse(stream: bytes) -> list[Event]:
    """Events by the letter of the WHATWG's rules, written here again so as not to trust our own parser."""
    events: list[Event] = []
    last_id, name, data = "", "", list[str]()
    text = stream.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    for line in text.split("\n"):
        if not line:
            if data:
                events.append(Event(last_id, name, "\n".join(data)))
            name, data = "", []
            continue
        field, _, value = line.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value
        elif field == "id" and "\0" not in value:
            last_id = value
        else:
            assert field in ("", "retry"), f"a line that we never write: {line!r}"
    assert not data, "the stream ends inside an event"
    return events


def _raws(evil: str, kind: str) -> list[bytes]:
    one = message(evil, metadata={evil: evil}, extensions=[evil], **{"x-unknown": {evil: [evil]}})
    one["parts"].append({"data": {"as": kind, evil: evil}, "metadata": {evil: evil}})
    old = message(evil, "0.3", metadata={evil: evil})
    old["parts"].append({"kind": "data", "data": {"as": kind, evil: evil}, "metadata": {evil: evil}})
    about = {evil: evil}
    envelope = {
        "jsonrpc": "2.0",
        "id": evil[:200],
        "method": "SendStreamingMessage",
        "params": {"message": one, "metadata": about},
    }
    rpc = [
        post("/a2a", _dump(envelope), V1),
        post("/a2a", _dump({**envelope, "method": "message/stream", "params": {"message": old}})),
    ]
    rest = [
        post("/message:stream", _dump({"message": one, "metadata": about}), V1),
        post("/message:stream", _dump({"message": old})),
    ]
    return [*rpc, *rest, post("/v1/message:stream", _dump({"request": one, "metadata": about}))]


def _dump(value: Any) -> bytes:
    # Line ends of JSON itself are allowed between tokens; none of them may reach a frame.
    return json.dumps(value, ensure_ascii=False, indent="\t").replace("\n", "\r\n").encode()


def _check(mirror: ServerProcess, evil: str, kind: str) -> None:
    raws = _raws(evil, kind)
    for raw, answer in zip(raws, flood(mirror.port, raws, lines=1), strict=True):
        assert answer.header(b"content-type") == b"text/event-stream", (raw[:200], answer)
        events = parse(answer.body)
        documents = [json.loads(event.data) for event in events]
        assert all(event.name == "" for event in events)
        assert all(_is_frame(document, evil) for document in documents)
        seqs = [int(event.id) for event in events if event.id]
        assert seqs == sorted(seqs)
        # One event, one data line: nothing to put together differently elsewhere.
        assert answer.body.count(b"data: ") >= len(events)
        assert sum(line.startswith(b"data:") for line in answer.body.split(b"\n")) == len(events)
        assert b"\r" not in answer.body and b"\0" not in answer.body
        assert kind == "message" or len(events) >= 6, events
        _check_snapshot(mirror, documents, evil)


def _is_frame(document: Any, evil: str) -> bool:
    if "jsonrpc" in document:
        return document["id"] == evil[:200] and "result" in document
    return "kind" in document or len(document) == 1


def _check_snapshot(mirror: ServerProcess, documents: list[Any], evil: str) -> None:
    found = _task_id(documents[0])
    if not found:
        return
    raws = [
        request("GET", f"/tasks/{found}:subscribe", None),
        request("GET", f"/v1/tasks/{found}:subscribe", None),
    ]
    for answer in flood(mirror.port, raws, lines=1):
        assert all(_is_frame(json.loads(event.data), evil) for event in parse(answer.body)), answer


def _task_id(document: Any) -> str:
    result = document.get("result", document)
    return (result.get("task") or result).get("id", "")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EVIL)
def test_no_text_forges_an_event(mirror: ServerProcess, name: str, kind: str) -> None:
    _check(mirror, EVIL[name], kind)


LINES = st.text(
    st.sampled_from('\r\n\0\u2028\u2029\u0085\ufeff:; adit\\"x\U0001f600'), min_size=1, max_size=40
)


@settings(max_examples=at_most(150, 30))
@given(evil=LINES, kind=st.sampled_from(KINDS))
def test_no_text_at_all_forges_an_event(mirror: ServerProcess, evil: str, kind: str) -> None:
    _check(mirror, evil, kind)
