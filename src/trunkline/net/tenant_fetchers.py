"""Who dials what tenants name: for each tenant by its own egress rule, over connections of its own."""

from __future__ import annotations

from collections.abc import Callable

from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher

FetcherOf = Callable[[str], Fetcher]


class TenantFetchers:
    """Fetches and posts for each tenant where its rule allows; those without one of their own share one."""

    def __init__(self, egress: Egress, *, timeout_s: float) -> None:
        """Take the rule of everybody, until somebody says by `egress_of` that a tenant has another."""
        self.shared = Fetcher(egress, timeout_s=timeout_s)
        self.egress_of: Callable[[str], Egress] = lambda tenant: egress
        self._egress = egress
        self._timeout_s = timeout_s
        self._own: dict[str, Fetcher] = {}

    def find(self, tenant: str) -> Fetcher:
        """The fetcher that obeys the rule of a tenant; each has one rule object, which may change."""
        egress = self.egress_of(tenant)
        if egress is self._egress:
            return self.shared
        if tenant not in self._own:
            # Not the connections of others: what is open is not judged again.
            self._own[tenant] = Fetcher(egress, timeout_s=self._timeout_s)
        return self._own[tenant]

    async def close(self) -> None:
        """Close all connections."""
        for one in (self.shared, *self._own.values()):
            await one.close()
