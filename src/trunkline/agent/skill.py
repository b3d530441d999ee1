"""One skill: a function with what the card says of it, and how it is called.

Async functions and generators run on the loop; sync ones in a thread of their own, with a turn
whose calls block. Whatever the function gives back is shaped by `result`.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from enum import Enum
from typing import Any, TypedDict, cast

from msgspec import UNSET, Struct

from trunkline.agent.binding import Author, Binding, bind
from trunkline.agent.result import Result, emit_piece
from trunkline.agent.turn import Turn
from trunkline.errors import ContentTypeNotSupported, InvalidParams
from trunkline.wire.types import Message, Part

JSON = "application/json"
TEXT = "text/plain"


class Form(Enum):
    """How a function is called."""

    COROUTINE = "coroutine"
    ASYNC_GENERATOR = "async generator"
    SYNC = "sync"


class Skill(Struct, frozen=True):
    """A function an agent offers, as card and runner know it."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...]
    examples: tuple[str, ...]
    input_modes: tuple[str, ...]
    output_modes: tuple[str, ...]
    function: Author
    binding: Binding
    form: Form
    takes_text: bool

    def check(self, message: Message) -> None:
        """Whether this skill can read the message.

        Raises:
            ContentTypeNotSupported: a part has a media type that the skill does not read.
            InvalidParams: what the skill needs is missing or does not fit.
        """
        parts = message.parts
        if self.takes_text and len(parts) == 1 and parts[0].text is not None:
            return
        for place, part in enumerate(parts):
            kind = _media_type(part)
            if kind and not _covers(self.input_modes, kind):
                raise ContentTypeNotSupported(
                    f"skill {self.id} reads {', '.join(self.input_modes)}, not {kind}",
                    field=f"message.parts[{place}]",
                )
        if self.binding.typed:
            self.binding.read(message)
        elif not any(self._reads(part) for part in message.parts):
            raise InvalidParams(
                f"skill {self.id} reads {', '.join(self.input_modes)}; the message has no such part",
                field="message.parts",
            )

    def _reads(self, part: Part) -> bool:
        if part.text is not None:
            return _covers(self.input_modes, TEXT)
        if part.data is not UNSET:
            return _covers(self.input_modes, JSON)
        # A file that does not say what it is may be anything the skill reads beyond text.
        return bool(part.media_type) or any(mode not in (TEXT, JSON) for mode in self.input_modes)

    async def call(self, turn: Turn) -> Result:
        """Run the function for one turn."""
        binding, function = self.binding, self.function
        value = binding.read(turn.request) if binding.typed else None
        text = turn.text if binding.text else ""
        if self.form is Form.COROUTINE:
            return await cast("Awaitable[Result]", function(**binding.arguments(turn, text, value)))
        if self.form is Form.ASYNC_GENERATOR:
            pieces = cast("AsyncIterator[Result]", function(**binding.arguments(turn, text, value)))
            async for piece in pieces:
                await emit_piece(turn, piece)
            return None
        arguments = binding.arguments(SyncTurn(turn), text, value)
        return await _in_thread(lambda: _sync(function, arguments, turn))


class About(TypedDict, total=False):
    """What an author may say of a skill; the rest is taken from the function."""

    id: str
    name: str
    description: str
    tags: Sequence[str]
    examples: Sequence[str]
    input_modes: Sequence[str]
    output_modes: Sequence[str]
    default: bool


def make_skill(function: Author, about: About, input_modes: tuple[str, ...], output_modes: tuple[str, ...]) -> Skill:
    """A skill from a function; what is left out is taken from its name, docstring and signature."""
    binding = bind(function)
    own_id = about.get("id") or getattr(function, "__name__", type(function).__name__)
    summary = (inspect.getdoc(function) or "").split("\n\n", 1)[0].replace("\n", " ")
    modes = tuple(about.get("input_modes", ())) or input_modes or ((JSON,) if binding.typed else (TEXT,))
    return Skill(
        id=own_id,
        name=about.get("name") or own_id.replace("_", " ").capitalize(),
        description=about.get("description") or summary or own_id,
        tags=tuple(about.get("tags", ())) or (own_id,),
        examples=tuple(about.get("examples", ())),
        input_modes=modes,
        output_modes=tuple(about.get("output_modes", ())) or output_modes or (TEXT, JSON),
        function=function,
        binding=binding,
        form=_form(function),
        takes_text=not binding.typed and _covers(modes, TEXT),
    )


def _form(function: Author) -> Form:
    called = function if inspect.isroutine(function) else type(function).__call__
    if inspect.iscoroutinefunction(called):
        return Form.COROUTINE
    return Form.ASYNC_GENERATOR if inspect.isasyncgenfunction(called) else Form.SYNC


class SyncTurn:
    """A turn for a function in a thread: the same names, but calls block until they are done."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._loop = asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._turn, name)
        if not inspect.iscoroutinefunction(found):
            return found
        start = cast("Callable[..., Coroutine[None, None, object]]", found)

        def blocking(*args: object, **kwargs: object) -> object:
            return asyncio.run_coroutine_threadsafe(start(*args, **kwargs), self._loop).result()

        return blocking


def _sync(function: Author, arguments: dict[str, object], turn: Turn) -> Result:
    given = function(**arguments)
    if not inspect.isgenerator(given):
        return cast("Result", given)
    loop = turn.loop
    for piece in cast("Iterator[Result]", given):
        asyncio.run_coroutine_threadsafe(emit_piece(turn, piece), loop).result()
    return None


async def _in_thread(work: Callable[[], Result]) -> Result:
    """Run work in a thread that cannot hold up the end of the process, however long it hangs."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def settle(value: Result, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def body() -> None:
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 - carried to the awaiting coroutine
            carried = RuntimeError("the skill raised StopIteration") if isinstance(error, StopIteration) else error
            loop.call_soon_threadsafe(settle, None, carried)
        else:
            loop.call_soon_threadsafe(settle, value, None)

    threading.Thread(target=body, name="trunkline-skill", daemon=True).start()
    return await future


def _media_type(part: Part) -> str:
    """The media type a part claims; text is text whatever its flavour, so it claims none."""
    return "" if part.text is not None else part.media_type.split(";")[0].strip().lower()


def _covers(modes: tuple[str, ...], kind: str) -> bool:
    family = kind.split("/")[0]
    return any(mode in (kind, "*/*", f"{family}/*") for mode in modes) or (
        family == "text" and any(mode.startswith("text/") for mode in modes)
    )
