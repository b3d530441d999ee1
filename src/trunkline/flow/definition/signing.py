"""Signatures of definitions: Ed25519 over the canonical text, as a compact JWS inside the document.

The operator says which keys count, and whether a definition may go without a signature.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_der_public_key,
    load_pem_private_key,
)
from msgspec import Struct

from trunkline.errors import FlowRefused, Misuse
from trunkline.flow.definition.canonical import canonical, without_signature
from trunkline.yaml_reader import read_text

ALGORITHM = "EdDSA"
_RAW_LENGTH = 32
_KEYS = 'write {"KEY-ID": "its public key in base64url"}, or name a file that has it'


class SignatureVerdict(Struct, frozen=True):
    """Whether a definition that passed has a signature that was verified."""

    verified: bool
    present: bool


class SignaturePolicy(Struct, frozen=True):
    """What the operator demands of definitions: a signature, or none that is wrong."""

    mode: Literal["optional", "require"] = "optional"
    keys: Mapping[str, Ed25519PublicKey] = {}

    def check(self, document: dict[str, Any]) -> SignatureVerdict:
        """Let a definition pass.

        Raises:
            FlowRefused: it has no signature and needs one, or its signature is wrong.
        """
        block = _block(document)
        if block is None:
            if self.mode == "require":
                raise _refused("it has no signature, and this server runs signed definitions alone")
            return SignatureVerdict(verified=False, present=False)
        self._verify(block, document)
        return SignatureVerdict(verified=True, present=True)

    def _verify(self, block: Any, document: dict[str, Any]) -> None:
        try:
            given = msgspec.convert(block, _Signature)
            header, payload, seal = given.value.split(".")
            read = msgspec.json.decode(_decoded(header), type=_Header)
            claimed, value = _decoded(payload), _decoded(seal)
        except (ValueError, msgspec.ValidationError, msgspec.DecodeError):
            raise _refused("its signature is no compact JWS with EdDSA and a kid") from None
        if given.key_id not in {None, read.kid}:
            raise _refused(f"its signature names the key {given.key_id!r} and its JWS {read.kid!r}")
        key = self.keys.get(read.kid)
        if key is None:
            raise _refused(f"its signature is of the key {read.kid!r}, which this server does not know")
        try:
            key.verify(value, f"{header}.{payload}".encode())
            meant = canonical(without_signature(document))
        except InvalidSignature:
            raise _refused("its signature is wrong") from None
        except ValueError as error:
            raise _refused(f"it has no canonical JSON text: {error}") from None
        if claimed != meant:
            raise _refused("its signature is of another document")


class _Signature(Struct, frozen=True, rename={"key_id": "keyId"}):
    alg: Literal["EdDSA"]
    value: str
    key_id: str | None = None


class _Header(Struct, frozen=True):
    alg: Literal["EdDSA"]
    kid: str
    typ: Literal["JWS"] = "JWS"


def sign(document: dict[str, Any], key: Ed25519PrivateKey, key_id: str) -> dict[str, Any]:
    """The definition with a signature in its `document`, in place of any that it had.

    Raises:
        FlowRefused: it has no `document` to put it in, or is no JSON.
    """
    plain = without_signature(document)
    if not isinstance(plain.get("document"), dict):
        raise _refused("it has no `document` to hold a signature")
    head = {"alg": ALGORITHM, "typ": "JWS", "kid": key_id}
    try:
        signed = f"{_encoded(msgspec.json.encode(head))}.{_encoded(canonical(plain))}"
    except ValueError as error:
        raise _refused(f"it has no canonical JSON text: {error}") from None
    value = f"{signed}.{_encoded(key.sign(signed.encode()))}"
    block = {"alg": ALGORITHM, "value": value, "keyId": key_id}
    return {**plain, "document": {**plain["document"], "signature": block}}


def signature_policy(mode: str, keys: str) -> SignaturePolicy:
    """The policy that two settings describe: a mode, and keys as JSON, as `file:PATH` or as a path.

    Raises:
        Misuse: they describe none.
    """
    if mode not in {"", "optional", "require"}:
        raise Misuse(f"the mode of definition signing is optional or require, not {mode!r}")
    known = public_keys(keys) if keys.strip() else {}
    return SignaturePolicy("require" if mode == "require" else "optional", known)


def public_keys(given: str) -> dict[str, Ed25519PublicKey]:
    """Public keys by their ids, from JSON or from a file that has it.

    Raises:
        Misuse: there are none in it.
    """
    text = given.strip()
    if not text.startswith("{"):
        try:
            text = read_text(Path(text.removeprefix("file:")))
        except FileNotFoundError:
            raise Misuse(f"there is no file {text.removeprefix('file:')!r}; {_KEYS}") from None
    try:
        found = msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError as error:
        raise Misuse(f"public keys for signatures: {error}; {_KEYS}") from None
    return {key_id: _public_key(key_id, written) for key_id, written in found.items()}


def private_key(pem: str, name: str) -> Ed25519PrivateKey:
    """The private key in a PEM file.

    Raises:
        Misuse: there is no Ed25519 key in it that needs no passphrase.
    """
    try:
        key = load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise Misuse(
            f"{name}: this is no Ed25519 key in PEM without a passphrase; "
            f"openssl genpkey -algorithm ed25519 -out {name} makes one"
        )
    return key


def written_public_key(key: Ed25519PrivateKey) -> str:
    """The public half of a key, as settings name it."""
    return _encoded(key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def _public_key(key_id: str, written: str) -> Ed25519PublicKey:
    try:
        raw = _decoded(written)
        key = Ed25519PublicKey.from_public_bytes(raw) if len(raw) == _RAW_LENGTH else load_der_public_key(raw)
    except ValueError:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise Misuse(f"the public key {key_id!r} is no Ed25519 key in base64url")
    return key


def _block(document: dict[str, Any]) -> Any:
    """The signature block, in `document` or beside it; None where there is none."""
    head = document.get("document")
    if isinstance(head, dict) and "signature" in head:
        return cast("dict[str, Any]", head)["signature"]
    return document.get("signature")


def _encoded(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    """The bytes of a base64url text that is written as it must be: one text for each value."""
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        raise ValueError("no base64url") from None
    if _encoded(raw) != text.rstrip("="):
        raise ValueError("no base64url")
    return raw


def _refused(reason: str) -> FlowRefused:
    return FlowRefused("VALIDATION_ERROR", f"the definition is refused: {reason}")
