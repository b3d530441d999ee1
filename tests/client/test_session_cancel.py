"""A cancel whose answer was lost is told as what it did."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.client.agents import COMPLETED, Error, Http, Lost, Stand, task
from trunkline.errors import PeerError, TaskNotCancelable
from trunkline.wire.types import TaskState

CANCEL, GET = "CancelTask", "GetTask"
CANCELED = "TASK_STATE_CANCELED"
ENDED = Error(-32002, "it has ended")


def cancelled(*answers: Any) -> tuple[TaskState | str, list[str]]:
    stand = Stand(answers)

    async def talk() -> TaskState | str:
        async with asyncio.timeout(60), stand.client() as client:
            try:
                return (await client.cancel("t1")).state
            except TaskNotCancelable as refused:
                return refused.message

    return asyncio.run(talk()), stand.methods


@pytest.mark.parametrize("lost", [Lost(), Http(502), Http(503)])
def test_an_attempt_that_worked_and_was_lost_is_a_success(lost: Any) -> None:
    state, methods = cancelled(lost, ENDED, task(CANCELED)["task"])
    assert (state, methods) == (TaskState.CANCELED, [CANCEL, CANCEL, GET])


def test_a_task_that_ended_otherwise_could_not_be_stopped() -> None:
    said, methods = cancelled(Lost(), ENDED, task(COMPLETED)["task"])
    assert (said, methods) == ("it has ended", [CANCEL, CANCEL, GET])


def test_nothing_lost_is_nothing_to_look_for() -> None:
    assert cancelled(ENDED) == ("it has ended", [CANCEL])


def test_a_refusal_without_a_word_names_who_gave_it() -> None:
    async def talk() -> None:
        async with asyncio.timeout(60), Stand([Http(500)]).client() as client:
            with pytest.raises(PeerError, match=r"^HTTP 500 from localhost$"):
                await client.get("t1")

    asyncio.run(talk())
