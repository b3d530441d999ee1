"""Documents that their kind cannot decode: each is found, and repaired, on every store."""

from __future__ import annotations

import pytest

from tests.conformance.store.given import A, B
from trunkline.errors import Misuse
from trunkline.gateway.documents import DOCUMENT_KINDS
from trunkline.store.check import check
from trunkline.store.documents import DamagedDocument, repair
from trunkline.store.mirror import Mirror

DAMAGE = b"\xff{"


@pytest.mark.parametrize("kind", sorted(DOCUMENT_KINDS))
def test_damaged_document_is_found_and_repaired(run, store, kind):
    known = DOCUMENT_KINDS[kind]

    async def case():
        await store.docs.put(A, kind, "x", DAMAGE, 0)
        mirror = Mirror(store.docs, known)
        await mirror.refresh()
        assert mirror.damaged.keys() == {(A, "x")}
        found = (await check(store, DOCUMENT_KINDS)).damaged
        done = await repair(store.docs, DOCUMENT_KINDS, 5, tenant=A, kind=kind, doc_id="x", body=None)
        await mirror.refresh()
        left = await store.docs.get(A, kind, "x")
        assert (done, left is None) in (("removed", True), ("replaced", False))
        assert (left is None) is (known.stand_in is None)
        return found, mirror, await check(store, DOCUMENT_KINDS)

    found, mirror, after = run(case())
    assert [(one.tenant, one.kind, one.id) for one in found] == [(A, kind, "x")]
    assert found[0].reason
    assert (mirror.damaged, after.damaged) == ({}, [])


def test_check_counts_documents_and_names_those_of_unknown_kinds_as_unread(run, store):
    async def case():
        for tenant, kind, doc_id, body in (
            (A, "ended-session", "x", b"7"), (B, "ended-session", "x", b"{}"), (A, "later", "x", b"?"),
        ):  # fmt: skip
            await store.docs.put(tenant, kind, doc_id, body, 0)
        return await check(store, DOCUMENT_KINDS)

    report = run(case())
    assert (report.documents, report.unread) == (3, 1)
    assert report.damaged == [DamagedDocument(B, "ended-session", "x", "Expected `int`, got `object`")]


def test_document_is_restored_from_a_body_that_can_be_decoded(run, store):
    async def case():
        await store.docs.put(A, "fleet-alert", "x", DAMAGE, 0)

        async def restore(doc_id, body):
            return await repair(
                store.docs, DOCUMENT_KINDS, 5, tenant=A, kind="fleet-alert", doc_id=doc_id, body=body
            )

        for doc_id, body, reason in (("x", b"?", "damaged too"), ("y", b"7", "not found")):
            with pytest.raises(Misuse, match=reason):
                await restore(doc_id, body)
        assert await restore("x", b"7") == "restored"
        with pytest.raises(Misuse, match="is not damaged"):
            await restore("x", b"8")
        return (await store.docs.get(A, "fleet-alert", "x")).body

    assert run(case()) == b"7"
