"""The files of a workspace that say what a hub is: `hub.yaml` and `keys.yaml`, both optional.

Everything that is wrong with one names its file and line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeVar, cast

import msgspec
from msgspec import Meta, Struct

from trunkline.auth.keys import check_key
from trunkline.auth.principal import DEFAULT_TENANT, SCOPES, Principal, Scope, check_tenant
from trunkline.auth.vault import secret_material
from trunkline.config import Secret, Settings, SourcedValue, convert, seconds, secret_text
from trunkline.errors import Misuse
from trunkline.fleet.health.alerts import AlertLimits
from trunkline.fleet.notify import Channel
from trunkline.fleet.notify.channels import check_receivers
from trunkline.fleet.notify.receiver import LIMIT, NoticeReceiver
from trunkline.gateway.tenants import TenantQuota, TenantSettings
from trunkline.peer.remote import check_address
from trunkline.wire.card import plain_name, plain_prose
from trunkline.wire.decode import choices, invalid_params
from trunkline.yaml_reader import read_text, read_yaml

HUB, KEYS, MOCKS = "hub.yaml", "keys.yaml", "mocks.yaml"
STORE = "trunkline.db"
_KEYS_LIMIT = 1000
_Name = Annotated[str, Meta(min_length=1, max_length=64)]
_Text = Annotated[str, Meta(max_length=4096)]
_UNNAMED = re.compile("(missing required|unknown) field `([^`]*)`")
Form = TypeVar("Form", bound=Struct)


class RoutingForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How agents are drawn: what slowness weighs, and for a skill the shares of its agents."""

    latency_weight: Annotated[float, Meta(ge=0, le=1000)] = 0.0
    splits: dict[str, dict[str, Annotated[float, Meta(ge=0, le=1e6)]]] = {}


class HubFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The members of `hub.yaml`; the helm is the agent that takes what names no skill.

    `search` is the address of a search engine that answers like SearXNG. With `cards` authenticated, callers
    without a key see a card that names no agent.
    """

    name: _Name = "hub"
    description: _Text = "The agents of a catalogue behind one address."
    helm: str = ""
    routing: RoutingForm = RoutingForm()
    settings: dict[str, object] = {}
    alerts: AlertLimits = AlertLimits()
    notify: Annotated[tuple[NoticeReceiver, ...], Meta(max_length=LIMIT)] = ()
    quota: TenantQuota = TenantQuota()
    search: str = ""
    cards: Literal["public", "authenticated"] = "public"
    tenant_settings: TenantSettings = TenantSettings()


class _KeyForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    env: str
    scopes: tuple[str, ...] = ("tasks:read", "tasks:write")
    tenant: str = DEFAULT_TENANT
    quota: TenantQuota = TenantQuota()


class NamedKey(Struct, frozen=True):
    """A key that the file names: itself, whose it is and how much it may use."""

    secret: Secret
    principal: Principal
    quota: TenantQuota


class _KeysFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # Each is read by itself: of a member of a mapping nobody says under which key it stands.
    keys: Annotated[dict[_Name, object], Meta(max_length=_KEYS_LIMIT)] = {}


def read_hub(workspace: Path) -> HubFile:
    """What a hub is called and how it is set; durations are in seconds then.

    Raises:
        Misuse: the file is wrong.
    """
    found, position = _read(workspace / HUB, HubFile)
    durations: dict[str, object] = {}
    for name, value in found.settings.items():
        try:
            durations[name] = _duration(name, value)
            # Without the other sources, whose errors are not errors of this file.
            checked = convert({name: SourcedValue(durations[name], "")})
            if (secret := checked.secret_key) is not None:
                secret_material(secret)
        except ValueError as error:
            raise Misuse(f"{position(f'settings.{name}')}: settings.{name}: {error}") from None
        except Misuse as error:
            raise Misuse(f"{position(f'settings.{name}')}: {error}") from None
    try:
        if found.search:
            check_address(found.search)
    except Misuse:
        raise Misuse(f"{position('search')}: this is not an http:// or https:// address") from None
    # As the card wants them, which is made at the start. In brackets, as blanks at the ends are no fault.
    for name, text, plain in (
        ("name", found.name, plain_name),
        ("description", found.description, plain_prose),
    ):
        if plain(f"[{text}]") != f"[{text}]":
            raise Misuse(f"{position(name)}: {name}: it holds control characters")
    return msgspec.structs.replace(found, settings=durations)


def check_notify(
    workspace: Path, found: HubFile, variable: Callable[[str], str | None]
) -> dict[str, Channel]:
    """Return a channel for each receiver of the file, with which nothing can be sent.

    From here on modules of the workspace can be imported, as channels and agents name them.

    Raises:
        Misuse: a channel cannot be made.
    """
    if (folder := str(workspace.resolve())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        return check_receivers(found.notify, variable)
    except Misuse as error:
        raise Misuse(f"{workspace / HUB}: {error}") from None


class KeyFile:
    """The file of keys, looked at again and again."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._seen: str | None = None

    def look(self) -> list[NamedKey] | None:
        """The keys, once the file has stayed as it is since the last look; None while it is being written.

        A file that is half there may be whole YAML, and would shut out who is named in the rest.

        Raises:
            Misuse: the file is wrong, or a variable that it names is not set.
        """
        seen, self._seen = self._seen, self._text()
        if seen != self._seen:
            return None
        named = read_keys(self._workspace)
        return named if self._text() == seen else None

    def _text(self) -> str:
        try:
            return read_text(self._workspace / KEYS)
        except FileNotFoundError:
            return ""


def read_keys(workspace: Path) -> list[NamedKey]:
    """The keys that the file names, each with whose it is.

    Raises:
        Misuse: the file is wrong, a variable that it names is not set, or two keys are the same.
    """
    found, position = _read(workspace / KEYS, _KeysFile)
    keys: list[NamedKey] = []
    owners: dict[str, str] = {}
    for name, raw in found.keys.items():
        form = _converted(raw, _KeyForm, position, f"keys.{name}")
        try:
            check_tenant(form.tenant)
            principal = Principal(form.tenant, name, frozenset([_scope(one) for one in form.scopes]))
            secret = secret_text(f"env:{form.env}")
            other = owners.setdefault(secret, name)
            if other != name:
                # Whoever shows it would be one of them, and may do what only the other may.
                raise Misuse(f"{form.env} holds the key of {other} too; give each a key of its own")
            check_key(Secret(secret))
            keys.append(NamedKey(Secret(secret), principal, form.quota))
        except Misuse as error:
            raise Misuse(f"{position(f'keys.{name}')}: keys.{name}: {error}") from None
    return keys


def _scope(name: str) -> Scope:
    if name not in SCOPES:
        raise Misuse(f"there is no scope {name!r}; there are {', '.join(SCOPES)}")
    return SCOPES[name]


def _duration(name: str, value: object) -> object:
    """A setting as `config` has it: durations may be written as `30s` where they are seconds there."""
    default = next((one.default for one in msgspec.structs.fields(Settings) if one.name == name), None)
    return seconds(value) if isinstance(default, float) and isinstance(value, str) else value


def _read(file: Path, form: type[Form]) -> tuple[Form, Callable[[str], str]]:
    try:
        found = read_yaml(read_text(file), str(file))
    except FileNotFoundError:
        found = None
    if found is None:
        # A file that is not there has no fault.
        return form(), lambda _: ""
    document, position = found
    if not isinstance(document, dict):
        raise Misuse(f"{position()}: it holds no members")
    return _converted(cast("Mapping[str, object]", document), form, position), position


def _converted(raw: object, form: type[Form], position: Callable[[str], str], above: str = "") -> Form:
    """A file, or what is `above` in it, as its form has it."""
    try:
        return msgspec.convert(raw, form)
    except msgspec.ValidationError as error:
        said = invalid_params(error, "", form)
        where, what = ".".join(filter(None, (above, said.field))), said.message.partition(": ")[2]
        if found := _UNNAMED.search(str(error)):
            where = f"{where}.{found[2]}".lstrip(".")
            what = "it is missing" if found[1] == "missing required" else "unknown field"
            what += choices(form, said.field, found[2] if found[1] != "missing required" else "")
        raise Misuse(": ".join(filter(None, (position(where), where, what)))) from None
