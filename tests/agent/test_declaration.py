"""What a skill emits is read from its code; what it declares is checked when it is declared."""

from __future__ import annotations

import functools
import json
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.agent.drive import drive, state
from trunkline import Agent, Effect, Misuse, SyncTurn, Turn
from trunkline.agent.declaration import DRIFTS_KEPT, DriftMonitor, EffectDrift, compare, emitted_by
from trunkline.agent.extensions import Change, RunReport
from trunkline.agent.testing import TestClient
from trunkline.wire.card import SKILL_PARAMETERS, card_v1
from trunkline.wire.service_parameters import IDEMPOTENT_SEND

URI = "https://proto-labs.ai/a2a/ext/"


async def plain(turn: Turn) -> None:
    turn.usage(input_tokens=1)


async def behind_another_variable(turn: Turn, text: str) -> str:
    return text + str(turn.confidence(0.5))


async def with_spread_arguments(turn: Turn) -> None:
    turn.usage(**{"input_tokens": 1})


async def in_a_function_inside(turn: Turn) -> None:
    async def inside() -> None:
        turn.effect("a", "b")

    await inside()


async def in_a_comprehension(turn: Turn) -> None:
    [turn.effect("a", str(number)) for number in range(3)]


async def in_a_lambda(turn: Turn) -> None:
    (lambda: turn.confidence(1))()


async def in_a_class_inside(turn: Turn) -> None:
    class Inside:
        def do(self) -> None:
            turn.effect("a", "b")

    Inside().do()


async def in_a_generator(turn: Turn) -> AsyncIterator[str]:
    yield "text"
    turn.usage(output_tokens=2)


def in_a_thread(turn: SyncTurn) -> None:
    turn.usage(input_tokens=1)


async def by_another_name(spoken: Turn) -> None:
    spoken.confidence(1)


async def in_branches(turn: Turn) -> None:
    if turn.text:
        turn.usage(input_tokens=1)
    try:
        turn.confidence(0.1)
    finally:
        turn.effect("a", "b")


async def nothing(turn: Turn) -> None:
    await turn.write("usage")
    str(turn.text).count("effect")


async def of_something_else(turn: Turn) -> None:
    class Model:
        def usage(self) -> None: ...

    Model().usage()
    model = Model()
    model.usage()
    del turn


class Callable_:
    async def __call__(self, turn: Turn) -> None:
        turn.usage(input_tokens=1)

    async def method(self, turn: Turn) -> None:
        turn.effect("a", "b")


class Heir(Callable_):
    pass


def wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def around(turn: Turn) -> Any:
        turn.confidence(1)
        return await function(turn)

    return around


def _long() -> Callable[..., Any]:
    """A function with so many names that an instruction needs a second one to tell which."""
    space: dict[str, Any] = {}
    lines = "".join(f"    turn.name_{number}\n" for number in range(300))
    exec(f"def long(turn):\n{lines}    turn.usage()\n", space)
    return space["long"]


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (plain, {"cost-v1"}),
        (behind_another_variable, {"confidence-v1"}),
        (with_spread_arguments, {"cost-v1"}),
        (in_a_function_inside, {"worldstate-delta-v1"}),
        (in_a_comprehension, {"worldstate-delta-v1"}),
        (in_a_lambda, {"confidence-v1"}),
        (in_a_class_inside, {"worldstate-delta-v1"}),
        (in_a_generator, {"cost-v1"}),
        (in_a_thread, {"cost-v1"}),
        (in_branches, {"cost-v1", "confidence-v1", "worldstate-delta-v1"}),
        (nothing, set()),
        (of_something_else, set()),
        (Callable_(), {"cost-v1"}),
        (Heir(), {"cost-v1"}),
        (Callable_().method, {"worldstate-delta-v1"}),
        (functools.partial(plain), {"cost-v1"}),
        (wrapped(plain), {"cost-v1", "confidence-v1"}),
        (_long(), {"cost-v1"}),
        (len, set()),
    ],
    ids=lambda one: getattr(one, "__name__", type(one).__name__),
)
def test_what_is_emitted_is_read_from_the_code(function: Callable[..., Any], names: set[str]) -> None:
    assert emitted_by(function, "turn") == names


def test_the_turn_may_have_any_name() -> None:
    agent = Agent("under test")
    agent.skill(by_another_name)
    agent.skill(nothing)
    assert [one.uri for one in agent.extensions] == [URI + "confidence-v1"]


def test_a_function_without_a_turn_emits_nothing() -> None:
    agent = Agent("under test")

    @agent.skill
    def shout(text: str) -> str:
        return text.upper()

    assert agent.extensions == ()


def test_the_card_declares_each_extension_once_in_a_fixed_order() -> None:
    agent = Agent("under test")
    agent.skill(effects=[Effect("shop", "orders.open", -1, 0.75)])(in_a_function_inside)
    agent.skill(effects=[{"domain": "shop", "path": "orders.sent"}])(in_a_lambda)
    agent.skill(emits=["cost-v1"])(nothing)
    agent.skill(id="more")(in_branches)
    extensions = json.loads(card_v1(agent.card()))["capabilities"]["extensions"]
    assert [one["uri"].removeprefix(URI) for one in extensions] == [
        "cost-v1", "confidence-v1", "effect-domain-v1", "worldstate-delta-v1", IDEMPOTENT_SEND,
    ]  # fmt: skip
    assert all(one["required"] is False and one["description"] for one in extensions)
    assert [one.get("params") for one in extensions] == [
        None,
        None,
        {
            "skills": {
                "in_a_function_inside": {
                    "effects": [{"domain": "shop", "path": "orders.open", "delta": -1, "confidence": 0.75}]
                },
                "in_a_lambda": {
                    "effects": [{"domain": "shop", "path": "orders.sent", "delta": 1, "confidence": 1.0}]
                },
            }
        },
        None,
        None,
    ]


def test_declared_effects_are_emitted_ones() -> None:
    agent = Agent("under test")
    agent.skill(effects=[Effect("a", "b")])(nothing)
    assert [one.uri for one in agent.extensions] == [URI + "effect-domain-v1", URI + "worldstate-delta-v1"]


def test_an_agent_that_emits_nothing_declares_what_the_server_does() -> None:
    agent = Agent("under test")
    agent.skill(nothing)
    extensions = json.loads(card_v1(agent.card()))["capabilities"]["extensions"]
    assert [one["uri"] for one in extensions] == [IDEMPOTENT_SEND]


@pytest.mark.parametrize(
    ("about", "complaint"),
    [
        ({"emits": "cost-v1"}, "emits is a list"),
        ({"emits": 1}, "emits is a list"),
        ({"emits": ["cost-v2"]}, "not 'cost-v2'"),
        ({"emits": ["effect-domain-v1"]}, "not 'effect-domain-v1'"),
        ({"emits": [["cost-v1"]]}, "a skill emits"),
        ({"effects": Effect("a", "b")}, "effects is a list"),
        ({"effects": "ab"}, "effects is a list"),
        ({"effects": {"domain": "a", "path": "b"}}, "effects is a list"),
        ({"effects": ["a"]}, "not 'a'"),
        ({"effects": [{"domain": "a"}]}, "domain, path, delta and confidence"),
        ({"effects": [{"domain": "a", "path": "b", "by": 1}]}, "domain, path, delta and confidence"),
        ({"effects": [Effect("", "b")]}, "printable"),
        ({"effects": [Effect("a", "b\n")]}, "printable"),
        ({"effects": [Effect("a" * 257, "b")]}, "256"),
        ({"effects": [{"domain": 1, "path": "b"}]}, "printable"),
        ({"effects": [Effect("a", "b", 0)]}, "delta"),
        ({"effects": [Effect("a", "b", True)]}, "delta"),
        ({"effects": [Effect("a", "b", float("nan"))]}, "delta"),
        ({"effects": [{"domain": "a", "path": "b", "delta": "1"}]}, "delta"),
        ({"effects": [Effect("a", "b", 1, 1.1)]}, "confidence"),
        ({"effects": [Effect("a", "b", 1, float("nan"))]}, "confidence"),
        ({"effects": [{"domain": "a", "path": "b", "confidence": "high"}]}, "confidence"),
        ({"effects": [Effect("a", "b"), Effect("a", "b", -1)]}, "declared twice"),
    ],
)
def test_what_cannot_be_is_said_at_once(about: dict[str, Any], complaint: str) -> None:
    agent = Agent("under test")
    with pytest.raises(Misuse, match=complaint):
        agent.skill(**about)(plain)
    assert agent.skills == {}


def test_the_card_gives_the_schema_of_typed_parameters() -> None:
    agent = Agent("desk")

    @agent.skill
    async def plan(city: str, days: int = 2) -> str:
        return city * days

    @agent.skill
    async def shout(text: str) -> str:
        return text.upper()

    (extension,) = agent.extensions
    assert (extension.uri, extension.required) == (SKILL_PARAMETERS, False)
    assert extension.params is not None
    assert list(extension.params["skills"]) == ["plan"]
    schema = extension.params["skills"]["plan"]["schema"]
    assert schema["properties"] == {"city": {"type": "string"}, "days": {"type": "integer", "default": 2}}
    assert schema["required"] == ["city"]


UP, DOWN = Effect("shop", "open", 1, 0.5), Effect("shop", "stock", -2)


@pytest.mark.parametrize(
    ("changes", "missing", "undeclared"),
    [
        ([("open", 1, "inc"), ("stock", -7, "inc")], [], []),
        ([("stock", -0.5, "inc"), ("open", 1, "inc"), ("open", 3, "inc")], [], []),
        ([], ["shop:open+", "shop:stock-"], []),
        ([("open", 1, "inc")], ["shop:stock-"], []),
        ([("open", -1, "inc"), ("stock", -1, "inc")], ["shop:open+"], ["shop:open-"]),
        ([("open", 1, "inc"), ("stock", -1, "inc"), ("sold", 1, "inc")], [], ["shop:sold+"]),
        ([("open", "yes", "set"), ("stock", "x", "push")], [], []),
        ([("open", -1, "inc"), ("open", 5, "set"), ("stock", -1, "inc")], [], []),
        ([("open", 1, "inc"), ("stock", -1, "inc"), ("labels", "x", "push")], [], ["shop:labels"]),
        # Back and forth is no change.
        ([("open", 1, "inc"), ("open", -1, "inc"), ("stock", -1, "inc")], ["shop:open+"], []),
        ([("open", 1, "inc"), ("stock", -1, "inc"), ("sold", 0, "inc")], [], []),
    ],
)
def test_compare(changes: list[tuple[str, Any, str]], missing: list[str], undeclared: list[str]) -> None:
    made = [Change("shop", path, value, op) for path, value, op in changes]
    assert compare([UP, DOWN], made) == (tuple(missing), tuple(undeclared))


def test_the_domain_counts() -> None:
    assert compare([UP], [Change("mill", "open", 1)]) == (("shop:open+",), ("mill:open+",))


def shop() -> Agent:
    agent = Agent("shop")

    @agent.skill(effects=[UP, DOWN], default=True)
    async def sell(turn: Turn) -> str:
        for path, value in (word.split("=") for word in turn.text.split()):
            turn.effect("shop", path, int(value))
        if turn.metadata.get("fail"):
            turn.fail("sold out")
        if turn.metadata.get("finish"):
            turn.finish("sold")
        return "sold"

    @agent.skill
    async def give(turn: Turn) -> str:
        turn.effect("shop", "given")
        return "given"

    return agent


def lines(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.getMessage().startswith(event)]


def test_a_run_that_does_what_is_declared(caplog: pytest.LogCaptureFixture) -> None:
    async def talk(client: TestClient) -> None:
        await client.send("open=1 stock=-1")
        await client.send("open=1 stock=-1", metadata={"finish": True})
        assert client.drift == []

    drive(shop(), talk)
    assert lines(caplog, "effects.drift") == []


@pytest.mark.parametrize("how", [{}, {"finish": True}])
def test_a_run_that_does_not(caplog: pytest.LogCaptureFixture, how: dict[str, Any]) -> None:
    async def talk(client: TestClient) -> tuple[Any, list[EffectDrift]]:
        return await client.send("open=-1 stock=-1", metadata=how), client.drift

    task, (drifted,) = drive(shop(), talk)
    assert state(task) == "completed", "a warning, nothing more"
    assert drifted == EffectDrift(task["id"], "sell", ("shop:open+",), ("shop:open-",))
    assert lines(caplog, "effects.drift") == [
        f"effects.drift task={task['id']} skill=sell missing='shop:open+' undeclared='shop:open-'"
    ]


def test_it_is_judged_by_what_was_done_whatever_the_caller_wants_to_hear() -> None:
    async def talk(client: TestClient) -> None:
        client.headers["A2A-Extensions"] = "https://proto-labs.ai/a2a/ext/cost-v1"
        task = await client.send("open=1 stock=-1")
        assert "extensions" not in task["artifacts"][0]
        assert client.drift == []
        await client.send("open=1")
        assert [one.missing for one in client.drift] == [("shop:stock-",)]

    drive(shop(), talk)


def test_failed_runs_and_skills_without_a_declaration_do_not_drift() -> None:
    async def talk(client: TestClient) -> list[EffectDrift]:
        assert state(await client.send("open=1", metadata={"fail": True})) == "failed"
        assert state(await client.send("go", metadata={"skill": "give"})) == "completed"
        return client.drift

    assert drive(shop(), talk) == []


def test_it_is_counted_by_skill() -> None:
    agent, counted = shop(), list[str]()
    drift = DriftMonitor(counted.append)
    for number in range(DRIFTS_KEPT + 5):
        drift.check(agent.skills["sell"], f"task-{number}", RunReport(), success=True)
    assert counted == ["sell"] * (DRIFTS_KEPT + 5)
    assert len(drift.found) == DRIFTS_KEPT
    assert drift.found[-1].task_id == f"task-{DRIFTS_KEPT + 4}"


def _pay(turn: Turn) -> None:
    turn.usage(input_tokens=1)
    turn.confidence(1)


def test_what_a_helper_emits_is_sent_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent("under test")

    @agent.skill(emits=["confidence-v1"])
    async def act(turn: Turn) -> str:
        _pay(turn)
        if turn.text == "fail":
            turn.fail("no")
        return "paid"

    @agent.skill
    async def other(turn: Turn) -> str:
        _pay(turn)
        return "paid"

    async def talk(client: TestClient) -> list[Any]:
        tasks = [await client.send(text) for text in ("fail", "go", "go")]
        return [*tasks, await client.send("go", metadata={"skill": "other"})]

    with caplog.at_level(logging.WARNING, "trunkline.agent"):
        tasks = drive(agent, talk)
    # What failed has no result that they could stand beside.
    assert [uri.rpartition("/")[2] for uri in tasks[0]["metadata"]] == ["cost-v1", "confidence-v1"]
    assert all(len(task["artifacts"][0]["extensions"]) == 2 for task in tasks[1:])
    said = lines(caplog, "extension.undeclared")
    assert [line.split(" fix=")[0] for line in said] == [
        "extension.undeclared skill=act extension=cost-v1",
        "extension.undeclared skill=other extension=cost-v1",
        "extension.undeclared skill=other extension=confidence-v1",
    ]
    assert all("@agent.skill(emits=['" in line for line in said)
