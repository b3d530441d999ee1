"""The result of a step: as JSON that a log keeps, and back as the return type of the step's function.

A first run gets the same as a resumed one: what was read back, never what was given.
"""

from __future__ import annotations

import inspect
import typing
from asyncio import Future
from collections.abc import Awaitable, Coroutine
from functools import partial

import msgspec

from trunkline.agent.binding import AuthorFunction, in_thread, inner, is_async
from trunkline.agent.validation import encode_json
from trunkline.errors import Misuse

_AWAITABLES = (Awaitable, Coroutine, Future)


async def perform(function: AuthorFunction, *args: object, **kwargs: object) -> object:
    """Call a function from the event loop: on it if it is async, in a thread if it is not."""
    if is_async(function):
        result = function(*args, **kwargs)
    else:
        result = await in_thread(partial(function, *args, **kwargs))
    return await awaited(result) if inspect.isawaitable(result) else result


async def awaited(result: Awaitable[object]) -> object:
    """The result of any awaitable, as a coroutine."""
    return await result


def encoded(name: str, result: object) -> bytes:
    """A result as JSON.

    Raises:
        Misuse: it cannot be; the step is named.
    """
    return encode_json(f"step {name!r} gave back what", result)


def fitted(name: str, result: object, function: AuthorFunction) -> object:
    """A result read from JSON as the return annotation of its function; as it is if that says nothing.

    Raises:
        Misuse: it does not fit; the step is named.
    """
    wanted = _return_type(function)
    try:
        return msgspec.convert(result, typing.cast("type[object]", wanted), dec_hook=_load, str_keys=True)
    except msgspec.ValidationError as error:
        raise Misuse(f"step {name!r} gave back what its annotation does not allow: {error}") from error
    except (TypeError, NotImplementedError):
        # An annotation that JSON knows nothing of, a protocol for instance.
        return result


def _load(kind: type[object], value: object) -> object:
    validate = getattr(kind, "model_validate", None)
    if callable(validate):
        return validate(value)
    raise NotImplementedError


def _return_type(function: AuthorFunction) -> object:
    plain = inspect.unwrap(inner(function))
    if isinstance(plain, type):
        return plain
    try:
        hints = typing.get_type_hints(plain if inspect.isroutine(plain) else type(plain).__call__)
    except (NameError, TypeError):
        # A name that only type checkers see, or a function that is not written in Python.
        return typing.Any
    found = hints.get("return", typing.Any)
    return typing.get_args(found)[-1] if typing.get_origin(found) in _AWAITABLES else found
