"""What a task knows of its context: the tasks before it, in the order of their birth."""

from __future__ import annotations

from tests.run.desk import DONE, delta, desk, question, run, said
from trunkline.log import events as ev
from trunkline.run import conversation
from trunkline.run.executor import Verdict, Work
from trunkline.wire.types import Message, TaskState


def words(messages: tuple[Message, ...]) -> list[str]:
    return ["".join(part.text or "" for part in message.parts) for message in messages]


def test_the_conversation_before_a_task() -> None:
    heard: list[list[str]] = []

    async def act(work: Work) -> Verdict:
        text = words((work.state.message,))[0]
        heard.append(words(work.earlier))
        if text == "ask":
            await work.ask(question("what?"))
        if text == "fail":
            return ev.Status(TaskState.FAILED, said("no luck"))
        await work.emit(delta(f"did {text}"))
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            for text in ("one", "fail", "ask", "two"):
                feed = await runner.open(text, context_id="c")
                await runner.tasks.rest(feed, 5)
                if text == "ask":
                    await runner.say(feed, said("that"))
                await runner.ended(feed)
            alone = await runner.open("alone", context_id="d")
            await runner.ended(alone)
        before = ["one", "did one", "fail", "no luck"]
        assert heard == [[], before[:2], before, [*before, "ask", "what?", "that", "did ask"], []]

    run(main())


def test_only_so_many_tasks_are_looked_at() -> None:
    heard: list[list[str]] = []

    async def act(work: Work) -> Verdict:
        heard.append(words(work.earlier))
        return DONE

    async def main() -> None:
        async with desk(act) as runner:
            for number in range(conversation.TASKS + 5):
                await runner.ended(await runner.open(str(number), context_id="c"))
        assert heard[-1] == [str(n) for n in range(4, conversation.TASKS + 4)]

    run(main())
