"""Row 53, H8: callers of several tenants, each with a word of its own in everything it says.

They ask for what is theirs and for what is not, all at once; no answer may hold another one's word.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.hostile.reach import HOOK
from tests.hostile.shapes import V1
from tests.hostile.sockets import Answer, Line, post, request
from trunkline.auth.key_store import KeyStore
from trunkline.auth.keys import Keyring
from trunkline.clock import now_ms
from trunkline.store.url import store_from_url

TENANTS, OWNERS = 5, 2
LINES = 3
WORD = re.compile(rb"canary-(\d+)-end")
_ID = re.compile(rb'"(?:id|taskId)":"([0-9a-f-]{36})"')
_TOKEN = re.compile(rb'"nextPageToken":"([^"]+)"')


@dataclass
class Member:
    """One caller and what it knows of its own."""

    number: int
    key: bytes
    tasks: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)

    @property
    def word(self) -> str:
        return f"canary-{self.number}-end"


async def enrol(url: str) -> list[Member]:
    """Make the keys in a store that nobody has open."""
    store = store_from_url(url)
    await store.open()
    try:
        book = KeyStore(store.docs, Keyring(()), now_ms)
        made = [
            await book.create(f"owner-{owner}", tenant=f"tenant-{tenant}")
            for tenant in range(TENANTS)
            for owner in range(OWNERS)
        ]
    finally:
        await store.close()
    return [Member(number, one.token.encode()) for number, one in enumerate(made)]


class Crowd:
    """All of them at work on one server."""

    def __init__(self, port: int, members: list[Member], seed: int) -> None:
        self._port = port
        self._members = members
        self._chance = random.Random(seed)
        self.answers = 0
        self.refused = 0
        self.leaks: list[str] = []

    async def run(self, count: int) -> None:
        """So many answers between them."""
        async with asyncio.TaskGroup() as group:
            for member in self._members:
                for _ in range(LINES):
                    group.create_task(self._work(member, count))

    async def _work(self, member: Member, count: int) -> None:
        line = Line(self._port)
        asks = self._asks(member)
        try:
            while self.answers < count:
                self.answers += 1
                ask = self._chance.choice(asks)
                self._look(member, await line.ask(ask()))
        finally:
            line.close()

    def _look(self, member: Member, answer: Answer) -> None:
        whole = b"\n".join([answer.body, *(name + b": " + value for name, value in answer.headers)])
        words = set(WORD.findall(whole))
        if words - {b"%d" % member.number} or answer.status == 0 or answer.status >= 500:
            self.leaks.append(f"{member.word} was told {words}: {answer.status} {answer.body[:300]!r}")
        self.refused += answer.status >= 400 or b'"error":' in answer.body[:60]
        if words:
            member.tasks = [*(one.decode() for one in _ID.findall(answer.body)), *member.tasks][:30]
        member.tokens = [*(one.decode() for one in _TOKEN.findall(answer.body)), *member.tokens][:5]

    def _asks(self, member: Member) -> list[Callable[[], bytes]]:
        """Every kind of request; about half of the ids are somebody else's."""
        key = b"X-API-Key: " + member.key
        word = member.word

        def a_task() -> str:
            of = member if self._chance.random() < 0.5 else self._chance.choice(self._members)
            return self._chance.choice(of.tasks) if of.tasks else "none"

        def a_token() -> str:
            tokens = self._chance.choice(self._members).tokens
            return self._chance.choice(tokens) if tokens else ""

        def rpc(method: str, parameters: Callable[[], Any], *headers: bytes) -> Callable[[], bytes]:
            def ask() -> bytes:
                body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters()}
                return post("/a2a", json.dumps(body).encode(), key, *headers)

            return ask

        def said(text: str, **members: Any) -> dict[str, Any]:
            return {
                "message": {
                    "messageId": str(uuid.uuid4()), "role": "user", "parts": [{"text": f"{text} {word}"}],
                    "metadata": {word: word}, "contextId": "shared", **members,
                },
                "configuration": {"blocking": True},
            }  # fmt: skip

        def config() -> dict[str, Any]:
            return {"taskId": a_task(), "id": "hook", "url": f"{HOOK}/{word}", "token": word}

        def get(path: Callable[[], str], *headers: bytes) -> Callable[[], bytes]:
            return lambda: request("GET", path(), None, key, *headers)

        return [
            rpc("SendMessage", lambda: said("echo"), V1),
            rpc("message/send", lambda: said("echo")),
            rpc("message/stream", lambda: said("count 2 0")),
            rpc("SendMessage", lambda: said("fail"), V1),
            rpc("SendMessage", lambda: said("echo", taskId=a_task()), V1),
            rpc("message/send", lambda: said("echo", messageId="same", referenceTaskIds=[a_task()])),
            rpc("GetTask", lambda: {"id": a_task()}, V1),
            rpc("tasks/get", lambda: {"id": a_task(), "historyLength": 5}),
            rpc("CancelTask", lambda: {"id": a_task()}, V1),
            rpc("tasks/resubscribe", lambda: {"id": a_task()}),
            rpc("SubscribeToTask", lambda: {"id": a_task()}, V1, b"Last-Event-ID: 0"),
            rpc("ListTasks", lambda: {"pageSize": 3, "includeArtifacts": True, "pageToken": a_token()}, V1),
            rpc("ListTasks", lambda: {"contextId": "shared", "pageSize": 5, "includeArtifacts": True}, V1),
            rpc("CreateTaskPushNotificationConfig", config, V1),
            rpc("ListTaskPushNotificationConfigs", lambda: {"taskId": a_task()}, V1),
            rpc("tasks/pushNotificationConfig/get", lambda: {"id": a_task(), "pushNotificationConfigId": "hook"}),
            rpc("GetExtendedAgentCard", dict, V1),
            rpc("SendMessage", lambda: {"message": {"messageId": word, "role": word}, "tenant": word}, V1),
            rpc(word, dict),
            get(lambda: f"/tasks/{a_task()}", V1),
            get(lambda: f"/v1/tasks?pageSize=3&contextId=shared&pageToken={a_token()}"),
            get(lambda: f"/tasks/{a_task()}/pushNotificationConfigs"),
            get(lambda: f"/delegate/tasks/{a_task()}"),
            get(lambda: "/.well-known/agent-card.json"),
            get(lambda: f"/{word}?{word}={word}"),
            lambda: post("/delegate/tasks", json.dumps({"agent_id": "echo", "correlation_id": word, "input": {"text": f"echo {word}"}}).encode(), key),
        ]  # fmt: skip
