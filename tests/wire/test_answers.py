from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire import samples
from trunkline.errors import InvalidParams, ParseError, Refused
from trunkline.wire import answers, push, v1
from trunkline.wire import types as t
from trunkline.wire.answers import Answer, Notice, read_notice
from trunkline.wire.v03 import V03 as v03
from trunkline.wire.v03 import V03_PROTO as v03proto

STAMP = "2026-04-15T20:00:00Z"
DONE = t.TaskStatus(t.TaskState.COMPLETED, timestamp=STAMP)
RESULT = t.Artifact("a1", parts=(t.Part(text="## Results"),))

status_updates = st.builds(t.StatusUpdate, samples.ids, samples.ids, samples.statuses, samples.metadata)
artifact_updates = st.builds(
    t.ArtifactUpdate,
    samples.ids,
    samples.ids,
    samples.artifacts(),
    st.booleans(),
    st.booleans(),
    samples.metadata,
)
WRITTEN = [
    (samples.tasks(), lambda w, x: w.task(x)),
    (samples.tasks(), lambda w, x: w.task_frame(w.task(x))),
    (samples.messages(), lambda w, x: w.message(x)),
    (samples.messages(), lambda w, x: w.message_frame(x)),
    (status_updates, lambda w, x: w.status_frame(x, final=True)),
    (artifact_updates, lambda w, x: w.artifact_frame(x)),
]
written = st.one_of([
    st.tuples(values, st.just(write)) for values, write in WRITTEN
])  # fmt: skip


def read_answer(raw: bytes, *, proto: bool = False) -> Answer:
    """What was said, without what came along."""
    return read_notice(raw, proto=proto).answer


def read(value: Any) -> Any:
    return read_answer(json.dumps(value).encode())


def notice(value: Any) -> Notice:
    return read_notice(json.dumps(value).encode())


@given(written)
def test_round_trip_v1(drawn: Any) -> None:
    value, write = drawn
    assert read_answer(write(v1, value)) == value


@given(written)
def test_round_trip_v03(drawn: Any) -> None:
    """0.3 cannot hold all of 1.0: what is read is what it holds, and says the same again."""
    value, write = drawn
    body = write(v03, value)
    again = read_answer(body)
    assert type(again) is type(value)
    assert write(v03, again) == body
    assert read_answer(write(v1, again)) == again


@given(written)
def test_round_trip_v03proto(drawn: Any) -> None:
    value, write = drawn
    body = write(v03proto, value)
    again = read_answer(body, proto=True)
    assert type(again) is type(value)
    assert write(v03proto, again) == body
    assert read_answer(write(v1, again)) == again


PLAIN = [
    samples.TASK,
    t.Task("t1", "c1", t.TaskStatus(t.TaskState.CANCELED, samples.HELLO), metadata={"a": [1]}),
    samples.HELLO,
    t.StatusUpdate("t1", "c1", t.TaskStatus(t.TaskState.INPUT_REQUIRED, samples.HELLO, STAMP)),
    t.ArtifactUpdate("t1", "c1", samples.ANSWER, append=True, last_chunk=True),
    t.ArtifactUpdate(
        "t1",
        "c1",
        t.Artifact(
            "a",
            "n",
            "d",
            (
                t.Part(data={"data": {"x": 1}}),
                t.Part(raw="AAAA", filename="f", media_type="image/png"),
                t.Part(url="u"),
            ),
            {"m": 1},
            ("https://x/ext",),
        ),
    ),
]


@pytest.mark.parametrize("value", PLAIN)
@pytest.mark.parametrize("writer", [v1, v03, v03proto])
def test_what_every_dialect_can_say_is_read_back_equal(writer: Any, value: Any) -> None:
    writers = {
        t.Task: lambda: writer.task_frame(writer.task(value)),
        t.Message: lambda: writer.message_frame(value),
        t.StatusUpdate: lambda: writer.status_frame(value, final=True),
        t.ArtifactUpdate: lambda: writer.artifact_frame(value),
    }
    assert read_answer(writers[type(value)](), proto=writer is v03proto) == value


@given(samples.tasks(), st.booleans(), st.sampled_from(["1.0", "0.3"]))
def test_our_own_notifications(task: t.Task, whole: bool, version: str) -> None:
    heard = read_notice(push.notification_body(task, version, whole=whole))
    answer = heard.answer
    assert isinstance(answer, t.Task | t.StatusUpdate)
    assert (answer.id if isinstance(answer, t.Task) else answer.task_id) == task.id
    assert (answer.status.state, answer.context_id) == (task.status.state, task.context_id)
    if whole or task.status.state in t.TERMINAL:
        ids = [artifact.artifact_id for artifact in heard.artifacts]
        assert set(ids) == {artifact.artifact_id for artifact in task.artifacts}


def test_the_seeds_webhook_brings_its_artifact() -> None:
    heard = notice({
        "kind": "status-update", "taskId": "t1", "contextId": "c1",
        "status": {"state": "completed", "timestamp": STAMP}, "final": True,
        "artifact": {
            "artifactId": "a1", "parts": [{"kind": "text", "text": "## Results"}], "append": False, "lastChunk": True,
        },
    })  # fmt: skip
    assert heard == Notice(t.StatusUpdate("t1", "c1", DONE), (RESULT,), final=True)


def test_one_artifact_and_many() -> None:
    many = [{"artifactId": name, "parts": [{"text": name}]} for name in ("a1", "a2")]
    base = {"taskId": "t1", "status": {"state": "completed"}}
    for one, ids in [
        (many[1], ["a1", "a2"]),
        ({"artifactId": "a3"}, ["a1", "a2", "a3"]),
        (None, ["a1", "a2"]),
    ]:
        heard = notice({**base, "artifact": one, "artifacts": many})
        assert [artifact.artifact_id for artifact in heard.artifacts] == ids


@pytest.mark.parametrize("state", t.TaskState)
def test_states_in_every_spelling(state: t.TaskState) -> None:
    name = state.name.lower()
    spellings = [name, name.replace("_", "-"), name.upper(), state.value, state.value.lower()]
    if state is t.TaskState.CANCELED:
        spellings += ["cancelled", "TASK_STATE_CANCELLED"]
    if state is t.TaskState.UNSPECIFIED:
        spellings.append("unknown")
    for spelled in spellings:
        assert read({"id": "t1", "status": {"state": spelled}}).status.state is state
        assert read({"taskId": "t1", "status": spelled}).status.state is state


PARTS = [
    ({"kind": "text", "text": "x"}, t.Part(text="x")),
    ({"type": "text", "text": "x"}, t.Part(text="x")),
    ({"text": "x"}, t.Part(text="x")),
    ({"kind": "data", "data": {"a": 1}}, t.Part(data={"a": 1})),
    ({"data": {"data": 1}}, t.Part(data={"data": 1})),
    ({"kind": "file", "file": {"bytes": "AAAA", "mimeType": "a/b"}}, t.Part(raw="AAAA", media_type="a/b")),
    ({"file": {"fileWithUri": "http://x", "name": "n"}}, t.Part(url="http://x", filename="n")),
    ({"file": {"file_with_bytes": "AAAA", "mime_type": "a/b"}}, t.Part(raw="AAAA", media_type="a/b")),
    ({"raw": "AAAA", "mediaType": "a/b"}, t.Part(raw="AAAA", media_type="a/b")),
    ({"url": "http://x", "media_type": "a/b"}, t.Part(url="http://x", media_type="a/b")),
    ({"text": "x", "vendor": 1}, t.Part(text="x", extra={"vendor": 1})),
]


@pytest.mark.parametrize(("part", "expected"), PARTS)
def test_parts_in_every_spelling(part: Any, expected: t.Part) -> None:
    artifact = {"artifactId": "a", "parts": [part]}
    message = {"messageId": "m", "role": "agent", "parts": [part]}
    assert read({"id": "t", "status": {"state": "working"}, "artifacts": [artifact]}).artifacts[0].parts == (
        expected,
    )
    assert read({"taskId": "t", "artifact": artifact}).artifact.parts == (expected,)
    assert read(message).parts == (expected,)
    assert read({"taskId": "t", "status": {"state": "working", "message": message}}).status.message.parts == (
        expected,
    )


TASK = {"id": "t1", "contextId": "c1", "status": {"state": "completed", "timestamp": STAMP}}
UPDATE = {"taskId": "t1", "contextId": "c1", "status": {"state": "completed", "timestamp": STAMP}}
GROWN = {
    "taskId": "t1",
    "contextId": "c1",
    "artifact": {"artifactId": "a1", "parts": [{"text": "## Results"}]},
}
SAID = {"messageId": "m1", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}
READ = {
    "task": t.Task("t1", "c1", DONE),
    "status-update": t.StatusUpdate("t1", "c1", DONE),
    "artifact-update": t.ArtifactUpdate("t1", "c1", RESULT),
    "message": t.Message("m1", role=t.Role.AGENT, parts=(t.Part(text="hi"),)),
}
FORMS = [
    ("task", "task", "task", TASK),
    ("status-update", "statusUpdate", "status_update", UPDATE),
    ("artifact-update", "artifactUpdate", "artifact_update", GROWN),
    ("message", "message", "msg", SAID),
]


def snake(value: Any) -> Any:
    if isinstance(value, list):
        return [snake(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {"".join(f"_{c.lower()}" if c.isupper() else c for c in k): snake(v) for k, v in value.items()}


@pytest.mark.parametrize(("kind", "wrapper", "proto_wrapper", "value"), FORMS)
def test_wrapped_bare_and_with_kind(kind: str, wrapper: str, proto_wrapper: str, value: Any) -> None:
    forms = [
        value,
        {"kind": kind, **value},
        {wrapper: value},
        {proto_wrapper: snake(value)},
        {wrapper: {"kind": kind, **value}},
        {"kind": "something-else", **value},
        {"kind": 7, **value} if kind != "message" else value,
        {"kind": None, **value},
        snake(value),
        {**{name: None for name in ("task", "message", "statusUpdate", "artifactUpdate") if name != wrapper}, wrapper: value},
        {wrapper: {**value, "vendor": {"a": [1]}}} if kind != "message" else value,
    ]  # fmt: skip
    for form in forms:
        if form.get("kind") == 7:
            with pytest.raises(InvalidParams) as caught:
                read(form)
            assert caught.value.field == "kind"
        else:
            assert read(form) == READ[kind]


def test_what_agents_leave_out() -> None:
    task = read(
        {"id": "tasks/t1", "status": {"state": "working", "message": "reading"}, "artifacts": [{}, {}]}
    )
    assert task.status.message == t.Message("", role=t.Role.AGENT, parts=(t.Part(text="reading"),))
    assert [artifact.artifact_id for artifact in task.artifacts] == ["artifact-0", "artifact-1"]
    said = read({"role": "assistant", "content": [{"data": {"data": {"x": 1}}}], "x-vendor": 1})
    assert said == t.Message("", parts=(t.Part(data={"x": 1}),), extra={"x-vendor": 1})
    assert read({"messageId": "m"}) == t.Message("m")


def test_shapes_before_0_3() -> None:
    grown = {
        "id": "t1",
        "sessionId": "s1",
        "artifact": {"index": 2, "append": True, "lastChunk": True, "parts": []},
    }
    assert read(grown) == t.ArtifactUpdate("t1", "s1", t.Artifact("artifact-2"), append=True, last_chunk=True)
    ended = {"id": "t1", "sessionId": "s1", "status": {"state": "completed"}, "final": True}
    assert notice(ended) == Notice(
        t.StatusUpdate("t1", "s1", t.TaskStatus(t.TaskState.COMPLETED)), (), final=True
    )


def test_the_outer_flags_count() -> None:
    inner = {"artifactId": "a", "append": True, "lastChunk": False}
    update = read({"taskId": "t", "artifact": inner, "append": False, "lastChunk": True})
    assert (update.append, update.last_chunk) == (False, True)


def test_protojson_is_recognised_where_it_can_be() -> None:
    wrapped = {"parts": [{"data": {"data": {"x": 1}}}], "artifactId": "a"}
    status = {
        "state": "TASK_STATE_COMPLETED",
        "update": {"messageId": "m", "content": [{"data": {"data": {"y": 2}}}]},
    }
    heard = notice({"statusUpdate": {"taskId": "t", "status": status, "final": True, "artifact": wrapped}})
    assert heard.artifacts[0].parts[0].data == {"x": 1}
    assert isinstance(heard.answer, t.StatusUpdate)
    assert heard.answer.status.message is not None
    assert heard.answer.status.message.parts[0].data == {"y": 2}


@pytest.mark.parametrize("member", ["status", "artifact"])
def test_final_inside_a_wrapper_tells_the_proto_of_0_3_from_1_0(member: str) -> None:
    parts = [{"data": {"data": {"y": 2}}}]
    status = {
        "state": "TASK_STATE_WORKING",
        "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": parts},
    }
    value = status if member == "status" else {"artifactId": "a", "parts": parts}

    def data(**more: object) -> object:
        update = read({f"{member}Update": {"taskId": "t", "contextId": "c", member: value, **more}})
        return (update.status.message if member == "status" else update.artifact).parts[0].data

    assert data(final=False) == {"y": 2}
    # Whatever an agent of 1.0 has in a data part is its own.
    assert data() == {"data": {"y": 2}}


@pytest.mark.parametrize(
    ("value", "field", "said"),
    [
        ([], "", "expected object, got array"),
        ("x", "", "expected object, got str"),
        (None, "", "expected object, got null"),
        ({}, "", "exactly one of task"),
        ({"hello": 1}, "", "exactly one of task"),
        ({"task": TASK, "message": SAID}, "", "exactly one of task"),
        ({"task": "t1"}, "", "exactly one of task"),
        ({"id": "t1"}, "", "exactly one of task"),
        ({"task": {"id": "t1"}}, "status", "status is missing"),
        ({"task": {"status": {"state": "working"}}}, "id", "id is missing"),
        ({"status": {"state": "working"}}, "taskId", "taskId is missing"),
        ({"artifact": {}}, "taskId", "taskId is missing"),
        ({"kind": "artifact-update", "taskId": "t"}, "artifact", "artifact is missing"),
        ({"kind": "status-update", "taskId": "t"}, "status", "status is missing"),
        ({"id": "t\n1", "status": "working"}, "id", "printable"),
        ({"id": "t" * 257, "status": "working"}, "id", "printable"),
        ({"id": "t", "status": {}}, "status.state", "status.state is missing"),
        ({"id": "t", "status": {"state": "unheard"}}, "status.state", "'unheard' is no state"),
        ({"id": "t", "status": "TASK_STATE_DREAMING"}, "status", "is no state"),
        ({"id": "t", "status": {"state": 3}}, "status.state", "expected string"),
        ({"id": 7, "status": "working"}, "id", "expected string"),
        ({"id": "t", "status": "working", "artifacts": {}}, "artifacts", "expected array"),
        ({"id": "t", "status": "working", "history": [1]}, "history[0]", "expected object"),
        ({"id": "t", "status": "working", "artifacts": [{}, {"parts": [{"text": "x"}, {}]}]}, "artifacts[1].parts[1]", "exactly one"),
        ({"id": "t", "status": "working", "history": [{"parts": [{}]}]}, "history[0].parts[0]", "exactly one"),
        ({"taskId": "t", "artifact": {"parts": [{"raw": "*"}]}}, "artifact.parts[0].raw", "base64"),
        ({"taskId": "t", "status": {"state": "working", "message": {"content": [{"kind": "data", "text": ""}]}}}, "status.message.content[0].kind", "does not name"),
        ({"role": "agent", "parts": [{}]}, "parts[0]", "exactly one"),
    ],
)  # fmt: skip
def test_refusals_name_the_path(value: Any, field: str, said: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        read(value)
    assert caught.value.field == field
    assert said in caught.value.message


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"hello", b'{"id": "t", "status": {"state": "\xff"}}', b'{"id":' + b"[" * 2000, b'{"a":' * 101 + b"1" + b"}" * 101,
        b'{"task": {"id": "\\ud800", "status": {"state": "working"}}}', b"\xef\xbb\xbf{}",
    ],
)  # fmt: skip
def test_what_is_not_json(body: bytes) -> None:
    with pytest.raises(ParseError):
        read_answer(body)


def test_nothing_but_refusals() -> None:
    """Every member of every form, replaced by something else: an answer or a refusal, never another error."""
    odd = [
        None,
        1,
        -1.5,
        True,
        "",
        "x",
        [],
        [None],
        {},
        {"a": 1},
        [[]],
        [{}],
        "\x00",
        {"parts": 1},
        {"state": "working"},
    ]
    count = 0
    for (kind, wrapper, _, value), replacement in itertools.product(FORMS, odd):
        full = {
            "kind": kind,
            "metadata": {},
            "final": True,
            "artifacts": [GROWN["artifact"]],
            "history": [SAID],
            **value,
        }
        for name in full:
            for form in ({**full, name: replacement}, {wrapper: {**full, name: replacement}}):
                try:
                    assert isinstance(read(form), t.Task | t.Message | t.StatusUpdate | t.ArtifactUpdate)
                except Refused as refused:
                    assert isinstance(refused, InvalidParams | ParseError)
                count += 1
    assert count > 900


@given(st.dictionaries(st.sampled_from([
    "kind", "id", "taskId", "status", "artifact", "artifacts", "message", "task", "parts", "content", "role", "final",
]), samples.values | samples.objects, max_size=6))  # fmt: skip
def test_any_object_is_read_or_refused(value: Any) -> None:
    try:
        assert isinstance(read(value), t.Task | t.Message | t.StatusUpdate | t.ArtifactUpdate)
    except Refused as refused:
        assert isinstance(refused, InvalidParams | ParseError)


# What a peer might add to, leave out of or misspell in an object.
members = st.sampled_from(
    "task message statusUpdate artifactUpdate taskId id contextId status artifact artifacts history append "
    "lastChunk final kind metadata role parts content messageId extra task_id sessionId x-vendor msg".split()
)
oddities = st.dictionaries(
    members,
    samples.values
    | st.sampled_from(["task", "message", "status-update", "artifact-update", "working", "TASK_STATE_FAILED"])
    | st.just({"state": "working"})
    | st.just({"artifactId": "a", "parts": [{"text": "x"}]})
    | st.just({"messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": "x"}]}),
    max_size=4,
)


def outcome(read: Any, body: bytes, *, proto: bool) -> Any:
    try:
        return read(body, proto=proto)
    except Refused as refused:
        return type(refused), refused.message, refused.field


@given(
    st.tuples(written, st.sampled_from([v1, v03, v03proto])).map(
        lambda drawn: drawn[0][1](drawn[1], drawn[0][0])
    ),
    oddities,
    st.sets(members, max_size=2),
    st.booleans(),
)
def test_the_quick_reader_reads_what_the_lenient_one_does(
    body: bytes, odd: dict[str, Any], without: set[str], proto: bool
) -> None:
    value = json.loads(body)
    inner = next(iter(value.values())) if len(value) == 1 else value
    changed = {name: member for name, member in {**inner, **odd}.items() if name not in without}
    wrapped = {next(iter(value)): changed} if inner is not value else changed
    for given_value in (value, changed, wrapped, {**value, **odd}, odd):
        raw = json.dumps(given_value).encode()
        lenient = outcome(answers._read_leniently, raw, proto=proto)
        assert outcome(read_notice, raw, proto=proto) == lenient


def test_most_answers_are_read_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(body: bytes, *, proto: bool) -> Notice:
        raise AssertionError(body)

    monkeypatch.setattr(answers, "_read_leniently", never)
    update = t.ArtifactUpdate("t", "c", RESULT, append=True)
    for writer in (v1, v03, v03proto):
        assert read_answer(writer.artifact_frame(update), proto=writer is v03proto) == update
        assert isinstance(
            read_answer(writer.status_frame(t.StatusUpdate("t", "c", DONE), final=True)), t.StatusUpdate
        )
        assert isinstance(read_answer(writer.task_frame(writer.task(t.Task("t", "c", DONE)))), t.Task)
