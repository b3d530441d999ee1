"""The routes of the operator's API that only a host with a catalogue has."""

from __future__ import annotations

from typing import Any

from trunkline.auth.principal import Scope as AuthScope
from trunkline.fleet.call import ApiPage, PageQuery
from trunkline.fleet.catalogue.agents import (
    AgentDetail,
    AgentItem,
    AgentsApi,
    AnnounceForm,
    CatalogueParts,
    Removed,
)
from trunkline.fleet.catalogue.listed import Override
from trunkline.fleet.catalogue.probe import Probed, ProbeForm, probe
from trunkline.fleet.catalogue.roster import Roster
from trunkline.fleet.route import ApiRoute

_OVERRIDES: dict[str, tuple[Override, str]] = {
    "enable": ("enabled", "Let an agent take work, until its text changes."),
    "disable": ("disabled", "Give an agent nothing new, until its text changes."),
    "drain": ("draining", "Let an agent run empty: nothing new, and what is open goes on to its end."),
}


def agent_routes(parts: CatalogueParts) -> list[ApiRoute]:
    """The routes over a catalogue."""
    agents = AgentsApi(parts)
    return [*_reading(agents), *_changing(agents), *_finding(agents, parts)]


def _reading(agents: AgentsApi) -> list[ApiRoute]:
    return [
        ApiRoute(
            pattern="GET /agents",
            scope=AuthScope.READ,
            summary="A page of the agents of the catalogue, by name.",
            act=lambda call, query, _: agents.list(call, query),
            answer=ApiPage,
            query=PageQuery,
        ),
        ApiRoute(
            pattern="GET /agents/{name}",
            scope=AuthScope.READ,
            summary="An agent of the catalogue, with what happened to its entry.",
            act=lambda call, _query, _form: agents.get(call),
            answer=AgentDetail,
        ),
        ApiRoute(
            pattern="GET /roster",
            scope=AuthScope.READ,
            summary="The agents elsewhere in a few lines, for models and routers; who is dead is marked.",
            act=lambda call, _query, _form: agents.roster(call),
            answer=Roster,
        ),
    ]


def _changing(agents: AgentsApi) -> list[ApiRoute]:
    return [
        ApiRoute(
            pattern="POST /agents",
            scope=AuthScope.ADMIN,
            summary="Add an agent.",
            act=lambda call, _, form: agents.create(call, form),
            answer=AgentItem,
            body=dict[str, Any],
        ),
        ApiRoute(
            pattern="PUT /agents/{name}",
            scope=AuthScope.ADMIN,
            summary="Put another entry in the place of an agent's.",
            act=lambda call, _, form: agents.replace(call, form),
            answer=AgentItem,
            body=dict[str, Any],
        ),
        ApiRoute(
            pattern="DELETE /agents/{name}",
            scope=AuthScope.ADMIN,
            summary="Remove an agent; its open tasks are followed to their end.",
            act=lambda call, _query, _form: agents.remove(call),
            answer=Removed,
        ),
        ApiRoute(
            pattern="POST /agents/{name}/refresh",
            scope=AuthScope.ADMIN,
            summary="Ask an agent for its card now.",
            act=lambda call, _query, _form: agents.refresh(call),
            answer=AgentItem,
        ),
        *[_override_route(agents, verb) for verb in _OVERRIDES],
    ]


def _finding(agents: AgentsApi, parts: CatalogueParts) -> list[ApiRoute]:
    return [
        ApiRoute(
            pattern="PUT /announce/{name}",
            scope=AuthScope.ANNOUNCE,
            summary="Say where an agent is; it is listed until ttl seconds have passed.",
            act=lambda call, _, form: agents.announce(call, form),
            answer=AgentItem,
            body=AnnounceForm,
        ),
        ApiRoute(
            pattern="POST /a2a/probe",
            scope=AuthScope.WRITE,
            summary="Whether an agent is at an address.",
            act=lambda call, _query, form: probe(form.url, parts.egress(call.tenant)),
            answer=Probed,
            body=ProbeForm,
        ),
    ]


def _override_route(agents: AgentsApi, verb: str) -> ApiRoute:
    override, summary = _OVERRIDES[verb]
    return ApiRoute(
        pattern=f"POST /agents/{{name}}/{verb}",
        scope=AuthScope.ADMIN,
        summary=summary,
        act=lambda call, _query, _form: agents.override(call, override),
        answer=AgentItem,
    )
