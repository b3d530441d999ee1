"""What is posted: the task as it stood at the event, to where the target is now, with its proofs."""

from __future__ import annotations

import pytest

from tests.run.desk import run
from tests.run.mail import DONE, WORKING, Mail
from trunkline.clock import now_ms
from trunkline.log import events as ev
from trunkline.run.feed import Feed
from trunkline.run.notification import NotificationComposer, OutgoingNotification
from trunkline.store.records import Delivery
from trunkline.wire.types import Artifact, Message, Part, PushConfig, Role, TaskState

URL = "https://hooks.example/a"
ASKS = ev.Status(
    TaskState.INPUT_REQUIRED, Message(message_id="q", role=Role.AGENT, parts=(Part(text="which?"),))
)


def made(text: str) -> ev.Chunk:
    return ev.Chunk(Artifact("answer", parts=(Part(text=text),)))


async def written(m: Mail, feed: Feed, seq: int, *, held: bool = True) -> OutgoingNotification:
    if not held:
        m.tasks._feeds.clear()
    delivery = Delivery(f"d-{seq}", "t", feed.state.task_id, seq, URL, "", 0, 0)
    letter = await m.composer.write(delivery)
    assert letter is not None
    return letter


def body_of(letter: OutgoingNotification) -> str:
    return letter.body.decode()


@pytest.mark.parametrize("held", [True, False])
def test_the_moment_of_the_event_counts_however_far_the_task_is(held: bool) -> None:
    async def scene() -> None:
        m = Mail()
        await m.store.open()
        feed = await m.open(URL)
        await m.say(feed, WORKING, made("a draft"), ASKS)
        await m.say(feed, WORKING, made("the end"), DONE)
        working = await written(m, feed, 3, held=held)
        assert (working.state, working.last) == ("working", False)
        assert '"TASK_STATE_WORKING"' in body_of(working) and "draft" not in body_of(working)
        asked = await written(m, feed, 5, held=held)
        assert asked.state == "input-required"
        assert "which?" in body_of(asked) and "the end" not in body_of(asked)
        ended = await written(m, feed, 8, held=held)
        assert (ended.state, ended.last) == ("completed", True)
        assert '"TASK_STATE_COMPLETED"' in body_of(ended) and "the end" in body_of(ended)
        await m.store.close()

    run(scene())


def test_the_whole_task_is_that_of_the_moment_too() -> None:
    async def scene() -> None:
        m = Mail(whole=True)
        await m.store.open()
        feed = await m.open(URL)
        await m.say(feed, WORKING, made("a draft"), ASKS)
        await m.say(feed, WORKING, made("the end"), DONE)
        assert "draft" not in body_of(await written(m, feed, 3))
        assert "a draft" in body_of(await written(m, feed, 5))
        assert "the end" in body_of(await written(m, feed, 8))
        await m.store.close()

    run(scene())


def test_a_late_one_is_what_it_was_also_after_compaction() -> None:
    """1.7: under one webhook-id there is one body."""

    async def scene() -> None:
        m = Mail(whole=True)
        await m.store.open()
        feed = await m.open(URL)
        await m.say(feed, WORKING)
        for number in range(40):
            await m.say(feed, ev.Delta("answer", f"draft {number} "))
        await m.say(feed, ASKS)
        asked = feed.state.seq
        await m.say(feed, WORKING)
        for number in range(40):
            await m.say(feed, ev.Delta("answer", f"more {number} "))
        await m.say(feed, DONE)
        before = [body_of(await written(m, feed, seq, held=False)) for seq in (3, asked, feed.state.seq)]
        assert await m.store.maintenance.compact(m.clock.ms + 1) == 1
        after = [body_of(await written(m, feed, seq, held=False)) for seq in (3, asked, feed.state.seq)]
        assert after == before and "draft 39" in after[1] and "more" not in after[1]
        await m.store.close()

    run(scene())


def test_a_config_that_was_deleted_and_set_again_inherits_nothing() -> None:
    """1.19: what was due to the one before is told to nobody; one that was only replaced gets it."""

    async def scene() -> None:
        m = Mail()
        await m.store.open()
        feed = await m.open(URL)
        await m.say(feed, WORKING)
        due = Delivery("d", "t", feed.state.task_id, feed.state.seq, URL, "", 0, 0)
        await m.set(feed, PushConfig("https://hooks.example/replaced", URL))
        assert (await written(m, feed, due.seq)).target.url == "https://hooks.example/replaced"
        await m.push.delete(feed, URL, "me")
        await m.set(feed, PushConfig("https://hooks.example/another", URL))
        assert await m.composer.write(due) is None
        await m.say(feed, ASKS)
        assert (await written(m, feed, feed.state.seq)).target.url == "https://hooks.example/another"
        await m.store.close()

    run(scene())


@pytest.mark.parametrize("end", [(WORKING, made("the end"), DONE), (WORKING, ASKS)], ids=["ended", "asks"])
def test_whoever_came_late_hears_how_it_stands(end: tuple[ev.AnyEvent, ...]) -> None:
    async def scene() -> None:
        m = Mail()
        await m.store.open()
        feed = await m.open()
        await m.say(feed, *end)
        await m.set(feed, PushConfig(URL, URL))
        body = body_of(await written(m, feed, feed.state.seq))
        assert ("the end" in body) is (end[-1] is DONE)
        assert ("which?" in body) is (end[-1] is ASKS)
        if end[-1] is ASKS:
            # However far it has come when it is posted.
            seq = feed.state.seq
            await m.say(feed, WORKING, made("the end"), DONE)
            assert body_of(await written(m, feed, seq)) == body
        await m.store.close()

    run(scene())


@pytest.mark.parametrize("whole", [True, False])
def test_whoever_came_during_a_question_hears_the_question_also_when_all_is_over(whole: bool) -> None:
    async def scene() -> None:
        m = Mail(whole=whole)
        await m.store.open()
        feed = await m.open()
        await m.say(feed, WORKING, ASKS)
        await m.set(feed, PushConfig(URL, URL))
        came = feed.state.seq
        await m.say(feed, WORKING, made("the end"), DONE)
        letter = await written(m, feed, came)
        assert (letter.state, letter.last) == ("input-required", False)
        assert "which?" in body_of(letter) and "the end" not in body_of(letter)
        await m.store.close()

    run(scene())


def test_a_direct_answer_is_told_with_its_text() -> None:
    async def scene() -> None:
        m = Mail()
        await m.store.open()
        feed = await m.open(URL)
        await m.say(feed, ev.Replied(Message(message_id="r", role=Role.AGENT, parts=(Part(text="just so"),))))
        letter = await written(m, feed, 3)
        assert (letter.state, letter.last) == ("completed", True)
        assert "just so" in body_of(letter)
        await m.store.close()

    run(scene())


def test_metadata_of_a_status_is_told() -> None:
    async def scene() -> None:
        m = Mail()
        await m.store.open()
        feed = await m.open(URL)
        await m.say(feed, ev.Status(TaskState.WORKING, metadata={"x": 1}))
        assert '"metadata":{"x":1}' in body_of(await written(m, feed, 3))
        await m.store.close()

    run(scene())


def test_nothing_is_written_for_who_is_gone() -> None:
    async def scene() -> None:
        m = Mail()
        await m.store.open()
        feed = await m.open(URL)
        await m.say(feed, WORKING)
        delivery = Delivery("d", "t", feed.state.task_id, 3, URL, "", 0, 0)
        assert await m.composer.write(delivery) is not None
        unknown = Delivery("d", "t", "01980000-0000-7000-8000-000000000000", 3, URL, "", 0, 0)
        assert await m.composer.write(unknown) is None
        # Forgotten by the store, while somebody still holds it.
        beyond = Delivery("d", "t", feed.state.task_id, 9, URL, "", 0, 0)
        assert await m.composer.write(beyond) is None
        await m.push.delete(feed, URL, "me")
        assert await m.composer.write(delivery) is None
        await m.store.close()

    run(scene())


TOKEN, BEARER = "X-A2A-Notification-Token", "Authorization"


@pytest.mark.parametrize(
    ("version", "config", "proofs"),
    [
        ("1.0", PushConfig(URL, URL), {}),
        ("0.3", PushConfig(URL, URL), {}),
        # A scheme without credentials proves nothing.
        ("1.0", PushConfig(URL, URL, scheme="Bearer"), {}),
        ("1.0", PushConfig(URL, URL, "tok"), {BEARER: "Bearer tok", TOKEN: "tok"}),
        ("0.3", PushConfig(URL, URL, "tok"), {BEARER: "Bearer tok", TOKEN: "tok"}),
        ("1.0", PushConfig(URL, URL, "", "Basic", "cred"), {BEARER: "Basic cred"}),
        ("0.3", PushConfig(URL, URL, "", "Bearer", "cred"), {BEARER: "Bearer cred"}),
        ("0.3", PushConfig(URL, URL, "", "", "cred"), {BEARER: "Bearer cred"}),
        ("1.0", PushConfig(URL, URL, "tok", "Basic", "cred"), {BEARER: "Basic cred", TOKEN: "tok"}),
        ("0.3", PushConfig(URL, URL, "tok", "Bearer", "cred"), {BEARER: "Bearer tok", TOKEN: "tok"}),
    ],
)
def test_what_shows_the_receiver_that_it_is_us(
    version: str, config: PushConfig, proofs: dict[str, str]
) -> None:
    signed: list[tuple[str, int, bytes]] = []

    def sign(webhook_id: str, moment: int, body: bytes) -> str:
        signed.append((webhook_id, moment, body))
        return "v1a,signature"

    async def scene() -> None:
        m = Mail()
        m.composer = NotificationComposer(m.tasks, m.vault, sign, whole=())
        await m.store.open()
        feed = await m.open()
        await m.set(feed, config, version)
        await m.say(feed, WORKING)
        letter = await written(m, feed, 3)
        headers = dict(letter.headers)
        assert {name: value for name, value in headers.items() if name in (TOKEN, BEARER)} == proofs
        assert len(headers) == len(letter.headers)
        assert (headers["Content-Type"], headers["A2A-Version"]) == ("application/json", version)
        ((webhook_id, moment, body),) = signed
        assert (webhook_id, body) == (headers["webhook-id"], letter.body)
        assert headers["webhook-timestamp"] == str(moment)
        assert abs(moment - now_ms() / 1000) < 10
        assert headers["webhook-signature"] == "v1a,signature"
        await m.store.close()

    run(scene())
