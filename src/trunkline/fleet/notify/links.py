"""Links by which one addressee answers one question, without a key.

What a link allows is sealed in it under the key of the server: it is kept nowhere, every replica can open it,
and nobody can make or change one. It works once because the question closes with the answer.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Struct

from trunkline.auth.vault import Vault

PREFIX = "/answer"
# A question may stand open for longer; then there is the inbox.
LASTS_MS = 7 * 24 * 3600 * 1000
_ABOUT = "link to answer"


class AnswerRight(Struct, frozen=True, array_like=True):
    """What a link allows: who may answer which question of which task, and until when."""

    tenant: str
    task_id: str
    question: str
    who: str
    until: int


class AnswerLinks:
    """Makes links and reads them; without a vault or an address there are none."""

    def __init__(self, vault: Vault | None, base: Callable[[], str], now_ms: Callable[[], int]) -> None:
        """Take what gives the address of the server, which may be known only once it listens."""
        self._vault = vault
        self._base = base
        self._now = now_ms

    def make(self, tenant: str, task_id: str, question: str, who: str, deadline: int = 0) -> str:
        """A link for somebody; empty where there can be none."""
        base = self._base()
        if self._vault is None or not base:
            return ""
        until = self._now() + LASTS_MS
        right = AnswerRight(tenant, task_id, question, who, min(until, deadline or until))
        return f"{base}{PREFIX}/{self._vault.seal_token(msgspec.json.encode(right).decode(), _ABOUT)}"

    def read(self, token: str) -> AnswerRight | None:
        """What a link allows; None if it is none of ours. It may be over."""
        text = None if self._vault is None else self._vault.open_token(token, _ABOUT)
        try:
            return None if text is None else msgspec.json.decode(text, type=AnswerRight)
        except msgspec.MsgspecError:
            return None

    def is_over(self, right: AnswerRight) -> bool:
        """Whether a link has lasted long enough."""
        return right.until <= self._now()
