"""Standard Webhooks 1.0: what a sender signs and a receiver checks. Pure; the time is passed in.

Signed is `id.timestamp.body`: with Ed25519 (`v1a`, keys `whsk_…` and `whpk_…`) or with HMAC-SHA256
(`v1`, secret `whsec_…`). A header may hold several signatures, so that keys can be replaced.
"""

from __future__ import annotations

import binascii
import hmac
import re
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec import Struct

from trunkline.errors import Misuse, Unauthenticated

ID = "webhook-id"
TIMESTAMP = "webhook-timestamp"
SIGNATURE = "webhook-signature"
TOLERANCE_S = 300

# A dot would let one signed text be read as two different messages.
_ID = re.compile(r"[!-\-/-~]{1,256}")
_SECONDS = re.compile(r"[0-9]{1,12}")
# Checking one costs about 0.1 ms for each key; two during a rotation is what senders need.
_MOST_SIGNATURES = 16
_SHORTEST, _LONGEST = 24, 64
_HALF = 32


class Shared:
    """A secret that both sides know (`whsec_…`); it does not print."""

    __slots__ = ("_start",)

    def __init__(self, secret: bytes) -> None:
        if not _SHORTEST <= len(secret) <= _LONGEST:
            raise Misuse(f"a webhook secret has {_SHORTEST} to {_LONGEST} bytes")
        self._start = hmac.new(secret, digestmod="sha256")

    def digest(self, content: bytes) -> bytes:
        """The HMAC of a text."""
        mac = self._start.copy()
        mac.update(content)
        return mac.digest()


SigningKey = Ed25519PrivateKey | Shared
CheckingKey = Ed25519PublicKey | Shared


def sign(key: SigningKey, webhook_id: str, timestamp_s: int, body: bytes) -> str:
    """One signature, `v1a,…` or `v1,…`; several are joined with a space.

    Raises:
        Misuse: the id holds a dot, a space or something that no header carries.
    """
    if _ID.fullmatch(webhook_id) is None:
        raise Misuse("a webhook id is 1 to 256 ASCII characters without spaces and dots")
    content = _content(webhook_id, str(timestamp_s), body)
    if isinstance(key, Shared):
        return _symmetric(key, content)
    return f"v1a,{b64encode(key.sign(content)).decode()}"


def verify(
    headers: Mapping[str, str],
    body: bytes,
    keys: Iterable[CheckingKey],
    now_s: float,
    tolerance_s: float = TOLERANCE_S,
) -> str:
    """The id of a webhook that one of these keys has signed, not long ago. Names of headers in any case.

    Raises:
        Unauthenticated: `details["reason"]` is `missing`, `malformed`, `stale`, `future` or `signature`.
    """
    named = {name.lower(): text for name, text in headers.items()}
    missing = [name for name in (ID, TIMESTAMP, SIGNATURE) if not named.get(name)]
    if missing:
        raise Unauthenticated(f"not signed: {', '.join(missing)} is missing", reason="missing")
    webhook_id, timestamp = named[ID], named[TIMESTAMP]
    if _ID.fullmatch(webhook_id) is None:
        raise Unauthenticated(f"{ID} must be ASCII without spaces and dots", reason="malformed")
    if _SECONDS.fullmatch(timestamp) is None:
        raise Unauthenticated(f"{TIMESTAMP} must be seconds since 1970", reason="malformed")
    age_s = now_s - int(timestamp)
    if abs(age_s) > tolerance_s:
        when, reason = ("ago", "stale") if age_s > 0 else ("from now", "future")
        raise Unauthenticated(f"signed more than {tolerance_s:g} s {when}; check the clocks", reason=reason)
    signatures = named[SIGNATURE].split()
    if len(signatures) > _MOST_SIGNATURES:
        raise Unauthenticated(f"{SIGNATURE} holds more than {_MOST_SIGNATURES}", reason="malformed")
    content = _content(webhook_id, timestamp, body)
    known = list(keys)
    if not any([_matches(key, one, content) for one in signatures for key in known]):
        raise Unauthenticated("no signature is by a key known here", reason="signature")
    return webhook_id


def signing_key(text: str) -> SigningKey:
    """The key in `whsk_…` (a seed, alone or with its public half) or `whsec_…`.

    Raises:
        Misuse: it is neither; the text is not repeated.
    """
    if text.startswith("whsec_"):
        return Shared(_bytes(text, "whsec_"))
    raw = _bytes(text, "whsk_")
    if len(raw) not in {_HALF, 2 * _HALF}:
        raise Misuse("a whsk_ key has 32 bytes, or 64 with its public half")
    key = Ed25519PrivateKey.from_private_bytes(raw[:_HALF])
    if len(raw) > _HALF and key.public_key().public_bytes_raw() != raw[_HALF:]:
        raise Misuse("the halves of this whsk_ key do not belong together")
    return key


def checking_key(text: str) -> CheckingKey:
    """The key in `whpk_…` or `whsec_…`.

    Raises:
        Misuse: it is neither; the text is not repeated.
    """
    if text.startswith("whsec_"):
        return Shared(_bytes(text, "whsec_"))
    if text.startswith("whsk_"):
        raise Misuse("a whsk_ key is the sender's own; a receiver needs the whpk_ key")
    return _public(_bytes(text, "whpk_"))


def secret_text(key: Ed25519PrivateKey) -> str:
    """The key as `whsk_…`: its seed and its public half."""
    both = key.private_bytes_raw() + key.public_key().public_bytes_raw()
    return f"whsk_{b64encode(both).decode()}"


class _Jwk(Struct, frozen=True):
    kty: str = ""
    crv: str = ""
    x: str = ""
    use: str = "sig"


class _WebhookKeySet(Struct, frozen=True):
    keys: tuple[_Jwk, ...]


def jwks_keys(document: bytes | str | Mapping[str, Any]) -> list[CheckingKey]:
    """The Ed25519 keys of a JWKS document, as `/.well-known/jwks.json` serves it; other kinds are left out.

    Raises:
        Misuse: it is no JWKS, or holds no such key.
    """
    try:
        if isinstance(document, Mapping):
            found = msgspec.convert(dict(document), _WebhookKeySet)
        else:
            found = msgspec.json.decode(document, type=_WebhookKeySet)
        keys: list[CheckingKey] = [
            _public(urlsafe_b64decode(key.x + "=" * (-len(key.x) % 4)))
            for key in found.keys
            if (key.kty, key.crv, key.use) == ("OKP", "Ed25519", "sig")
        ]
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Misuse(f"this is no JWKS document: {error}") from None
    if not keys:
        raise Misuse("the JWKS document holds no Ed25519 key for signatures")
    return keys


def _content(webhook_id: str, timestamp: str, body: bytes) -> bytes:
    return b"%b.%b.%b" % (webhook_id.encode(), timestamp.encode(), body)


def _symmetric(key: Shared, content: bytes) -> str:
    return f"v1,{b64encode(key.digest(content)).decode()}"


def _matches(key: CheckingKey, signature: str, content: bytes) -> bool:
    if isinstance(key, Shared):
        return hmac.compare_digest(_symmetric(key, content).encode(), signature.encode(errors="replace"))
    version, _, text = signature.partition(",")
    if version != "v1a":
        return False
    try:
        key.verify(binascii.a2b_base64(text, strict_mode=True), content)
    except (ValueError, InvalidSignature):
        return False
    return True


def _bytes(text: str, prefix: str) -> bytes:
    if not text.startswith(prefix):
        raise Misuse(f"a webhook key is a text that begins with {prefix} or whsec_")
    try:
        return binascii.a2b_base64(text.removeprefix(prefix), strict_mode=True)
    except ValueError:
        raise Misuse(f"what follows {prefix} is not standard base64 with padding") from None


def _public(raw: bytes) -> Ed25519PublicKey:
    if len(raw) != _HALF:
        raise Misuse(f"an Ed25519 public key has {_HALF} bytes, not {len(raw)}")
    return Ed25519PublicKey.from_public_bytes(raw)
