"""The turn: what a skill is told, and everything it may say."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

import pytest
from msgspec.structs import replace

from tests.agent.drive import begin, drive, parts, pieces, said, send, state, stream, text, until
from trunkline import Agent, Misuse, SyncTurn, Turn
from trunkline.agent.testing import TestClient
from trunkline.wire.types import Message

Body = Callable[[Turn], Awaitable[object]]
EVERYTHING = ["text/plain", "application/json", "image/png"]


def doing(body: Body) -> Agent:
    agent = Agent("under test", input_modes=EVERYTHING)

    @agent.skill
    async def work(turn: Turn) -> object:
        return await body(turn)

    return agent


def test_a_turn_names_the_work_that_the_headers_name() -> None:
    found: list[tuple[str, str, str]] = []

    async def body(turn: Turn) -> object:
        found.append((turn.task_id, turn.correlation_id, turn.parent_id))
        return "done"

    async def main() -> None:
        async with doing(body).test_client() as client:
            client.headers = {"x-correlation-id": "co", "x-parent-id": "pa"}
            await client.send("go")
            client.headers = {}
            await client.send("go")

    asyncio.run(main())
    given, (own_id, correlation_id, parent_id) = found
    assert given[1:] == ("co", "pa")
    assert (correlation_id, parent_id) == (own_id, "")


CONTENT = [
    {"text": "one"},
    {"data": {"n": 1}},
    {"text": "two"},
    {"raw": "aGk=", "mediaType": "image/png", "filename": "hi.png"},
    {"url": "https://example.com/a.png", "mediaType": "image/png"},
    {"data": None},
    {"text": ""},
]


def test_what_a_turn_is_told() -> None:
    async def body(turn: Turn) -> object:
        return {
            "text": turn.text,
            "data": turn.data,
            "files": [[part.raw, part.url, part.filename, part.media_type] for part in turn.files],
            "metadata": turn.metadata,
            "skill": turn.skill,
            "caller": turn.caller,
            "ids": [turn.task_id, turn.context_id, turn.request.message_id],
        }

    task = send(doing(body), CONTENT, contextId="ctx-1", messageId="msg-1", metadata={"a": 1})
    assert parts(task)[0]["data"] == {
        "text": "one\ntwo\n",
        "data": [{"n": 1}, None],
        "files": [
            ["aGk=", None, "hi.png", "image/png"],
            [None, "https://example.com/a.png", "", "image/png"],
        ],
        "metadata": {"a": 1},
        "skill": "work",
        "caller": "anonymous",
        "ids": [task["id"], "ctx-1", "msg-1"],
    }


def test_a_message_without_text_has_an_empty_text() -> None:
    async def body(turn: Turn) -> object:
        return [turn.text, len(turn.files)]

    assert parts(send(doing(body), CONTENT[3:4])) == [{"data": ["", 1]}]


def test_metadata_of_the_message_lies_on_top_and_output_modes_are_told() -> None:
    async def body(turn: Turn) -> object:
        return [turn.metadata, list(turn.output_modes)]

    async def talk(client: TestClient) -> Any:
        message = {
            "messageId": "m",
            "role": "ROLE_USER",
            "parts": [{"text": "go"}],
            "metadata": {"a": "message", "b": 1},
        }
        given = {
            "message": message,
            "metadata": {"a": "request", "c": 2},
            "configuration": {"acceptedOutputModes": ["text/plain"]},
        }
        return (await client.call("SendMessage", given))["task"]

    assert parts(drive(doing(body), talk)) == [{"data": [{"a": "message", "b": 1, "c": 2}, ["text/plain"]]}]


def heard(messages: tuple[Message, ...]) -> list[str]:
    return [
        f"{one.role.name if one.role else ''}: {'|'.join(part.text or '' for part in one.parts)}"
        for one in messages
    ]


def test_history_across_the_tasks_of_a_context() -> None:
    async def body(turn: Turn) -> object:
        if turn.text == "tell":
            return heard(turn.history)
        return f"answer to {turn.text}"

    async def talk(client: TestClient) -> Any:
        await client.send("elsewhere", contextId="other")
        await client.send("first", contextId="ours")
        await client.send("second", contextId="ours")
        return await client.send("tell", contextId="ours")

    assert parts(drive(doing(body), talk))[0]["data"] == [
        "USER: first", "AGENT: answer to first", "USER: second", "AGENT: answer to second", "USER: tell",
    ]  # fmt: skip


def test_history_holds_questions_and_answers() -> None:
    async def body(turn: Turn) -> object:
        if turn.text == "tell":
            return heard(turn.history)
        first = await turn.ask("Which?")
        second = await turn.ask("Sure?")
        return heard(turn.history) + [first, second]

    async def talk(client: TestClient) -> Any:
        asked = await client.send("go", contextId="c")
        await client.send("this", taskId=asked["id"])
        done = await client.send("yes", taskId=asked["id"])
        return done, await client.send("tell", contextId="c")

    done, told = drive(doing(body), talk)
    within = ["USER: go", "AGENT: Which?", "USER: this", "AGENT: Sure?", "USER: yes"]
    assert parts(done)[0]["data"] == [*within, "this", "yes"]
    assert parts(told)[0]["data"][:5] == within


def test_history_of_a_failed_task_tells_why() -> None:
    async def body(turn: Turn) -> object:
        if turn.text == "tell":
            return heard(turn.history)
        turn.fail("no such page")

    async def talk(client: TestClient) -> Any:
        await client.send("go", contextId="c")
        return await client.send("tell", contextId="c")

    assert parts(drive(doing(body), talk))[0]["data"] == ["USER: go", "AGENT: no such page", "USER: tell"]


def test_ask_waits_for_the_answer() -> None:
    async def body(turn: Turn) -> object:
        await turn.write("before, ")
        answer = await turn.ask("Which one?")
        await turn.write(answer)
        return turn.written

    async def talk(client: TestClient) -> Any:
        asked = await client.send("go")
        assert (state(asked), said(asked), text(asked)) == ("input-required", "Which one?", "before, ")
        return await client.send([{"text": "the"}, {"text": "left"}], taskId=asked["id"])

    task = drive(doing(body), talk)
    assert (state(task), text(task)) == ("completed", "before, the\nleft")


def test_ask_message_gives_the_whole_answer() -> None:
    async def body(turn: Turn) -> object:
        answer = await turn.ask_message("Which file?")
        return [answer.message_id, answer.parts[0].url]

    async def talk(client: TestClient) -> Any:
        asked = await client.send("go")
        return await client.send([{"url": "https://example.com/f"}], taskId=asked["id"], messageId="answer-1")

    assert parts(drive(doing(body), talk)) == [{"data": ["answer-1", "https://example.com/f"]}]


def test_need_auth() -> None:
    async def body(turn: Turn) -> object:
        answer = await turn.need_auth("Please log in.")
        return answer.parts[0].text

    async def talk(client: TestClient) -> Any:
        asked = await client.send("go")
        assert (state(asked), said(asked)) == ("auth-required", "Please log in.")
        return await client.send("token", taskId=asked["id"])

    assert text(drive(doing(body), talk)) == "token"


def test_a_login_that_is_refused_is_not_taken_for_one() -> None:
    async def body(turn: Turn) -> object:
        await turn.need_auth("Please log in.")
        raise AssertionError("not reached")

    async def talk(client: TestClient) -> Any:
        asked = await client.send("go")
        return await client.send([{"data": {"rejected": True, "text": "no account"}}], taskId=asked["id"])

    ended = drive(doing(body), talk)
    assert (state(ended), said(ended)) == ("failed", "no account")


@pytest.mark.parametrize(
    ("verdict", "expected"), [("reject", "rejected"), ("fail", "failed"), ("finish", "completed")]
)
def test_verdicts_end_the_function(verdict: str, expected: str) -> None:
    async def body(turn: Turn) -> object:
        await turn.write("kept, ")
        await turn.write("even held")
        getattr(turn, verdict)("because")
        raise AssertionError("not reached")

    task = send(doing(body), "go")
    assert (state(task), said(task), text(task)) == (expected, "because", "kept, even held")


def test_status_stays_until_the_next_word_and_carries_metadata() -> None:
    gate = asyncio.Event()

    async def body(turn: Turn) -> object:
        await turn.write("a")
        await turn.write("b")
        await turn.status("reading", {"step": 1})
        await gate.wait()
        return None

    async def talk(client: TestClient) -> Any:
        frames: list[Any] = []
        async for frame in client.stream("go"):
            frames.append(frame)
            if "statusUpdate" in frame and said(frame["statusUpdate"]):
                task = await client.get(frame["statusUpdate"]["taskId"])
                assert (state(task), said(task)) == ("working", "reading")
                assert text(task) == "ab", "what was written before is recorded before"
                gate.set()
        return frames, await client.get(task["id"])

    frames, task = drive(doing(body), talk)
    (told,) = [
        frame["statusUpdate"] for frame in frames if "statusUpdate" in frame and said(frame["statusUpdate"])
    ]
    assert told["metadata"] == {"step": 1}
    assert "message" not in task["status"]


def test_write_sends_the_first_delta_at_once_and_gathers_the_rest() -> None:
    async def body(turn: Turn) -> object:
        for letter in "abcdefghijklmnopqrstuvwxyz" * 2:
            await turn.write(letter)
        return turn.written

    # The clock is out of the game: only the count of characters sends anything.
    frames = stream(doing(body), "go", {"coalesce_milliseconds": 600_000})
    assert [len(piece) for piece in pieces(frames)] == [1, 24, 24, 3]
    assert "".join(pieces(frames)) == "abcdefghijklmnopqrstuvwxyz" * 2
    updates = [frame["artifactUpdate"] for frame in frames if "artifactUpdate" in frame]
    assert [update.get("append", False) for update in updates] == [False, True, True, False]
    assert [update.get("lastChunk", False) for update in updates] == [False, False, False, True]


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        ({"coalesce_characters": 10, "coalesce_milliseconds": 600_000}, [1, 10, 10, 5]),
        ({"coalesce_characters": 1}, [1] * 26),
        ({"coalesce_milliseconds": 0}, [1] * 26),
    ],
    ids=["ten characters", "one character", "no wait"],
)
def test_coalescing_is_a_setting(settings: dict[str, Any], sizes: list[int]) -> None:
    async def body(turn: Turn) -> object:
        for letter in "abcdefghijklmnopqrstuvwxyz":
            await turn.write(letter)
        return turn.written

    found = pieces(stream(doing(body), "go", settings))
    assert [len(piece) for piece in found if piece] == sizes


def test_coalescing_is_a_setting_of_the_agent_too() -> None:
    agent = Agent("under test", coalesce_characters=3, coalesce_milliseconds=600_000)

    @agent.skill
    async def work(turn: Turn) -> None:
        for letter in "abcdefg":
            await turn.write(letter)

    assert pieces(stream(agent, "go")) == ["a", "bcd", "efg", ""]


def test_held_text_goes_out_by_the_clock() -> None:
    gate = asyncio.Event()

    async def body(turn: Turn) -> object:
        await turn.write("at once, ")
        await turn.write("held, ")
        await turn.write("too")
        await gate.wait()
        return turn.written

    async def talk(client: TestClient) -> list[str]:
        found: list[Any] = []
        async for frame in client.stream("go"):
            found.append(frame)
            # Nothing but the timer can send the held text: the function waits for this.
            if "".join(pieces(found)) == "at once, held, too":
                gate.set()
        return pieces(found)

    assert drive(doing(body), talk)[:2] == ["at once, ", "held, too"]


def test_an_empty_write_says_nothing() -> None:
    async def body(turn: Turn) -> object:
        await turn.write("")
        return None

    assert "artifacts" not in send(doing(body), "go")


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"text": "words"}, {"text": "words"}),
        (
            {"text": "# words", "media_type": "text/markdown"},
            {"text": "# words", "mediaType": "text/markdown"},
        ),
        ({"data": {"a": [1, None]}}, {"data": {"a": [1, None]}}),
        ({"data": None}, {"data": None}),
        (
            {"file": b"\x00\xff", "filename": "f.bin", "media_type": "image/png"},
            {"raw": "AP8=", "filename": "f.bin", "mediaType": "image/png"},
        ),
        (
            {"file": "https://example.com/f", "filename": "f"},
            {"url": "https://example.com/f", "filename": "f"},
        ),
    ],
    ids=["text", "markdown", "data", "null", "bytes", "address"],
)
def test_artifact(given: dict[str, Any], part: dict[str, Any]) -> None:
    async def body(turn: Turn) -> object:
        await turn.artifact(name="Name", description="What it is", metadata={"m": 1}, **given)
        return None

    task = send(doing(body), "go")
    assert task["artifacts"] == [
        {
            "artifactId": "artifact-1",
            "name": "Name",
            "description": "What it is",
            "parts": [part],
            "metadata": {"m": 1},
        }
    ]


def test_artifact_that_grows() -> None:
    async def body(turn: Turn) -> object:
        await turn.write("text")
        await turn.write(" held")
        artifact_id = await turn.artifact(text="one", last=False)
        await turn.artifact(text="two", artifact_id=artifact_id, append=True)
        await turn.artifact(text="three", artifact_id=artifact_id, append=True, last=True)
        await turn.artifact(text="another")
        return turn.written

    frames = stream(doing(body), "go")
    updates = [frame["artifactUpdate"] for frame in frames if "artifactUpdate" in frame]
    shown = [
        (
            one["artifact"]["artifactId"],
            one["artifact"]["parts"][0]["text"],
            one.get("append", False),
            one.get("lastChunk", False),
        )
        for one in updates
    ]
    assert shown == [
        ("answer", "text", False, False),
        ("answer", " held", True, False),
        ("artifact-1", "one", False, False),
        ("artifact-1", "two", True, False),
        ("artifact-1", "three", True, True),
        ("artifact-2", "another", False, True),
        ("answer", "text held", False, True),
    ]


@pytest.mark.parametrize(
    ("say", "told"),
    [
        (lambda turn: turn.artifact(), "exactly one of text=, data= or file="),
        (lambda turn: turn.artifact(text="a", data=1), "exactly one of text=, data= or file="),
        (lambda turn: turn.effect("d", "p", op="multiply"), "effect op 'multiply' is none of set, inc, push"),
    ],
    ids=["no content", "two contents", "unknown op"],
)
def test_misuse_of_a_turn(say: Callable[[Turn], Any], told: str) -> None:
    caught: list[Misuse] = []

    async def body(turn: Turn) -> object:
        try:
            made = say(turn)
            if made is not None:
                await made
        except Misuse as misuse:
            caught.append(misuse)
            raise

    task = send(doing(body), "go")
    assert state(task) == "failed"
    assert told in str(caught[0])


def test_words_after_the_end_are_not_recorded() -> None:
    gate, over = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    async def body(turn: Turn) -> object:
        async def late() -> None:
            await gate.wait()
            try:
                await turn.status("after the end")
            except Exception as error:  # noqa: BLE001 - looked at below
                ended.append(type(error).__name__)
            over.set()

        turn.loop.create_task(late())  # noqa: RUF006 - what an author might forget
        return "done"

    async def talk(client: TestClient) -> Any:
        task = await client.send("go")
        gate.set()
        await over.wait()
        return task, await client.get(task["id"])

    task, later = drive(doing(body), talk)
    assert later == task
    assert ended == ["TurnOver"]


def test_working_is_seen_while_the_skill_is_silent() -> None:
    gate = asyncio.Event()

    async def body(turn: Turn) -> object:
        await gate.wait()
        return "done"

    async def talk(client: TestClient) -> Any:
        task = await begin(client, "go")
        await until(client, task["id"], "working")
        gate.set()
        return await until(client, task["id"], "completed")

    assert text(drive(doing(body), talk)) == "done"


@pytest.mark.parametrize("plain", [False, True])
def test_each_message_to_another_agent_has_its_share_of_the_chain(plain: bool) -> None:
    agent = Agent("under test")

    async def on_the_loop(turn: Turn) -> list[int]:
        return [turn.chain()["budget"] for _ in range(3)]

    def in_a_thread(turn: SyncTurn) -> list[int]:
        return [turn.chain()["budget"] for _ in range(3)]

    agent.skill(in_a_thread if plain else on_the_loop)

    async def talk(client: TestClient) -> Any:
        return await client.send("go"), await client.send("go", metadata={"trunkline.chain": {"budget": 2}})

    first, second = drive(agent, talk)
    assert parts(first) == [{"data": [63, 60, 56]}]
    assert state(second) == "failed", "one share was left, and it asked for three"


def parking(agent: Agent, talk: Callable[[TestClient, Any], Awaitable[Any]]) -> Any:
    """A conversation with an agent whose waits are parked after a moment."""

    async def with_app(client: TestClient) -> Any:
        node = client._inside._app.host.runner._node  # type: ignore[attr-defined]
        node.limits = replace(node.limits, park_after_s=0.02)
        return await talk(client, client._inside._app)

    return drive(agent, with_app)


async def _parked(app: Any, task_id: str) -> None:
    heads = app.host.store.heads
    while (head := await heads.get("default", task_id)) is None or head.node or app.host.runner.running:  # noqa: ASYNC110
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("sync", [False, True])
def test_a_sleep_keeps_its_moment_when_its_run_is_dropped(sync: bool) -> None:
    agent = Agent("sleeper", on_crash="resume")
    begun: list[float] = []

    @agent.skill(id="soon")
    async def soon(turn: Turn) -> str:
        begun.append(monotonic())
        await turn.write("a")
        await turn.sleep(0.3)
        await turn.write("b")
        await turn.sleep(0)
        return turn.written

    @agent.skill(id="later")
    def later(turn: SyncTurn) -> str:
        begun.append(monotonic())
        turn.write("a")
        turn.sleep(0.3)
        turn.write("b")
        turn.sleep(0)
        return turn.written

    async def talk(client: TestClient, app: Any) -> Any:
        skill = "later" if sync else "soon"
        sent = asyncio.create_task(client.send("go", metadata={"skillHint": skill}))
        while not (found := (await client.list())["tasks"]):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        await _parked(app, found[0]["id"])
        task = await sent
        assert state(task) == "completed" and text(task) == "ab"
        assert len(begun) == 2
        assert monotonic() - begun[0] > 0.25

    parking(agent, talk)


@pytest.mark.parametrize("sync", [False, True])
def test_a_question_of_a_skill_that_can_be_resumed_is_parked(sync: bool) -> None:
    agent = Agent("asker", on_crash="resume")
    runs: list[str] = []

    @agent.skill(id="soon")
    async def soon(turn: Turn) -> str:
        runs.append("run")
        return "got " + await turn.ask("which?")

    @agent.skill(id="later")
    def later(turn: SyncTurn) -> str:
        runs.append("run")
        return "got " + turn.ask("which?")

    async def talk(client: TestClient, app: Any) -> Any:
        task = await client.send("go", metadata={"skillHint": "later" if sync else "soon"})
        await _parked(app, task["id"])
        task = await client.send("this", taskId=task["id"])
        assert state(task) == "completed" and text(task) == "got this"
        assert len(runs) == 2

    parking(agent, talk)


def test_a_question_from_a_thread_of_the_authors_own_is_not_parked() -> None:
    agent = Agent("threads", on_crash="resume")
    runs: list[str] = []

    @agent.skill
    def spread(turn: SyncTurn) -> str:
        runs.append("run")
        got: list[str] = []
        thread = threading.Thread(target=lambda: got.append(turn.ask("which?")))
        thread.start()
        thread.join()
        return got[0]

    async def talk(client: TestClient, app: Any) -> Any:
        task = await client.send("go")
        await asyncio.sleep(0.1)
        assert app.host.runner.running == 1
        assert text(await client.send("this", taskId=task["id"])) == "this"
        assert runs == ["run"]

    parking(agent, talk)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "3", 10**12])
def test_a_sleep_of_no_length_is_refused(seconds: Any) -> None:
    async def body(turn: Turn) -> object:
        with pytest.raises(Misuse, match="a sleep takes"):
            await turn.sleep(seconds)
        return "awake"

    assert text(send(doing(body), "go")) == "awake"
