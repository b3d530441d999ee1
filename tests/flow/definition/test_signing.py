"""A signature counts for one document, one key and one way to write it."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.flow import vectors
from tests.flow.definition.sample import line
from trunkline.errors import FlowInvalid, FlowRefused, Misuse
from trunkline.flow.definition.read import read_definition
from trunkline.flow.definition.signing import (
    SignaturePolicy,
    private_key,
    public_keys,
    sign,
    signature_policy,
    written_public_key,
)

KEY = vectors.KEY
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
POLICY = SignaturePolicy("require", {"ours": KEY.public_key()})
SIGNED = sign(line(), KEY, "ours")


def resigned(**changes: Any) -> dict[str, Any]:
    """The signed definition with other members in its signature."""
    return {
        **SIGNED,
        "document": {**SIGNED["document"], "signature": {**SIGNED["document"]["signature"], **changes}},
    }


def with_header(**header: Any) -> dict[str, Any]:
    """The definition, signed rightly under a header of any kind."""
    _, payload, _ = SIGNED["document"]["signature"]["value"].split(".")
    head = urlsafe_b64encode(msgspec.json.encode(header)).rstrip(b"=").decode()
    seal = urlsafe_b64encode(KEY.sign(f"{head}.{payload}".encode())).rstrip(b"=").decode()
    return resigned(value=f"{head}.{payload}.{seal}")


def test_a_signed_definition_passes_and_can_be_read() -> None:
    verdict = POLICY.check(SIGNED)
    assert (verdict.verified, verdict.present) == (True, True)
    assert read_definition(SIGNED) == read_definition(line())


def test_signing_again_replaces_the_signature() -> None:
    assert sign(SIGNED, KEY, "ours") == SIGNED
    assert SignaturePolicy("require", {"b": OTHER.public_key()}).check(sign(SIGNED, OTHER, "b")).verified


def test_the_signature_may_stand_beside_the_document() -> None:
    beside = {**line(), "signature": SIGNED["document"]["signature"]}
    assert POLICY.check(beside).verified


def test_a_definition_without_a_signature() -> None:
    verdict = SignaturePolicy().check(line())
    assert (verdict.verified, verdict.present) == (False, False)
    with pytest.raises(FlowRefused, match="has no signature") as caught:
        POLICY.check(line())
    assert caught.value.code == "VALIDATION_ERROR"


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({**SIGNED, "edges": []}, "of another document"),
        (
            resigned(value=vectors.last_sign_changed(SIGNED["document"]["signature"]["value"])),
            "no compact JWS",
        ),
        (resigned(value=sign(line(), OTHER, "ours")["document"]["signature"]["value"]), "is wrong"),
        (sign(line(), KEY, "unknown"), "'unknown', which this server does not know"),
        (resigned(keyId="another"), "names the key 'another'"),
        (resigned(alg="none"), "no compact JWS"),
        (resigned(value=3), "no compact JWS"),
        (resigned(value="a.b"), "no compact JWS"),
        (resigned(value="é.b.c"), "no compact JWS"),
        (with_header(alg="none", kid="ours"), "no compact JWS"),
        (with_header(alg="EdDSA"), "no compact JWS"),
        (with_header(alg="EdDSA", kid="ours", typ="JWT"), "no compact JWS"),
        ({**line(), "signature": []}, "no compact JWS"),
        ({**SIGNED, "state_schema": {"a": "\ud800"}}, "no canonical JSON"),
    ],
)
def test_signatures_that_do_not_count(document: dict[str, Any], reason: str) -> None:
    for policy in (POLICY, SignaturePolicy("optional", POLICY.keys)):
        with pytest.raises(FlowRefused, match=reason):
            policy.check(document)


def with_default(number: float) -> dict[str, Any]:
    """A definition whose state begins with a number."""
    return {**line(), "state_schema": {"type": "object", "properties": {"a": {"default": number}}}}


@pytest.mark.parametrize(("signed", "changed"), [(2**53, 2**53 + 1), (0, -0.0)])
def test_signed_number_cannot_be_replaced_by_one_with_the_same_text(signed: float, changed: float) -> None:
    sealed = sign(with_default(signed), KEY, "ours")
    assert POLICY.check(sealed).verified
    with pytest.raises(FlowRefused, match="write"):
        POLICY.check({**sealed, "state_schema": with_default(changed)["state_schema"]})


@pytest.mark.parametrize("number", [2**53 + 1, -(10**18), 1e20])
def test_number_beyond_2_53_is_neither_signed_nor_valid(number: float) -> None:
    with pytest.raises(FlowRefused, match="beyond 2\\^53"):
        sign(with_default(number), KEY, "ours")
    with pytest.raises(
        FlowInvalid, match="beyond 2\\^53, where integers are not exact; write it as a string"
    ):
        read_definition(with_default(number))


def test_headers_without_a_type_and_blocks_without_a_key_count() -> None:
    assert POLICY.check(with_header(alg="EdDSA", kid="ours")).verified
    assert POLICY.check(resigned(keyId=None)).verified


def test_a_signature_without_known_keys_is_refused() -> None:
    with pytest.raises(FlowRefused, match="does not know"):
        SignaturePolicy().check(SIGNED)


def test_settings(tmp_path: Path) -> None:
    written = written_public_key(KEY)
    raw = urlsafe_b64encode(KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)).decode()
    file = tmp_path / "keys.json"
    file.write_text(f'{{"ours": "{raw}"}}')
    for keys in (f'{{"ours": "{written}"}}', str(file), f"file:{file}"):
        policy = signature_policy("require", keys)
        assert policy.check(SIGNED).verified
    assert signature_policy("", "").mode == "optional"
    assert signature_policy("optional", " ").check(line()).present is False


@pytest.mark.parametrize(
    ("mode", "keys", "reason"),
    [
        ("always", "", "optional or require"),
        ("optional", "{", "public keys"),
        ("optional", '{"a": 1}', "public keys"),
        ("optional", '{"a": "AAAA"}', "'a' is no Ed25519 key"),
        ("optional", '{"a": "!"}', "'a' is no Ed25519 key"),
        ("optional", "/nowhere/keys.json", "no file '/nowhere/keys.json'"),
    ],
)
def test_settings_that_say_nothing(mode: str, keys: str, reason: str) -> None:
    with pytest.raises(Misuse, match=reason):
        signature_policy(mode, keys)


def test_a_key_of_another_kind() -> None:
    other = generate_private_key(SECP256R1())
    der = other.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    with pytest.raises(Misuse, match="no Ed25519 key"):
        public_keys(f'{{"a": "{urlsafe_b64encode(der).decode()}"}}')
    pem = other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    for text in (pem, "no key", ""):
        with pytest.raises(Misuse, match="openssl genpkey -algorithm ed25519 -out key.pem"):
            private_key(text, "key.pem")
    mine = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    assert sign(line(), private_key(mine, "key.pem"), "ours") == SIGNED


@pytest.mark.parametrize("document", [{}, {"document": 3}, {"document": {"name": "\ud800"}}])
def test_what_cannot_be_signed(document: dict[str, Any]) -> None:
    with pytest.raises(FlowRefused):
        sign(document, KEY, "ours")


@pytest.mark.parametrize("vector", vectors.vectors("signing"))
def test_signing_vectors(vector: dict[str, Any]) -> None:
    document, policy = vectors.signed(vector)
    expected = vector["expect"]
    if expected["ok"]:
        assert policy.check(document).verified is expected.get("verified", True)
    else:
        with pytest.raises(FlowRefused):
            policy.check(document)
