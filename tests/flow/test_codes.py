"""Whatever is said to workflows over REST and MCP has an answer with its code, and none is a fault of the server."""

from __future__ import annotations

import asyncio
import copy
from typing import Any, cast

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.flow.surfaces import ASK, DELEGATE, PARKING, SIGNAL, TOOL, UNSIGNED, Door, control, workflow
from tests.sample import at_most
from trunkline.flow.local import LocalFlows
from trunkline.flow.mcp_server import FlowTools
from trunkline.flow.rest import FlowApi
from trunkline.net.http import HttpRequest
from trunkline.net.in_process import InProcessHttpClient

EXAMPLES = at_most(20_000, 150)
WHOLE = workflow(
    TOOL,
    {"id": "set", "type": "set_state", "config": {"assignments": {"n": {"jq": ".n + 1"}}}},
    {
        "id": "way",
        "type": "switch",
        "config": {"cases": [{"when": ".n > 1", "target": "fork"}], "default": "ask"},
    },
    {
        "id": "fork",
        "type": "parallel",
        "config": {"join": "n_of_m", "n": 1, "branches": [{"name": "a", "entry": "pause"}]},
    },
    {"id": "pause", "type": "wait", "config": {"kind": "duration", "duration": "0ms"}},
    ASK,
    {**DELEGATE, "retry": {"max_attempts": 2, "initial_interval": "1ms"}, "timeout": "1s"},
    SIGNAL,
    {
        "id": "nest",
        "type": "subworkflow",
        "config": {"workflow_ref": "urn:nobody", "input_mapping": {"a": "${ .n }"}},
    },
    edges=[
        {"source": a, "target": b}
        for a, b in [
            ("__start__", "start"), ("start", "work"), ("work", "set"), ("set", "way"), ("fork", "ask"),
            ("pause", "ask"), ("ask", "implement"), ("implement", "hold"), ("hold", "nest"), ("nest", "end"),
        ]
    ],
    checkpointing={"strategy": "every_n_nodes", "n": 2},
)  # fmt: skip
RUN = {"definition": WHOLE, "input": {"n": 1, "task": "t"}}
OUTCOME = {"ok": True, "result": {"n": 2}, "delegate_correlation_id": "w:delegate:implement"}
SPAN = {name: "x" for name in ("parallel_node_id", "join_target_id", "branch_name", "branch_entry_node_id")}
# What is right for each operation, whatever becomes of it.
RIGHT: dict[str, dict[str, Any]] = {
    "start": {**RUN, "execution_id": "e", "activity_execution_mode": "host_mediated",
              "allow_existing_execution_id": True},
    "status": {"execution_id": "w"},
    "resume": {**RUN, "execution_id": "w", "resume_payload": {"ok": True}},
    "submit_activity": {**RUN, "execution_id": "w", "node_id": "work", "outcome": OUTCOME,
                        "parallel_span": SPAN},
    "signal": {**RUN, "execution_id": "w", "signal_name": "approved", "payload": {}},
    "cancel": {"execution_id": "c", "reason": "r"},
    "list": {"phase": "failed", "limit": 3, "cursor": "2026-01-01T00:00:00.000Z|e",
             "updated_after": "2026-01-01T00:00:00Z"},
}  # fmt: skip
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**25), 10**25),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(
        ["", "start", "end", "ask", "__start__", "\ud800", "\x00", "x" * 5000, "PT1S", "1s", "-1s", "9" * 30 + "h",
         ".", ".a.b", "${ . }", "${", "empty", "1,2", "error", "input", "env", "halt", "{}", "[.[]?]", "(", "$__loc__",
         "sdk", "all", "any", "signal", "until", "9999-99-99", "2026-01-01T00:00:00Z", "append", "custom", "merge"]
    ),
    st.sampled_from([[], {}, [[]], [{}], {"jq": "."}, {"jq": ""}, {"literal": None}, {"type": "nothing"},
                     {"$ref": "#/nowhere"}, {"$ref": "http://127.0.0.1:9/x"}, {"pattern": "("}, [None], [1, 2]]),
)  # fmt: skip

MEMBERS = st.sampled_from(["x", "", "signature", "reducer", "retry", "timeout"])


@st.composite
def spoilt(draw: st.DrawFn, right: Any) -> Any:
    """The same with some members replaced, left out, or put where they do not belong."""
    found = copy.deepcopy(right)
    for _ in range(draw(st.integers(0, 3))):
        place: Any = found
        while True:
            inner: Any = list(cast("dict[str, Any]", place)) if isinstance(place, dict) else range(len(place))
            if not inner:
                break
            key = draw(st.sampled_from(inner))
            value = cast("Any", place[key])
            if isinstance(value, dict | list) and value and draw(st.integers(0, 3)):
                place = cast("Any", value)
                continue
            match draw(st.sampled_from(["replace", "drop", "double", "add"])):
                case "replace":
                    place[key] = copy.deepcopy(draw(ODD))
                case "drop":
                    del place[key]
                case "double" if isinstance(place, list):
                    cast("list[Any]", place).append(copy.deepcopy(cast("Any", value)))
                case _ if isinstance(place, dict):
                    place[draw(MEMBERS)] = copy.deepcopy(draw(ODD))
                case _:
                    pass
            break
    return found


CALLS = st.sampled_from(sorted(RIGHT)).flatmap(
    lambda operation: st.tuples(st.just(operation), spoilt(RIGHT[operation]))
)


class Both:
    """One engine, and its REST and its tools."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._flows = LocalFlows(limits=PARKING)
        self._client = InProcessHttpClient(Door(FlowApi(lambda: self._flows.port, UNSIGNED)))
        self._tools = FlowTools(control(self._flows, "tools"))

    def __enter__(self) -> Both:
        self._runner.run(self._begin())
        return self

    def __exit__(self, *error: object) -> None:
        self._runner.run(self._flows.__aexit__())
        self._runner.close()

    async def _begin(self) -> None:
        await self._flows.__aenter__()
        # A caller of these tests waits for no run that takes long.
        self._flows.port._wait_s = 0.2  # pyright: ignore[reportPrivateUsage]
        for run in ("w", "c"):
            given = {**RIGHT["start"], "execution_id": run}
            assert (await self.rest("start", given))[0] == 200
            assert not (await self._tools.call("workflow_start", given)).is_error

    async def rest(self, operation: str, given: Any) -> tuple[int, Any]:
        """Call an operation; an id with a line break has no route, and is not found."""
        members = cast("dict[str, Any]", given)
        run = str(members.get("execution_id", "w")).encode(errors="replace").decode() or "w"
        method, path, body = "POST", f"/v1/executions/{_quoted(run)}:{operation}", given
        match operation:
            case "start":
                path = "/v1/executions"
            case "status":
                method, path, body = "GET", f"/v1/executions/{_quoted(run)}", None
            case "list":
                pairs = [f"{_quoted(str(name))}={_quoted(str(value))}" for name, value in members.items()]
                method, path, body = "GET", f"/v1/executions?{'&'.join(pairs)}", None
            case _:
                pass
        sent = None if body is None else _json(body)
        response = await self._client.open(HttpRequest(method, f"http://localhost{path}", (), sent))
        told = await response.read(16 << 20)
        await response.close()
        return response.status, msgspec.json.decode(told)

    def check(self, operation: str, given: Any) -> None:
        """Call by both; an answer of either is a result or a refusal."""
        status, told = self._runner.run(self.rest(operation, given))
        assert status in (200, 400, 404, 409, 422), (status, told)
        if status != 200:
            assert told["error"]["code"] not in ("", "INTERNAL_ERROR") and told["error"]["message"], told
        decoded = msgspec.json.decode(_json(given))
        answer = self._runner.run(self._tools.call(f"workflow_{operation}", decoded))
        structure = cast("dict[str, Any]", answer.structured_content)
        if answer.is_error:
            assert structure["error"]["code"] != "INTERNAL_ERROR" and structure["error"]["message"], structure

    def lives(self) -> None:
        """Whoever says what is right is served as before."""
        given = {"definition": workflow(), "input": {"a": 1}}
        assert self._runner.run(self.rest("start", given))[1]["status"] == "completed"


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02X}" for byte in text.encode(errors="replace"))


def _json(value: Any) -> bytes:
    # Half a character cannot be sent.
    return msgspec.json.encode(_sendable(value))


def _sendable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_sendable(name): _sendable(one) for name, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_sendable(one) for one in cast("list[Any]", value)]
    return value


def test_whatever_is_said_has_an_answer_with_its_code() -> None:
    with Both() as both:

        @settings(max_examples=EXAMPLES, deadline=None)
        @given(CALLS)
        def answered(call: tuple[str, Any]) -> None:
            both.check(*call)

        answered()
        both.lives()
