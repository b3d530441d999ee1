"""`trunkline task get`, `list`, `cancel` and `subscribe`."""

from __future__ import annotations

from trunkline.cli.command import carry_out
from trunkline.cli.commands.client import Given
from trunkline.cli.outcome import follow, show_result, show_stream
from trunkline.cli.render import show_task
from trunkline.cli.screen import document, field
from trunkline.cli.session import Session
from trunkline.errors import Misuse, TaskNotCancelable
from trunkline.wire import v1
from trunkline.wire.spellings import state_named
from trunkline.wire.types import RESTING, STATES, TaskState

_ID = "the task's id"


def get(given: Given) -> None:
    """Show a task, at once or when it rests."""
    carry_out(given, _get)


def cancel(given: Given) -> None:
    """Stop a task and show how it stands."""
    carry_out(given, _cancel)


def list_(given: Given) -> None:
    """Show a page of tasks."""
    carry_out(given, _list)


def subscribe(given: Given) -> None:
    """Follow a task to its end."""
    carry_out(given, _subscribe)


async def _get(session: Session) -> None:
    choices, client = session.choices, session.client
    session.task_id = session.word(_ID)
    await session.spoken_card()
    result = await client.get(session.task_id, history_length=choices.count("history"))
    if choices.flag("wait") and result.state not in RESTING:
        result = await client.wait(session.task_id)
        if choices.count("history") is not None:
            result = await client.get(session.task_id, history_length=choices.count("history"))
    show_result(session, result, wrapped=False)


async def _cancel(session: Session) -> None:
    session.task_id = session.word(_ID)
    await session.spoken_card()
    try:
        result = await session.client.cancel(session.task_id)
    except TaskNotCancelable:
        result = await session.client.get(session.task_id)
        # Who cancels twice has what was wanted.
        if result.state is not TaskState.CANCELED:
            raise
    show_result(session, result, wrapped=False, wanted=TaskState.CANCELED)


async def _list(session: Session) -> None:
    choices = session.choices
    if session.words:
        raise Misuse(f"{session.words[0]!r} is too much; name the agent by its whole URL or -a")
    status = _state(choices.text("status"))
    await session.spoken_card()
    page = await session.client.list(
        context_id=choices.text("context-id"),
        status=status,
        page_size=choices.count("page-size") or 50,
        page_token=choices.text("page-token"),
        history_length=choices.count("history"),
        include_artifacts=choices.flag("artifacts"),
    )
    if choices.as_json and choices.streams:
        for task in page.tasks:
            document(v1.task(task), compact=True)
    elif choices.as_json:
        document(v1.page(page), compact=False)
    else:
        for task in page.tasks:
            history = choices.count("history") is not None
            show_task(task, verbose=choices.flag("verbose"), history=history)
        field("Tasks", f"{len(page.tasks)} of {page.total_size}")
        if page.next_page_token:
            field("Next", session.command("task list", "--page-token", page.next_page_token))


async def _subscribe(session: Session) -> None:
    session.task_id = session.word(_ID)
    card = await session.spoken_card()
    if not card.streaming:
        result = await session.client.wait(session.task_id)
        show_result(session, result, wrapped=session.choices.streams)
    elif session.choices.streams:
        await show_stream(session, session.client.subscribe(session.task_id), asked=True)
    else:
        result = await follow(session, session.client.subscribe(session.task_id), asked=True)
        show_result(session, result, wrapped=False)


def _state(told: str) -> TaskState | None:
    if not told:
        return None
    state = state_named(told)
    if state not in STATES:
        names = ", ".join(each.name.lower() for each in STATES)
        raise Misuse(f"--status {told}: choose one of {names}")
    return state
