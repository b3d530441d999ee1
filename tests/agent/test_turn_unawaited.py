"""A call of a turn, or of an async function of the author, that is never awaited fails its task with the line."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest

from tests.agent.drive import send, state, text
from trunkline import Agent, Turn

Body = Callable[[Turn], Awaitable[object]]
# Async methods that only the runtime calls, and awaits.
_INTERNAL = {"keep_spent", "keep", "keep_untold", "recall", "wait_as_main"}


def run(body: Body, caplog: pytest.LogCaptureFixture) -> tuple[str, str]:
    """The state of a task whose skill does this, and what the log says of it."""
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> object:
        return await body(turn)

    with caplog.at_level(logging.ERROR):
        task = send(agent, "go", {"dev": True})
    return state(task), caplog.text + str(task["status"])


def here(offset: int) -> str:
    """A line of the calling test, as an error names it."""
    caller = inspect.stack()[1]
    return f"{caller.filename}:{caller.lineno + offset}"


CALLS: dict[str, Callable[[Turn], Coroutine[Any, Any, object]]] = {
    "write": lambda turn: turn.write("lost"),
    "flush": lambda turn: turn.flush(),
    "status": lambda turn: turn.status("lost"),
    "artifact": lambda turn: turn.artifact(text="lost"),
    "emit": lambda turn: turn.emit(None),  # pyright: ignore[reportArgumentType] - it is never looked at
    "record": lambda turn: turn.record(None),  # pyright: ignore[reportArgumentType] - it is never looked at
    "step": lambda turn: turn.step("lost", int),
    "call": lambda turn: turn.call("other", "lost"),
    "sleep": lambda turn: turn.sleep(1),
    "ask": lambda turn: turn.ask("lost?"),
    "ask_message": lambda turn: turn.ask_message("lost?"),
    "need_auth": lambda turn: turn.need_auth("lost"),
}


def test_every_awaitable_method_is_covered() -> None:
    methods = {name for name, one in inspect.getmembers(Turn) if inspect.iscoroutinefunction(one)}
    assert {name for name in methods if not name.startswith("_")} | {"step"} == CALLS.keys() | _INTERNAL


@pytest.mark.parametrize("name", CALLS)
def test_forgotten_await_fails_the_task_with_its_line(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async def body(turn: Turn) -> object:
        CALLS[name](turn)
        return "done"

    found, said = run(body, caplog)
    assert found == "failed"
    line = CALLS[name].__code__.co_firstlineno
    assert f"turn.{name}(…) at {__file__}:{line} was never awaited" in said
    assert f"write await turn.{name}(…)" in said


def test_calls_that_are_awaited_afterwards_do_not_hide_a_forgotten_await(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body(turn: Turn) -> None:
        turn.status("lost")  # pyright: ignore[reportUnusedCoroutine] - that is the mistake
        for number in range(200):
            await turn.write(f"{number} ")

    found, said = run(body, caplog)
    assert (found, "turn.status(…) at" in said) == ("failed", True)


def test_line_is_that_of_the_call_also_in_a_function_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    def tell(turn: Turn) -> str:
        turn.write(  # pyright: ignore[reportUnusedCoroutine] - that is the mistake
            "lost"
        )
        return here(-3)

    lines: list[str] = []

    async def body(turn: Turn) -> None:
        await turn.write("kept")
        lines.append(tell(turn))

    found, said = run(body, caplog)
    assert found == "failed"
    assert f"turn.write(…) at {lines[0]} was never awaited" in said


def test_forgotten_await_in_a_step_fails_the_task(caplog: pytest.LogCaptureFixture) -> None:
    async def body(turn: Turn) -> object:
        async def inner() -> int:
            turn.status("lost")  # pyright: ignore[reportUnusedCoroutine] - that is the mistake
            return 1

        return await turn.step("one", inner)

    found, said = run(body, caplog)
    assert found == "failed"
    assert "turn.status(…) at" in said


def test_forgotten_await_of_an_mcp_tool_names_the_line_of_the_skill(caplog: pytest.LogCaptureFixture) -> None:
    lines: list[str] = []

    async def body(turn: Turn) -> object:
        turn.mcp("files").call("read", path="x")  # pyright: ignore[reportUnusedCoroutine] - the mistake
        lines.append(here(-1))
        return "done"

    found, said = run(body, caplog)
    assert found == "failed"
    assert f"turn.step(…) at {lines[0]} was never awaited" in said


def test_forgotten_await_in_a_generator_fails_the_task(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> AsyncIterator[str]:
        yield "one"
        turn.status("lost")  # pyright: ignore[reportUnusedCoroutine] - that is the mistake
        yield "two"

    with caplog.at_level(logging.ERROR):
        task = send(agent, "go")
    assert state(task) == "failed"
    assert "turn.status(…)" in caplog.text
    # Callers are not shown where the code of the agent is.
    assert __file__ not in str(task)


def test_early_end_as_completed_does_not_hide_a_forgotten_await(caplog: pytest.LogCaptureFixture) -> None:
    async def finish(turn: Turn) -> object:
        turn.write("lost")  # pyright: ignore[reportUnusedCoroutine] - that is the mistake
        turn.finish("bye")

    async def fail(turn: Turn) -> object:
        turn.write("lost")  # pyright: ignore[reportUnusedCoroutine] - that is the mistake
        turn.fail("no luck")

    found, said = run(finish, caplog)
    assert (found, "turn.write(…)" in said) == ("failed", True)
    caplog.clear()
    found, said = run(fail, caplog)
    assert (found, "no luck" in said, "turn.write(…)" in said) == ("failed", True, False)


def test_calls_that_are_awaited_later_or_closed_are_no_mistake() -> None:
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> None:
        calls = [turn.write(f"{number} ") for number in range(200)]
        await asyncio.gather(*calls)
        turn.write("never").close()
        task = asyncio.create_task(turn.write("task "))
        later = asyncio.run_coroutine_threadsafe(turn.write("thread"), turn.loop)
        del task, later

    task = send(agent, "go")
    assert state(task) == "completed"
    assert text(task) == " ".join(map(str, range(200))) + " task thread"


def test_forgotten_awaits_are_counted_up_to_a_bound(caplog: pytest.LogCaptureFixture) -> None:
    async def body(turn: Turn) -> None:
        for _ in range(50):
            turn.write("lost")  # pyright: ignore[reportUnusedCoroutine] - that is the mistake

    found, said = run(body, caplog)
    assert (found, "(and 49 more)" in said) == ("failed", True)


def test_noted_calls_are_bounded() -> None:
    sizes: list[int] = []
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> None:
        async def pair() -> None:
            await asyncio.gather(turn.status("one"), turn.status("two"))
            sizes.append(sys.getsizeof(turn.unawaited._earlier))  # noqa: SLF001 - no other sign of it

        for _ in range(200):
            await turn.step("pair", pair)
        await asyncio.gather(*[turn.status("many") for _ in range(200)])
        sizes.append(sys.getsizeof(turn.unawaited._earlier))  # noqa: SLF001 - no other sign of it

    assert state(send(agent, "go")) == "completed"
    assert max(sizes) < sys.getsizeof([]) + 8 * 100


def test_methods_are_still_coroutine_functions() -> None:
    """Frameworks ask that of a callback before they await it."""
    results: list[bool] = []
    agent = Agent("under test")

    @agent.skill
    async def work(turn: Turn) -> None:
        results.extend([inspect.iscoroutinefunction(turn.write), asyncio.iscoroutinefunction(turn.write)])
        results.append([*inspect.signature(turn.write).parameters] == ["text"])

    assert state(send(agent, "go")) == "completed"
    assert results == [True, True, True]


@pytest.mark.usefixtures("recwarn")
def test_forgotten_await_of_an_own_function_fails_the_task_with_its_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines: list[str] = []

    async def section(turn: Turn) -> None:
        await turn.write("lost")

    async def body(turn: Turn) -> None:
        await turn.write("kept")
        section(turn)  # pyright: ignore[reportUnusedCoroutine] - that is the mistake
        lines.append(here(-1))

    # Python shows a warning of the same line only once; each task fails.
    for _ in range(2):
        caplog.clear()
        found, said = run(body, caplog)
        assert found == "failed"
        assert f"section' at {lines[0]} was never awaited" in said


@pytest.mark.usefixtures("recwarn")
def test_forgotten_await_in_a_helper_that_is_awaited_fails_the_task(caplog: pytest.LogCaptureFixture) -> None:
    async def section(turn: Turn) -> None:
        await turn.write("lost")

    async def chapter(turn: Turn) -> None:
        kept = section(turn)
        del kept

    async def body(turn: Turn) -> None:
        await asyncio.gather(chapter(turn), asyncio.create_task(chapter(turn)))

    found, said = run(body, caplog)
    assert (found, "(and 1 more)" in said) == ("failed", True)


async def never() -> None:
    """Never run."""


def test_dropped_coroutine_of_a_library_or_of_no_task_is_only_a_warning(
    caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    async def body(turn: Turn) -> str:
        # The standard library drops it: the time is over before the coroutine begins.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(never(), 0)
        return "done"

    found, _ = run(body, caplog)
    assert found == "completed"
    unused = never()
    del unused
    assert any("'never' was never awaited" in str(one.message) for one in recwarn.list)
    found, _ = run(body, caplog)
    assert found == "completed"
