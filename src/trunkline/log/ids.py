"""Grammar of ids and page tokens. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from hashlib import blake2b
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from trunkline.errors import InvalidParams

# A caller's message id of this form is unique by construction, so that a repeat means a retry.
UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\Z")
_OWN_ID_PATTERN = r"\A[A-Za-z0-9._~-]{1,128}\Z"
_OWN_ID = re.compile(_OWN_ID_PATTERN)


def is_task_id(text: str) -> bool:
    """Whether this could be the id of a task at all."""
    return _OWN_ID.match(text) is not None


class Position(Struct, frozen=True, array_like=True):
    """Where a page ended: after this status time and task, in descending order."""

    # The seal tells honest mistakes from each other, but no forger: a store must be able to take both.
    status_at: Annotated[int, Meta(ge=0, le=2**53)]
    task_id: Annotated[str, Meta(pattern=_OWN_ID_PATTERN)]


def page_token(position: Position, scope: str) -> str:
    """An opaque token that is good for this scope (tenant, caller, filter) only."""
    body = msgspec.json.encode(position)
    return base64.urlsafe_b64encode(_seal(body, scope) + body).decode().rstrip("=")


def read_page_token(token: str, scope: str, field: str = "pageToken") -> Position:
    """The position in a token made for the same scope.

    Raises:
        InvalidParams: the token is damaged or belongs to another list.
    """
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        # Unused low bits would let several spellings through; only ours counts.
        if base64.urlsafe_b64encode(raw).decode().rstrip("=") != token or raw[:12] != _seal(raw[12:], scope):
            raise ValueError
        return msgspec.json.decode(raw[12:], type=Position)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise InvalidParams(f"{field} is not from this list; start again without it", field=field) from None


def _seal(body: bytes, scope: str) -> bytes:
    return blake2b(body, digest_size=12, key=blake2b(scope.encode(), digest_size=32).digest()).digest()
