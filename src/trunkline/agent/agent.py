"""The agent: a name, a description and skills. `asgi` is the one seam to the rest of the system."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from trunkline.agent.binding import AuthorFunction
from trunkline.agent.declaration import extensions_of
from trunkline.agent.skill import Crash, Skill, SkillOptions, make_skill, read_on_crash
from trunkline.agent.testing import TestClient
from trunkline.errors import Misuse
from trunkline.http.mounts import App, Route
from trunkline.wire.card import Extension, Provider

if TYPE_CHECKING:
    from trunkline.app import Application

Function = TypeVar("Function", bound=AuthorFunction)


class Agent:
    """What others see as one A2A agent."""

    def __init__(
        self,
        name: str,
        *,
        description: str = "",
        version: str = "0.1.0",
        provider: Provider | None = None,
        icon_url: str = "",
        documentation_url: str = "",
        input_modes: Sequence[str] = (),
        output_modes: Sequence[str] = (),
        streaming: bool = True,
        on_crash: Crash = "fail",
        **settings: object,
    ) -> None:
        if not name.strip() or not name.isprintable():
            raise Misuse("an agent needs a printable name")
        self.name = name
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
        """What the card declares: what its skills emit, what they change, what they read in a data part."""
        skills = self.skills.values()
        emits = {name for skill in skills for name in skill.emits}
        schemas = {skill.id: skill.binding.schema for skill in skills if skill.binding.schema}
        return extensions_of(emits, {skill.id: skill.effects for skill in skills}, schemas)

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
        from trunkline.app import build

        return build(self, settings)

    def lifespan(self, app: object = None) -> AbstractAsyncContextManager[None]:
        """For a host that does not run a mounted application's lifespan: pass it as the host's own."""
        del app
        return self.asgi().lifespan()

    def card_routes(self, path: str = "") -> Callable[..., Awaitable[None]]:
        """For a host that owns the origin: an application to mount at `/.well-known`.

        `path` is where the agent itself is mounted, so that the card can say so.
        """
        return self.asgi().cards(path)

    def test_client(self, **settings: object) -> TestClient:
        """Drive the agent in process: `async with agent.test_client() as client: await client.send("hi")`."""
        return TestClient(self._build({"store": "memory:", "drain_limit": 1, **settings}))
