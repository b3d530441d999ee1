"""The question of a delegated agent, over every surface: in answers, status and events, and its answer."""

from __future__ import annotations

from typing import Any

import pytest

from tests.flow.surfaces import ASK, DELEGATE, PARKING, SURFACES, control, surface, workflow
from trunkline.flow.local import LocalFlows
from trunkline.flow.port import FlowCaller
from trunkline.log.events import Chunk, Status
from trunkline.run.executor import OnCrash, Verdict, Work
from trunkline.run.node import HostedAgent
from trunkline.wire.question import Question, read_answer
from trunkline.wire.types import Artifact, Message, Part, Role, SendRequest, TaskState

CHILD = workflow(DELEGATE, name="Child")
NEST = {"id": "nest", "type": "subworkflow", "config": {"workflow_ref": "child", "input_mapping": {}}}
COUNT = {"type": "integer", "minimum": 1}
BOX = {"type": "object", "properties": {"value": {"type": "string"}}}
# A question, how callers see it, the payload that answers it, and what the agent reads.
QUESTIONS: list[tuple[Question, dict[str, Any], dict[str, Any], object]] = [
    (Question("Which?"), {"text": "Which?"}, {"text": "blue"}, "blue"),
    (Question("Which?", choices=["red", "blue"]), {"text": "Which?", "choices": ["red", "blue"]},
     {"text": "blue"}, "blue"),
    (Question("How many?", schema=COUNT), {"text": "How many?", "schema": COUNT}, {"value": 7}, 7),
    (Question("What?", schema=BOX), {"text": "What?", "schema": BOX}, {"value": "x"}, {"value": "x"}),
]  # fmt: skip


class Asker:
    """An agent that asks one question and returns its answer."""

    works_elsewhere = False

    def __init__(self, question: Question) -> None:
        self._question = question

    def agent(self, tenant: str, agent_id: str) -> str | None:
        del tenant
        return agent_id if agent_id == "coder" else None

    def admit(self, request: SendRequest) -> str:
        del request
        return "code"

    def named(self, name: str) -> str:
        return name

    def on_crash(self, skill: str) -> OnCrash:
        del skill
        return OnCrash.RESUME

    async def close(self) -> None:
        return None

    async def run(self, work: Work) -> Verdict:
        wanted = self._question.part()
        parts = (Part(text=self._question.text), *([] if wanted is None else [wanted]))
        asked = Message(f"{work.state.task_id}:q", role=Role.AGENT, parts=parts)
        said = await work.ask(Status(TaskState.INPUT_REQUIRED, asked))
        answer = read_answer(self._question, said)
        work.put(Chunk(Artifact("out", parts=(Part(data={"answer": answer}),)), last=True))
        return Status(TaskState.COMPLETED)


def flows_with(question: Question) -> LocalFlows:
    asker = Asker(question)
    return LocalFlows(carried=[HostedAgent("coder", asker)], agents=asker, limits=PARKING)


@pytest.mark.parametrize(("question", "shown", "payload", "answer"), QUESTIONS)
@pytest.mark.parametrize("name", SURFACES)
async def test_question_of_an_agent_is_in_answers_status_and_events_and_can_be_answered(
    name: str, question: Question, shown: dict[str, Any], payload: dict[str, Any], answer: object
) -> None:
    async with flows_with(question) as flows, surface(name, flows) as call:
        document, run = workflow(DELEGATE), {"execution_id": "e"}
        code, started = await call("start", {"definition": document, "input": {"task": "t"}, **run})
        members = {"question": shown, "agent_id": "coder", "delegate_correlation_id": "e:delegate:implement"}
        assert (code, started["status"], started["node_id"]) == ("", "interrupted", "implement")
        assert {name: started[name] for name in members} == members
        _, status = await call("status", run)
        assert (status["phase"], status["current_node_id"]) == ("interrupted", "implement")
        assert {name: status[name] for name in members} == members
        rows = await flows.port.rows(FlowCaller(name), "e")
        told = [row.payload for row in rows if row.name == "DelegateInputRequired"]
        camel = {"agentId": "coder", "delegateCorrelationId": "e:delegate:implement", "nodeId": "implement"}
        assert told == [{"executionId": "e", "question": shown, **camel}]
        assert [row.seq for row in rows] == [*range(1, len(rows) + 1)]
        resume = {**run, "definition": document, "resume_payload": payload}
        code, ended = await call("resume", resume)
        assert (code, ended.get("result")) == ("", {"task": "t", "answer": answer})
        assert "question" not in ended


@pytest.mark.parametrize("payload", [{"text": "green"}, {"colour": "blue"}])
async def test_answer_that_is_none_of_the_choices_is_refused_and_the_question_stays(
    payload: dict[str, Any],
) -> None:
    question, shown, right, _ = QUESTIONS[1]
    async with flows_with(question) as flows, surface("rest", flows) as call:
        start = {"definition": workflow(DELEGATE), "input": {"task": "t"}, "execution_id": "e"}
        await call("start", start)
        answered = {"execution_id": "e", "definition": workflow(DELEGATE)}
        code, _ = await call("resume", {**answered, "resume_payload": payload})
        assert code == "INVALID_RESUME_PAYLOAD"
        assert (await call("status", {"execution_id": "e"}))[1]["question"] == shown
        assert (await call("resume", {**answered, "resume_payload": right}))[0] == ""


@pytest.mark.parametrize("name", SURFACES)
async def test_question_of_an_interrupt_is_in_answers_and_status(name: str) -> None:
    async with LocalFlows(limits=PARKING) as flows, surface(name, flows) as call:
        start = {"definition": workflow(ASK), "input": {}, "execution_id": "e"}
        shown = {"text": "May it go out?", "schema": ASK["config"]["resume_schema"]}
        assert (await call("start", start))[1]["question"] == shown
        assert (await call("status", {"execution_id": "e"}))[1]["question"] == shown


async def test_question_in_a_nested_run_is_an_event_of_that_run() -> None:
    async with flows_with(QUESTIONS[0][0]) as flows:
        plain = control(flows)
        loaded = await flows.port.definitions.load(CHILD)
        await flows.port.definitions.register("default", "child", loaded)
        found = await plain.call("start", {"definition": workflow(NEST), "input": {}, "execution_id": "e"})
        assert (found["status"], found["question"]) == ("interrupted", {"text": "Which?"})
        names = {
            run: [row.name for row in await flows.port.rows(FlowCaller(), run)] for run in ("e", "e:sub:nest")
        }
        assert "DelegateInputRequired" not in names["e"]
        assert names["e:sub:nest"].count("DelegateInputRequired") == 1
