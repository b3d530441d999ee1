"""The caller of everything inward: a tenant and a name within it."""

from __future__ import annotations

from msgspec import Struct

DEFAULT_TENANT = "default"


class Principal(Struct, frozen=True, gc=False):
    """Somebody who may own tasks."""

    tenant: str
    name: str


ANONYMOUS = Principal(DEFAULT_TENANT, "anonymous")
