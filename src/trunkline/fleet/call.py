"""A request to the operator's API, and how its query and its body are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from trunkline.auth.principal import Principal, Scope
from trunkline.errors import InvalidParams
from trunkline.wire.decode import DECODE_ERRORS, check_structure, invalid_params, parse_error

Form = TypeVar("Form")
Limit = Annotated[int, Meta(ge=1, le=200)]


class ApiStruct(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Base of what the API answers: camelCase, and what is not known is left out."""


class ApiQuery(ApiStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every query may name: a tenant, which only an operator may choose."""

    tenant: str = ""


class NoBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a route that reads none: nothing, or an object without members."""


class PageQuery(ApiQuery, frozen=True, kw_only=True):
    """The query of a list: how much of it, and behind which place."""

    limit: Limit = 50
    after: str = ""


class ApiPage(Struct, frozen=True):
    """A page of a list; `next` is the place that the following page begins behind, null at the end."""

    items: list[Any]
    next: str | None = None


class ApiCall(Struct, frozen=True):
    """One call of the API: the principal, its tenant, and the id or name in the path."""

    principal: Principal
    tenant: str
    id: str = ""
    # The Idempotency-Key of the request.
    key: str = ""
    headers: Sequence[tuple[bytes, bytes]] = ()

    @property
    def sees_all(self) -> bool:
        """Whether the tasks of others in the tenant are this caller's business too."""
        return Scope.ADMIN in self.principal.scopes


def key_of(headers: Sequence[tuple[bytes, bytes]]) -> str:
    """The Idempotency-Key of a request; empty without one.

    Raises:
        InvalidParams: it is too long, or cannot be printed.
    """
    key = dict(headers).get(b"idempotency-key", b"").decode("latin-1")
    if key and (len(key) > 256 or not key.isprintable()):
        raise InvalidParams("Idempotency-Key must be 1 to 256 printable characters", field="Idempotency-Key")
    return key


def read_form(query: Mapping[str, str], form: type[Form]) -> Form:
    """A query as its form has it.

    Raises:
        InvalidParams: it has a member too many, or one that does not fit.
    """
    for name, text in query.items():
        if not text.isprintable():
            # PostgreSQL cannot even be asked for a text with a NUL in it.
            raise InvalidParams(f"{name} holds printable characters only", field=name)
    try:
        return msgspec.convert(query, form, strict=False)
    except msgspec.ValidationError as error:
        raise _named(error, form) from None


def read_body(body: bytes, form: type[Form]) -> Form:
    """A body as its form has it.

    Raises:
        ParseError: it is not JSON.
        InvalidParams: it has a member too many, or one that does not fit.
    """
    try:
        check_structure(body)
        return msgspec.json.decode(body or b"{}", type=form)
    except msgspec.ValidationError as error:
        raise _named(error, form) from None
    except DECODE_ERRORS as error:
        raise parse_error(error) from None


def read_seq(text: str, field: str) -> int:
    """The seq of an event.

    Raises:
        InvalidParams: it is none.
    """
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    raise InvalidParams(f"{field} is the seq of an event, a number", field=field)


def _named(error: msgspec.ValidationError, form: type[object]) -> InvalidParams:
    refused = invalid_params(error, "the request", form)
    if refused.field:
        return refused
    # One that is missing or not known stands in the text alone.
    _, _, rest = str(error).partition("field `")
    return InvalidParams(refused.message, field=rest.partition("`")[0])
