"""How a mock deviates where agents differ: switches, and presets of them for agents that are in use."""

from __future__ import annotations

from typing import Any, Literal, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.errors import Misuse

_FLAT = {"bytes": "raw", "uri": "url", "mimeType": "mediaType", "name": "filename"}


class Quirks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The deviations of an agent. The defaults are those of the specification."""

    # Versions on the card and in checks of requests, in place of the persona's; and whether REST is served.
    claims: tuple[Literal["1.0", "0.3"], ...] = ()
    checks_version: bool = True
    rest: bool = True
    # Where JSON-RPC and the card are served.
    path: str = "/a2a"
    card_paths: tuple[str, ...] = ("/.well-known/agent-card.json", "/.well-known/agent.json")
    # `1.0` writes its own card, `0.3` that of before, `both` one that carries both.
    card: Literal["both", "1.0", "0.3"] = "both"
    # Answers in this version, whichever is asked for.
    writes: Literal["", "1.0", "0.3"] = ""
    # Of 0.3: `kind` on every object, `final` on statuses, states with a hyphen or an underscore.
    kind: bool = True
    final: bool = True
    states: Literal["hyphen", "underscore"] = "hyphen"
    timestamps: bool = True
    history: bool = True
    # Of streams: `id:` lines, an `event:` name, the JSON-RPC envelope, the task itself as the first frame.
    ids: bool = True
    event: str = ""
    envelope: bool = True
    opening: bool = True
    # Each chunk is an artifact of its own.
    chunk_ids: bool = False
    # The closing frame repeats the whole artifact, as agents of 0.3 do.
    whole: bool = False
    # `wait` until the task rests unless the caller says otherwise, or `receipt`.
    reply: Literal["wait", "receipt"] = "wait"
    # Operations that it has not; -32601.
    lacks: tuple[str, ...] = ()
    # Any webhook is accepted, wherever it points.
    trusting: bool = False
    # Codes of its own in place of those of the specification.
    codes: dict[str, int] = {}

    @property
    def plain(self) -> bool:
        """Whether answers stay as the writers of the protocol write them."""
        return self.kind and self.final and self.timestamps and self.history and self.states == "hyphen"


# What agents that speak only 0.3 have in common.
_V03 = Quirks(claims=("0.3",), checks_version=False, writes="0.3", ids=False, reply="receipt")
PRESETS: dict[str, Quirks] = {
    "trunkline": Quirks(whole=True),
    "promptkit": replace(
        _V03,
        rest=False,
        card_paths=("/.well-known/agent.json",),
        card="1.0",
        kind=False,
        final=False,
        states="underscore",
        history=False,
        opening=False,
        chunk_ids=True,
        lacks=("push", "extended_card"),
        codes={"-32002": -32001},
    ),
    "arbiter": Quirks(
        claims=("1.0",),
        rest=False,
        card_paths=("/.well-known/agent-card.json",),
        card="1.0",
        writes="0.3",
        timestamps=False,
        ids=False,
        event="message",
        opening=False,
        lacks=("list", "extended_card"),
        codes={"-32009": -32007, "-32003": -32004},
    ),
    "quinn": replace(_V03, card="0.3", whole=True, lacks=("list",)),
    "fasta2a": replace(_V03, rest=False, path="/", card="0.3", lacks=("list", "extended_card", "subscribe")),
}


def quirks_of(dialect: str | Quirks) -> Quirks:
    """The quirks behind the name of a preset, or those given.

    Raises:
        Misuse: there is none of that name.
    """
    if isinstance(dialect, Quirks):
        return dialect
    if dialect not in PRESETS:
        raise Misuse(f"there is no dialect {dialect!r}; use one of {', '.join(PRESETS)} or spell it out")
    return PRESETS[dialect]


def with_quirks(body: bytes, quirks: Quirks) -> bytes:
    """An object that the writer of 0.3 wrote, changed by these quirks."""
    return body if quirks.plain else msgspec.json.encode(_with_quirks(msgspec.json.decode(body), quirks))


def _with_quirks(value: Any, quirks: Quirks) -> Any:
    if isinstance(value, list):
        return [_with_quirks(item, quirks) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    members = _bare_file(cast("dict[str, Any]", value), quirks)
    kept: dict[str, Any] = {}
    for name, member in members.items():
        if name in ("data", "metadata"):
            kept[name] = member
        elif name == "state" and isinstance(member, str):
            kept[name] = member.replace("-", "_") if quirks.states == "underscore" else member
        elif not _left_out(name, members, quirks):
            kept[name] = _with_quirks(member, quirks)
    return kept


def _bare_file(members: dict[str, Any], quirks: Quirks) -> dict[str, Any]:
    """Agents that write no `kind` have files as 1.0 has them: among the members of their part."""
    file = members.get("file")
    if quirks.kind or not isinstance(file, dict):
        return members
    inner = cast("dict[str, Any]", file)
    return {_FLAT.get(name, name): value for name, value in {**members, **inner}.items() if name != "file"}


def _left_out(name: str, members: dict[str, Any], quirks: Quirks) -> bool:
    return (
        (name == "kind" and not quirks.kind)
        or (name == "final" and not quirks.final)
        or (name == "timestamp" and not quirks.timestamps)
        or (name == "history" and not quirks.history and "status" in members)
    )
