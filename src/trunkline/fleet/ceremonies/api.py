"""Ceremonies over the operator's API: each belongs to the key that made it, or to a file."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import islice
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from trunkline.auth.principal import DEFAULT_TENANT, Scope
from trunkline.clock import new_id
from trunkline.errors import Forbidden, InvalidParams, RouteNotFound, Unreachable
from trunkline.fleet.call import ApiCall, ApiPage, ApiStruct, PageQuery
from trunkline.fleet.ceremonies.ceremony import (
    Ceremony,
    CeremonyChanges,
    CeremonyForm,
    ceremony_of,
    changed_ceremony,
)
from trunkline.fleet.ceremonies.ceremony_store import CeremonyStore, taken
from trunkline.fleet.ceremonies.runs import (
    ENDED,
    MISSED,
    SKIPPED,
    CeremonyRun,
    Progress,
    is_over,
    journal_with,
    progress_of,
    refusal,
    run_item,
    subject,
    to_open,
    with_runs,
)
from trunkline.fleet.ceremonies.scheduler import Scheduler
from trunkline.fleet.journal import Journal
from trunkline.fleet.route import api_route
from trunkline.net.egress import target
from trunkline.net.fetch import FetcherOf
from trunkline.store.parts import Clock
from trunkline.wire.spellings import timestamp

NEXT_FIRES = 5


class CeremonyItem(Struct, frozen=True, kw_only=True, rename="camel"):
    """A ceremony with the next moments that it is planned for; of a webhook only the host is shown.

    One with a `reason` is a file that cannot be used.
    """

    id: str
    name: str = ""
    owner: str = "file"
    state: str
    reason: str | UnsetType = UNSET
    schedule: str = ""
    timezone: str = "UTC"
    skill: str = ""
    targets: tuple[str, ...] = ()
    enabled: bool
    created_by: str = ""
    answered_by: str = ""
    description: str = ""
    message: str = ""
    data: Any | UnsetType = UNSET
    overlap: str = "skip"
    misfire: str = "once"
    jitter_ms: int = 0
    timeout_ms: int = 0
    notify_channel: str = ""
    notify_webhook: str = ""
    next_fires: list[str] = []


class RunQuery(PageQuery, frozen=True, kw_only=True):
    """Which runs are meant: with `skipped` also those that did not begin."""

    skipped: bool = False


class RunStarted(ApiStruct, frozen=True, kw_only=True):
    """A run that was started by hand, and its first task."""

    run_id: str
    task_id: str


class CeremonyDeleted(ApiStruct, frozen=True, kw_only=True):
    """The id of a ceremony that is no more."""

    id: str


class CeremonyApi:
    """The operations of the API on ceremonies; `fetcher_of` says which webhooks a tenant may name."""

    def __init__(
        self, ceremony_store: CeremonyStore, scheduler: Scheduler, clock: Clock, fetcher_of: FetcherOf
    ) -> None:
        self._ceremony_store = ceremony_store
        self._scheduler = scheduler
        self._clock = clock
        self._fetcher_of = fetcher_of

    @api_route("GET /ceremonies", Scope.READ)
    async def list(self, call: ApiCall, asked: PageQuery) -> ApiPage:
        """A page of ceremonies by id: one's own, or with the scope admin all of the tenant."""
        now, kept = await self._clock.now(), self._ceremony_store
        known = {one.id: one for one in kept.of(call.tenant) if _may_change(call, one)}
        faults = {one.id: one.reason for one in kept.faults if call.sees_all and one.tenant == call.tenant}
        behind = [one_id for one_id in sorted({*known, *faults}) if one_id > asked.after]
        page = behind[: asked.limit]
        items: list[CeremonyItem] = []
        for one_id in page:
            # Others have their turn: the moments of some schedules are long looked for.
            await asyncio.sleep(0)
            one = known.get(one_id)
            # One that was good before goes on as it was.
            item = CeremonyItem(id=one_id, state="invalid", enabled=False) if one is None else _item(one, now)
            items.append(item if one_id not in faults else replace(item, reason=faults[one_id]))
        return ApiPage(items, page[-1] if len(page) < len(behind) else None)

    @api_route("POST /ceremonies/create", Scope.WRITE)
    async def create(self, call: ApiCall, form: CeremonyForm) -> CeremonyItem:
        """Create a ceremony. One that was deleted lately under the same id passes its history on.

        Raises:
            InvalidParams: a member does not fit, or the id is taken: that is a conflict.
        """
        author = (call.sees_all and form.created_by) or call.principal.name
        now = await self._clock.now()
        made = ceremony_of(replace(form, created_by=author), call.tenant, now)
        if self._known(call.tenant, made.id) is not None:
            raise taken(made.id)
        await self._check_webhook(made)
        before = await self._scheduler.take_over(made)
        made = replace(made, since=max(made.since, before.since + 1))
        await self._ceremony_store.put(made, over=None)
        return _item(made, now)

    @api_route("POST /ceremonies/{id}/update", Scope.WRITE)
    async def update(self, call: ApiCall, changes: CeremonyChanges) -> CeremonyItem:
        """Change members of a ceremony; those that are absent stay.

        Raises:
            InvalidParams: a member does not fit; or a file has the ceremony, which is a conflict.
        """
        now = await self._clock.now()
        one = self._own(call, changes=True)
        made = changed_ceremony(one, changes, now)
        await self._check_webhook(made)
        if made.mark != one.mark:
            # What has come by the old schedule is done, also if the scheduler has not looked since.
            # A schedule whose time zone is unknown here has no run times.
            with suppress(InvalidParams):
                await self._scheduler.record_due(one, now)
        await self._ceremony_store.put(made, over=one)
        return _item(made, now)

    @api_route("POST /ceremonies/{id}/delete", Scope.WRITE)
    async def delete(self, call: ApiCall) -> CeremonyDeleted:
        """Remove a ceremony; its open runs are followed to their end, and its history stays for a day."""
        # Who made a schedule whose document is damaged cannot be read: an admin removes it.
        is_damaged = call.sees_all and (call.tenant, call.id) in self._ceremony_store.mirror.damaged
        one_id = call.id if is_damaged else self._own(call, changes=True).id
        await self._ceremony_store.delete(call.tenant, one_id)
        return CeremonyDeleted(id=one_id)

    @api_route("POST /ceremonies/{id}/run", Scope.WRITE)
    async def run(self, call: ApiCall) -> RunStarted:
        """Start a run of a ceremony now.

        Raises:
            InvalidParams: by its policy none may begin now, which is a conflict.
            TooManyRequests: whose it is may not have more done now.
            Unavailable: the hub is going down.
        """
        one = self._own(call)
        now = await self._clock.now()
        targets = self._scheduler.targets(one)
        run = CeremonyRun(id=new_id(), planned=now, targets=targets, by=call.principal.name)
        before = progress_of(await self._scheduler.journals.read(one.tenant, subject(one.id)))
        # The scheduler writes their end down with its next tick.
        over = {each.id for each in before.open if is_over(each, await self._scheduler.heads(one, each))}

        def with_run(known: Progress) -> Progress:
            if reason := refusal(one, [each for each in known.open if each.id not in over]):
                raise InvalidParams(f"{reason}, so no other begins", field="id", conflict="RUN_OPEN")
            return with_runs(one, known, [*known.open, run])

        def revise(journal: Journal) -> Journal:
            return journal_with(journal, with_run(progress_of(journal)), [])

        # Judged before it is counted, and again where it is written down.
        with_run(before)
        await self._scheduler.charge(one, len(targets))
        progress = progress_of(await self._scheduler.journals.change(one.tenant, subject(one.id), revise))
        # From here on it is the scheduler's, which goes on with it wherever this ends.
        self._scheduler.expect(one.key)
        if run in to_open(one, progress):
            await self._scheduler.open_run(one, run, now)
        return RunStarted(run_id=run.id, task_id=run.first_task)

    @api_route("GET /ceremonies/{id}/runs", Scope.READ)
    async def runs(self, call: ApiCall, asked: RunQuery) -> ApiPage:
        """Return a page of the runs of a ceremony, newest first, also for a day after it was removed."""
        journal = await self._scheduler.journals.read(call.tenant, subject(call.id))
        one = self._own(call, progress_of(journal).latest)
        rows = [row.about for row in journal.rows if row.kind == ENDED]
        if asked.skipped:
            kinds = {SKIPPED, MISSED}
            rows += [
                {"status": row.kind, "at": timestamp(row.at), **row.about}
                for row in journal.rows
                if row.kind in kinds
            ]
        opened = [run_item(run, await self._scheduler.heads(one, run)) for run in progress_of(journal).open]
        found = sorted([*rows, *opened], key=_place, reverse=True)
        behind = [item for item in found if not asked.after or _place(item) < asked.after]
        page = behind[: asked.limit]
        return ApiPage(page, _place(page[-1]) if len(page) < len(behind) else None)

    def _known(self, tenant: str, ceremony_id: str) -> Ceremony | None:
        return self._ceremony_store.all().get((tenant, ceremony_id))

    def _own(self, call: ApiCall, gone: Ceremony | None = None, *, changes: bool = False) -> Ceremony:
        one = self._known(call.tenant, call.id) or gone
        if one is None:
            raise RouteNotFound(f"there is no ceremony {call.id!r}", missing="CEREMONY_NOT_FOUND")
        if not _may_change(call, one):
            raise Forbidden(f"the ceremony {one.id!r} is of {one.form.created_by!r}")
        if changes and one.owner == "file":
            raise InvalidParams(
                f"ceremony {one.id!r} is defined in a file; change it there",
                field="id",
                conflict="FILE_OWNED",
            )
        return one

    async def _check_webhook(self, made: Ceremony) -> None:
        if made.form.notify_channel and made.tenant != DEFAULT_TENANT:
            # It names a variable of the operator's machine.
            raise InvalidParams("channels are the operator's; give notifyWebhook", field="notifyChannel")
        if made.form.notify_webhook:
            url = made.form.notify_webhook
            try:
                await self._fetcher_of(made.tenant).check(url)
            except Unreachable as error:
                raise InvalidParams(str(error), field="notifyWebhook") from None


def _may_change(call: ApiCall, one: Ceremony) -> bool:
    return call.sees_all or one.form.created_by == call.principal.name


def _place(item: dict[str, Any]) -> str:
    return f"{item.get('plannedAt') or item.get('since', '')} {item.get('runId', '')}"


def _item(one: Ceremony, now: int) -> CeremonyItem:
    form, state, reason = one.form, "ready" if one.form.enabled else "paused", UNSET
    try:
        fires = list(islice(one.schedule.after(now), NEXT_FIRES)) if form.enabled else []
    except InvalidParams as error:
        # Another version or another machine, with other time zones, has accepted it.
        fires, state, reason = [], "invalid", f"{error.field}: {error.message}"
    shown = {name: getattr(form, name) for name in form.__struct_fields__}
    if form.notify_webhook:
        # The rest of it lets whoever knows it write there.
        at = target(form.notify_webhook)
        shown["notify_webhook"] = f"{at.scheme}://{at.host}/…"
    return CeremonyItem(
        **shown,
        owner=one.owner,
        state=state,
        reason=reason,
        next_fires=[timestamp(planned) for planned in fires],
    )
