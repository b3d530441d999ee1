"""A notice: something to send to receivers, and how far sending it has come. Pure.

It is a document. An attempt is written down before it is made, so that one of several processes makes it. An
attempt of a process that dies is made again.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from trunkline.fleet.health.alerts import FleetAlert
from trunkline.fleet.inbox import InboxItem
from trunkline.fleet.notify.receiver import NoticeReceiver, Topic
from trunkline.fleet.views import TaskItem

# After each attempt the time to the next one; it is longer than an attempt may take. After the last, none.
PAUSES_MS = (60_000, 120_000, 300_000, 900_000, 3_600_000)
ATTEMPTS = len(PAUSES_MS) + 1
# How long a question is left to the agent whose request it belongs to.
FIRST_MS = 300_000
# No notice is planned for later than this, and than its receiver sets.
LONGEST_MS = PAUSES_MS[-1] + FIRST_MS
# Among those that are told; no receiver has such a name.
CALLER = ":caller"
TITLE, TEXT, CHAT = 120, 2000, 1850
# The type of the message with the result of a call.
RESULT = "task.result"


class NoticeProgress(Struct, frozen=True, array_like=True):
    """How far one receiver is told: the attempts so far, when the next is due, and whether none is needed."""

    attempts: int = 0
    next_at: int = 0
    done: bool = False


class Notice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question by its ID, an alert, or the result of a call, and how far each receiver is told.

    `at` is since when the question or the alert exists. `caller` is the agent that may answer the question
    before people are told. `call` is the receiver whose channel requested the task. A notice with neither
    a question nor an alert waits for the end of that task, at `ended_at`.
    """

    at: int
    call: str = ""
    ended_at: int = 0
    question: str = ""
    caller: str = ""
    alert: FleetAlert | None = None
    told: dict[str, NoticeProgress] = {}

    @property
    def topic(self) -> Topic:
        """Return the topic of the notice: a question or an alert."""
        return "questions" if self.alert is None else "alerts"

    @property
    def is_result(self) -> bool:
        """Return whether this is the result of a call, which only the channel of the call is sent."""
        return not self.question and self.alert is None

    def due_at(self, tenant: str, receiver: NoticeReceiver) -> int | None:
        """Return when to send the notice to a receiver; None if the receiver needs no further attempt."""
        telling = self.told.get(receiver.name, NoticeProgress())
        if telling.done:
            return None
        if telling.attempts:
            return telling.next_at
        if self.call == receiver.name and self.alert is None:
            if self.is_result:
                return self.ended_at or None
            return self.at
        if self.is_result or not receiver.wants(self.topic, tenant):
            return None
        after = receiver.after_ms if self.alert is None else 0
        return self.at + (FIRST_MS if self.waits_for_caller else 0) + after

    def is_due(self, tenant: str, receiver: NoticeReceiver, now: int) -> bool:
        """Return whether to send the notice to a receiver now."""
        at = self.due_at(tenant, receiver)
        # What is due much later was planned before the clock was set back.
        return at is not None and not now < at <= now + LONGEST_MS + receiver.after_ms

    @property
    def waits_for_caller(self) -> bool:
        """Whether the agent that made it be asked may still answer, before people are told."""
        return bool(self.caller) and not self.told.get(CALLER, NoticeProgress()).done

    def begun(self, name: str, now: int) -> Notice:
        """This notice with an attempt to tell a receiver; after the last one there is no other."""
        attempts = self.told.get(name, NoticeProgress()).attempts + 1
        is_last = attempts >= ATTEMPTS
        pause = 0 if is_last else PAUSES_MS[attempts - 1]
        return self._with(name, NoticeProgress(attempts, now + pause, is_last))

    def ended(self, name: str) -> Notice:
        """This notice once a receiver is told."""
        return self._with(name, replace(self.told.get(name, NoticeProgress()), done=True))

    def _with(self, name: str, telling: NoticeProgress) -> Notice:
        return replace(self, told={**self.told, name: telling})


class ChannelMessage(Struct, frozen=True):
    """A message for a channel: an ID that all attempts share, text for people, and members for programs.

    `members["type"]` is `inbox.question`, `fleet.alert`, `task.result` or `ceremony.report`.
    """

    id: str
    title: str
    text: str
    members: dict[str, Any]

    @property
    def chat(self) -> str:
        """Return title and text as one message, without a first line that repeats the title."""
        first, _, rest = self.text.partition("\n")
        return f"{self.title}\n{rest if self.title.endswith(f': {first}') else self.text}".rstrip()[:CHAT]


def notice_id(tenant: str, doc_id: str, notice: Notice, receiver: str) -> str:
    """Return the ID of the message to a receiver, the same for every attempt."""
    name = "\0".join((tenant, doc_id, notice.question, str(notice.at), receiver))
    return sha256(name.encode()).hexdigest()[:32]


def question_text(id: str, tenant: str, item: InboxItem, link: str = "") -> ChannelMessage:
    """What is told of a question; by the link its receiver can answer."""
    first = item.text.strip().partition("\n")[0]
    does = "wants a login" if item.state == "auth-required" else "asks"
    lines = [item.text.strip()[:TEXT]]
    if item.choices:
        lines.append(f"Choices: {', '.join(item.choices)}"[:TEXT])
    if item.deadline:
        lines.append(f"Until {item.deadline}")
    lines.append(f"Answer: {link}" if link else f"Task {item.task_id}")
    members: dict[str, Any] = {
        "type": "inbox.question",
        "tenant": tenant,
        "taskId": item.task_id,
        "contextId": item.context_id,
        "agent": item.agent,
        "skill": item.skill,
        "state": item.state,
        "question": item.question,
        "text": item.text[:TEXT],
        "choices": item.choices,
        "askedAt": item.asked_at,
        "deadline": item.deadline,
    }
    if link:
        members["answerUrl"] = link
    return ChannelMessage(id, _cut(f"{item.agent} {does}: {first}", TITLE), "\n".join(lines), members)


def result_text(id: str, tenant: str, item: TaskItem) -> ChannelMessage:
    """Return the message with the result of a task that a channel has requested."""
    text = (item.error or item.text).strip()[:TEXT]
    members = {
        "type": RESULT,
        "tenant": tenant,
        "taskId": item.task_id,
        "contextId": item.context_id,
        "agent": item.agent,
        "skill": item.skill,
        "state": item.state,
        "text": text,
    }
    return ChannelMessage(id, f"{item.agent}: {item.state}", text or f"Task {item.task_id}", members)


def alert_text(id: str, tenant: str, alert: FleetAlert, at: str) -> ChannelMessage:
    """The notice by which a health alert is told to a receiver."""
    said = f"{alert.kind} of {tenant} is {alert.value:.4g}, above {alert.limit:.4g}"
    members = {
        "type": "fleet.alert",
        "tenant": tenant,
        "kind": alert.kind,
        "value": alert.value,
        "limit": alert.limit,
        "at": at,
    }
    return ChannelMessage(id, f"Alert: {alert.kind}", said, members)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
