"""Which skill takes a message, and mistakes that are told to the author."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.agent.drive import drive, field_of, parts, refusal, send, state, stream, text
from trunkline import Agent, Misuse, Turn
from trunkline.agent.testing import CallFailed, TestClient


@pytest.fixture
def agent() -> Agent:
    agent = Agent("under test")

    @agent.skill
    def first(text: str) -> str:
        return f"first: {text}"

    @agent.skill(id="second-one")
    def second(text: str) -> str:
        return f"second: {text}"

    @agent.skill
    def add(a: int, b: int) -> int:
        return a + b

    @agent.skill
    def name(given: str, family: str) -> str:
        return f"{given} {family}"

    return agent


def test_the_first_skill_takes_what_names_none(agent: Agent) -> None:
    assert text(send(agent, "hi")) == "first: hi"


def test_the_skill_marked_default_takes_it(agent: Agent) -> None:
    @agent.skill(default=True)
    def third(text: str) -> str:
        return f"third: {text}"

    assert text(send(agent, "hi")) == "third: hi"


@pytest.mark.parametrize("name", ["skillHint", "skill", "skillId"])
@pytest.mark.parametrize("place", ["message", "params"])
def test_metadata_names_the_skill(agent: Agent, name: str, place: str) -> None:
    async def talk(client: TestClient) -> Any:
        message: dict[str, Any] = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        given: dict[str, Any] = {"message": message}
        (message if place == "message" else given)["metadata"] = {name: "second-one"}
        return (await client.call("SendMessage", given))["task"]

    assert text(drive(agent, talk)) == "second: hi"


def test_the_hint_of_the_message_goes_before_that_of_the_request(agent: Agent) -> None:
    async def talk(client: TestClient) -> Any:
        message = {
            "messageId": "m",
            "role": "ROLE_USER",
            "parts": [{"text": "hi"}],
            "metadata": {"skill": "second-one"},
        }
        return (await client.call("SendMessage", {"message": message, "metadata": {"skill": "first"}}))[
            "task"
        ]

    assert text(drive(agent, talk)) == "second: hi"


@pytest.mark.parametrize("name", ["skill", "skillId"])
@pytest.mark.parametrize("wanted", ["third", "", 5, ["first"], {"id": "first"}, True])
def test_an_unknown_skill_is_a_clear_error(agent: Agent, name: str, wanted: object) -> None:
    error = refusal(agent, "hi", metadata={name: wanted, "skillHint": "second-one"})
    assert error["code"] == -32602
    assert field_of(error) == f"message.metadata.{name}"
    assert "first, second-one, add, name" in error["message"]


@pytest.mark.parametrize("metadata", [{"skillHint": "chat"}, {"skillHint": "chat", "skill": "chat"}])
def test_a_hint_that_names_no_skill_is_none(
    agent: Agent, metadata: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "trunkline.agent")
    assert text(send(agent, "hi", metadata=metadata)) == "first: hi"
    assert "skill.hint.unknown agent='under test' hint='chat'" in caplog.text


def test_the_name_of_a_skill_goes_before_a_hint(agent: Agent) -> None:
    metadata = {"skillHint": "first", "skill": "second-one"}
    assert text(send(agent, "hi", metadata=metadata)) == "second: hi"
    # Our own client says both; what a caller names by an argument is no hint.
    assert refusal(agent, "hi", metadata={"skillHint": "third", "skillId": "third"})["code"] == -32602


def test_no_task_is_made_for_an_unknown_skill(agent: Agent) -> None:
    async def talk(client: TestClient) -> Any:
        with pytest.raises(CallFailed):
            await client.send("hi", metadata={"skill": "third"})
        with pytest.raises(CallFailed):
            [frame async for frame in client.stream("hi", metadata={"skill": "third"})]
        return await client.list()

    assert drive(agent, talk)["totalSize"] == 0


def test_a_data_part_finds_the_skill_that_it_fits(agent: Agent) -> None:
    assert parts(send(agent, [{"data": {"a": 1, "b": 2}}])) == [{"data": 3}]
    assert parts(send(agent, [{"data": {"given": "Ada", "family": "L"}}])) == [{"text": "Ada L"}]


def test_a_name_goes_before_a_fitting_data_part(agent: Agent) -> None:
    error = refusal(agent, [{"data": {"a": 1, "b": 2}}], metadata={"skill": "name"})
    assert error["code"] == -32602
    assert "given" in error["message"]


def test_a_data_part_that_fits_nobody_is_refused_by_the_default_skill(agent: Agent) -> None:
    error = refusal(agent, [{"data": {"c": 1}}])
    assert error["code"] == -32602
    assert field_of(error) == "message.parts"
    assert "skill first reads text/plain" in error["message"]


def test_a_media_type_that_nobody_reads(agent: Agent) -> None:
    error = refusal(agent, [{"raw": "aGk=", "mediaType": "image/png"}])
    assert error["code"] == -32005
    assert field_of(error) == "message.parts[0]"
    assert "image/png" in error["message"]


SEEN = [{"text": "see"}, {"raw": "aGk=", "mediaType": "image/png"}, {"data": {}, "mediaType": "a/b"}]


def test_what_is_not_read_beside_what_is_comes_as_it_was() -> None:
    agent = Agent("under test")

    @agent.skill
    async def read(turn: Turn) -> list[Any]:
        return [turn.text, *[part.media_type for part in turn.request.parts]]

    assert parts(send(agent, SEEN)) == [{"data": ["see", "", "image/png", "a/b"]}]


def test_what_is_not_read_beside_what_is_may_be_refused() -> None:
    agent = Agent("under test", unread_parts="refuse")

    @agent.skill
    def read(text: str) -> str:
        return text

    error = refusal(agent, SEEN)
    assert (error["code"], field_of(error)) == (-32005, "message.parts[1]")


def test_data_beside_text_goes_to_who_reads_the_text() -> None:
    agent = Agent("under test")

    @agent.skill
    def first(text: str) -> str:
        return f"first: {text}"

    @agent.skill
    def add(a: int, b: int) -> int:
        return a + b

    assert text(send(agent, [{"text": "hi"}, {"data": {"task": "hi"}}])) == "first: hi"


def test_what_is_not_read_does_not_choose_the_skill(agent: Agent) -> None:
    @agent.skill
    def anything(wish: str = "none") -> str:
        return f"anything: {wish}"

    assert text(send(agent, SEEN)) == "first: see"


@pytest.mark.parametrize(
    ("modes", "part"),
    [
        (["image/*"], {"raw": "aGk=", "mediaType": "image/png"}),
        (["*/*"], {"raw": "aGk=", "mediaType": "application/pdf"}),
        (["application/pdf"], {"url": "https://example.com/a"}),
        (["text/markdown"], {"text": "plain is text too"}),
        (["text/plain"], {"text": "# so is this", "mediaType": "text/markdown"}),
        (["application/json"], {"data": 5}),
        (["application/json"], {"data": 5, "mediaType": "application/json; charset=utf-8"}),
    ],
)
def test_input_modes_that_cover(modes: list[str], part: dict[str, Any]) -> None:
    agent = Agent("under test", input_modes=modes)

    @agent.skill
    async def read(turn: Turn) -> str:
        return "read"

    assert text(send(agent, [part])) == "read"


@pytest.mark.parametrize(
    ("modes", "part", "code"),
    [
        (["image/*"], {"raw": "aGk=", "mediaType": "audio/mp3"}, -32005),
        (["text/plain"], {"data": 5}, -32602),
        (["text/plain"], {"url": "https://example.com/a"}, -32602),
        (["image/png"], {"text": "no picture"}, -32602),
    ],
)
def test_input_modes_that_do_not(modes: list[str], part: dict[str, Any], code: int) -> None:
    agent = Agent("under test", input_modes=modes)

    @agent.skill
    async def read(turn: Turn) -> str:
        return "read"

    assert refusal(agent, [part])["code"] == code


def test_two_skills_with_one_id(agent: Agent) -> None:
    with pytest.raises(Misuse, match="agent under test has two skills 'first'; give one of them another id="):

        @agent.skill(id="first")
        def another(text: str) -> str:
            return text


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "bell\a"])
def test_an_agent_needs_a_name(name: str) -> None:
    with pytest.raises(Misuse, match="printable name"):
        Agent(name)


def test_an_agent_without_skills_says_so() -> None:
    with pytest.raises(Misuse, match="agent empty has no skill; decorate a function with @agent.skill"):
        send(Agent("empty"), "hi")


def test_unknown_settings_are_named() -> None:
    with pytest.raises(Misuse, match="colour"):
        Agent("odd", colour="red").asgi()
    with pytest.raises(Misuse, match="keep_alive"):
        Agent("odd").asgi(keep_alive="often")


def test_the_decorator_gives_the_function_back(agent: Agent) -> None:
    def plain(text: str) -> str:
        return text

    assert agent.skill(plain) is plain
    assert agent.skill(id="again")(plain) is plain


def test_streaming_can_be_switched_off() -> None:
    agent = Agent("mute", streaming=False)

    @agent.skill
    def echo(text: str) -> str:
        return text

    with pytest.raises(CallFailed) as caught:
        stream(agent, "hi")
    assert caught.value.error["code"] == -32004
    assert text(send(agent, "hi")) == "hi"


def test_each_test_client_starts_from_nothing(agent: Agent) -> None:
    async def count(client: TestClient) -> int:
        await client.send("hi")
        return (await client.list())["totalSize"]

    assert [drive(agent, count), drive(agent, count)] == [1, 1]


def test_a_task_of_a_skill_that_is_gone(agent: Agent, tmp_path: Any) -> None:
    store = f"sqlite:///{tmp_path}/tasks.db"

    @agent.skill
    async def asks(turn: Turn) -> str:
        return await turn.ask("Well?")

    asked = send(agent, "go", {"store": store}, metadata={"skill": "asks"})
    assert state(asked) == "input-required"
    del agent.skills["asks"]
    task = send(agent, "an answer", {"store": store}, taskId=asked["id"])
    assert state(task) == "failed"
    assert "no longer has the skill asks" in task["status"]["message"]["parts"][0]["text"]
