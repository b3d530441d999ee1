"""A question goes first to the agent that asked for the work; people are told when that does not answer.

An agent of the catalogue is known by its key, which has its name, and is asked by a task of its own. Any
other agent hears of the question as every caller does, by the answer to its request, and has the same time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from trunkline.auth.principal import Principal
from trunkline.auth.principal import Scope as AuthScope
from trunkline.client.result import Result
from trunkline.errors import Refused
from trunkline.fleet.call import ApiCall
from trunkline.fleet.catalogue.listed import Listed
from trunkline.fleet.ceremonies.schedule import planned_id
from trunkline.fleet.inbox import AnswerForm, Inbox, InboxItem
from trunkline.fleet.notify.notice import FIRST_MS, Notice
from trunkline.fleet.routing.dispatcher import HUB, Dispatcher, DispatchOrder
from trunkline.log.fold import State
from trunkline.run.feed import Feed
from trunkline.run.hops import is_called
from trunkline.run.runner import Runner
from trunkline.wire.question import is_for_others
from trunkline.wire.types import Message, Part, Role, TaskState

# In the place of an agent's name: one that nobody here knows by name.
UNNAMED = "*"
PASS = "PASS"
TRIGGER = "inbox"


class CallerFirst:
    """Asks agents for answers; `find` gives an agent of a tenant's catalogue."""

    def __init__(
        self,
        runner: Runner,
        dispatcher: Dispatcher,
        inbox: Inbox,
        find: Callable[[str, str], Listed | None],
        now_ms: Callable[[], int],
    ) -> None:
        self._runner = runner
        self._dispatcher = dispatcher
        self._inbox = inbox
        self._find = find
        self._now = now_ms

    def caller_of(self, tenant: str, state: State) -> str:
        """The agent that is asked before people are; empty where people are asked at once."""
        if state.state is TaskState.AUTH_REQUIRED:
            # No agent has an account, and one that only says that it has logged in would close the question
            # before a person hears of it. Who called over A2A still sees it in the answer to its request.
            return ""
        if state.question is not None and is_for_others(state.question):
            return ""
        asking = self._find(tenant, state.agent)
        if asking is not None and asking.entry.reviewer == "operator":
            return ""
        caller = self._find(tenant, state.principal) if state.principal != state.agent else None
        # Whoever may announce agents could else read and answer what is meant for any key, under its name.
        is_own = caller is not None and caller.entry.announced_by in ("", state.principal)
        if caller is not None and is_own and caller.state in ("ready", "discovering"):
            return state.principal
        return UNNAMED if is_called(state) else ""

    async def ask(self, tenant: str, notice: Notice, item: InboxItem) -> bool | None:
        """Return whether the caller of a task has answered its question, or None while it still may."""
        # A notice of the future was made before the clock was set back.
        is_late = abs(self._now() - notice.at) >= FIRST_MS
        if notice.caller == UNNAMED:
            return False if is_late else None
        try:
            feed = await self._asked(tenant, notice, item)
        except Refused:
            # A limit is met, or this hub drains: the caller is asked later, or people are.
            return False if is_late else None
        state = feed.state
        if state.state is TaskState.COMPLETED:
            return await self._answer(tenant, notice.caller, item, Result(state.task()).text)
        if not state.resting and not is_late:
            return None
        if not state.over:
            # It asks something itself, or takes too long.
            with contextlib.suppress(Refused):
                await self._runner.cancel(feed, HUB)
        return False

    async def _asked(self, tenant: str, notice: Notice, item: InboxItem) -> Feed:
        """The task by which the caller is asked: one for each question, whoever opens it when."""
        task_id = planned_id(notice.at, tenant, f"{item.task_id} {item.question}")
        message = Message(message_id=task_id, role=Role.USER, parts=(Part(text=_words(item)),))
        order = DispatchOrder(
            tenant=tenant, principal=HUB, message=message, targets=(notice.caller,), trigger=TRIGGER
        )
        return (await self._dispatcher.dispatch(order, task_id=task_id))[0].feed

    async def _answer(self, tenant: str, caller: str, item: InboxItem, text: str) -> bool:
        said = text.strip()
        if not said or said.strip(".").upper() == PASS:
            return False
        call = ApiCall(Principal(tenant, caller, frozenset({AuthScope.ANSWER})), tenant, item.task_id)
        try:
            await self._inbox.answer(call, AnswerForm(decision="respond", text=said, question=item.question))
        except Refused:
            # It does not fit, or somebody else was faster; then there is nothing to tell either.
            return False
        return True


def _words(item: InboxItem) -> str:
    lines = [
        f"You asked {item.agent} for work (task {item.task_id}). It asks:",
        item.text,
        *([f"Choose one of: {', '.join(item.choices)}"] if item.choices else []),
        f"Answer with the answer alone, or with {PASS} if a person should answer.",
    ]
    return "\n".join(lines)
