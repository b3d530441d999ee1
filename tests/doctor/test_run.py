"""Sound agents are found sound, in every version; an examination ends in time and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from tests.cli.peers import served
from tests.doctor.conftest import Examine, Sound
from tests.doctor.defects import KEY, FunctionFault, card, objects
from tests.doctor.faulty_agent import AgentAnswer, Call, FaultyAgent, never, refusal
from trunkline.cli import doctor as reports
from trunkline.demo import agent
from trunkline.doctor.check import FAMILIES, CheckOutcome, Severity
from trunkline.doctor.checks import CHECKS
from trunkline.doctor.run import DoctorReport, chosen
from trunkline.doctor.run import examine as run
from trunkline.doctor.subject import DoctorOptions
from trunkline.errors import Misuse, Unreachable
from trunkline.net.http import HttpRequest, HttpResponse
from trunkline.net.in_process import InProcessHttpClient

SOUND = [
    ({}, {}),
    ({"dev": True}, {"text": "count 12 30"}),
    ({"push": False}, {"text": "ask"}),
    ({}, {"text": "fail on purpose"}),
    ({}, {"text": "message hello"}),
    ({}, {"text": "hello", "skill": "echo"}),
]


@pytest.mark.parametrize(("settings", "options"), SOUND, ids=str)
def test_the_demo_agent_is_healthy(
    settings: dict[str, Any], options: dict[str, Any], sound: Sound, examine: Examine
) -> None:
    found = examine(sound(**settings), **options)
    assert _failed(found) == []
    assert not [one for one in found.findings if one.outcome is CheckOutcome.UNKNOWN]
    assert len(found.interfaces) == 3
    assert (found.nothing, found.locked, found.left) == ("", False, 0)
    assert reports.exit_code(found) == 0


def test_a_locked_agent_is_healthy_to_whoever_has_the_key(sound: Sound, examine: Examine) -> None:
    found = examine(sound(keys=(KEY,)), keyed=True)
    assert _failed(found) == []
    names = ("auth-enforced", "auth-wrong-refused", "auth-challenge", "card-public", "extended-card")
    assert {one.outcome for one in found.findings if one.check in names} == {CheckOutcome.PASSED}


def test_without_the_key_only_the_door_is_looked_at(sound: Sound, examine: Examine) -> None:
    found = examine(sound(keys=(KEY,)))
    assert _failed(found) == []
    assert (found.locked, reports.exit_code(found), found.tasks) == (True, 4, 0)
    assert _outcomes(found, "auth-enforced") == {CheckOutcome.PASSED}
    assert _outcomes(found, "unknown-task") == {CheckOutcome.SKIPPED}


def test_a_key_that_is_not_known_is_no_fault_of_the_agent(sound: Sound, examine: Examine) -> None:
    found = examine(sound(keys=("another-key-of-this-agent",)), keyed=True)
    assert _failed(found) == []
    assert (found.locked, reports.exit_code(found), found.tasks) == (True, 4, 0)


def test_an_examination_that_is_interrupted_ends_its_tasks(sound: Sound, runner: asyncio.Runner) -> None:
    ended = 0
    streaming = asyncio.Event()
    agent = sound()

    def watch(call: Call) -> None:
        nonlocal ended
        ended += call.method in ("CancelTask", "tasks/cancel")
        if call.method in ("SendStreamingMessage", "message/stream"):
            streaming.set()

    async def main() -> None:
        http_client = InProcessHttpClient(FaultyAgent(agent, FunctionFault(asks=watch)), base="")
        work = asyncio.create_task(
            run("http://localhost", DoctorOptions(text="sleep 30", only=("streaming",)), http_client)
        )
        async with asyncio.timeout(60):
            await streaming.wait()
        # Its first frame, which names the task, is on its way.
        await asyncio.sleep(0.5)
        assert not ended
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(60):
                await work
        await http_client.close()

    runner.run(main())
    assert ended


def test_the_key_is_shown_nowhere(sound: Sound, examine: Examine) -> None:
    def echo(call: Call, answer: AgentAnswer) -> None:
        if call.is_rpc and b'"error"' in answer.body:
            given = call.headers.get("x-api-key", "")
            answer.body = json.dumps({"error": {"code": -32603, "message": f"who is {given}?"}}).encode()

    found = examine(FaultyAgent(sound(keys=(KEY,)), FunctionFault(tells=echo)), keyed=True)
    assert found.failed()
    shown = reports.json_of(found) + reports.as_junit(found)
    assert b"who is ***?" in shown
    assert KEY.encode() not in shown


def test_a_round_trip_of_a_webhook(sound: Sound, examine: Examine) -> None:
    found = examine(sound(dev=True), only=("push", "delivery"))
    for name in ("push-round-trip", "push-token", "push-body", "push-config-kept", "push-two-configs"):
        assert _outcomes(found, name) == {CheckOutcome.PASSED}, name


@pytest.mark.slow
def test_a_running_task_is_followed_again(sound: Sound, examine: Examine) -> None:
    found = examine(sound(), text="count 60 30", only=("subscribing",))
    assert _outcomes(found, "subscribe-live") == {CheckOutcome.PASSED}


def test_an_agent_that_asks(sound: Sound, examine: Examine) -> None:
    found = examine(sound(), text="ask", only=("sending",))
    assert _outcomes(found, "question-continues-task") == {CheckOutcome.PASSED}


@pytest.mark.parametrize("version", ["0.3.0", "0.2.6"])
def test_an_older_agent_is_judged_by_its_own_version(version: str, sound: Sound, examine: Examine) -> None:
    def older(document: dict[str, Any]) -> None:
        del document["supportedInterfaces"]
        document["protocolVersion"] = version
        document["additionalInterfaces"] = []

    found = examine(FaultyAgent(sound(), card(older)))
    assert [one.partition(" at ")[0] for one in found.interfaces] == ["JSONRPC 0.3"]
    assert _failed(found) == []


def test_what_0_3_allows_is_no_finding(sound: Sound, examine: Examine) -> None:
    def bare(document: dict[str, Any]) -> None:
        del document["supportedInterfaces"]
        document.update(skills=[], provider=None, additionalInterfaces=[])

    assert _failed(examine(FaultyAgent(sound(), card(bare)), only=("card",))) == []


def test_a_bare_message_needs_no_context(sound: Sound, examine: Examine) -> None:
    def without(value: dict[str, Any]) -> None:
        if "parts" in value:
            value.pop("contextId", None)
            value.pop("taskId", None)

    found = examine(FaultyAgent(sound(), objects(without)), text="message hello", only=("sending", "shapes"))
    assert _failed(found) == []


@pytest.mark.slow
def test_a_state_that_is_no_text_is_a_finding(sound: Sound, examine: Examine) -> None:
    def odd(value: dict[str, Any]) -> None:
        if "state" in value:
            value["state"] = {"name": "completed"}

    found = examine(FaultyAgent(sound(), objects(odd)), only=("sending", "shapes"))
    assert "wire-states" in _failed(found)


@pytest.mark.parametrize("named", ["localhost", "127.0.0.1"])
def test_all_names_of_this_machine_are_one(named: str, runner: asyncio.Runner) -> None:
    """Over sockets: the card names another one than the operator, and the doctor follows it there."""
    other = {"localhost": "127.0.0.1", "127.0.0.1": "localhost"}[named]
    inner = agent.asgi(store="memory:", log_level="error", public_url="http://replaced.example")
    port = ""

    def rename(call: Call, answer: AgentAnswer) -> None:
        if call.is_card:
            answer.body = answer.body.replace(b"replaced.example", f"{other}:{port}".encode())

    faulty = FaultyAgent(inner, FunctionFault(tells=rename))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (inner if scope["type"] == "lifespan" else faulty)(scope, receive, send)

    with served(app) as url:
        port = url.rpartition(":")[2]
        only = ("interfaces", "card-found")
        found = runner.run(run(f"http://{named}:{port}", DoctorOptions(only=only)))
    assert _failed(found) == []
    assert _outcomes(found, "interface-answers") == {CheckOutcome.PASSED}


def test_what_the_doctor_does_not_call_is_no_failure_of_the_agent(
    sound: Sound, runner: asyncio.Runner
) -> None:
    class Kept(InProcessHttpClient):
        async def open(self, request: HttpRequest) -> HttpResponse:
            if "10.0.0.5" in request.url:
                raise Unreachable("10.0.0.5 leads to an address that is not public", reason="refused")
            return await super().open(request)

    def elsewhere(document: dict[str, Any]) -> None:
        document["supportedInterfaces"] = [
            {"url": "http://10.0.0.5:1/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        ]
        del document["url"]

    async def gone(call: Call) -> AgentAnswer | None:
        return None if call.is_card else AgentAnswer(404, {}, b"")

    fault = card(elsewhere)
    fault.answers = gone
    client = Kept(FaultyAgent(sound(), fault), base="")
    found = runner.run(run("http://localhost", DoctorOptions(), client))
    assert [one.check for one in found.failed() if one.severity is Severity.ERROR] == []
    assert _outcomes(found, "interface-answers") == {CheckOutcome.UNKNOWN}
    assert "does not follow the card" in next(
        one.seen for one in found.findings if one.check == "interface-answers"
    )
    assert reports.exit_code(found) == reports.LOCKED


def test_nothing_is_sent_when_nothing_may_be(sound: Sound, examine: Examine) -> None:
    sent: list[str] = []

    def watch(call: Call) -> None:
        if call.params.get("message") is not None:
            sent.append(call.method)

    found = examine(FaultyAgent(sound(), FunctionFault(asks=watch)), sends=False)
    assert (sent, found.tasks, _failed(found)) == ([], 0, [])


@pytest.mark.slow
def test_every_task_is_labelled_and_ended(sound: Sound, examine: Examine) -> None:
    labels: list[object] = []

    def watch(call: Call) -> None:
        if call.params.get("message") is not None:
            labels.append(call.params.get("metadata"))

    found = examine(FaultyAgent(sound(), FunctionFault(asks=watch)), text="sleep 30", timeout_s=2)
    assert labels
    assert all(one == {"trunklineDoctor": "probe"} for one in labels)
    assert found.tasks > 3
    assert found.left == 0


@pytest.mark.slow
def test_an_examination_ends_in_time(sound: Sound, examine: Examine) -> None:
    """Everything hangs but the reads that let the doctor in."""
    asked = 0

    async def hang(call: Call) -> AgentAnswer | None:
        nonlocal asked
        asked += 1
        if not call.is_card and asked > 12:
            await never()
        return None

    found = examine(FaultyAgent(sound(), FunctionFault(answers=hang)), timeout_s=2)
    assert found.took_s < 30
    assert _failed(found)
    assert {
        one.seen
        for one in found.findings
        if one.outcome is CheckOutcome.UNKNOWN and "no time left" in one.seen
    }


@pytest.mark.slow
def test_a_card_that_never_comes_ends_in_time_too(examine: Examine) -> None:
    async def deaf(scope: Any, receive: Any, send: Any) -> None:
        await never()

    found = examine(deaf, "http://localhost/a2a", timeout_s=1)
    assert found.took_s < 30
    assert reports.exit_code(found) == 3
    assert "no answer within" in found.nothing


def test_an_extension_that_is_required_is_spoken(sound: Sound, examine: Examine) -> None:
    """An agent that asks for one is not taken for one that refuses everybody."""
    needed = "https://must.example/v1"

    def requiring(document: dict[str, Any]) -> None:
        document["capabilities"]["extensions"].append({"uri": needed, "required": True})

    async def asks(call: Call) -> AgentAnswer | None:
        spoken = call.headers.get("a2a-extensions", "") + call.headers.get("x-a2a-extensions", "")
        if call.is_card or needed in spoken:
            return None
        return refusal(call, -32008) if call.is_rpc else None

    fault = card(requiring)
    fault.answers = asks
    found = examine(FaultyAgent(sound(), fault), only=("sending", "extensions", "streaming"))
    # Over HTTP+JSON it does not ask.
    assert {(one.check, one.where) for one in found.failed()} == {("extension-required", "HTTP+JSON 1.0")}


def test_no_card_is_nothing_to_examine(examine: Examine) -> None:
    async def nobody(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    found = examine(nobody)
    assert _failed(found) == ["card-found", "card-legacy-path"]
    assert "no card at http://localhost" in found.nothing
    assert reports.exit_code(found) == 3


def test_the_card_is_found_from_its_own_address_and_from_the_endpoint(sound: Sound, examine: Examine) -> None:
    for path in ("/.well-known/agent-card.json", "/a2a", "/"):
        assert (
            examine(sound(), f"http://localhost{path}", only=("interface-answers",)).agent == "Trunkline demo"
        )


def test_card_of_the_root_does_not_stand_for_a_missing_one(sound: Sound, examine: Examine) -> None:
    url = "http://localhost/agents/nobody/.well-known/agent-card.json"
    found = examine(sound(), url)
    assert (found.agent, found.tasks, _failed(found)) == ("", 0, ["card-found", "card-legacy-path"])
    assert f"no card at {url}: HTTP 404" in found.nothing
    assert reports.exit_code(found) == 3


def test_credentials_stay_at_the_host_that_was_named(sound: Sound, examine: Examine) -> None:
    strangers: list[str] = []

    def watch(call: Call) -> None:
        if "other.example" in call.headers.get("host", ""):
            strangers.append(call.headers.get("x-api-key", ""))
            call.headers["host"] = "localhost"

    def lead_away(document: dict[str, Any]) -> None:
        for one in document["supportedInterfaces"]:
            one["url"] = "http://other.example/a2a" if one["protocolBinding"] == "JSONRPC" else one["url"]

    fault = card(lead_away)
    fault.asks = watch
    moved = instead_of_here(fault)
    examine(FaultyAgent(sound(keys=(KEY,)), moved), keyed=True, only=("interfaces",))
    assert strangers
    assert set(strangers) == {""}


def instead_of_here(fault: FunctionFault) -> FunctionFault:
    """The endpoint is not at the host that was named, so that the card's word is tried."""

    async def gone(call: Call) -> AgentAnswer | None:
        return AgentAnswer(404, {}, b"") if call.is_rpc and "localhost" == call.headers.get("host") else None

    fault.answers = gone
    return fault


def test_only_and_skip_choose() -> None:
    assert [one.name for one in chosen(DoctorOptions(only=("card-etag",)))] == ["card-etag"]
    family = chosen(DoctorOptions(only=("push",), skip=("push-body",)))
    assert {one.family for one in family} == {"push"}
    assert "push-body" not in {one.name for one in family}


def test_a_check_that_does_not_exist_is_refused(examine: Examine, sound: Sound) -> None:
    with pytest.raises(Misuse, match="no check or family 'pusch'"):
        examine(sound(), only=("pusch",))


@pytest.mark.parametrize("url", ["agent.example", "ftp://agent.example", "http://", "http://u:p@a.example"])
def test_an_address_that_is_none_is_refused(url: str, examine: Examine, sound: Sound) -> None:
    with pytest.raises(Misuse, match="URL"):
        examine(sound(), url)


def test_checks_are_well_described() -> None:
    assert len(CHECKS) >= 100
    for check in CHECKS.values():
        assert re.fullmatch(r"[a-z0-9]+([-.][a-z0-9]+)+", check.name)
        assert check.family in FAMILIES
        assert check.means.endswith(".")
        assert check.fix.endswith((".", "…"))
        assert check.reference


def _failed(found: DoctorReport) -> list[str]:
    return sorted({one.check for one in found.failed()})


def _outcomes(found: DoctorReport, name: str) -> set[CheckOutcome]:
    return {one.outcome for one in found.findings if one.check == name}
