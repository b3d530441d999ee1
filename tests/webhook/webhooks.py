"""Webhooks as senders make them, and a clock that stands still until it is moved."""

from __future__ import annotations

import base64
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from trunkline.net import webhook_signature

NOW_S = 1_790_000_000
WHSEC = "whsec_" + base64.b64encode(b"s" * 32).decode()
OLD = Ed25519PrivateKey.from_private_bytes(b"o" * 32)
WHPK = "whpk_" + base64.b64encode(OLD.public_key().public_bytes_raw()).decode()
NEW = Ed25519PrivateKey.from_private_bytes(b"n" * 32)


class Clock:
    """Milliseconds, as the receiver asks for them."""

    def __init__(self) -> None:
        self.now_s: float = NOW_S

    def __call__(self) -> int:
        return int(self.now_s * 1000)


def body(task_id: str = "t1", state: str = "completed", **more: Any) -> bytes:
    status = {"state": state, "timestamp": "2026-04-15T20:00:00Z"}
    artifact = {"artifactId": "a1", "parts": [{"kind": "text", "text": "result"}]}
    said = {"kind": "status-update", "taskId": task_id, "status": status, "final": True, "artifact": artifact}
    return json.dumps({**said, **more}).encode()


def signed(
    content: bytes, *keys: webhook_signature.SigningKey, webhook_id: str = "evt-1", at: int = NOW_S
) -> dict[str, str]:
    signatures = [webhook_signature.sign(key, webhook_id, at, content) for key in keys]
    return {
        webhook_signature.ID: webhook_id,
        webhook_signature.TIMESTAMP: str(at),
        webhook_signature.SIGNATURE: " ".join(signatures),
    }


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def jwks(*keys: Ed25519PrivateKey) -> dict[str, Any]:
    return {"keys": [_jwk(key) for key in keys]}


def _jwk(key: Ed25519PrivateKey) -> dict[str, str]:
    x = base64.urlsafe_b64encode(key.public_key().public_bytes_raw()).decode().rstrip("=")
    return {"kty": "OKP", "crv": "Ed25519", "x": x, "use": "sig", "alg": "EdDSA"}
