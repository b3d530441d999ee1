"""The agent: a name, a description and skills. `asgi` is the one seam to the rest of the system."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from trunkline.agent.binding import AuthorFunction
from trunkline.agent.declaration import extensions_of
from trunkline.agent.skill import Crash, Skill, SkillOptions, make_skill, read_on_crash
from trunkline.agent.testing import TestClient
from trunkline.errors import Misuse
from trunkline.http.mounts import App, Route
from trunkline.peer.remote import Peer
from trunkline.wire.card import Card, Extension, Provider
from trunkline.wire.card import Skill as CardSkill
from trunkline.wire.service_parameters import IDEMPOTENT_SEND

if TYPE_CHECKING:
    from trunkline.host import Application

Function = TypeVar("Function", bound=AuthorFunction)

_TEXT = ("text/plain",)
IDEMPOTENT = Extension(
    IDEMPOTENT_SEND,
    "The same message, known by a messageId that is a UUID or by Idempotency-Key, is the same task for a day",
    required=False,
)
_ID = re.compile(r"(?!\.*\Z)[A-Za-z0-9_.-]{1,64}")
# Where agents are addressed, this one means every one of them.
_EVERYBODY = "all"


class Agent:
    """An A2A agent as its author writes it: a name, a description, and the skills that it offers."""

    def __init__(
        self,
        name: str,
        *,
        id: str = "",
        description: str = "",
        version: str = "0.1.0",
        provider: Provider | None = None,
        icon_url: str = "",
        documentation_url: str = "",
        input_modes: Sequence[str] = (),
        output_modes: Sequence[str] = (),
        streaming: bool = True,
        on_crash: Crash = "fail",
        peers: Mapping[str, Peer | str] | None = None,
        **settings: object,
    ) -> None:
        if not name.strip() or not name.isprintable():
            raise Misuse("an agent needs a printable name")
        self.name = name
        # What tells it from the other agents of a host: in paths, and in the log of each of its tasks.
        self.id = _checked_id(id, name)
        self.description = description or name
        self.version = version
        self.provider = provider
        self.icon_url = icon_url
        self.documentation_url = documentation_url
        self.input_modes = tuple(input_modes)
        self.output_modes = tuple(output_modes)
        self.streaming = streaming
        # What its skills want of a task whose process dies, unless they say otherwise.
        self.on_crash: Crash = read_on_crash(on_crash).value
        # The remote agents that its skills call by a name of their own: `turn.call("writer", …)`.
        self.peers = _checked_peers(peers or {})
        self.settings = settings
        self.skills: dict[str, Skill] = {}
        self.default = ""
        self.mounts: list[tuple[str, App, tuple[Route, ...]]] = []
        self._application: Application | None = None

    @overload
    def skill(self, function: Function, /) -> Function: ...

    @overload
    def skill(self, /, **about: Unpack[SkillOptions]) -> Callable[[Function], Function]: ...

    def skill(self, function: AuthorFunction | None = None, /, **about: Unpack[SkillOptions]) -> Any:
        """Offer a function as a skill; the first one, or the one marked default, takes what names none."""

        def add(offered: AuthorFunction) -> AuthorFunction:
            made = make_skill(offered, about, self.input_modes, self.output_modes, self.on_crash)
            self._add(made, default=about.get("default", False))
            return offered

        return add if function is None else add(function)

    def _add(self, skill: Skill, *, default: bool) -> None:
        if skill.id in self.skills:
            raise Misuse(f"agent {self.name} has two skills {skill.id!r}; give one of them another id=")
        self.skills[skill.id] = skill
        if default or not self.default:
            self.default = skill.id

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """The extensions on the card: what skills emit, what they change, what they read in a data part."""
        skills = self.skills.values()
        emits = {name for skill in skills for name in skill.emits}
        schemas = {skill.id: skill.binding.schema for skill in skills if skill.binding.schema}
        return extensions_of(emits, {skill.id: skill.effects for skill in skills}, schemas)

    def card(self) -> Card:
        """The card of this agent before it is served anywhere; its flags follow from what the agent does."""
        skills = tuple(
            CardSkill(**{name: getattr(skill, name) for name in CardSkill.__struct_fields__})
            for skill in self.skills.values()
        )
        return Card(
            name=self.name,
            description=self.description,
            version=self.version,
            rpc_url="",
            rest_url="",
            skills=skills,
            default_input_modes=_modes(self.input_modes, [skill.input_modes for skill in skills]),
            default_output_modes=_modes(self.output_modes, [skill.output_modes for skill in skills]),
            streaming=self.streaming,
            extensions=(*self.extensions, IDEMPOTENT),
            provider=self.provider,
            icon_url=self.icon_url,
            documentation_url=self.documentation_url,
        )

    def mount(self, prefix: str, app: App, *, routes: Sequence[Route]) -> None:
        """Serve another ASGI application below a prefix, behind the same keys and limits as the agent.

        Each of its routes says which scope it needs and how long a body may be; others are not found. The
        caller is `scope["trunkline.principal"]`. Its lifespan is not run.
        """
        self.mounts.append((prefix, app, tuple(routes)))

    def asgi(self, **settings: object) -> Application:
        """An ASGI application to serve, or to mount under any path of another one.

        Settings given here win over all others. Without any, the application made last is given again:
        `lifespan` and `card_routes` are that one's.
        """
        if settings or self._application is None:
            self._application = self._build(settings)
        return self._application

    def _build(self, settings: dict[str, object]) -> Application:
        from trunkline.host import Application

        return Application(self, settings)

    def lifespan(self, app: object = None) -> AbstractAsyncContextManager[None]:
        """For an application that does not run the lifespan of what is mounted in it: pass it as its own.

        For several agents pass `trunkline.lifespan(one, two)`.
        """
        del app
        return self.asgi().lifespan()

    def card_routes(self, path: str = "") -> Callable[..., Awaitable[None]]:
        """For an application that owns the origin: another one to mount at `/.well-known`.

        `path` is where the agent itself is mounted, so that the card can say so.
        """
        return self.asgi().card_application(path)

    def test_client(self, **settings: object) -> TestClient:
        """Drive the agent in process: `async with agent.test_client() as client: await client.send("hi")`."""
        application = self._build({"store": "memory:", "drain_limit": 1, **settings})
        return TestClient(application, application.lifespan, application.host.drift)


def _modes(given: tuple[str, ...], of_skills: list[tuple[str, ...]]) -> tuple[str, ...]:
    return given or tuple(dict.fromkeys(mode for modes in of_skills for mode in modes)) or _TEXT


def _checked_peers(given: Mapping[str, Peer | str]) -> dict[str, Peer]:
    for name in given:
        if _ID.fullmatch(name) is None:
            raise Misuse(
                f"{name!r} in peers= is no name: give 1 to 64 letters, digits, dots, hyphens, underscores"
            )
    return {name: Peer(url=peer) if isinstance(peer, str) else peer for name, peer in given.items()}


def _checked_id(given: str, name: str) -> str:
    """The id of an agent: what its author gives, else the slug of its name."""
    made = given or re.sub(r"[^a-z0-9_.]+", "-", name.lower())[:64].strip("-.")
    if not given and not made:
        # A name without a single letter that a path can hold as it is.
        made = f"agent-{blake2b(name.encode(), digest_size=4).hexdigest()}"
    if _ID.fullmatch(made) is None or made == _EVERYBODY:
        raise Misuse(
            f"{made!r} cannot be the id of agent {name!r}: give id= with 1 to 64 letters, digits, dots, "
            f"hyphens and underscores, not {_EVERYBODY}"
        )
    return made
