"""What a model has other agents do, within the bounds of its task: each a child task of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from msgspec.structs import replace

from trunkline.agent.turn import Turn
from trunkline.errors import CallFailed, Misuse
from trunkline.fleet.catalogue.listed import Listed
from trunkline.fleet.catalogue.model_entry import ModelEntry
from trunkline.fleet.catalogue.roster import roster
from trunkline.fleet.routing.a2a_tool import A2aLine, card_lines, card_text, framed, list_text, read_line
from trunkline.gateway.model.gate import ShownArtifact
from trunkline.gateway.model.roster import others
from trunkline.gateway.model.tools import NAME_SHOWN, A2aForm, AgentForm, ModelParts, Used

SUB_AGENT = "sub_agent_response"


class Delegation:
    """The agents that one run asks."""

    def __init__(
        self,
        turn: Turn,
        agent: str,
        entry: ModelEntry,
        parts: ModelParts,
        show: Callable[[ShownArtifact], Awaitable[None]],
    ) -> None:
        self._turn = turn
        self._agent = agent
        self._entry = entry
        self._parts = parts
        self._show = show
        self._asked = 0

    async def ask(self, form: AgentForm, tool: str) -> Used:
        """Have another agent of the tenant do something, as a child task."""
        # Who may be asked is decided once: the catalogue may be another one when the run is played again.
        refused = await self._turn.step(f"tool {tool}", self._refusal, form, tool)
        if not refused.ok:
            return refused
        self._asked += 1
        try:
            if form.skill:
                result = await self._turn.call(form.name, form.message, skill=form.skill)
            else:
                result = await self._turn.call(form.name, form.message)
        except (CallFailed, Misuse) as error:
            return Used(False, str(error))
        if self._entry.artifacts:
            content = {"agent": form.name, "depth": 1, "content": result.text}
            await self._show({"data": content, "name": SUB_AGENT})
        return Used(True, result.text)

    async def _refusal(self, form: AgentForm, tool: str) -> Used:
        known = {one.entry.name: one for one in self._others() if tool == "agent" or one.entry.kind == "peer"}
        if (found := known.get(form.name)) is None:
            return Used(False, f"there is no agent {form.name[:NAME_SHOWN]!r}; there are {_names(known)}")
        if found.state == "unreachable":
            # A call would wait for the agent to recover; the model can ask another one now.
            return Used(False, f"{form.name} cannot be reached now; ask another agent, or try again later")
        limit = self._entry.limits.delegations
        if self._asked >= limit:
            return Used(False, f"no more than {limit} calls of agents in one task")
        return Used(True, "")

    def _others(self) -> list[Listed]:
        return others(self._parts.agents(self._turn.tenant), self._agent)

    async def perform(self, form: A2aForm) -> Used:
        """Perform a line about agents elsewhere; its result is framed, also that of what went wrong."""
        try:
            asked = read_line(form.line)
        except Misuse as error:
            return _framed(form.line, Used(False, str(error)))
        if asked.verb != "call":
            used = await self._turn.step("tool a2a", self._elsewhere, asked)
            return _framed(form.line, used)
        used = await self.ask(AgentForm(asked.name, asked.message), "a2a")
        return _framed(form.line, replace(used, label=f"a2a:{asked.name}"))

    async def _elsewhere(self, asked: A2aLine) -> Used:
        peers = [one for one in self._others() if one.entry.kind == "peer"]
        if asked.verb == "list":
            return Used(True, list_text(roster(peers).items))
        found = next((one for one in peers if one.entry.name == asked.name), None)
        if found is None:
            known = _names([one.entry.name for one in peers])
            return Used(False, f"there is no agent {asked.name[:NAME_SHOWN]!r}; there are {known}")
        return Used(True, card_text(card_lines(found)))


def _framed(line: str, used: Used) -> Used:
    return replace(used, text=framed(line, used.text if used.ok else f"ERR: {used.text}"), is_framed=True)


def _names(known: Iterable[str]) -> str:
    return ", ".join(sorted(known)) or "none"
