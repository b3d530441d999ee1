"""Row 24: a page token that is not exactly ours, for exactly this list, is refused; 2 000 of them."""

from __future__ import annotations

import asyncio
import base64
import random
import string
from typing import Any

from tests.chaos.inside import inside
from trunkline import Agent

TOKENS = 2_000
KEYS = ("token-key-one", "token-key-two")
LETTERS = string.ascii_letters + string.digits + "-_"


def _key(place: int) -> tuple[bytes, bytes]:
    return (b"x-api-key", KEYS[place].encode())


def _damaged(token: str, chance: random.Random) -> str:
    """The token with something wrong."""
    place = chance.randrange(len(token))
    raw = bytearray(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    match chance.randrange(6):
        case 0:
            return token[:place] or "A"
        case 1:
            bit = chance.randrange(len(raw) * 8)
            raw[bit // 8] ^= 1 << bit % 8
            return base64.urlsafe_b64encode(raw).decode().rstrip("=")
        case 2:
            return token[:place] + chance.choice(LETTERS) + token[place + 1 :]
        case 3:
            return token + chance.choice([*LETTERS, "=", " ", "é", "\0"])
        case 4:
            return token[place:] + token[:place]
        case _:
            return "".join(chance.choices(LETTERS, k=chance.randrange(1, 200)))


def test_no_damaged_or_foreign_token_gives_data() -> None:
    agent = Agent("pages")

    @agent.skill
    async def echo(text: str) -> str:
        """Give it back."""
        return text

    chance = random.Random(24)

    async def main() -> None:
        async with inside(agent, keys=KEYS) as app:
            for place in range(8):
                await app.send(f"{place}", _key(place % 2), contextId=f"context-{place % 4}")
            lists: list[tuple[int, dict[str, Any]]] = [
                (0, {}), (1, {}), (0, {"status": "TASK_STATE_COMPLETED"}),
                (1, {"contextId": "context-1"}), (0, {"contextId": "context-0"}),
            ]  # fmt: skip
            tokens = []
            for place, query in lists:
                page = await app.ask("ListTasks", {"pageSize": 1, **query}, _key(place))
                assert page["nextPageToken"]
                tokens.append(page["nextPageToken"])
            tried = 0
            while tried < TOKENS:
                own, other = chance.randrange(len(lists)), chance.randrange(len(lists))
                token = tokens[other] if chance.random() < 0.2 else _damaged(tokens[own], chance)
                if token == tokens[own]:
                    continue
                tried += 1
                place, query = lists[own]
                answer = await app.answer(
                    "ListTasks", {"pageSize": 1, "pageToken": token, **query}, _key(place)
                )
                assert answer["error"]["code"] == -32602, (token, answer)
                assert "tasks" not in str(answer["error"].get("data", "")).lower()
            for (place, query), token in zip(lists, tokens, strict=True):
                page = await app.ask("ListTasks", {"pageSize": 1, "pageToken": token, **query}, _key(place))
                assert len(page["tasks"]) == 1, "the right one is still good"

    asyncio.run(main())
