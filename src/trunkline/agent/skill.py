"""One skill: a function with what the card says of it, and how it is called.

Async functions and generators run on the loop; sync ones in a thread of their own, with a turn
whose calls block. Whatever the function gives back is shaped by `result`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, ParamSpec, TypedDict, TypeVar, cast, overload

from msgspec import UNSET, Struct
from msgspec.structs import replace

from trunkline.agent.binding import AuthorFunction, Binding, bind, in_thread, inner, is_async, name_of
from trunkline.agent.declaration import Effect, emitted_by, read_effects, read_emits
from trunkline.agent.extensions import DELTA
from trunkline.agent.mcp_tools import TOOL_TIMEOUT_S, McpTools
from trunkline.agent.result import Result, emit_piece
from trunkline.agent.step import awaited, fitted
from trunkline.agent.turn import Turn
from trunkline.errors import ContentTypeNotSupported, InvalidParams, Misuse, TurnOver
from trunkline.log.events import Stepped
from trunkline.run.executor import OnCrash
from trunkline.wire.types import Message, Part

Crash = Literal["fail", "restart", "resume"]
JSON = "application/json"
TEXT = "text/plain"
P = ParamSpec("P")
T = TypeVar("T")


class FunctionKind(Enum):
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
    function: AuthorFunction
    binding: Binding
    kind: FunctionKind
    takes_text: bool
    on_crash: OnCrash = OnCrash.FAIL
    # The extensions it emits, by name, and what it changes in shared state.
    emits: frozenset[str] = frozenset()
    effects: tuple[Effect, ...] = ()
    # One that is not is listed on the extended card only.
    public: bool = True

    def check(self, message: Message) -> None:
        """Whether this skill can read the message, or at least one part of it.

        Raises:
            ContentTypeNotSupported: no part has a media type that the skill reads.
            InvalidParams: what the skill needs is missing or does not fit.
        """
        parts = message.parts
        if self.takes_text and len(parts) == 1 and parts[0].text is not None:
            return
        readable = any([self.reads(part) for part in parts])
        if not readable:
            self.check_media_types(message)
        if self.binding.typed:
            self.binding.read(message)
        elif not readable:
            raise InvalidParams(
                f"skill {self.id} reads {', '.join(self.input_modes)}; the message has no such part",
                field="message.parts",
            )

    def check_media_types(self, message: Message) -> None:
        """Whether this skill reads the media type of every part.

        Raises:
            ContentTypeNotSupported: of one it does not.
        """
        for place, part in enumerate(message.parts):
            if not self._reads_type(part):
                raise ContentTypeNotSupported(
                    f"skill {self.id} reads {', '.join(self.input_modes)}, not {_media_type(part)}",
                    field=f"message.parts[{place}]",
                )

    def _reads_type(self, part: Part) -> bool:
        kind = _media_type(part)
        return not kind or _covers(self.input_modes, kind)

    def reads(self, part: Part) -> bool:
        """Whether it reads a part of this kind."""
        if not self._reads_type(part):
            return False
        if part.text is not None:
            return _covers(self.input_modes, TEXT)
        if part.data is not UNSET:
            return _covers(self.input_modes, JSON)
        # A file that does not say what it is may be anything the skill reads beyond text.
        return bool(part.media_type) or any(mode not in (TEXT, JSON) for mode in self.input_modes)

    async def call(self, turn: Turn) -> Result:
        """Run the function for one turn."""
        binding, function = self.binding, self.function
        values: dict[str, object] = {binding.text: turn.text} if binding.text else {}
        if binding.typed:
            values = binding.read(turn.request)
        if self.kind is FunctionKind.COROUTINE:
            return await cast("Awaitable[Result]", function(**binding.arguments(turn, values)))
        if self.kind is FunctionKind.ASYNC_GENERATOR:
            return await _unfold(turn, function(**binding.arguments(turn, values)))
        blocking = SyncTurn(turn)
        arguments = binding.arguments(blocking, values)
        try:
            given = await in_thread(lambda: _sync(function, arguments, blocking))
        finally:
            blocking.release()
        return await _unfold(turn, given)


class SkillOptions(TypedDict, total=False):
    """What an author may say of a skill; the rest is taken from the function."""

    id: str
    name: str
    description: str
    tags: Sequence[str]
    examples: Sequence[str]
    input_modes: Sequence[str]
    output_modes: Sequence[str]
    default: bool
    on_crash: Crash
    emits: Sequence[str]
    effects: Sequence[Effect | Mapping[str, object]]
    public: bool


def make_skill(
    function: AuthorFunction,
    about: SkillOptions,
    input_modes: tuple[str, ...],
    output_modes: tuple[str, ...],
    on_crash: Crash = "fail",
) -> Skill:
    """A skill from a function; what is left out is taken from its name, docstring and signature."""
    binding = bind(function)
    own_id = about.get("id") or name_of(function)
    summary = (inspect.getdoc(inner(function)) or "").split("\n\n", 1)[0].replace("\n", " ")
    effects = read_effects(about.get("effects", ()))
    emits = emitted_by(function, binding.turn) | {*read_emits(about.get("emits", ()))}
    modes = tuple(about.get("input_modes", ())) or input_modes or _modes(binding)
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
        kind=_kind(function),
        takes_text=not binding.typed and _covers(modes, TEXT),
        on_crash=read_on_crash(about.get("on_crash", on_crash)),
        emits=emits | {DELTA} if effects else emits,
        effects=effects,
        public=about.get("public", True),
    )


def _modes(binding: Binding) -> tuple[str, ...]:
    if not binding.typed:
        return (TEXT,)
    return (JSON, TEXT) if binding.text_member else (JSON,)


def read_on_crash(value: object) -> OnCrash:
    """What an author wants of a task whose process dies.

    Raises:
        Misuse: there is no such way.
    """
    try:
        return OnCrash(value)
    except ValueError:
        known = ", ".join(repr(one.value) for one in OnCrash)
        raise Misuse(f"on_crash is one of {known}, not {value!r}") from None


def _kind(function: AuthorFunction) -> FunctionKind:
    if is_async(function):
        return FunctionKind.COROUTINE
    plain = inspect.unwrap(inner(function))
    called = plain if inspect.isroutine(plain) else type(plain).__call__
    return FunctionKind.ASYNC_GENERATOR if inspect.isasyncgenfunction(called) else FunctionKind.SYNC


class SyncTurn:
    """A turn for a function in a thread: the same names, but calls block until they are done."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._loop = asyncio.get_running_loop()
        self._waits: set[concurrent.futures.Future[object]] = set()
        self._released = False
        # The thread of the function itself; others that it starts have no say in how the task waits.
        self._thread = 0

    def enter(self) -> None:
        """Note the thread in which the function begins."""
        self._thread = threading.get_ident()

    def release(self) -> None:
        """The task has no more use for the thread: let it out of whatever it still waits for."""
        self._released = True
        for wait in list(self._waits):
            wait.cancel()

    def emit_piece(self, piece: Result) -> None:
        """One value of a generator."""
        self._wait(emit_piece(self._turn, piece))

    @overload
    def step(
        self, name: str, function: Callable[P, Awaitable[T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    @overload
    def step(self, name: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    def step(self, name: str, function: AuthorFunction, /, *args: object, **kwargs: object) -> Any:
        """Do something once, in this thread; see `Turn.step`."""
        place = self._turn.next_step(name)
        stepped = cast("Stepped | None", self._wait(self._turn.recall(place, name)))
        if stepped is not None:
            return fitted(name, stepped.result, function)
        result = function(*args, **kwargs)
        if inspect.isawaitable(result):
            # Itself where it can be: one that is wrapped and given up would never have been begun.
            result = self._wait(result if inspect.iscoroutine(result) else awaited(result))
        return self._wait(self._turn.keep(place, name, function, result))

    def mcp(self, server: str, *, timeout: float = TOOL_TIMEOUT_S) -> McpTools:
        """The tools of an MCP server, whose calls block; see `Turn.mcp`."""
        return replace(self._turn.mcp(server, timeout=timeout), turn=self)

    def _wait(self, work: Coroutine[None, None, object]) -> object:
        if _is_running(self._loop):
            # Waiting here would stop the very loop that has to do the work.
            work.close()
            raise Misuse("this turn blocks; make the skill an async function to use it on the event loop")
        if self._released:
            work.close()
            raise TurnOver(f"task {self._turn.task_id} has ended or moved")
        if threading.get_ident() == self._thread:
            work = self._turn.wait_as_main(work)
        wait = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._waits.add(wait)
        if self._released:
            # Released between the look and the note; whoever comes second of the two sees the other.
            wait.cancel()
        try:
            return wait.result()
        except concurrent.futures.CancelledError:
            raise TurnOver(f"task {self._turn.task_id} has ended or moved") from None
        finally:
            self._waits.discard(wait)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._turn, name)
        if not inspect.iscoroutinefunction(found):
            return found
        start = cast("Callable[..., Coroutine[None, None, object]]", found)

        def blocking(*args: object, **kwargs: object) -> object:
            return self._wait(start(*args, **kwargs))

        return blocking


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is the thread of the loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def _sync(function: AuthorFunction, arguments: dict[str, object], turn: SyncTurn) -> Result:
    turn.enter()
    given = function(**arguments)
    if not inspect.isgenerator(given):
        return cast("Result", given)
    for piece in cast("Iterator[Result]", given):
        turn.emit_piece(piece)
    return None


async def _unfold(turn: Turn, given: Result) -> Result:
    """What a function gave back, or what came of it: a wrapper may hide a coroutine or a generator."""
    if inspect.isawaitable(given):
        given = await given
    if not isinstance(given, AsyncIterator):
        return given
    async for piece in cast("AsyncIterator[Result]", given):
        await emit_piece(turn, piece)
    return None


def _media_type(part: Part) -> str:
    """The media type a part claims; text is text whatever its flavour, so it claims none."""
    return "" if part.text is not None else part.media_type.split(";")[0].strip().lower()


def _covers(modes: tuple[str, ...], kind: str) -> bool:
    family = kind.split("/")[0]
    return any(mode in (kind, "*/*", f"{family}/*") for mode in modes) or (
        family == "text" and any(mode.startswith("text/") for mode in modes)
    )
