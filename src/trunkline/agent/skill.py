"""One skill: a function with what the card says of it, and which messages it reads."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Literal, TypedDict

from msgspec import UNSET

from trunkline.agent.binding import AuthorFunction, Binding, bind, inner, is_async, name_of, routine_of
from trunkline.agent.declaration import Effect, emitted_by, read_effects, read_emits
from trunkline.agent.extensions import DELTA
from trunkline.errors import ContentTypeNotSupported, InvalidParams, Misuse
from trunkline.run.executor import OnCrash
from trunkline.wire.card import Skill as CardSkill
from trunkline.wire.types import Message, Part

Crash = Literal["fail", "restart", "resume"]
JSON = "application/json"
TEXT = "text/plain"


class FunctionKind(Enum):
    """How a function is called."""

    COROUTINE = "coroutine"
    ASYNC_GENERATOR = "async generator"
    SYNC = "sync"


class Skill(CardSkill, frozen=True, kw_only=True, gc=True):
    """A function an agent offers: what the card says of it, and what the runner knows beyond that."""

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
        readable = any([self.reads(part) for part in message.parts])
        if not readable:
            self.check_media_types(message)
        if self.binding.model is not None:
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
        takes_text=binding.model is None and _covers(modes, TEXT),
        on_crash=read_on_crash(about.get("on_crash", on_crash)),
        emits=emits | {DELTA} if effects else emits,
        effects=effects,
        public=about.get("public", True),
    )


def _modes(binding: Binding) -> tuple[str, ...]:
    if binding.model is None:
        return (TEXT,)
    return (JSON, TEXT) if binding.text_member else (JSON,)


def read_on_crash(value: object) -> OnCrash:
    """The `on_crash` that an author wrote, by its name or as the enum.

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
    generates = inspect.isasyncgenfunction(routine_of(function))
    return FunctionKind.ASYNC_GENERATOR if generates else FunctionKind.SYNC


def _media_type(part: Part) -> str:
    """The media type a part claims; text is text whatever its flavour, so it claims none."""
    return "" if part.text is not None else part.media_type.split(";")[0].strip().lower()


def _covers(modes: tuple[str, ...], kind: str) -> bool:
    family = kind.split("/")[0]
    return any(mode in (kind, "*/*", f"{family}/*") for mode in modes) or (
        family == "text" and any(mode.startswith("text/") for mode in modes)
    )
