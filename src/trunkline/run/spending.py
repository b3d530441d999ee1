"""What model calls of a task cost, and the meter that every such call goes through."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from msgspec import Struct

from trunkline.wire.types import Metadata

# Where a provider reports no tokens, so many bytes count as one.
TOKEN_BYTES = 4


class ModelSpending(Struct, frozen=True):
    """The tokens of one or several model calls, and their price in dollars."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.input_tokens or self.output_tokens)

    def plus(self, more: ModelSpending) -> ModelSpending:
        """Return the sum of two spendings."""
        return ModelSpending(
            self.input_tokens + more.input_tokens,
            self.output_tokens + more.output_tokens,
            self.cost_usd + more.cost_usd,
        )

    @property
    def body(self) -> Metadata:
        """The body of a cost report."""
        usage = {"input_tokens": self.input_tokens, "output_tokens": self.output_tokens}
        return {"usage": usage, "costUsd": self.cost_usd}


class Meter(Protocol):
    """The quotas of tenants, as model calls of running tasks meet them."""

    def check_spent(self, tenant: str, principal: str) -> None:
        """Check that the daily quotas of a tenant and a principal are not spent.

        Raises:
            TooManyRequests: a quota is spent.
        """
        ...

    def counting(self, tenant: str, principal: str, spent: ModelSpending) -> AbstractContextManager[None]:
        """Count a model call at once, while its record is written to the log of its task."""
        ...


class NoQuotas:
    """The meter where nobody has a quota."""

    def check_spent(self, tenant: str, principal: str) -> None:
        """Accept every call."""

    def counting(self, tenant: str, principal: str, spent: ModelSpending) -> AbstractContextManager[None]:
        """Count nothing."""
        del tenant, principal, spent
        return nullcontext()
