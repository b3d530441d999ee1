"""What a ceremony is, and the rules for it: the same whether a file has it or it came by the API. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict, fields, replace

from trunkline.auth.principal import DEFAULT_TENANT
from trunkline.errors import InvalidParams, Unreachable
from trunkline.fleet.call import ApiStruct
from trunkline.fleet.ceremonies.schedule import SCHEDULE_LENGTH, Jitter, Misfire, Schedule, schedule_of
from trunkline.net.egress import target
from trunkline.wire.decode import invalid_params
from trunkline.wire.question import AnsweredBy

ALL = "all"
# Whose the ceremonies of files are that name nobody.
SYSTEM = "system"
TARGETS = 100
_CEREMONY_BYTES = 64 << 10
_DAY_MS = 86_400_000
CEREMONY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TARGET = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_CHANNEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}|")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|")
_UNKNOWN = re.compile("unknown field `(.*?)`")

Overlap = Literal["skip", "queue", "allow"]
_Name = Annotated[str, Meta(min_length=1, max_length=200)]
_Skill = Annotated[str, Meta(min_length=1, max_length=256)]
_Schedule = Annotated[str, Meta(min_length=1, max_length=SCHEDULE_LENGTH)]
_Targets = Annotated[tuple[str, ...], Meta(min_length=1, max_length=TARGETS)]
_Text = Annotated[str, Meta(max_length=4096)]
_Message = Annotated[str, Meta(max_length=32_768)]
_Jitter = Annotated[int, Meta(ge=0, le=3_600_000)]
_Timeout = Annotated[int, Meta(ge=0, le=30 * _DAY_MS)]
_Url = Annotated[str, Meta(max_length=2048)]


class CeremonyForm(ApiStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule as it is written; times are in milliseconds, and a timeout of 0 is none.

    A run sends `message`, or else the name, and `data`. A report of each run goes to `notifyWebhook` or
    `notifyChannel`: the webhook in the variable DISCORD_WEBHOOK_NAME, a receiver of the hub by its name, or a
    channel of its bot by its ID.
    """

    id: str
    name: _Name
    schedule: _Schedule
    skill: _Skill
    targets: _Targets = (ALL,)
    enabled: bool = True
    timezone: str = "UTC"
    description: _Text = ""
    message: _Message = ""
    data: Any | UnsetType = UNSET
    overlap: Overlap = "skip"
    misfire: Misfire = "once"
    jitter_ms: _Jitter = 0
    timeout_ms: _Timeout = 0
    notify_channel: str = ""
    notify_webhook: _Url = ""
    answered_by: AnsweredBy = ""
    created_by: Annotated[str, Meta(max_length=256)] = ""


class CeremonyChanges(ApiStruct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be changed of a ceremony; what is absent stays as it is."""

    name: _Name | UnsetType = UNSET
    schedule: _Schedule | UnsetType = UNSET
    skill: _Skill | UnsetType = UNSET
    targets: _Targets | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    timezone: str | UnsetType = UNSET
    description: _Text | UnsetType = UNSET
    message: _Message | UnsetType = UNSET
    data: Any | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    misfire: Misfire | UnsetType = UNSET
    jitter_ms: _Jitter | UnsetType = UNSET
    timeout_ms: _Timeout | UnsetType = UNSET
    notify_channel: str | UnsetType = UNSET
    notify_webhook: _Url | UnsetType = UNSET
    answered_by: AnsweredBy | UnsetType = UNSET


class _FileForm(CeremonyForm, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tenant: str = DEFAULT_TENANT
    notify_webhook_env: str = ""


# Files may write members as the other files of a workspace do.
_SPELLINGS: dict[Any, str] = {one.name: one.encode_name for one in fields(_FileForm)}


class Ceremony(Struct, frozen=True, kw_only=True):
    """A valid ceremony of a tenant. `changed_at` is when its schedule became what it is, in milliseconds.

    `since` is the same, but grows with each change even if the clock was set back: a later version has more.
    Both are 0 for a ceremony of a file, of which nobody knows that. `notify_env` names a variable with the
    address of a webhook.
    """

    tenant: str
    form: CeremonyForm
    owner: Literal["file", "api"]
    since: int = 0
    changed_at: int = 0
    notify_env: str = ""

    @property
    def id(self) -> str:
        """The id of the ceremony in its tenant."""
        return self.form.id

    @property
    def key(self) -> tuple[str, str]:
        """The tenant and the id of the ceremony."""
        return self.tenant, self.form.id

    @property
    def schedule(self) -> Schedule:
        """The planned moments of the ceremony."""
        return schedule_of(self.form.schedule, self.form.timezone)

    @property
    def jitter(self) -> Jitter:
        """How long each of its fires waits."""
        return Jitter(self.tenant, self.id, self.form.jitter_ms)

    @property
    def mark(self) -> str:
        """What its cursor depends on: where this changes, moments before the change were never missed."""
        form = self.form
        return f"{form.schedule} {form.timezone} {'on' if form.enabled else 'off'} {self.since}"


def ceremony_of(form: CeremonyForm, tenant: str, now: int) -> Ceremony:
    """The ceremony that a form by the API describes.

    Raises:
        InvalidParams: a member does not fit; or its only moment has passed.
    """
    made = Ceremony(tenant=tenant, form=form, owner="api", since=now, changed_at=now)
    _check(made)
    _check_moment(made, now)
    return made


def changed_ceremony(known: Ceremony, changes: CeremonyChanges, now: int) -> Ceremony:
    """A ceremony with some members changed.

    Raises:
        InvalidParams: a member does not fit, or none is given.
    """
    given = {name: value for name, value in asdict(changes).items() if value is not UNSET}
    if not given:
        raise InvalidParams("name at least one member that is to be changed")
    made = replace(known, form=replace(known.form, **given))
    _check(made)
    if made.mark == known.mark:
        return made
    if made.form.schedule != known.form.schedule or made.form.timezone != known.form.timezone:
        _check_moment(made, now)
    # Later than before also where the clock was set back: who has the later one goes on.
    return replace(made, since=max(now, known.since + 1), changed_at=now)


def file_ceremony(raw: Mapping[Any, Any], stem: str) -> Ceremony:
    """The ceremony that a file describes; its id is the name of the file unless it has one.

    Raises:
        InvalidParams: a member does not fit.
    """
    if not isinstance(raw.get("schedule", ""), str):
        # YAML makes a date of it, and forgets whether it had a zone.
        raise InvalidParams("write the schedule in quotes", field="schedule")
    try:
        # As the API would have it: a date in `data` is a text there.
        named = {_SPELLINGS.get(name, name): value for name, value in raw.items()}
        plain = msgspec.json.decode(msgspec.json.encode({"id": stem, **named}))
        form = msgspec.convert(plain, _FileForm)
    except msgspec.ValidationError as error:
        raise _refusal(error) from None
    except TypeError as error:
        raise InvalidParams(str(error), field="data") from None
    members: dict[str, Any] = asdict(form)
    tenant, variable = members.pop("tenant"), members.pop("notify_webhook_env")
    if _VARIABLE.fullmatch(variable) is None:
        raise InvalidParams("this is no name of a variable", field="notifyWebhookEnv")
    if _TARGET.fullmatch(tenant) is None:
        raise InvalidParams(f"{tenant[:80]!r} is no id of a tenant", field="tenant")
    members["created_by"] = form.created_by or SYSTEM
    own = CeremonyForm(**members)
    made = Ceremony(tenant=tenant, form=own, owner="file", notify_env=variable)
    _check(made)
    return made


def _check(made: Ceremony) -> None:
    form = made.form
    if CEREMONY_ID.fullmatch(form.id) is None:
        raise InvalidParams(
            f"{form.id[:80]!r} is no id: give 1 to 64 letters, digits, dots, hyphens and underscores, "
            "beginning with a letter or a digit",
            field="id",
        )
    for n, one in enumerate(form.targets):
        if _TARGET.fullmatch(one) is None:
            raise InvalidParams(f"{one[:80]!r} is no name of an agent", field=f"targets[{n}]")
    if len(set(form.targets)) < len(form.targets) or (ALL in form.targets and len(form.targets) > 1):
        raise InvalidParams("name each agent once, or only all", field="targets")
    if _CHANNEL.fullmatch(form.notify_channel) is None:
        text = f"{form.notify_channel[:80]!r} is no name of a channel: give 1 to 64 letters, digits, - and _"
        raise InvalidParams(text, field="notifyChannel")
    for name in ("name", "skill", "created_by"):
        if not getattr(form, name).isprintable():
            raise InvalidParams("only printable characters", field=name.replace("_b", "B"))
    if "\0" in form.message:
        raise InvalidParams("no NUL", field="message")
    if form.notify_webhook:
        try:
            target(form.notify_webhook)
        except Unreachable as error:
            raise InvalidParams(str(error), field="notifyWebhook") from None
    _ = made.schedule
    if (size := len(msgspec.json.encode(form))) > _CEREMONY_BYTES:
        raise InvalidParams(
            f"a ceremony has at most {_CEREMONY_BYTES >> 10} KiB, this one {size} bytes", field="data"
        )


def _check_moment(made: Ceremony, now: int) -> None:
    once = made.schedule.once
    if once is not None and once <= now:
        raise InvalidParams("this time has passed; give a later one", field="schedule")


def _refusal(error: msgspec.ValidationError) -> InvalidParams:
    """The refusal of a member of a file; one that is missing or not known stands in the text alone."""
    if unknown := _UNKNOWN.search(str(error)):
        known = _FileForm.__struct_encode_fields__
        near = get_close_matches(unknown[1], known, 1)
        meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        return InvalidParams(f"unknown field; {meant}", field=unknown[1])
    refused = invalid_params(error, "the ceremony", _FileForm)
    # Whoever tells of it names the member.
    said = refused.message.partition(": ")[2]
    return InvalidParams(said, field=refused.field or str(error).partition("`")[2].partition("`")[0])
