"""Typed settings: the only reader of the environment. Every default is safe on the open internet.

Order: what the agent's author gave, then `trunkline.toml`, then `TRUNKLINE_*`, then flags.
"""

from __future__ import annotations

import os
import re
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

    def __post_init__(self) -> None:
        for name in ("store", "host", "public_url", "announce", "mcp_manifest"):
            if not getattr(self, name).isprintable():
                raise ValueError(f"{name} holds control characters")
        for name in ("retention", "health_window", "card_refresh", "inbox_ttl"):
            age: float | str | None = getattr(self, name)
            try:
                seconds(0 if age is None else age)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        if self.card_refresh_s < 1:
            raise ValueError("card_refresh: give a second or more")
        if not 0 < self.health_window_s <= HEALTH_KEPT_S:
            raise ValueError("health_window: give more than nothing and at most 48h, which is what is kept")
        for name in ("public_url", "announce"):
            address: str = getattr(self, name)
            if address and not _is_address(address):
                raise ValueError(
                    f"{name} must be like https://agent.example/path, without a login or a query"
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


def seconds(age: float | str) -> float:
    """An age in seconds, from a number or a text such as 90s, 15m, 12h or 7d.

    Raises:
        ValueError: it is neither.
    """
    found = _AGE.fullmatch(str(age).strip())
    if found is None or (value := float(found[1]) * _UNITS[found[2]]) > LONGEST_S:
        raise ValueError(f"{age!r} is no age: give seconds, or a number with s, m, h or d, for example 7d")
    return value


# What each agent of a host has of its own; everything else is the host's.
OF_SITE = frozenset({
    "reply", "wait_limit", "stall_limit", "retention", "coalesce_characters", "coalesce_milliseconds",
    "push_format", "stream_close", "unread_parts",
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


_LISTS = {"keys", "allowed_hosts", "cors_origins", "egress_hosts", "egress_networks", "flow_steps"}
# Tables in trunkline.toml, JSON elsewhere.
_TABLES = {"issuers"}


def load(*layers: Mapping[str, object], file: Path | None = None) -> Settings:
    """Settings from the author's layer, the file, the environment and the flags, in that order.

    Raises:
        Misuse: a name is unknown or a value does not fit; the message names it.
    """
    author, *flags = layers or ({},)
    merged: dict[str, object] = {}
    for layer in (author, _from_file(file or Path(FILE)), _from_environment(), *flags):
        merged.update({name: value for name, value in layer.items() if value is not None})
    try:
        return msgspec.convert(merged, Settings, strict=False, dec_hook=_secret)
    except msgspec.ValidationError as error:
        raise Misuse(f"settings: {error}{_choices(str(error))}") from None


def _choices(error: str) -> str:
    """The end of an error's text: the names or the values that could be given instead."""
    if "unknown field" in error:
        near = get_close_matches(error.partition("`")[2].partition("`")[0], Settings.__struct_fields__, 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        return f"{meant}; there are {', '.join(Settings.__struct_fields__)}"
    field = error.rpartition("`$.")[2].rstrip("`")
    names: tuple[str, ...] = get_args(get_type_hints(Settings).get(field))
    return f"; choose {', '.join(names)}" if "Invalid enum" in error else ""


def secret_text(word: str) -> str:
    """A secret as it is written: `env:NAME` is the variable of that name, anything else the secret itself.

    Raises:
        Misuse: the environment has no such name.
    """
    name = word.removeprefix("env:")
    if name == word:
        return word
    value = os.environ.get(name, "")
    if not value:
        raise Misuse(f"the environment has no {name}; set it, or name another")
    return value


def assignment(text: str) -> tuple[str, object]:
    """A `name=value` flag as a setting.

    Raises:
        Misuse: there is no equals sign.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise Misuse(f"--set takes name=value, not {text!r}")
    name = name.strip().replace("-", "_")
    return name, _value(name, value)


def _from_file(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        with path.open("rb") as opened:
            return tomllib.load(opened)
    except tomllib.TOMLDecodeError as error:
        raise Misuse(f"{path}: {error}") from None


def strangers() -> list[str]:
    """Variables that look like settings and are none: mistyped, or meant for somebody else."""
    known = Settings.__struct_fields__
    return sorted(name for name in environment(PREFIX) if name.removeprefix(PREFIX).lower() not in known)


def environment(prefix: str) -> dict[str, str]:
    """All variables whose names begin so."""
    return {name: value for name, value in os.environ.items() if name.startswith(prefix)}


def _from_environment() -> dict[str, object]:
    given = {name.removeprefix(PREFIX).lower(): value for name, value in environment(PREFIX).items()}
    return {name: _value(name, text) for name, text in given.items() if name in Settings.__struct_fields__}


def _value(name: str, text: str) -> object:
    if name in _TABLES:
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise Misuse(f"settings: {name} takes a JSON list here: {error}") from None
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
    """Why an agent is not served."""
    return Misuse(
        f"{settings.host} is reachable by other machines and no key is set: "
        "make one with trunkline keys create, give --key KEY, or --open to let anybody in"
    )
