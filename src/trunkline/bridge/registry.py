"""A file that lists agents, in YAML or JSON: `load_agents("agents.yaml")` gives a client for each.

Secrets stay in the environment; the file names the variables. What does not fit is told with its line.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from trunkline.bridge.tool import SkillFilter
from trunkline.bridge.tools import AgentExtras, Agents
from trunkline.client.client import Client
from trunkline.config import Secret, environment
from trunkline.errors import Misuse
from trunkline.net.http import HttpClient
from trunkline.wire.card import Skill
from trunkline.yaml_reader import YamlPosition, read_text, read_yaml, snake_case

log = logging.getLogger("trunkline.bridge")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_SCHEMES = {"bearer": "bearer", "apikey": "api_key"}
# Other registries' words for the same.
_FILTER = {"allowlist": "allow", "blocklist": "deny"}
_AUTH = {"type": "scheme", "credentials_env": "token_env"}


class AuthEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """How the agent is shown who calls; a token wins over the variable that holds one."""

    scheme: str = "bearer"
    token: Secret | None = None
    token_env: str = ""


class SkillEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """A skill that the agent has even where its card does not say so."""

    name: str
    description: str = ""


class AgentEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """One agent of the file. `timeout` is in seconds."""

    name: str
    url: str
    auth: AuthEntry | None = None
    api_key_env: str = ""
    headers: dict[str, str] = {}
    headers_from_env: dict[str, str] | list[str] = {}
    timeout: float | None = None
    timeout_ms: float | None = None
    retries: int | None = None
    version: str = ""
    skill_filter: SkillFilter = SkillFilter()
    skills: list[str | SkillEntry] = []

    @property
    def extra(self) -> AgentExtras:
        """The filter of skills and the further skills that the entry gives an agent."""
        named = [SkillEntry(one) if isinstance(one, str) else one for one in self.skills]
        return AgentExtras(
            self.skill_filter, tuple(Skill(one.name, one.name, one.description, ()) for one in named)
        )

    def client(self, http_client: HttpClient | None = None) -> Client:
        """The client that the entry stands for.

        Raises:
            Misuse: a value does not fit; the text begins with the field.
        """
        options: dict[str, Any] = {**self._credentials(), "version": self.version, "http_client": http_client}
        if self.timeout is not None or self.timeout_ms is not None:
            options["timeout_s"] = self.timeout if self.timeout is not None else (self.timeout_ms or 0) / 1000
        if self.retries is not None:
            options["retries"] = self.retries
        return Client(expand_variables(self.url, "url"), headers=self._headers(), **options)

    def _credentials(self) -> dict[str, Secret]:
        auth = self.auth or AuthEntry("apiKey")
        kind = _SCHEMES.get(re.sub("[-_ ]", "", auth.scheme.lower()))
        if kind is None:
            raise Misuse(f"auth.scheme: {auth.scheme!r} is neither bearer nor apiKey")
        if auth.token is not None:
            return {kind: Secret(expand_variables(auth.token.reveal(), "auth.token"))}
        token = self._variable(auth.token_env or self.api_key_env)
        return {kind: Secret(token)} if token else {}

    def _headers(self) -> dict[str, str]:
        written = {name: expand_variables(value, f"headers.{name}") for name, value in self.headers.items()}
        found = {name: self._variable(variable) for name, variable in self._header_variables()}
        return written | {name: value for name, value in found.items() if value}

    def _header_variables(self) -> list[tuple[str, str]]:
        given = self.headers_from_env
        if isinstance(given, dict):
            return list(given.items())
        pairs = [entry.partition("=") for entry in given]
        for name, equals, variable in pairs:
            if not (name.strip() and equals and variable.strip()):
                raise Misuse("headers_from_env: an entry is Name=VARIABLE")
        return [(name.strip(), variable.strip()) for name, _, variable in pairs]

    def _variable(self, name: str) -> str:
        """The value of a variable; the agent is called without it where it is unset, and a line says so."""
        if not name:
            return ""
        value = environment(name).get(name, "")
        if not value:
            log.warning("registry.variable_unset agent=%s variable=%s", self.name, name)
        return value


def expand_variables(text: str, field: str) -> str:
    """A text with `${VARIABLE}` and `${VARIABLE:-otherwise}` replaced.

    Raises:
        Misuse: a variable without an otherwise is unset.
    """

    def value(found: re.Match[str]) -> str:
        known = environment(found[1]).get(found[1]) or found[2]
        if known is None:
            raise Misuse(f"{field}: the variable {found[1]} is not set")
        return known

    return _VARIABLE.sub(value, text)


def normalize_keys(raw: Mapping[str, Any]) -> dict[str, Any]:
    """An entry by our names of its members: `apiKeyEnv` is `api_key_env`."""
    entry = _renamed(raw, {})
    for name, words in (("auth", _AUTH), ("skill_filter", _FILTER)):
        if isinstance(inner := entry.get(name), dict):
            entry[name] = _renamed(cast("dict[str, Any]", inner), words)
    return entry


def _renamed(raw: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    return {words.get(name := snake_case(str(key)), name): value for key, value in raw.items()}


_LISTS = ("agents", "a2a_agents")
_UNKNOWN = re.compile("unknown field `(.*?)`")


def load_agents(path: str | Path, *, http_client: HttpClient | None = None) -> Agents:
    """A client for each agent of the file, by name; none where there is no file.

    All clients go by `http_client` where one is given.

    Raises:
        Misuse: the file is not what it should be; the text names line and field.
    """
    file = Path(path)
    try:
        text = read_text(file)
    except FileNotFoundError:
        log.warning("registry.missing file=%s", file)
        return Agents({}, {})
    clients: dict[str, Any] = {}
    extras: dict[str, Any] = {}
    for entry, where in _entries(text, str(file)):
        if entry.name in clients:
            raise Misuse(f"{where('name')}: there are two agents {entry.name!r}")
        try:
            clients[entry.name] = entry.client(http_client)
        except Misuse as error:
            raise Misuse(f"{where(str(error).partition(':')[0])} of agent {entry.name}: {error}") from None
        extras[entry.name] = entry.extra
    return Agents(clients, extras)


def _entries(text: str, file: str) -> Iterator[tuple[AgentEntry, YamlPosition]]:
    found = read_yaml(text, file)
    if found is None:
        return
    document, top = found
    if not isinstance(document, dict):
        raise Misuse(f"{file}: begin with `agents:` and a list below it")
    for name, listed in cast("dict[object, object]", document).items():
        if name not in _LISTS:
            raise Misuse(f"{top(str(name))}: unknown field {name!r}; the list is called agents")
        for raw, where in _rows(listed, top.child(str(name)) or top):
            yield _entry(raw, where), where


def _rows(listed: object, at: YamlPosition) -> Iterator[tuple[dict[str, Any], YamlPosition]]:
    """The entries of a list, or of a mapping from names."""
    if not isinstance(listed, list | dict | None):
        raise Misuse(f"{at()}: agents must be a list, or a mapping from names")
    by_name = cast("dict[str, object]", listed) if isinstance(listed, dict) else None
    rows = enumerate(cast("list[object]", listed or ())) if by_name is None else by_name.items()
    for key, raw in rows:
        where = at.child(str(key)) or at
        if not isinstance(raw, dict):
            raise Misuse(f"{where()}: an agent has at least name and url")
        name = {} if by_name is None else {"name": key}
        yield {**name, **cast("dict[str, Any]", raw)}, where


def _entry(raw: dict[str, Any], where: YamlPosition) -> AgentEntry:
    try:
        return msgspec.convert(normalize_keys(raw), AgentEntry, dec_hook=_secret)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        field = path.rstrip("`").lstrip(".")
        if unknown := _UNKNOWN.search(text):
            field = f"{field}.{unknown[1]}" if field else unknown[1]
            known = [*_members(field)]
            near = get_close_matches(unknown[1], known, 1)
            meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            text = f"unknown field; {meant}"
        raise Misuse(f"{where(field)}: {field + ': ' if field else ''}{text}") from None


def _members(field: str) -> tuple[str, ...]:
    """What an object of the file may have beside the field that it may not."""
    inner: dict[str, type[Struct]] = {"auth": AuthEntry, "skill_filter": SkillFilter, "skills": SkillEntry}
    within = field.rpartition(".")[0].rpartition(".")[2].partition("[")[0]
    return inner.get(within, AgentEntry).__struct_fields__


def _secret(kind: type, value: object) -> object:
    if kind is Secret and isinstance(value, str):
        return Secret(value)
    # The value stays unsaid: it was meant to be a secret.
    raise ValueError(f"expected text, not {type(value).__name__}")
