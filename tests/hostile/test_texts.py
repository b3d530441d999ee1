"""Row 38: what is odd about a text comes back as it was sent; an id with anything odd is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness import Agent, ServerProcess, message, text_of
from tests.hostile.shapes import V1
from tests.hostile.sockets import flood, one, post
from tests.sample import at_most

TEXTS = {
    "NUL": "a\0b", "controls": "".join(map(chr, range(32))), "delete": "\x7f\x80\x9f", "bidi": "\u202eevil\u2066\u2069\u200f", "emoji": "\U0001f600\U0001f468\u200d\U0001f469",
    "line separators": "a\u2028b\u2029c\u0085d", "line ends": "a\rb\nc\r\nd", "BOM": "\ufeffa\ufeff", "nonbytes": "\ufffe\uffff\U0010ffff", "combining": "e\u0301\u0327" * 20,
    "noncharacter": "\ufdd0", "private": "\ue000", "zero width": "a\u200bb\u2060", "quotes": "\"'\\`", "markup": "<script>&amp;]]>", "sql": "'; DROP TABLE events;--",
    "template": "{{7*7}}${7*7}%s%n", "tag": "\U000e0041", "escapes": "\\u0000\\n", "long": "\U0001f600" * 20_000,
}  # fmt: skip


@pytest.fixture(scope="module")
def agent(target: ServerProcess) -> Any:
    made = Agent(target.base)
    yield made
    made.close()


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_text_comes_back_as_it_went(agent: Agent, name: str, version: str) -> None:
    _check_round_trip(agent, TEXTS[name], version)


@settings(max_examples=at_most(300, 60))
@given(text=st.text(st.characters(exclude_categories=["Cs"])), version=st.sampled_from(["1.0", "0.3"]))
def test_any_text_comes_back_as_it_went(agent: Agent, text: str, version: str) -> None:
    _check_round_trip(agent, text, version)


def _check_round_trip(agent: Agent, text: str, version: str) -> None:
    sent = f"echo {text}"
    key = f"k{text[:50]}"
    task = agent.send(sent, version=version, metadata={key: text, "nested": [text, {key: text}]})
    read = agent.get(task["id"], version=version)
    assert text_of(task) == text_of(read) == sent
    said = read["history"][0]
    assert said["parts"][0]["text"] == sent
    assert said["metadata"] == {key: text, "nested": [text, {key: text}]}


NO_IDS = {
    "empty": "", "NUL": "a\0b", "newline": "a\nb", "CR": "a\rb", "tab": "a\tb", "escape": "a\x1bb", "delete": "a\x7fb", "next line": "a\x85b", "U+2028": "a\u2028b",
    "bidi": "a\u202eb", "isolate": "a\u2066b", "zero width": "a\u200bb", "joiner": "a\u200db", "BOM": "a\ufeffb", "nonchar": "a\uffffb", "private": "a\ue000b", "tag": "a\U000e0041b",
    "wide space": "a\u3000b", "no-break": "a\u00a0b", "257": "a" * 257, "10 KB": "a" * 10_240,
}  # fmt: skip


# An empty context id is none, as in ProtoJSON; a message of 0.3 may lack its id.
NO_FIELDS = [
    (version, name, field)
    for version in ("1.0", "0.3")
    for name in NO_IDS
    for field in ("messageId", "contextId")
    if name != "empty" or (version, field) == ("1.0", "messageId")
]


@pytest.mark.parametrize(("version", "name", "field"), NO_FIELDS)
def test_odd_ids_are_refused(agent: Agent, version: str, name: str, field: str) -> None:
    params = {"message": message("echo id", version, **{field: NO_IDS[name]})}
    error = agent.error("SendMessage" if version == "1.0" else "message/send", params, version=version)
    assert error["code"] == -32602
    assert f"message.{field}" in json.dumps(error)
    assert len(json.dumps(error)) < 2_000


@pytest.mark.parametrize("name", [name for name in NO_IDS if name != "empty"])
@pytest.mark.parametrize("method", ["GetTask", "CancelTask", "SubscribeToTask"])
def test_odd_task_ids_are_unknown(agent: Agent, name: str, method: str) -> None:
    for text in (NO_IDS[name], f"tasks/{NO_IDS[name]}", NO_IDS[name] + "\U0001f600"):
        error = agent.error(method, {"id": text})
        assert error["code"] in (-32001, -32602)
        assert len(json.dumps(error)) < 2_000


BODIES = [
    b"\xef\xbb\xbf%b", b"\xff\xfe%b", b"%b\x00", b"%b%b", b"%b,", b"\x00%b", b"/**/%b", b"%b//", b"\xc2\xa0%b", b"\xe2\x80\xa8%b",
]  # fmt: skip


@pytest.mark.parametrize("around", BODIES, ids=repr)
def test_bytes_around_a_body_are_not_json(target: ServerProcess, around: bytes) -> None:
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message("echo x")}}
    ).encode()
    rest = json.dumps({"message": message("echo x")}).encode()
    rpc = one(target.port, post("/a2a", around.replace(b"%b", body), V1))
    assert (rpc.status, json.loads(rpc.body)["error"]["code"]) == (200, -32700)
    assert one(target.port, post("/message:send", around.replace(b"%b", rest), V1)).status == 400


def test_other_encodings_are_not_json(target: ServerProcess) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "x"}})
    raws = [
        post("/a2a", body.encode(coding), V1)
        for coding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "cp037", "utf-7")
    ]
    codes = [json.loads(answer.body)["error"]["code"] for answer in flood(target.port, raws, lines=1)]
    # UTF-7 of plain ASCII is plain ASCII, and JSON.
    assert codes[:-1] == [-32700] * 6


REQUEST_IDS = [
    b"1",
    b'"1"',
    b"-7",
    b"1.5",
    b'""',
    b"9" * 250,
    b'"%b"' % (b"x" * 256),
    '"\U0001f600\u2028"'.encode(),
    b'"a\\r\\nb"',
    b'"\\u0000"',
    b"1e308",
    b"0",
    b"null",
]


@pytest.mark.parametrize("given_id", REQUEST_IDS, ids=lambda raw: repr(raw[:20]))
def test_a_request_id_is_echoed_as_it_is(target: ServerProcess, given_id: bytes) -> None:
    for method in (b"GetTask", b"SendStreamingMessage", b"Nothing"):
        body = b'{"jsonrpc":"2.0","id":%b,"method":"%b","params":{"message":%b,"id":"x"}}' % (
            given_id,
            method,
            json.dumps(message("echo x")).encode(),
        )
        answer = one(target.port, post("/a2a", body, V1))
        for document in _documents(answer.body):
            assert document["id"] == json.loads(given_id)
            assert type(document["id"]) is type(json.loads(given_id))


@pytest.mark.parametrize("given_id", [b"9" * 400, b'"%b"' % (b"x" * 257), b'"%b"' % (b"x" * 500_000)])
def test_a_long_request_id_is_refused_and_not_repeated(target: ServerProcess, given_id: bytes) -> None:
    """It would stand in every frame of a stream."""
    body = b'{"jsonrpc":"2.0","id":%b,"method":"SendStreamingMessage","params":{"message":%b}}' % (
        given_id,
        json.dumps(message("echo x")).encode(),
    )
    answer = json.loads(one(target.port, post("/a2a", body, V1)).body)
    assert (answer["id"], answer["error"]["code"]) == (None, -32600)


def _documents(body: bytes) -> list[Any]:
    if body.startswith(b"{"):
        return [json.loads(body)]
    return [json.loads(line[5:]) for line in body.split(b"\n") if line.startswith(b"data:")]
