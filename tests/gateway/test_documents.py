"""The registry of kinds of documents: what replaces a removed document can be decoded, and grants nothing."""

from __future__ import annotations

import msgspec

from trunkline.gateway.documents import DOCUMENT_KINDS


def test_stand_ins_can_be_decoded() -> None:
    for kind in DOCUMENT_KINDS.values():
        if kind.stand_in is not None:
            kind.read("acme", kind.stand_in("acme", 5))
    key = DOCUMENT_KINDS["api-key"]
    assert key.stand_in is not None
    shown = msgspec.to_builtins(key.read("x", key.stand_in("x", 5)))
    assert (shown["revoked_at"], shown["scopes"]) == (5, ())
