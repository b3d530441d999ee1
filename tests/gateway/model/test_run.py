"""A model agent from its caller's side: what it answers, what it may use, and what its callers see of that."""

from __future__ import annotations

import base64
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.model.hub import V03, V1, answer, named, opened, reason, run
from tests.gateway.model.openai_server import ModelServer, Reply, results, told

COST = "https://proto-labs.ai/a2a/ext/cost-v1"


def entry(**members: Any) -> str:
    lines = "".join(f"\n    {name}: {value}" for name, value in members.items())
    return f"agents:\n  - name: helper\n    model: openai:small{lines}\n"


def model(folder: Path, agents: str, server: ModelServer) -> Any:
    return opened(folder, agents, OPENAI_BASE_URL=server.url, OPENAI_API_KEY="sk-test")


def asking(*calls: tuple[str, Any], then: str = "Done.") -> Any:
    """A model that calls tools once, and then answers."""
    return lambda body: Reply([then]) if results(body) else Reply(calls=calls)


def test_a_model_is_told_who_it_is_and_answers_on_one_artifact(tmp_path: Path) -> None:
    agents = entry(
        role="scribe", goal="write it down", personality="dry", rules='["no jokes", "be kind"]', brevity="ultra",
        maxTokens=77, temperature=0.5,
    )  # fmt: skip

    async def scene() -> None:
        with ModelServer(lambda _: Reply(["All ", "is ", "well."])) as server:
            async with model(tmp_path, agents, server) as ask:
                await ask.ready("helper")
                task = await ask.say("helper", "how are you?")
                assert answer(task) == "All is well."
                (asked,) = server.asked
                assert asked["model"] == "small" and "tools" not in asked
                assert (asked["max_completion_tokens"], asked["temperature"]) == (77, 0.5)
                assert [one["content"] for one in asked["messages"] if one["role"] == "user"] == [
                    "how are you?"
                ]
                for word in (
                    "helper, scribe",
                    "write it down",
                    "dry",
                    "- no jokes",
                    "- be kind",
                    "as few words",
                ):
                    assert word in told(asked)
                assert server.headers[0]["authorization"] == "Bearer sk-test"
                report = named(task, "response")[0]["metadata"][COST]
                assert report["usage"] == {"input_tokens": 100, "output_tokens": 10}
                assert report["costUsd"] == pytest.approx((100 * 3 + 10 * 15) / 1e6)

    run(scene())


@pytest.mark.parametrize("version", ["1.0", "0.3"])
def test_a_stream_has_the_text_in_pieces_the_tools_and_the_last_chunk_before_the_end(
    tmp_path: Path, version: str
) -> None:
    content = base64.b64encode(b"\x00\xff\n").decode()
    calls = [("write", {"path": "out/a.bin", "base64": content}), ("list", {})]
    v1 = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}
    v03 = {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "go"}]}
    method, sent, headers = (
        ("SendStreamingMessage", v1, V1) if version == "1.0" else ("message/stream", v03, V03)
    )

    async def scene() -> None:
        with ModelServer(asking(*calls, then="It is written down, as you asked.")) as server:
            async with model(tmp_path, entry(capabilities='["/write", "/list"]'), server) as ask:
                await ask.ready("helper")
                body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": sent}}
                frames = [one["result"] for one in await ask.stream("/v1/a2a/agents/helper", body, headers)]
        updates = [one.get("artifactUpdate") or one for one in frames]
        updates = [one for one in updates if "artifact" in one]
        files = [one["artifact"] for one in updates if one["artifact"].get("name") == "out/a.bin"]
        part = files[0]["parts"][0]
        assert (part["raw"] if version == "1.0" else part["file"]["bytes"]) == content
        data = [
            one["artifact"]["parts"][0]["data"]
            for one in updates
            if one["artifact"].get("name") == "tool_call"
        ]
        assert data == [{"tool": "write", "ok": True}, {"tool": "list", "ok": True}]
        words = [one for one in updates if one["artifact"]["artifactId"] == "answer"]
        assert words[0]["artifact"]["name"] == "response" and not words[0].get("append")
        assert words[-1]["lastChunk"] and frames.index(frames[-2]) == len(frames) - 2
        assert words[-1] in (frames[-2], frames[-2].get("artifactUpdate"))
        assert "completed" in str(frames[-1]).lower()

    run(scene())


def test_a_caller_that_names_other_extensions_is_counted_all_the_same(tmp_path: Path) -> None:
    async def scene() -> None:
        with ModelServer(lambda body: Reply(["Fine."])) as server:
            async with model(tmp_path, entry(), server) as ask:
                await ask.ready("helper")
                body = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}}
                headers = (*V1, ("a2a-extensions", "https://elsewhere.example/ext"))
                _, sent = await ask("POST /v1/a2a/agents/helper/message:send", body, headers)
                (said,) = named(sent["task"], "response")
                assert said["parts"] == [{"text": "Fine."}]
                summed = await ask.until("GET /api/cost-summaries", lambda one: bool(one["items"]))
                assert summed["items"][0]["totalCostUsd"] > 0

    run(scene())


def test_what_an_entry_does_not_list_is_refused_in_the_result_and_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scene() -> None:
        with ModelServer(asking(("write", {"path": "a", "text": "b"}), ("exec", {"cmd": "ls"}))) as server:
            async with model(tmp_path, entry(capabilities='["/read"]'), server) as ask:
                await ask.ready("helper")
                with caplog.at_level(logging.WARNING, "trunkline.gateway"):
                    task = await ask.say("helper", "go")
                assert results(server.asked[-1]) == [
                    "ERR: the capability /write is not granted to this agent",
                    "ERR: the capability /exec is not granted to this agent",
                ]
                assert [one["function"]["name"] for one in server.asked[0]["tools"]] == ["read"]
                assert [one["parts"][0]["data"]["ok"] for one in named(task, "tool_call")] == [False, False]
                refused = [one.getMessage() for one in caplog.records if "capability.refused" in one.msg]
                assert ["'/write'" in refused[0], "'/exec'" in refused[1]] == [True, True]
        assert not (tmp_path / "files").exists()

    run(scene())


def test_artifacts_of_tools_can_be_switched_off_and_limits_hold(tmp_path: Path) -> None:
    def busy(body: dict[str, Any]) -> Reply:
        return Reply(calls=[("list", {}), ("list", {})])

    async def scene() -> None:
        limits = "{modelCalls: 3, toolCalls: 3}"
        agents = entry(capabilities='["/list"]', artifacts="false", limits=limits)
        with ModelServer(busy) as server:
            async with model(tmp_path, agents, server) as ask:
                await ask.ready("helper")
                task = await ask.say("helper", "go")
                assert task["status"]["state"] == "TASK_STATE_FAILED"
                assert reason(task).startswith("limit_reached: 3 calls")
                assert len(server.asked) == 3
                assert results(server.asked[-1])[-1] == "ERR: no more than 3 tool calls in one task"
                assert named(task, "tool_call") == []

    run(scene())


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (401, {}, "auth_failed"),
        (429, {}, "rate_limited"),
        (400, {"message": "too long", "code": "context_length_exceeded"}, "context_length"),
        (404, {}, "not_found"),
        (503, {}, "unavailable"),
        (413, {}, "request_too_large"),
        (400, {}, "invalid_request"),
    ],
)
def test_failures_of_a_provider_have_codes_and_none_of_its_words(
    tmp_path: Path, status: int, error: dict[str, Any], code: str
) -> None:
    async def scene() -> None:
        said = {"message": "secret-of-the-provider", **error}
        with ModelServer(lambda _: Reply(status=status, error=said)) as server:
            async with model(tmp_path, entry(), server) as ask:
                await ask.ready("helper")
                task = await ask.say("helper", "go")
                assert task["status"]["state"] == "TASK_STATE_FAILED"
                assert reason(task).startswith(f"{code}: "), reason(task)
                assert "secret-of" not in str(task)

    run(scene())


def test_a_model_that_does_not_answer_in_time_fails_by_name(tmp_path: Path) -> None:
    async def scene() -> None:
        hold = threading.Event()
        with ModelServer(lambda _: Reply(["a", "b"], hold=hold)) as server:
            async with model(tmp_path, entry(limits="{seconds: 0.2}"), server) as ask:
                await ask.ready("helper")
                task = await ask.say("helper", "go")
                assert reason(task).startswith("timeout: ")
            hold.set()

    run(scene())


def test_a_conversation_goes_on_by_its_context_and_is_bounded(tmp_path: Path) -> None:
    def count(body: dict[str, Any]) -> Reply:
        return Reply([f"answer {len([one for one in body['messages'] if one['role'] == 'user'])}"])

    async def scene() -> None:
        with ModelServer(count) as server:
            async with model(tmp_path, entry(memory="{messages: 2}"), server) as ask:
                await ask.ready("helper")
                first = await ask.say("helper", "one")
                await ask.say("helper", "two", contextId=first["contextId"])
                assert [one["content"] for one in server.asked[-1]["messages"][1:]] == [
                    "one",
                    "answer 1",
                    "two",
                ]
                await ask.say("helper", "three", contextId=first["contextId"])
                assert [one["content"] for one in server.asked[-1]["messages"][1:]] == [
                    "two",
                    "answer 2",
                    "three",
                ]
                await ask.say("helper", "else")
                assert [one["content"] for one in server.asked[-1]["messages"][1:]] == ["else"]

    run(scene())


TWO = """
agents:
  - {name: helper, model: "openai:small", capabilities: ["/agent"], limits: {delegations: 1}}
  - {name: writer, model: "openai:small", role: poet, tenants: [default]}
  - {name: away, model: "openai:small", enabled: false}
"""


def test_other_agents_are_asked_as_child_tasks_within_bounds(tmp_path: Path) -> None:
    calls = [
        ("agent", {"name": "nobody", "message": "x"}),
        ("agent", {"name": "helper", "message": "x"}),
        ("agent", {"name": "writer", "message": "a verse"}),
        ("agent", {"name": "writer", "message": "more"}),
    ]

    def both(body: dict[str, Any]) -> Reply:
        if "poet" in told(body).partition("\n")[0]:
            return Reply(["roses ", "are red"])
        return asking(*calls)(body)

    async def scene() -> None:
        with ModelServer(both) as server:
            async with model(tmp_path, TWO, server) as ask:
                for name in ("helper", "writer"):
                    await ask.ready(name)
                task = await ask.say("helper", "go")
                told_first = told(next(one for one in server.asked if "tools" in one))
                assert "- writer: poet (skills: chat)" in told_first and "- helper" not in told_first
                assert "- away" not in told_first
                found = results(server.asked[-1])
                assert found == [
                    "ERR: there is no agent 'nobody'; there are writer",
                    "ERR: there is no agent 'helper'; there are writer",
                    "roses are red",
                    "ERR: no more than 1 calls of agents in one task",
                ]
                (sub,) = named(task, "sub_agent_response")
                assert sub["parts"][0]["data"] == {"agent": "writer", "depth": 1, "content": "roses are red"}
                _, children = await ask("GET /api/tasks?agent=writer")
                assert [one["state"] for one in children["items"]] == ["completed"]

    run(scene())


def test_an_advisor_is_asked_with_nothing_but_the_question(tmp_path: Path) -> None:
    def both(body: dict[str, Any]) -> Reply:
        if body["model"] == "wise":
            return Reply(["Wait."])
        return asking(("advise", {"question": "now?"}))(body)

    async def scene() -> None:
        agents = entry(capabilities='["/advise"]', advisor='{model: "openai:wise", prompt: Be short.}')
        with ModelServer(both) as server:
            async with model(tmp_path, agents, server) as ask:
                await ask.ready("helper")
                task = await ask.say("helper", "a secret")
                assert results(server.asked[-1]) == ["Wait."]
                advised = next(one for one in server.asked if one["model"] == "wise")
                assert told(advised) == "Be short." and "a secret" not in str(advised)
                assert named(task, "response")[0]["metadata"][COST]["usage"]["input_tokens"] == 250

    run(scene())


def test_an_agent_that_is_removed_ends_what_it_has_begun_and_takes_nothing_new(tmp_path: Path) -> None:
    async def scene() -> None:
        hold = threading.Event()
        with ModelServer(lambda _: Reply(["one ", "two"], hold=hold)) as server:
            async with model(tmp_path, "agents: []", server) as ask:
                status, _ = await ask("POST /api/agents", {"name": "helper", "model": "openai:small"})
                assert status == 200
                assert (await ask.ready("helper"))["state"] == "ready"
                _, card = await ask("GET /v1/a2a/agents/helper/agent-card.json")
                message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "go"}]}
                sent = {"message": message, "configuration": {"returnImmediately": True}}
                _, told = await ask("POST /v1/a2a/agents/helper/message:send", sent)
                await ask.until("GET /api/tasks", lambda _: bool(server.asked))
                changed = {"name": "helper", "model": "openai:small", "role": "other"}
                assert (await ask("PUT /api/agents/helper", changed))[0] == 200
                await ask.until("GET /api/agents/helper", lambda one: one["description"] == "other")
                _, other = await ask("GET /v1/a2a/agents/helper/agent-card.json")
                assert other["version"] > card["version"]
                assert (await ask("DELETE /api/agents/helper"))[0] == 200
                hold.set()
                task = await ask.until(
                    f"GET /api/tasks/{told['task']['id']}", lambda one: one["state"] == "completed"
                )
                assert task["text"] == "one two"
                status, _ = await ask("POST /v1/a2a/agents/helper/message:send", sent)
                assert status == 404

    run(scene())


def test_a_cancelled_task_stops_listening_to_its_model(tmp_path: Path) -> None:
    async def scene() -> None:
        hold = threading.Event()
        with ModelServer(lambda _: Reply(["first ", "then"], hold=hold)) as server:
            async with model(tmp_path, entry(), server) as ask:
                await ask.ready("helper")
                message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "go"}]}
                sent = {"message": message, "configuration": {"returnImmediately": True}}
                _, begun = await ask("POST /v1/a2a/agents/helper/message:send", sent)
                place = f"/v1/a2a/agents/helper/tasks/{begun['task']['id']}"
                await ask.until(f"GET {place}", lambda one: "first" in str(one.get("artifacts")))
                await ask(f"POST {place}:cancel", {})
                task = await ask.until(
                    f"GET {place}", lambda one: one["status"]["state"] == "TASK_STATE_CANCELED"
                )
                assert answer(task) == "first "
            hold.set()

    run(scene())


ASKER = """
from trunkline import Agent, Turn

agent = Agent("Asker", on_crash="resume")

@agent.skill
async def answer(turn: Turn) -> str:
    return "you said " + await turn.ask("which colour?")
"""


def test_what_a_delegated_agent_asks_is_asked_of_the_caller(tmp_path: Path) -> None:
    (tmp_path / "model_asker.py").write_text(ASKER)
    agents = entry(capabilities='["/agent"]') + '  - {name: asker, import: "model_asker:agent"}\n'

    async def scene() -> None:
        with ModelServer(asking(("agent", {"name": "asker", "message": "paint"}))) as server:
            async with model(tmp_path, agents, server) as ask:
                await ask.ready("helper")
                message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "go"}]}
                _, begun = await ask("POST /v1/a2a/agents/helper/message:send", {"message": message})
                task = begun["task"]
                assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
                assert "which colour?" in reason(task)
                done = await ask.say("helper", "blue", taskId=task["id"], contextId=task["contextId"])
                assert results(server.asked[-1]) == ["you said blue"]
                assert answer(done) == "Done." and len(server.asked) == 2

    run(scene())


@pytest.mark.parametrize(
    ("verdicts", "advisor", "said", "why"),
    [
        (["CONTINUE fine"], "", "draft 1", ""),
        (["REDIRECT: add tea", "Continue."], "", "draft 2", ""),
        (["HALT\nno secrets"], "", "", "advisor_halted: no secrets"),
        (["REDIRECT more"] * 2, ", maxRedirects: 1", "", "advisor_halted: more"),
        (["Well, hm."], "", "", "advisor_halted: the advisor gave no verdict"),
        (["Well, hm."], ", malformedHalts: false", "draft 1", ""),
        ([], "", "", "rate_limited: "),
    ],
)
def test_an_advisor_that_is_a_gate_decides_what_goes_out(
    tmp_path: Path, verdicts: list[str], advisor: str, said: str, why: str
) -> None:
    left = [*verdicts]

    def both(body: dict[str, Any]) -> Reply:
        if body["model"] == "wise":
            return Reply([left.pop(0)]) if left else Reply(status=429)
        return Reply([f"draft {1 + sum('add tea' in str(one) for one in body['messages'])}"])

    async def scene() -> None:
        agents = entry(advisor=f'{{model: "openai:wise", mode: gate{advisor}}}')
        with ModelServer(both) as server:
            async with model(tmp_path, agents, server) as ask:
                await ask.ready("helper")
                task = await ask.say("helper", "go")
                assert answer(task) == said
                assert ("message" in task["status"]) == bool(why)
                assert not why or reason(task).startswith(why)
                judged = next(one for one in server.asked if one["model"] == "wise")
                assert "The answer:\ndraft 1" in str(judged["messages"][-1]["content"])

    run(scene())


def test_an_advisor_that_is_off_is_not_asked(tmp_path: Path) -> None:
    async def scene() -> None:
        agents = entry(capabilities='["/advise"]', advisor='{model: "openai:wise", mode: "off"}')
        with ModelServer(asking(("advise", {"question": "now?"}))) as server:
            async with model(tmp_path, agents, server) as ask:
                await ask.ready("helper")
                await ask.say("helper", "go")
                assert results(server.asked[-1]) == [
                    "ERR: the capability /advise is not granted to this agent"
                ]

    run(scene())


ENDLESS = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"small","choices":[{"index":0,"delta":%b,"finish_reason":null}]}\n\n'
HOSTILE = {
    "no-events": ([b"\x00\xff\xfe garbage\n\n" * 10], "provider_error: "),
    "no-json": ([b"data: {\n\n"], "provider_error: "),
    "cut-off": ([ENDLESS % b'{"content":"a"}'], ""),
    "half-a-character": ([ENDLESS % b'{"content":"a\\ud800b"}'], "provider_error: "),
    "half-a-character-called": (
        [
            ENDLESS % b'{"tool_calls":[{"index":0,"id":"x","type":"function","function":'
            b'{"name":"li\\ud800st","arguments":"{\\"path\\": \\"\\\\ud800\\ud800\\"}"}}]}'
        ],
        "provider_error: ",
    ),
    "endless-words": ([ENDLESS % (b'{"content":"%b"}' % (b"x" * 200_000))] * 30, "limit_reached: "),
    "giant-arguments": (
        [
            ENDLESS
            % (
                b'{"tool_calls":[{"index":0,"id":"x","type":"function","function":'
                b'{"name":"list","arguments":"%b"}}]}' % (b"x" * 200_000)
            )
        ]
        * 30,
        "limit_reached: ",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_a_server_of_models_sends_the_task_ends_and_others_are_served(
    tmp_path: Path, name: str
) -> None:
    raw, why = HOSTILE[name]

    async def scene() -> None:
        with ModelServer(lambda body: Reply(raw=raw) if "go" in str(body) else Reply(["Fine."])) as server:
            async with model(tmp_path, entry(capabilities='["/list"]'), server) as ask:
                await ask.ready("helper")
                task = await ask.say("helper", "go")
                assert not why or reason(task).startswith(why), task["status"]
                assert answer(await ask.say("helper", "still there?")) == "Fine."

    run(scene())


def test_calls_beyond_the_limit_are_no_events_and_thousands_end_the_task(tmp_path: Path) -> None:
    def many(body: dict[str, Any]) -> Reply:
        if "all" in str(body["messages"][1]["content"]):
            return Reply(calls=[("exec", {})] * 1001)
        return (
            Reply(["Done."]) if results(body) else Reply(calls=[("none", "not json"), *[("list", {})] * 99])
        )

    async def scene() -> None:
        agents = entry(capabilities='["/list"]', limits="{toolCalls: 5}")
        with ModelServer(many) as server:
            async with model(tmp_path, agents, server) as ask:
                await ask.ready("helper")
                task = await ask.say("helper", "some")
                assert len(named(task, "tool_call")) == 5 and len(results(server.asked[-1])) == 100
                assert reason(await ask.say("helper", "all")).startswith("limit_reached: 1001 calls")

    run(scene())
