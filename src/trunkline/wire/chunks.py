"""The frame that most streams are made of, a piece of text in JSON-RPC 1.0, decoded in one go.

Anything else about it, an unknown member too, and `answers` reads it: slower, and with the same result.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from trunkline.wire.answers import Notice
from trunkline.wire.faults import UNREADABLE
from trunkline.wire.foreign import is_foreign
from trunkline.wire.types import Artifact, ArtifactUpdate, Part

_MARK = b'"artifactUpdate"'


class _Exact(Struct, frozen=True, gc=False, forbid_unknown_fields=True, rename="camel"):
    """Nothing but these members."""


class _Text(_Exact, frozen=True, gc=False):
    text: str


class _Piece(_Exact, frozen=True, gc=False):
    artifact_id: str
    parts: tuple[_Text, ...]
    name: str = ""


class _Update(_Exact, frozen=True, gc=False):
    task_id: str
    artifact: _Piece
    context_id: str = ""
    append: bool = False
    last_chunk: bool = False


class _Result(_Exact, frozen=True, gc=False):
    artifact_update: _Update


class _Frame(_Exact, frozen=True, gc=False):
    result: _Result
    id: str
    jsonrpc: str = ""


_frame = msgspec.json.Decoder(_Frame)


def rpc_chunk(body: bytes, request_id: str) -> Notice | None:
    """The piece of text that a frame brings; None if it is anything else."""
    if _MARK not in body:
        return None
    try:
        frame = _frame.decode(body)
    except UNREADABLE:
        return None
    update = frame.result.artifact_update
    piece, task_id = update.artifact, update.task_id
    if frame.id != request_id or not piece.artifact_id or not is_foreign(task_id) or task_id[:6] == "tasks/":
        return None
    parts = tuple([Part(one.text) for one in piece.parts])
    artifact = Artifact(piece.artifact_id, piece.name, "", parts)
    told = ArtifactUpdate(task_id, update.context_id, artifact, update.append, update.last_chunk)
    return Notice(told, (artifact,))
