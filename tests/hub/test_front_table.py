"""What callers of an agent behind a hub can do, line by line of docs/evidence/gateway.md, over one hub in a process."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from tests.harness import V1, Frame, Frames, message, params, plain_state, text_of
from tests.hub.remote_agents import ASKING, COMPLETED, RemoteAgent, RemoteAgents, until
from tests.hub.test_front_durable import Durable
from tests.hub.yesterday import fronting
from trunkline.mock.serve import BackgroundServer

AUTH = "TASK_STATE_AUTH_REQUIRED"


@pytest.fixture(scope="module")
def durable(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Durable]:
    remote = RemoteAgents(RemoteAgent("poller"), RemoteAgent("streamer", streaming=True))
    with BackgroundServer(remote) as url:
        urls = {name: f"{url}/{name}" for name in remote.agents}
        settings = (
            "poll_interval: 0.2, keep_alive: 0.2, drain_limit: 1, cors_origins: ['https://app.example']"
        )
        with fronting(
            tmp_path_factory.mktemp("table"), urls, "--metrics", "--dev", settings=settings
        ) as front:
            yield Durable(front, remote)


def opened(durable: Durable, stack: ExitStack, agent: str, method: str, body: Any, **headers: str) -> Frames:
    """An open stream at the address of an agent."""
    asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": body}
    http, url = durable.front.agent.http, durable.front.site(agent)
    return Frames(stack.enter_context(http.stream("POST", url, json=asked, headers={**V1, **headers})))


def post(durable: Durable, content: bytes, **headers: str) -> Any:
    kind = {"Content-Type": "application/json", **headers}
    return durable.front.agent.http.post(durable.front.site("poller"), content=content, headers=kind)


def code_of(answer: Any) -> int:
    return answer["error"]["code"]


def kinds(frames: list[Frame]) -> list[str]:
    return [next(iter(one.result)) for one in frames]


def test_gw_01_gw_02_gw_03_the_cards_of_the_hub_and_of_each_agent_validate_and_are_cached(
    durable: Durable,
) -> None:
    http, base = durable.front.agent.http, durable.front.hub.base
    urls: set[str] = set()
    for place in (base, durable.front.site("poller"), durable.front.site("streamer")):
        found = http.get(f"{place}/.well-known/agent-card.json", headers=V1)
        card = found.json()
        for member in ("name", "description", "version", "capabilities", "skills", "supportedInterfaces"):
            assert card[member], (place, member)
        assert card["defaultInputModes"] and card["defaultOutputModes"]
        assert all(one["description"] and one["tags"] for one in card["skills"])
        assert all(one["url"].startswith(place) for one in card["supportedInterfaces"])
        urls |= {card["supportedInterfaces"][0]["url"]}
        assert found.headers["cache-control"]
        again = http.get(
            f"{place}/.well-known/agent-card.json",
            headers={**V1, "If-None-Match": found.headers["etag"]},
        )
        assert (again.status_code, again.content) == (304, b"")
    assert len(urls) == 3


def test_gw_08_a_send_waits_for_the_end_of_work_elsewhere(durable: Durable) -> None:
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(
            durable.call, "poller", "SendMessage", {"message": message("waited for", contextId="c8")}
        )
        work = durable.remote.agents["poller"].find("waited for")
        durable.say(work, "done", state=COMPLETED)
        task = sent.result(60)["result"]["task"]
    assert (plain_state(task), text_of(task)) == ("completed", "done")


def test_gw_09_who_does_not_wait_has_a_receipt_and_polls(durable: Durable) -> None:
    task = durable.call("poller", "SendMessage", params("not waited for", wait=False))["result"]["task"]
    assert plain_state(task) in ("submitted", "working")
    durable.say(durable.remote.agents["poller"].find("not waited for"), "done", state=COMPLETED)
    assert text_of(durable.ended("poller", task["id"])) == "done"


def test_gw_11_gw_53_gw_72_a_stream_begins_with_the_task_shows_life_and_ends_with_it(
    durable: Durable,
) -> None:
    with ExitStack() as stack:
        frames = opened(durable, stack, "streamer", "SendStreamingMessage", params("streamed"))
        assert frames.response.headers["x-accel-buffering"] == "no"
        assert "content-encoding" not in frames.response.headers
        got = [next(iter(frames))]
        task_id = got[0].result["task"]["id"]
        work = durable.remote.agents["streamer"].find("streamed")
        # While the agent is quiet the hub says that it lives.
        quiet = opened(durable, stack, "streamer", "SubscribeToTask", {"id": task_id})
        assert any(line.startswith(":") for line in quiet.response.iter_lines())
        durable.say(work, "one ")
        durable.say(work, "two", state=COMPLETED)
        got += frames.all()
    assert kinds(got)[0] == "task" and plain_state(got[-1].result["statusUpdate"]) == "completed"
    pieces = [one.result["artifactUpdate"]["artifact"] for one in got if "artifactUpdate" in one.result]
    told = durable.ended("streamer", task_id)
    assert text_of({"artifacts": pieces}) == text_of(told) == "one two"


def test_gw_16_the_history_is_cut_as_asked_and_artifacts_come_along(durable: Durable) -> None:
    task_id, work = durable.begun("poller", "remembered")
    durable.remote.say(work, state=ASKING, word="Which?")
    until(lambda: durable.call("poller", "GetTask", {"id": task_id})["result"]["status"]["state"] == ASKING)
    durable.call("poller", "SendMessage", params("this", wait=False, taskId=task_id))
    until(lambda: work.said[-1] == "this")
    durable.say(work, "done", state=COMPLETED)
    whole = durable.ended("poller", task_id)
    assert len(whole["history"]) == 3

    def cut(length: int) -> Any:
        return durable.call("poller", "GetTask", {"id": task_id, "historyLength": length})["result"]

    assert not cut(0).get("history") and text_of(cut(0)) == "done"
    assert cut(2)["history"] == whole["history"][-2:]


def test_gw_17_a_walk_over_the_tasks_of_an_agent_finds_each_once(durable: Durable) -> None:
    def listed(**query: Any) -> Any:
        return durable.call("poller", "ListTasks", query)

    def walk(**query: Any) -> list[Any]:
        found, token = list[Any](), ""
        while True:
            page = listed(**query, pageToken=token)["result"]
            found += page["tasks"]
            token = page["nextPageToken"]
            if not token:
                return found

    def send(number: int) -> str:
        body = {"message": message(f"quick {number}", contextId=f"walk-{number % 2}")}
        return durable.call("poller", "SendMessage", body)["result"]["task"]["id"]

    with ThreadPoolExecutor(8) as callers:
        made = [*callers.map(send, range(250))]
    contexts = [walk(pageSize=37, contextId=f"walk-{number}") for number in range(2)]
    for number, found in enumerate(contexts):
        assert sorted(one["id"] for one in found) == sorted(made[number::2])
        moments = [one["status"]["timestamp"] for one in found]
        assert moments == sorted(moments, reverse=True)
        assert not any("artifacts" in one for one in found)
    wanted = {"contextId": "walk-0", "status": COMPLETED}
    assert listed(**wanted)["result"]["totalSize"] == 125
    assert listed(**{**wanted, "status": "TASK_STATE_FAILED"})["result"]["tasks"] == []
    since = contexts[0][9]["status"]["timestamp"]
    after = walk(**wanted, statusTimestampAfter=since, pageSize=4, includeArtifacts=True)
    assert [one["id"] for one in after] == [
        one["id"] for one in contexts[0] if one["status"]["timestamp"] >= since
    ]
    assert all(one["artifacts"] for one in after)
    assert [code_of(listed(pageSize=size)) for size in (0, 101)] == [-32602] * 2


def test_gw_39_what_is_too_large_too_deep_or_too_long_is_refused_and_others_are_served(
    durable: Durable,
) -> None:
    long = b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"x":"%s"}}' % (b"x" * (33 << 20))
    assert post(durable, long, **V1).status_code == 413
    deep = b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":' + b"[" * 100_000 + b"]" * 100_000
    assert code_of(post(durable, deep + b"}", **V1).json()) in (-32700, -32600)
    assert post(durable, b"{}", **V1, **{"X-Long": "x" * (1 << 20)}).status_code == 431
    assert plain_state(durable.call("poller", "SendMessage", params("quick again"))["result"]["task"])


def test_gw_18_gw_19_gw_20_gw_21_gw_23_readers_of_one_task_see_the_same_to_its_end(durable: Durable) -> None:
    task_id, work = durable.begun("streamer", "followed")
    with ExitStack() as stack, ExitStack() as left:
        gone = opened(durable, left, "streamer", "SubscribeToTask", {"id": task_id})
        next(iter(gone))
        first = opened(durable, stack, "streamer", "SubscribeToTask", {"id": task_id})
        second = opened(durable, stack, "streamer", "SubscribeToTask", {"id": task_id})
        opening = [next(iter(one)) for one in (first, second)]
        assert [kinds([one]) for one in opening] == [["task"]] * 2
        # One that leaves ends nothing for the others, nor the work.
        left.close()
        durable.say(work, "more")
        for one in (first, second):
            for frame in one:
                if "artifactUpdate" in frame.result:
                    break
        stopped = durable.call("streamer", "CancelTask", {"id": task_id})["result"]
        assert plain_state(stopped) == "canceled"
        ends = [one.all() for one in (first, second)]
    assert [[one.id for one in end] for end in ends][0] == [one.id for one in ends[1]]
    assert {plain_state(end[-1].result["statusUpdate"]) for end in ends} == {"canceled"}
    assert code_of(durable.call("streamer", "CancelTask", {"id": task_id})) == -32002
    assert code_of(durable.call("streamer", "CancelTask", {"id": "nobodys"})) == -32001
    assert code_of(durable.call("streamer", "SubscribeToTask", {"id": task_id})) == -32004


def test_gw_27_a_call_of_a_tool_that_the_caller_has_is_asked_and_answered_with_data(durable: Durable) -> None:
    task_id, work = durable.begun("poller", "needs a tool")
    wanted = {"data": {"call": "c-1", "name": "clock", "arguments": {"zone": "UTC"}}}
    asked = {"messageId": "q", "role": "ROLE_AGENT", "parts": [{"text": "clock?"}, wanted]}
    work.question = asked
    durable.remote.say(work, state=ASKING, word="clock?")
    question = until(
        lambda: (
            s["message"]
            if (s := durable.call("poller", "GetTask", {"id": task_id})["result"]["status"])["state"]
            == ASKING
            else None
        )
    )
    assert wanted in question["parts"]
    result = params("it is noon", wait=False, taskId=task_id)
    result["message"]["parts"] = [{"data": {"call": "c-1", "result": [12, None, "noon"]}}]
    durable.call("poller", "SendMessage", result)
    until(lambda: work.answered and work.answered[-1] == result["message"]["parts"])
    durable.say(work, "noon", state=COMPLETED)
    assert text_of(durable.ended("poller", task_id)) == "noon"


def test_gw_28_work_that_wants_a_login_is_shown_so_and_goes_on(durable: Durable) -> None:
    task_id, work = durable.begun("poller", "wants a login")
    durable.remote.say(work, state=AUTH, word="Sign in at the bank.")
    until(lambda: durable.call("poller", "GetTask", {"id": task_id})["result"]["status"]["state"] == AUTH)
    durable.call("poller", "SendMessage", params("signed in", wait=False, taskId=task_id))
    until(lambda: work.said[-1] == "signed in")
    durable.say(work, "paid", state=COMPLETED)
    assert text_of(durable.ended("poller", task_id)) == "paid"


@pytest.mark.parametrize("agent", ["streamer", "poller"])
def test_gw_28_work_goes_on_here_when_somebody_has_logged_in_there(durable: Durable, agent: str) -> None:
    task_id, work = durable.begun(agent, f"wants a login at {agent}")
    durable.remote.say(work, state=AUTH, word="Log in at https://login.example")
    until(lambda: plain_state(durable.call(agent, "GetTask", {"id": task_id})["result"]) == "auth-required")
    durable.say(work, "let in", state=COMPLETED)
    assert text_of(durable.ended(agent, task_id)) == "let in"
    listed = durable.front.agent.http.get(f"{durable.front.hub.base}/api/inbox?state=open").json()["items"]
    assert task_id not in [one["taskId"] for one in listed]


def test_gw_29_gw_30_gw_31_parts_of_every_kind_reach_the_agent_as_they_are(durable: Durable) -> None:
    body = params("all kinds", wait=False)
    body["message"]["parts"] += [
        {"raw": "iVBORw0KGgo=", "mediaType": "image/png", "filename": "dot.png", "metadata": {"dpi": 96}},
        {"url": "https://files.example/a.wav", "mediaType": "audio/wav", "filename": "a.wav"},
        *[{"data": value} for value in ({"a": [1, {}]}, [1, "two", None], "text", 3.5, True, None)],
    ]
    durable.call("poller", "SendMessage", body)
    work = durable.remote.agents["poller"].find("all kinds")
    assert work.parts == body["message"]["parts"]
    durable.say(work, "seen", state=COMPLETED)


def test_gw_34_gw_35_gw_36_gw_37_versions_envelopes_and_errors_are_as_specified(durable: Durable) -> None:
    def refused(content: bytes, **headers: str) -> Any:
        return post(durable, content, **headers).json()

    look = b'{"jsonrpc":"2.0","id":"seven","method":"GetTask","params":{"id":"none"}}'
    assert code_of(refused(look, **{"A2A-Version": "2.0"})) == -32009
    assert code_of(refused(look, **V1)) == -32001
    at = f"{durable.front.site('poller')}?A2A-Version=2.0"
    by_query = durable.front.agent.http.post(at, content=look, headers={"Content-Type": "application/json"})
    assert code_of(by_query.json()) == -32009
    old = refused(b'{"jsonrpc":"2.0","id":7,"method":"tasks/get","params":{"id":"none"}}')
    assert (code_of(old), old["id"]) == (-32001, 7)
    for content, code in [
        (b"{", -32700),
        (b'"text"', -32600),
        (b"[" + look + b"]", -32600),
        (look.replace(b"2.0", b"1.0"), -32600),
        (look.replace(b"GetTask", b"Fly"), -32601),
        (b'{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":3}}', -32602),
    ]:
        assert code_of(refused(content, **V1)) == code, content
    told = refused(look, **V1)
    (detail,) = [one for one in told["error"]["data"] if one["@type"].endswith("ErrorInfo")]
    assert (told["id"], detail["reason"], detail["domain"]) == ("seven", "TASK_NOT_FOUND", "a2a-protocol.org")


def test_gw_69_metrics_count_by_method_state_and_tenant(durable: Durable) -> None:
    durable.call("poller", "SendMessage", params("quick count"))

    def counted(*words: str) -> bool:
        told = durable.front.agent.http.get(f"{durable.front.hub.base}/metrics").text.splitlines()
        some = [line for line in told if not line.startswith("#") and not line.endswith(" 0.0")]
        return any(all(word in line for word in words) for line in some)

    # Health follows the log, a moment behind it.
    until(lambda: counted("trunkline_fleet_outcomes{", 'agent="poller"', '"completed"', 'tenant="default"'))
    assert counted("trunkline_requests_total{", "operation") and counted(
        "trunkline_task_changes_total{", 'state="completed"'
    )


def test_gw_71_browsers_of_listed_origins_may_send_what_a2a_needs(durable: Durable) -> None:
    wanted = {"a2a-version", "a2a-extensions", "last-event-id"}
    asked = {
        "Origin": "https://app.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": ", ".join(wanted),
    }
    told = durable.front.agent.http.options(durable.front.site("poller"), headers=asked)
    assert told.status_code in (200, 204)
    allowed = told.headers["access-control-allow-headers"].lower()
    assert all(one in allowed for one in wanted)
    other = {**asked, "Origin": "https://other.example"}
    refused = durable.front.agent.http.options(durable.front.site("poller"), headers=other)
    assert "access-control-allow-origin" not in refused.headers


def test_gw_47_gw_48_a_hub_that_stops_ends_streams_and_its_tasks_go_on(durable: Durable) -> None:
    """The last one: it ends the hub and starts it again."""
    http, base = durable.front.agent.http, durable.front.hub.base
    assert [http.get(f"{base}/{one}").status_code for one in ("healthz", "readyz")] == [200, 200]
    task_id, work = durable.begun("streamer", "over a stop")
    with ExitStack() as stack:
        frames = opened(durable, stack, "streamer", "SubscribeToTask", {"id": task_id})
        last = next(iter(frames))
        before = time.monotonic()
        assert durable.front.hub.stop(signal.SIGTERM) == 0
        assert time.monotonic() - before < 30
        assert all("error" not in one.data for one in frames)
    durable.front.hub.start()
    durable.say(work, "done", state=COMPLETED)
    assert text_of(durable.ended("streamer", task_id)) == "done"
    rest = durable.read("streamer", task_id, last.id)
    assert plain_state(rest[-1].result["statusUpdate"]) == "completed"
