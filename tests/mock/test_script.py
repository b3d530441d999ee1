"""Scenarios as YAML: everything that Python can say, and mistakes named by line and member."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.mock.talk import talking
from trunkline.errors import Misuse
from trunkline.mock import faults as f
from trunkline.mock.quirks import Quirks
from trunkline.mock.scenario import (
    Expect,
    Failure,
    Persona,
    Reply,
    Rule,
    Scenario,
    ScriptedArtifact,
    ScriptedAuth,
    ScriptedFile,
    ScriptedPart,
    ScriptedSkill,
    ScriptedStep,
    When,
)
from trunkline.mock.script import load_scenarios, read_scenarios, write_scenario

TEXT = """\
agent:
  name: Scribe
  skills:
    - {id: summarise, tags: [text]}
rules:
  - when: {contains: hello}
    reply: Hi
  - when: {skill: summarise}
    reply:
      stream: [a, b]
      pause: 0.01
    faults:
      - {do: cut, at: 2, requests: [1]}
otherwise: {fail: no idea}
"""
FULL = Scenario(
    name="all",
    agent=Persona(
        name="All",
        skills=(ScriptedSkill(id="s", tags=("t",)),),
        auth=ScriptedAuth(bearer="t"),
        push=True,
        extensions=("https://example.com/x",),
        card={"url": None, "capabilities": {"streaming": False}},
    ),
    rules=(
        Rule(name="a", when=When(data={"x": [1]}, turn=2), reply="text", times=3, faults=(f.busy(2),)),
        Rule(
            reply=Reply(
                data={},
                file=ScriptedFile(name="f", url="http://x/"),
                artifacts=(
                    ScriptedArtifact(id="a", parts=(ScriptedPart(text="ü: - #"), ScriptedPart(data=None))),
                ),
                stream=("a", ScriptedPart(data=1)),
                say=(ScriptedPart(text="done"),),
                then=Reply(need_auth="who?", then="thanks"),
            )
        ),
        Rule(
            reply=Reply(
                steps=(
                    ScriptedStep(state="working", say="x", delay=0.5),
                    ScriptedStep(artifact=ScriptedArtifact(text="y")),
                )
            )
        ),
        Rule(reply=Reply(error=Failure(code=-1, message="m", data=[1]))),
    ),
    otherwise="else",
    deduplicates=True,
    dialect=Quirks(ids=False, codes={"-32009": -1}),
    faults=(f.lie({"url": None}), f.stall(2)),
    expect=(Expect(rule="a", count=0),),
)


def test_a_scenario_reads_as_it_was_meant() -> None:
    (scenario,) = read_scenarios(TEXT)
    assert scenario == Scenario(
        agent=Persona(name="Scribe", skills=(ScriptedSkill(id="summarise", tags=("text",)),)),
        rules=(
            Rule(when=When(contains="hello"), reply="Hi"),
            Rule(
                when=When(skill="summarise"),
                reply=Reply(stream=("a", "b"), pause=0.01),
                faults=(f.cut(2, requests=[1]),),
            ),
        ),
        otherwise=Reply(fail="no idea"),
    )


@pytest.mark.parametrize("scenario", [Scenario(), FULL], ids=["empty", "full"])
def test_what_is_written_reads_back(scenario: Scenario) -> None:
    assert read_scenarios(write_scenario(scenario)) == (scenario,)


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (
            "pause",
            "pauze",
            "line 11, rules[1].reply.pauze: there is no member 'pauze' here; did you mean 'pause'?",
        ),
        (
            "pause: ",
            "calls: ",
            "there is no member 'calls' here; a script of a model is served with --openai",
        ),
        ("at: 2", "at: two", "line 13, rules[1].faults[0].at: Expected `int`, got `str`"),
        ("at: 2", "at: -2", "line 13, rules[1].faults[0]: at counts events from 1"),
        ("do: cut", "do: kut", "line 13, rules[1].faults[0].do: Invalid enum value 'kut'"),
        (
            "requests: [1]",
            "on: [fetch]",
            "line 13, rules[1].faults[0].on[0]: no operation; one of card, send",
        ),
        ("[text]", "[text", "line 4: invalid YAML"),
        ("contains: hello", "regex: (", "x.yaml: rule 1: regex '(' cannot be read"),
        (
            "otherwise: {",
            "dialect: klingon\notherwise: {",
            "no dialect 'klingon'; use one of trunkline, prom",
        ),
        ("id: summarise", "name: summarise", "line 4, agent.skills[0]: Object missing required field `id`"),
    ],
)
def test_a_mistake_is_named(right: str, wrong: str, said: str) -> None:
    with pytest.raises(Misuse) as found:
        read_scenarios(TEXT.replace(right, wrong, 1), where="x.yaml")
    assert said in str(found.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "a scenario is a mapping"),
        ("agents: [{name: a}, {name: a}]", "a `name` of its own"),
        ("agents: [{name: a}, {}]", "a `name` of its own"),
        ("agents: []", "no agent to mock"),
        ("name: a/b", "may not hold a slash"),
    ],
)
def test_what_is_no_scenario(text: str, said: str) -> None:
    with pytest.raises(Misuse, match=said):
        read_scenarios(text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="no such file"):
        load_scenarios(tmp_path / "none.yaml")


PROMPTKIT = """\
a2a_agents:
  - name: research
    card:
      name: Research Agent
      description: Finds papers
      skills: [{id: search, name: Search, description: Finds papers, tags: [papers]}]
    responses:
      - skill: search
        match: {contains: Quantum, regex: "comput(er|ing)"}
        response: {parts: [{text: "Two papers"}]}
      - {skill: search, match: {contains: many}, response: {parts: [{text: a}, {text: b}]}}
      - {skill: search, match: {contains: fail}, error: out of order}
  - name: real
    url: https://agents.example/real
    auth: {scheme: Bearer, token_env: TOKEN}
    headers_from_env: [X-Key=KEY]
    timeout_ms: 1000
    skill_filter: {allowlist: [a]}
"""


def test_promptkits_registry_is_read() -> None:
    (scenario,) = read_scenarios(PROMPTKIT)

    async def main() -> None:
        async with talking(scenario) as talk:
            skill = {"metadata": {"skillId": "search"}}
            card = (await talk.card()).json
            assert (card["name"], card["skills"][0]["id"]) == ("Research Agent", "search")
            found = (await talk.send("quantum computing", **skill)).task
            assert found["artifacts"] == [{"artifactId": "artifact-1", "parts": [{"text": "Two papers"}]}]
            both = (await talk.send("many", **skill)).task
            assert both["artifacts"][0]["parts"] == [{"text": "a"}, {"text": "b"}]
            failed = (await talk.send("fail", **skill)).task
            assert failed["status"]["state"] == "TASK_STATE_FAILED"
            assert failed["status"]["message"]["parts"] == [{"text": "out of order"}]
            assert (await talk.send("quantum", **skill)).error["code"] == -32000
            assert (await talk.send("many")).error["code"] == -32000

    asyncio.run(main())


def test_promptkits_registry_is_strict() -> None:
    with pytest.raises(Misuse, match=r"line 9, a2a_agents\[0\]\.responses\[0\]\.match\.contain"):
        read_scenarios(PROMPTKIT.replace("contains: Quantum", "contain: Quantum"))
