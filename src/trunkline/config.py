"""Typed settings: the only reader of the environment. Every default is safe on the open internet.

Order: what the agent's author gave, then `trunkline.toml`, then `TRUNKLINE_*`, then flags.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal, NoReturn, get_args, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta, Struct

from trunkline.errors import Misuse

# As long as any clock can wait for.
LONGEST_S = 1e8
# How long the outcomes of tasks are kept, whatever the retention.
HEALTH_KEPT_S = 48 * 3600.0
_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhd]?)")
_DELEGATE = re.compile(r"(?:a2a|mcp|sdk)=[\w.]+:\w+")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
PREFIX = "TRUNKLINE_"
FILE = "trunkline.toml"


class Secret:
    """A text that no log, repr or error shows."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text of the secret."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format("***", spec)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled or copied")


# Upper bounds keep out infinity, which no clock can wait for; NaN fails every comparison.
Seconds = Annotated[float, Meta(gt=0, le=1e8)]
Patience = Annotated[float, Meta(ge=0, le=1e8)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class Issuer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An issuer whose JSON Web Tokens are believed.

    Without `jwks_url` its keys are found by OpenID discovery. Of the scopes that a token names, it has those
    in `scopes`; one that names none of ours has `default_scopes`.
    """

    issuer: str
    audience: str
    jwks_url: str = ""
    algorithms: tuple[str, ...] = ("RS256", "PS256", "ES256", "EdDSA")
    owner_claim: str = "sub"
    tenant: str = "default"
    scopes: tuple[str, ...] = ("tasks:read", "tasks:write")
    default_scopes: tuple[str, ...] = ("tasks:read", "tasks:write")


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a host, each with its default."""

    store: str = "sqlite:///trunkline.db"
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    workers: Annotated[int, Meta(ge=1, le=1024)] = 1
    public_url: str = ""
    keys: tuple[Secret, ...] = ()
    open: bool = False
    dev: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    metrics: bool = False
    reply: Literal["wait", "receipt"] = "wait"
    wait_limit: Patience = 300.0
    stall_limit: Seconds = 900.0
    cancel_limit: Patience = 5.0
    drain_limit: Patience = 20.0
    takeover_limit: Annotated[int, Meta(ge=1, le=1000)] = 3
    retention: float | str | None = None
    keep_alive: Seconds = 15.0
    write_limit: Seconds = 10.0
    # No task holds more than the upper bound, so no larger message could be kept.
    body_limit: Annotated[int, Meta(ge=1, le=64 << 20)] = 1 << 20
    body_timeout: Seconds = 30.0
    coalesce_characters: Count = 24
    coalesce_milliseconds: Count = 100
    allowed_hosts: tuple[str, ...] = ()
    trust_forwarded: bool = False
    issuers: tuple[Issuer, ...] = ()
    cors_origins: tuple[str, ...] = ()
    connection_limit: Count = 20_000
    unread_limit: Count = 32 << 20
    rate_limit: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    rate_burst: Count = 0
    concurrency_limit: Count = 0
    hop_limit: Annotated[int, Meta(ge=1, le=1000)] = 8
    task_budget: Annotated[int, Meta(ge=1, le=1_000_000)] = 1024
    poll_interval: Seconds = 30.0
    task_max_age: Seconds = 3600.0
    push: bool = True
    stream_close: Literal["whole", "last"] = "whole"
    final_message: bool = False
    v03_parts: Literal["auto", "kind", "flat"] = "auto"
    unread_parts: Literal["pass", "refuse"] = "pass"
    push_format: Literal["event", "task"] = "event"
    push_retry: Literal["quick", "long"] = "quick"
    push_secrets: Literal["hide", "show"] = "hide"
    push_timeout: Seconds = 15.0
    egress_hosts: tuple[str, ...] = ()
    egress_networks: tuple[str, ...] = ()
    secret_key: Secret | None = None
    health_window: float | str = "24h"
    card_refresh: float | str = "10m"
    inbox_ttl: float | str = "30m"
    announce: str = ""
    announce_key: Secret | None = None
    announce_ttl: Annotated[float, Meta(ge=1, le=300)] = 60.0
    mcp_manifest: str = "mcp.json"
    flow_steps: tuple[str, ...] = ()
    flow_delegates: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("store", "host", "public_url", "announce", "mcp_manifest"):
            if not getattr(self, name).isprintable():
                raise ValueError(f"{name}: it contains control characters")
        for name in ("retention", "health_window", "card_refresh", "inbox_ttl"):
            age: float | str | None = getattr(self, name)
            try:
                seconds(0 if age is None else age)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        if self.card_refresh_s < 1:
            raise ValueError("card_refresh: give at least 1s")
        if not 0 < self.health_window_s <= HEALTH_KEPT_S:
            raise ValueError("health_window: give more than 0s and at most 48h; older outcomes are deleted")
        _check_delegates(self.flow_delegates)
        for name in ("public_url", "announce"):
            address: str = getattr(self, name)
            if address and not _is_address(address):
                raise ValueError(
                    f"{name}: give a URL such as https://agent.example/path, without login or query"
                )

    @property
    def card_refresh_s(self) -> float:
        """How often the agents of a catalogue are asked for their cards, in seconds."""
        return seconds(self.card_refresh)

    @property
    def inbox_ttl_s(self) -> float:
        """How many seconds a question of a hub's agent waits for an answer; 0 is for ever."""
        return seconds(self.inbox_ttl)

    @property
    def health_window_s(self) -> float:
        """How many seconds back the health of agents is counted."""
        return seconds(self.health_window)

    @property
    def kept_s(self) -> float:
        """How many seconds an ended task is kept; 0 is for ever."""
        if self.retention is not None:
            return seconds(self.retention)
        return 3600.0 if self.store == "memory:" else 7 * 86400.0


def _check_delegates(entries: Sequence[str]) -> None:
    protocols = [entry.partition("=")[0] for entry in entries]
    for entry, protocol in zip(entries, protocols, strict=True):
        if _DELEGATE.fullmatch(entry) is None:
            form = "PROTOCOL=module:object; the protocols are a2a, mcp and sdk"
            raise ValueError(f"flow_delegates: {entry!r} is not {form}")
        if protocols.count(protocol) > 1:
            raise ValueError(f"flow_delegates: {protocol} is named twice; keep one of its entries")


def seconds(age: float | str) -> float:
    """Return a duration in seconds, from a number or a text such as 90s, 15m, 12h or 7d.

    Raises:
        ValueError: the text is neither.
    """
    found = _AGE.fullmatch(str(age).strip())
    if found is None or (value := float(found[1]) * _UNITS[found[2]]) > LONGEST_S:
        raise ValueError(
            f"{age!r} is not a duration; give seconds, or a number with s, m, h or d, such as 7d"
        )
    return value


# What each agent of a host has of its own; everything else is the host's.
OF_SITE = frozenset({
    "reply", "wait_limit", "stall_limit", "retention", "coalesce_characters", "coalesce_milliseconds",
    "final_message", "push_format", "stream_close", "unread_parts", "v03_parts",
})  # fmt: skip


def host_layer(layers: Sequence[tuple[str, Mapping[str, object]]]) -> dict[str, object]:
    """The settings that agents of one host share, from what each of them says.

    Raises:
        Misuse: two of them disagree.
    """
    merged: dict[str, tuple[str, object]] = {}
    for agent, layer in layers:
        for name, value in layer.items():
            if name in OF_SITE or value is None:
                continue
            other, known = merged.setdefault(name, (agent, value))
            if known != value:
                # Not what they say: it may be a secret.
                raise Misuse(f"agents {other!r} and {agent!r} disagree on {name}, of which a host has one")
    return {name: value for name, (_, value) in merged.items()}


_LISTS = {
    "keys",
    "allowed_hosts",
    "cors_origins",
    "egress_hosts",
    "egress_networks",
    "flow_steps",
    "flow_delegates",
}
# Tables in trunkline.toml, JSON elsewhere.
_TABLES = {"issuers"}
# Sources of a setting that have no name of their own, such as a file or a variable.
DEFAULT, AUTHOR, COMMAND_LINE = "default", "agent", "command line"
_NAMED = re.compile(r".*`\$\.([a-z_]+)|([a-z_]+)")
_LISTING = "trunkline config show --server"
_TOML_LINE = re.compile(r" \(at line (\d+), column (\d+)\)")
_EXPECTED = re.compile(r"Expected `([a-z]+)`(?:, got `[a-z]+`)?")
_KINDS = {"int": "an integer", "float": "a number", "bool": "true or false", "str": "text", "array": "a list"}


class SourcedValue(Struct, frozen=True):
    """The value of a setting before it is converted, and the source that set it."""

    value: object
    source: str


def load(*layers: Mapping[str, object], file: Path | None = None) -> Settings:
    """Return the settings of the author's layer, the file, the environment and the flags, in that order.

    Raises:
        Misuse: a name is unknown or a value is invalid; the message names the setting and its source.
    """
    return convert(collect(*layers, file=file))


def collect(
    *layers: Mapping[str, object], file: Path | None = None, author: str = AUTHOR
) -> dict[str, SourcedValue]:
    """Return each setting that a source sets, with the value that wins.

    `author` names the source of the first layer.

    Raises:
        Misuse: the file or a variable cannot be parsed.
    """
    first, *flags = layers or ({},)
    path = file or Path(FILE)
    found: dict[str, SourcedValue] = {}
    for source, layer in (
        (author, first),
        (str(path), _from_file(path)),
        ("", _from_environment()),
        *((COMMAND_LINE, each) for each in flags),
    ):
        for name, value in layer.items():
            if value is not None:
                found[name] = SourcedValue(value, source or PREFIX + name.upper())
    return found


def explain(found: Mapping[str, SourcedValue]) -> dict[str, SourcedValue]:
    """Return every setting with its converted value and its source.

    Raises:
        Misuse: a name is unknown or a value is invalid.
    """
    settings = convert(found)
    return {
        name: SourcedValue(getattr(settings, name), found[name].source if name in found else DEFAULT)
        for name in Settings.__struct_fields__
    }


def convert(found: Mapping[str, SourcedValue]) -> Settings:
    """Return the settings that these values make.

    Raises:
        Misuse: a name is unknown or a value is invalid; the message names the setting and its source.
    """
    values = {name: sourced.value for name, sourced in found.items()}
    try:
        return msgspec.convert(values, Settings, strict=False, dec_hook=_secret)
    except msgspec.ValidationError as error:
        raise _describe(str(error), found) from None


def _describe(error: str, found: Mapping[str, SourcedValue]) -> Misuse:
    """Return the error that says what is wrong with a setting, where, and what to write instead."""
    if error.startswith("Object contains unknown field") and "$" not in error:
        name = error.partition("`")[2].partition("`")[0]
        near = find_similar(name)
        fix = f"did you mean {near!r}?" if near else f"`{_LISTING}` lists all"
        return _refuse(name, found[name].source, f"unknown setting {name!r}", f"; {fix}")
    match = _NAMED.match(error)
    name = "" if match is None else match[1] or match[2]
    if name not in found:
        return Misuse(f"settings: {error}", hint=_LISTING)
    error = error.replace("Invalid enum value", "invalid value")
    text = _EXPECTED.sub(lambda kind: f"expected {_KINDS.get(kind[1], kind[1])}", error)
    text = text.removesuffix(f" - at `$.{name}`").removeprefix(f"{name}: ")
    value = _explain_value(name, found[name].value)
    return _refuse(name, found[name].source, f"setting {name!r}", f": {text}{value}")


def _refuse(name: str, source: str, what: str, why: str) -> Misuse:
    """Return the error of a setting, with a hint that works while the setting is still wrong.

    The source is empty where the caller names the place.
    """
    hint = _LISTING
    if source.startswith(PREFIX):
        hint = f"unset {source}"
    elif Path(source).is_file():
        hint = shlex.join(["grep", "-n", name, source])
    where = f" (from {source})" if source else ""
    return Misuse(f"{what}{where}{why}", hint=hint)


def _explain_value(name: str, value: object) -> str:
    """Return the end of an error's text: the invalid value, unless it may be a secret, and the choices."""
    kind = get_type_hints(Settings)[name]
    choices = ", ".join(str(choice) for choice in get_args(kind) if isinstance(choice, str))
    if choices:
        return f"; choose {choices}"
    return (
        f", not {value!r}"
        if kind in (bool, int, float) and isinstance(value, bool | int | float | str)
        else ""
    )


def find_similar(name: str) -> str:
    """Return the setting whose name is closest, or an empty text."""
    return next(iter(get_close_matches(name, Settings.__struct_fields__, 1)), "")


def secret_text(word: str) -> str:
    """Return a secret: `env:NAME` stands for the variable of that name, anything else for itself.

    Raises:
        Misuse: the variable is not set.
    """
    name = word.removeprefix("env:")
    if name == word:
        return word
    value = os.environ.get(name, "")
    if not value:
        text = f"environment variable {name!r} is not set; set it, or name another one"
        raise Misuse(text, hint=f"export {shlex.quote(name)}=VALUE")
    return value


def assignment(text: str) -> tuple[str, object]:
    """Return the setting and value of a `--set name=value` option.

    Raises:
        Misuse: the text has no equals sign, or the value is not JSON where JSON is required.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise Misuse(f"--set takes name=value, not {text!r}", hint=_LISTING)
    name = name.strip().replace("-", "_")
    return name, _value(name, value, COMMAND_LINE)


def _from_file(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        with path.open("rb") as opened:
            return tomllib.load(opened)
    except tomllib.TOMLDecodeError as error:
        text, line = str(error), _TOML_LINE.search(str(error))
        if line is None:
            raise Misuse(
                f"{path}: invalid TOML: {text}", hint=f"tail -n 1 {shlex.quote(str(path))}"
            ) from None
        text = f"{path}, line {line[1]}: invalid TOML at column {line[2]}: {text[: line.start()]}"
        raise Misuse(text, hint=f"sed -n {line[1]}p {shlex.quote(str(path))}") from None


def find_unknown_variables() -> dict[str, str]:
    """Return the variables with our prefix that set nothing, each with the closest one, or an empty text."""
    names = {name: name.removeprefix(PREFIX).lower() for name in environment(PREFIX)}
    unknown = {
        name: find_similar(own) for name, own in names.items() if own not in Settings.__struct_fields__
    }
    return {name: near and PREFIX + near.upper() for name, near in sorted(unknown.items())}


def environment(prefix: str) -> dict[str, str]:
    """All variables whose names begin so."""
    return {name: value for name, value in os.environ.items() if name.startswith(prefix)}


def _from_environment() -> dict[str, object]:
    given = {name.removeprefix(PREFIX).lower(): value for name, value in environment(PREFIX).items()}
    return {
        name: _value(name, text, PREFIX + name.upper())
        for name, text in given.items()
        if name in Settings.__struct_fields__
    }


def _value(name: str, text: str, source: str) -> object:
    if name in _TABLES:
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise _refuse(name, source, f"setting {name!r}", f": expected a JSON list: {error}") from None
    if name in _LISTS:
        return tuple(one.strip() for one in text.split(",") if one.strip())
    return text


def _secret(kind: type, value: object) -> object:
    if kind is Secret and isinstance(value, str):
        return Secret(secret_text(value))
    # The value stays unsaid: it was meant to be a secret.
    raise ValueError(f"expected text, not {type(value).__name__}")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        clean = not (parts.query or parts.fragment or "@" in parts.netloc or " " in url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and clean and parts.port != 0
    except ValueError:
        return False


def exposure(settings: Settings) -> Misuse:
    """Return the error of a server that other machines would reach without a key."""
    return Misuse(
        f"{settings.host} is reachable by other machines and no key is set: "
        "create one, give --key KEY, or give --open to serve anybody",
        hint="trunkline keys create --owner OWNER",
    )
