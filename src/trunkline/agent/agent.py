"""The agent: a name, a description and skills. `asgi` is the one seam to the rest of the system."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast, overload

from trunkline.agent.binding import Author
from trunkline.agent.result import conclude, give_up, lose
from trunkline.agent.skill import About, Skill, make_skill
from trunkline.agent.testing import TestClient
from trunkline.agent.turn import Coalesce, Ended, Turn
from trunkline.errors import InvalidParams, Misuse, Refused, TurnOver
from trunkline.run.executor import Verdict, Work
from trunkline.wire.card import Provider
from trunkline.wire.types import Message, SendRequest

if TYPE_CHECKING:
    from trunkline.app import Application

Function = TypeVar("Function", bound=Author)
_HINTS = ("skillHint", "skill")


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
        self.coalesce = Coalesce()
        self.settings = settings
        self.skills: dict[str, Skill] = {}
        self._default = ""
        self._application: Application | None = None

    @overload
    def skill(self, function: Function, /) -> Function: ...

    @overload
    def skill(self, /, **about: Unpack[About]) -> Callable[[Function], Function]: ...

    def skill(self, function: Author | None = None, /, **about: Unpack[About]) -> Any:
        """Offer a function as a skill; the first one, or the one marked default, takes what names none."""

        def add(offered: Author) -> Author:
            made = make_skill(offered, about, self.input_modes, self.output_modes)
            self._add(made, default=about.get("default", False))
            return offered

        return add if function is None else add(function)

    def _add(self, skill: Skill, *, default: bool) -> None:
        if skill.id in self.skills:
            raise Misuse(f"agent {self.name} has two skills {skill.id!r}; give one of them another id=")
        self.skills[skill.id] = skill
        if default or not self._default:
            self._default = skill.id

    def admit(self, request: SendRequest) -> str:
        """The id of the skill that takes this message: by name, by a typed data part, or the default."""
        skill = self._named(request) or self._typed(request.message) or self.skills[self._default]
        skill.check(request.message)
        return skill.id

    def _named(self, request: SendRequest) -> Skill | None:
        for place, metadata in (("message.metadata", request.message.metadata), ("metadata", request.metadata)):
            for hint in _HINTS:
                if metadata and (wanted := metadata.get(hint)) is not None:
                    if isinstance(wanted, str) and wanted in self.skills:
                        return self.skills[wanted]
                    raise InvalidParams(
                        f"there is no skill {wanted!r}; this agent has {', '.join(self.skills)}",
                        field=f"{place}.{hint}",
                    )
        return None

    def _typed(self, message: Message) -> Skill | None:
        if len(self.skills) == 1 or not any(part.text is None for part in message.parts):
            return None
        for skill in self.skills.values():
            if skill.binding.typed:
                try:
                    skill.check(message)
                except Refused:
                    continue
                return skill
        return None

    def named(self, name: str) -> str:
        """The id of the skill of this name; empty if the name is the agent's own."""
        if name in self.skills:
            return name
        if name == self.name:
            return ""
        known = ", ".join([self.name, *self.skills])
        raise InvalidParams(f"there is no agent or skill {name!r} here; there are {known}", field="agent_id")

    async def run(self, work: Work) -> Verdict:
        """Call the skill that the task was admitted for."""
        skill = self.skills.get(work.state.skill)
        turn = Turn(work, work.state.skill, self.coalesce)
        try:
            if skill is None:
                turn.fail(f"This agent no longer has the skill {work.state.skill}.")
            return await conclude(turn, await skill.call(turn))
        except (Ended, BaseExceptionGroup) as error:
            # A verdict given inside a task group comes wrapped in what it stopped.
            if (ended := _ended(error)) is not None:
                return await give_up(turn, ended)
            await lose(turn)
            raise
        except TurnOver:
            raise
        except Exception:
            await lose(turn)
            raise

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
        return TestClient(self._build({"store": "memory:", **settings}))


def _ended(error: BaseException) -> Ended | None:
    if isinstance(error, BaseExceptionGroup):
        inside = cast("BaseExceptionGroup[BaseException]", error).exceptions
        return next((found for one in inside if (found := _ended(one)) is not None), None)
    return error if isinstance(error, Ended) else None
