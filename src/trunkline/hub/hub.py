"""A hub: the composition of the fleet's parts on a host, from the files of a workspace."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trunkline.agent.agent import Agent
from trunkline.auth.identity import ClosedTenants, Identity, Verifier
from trunkline.auth.keys import Keyring
from trunkline.auth.principal import ANONYMOUS, DEFAULT_TENANT, OPERATOR, Principal, Scope, tenant_of
from trunkline.auth.vault import Vault, find_key
from trunkline.clock import now_ms
from trunkline.config import Settings, environment, load
from trunkline.errors import Forbidden, Misuse, RouteNotFound
from trunkline.fleet.catalogue.catalogue import Catalogue
from trunkline.fleet.catalogue.files import CatalogueFiles
from trunkline.fleet.catalogue.service import CatalogueService
from trunkline.fleet.ceremonies.dispatch import ceremonies_of
from trunkline.fleet.health.alerts import FleetAlert
from trunkline.fleet.health.fleet_health import FleetHealth
from trunkline.fleet.inbox import inbox_of
from trunkline.fleet.notify.answer_page import AnswerPage, answer_mount
from trunkline.fleet.notify.callers import CallerFirst
from trunkline.fleet.notify.channel_requests import ChannelRequests, channel_mounts
from trunkline.fleet.notify.links import AnswerLinks
from trunkline.fleet.notify.notifications import Notifications
from trunkline.fleet.openai.api import OpenAiApi, openai_mounts
from trunkline.fleet.route import routes_of
from trunkline.fleet.routing.chat_api import ChatApi
from trunkline.fleet.routing.dispatch_api import DispatchApi
from trunkline.fleet.routing.dispatcher import HUB, Dispatcher, Policy
from trunkline.fleet.routing.standings import CatalogueFleet
from trunkline.gateway.model.folder import FILES, TenantFolder
from trunkline.gateway.mounts import tenant_mounts
from trunkline.gateway.quotas import Quotas
from trunkline.gateway.spending import DaySpending
from trunkline.gateway.tenants import NO_QUOTA, TenantQuota
from trunkline.host import Host
from trunkline.http.asgi import Receive, Send
from trunkline.http.asgi import Scope as AsgiScope
from trunkline.http.exchange import read_query
from trunkline.http.mounts import App
from trunkline.hub.carried import CarriedAgents
from trunkline.hub.front import Front, RefusedWork, opening
from trunkline.hub.mcp_agents import tools_of_catalogue
from trunkline.hub.tenants import Tenants
from trunkline.hub.workspace import HUB as HUB_FILE
from trunkline.hub.workspace import STORE, KeyFile, NamedKey, check_notify, read_hub, read_keys
from trunkline.mcp.manifest import FILE as MCP_FILE
from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher
from trunkline.run.executor import Executor
from trunkline.run.node import BackgroundWork
from trunkline.server.card import Cards
from trunkline.server.site import Site
from trunkline.store.mirror import Mirror

try:
    from trunkline.http import websocket
except ImportError:
    # Its library is the extra `websocket`.
    websocket = None

try:
    from trunkline.hub import flows
except ImportError:
    # Its libraries are the extra `flow`.
    flows = None

if TYPE_CHECKING:
    from trunkline.flow.port import FlowCaller
    from trunkline.hub.models import HostModels

log = logging.getLogger("trunkline.hub")
CEREMONIES = "ceremonies"
# Where files of the workspace may have reports posted: they are the operator's word.
EVERYWHERE = ("0.0.0.0/0", "::/0")
_KEYS_S = 2.0
# Without a key, on loopback, everybody is the admin of the one tenant there is, and never an operator.
_ADMIN = Principal(DEFAULT_TENANT, ANONYMOUS.name, frozenset(Scope) - {Scope.OPERATOR})


class Hub:
    """The agents of a workspace behind one address; `host` serves them."""

    executor: Executor = RefusedWork()

    def __init__(self, workspace: Path, flags: Mapping[str, object], variables: Mapping[str, str]) -> None:
        """Read a workspace; flags win over its settings, and `variables` over the environment.

        Raises:
            Misuse: a file is wrong; the text names it, and the line.
        """
        if not workspace.is_dir():
            raise missing_workspace(workspace)
        self.workspace = workspace
        self.file = read_hub(workspace)
        self.catalogue = Catalogue(searches=bool(self.file.search))
        self._variable = variable_of(variables)
        self._following: asyncio.Task[None] | None = None
        self.files = CatalogueFiles(
            workspace, self._variable, self.catalogue.take_files, searches=self.catalogue.searches
        )
        self.files.start()
        read_keys(workspace)
        check_notify(workspace, self.file, self._variable)
        self.carried = CarriedAgents(self.catalogue)
        self._closed = ClosedTenants()
        store = f"sqlite:///{workspace / STORE}"
        agent = Agent(self.file.name, id=HUB, description=self.file.description)
        manifest = str(workspace / MCP_FILE)
        agent.settings = {"store": store, "mcp_manifest": manifest, **self.file.settings}
        self._flows = None if flows is None else flows.flows_of(load(agent.settings, flags), workspace)
        self.host = Host([(agent, flags)], self)
        named = [*openai_mounts(self._serve_openai), *(self._flows.api.mounts() if self._flows else ())]
        for mount in (self.host.api, *named):
            mount.app = self._of_tenants(mount.app)
        for mount in (
            *named,
            *tenant_mounts(self._serve_tenants),
            answer_mount(self._serve_answers),
            *channel_mounts(self._serve_channels),
        ):
            self.host.mounts.add(mount)
        if websocket is not None:
            self.host.api.take_websockets()

    def _of_tenants(self, app: App) -> App:
        """An application where an operator names a tenant, of which there must be one for a change.

        Whoever has that id one day would else have what was made for it.
        """

        async def serve(scope: AsgiScope, receive: Receive, send: Send) -> None:
            if scope.get("method") not in (None, "GET", "HEAD"):
                principal: Principal = scope["trunkline.principal"]
                tenant = tenant_of(principal, read_query(scope["query_string"]).get("tenant", ""))
                if tenant != principal.tenant and not self._is_tenant(tenant):
                    raise RouteNotFound(f"there is no tenant {tenant!r}", missing="TENANT_NOT_FOUND")
            await app(scope, receive, send)

        return serve

    # What the host asks of its fleet.

    def identity(self, settings: Settings, tokens: Verifier | None) -> tuple[Keyring, Identity]:
        """Keys of the command line and the environment are operators'; those of the file are as it says.

        Everybody on this machine is admin while there is no key; from elsewhere nobody is.
        """
        self._keyring = Keyring(settings.keys, scopes=OPERATOR)
        self._take_keys(read_keys(self.workspace))
        anyone = ANONYMOUS if settings.open else _ADMIN
        return self._keyring, Identity(self._keyring, tokens, anyone, self._closed)

    def _take_keys(self, named: Sequence[NamedKey]) -> None:
        tokens = () if self._flows is None else self._flows.config.tokens
        self._keyring.take_named([*[(one.secret, one.principal) for one in named], *tokens])
        self._key_quotas = {(one.principal.tenant, one.principal.name): one.quota for one in named}

    def _key_quota(self, tenant: str, name: str) -> TenantQuota:
        return self._key_quotas.get((tenant, name), NO_QUOTA)

    def assemble(self, host: Host) -> Site:
        """The site at the origin; the parts of the fleet have the runner of the host from here on."""
        runner = host.runner
        self._health = host.api.health = self._measured(host)
        self.catalogue.changed.clear()
        key = find_key(host.settings)
        vault = None if key is None else Vault(key)
        self._tenants = self._tenants_of(host)
        self._service = self._kept(host, vault)
        fleet = CatalogueFleet(self.catalogue, self._health.records)
        quotas = self._quota = self._quotas(host)
        dispatcher = Dispatcher(runner, fleet, self._policy(), admitted=quotas.admitted)
        self.carried.assemble(runner, host.executors, host.sites, host.settings, self._service.clients)
        self.carried.open_by(partial(opening, dispatcher))
        self._run_flows(host, quotas)
        self.carried.run_models(partial(self._load_models, host))
        self._notifications = self._notified(host, vault, dispatcher)
        self._ceremonies = ceremonies_of(
            runner,
            dispatcher,
            fleet,
            guarded=host.fetchers.find,
            own=self._own,
            variable=self._variable,
            post=self._notifications.post,
            let_in=quotas.let_in,
            folder=self.workspace / CEREMONIES,
            rests=self._closed.__contains__,
        )
        host.api.add(
            [
                *routes_of(DispatchApi(runner, dispatcher)),
                *routes_of(ChatApi(runner, dispatcher, fleet)),
                *self._ceremonies.routes,
                *self._service.routes(),
            ]
        )
        self._openai = OpenAiApi(
            runner,
            dispatcher,
            fleet,
            self.catalogue.listed,
            hub=self.file.name,
            keep_alive_s=host.settings.keep_alive,
        )
        host.mcp.source = tools_of_catalogue(self.catalogue, runner, dispatcher, host.settings)
        front = self._front = Front(self.file, self.catalogue, dispatcher, host.sites, host.settings)
        front.site.cards_of = self._own_cards
        self.catalogue.changed += [self.carried.note, front.renew]
        return front.site

    def _load_models(self, host: Host) -> HostModels:
        """What model agents work with.

        Raises:
            Misuse: the extra is not installed.
        """
        try:
            from trunkline.hub.models import HostModels
        except ModuleNotFoundError as error:
            hint = "pip install 'trunkline[model]'"
            raise Misuse(f"models need {error.name}: {hint}", hint=hint) from None
        return HostModels(
            host,
            self.catalogue,
            self._variable,
            workspace=self.workspace,
            ceremonies=self._ceremonies.api,
            policy=self._tenants,
            meter=self._quota,
            own=self._own,
            search_url=self.file.search,
        )

    def _tenants_of(self, host: Host) -> Tenants:
        made = Tenants(
            host,
            self._closed,
            quota=self.file.quota,
            settings=self.file.tenant_settings,
            alerts=self.file.alerts,
            named=self._named_tenants,
        )
        made.changed = self.catalogue.forget_view
        host.fetchers.egress_of = made.egress_of
        made.remove_files = lambda tenant: TenantFolder(self.workspace / FILES, tenant).remove()
        self.catalogue.allows = made.allows
        return made

    def _quotas(self, host: Host) -> Quotas:
        self._spending = DaySpending(self._health)
        made = Quotas(
            host.store.heads,
            self._spending,
            of_tenant=self._tenants.quota_of,
            of_key=self._key_quota,
            is_closed=self._closed.__contains__,
            shared=host.store.shared,
        )
        host.sites.refuse_work_by(made.check_known)
        return made

    def _run_flows(self, host: Host, quotas: Quotas) -> None:
        if self._flows is None:
            return
        runs = self._flows.assemble(host, self.carried.has, self._tenants)
        self._flows.meter_by(quotas)
        self._flows.port.admitted = partial(self._admitted_run, quotas)
        self.carried.run_flows(self._flows, runs)

    def _admitted_run(self, quotas: Quotas, caller: FlowCaller) -> AbstractAsyncContextManager[None] | None:
        """Let a run of a workflow be started that is no agent of the catalogue."""
        if not self._tenants.allows(caller.tenant, "flow"):
            raise Forbidden("no workflows for this tenant: the operator sets kinds")
        return quotas.let_in(caller.tenant, caller.principal)

    def _own_cards(self, tenant: str) -> Cards | None:
        return self._front.cards(tenant) if self.hides_cards else None

    async def _serve_tenants(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer by the store that the host has now."""
        await self._tenants.answer(scope, receive, send)

    async def _serve_openai(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer by the runner that the host has now."""
        await self._openai(scope, receive, send)

    async def _serve_answers(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer by the runner that the host has now."""
        await self._answers(scope, receive, send)

    async def _serve_channels(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer by the runner that the host has now."""
        await self._channels(scope, receive, send)

    def _measured(self, host: Host) -> FleetHealth:
        return FleetHealth(
            host.store,
            origin=HUB,
            window_s=host.settings.health_window_s,
            registered=self._names,
            limits=lambda tenant: self._tenants.alerts_of(tenant),
            raised=self._raise_alert,
        )

    def _kept(self, host: Host, vault: Vault | None) -> CatalogueService:
        return CatalogueService(
            self.catalogue,
            host.store.docs,
            now_ms,
            agent_egress=self._tenants.agent_egress_of,
            probe_egress=self._tenants.egress_of,
            vault=vault,
            card_refresh_s=host.settings.card_refresh_s,
            health=self._health.records.of,
        )

    async def _raise_alert(self, tenant: str, alert: FleetAlert, number: int, at: int) -> None:
        await self._notifications.alert(tenant, alert, number, at)

    def _notified(self, host: Host, vault: Vault | None, dispatcher: Dispatcher) -> Notifications:
        if vault is None and any([one.link for one in self.file.notify]):
            raise Misuse(f"{self.workspace / HUB_FILE}: notify: a link needs secret_key on this store")
        # Receivers and reports of files are called wherever they are.
        self._own = Fetcher(Egress(networks=EVERYWHERE), timeout_s=host.settings.push_timeout)
        inbox, public = inbox_of(host.runner), host.settings.public_url.rstrip("/")
        links = AnswerLinks(vault, lambda: public or host.callbacks.own, now_ms)
        self._answers = AnswerPage(inbox, links, self._closed)
        made = Notifications(
            host.store,
            inbox,
            self.file.notify,
            fetcher=self._own,
            sign=lambda: None if host.notifier is None else host.notifier.signer.sign,
            links=links,
            variable=self._variable,
            now_ms=now_ms,
            dispatcher=dispatcher,
            callers=CallerFirst(host.runner, dispatcher, inbox, self.catalogue.find, now_ms),
            # Agents are known by their keys.
            wanted=lambda: host.identity.enforced,
            tenants=self._all_tenants,
            closed=self._closed,
        )
        self._channels = ChannelRequests(made)
        return made

    def _all_tenants(self) -> set[str]:
        made = {one.id for one in self._tenants.book.all() if not one.deleted_at}
        return {DEFAULT_TENANT, *made, *self._named_tenants()}

    def _is_tenant(self, tenant: str) -> bool:
        # Of one that was deleted the keys are known for some time.
        found = self._tenants.book.find(tenant)
        if found is not None:
            return not found.deleted_at
        return tenant in self._all_tenants() or self._keyring.has_tenant(tenant)

    def _named_tenants(self) -> set[str]:
        """The tenants of keys of the workspace, and of issuers."""
        of_keys = {tenant for tenant, _ in self._key_quotas}
        return of_keys | {one.tenant for one in self.host.settings.issuers}

    def _policy(self) -> Policy:
        drawn = self.file.routing
        return Policy(helm=self.file.helm, latency_weight=drawn.latency_weight, splits=drawn.splits)

    def _names(self, tenant: str) -> list[str]:
        return [one.entry.name for one in self.catalogue.listed(tenant)]

    @property
    def shared(self) -> bool:
        """Whether there is a tenant beside the default one: made by an operator, or of a key or an issuer."""
        issued = any([one.tenant != DEFAULT_TENANT for one in self.host.settings.issuers])
        return issued or self._tenants.several or self._keyring.several

    @property
    def hides_cards(self) -> bool:
        """Return whether callers without a key see no agent: by `cards`, or with several tenants."""
        return self.file.cards == "authenticated" or self.shared

    def find_site(self, tenant: str, name: str) -> Site | None:
        """The site of an agent of the catalogue of a tenant."""
        return self.carried.find_site(tenant, name)

    def cards(self, tenant: str | None) -> Cards:
        """The cards of the hub itself for a tenant; None is a caller that has not said who it is."""
        return self._front.cards(tenant)

    @property
    def mirrors(self) -> Sequence[Mirror[Any]]:
        """The copies of documents that go with their tenants and are loaded after a repair."""
        return (
            self._tenants.book.mirror,
            self._service.documents.entries,
            self._service.documents.overrides,
            self._ceremonies.ceremony_store.mirror,
            self._notifications.notice_store.mirror,
            self._health.records.mirror,
        )

    async def start(self) -> list[BackgroundWork]:
        """Carry the agents; gives what keeps them, the files and the keys up to date."""
        await self._tenants.start()
        await self._service.start()
        await self._ceremonies.start()
        await self.carried.start()
        await self._notifications.start()
        self._tenants.mirrors = self.mirrors
        self._following = self._health.start()
        if self._flows is not None:
            self._flows.tell()
        return [
            self.carried.follow,
            self.carried.retry_scripts,
            self.files.watch,
            self._watch_keys,
            self._ceremonies.run,
            self._service.run,
            self._notifications.run,
            *self._tenants.work(),
            *([] if self._flows is None else [partial(self._flows.files.watch, self.carried.renew)]),
        ]

    async def close(self) -> None:
        """Let go of the remote agents, and of what reads the log."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
            self._following = None
        await self.carried.close()
        await self._spending.close()
        if self._flows is not None:
            await self._flows.close()
        await self._own.close()

    async def _watch_keys(self) -> None:
        """Take up changes of the file of keys, for ever; one that is wrong changes nothing."""
        said, file = "", KeyFile(self.workspace)
        while True:
            await asyncio.sleep(_KEYS_S)
            try:
                named = await asyncio.to_thread(file.look)
                if named is not None:
                    self._take_keys(named)
                    said = ""
            except Misuse as error:
                if str(error) != said:
                    said = str(error)
                    log.error("keys.unread error=%s", error)


def variable_of(given: Mapping[str, str]) -> Callable[[str], str | None]:
    """The variables that entries of the catalogue may name."""

    def value(name: str) -> str | None:
        return given.get(name) or environment(name).get(name) or None

    return value


def missing_workspace(workspace: Path) -> Misuse:
    """Return the error of a workspace that is not a folder."""
    return Misuse(
        f"{workspace}: no such folder", hint=shlex.join(["trunkline", "hub", "init", str(workspace)])
    )
