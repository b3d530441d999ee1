"""How a mock speaks where agents differ: knobs, and under a name those of some that are in use."""

from __future__ import annotations

from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from trunkline.errors import Misuse

_FLAT = {"bytes": "raw", "uri": "url", "mimeType": "mediaType", "name": "filename"}


class Quirks(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The habits of an agent. The defaults are those of the specification."""

    # What the card claims and the door checks, in place of what the persona says; and whether REST is served.
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
        """Whether nothing has to be changed in what the writers write."""
        return self.kind and self.final and self.timestamps and self.history and self.states == "hyphen"


PRESETS: dict[str, Quirks] = {
    "trunkline": Quirks(whole=True),
    "promptkit": Quirks(
        claims=("0.3",),
        checks_version=False,
        rest=False,
        card_paths=("/.well-known/agent.json",),
        card="1.0",
        writes="0.3",
        kind=False,
        final=False,
        states="underscore",
        history=False,
        ids=False,
        opening=False,
        chunk_ids=True,
        reply="receipt",
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
    "quinn": Quirks(
        claims=("0.3",),
        checks_version=False,
        card="0.3",
        writes="0.3",
        ids=False,
        whole=True,
        reply="receipt",
        lacks=("list",),
    ),
    "fasta2a": Quirks(
        claims=("0.3",),
        checks_version=False,
        rest=False,
        path="/",
        card="0.3",
        writes="0.3",
        ids=False,
        reply="receipt",
        lacks=("list", "extended_card", "subscribe"),
    ),
}


def manner_of(dialect: str | Quirks) -> Quirks:
    """The habits behind a name, or those given.

    Raises:
        Misuse: there is none of that name.
    """
    if isinstance(dialect, Quirks):
        return dialect
    if dialect not in PRESETS:
        raise Misuse(f"there is no dialect {dialect!r}; use one of {', '.join(PRESETS)} or spell it out")
    return PRESETS[dialect]


def spoken(body: bytes, manner: Quirks) -> bytes:
    """An object as the writer of 0.3 wrote it, with these habits."""
    return body if manner.plain else msgspec.json.encode(_spoken(msgspec.json.decode(body), manner))


def _spoken(value: Any, manner: Quirks) -> Any:
    if isinstance(value, list):
        return [_spoken(item, manner) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    members = _bare_file(cast("dict[str, Any]", value), manner)
    kept: dict[str, Any] = {}
    for name, member in members.items():
        if name in ("data", "metadata"):
            kept[name] = member
        elif name == "state" and isinstance(member, str):
            kept[name] = member.replace("-", "_") if manner.states == "underscore" else member
        elif not _left_out(name, members, manner):
            kept[name] = _spoken(member, manner)
    return kept


def _bare_file(members: dict[str, Any], manner: Quirks) -> dict[str, Any]:
    """Who writes no `kind` has files as 1.0 has them: among the members of their part."""
    file = members.get("file")
    if manner.kind or not isinstance(file, dict):
        return members
    inner = cast("dict[str, Any]", file)
    return {_FLAT.get(name, name): value for name, value in {**members, **inner}.items() if name != "file"}


def _left_out(name: str, members: dict[str, Any], manner: Quirks) -> bool:
    return (
        (name == "kind" and not manner.kind)
        or (name == "final" and not manner.final)
        or (name == "timestamp" and not manner.timestamps)
        or (name == "history" and not manner.history and "status" in members)
    )
