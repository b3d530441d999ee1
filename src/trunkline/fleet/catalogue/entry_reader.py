"""How an entry of the catalogue is written, and what is refused of it. Pure; variables are handed in."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache
from hashlib import blake2b
from typing import Annotated, Any, Literal, cast

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import fields

from trunkline.client.oauth import is_secret_safe
from trunkline.config import seconds
from trunkline.errors import InvalidParams, Misuse
from trunkline.fleet.catalogue.entry import EVERY_TENANT, NAME, RESERVED, Entry, EntrySkill, Kind, Owner
from trunkline.fleet.catalogue.model_entry import (
    NOT_TAKEN,
    Advisor,
    ModelEntry,
    ModelForm,
    ModelLimits,
    ModelMemory,
    read_model,
)
from trunkline.net.http_client import WRITTEN
from trunkline.peer.remote import Peer, PeerLogin, check_address
from trunkline.wire.card import plain_name, plain_prose
from trunkline.wire.decode import choices, in_words
from trunkline.wire.question import AnsweredBy
from trunkline.yaml_reader import snake_case

# The value of a variable of the environment, None where it is unset or empty.
Variable = Callable[[str], str | None]
ENTRY_LIMIT = 64 << 10
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TEXT_LIMIT = 4096
_SECRET_HEADERS = frozenset({"authorization", "proxy-authorization", "x-api-key", "cookie"})
_UNKNOWN = re.compile("unknown field `(.*?)`")
_HERE = "the operator's machine has it, so only a file may name it"
_Text = Annotated[str, Meta(max_length=_TEXT_LIMIT)]
_Tags = Annotated[tuple[_Text, ...], Meta(max_length=64)]


class _AuthForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    scheme: Literal["apiKey", "bearer", "oauth2"] = "apiKey"
    credentials_env: str = ""
    # Of oauth2: the credentials are the secret of a client, or a token that is exchanged.
    token_url: _Text = ""
    client_id: _Text = ""
    scopes: _Tags = ()
    audience: _Text = ""
    grant: Literal["client_credentials", "token_exchange"] = "client_credentials"


class _SkillForm(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: _Text = ""
    id: _Text = ""
    description: _Text = ""
    tags: _Tags = ()


class _EntryForm(ModelForm, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    title: Annotated[str, Meta(max_length=128)] = ""
    description: _Text = ""
    tags: _Tags = ()
    enabled: bool = True
    tenants: tuple[str, ...] | Literal["all"] = ("default",)
    skills: Annotated[list[str | _SkillForm], Meta(max_length=1000)] = []
    url: str = ""
    imported: str = msgspec.field(default="", name="import")
    workflow: str = ""
    model: str = ""
    api_key_env: str = ""
    auth: _AuthForm | None = None
    headers: dict[str, str] = {}
    streaming: bool = False
    external: bool = False
    version: Literal["", "0.3", "1.0"] = ""
    card_url: str = ""
    verify_tls: bool = True
    uncertain: Literal["fail", "ask"] = "fail"
    concurrency: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    cooldown: dict[str, float | str] = {}
    reviewer: Literal["", "operator"] = ""
    answered_by: AnsweredBy = ""


_OF_MODELS = frozenset(ModelForm.__struct_encode_fields__)
# What is written below a member of its own.
_INNER: Mapping[str, type[Struct]] = {
    "auth": _AuthForm,
    "skills": _SkillForm,
    "limits": ModelLimits,
    "memory": ModelMemory,
    "advisor": Advisor,
}


def read_entry(
    raw: Mapping[str, Any],
    owner: Owner,
    variable: Variable = lambda _: None,
    *,
    tenant: str = "default",
    searches: bool = False,
) -> Entry:
    """An entry by what is written; one that came by the API or by an announcement is of its `tenant`.

    With `searches` the operator has set up a search engine, which models may then use.

    Raises:
        InvalidParams: a member does not fit; `field` is its name as it is written.
    """
    if len(encoded := msgspec.json.encode(raw, enc_hook=str)) > ENTRY_LIMIT:
        raise InvalidParams(f"an entry has {len(encoded)} bytes; the limit is {ENTRY_LIMIT >> 10} KiB")
    if owner != "file":
        _refuse_what_is_here(raw)
    expanded = _expanded(raw, variable, "") if owner == "file" else raw
    form = _form(cast("dict[str, Any]", expanded))
    _check_name(form.name, form.title)
    _check_texts("", form.description, form.tags)
    if owner != "file":
        _refuse_of_others(form, raw)
    kind = _kind(form)
    peer = _peer(form, owner) if form.url else None
    model = _model(form, searches=searches) if form.model else None
    _check_credential(form, peer, model, variable)
    return Entry(
        name=form.name,
        owner=owner,
        kind=kind,
        title=form.title,
        description=form.description,
        tags=form.tags,
        enabled=form.enabled,
        tenants=_tenants(form) if owner == "file" else (tenant,),
        skills=_skills(form),
        peer=peer,
        imported=_import(form) if form.imported else "",
        workflow=_workflow(form) if form.workflow else "",
        model=model,
        streaming=form.streaming,
        concurrency=form.concurrency,
        cooldown_s=_cooldown(form),
        reviewer=form.reviewer,
        answered_by=form.answered_by,
        revision=_revision(encoded),
    )


def _kind(form: _EntryForm) -> Kind:
    kinds: dict[Kind, str] = {
        "peer": form.url,
        "skill": form.imported,
        "flow": form.workflow,
        "model": form.model,
    }
    named: list[Kind] = [kind for kind, source in kinds.items() if source]
    if len(named) != 1:
        raise InvalidParams("an agent has either a url, an import, a workflow or a model", field="url")
    if named[0] != "model":
        _refuse_of_models(form)
    return named[0]


def _check_credential(
    form: _EntryForm, peer: Peer | None, model: ModelEntry | None, variable: Variable
) -> None:
    named = "" if peer is None else peer.api_key_env or peer.bearer_env
    credential = named if model is None else model.api_key_env
    if credential and not variable(credential):
        # It would be called without them, and refuse what it could do.
        where = "apiKeyEnv" if form.auth is None else "auth.credentialsEnv"
        raise InvalidParams(f"the variable {credential} is not set", field=where)


def expand(text: str, variable: Variable, where: str) -> str:
    """A text with `${VARIABLE}` and `${VARIABLE:-otherwise}` replaced.

    Raises:
        InvalidParams: a variable without an otherwise is unset, or what looks like one is none.
    """

    def value(found: re.Match[str]) -> str:
        known = variable(found[1]) or found[2]
        if known is None:
            raise InvalidParams(f"the variable {found[1]} is not set", field=where)
        return known

    if "${" in _VARIABLE.sub("", text):
        raise InvalidParams("a variable is ${NAME} or ${NAME:-otherwise}", field=where)
    return _VARIABLE.sub(value, text)


def _expanded(raw: object, variable: Variable, where: str) -> object:
    if isinstance(raw, str):
        return expand(raw, variable, where)
    if isinstance(raw, dict):
        members = cast("dict[object, object]", raw)
        return {
            key: _expanded(value, variable, f"{where}.{key}".lstrip(".")) for key, value in members.items()
        }
    if isinstance(raw, list):
        return [_expanded(one, variable, f"{where}[{n}]") for n, one in enumerate(cast("list[object]", raw))]
    return raw


def _refuse_what_is_here(raw: object, where: str = "") -> None:
    """Let an entry of somebody else's pass that names nothing of this machine."""
    if isinstance(raw, str):
        if "${" in raw:
            raise InvalidParams(f"no variables here: {_HERE}", field=where)
    elif isinstance(raw, dict):
        for key, value in cast("dict[object, object]", raw).items():
            place = f"{where}.{key}".lstrip(".")
            name = snake_case(str(key))
            if name == "import" or (name.endswith("_env") and not where.startswith("headers")):
                raise InvalidParams(_HERE, field=place)
            _refuse_what_is_here(value, place)
    elif isinstance(raw, list):
        for n, one in enumerate(cast("list[object]", raw)):
            _refuse_what_is_here(one, f"{where}[{n}]")


def _refuse_of_others(form: _EntryForm, raw: Mapping[str, Any]) -> None:
    for header in form.headers:
        if header.lower() in _SECRET_HEADERS:
            raise InvalidParams("this shows who calls: give it as auth", field=f"headers.{header}")
        if header.lower() == "host":
            # One address may serve names that the egress rule of the tenant does not allow.
            raise InvalidParams("who is called is said by url alone", field=f"headers.{header}")
    if form.base_url:
        raise InvalidParams(_HERE, field="baseUrl")
    if is_path(form.workflow):
        raise InvalidParams(f"give the id of a registered workflow: {_HERE}", field="workflow")
    if "tenants" in raw:
        raise InvalidParams("an entry is of the tenant of its key; leave it out", field="tenants")


def _form(raw: dict[str, Any]) -> _EntryForm:
    named = _snake(raw)
    for inner in _INNER:
        if isinstance(found := named.get(inner), dict):
            named[inner] = _snake(cast("dict[object, Any]", found))
    try:
        return msgspec.convert(named, _EntryForm)
    except msgspec.ValidationError as error:
        raise _refusal(str(error)) from None


def _snake(raw: Mapping[Any, Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for key, value in raw.items():
        name = snake_case(str(key))
        if name in named:
            raise InvalidParams("it is given twice, in two spellings", field=_written(name))
        named[name] = value
    return named


def _refusal(said: str) -> InvalidParams:
    text, _, path = said.partition(" - at `$")
    where = path.rstrip("`").lstrip(".")
    if unknown := _UNKNOWN.search(text):
        if reason := NOT_TAKEN.get(f"{where}.{unknown[1]}".lstrip(".")):
            # Not guessed at: `mode` is near to `model`, and means something else.
            return InvalidParams(f"it is not taken: {reason}", field=_path(f"{where}.{unknown[1]}"))
        kind = _INNER.get(where.partition("[")[0], _EntryForm)
        # Those that every entry has come first.
        names = sorted(kind.__struct_encode_fields__, key=lambda name: name in _OF_MODELS)
        known = [_written(name) for name in names]
        near = get_close_matches(_written(unknown[1]), known, 1)
        meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        where = f"{where}.{_written(unknown[1])}".lstrip(".")
        return InvalidParams(f"unknown field; {meant}", field=where)
    if "missing required field" in text:
        where = f"{where}.{text.partition('`')[2].partition('`')[0]}"
    if text.startswith("Invalid enum"):
        text += choices(_EntryForm, where)
    return InvalidParams(in_words(text), field=_path(where))


def _path(where: str) -> str:
    """The place of a member as files have it."""
    return ".".join([_written(step) for step in where.lstrip(".").split(".")])


def _written(name: str) -> str:
    """`api_key_env` as files have it: `apiKeyEnv`."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def _check_name(name: str, title: str) -> None:
    if plain_name(title) != title:
        raise InvalidParams("it holds line ends or control characters", field="title")
    if NAME.fullmatch(name) is None or name in RESERVED:
        raise InvalidParams(
            f"{name[:80]!r} is no name of an agent: give 1 to 64 letters, digits, dots, hyphens and "
            f"underscores, not {' or '.join(sorted(RESERVED))}",
            field="name",
        )


def _tenants(form: _EntryForm) -> tuple[str, ...]:
    if form.tenants == "all":
        return (EVERY_TENANT,)
    for one in form.tenants:
        if NAME.fullmatch(one) is None:
            raise InvalidParams(f"{one[:80]!r} is no id of a tenant", field="tenants")
    if not form.tenants:
        raise InvalidParams("give the ids of tenants, or all", field="tenants")
    return tuple(dict.fromkeys(form.tenants))


def _check_texts(place: str, description: str, tags: tuple[str, ...], name: str = "") -> None:
    """Let texts pass that a card may show: they go into headers, logs and terminals."""
    if plain_prose(description) != description:
        raise InvalidParams("a description holds no control characters", field=f"{place}description")
    for field, told in (("name", (name,)), ("tags", tags)):
        if any(plain_name(one) != one.strip() for one in told):
            raise InvalidParams("it holds no line ends and no control characters", field=f"{place}{field}")


def _skills(form: _EntryForm) -> tuple[EntrySkill, ...]:
    found: dict[str, EntrySkill] = {}
    for n, one in enumerate(form.skills):
        skill = _SkillForm(name=one) if isinstance(one, str) else one
        known = skill.id or skill.name
        if not known or not known.isprintable():
            raise InvalidParams("a skill has a name, or an id and a name", field=f"skills[{n}]")
        if known in found:
            raise InvalidParams(f"there are two skills {known!r}", field=f"skills[{n}]")
        _check_texts(f"skills[{n}].", skill.description, skill.tags, skill.name)
        found[known] = EntrySkill(
            id=known, name=skill.name or known, description=skill.description, tags=skill.tags
        )
    return tuple(found.values())


def _peer(form: _EntryForm, owner: Owner) -> Peer:
    auth = form.auth
    if owner == "file" and auth is not None and not (auth.credentials_env or form.api_key_env):
        raise InvalidParams("name the variable that holds them", field="auth.credentialsEnv")
    named = form.api_key_env if auth is None else auth.credentials_env or form.api_key_env
    if named and _VARIABLE_NAME.fullmatch(named) is None:
        where = "auth.credentialsEnv" if auth is not None and auth.credentials_env else "apiKeyEnv"
        raise InvalidParams("give the name of a variable, not the secret itself", field=where)
    is_bearer = auth is not None and auth.scheme != "apiKey"
    for name, value in form.headers.items():
        if _HEADER.fullmatch(name) is None or not value.isprintable() or not value.isascii():
            raise InvalidParams("a header has a name and a printable value", field=f"headers.{name}")
        if name.lower() in WRITTEN:
            raise InvalidParams("this header is written by the hub itself", field=f"headers.{name}")
    if "#" in form.url or "?" in form.url or "@" in form.url.partition("://")[2].partition("/")[0]:
        raise InvalidParams("an address has no query, fragment or login; use auth", field="url")
    login = None if auth is None else _login(auth)
    try:
        if form.card_url:
            check_address(form.card_url)
    except Misuse:
        raise InvalidParams("this is not an http:// or https:// address of a card", field="cardUrl") from None
    try:
        return Peer(
            url=form.url,
            api_key_env="" if is_bearer else named,
            bearer_env=named if is_bearer else "",
            headers=form.headers,
            version=form.version,
            card_url=form.card_url,
            verify_tls=form.verify_tls,
            uncertain=form.uncertain,
            external=form.external,
            login=login,
        )
    except Misuse:
        # What is wrong with it stays unsaid: a variable that was put in may be a secret.
        raise InvalidParams("this is not an http:// or https:// address of an agent", field="url") from None


def _login(auth: _AuthForm) -> PeerLogin | None:
    if auth.scheme != "oauth2":
        for name in ("token_url", "client_id", "scopes", "audience"):
            if getattr(auth, name):
                raise InvalidParams("this is of the scheme oauth2", field=f"auth.{_written(name)}")
        return None
    try:
        check_address(auth.token_url)
        is_safe = is_secret_safe(auth.token_url)
    except Misuse:
        is_safe = False
    if not is_safe:
        raise InvalidParams("give the https:// address of a token endpoint", field="auth.tokenUrl")
    if not auth.client_id and auth.grant == "client_credentials":
        raise InvalidParams("give the id of the client", field="auth.clientId")
    return PeerLogin(
        token_url=auth.token_url,
        client_id=auth.client_id,
        scopes=auth.scopes,
        audience=auth.audience,
        grant=auth.grant,
    )


def _import(form: _EntryForm) -> str:
    module, colon, attribute = form.imported.partition(":")
    if not colon or not all(name.isidentifier() for name in (*module.split("."), attribute)):
        raise InvalidParams("an import is package.module:agent", field="import")
    _refuse_of_peers(form)
    return form.imported


def _workflow(form: _EntryForm) -> str:
    named = form.workflow
    folders = named.replace("\\", "/").split("/")
    if is_path(named) and (named.startswith("/") or ".." in folders):
        raise InvalidParams("a workflow is a file below the workspace, or a registered id", field="workflow")
    if not is_path(named) and NAME.fullmatch(named) is None:
        raise InvalidParams("the id of a workflow has letters, digits, dots and hyphens", field="workflow")
    _refuse_of_peers(form)
    return named


def _model(form: _EntryForm, *, searches: bool) -> ModelEntry:
    if form.api_key_env and _VARIABLE_NAME.fullmatch(form.api_key_env) is None:
        raise InvalidParams("give the name of a variable, not the secret itself", field="apiKeyEnv")
    _refuse_of_peers(form, allowed="api_key_env")
    return read_model(form.model, form, form.api_key_env, searches=searches)


def _refuse_of_models(form: _EntryForm) -> None:
    for name, default in _model_defaults():
        if getattr(form, name) != default:
            raise InvalidParams("only an agent with a model has it", field=_written(name))


@cache
def _model_defaults() -> list[tuple[str, object]]:
    # Once: to ask a struct for its fields takes longer than to read an entry, and a hub may have thousands.
    return [(one.name, one.default) for one in fields(ModelForm)]


def is_path(workflow: str) -> bool:
    """Whether a workflow is named by a file rather than by its id."""
    return "/" in workflow or workflow.endswith((".json", ".yaml", ".yml"))


def _refuse_of_peers(form: _EntryForm, allowed: str = "") -> None:
    for name in ("url", "card_url", "api_key_env", "auth", "headers", "version", "external"):
        if getattr(form, name) and name != allowed:
            raise InvalidParams("an agent that runs here has none", field=_written(name))


def _cooldown(form: _EntryForm) -> dict[str, float]:
    found: dict[str, float] = {}
    for skill, age in form.cooldown.items():
        try:
            found[skill] = seconds(age)
        except ValueError as error:
            raise InvalidParams(str(error), field=f"cooldown.{skill}") from None
    return found


def _revision(encoded: bytes) -> str:
    # Keys come in the order of the text; a file that is sorted otherwise is another text.
    return blake2b(encoded, digest_size=8).hexdigest()
