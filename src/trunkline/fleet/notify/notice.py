"""A notice: something that receivers are to be told, and how far that is. Pure.

It is a document. An attempt is written down before it is made, so that of several processes one makes it,
and one that dies meanwhile leaves it to be made again.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from trunkline.fleet.health.alerts import FleetAlert
from trunkline.fleet.inbox import InboxItem
from trunkline.fleet.notify.receiver import NoticeReceiver, Topic

# After each attempt the time to the next one; it is longer than an attempt may take. After the last, none.
PAUSES_MS = (60_000, 120_000, 300_000, 900_000, 3_600_000)
ATTEMPTS = len(PAUSES_MS) + 1
# How long a question is left to the agent whose request it belongs to.
FIRST_MS = 300_000
# Among those that are told; no receiver has such a name.
CALLER = ":caller"
TITLE, TEXT, CHAT = 120, 2000, 1850


class NoticeProgress(Struct, frozen=True, array_like=True):
    """How far one receiver is told: the attempts so far, when the next is due, and whether none is needed."""

    attempts: int = 0
    next_at: int = 0
    done: bool = False


class Notice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question by its id, or an alert, since when it is so, and how far each receiver is told.

    `caller` is the agent that is to answer the question before people are told.
    """

    at: int
    question: str = ""
    caller: str = ""
    alert: FleetAlert | None = None
    told: dict[str, NoticeProgress] = {}

    @property
    def topic(self) -> Topic:
        """The topic of the notice: a question or an alert."""
        return "questions" if self.alert is None else "alerts"

    def due_at(self, tenant: str, receiver: NoticeReceiver) -> int | None:
        """When a receiver is to be told; None if it need not be, or not any more."""
        telling = self.told.get(receiver.name, NoticeProgress())
        if telling.done or not receiver.wants(self.topic, tenant):
            return None
        after = receiver.after_ms if self.alert is None else 0
        return max(self.at + (FIRST_MS if self.waits_for_caller else 0) + after, telling.next_at)

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


class NoticeText(Struct, frozen=True):
    """What a receiver is told: an id that stays over attempts, words for people, and members for programs."""

    id: str
    title: str
    text: str
    members: dict[str, Any]

    @property
    def chat(self) -> str:
        """Title and text as one message; a first line that the title has said is not said again."""
        first, _, rest = self.text.partition("\n")
        return f"{self.title}\n{rest if self.title.endswith(f': {first}') else self.text}"[:CHAT]


def notice_id(tenant: str, doc_id: str, notice: Notice, receiver: str) -> str:
    """The id of what a receiver is told, the same at every attempt."""
    name = "\0".join((tenant, doc_id, notice.question, str(notice.at), receiver))
    return sha256(name.encode()).hexdigest()[:32]


def question_text(id: str, tenant: str, item: InboxItem, link: str = "") -> NoticeText:
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
    return NoticeText(id, _cut(f"{item.agent} {does}: {first}", TITLE), "\n".join(lines), members)


def alert_text(id: str, tenant: str, alert: FleetAlert, at: str) -> NoticeText:
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
    return NoticeText(id, f"Alert: {alert.kind}", said, members)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
