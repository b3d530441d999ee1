from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Mapping

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from trunkline.errors import Misuse, Unauthenticated
from trunkline.net import webhook_signature as s

# The keys, ids and signatures that implementations of Standard Webhooks share in their own tests.
WHSEC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
WHSK = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
WHPK = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
PUBLISHED = [
    (
        WHSEC,
        WHSEC,
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    ),
    (
        "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
        "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
        "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
        1649367553,
        b'{"email":"test@example.com","username":"test_user"}',
        "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=",
    ),
    (
        WHSK,
        WHPK,
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
        "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==",
    ),
]
FOREIGN = "v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc="
NOW = 1_790_000_000
BODIES = [
    b'{"kind":"status-update","taskId":"t1","status":{"state":"completed"},"final":true}',
    b'{"task":{"id":"t1","contextId":"c1"}}',
    '{"text":"Grüße, 世界"}'.encode(),
    b"",
    bytes(range(256)),
]


def pair(number: int) -> tuple[Ed25519PrivateKey, s.CheckingKey]:
    secret = Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
    return secret, secret.public_key()


def shared(number: int) -> tuple[s.Shared, s.CheckingKey]:
    secret = s.Shared(bytes([number]) * 32)
    return secret, secret


OLD, NEW, STRANGE = pair(1), pair(2), pair(3)
SHARED, SHARED_NEW = shared(1), shared(2)


def headers(signature: str, webhook_id: str = "evt-1", timestamp: int | str = NOW) -> dict[str, str]:
    return {s.ID: webhook_id, s.TIMESTAMP: str(timestamp), s.SIGNATURE: signature}


def verdict(
    given: Mapping[str, str], body: bytes, *keys: s.CheckingKey, now: float = NOW, tolerance: float = 300
) -> str:
    """`ok` or the reason of the refusal."""
    try:
        s.verify(given, body, keys, now, tolerance)
    except Unauthenticated as error:
        return error.details["reason"]
    return "ok"


@pytest.mark.parametrize(("secret", "public", "webhook_id", "timestamp", "body", "signature"), PUBLISHED)
def test_published_vectors(
    secret: str, public: str, webhook_id: str, timestamp: int, body: bytes, signature: str
) -> None:
    key = s.checking_key(public)
    assert s.sign(s.signing_key(secret), webhook_id, timestamp, body) == signature
    good = headers(signature, webhook_id, timestamp)
    assert s.verify(good, body, [key], timestamp) == webhook_id
    several = headers(
        f"{FOREIGN} v2,{signature.partition(',')[2]} {signature} {FOREIGN}", webhook_id, timestamp
    )
    assert verdict(several, body, key, now=timestamp) == "ok"
    for name in good:
        assert verdict({k: v for k, v in good.items() if k != name}, body, key, now=timestamp) == "missing"
        assert verdict({**good, name: ""}, body, key, now=timestamp) == "missing"
    version = signature.partition(",")[0]
    for partial in (f"{version},", signature[:8], signature[:-1], FOREIGN, version, ",", f"{version} x"):
        assert verdict({**good, s.SIGNATURE: partial}, body, key, now=timestamp) == "signature"
    assert verdict({**good, s.TIMESTAMP: "hello"}, body, key, now=timestamp) == "malformed"


def test_the_published_key_pair_is_written_as_published() -> None:
    key = s.signing_key(WHSK)
    assert isinstance(key, Ed25519PrivateKey)
    assert s.secret_text(key) == WHSK
    seed_alone = "whsk_" + base64.b64encode(key.private_bytes_raw()).decode()
    assert s.sign(s.signing_key(seed_alone), "a", 1, b"") == s.sign(key, "a", 1, b"")


def cases() -> list[tuple[str, dict[str, str], bytes, tuple[s.CheckingKey, ...], float, str]]:
    """Every change that must or must not matter, for every scheme, body and id."""
    made: list[tuple[str, dict[str, str], bytes, tuple[s.CheckingKey, ...], float, str]] = []
    schemes = [("v1a", OLD, NEW), ("v1", SHARED, SHARED_NEW)]
    for (name, (secret, public), (fresh, fresh_public)), body, webhook_id in itertools.product(
        schemes, BODIES, ["evt-1", "0190a0c4-7b3e-7000-8000-000000000000:7:cfg"]
    ):
        one = s.sign(secret, webhook_id, NOW, body)
        two = s.sign(fresh, webhook_id, NOW, body)
        good = headers(one, webhook_id)
        strange = s.sign(STRANGE[0], webhook_id, NOW, body)

        def add(
            label: str,
            given: dict[str, str],
            sent: bytes,
            keys: tuple[s.CheckingKey, ...],
            now: float,
            expected: str,
            at: str = f"{name} {len(body)} {webhook_id[:5]}",
        ) -> None:
            made.append((f"{at} {label}", given, sent, keys, now, expected))

        add("as sent", good, body, (public,), NOW, "ok")
        for age, expected in [
            (300, "ok"), (301, "stale"), (-300, "ok"), (-301, "future"), (300.5, "stale"), (86400, "stale"),
        ]:  # fmt: skip
            add(f"age {age}", good, body, (public,), NOW + age, expected)
        add("altered body", good, body + b" ", (public,), NOW, "signature")
        add("cut body", good, body[:-1] or b"x", (public,), NOW, "signature")
        add("altered id", {**good, s.ID: "evt-2"}, body, (public,), NOW, "signature")
        add("altered time", {**good, s.TIMESTAMP: str(NOW + 1)}, body, (public,), NOW, "signature")
        add("wrong key", good, body, (fresh_public,), NOW, "signature")
        add("no key", good, body, (), NOW, "signature")
        add("rotated, both known", headers(two, webhook_id), body, (public, fresh_public), NOW, "ok")
        for known in (public, fresh_public):
            add("two signatures", headers(f"{one} {two}", webhook_id), body, (known,), NOW, "ok")
            add("two, other order", headers(f"{two}  {one}", webhook_id), body, (known,), NOW, "ok")
        add("beside a stranger's", headers(f"{strange} {one}", webhook_id), body, (public,), NOW, "ok")
        add("a stranger's", headers(strange, webhook_id), body, (public, fresh_public), NOW, "signature")
        for version in ("v2", "v1b", "v0", "V1", "v1a" if name == "v1" else "v1"):
            other = headers(f"{version},{one.partition(',')[2]}", webhook_id)
            add(f"called {version}", other, body, (public,), NOW, "signature")
        add("upper case", {k.upper(): v for k, v in good.items()}, body, (public,), NOW, "ok")
        for time in ("-1", "+5", "1e9", f"{NOW}.0", "１７", "9" * 13):
            add(f"time {time}", {**good, s.TIMESTAMP: time}, body, (public,), NOW, "malformed")
        for bad in ("a.b", "a b", "é", "x" * 257):
            add(f"id {bad[:4]}", {**good, s.ID: bad}, body, (public,), NOW, "malformed")
        for odd in ("v1a,é", "v1,é", "\udc80", f"{name},{'A' * 86}==", f"{name},not base64"):
            add("odd text", {**good, s.SIGNATURE: odd}, body, (public,), NOW, "signature")
    return made


def test_generated_cases() -> None:
    made = cases()
    assert len(made) >= 300
    wrong = [
        (label, expected, got)
        for label, given, body, keys, now, expected in made
        if (got := verdict(given, body, *keys, now=now)) != expected
    ]
    assert wrong == []


def test_reordered_json_is_another_body() -> None:
    sent = {"kind": "status-update", "taskId": "t1", "final": True}
    body = json.dumps(sent).encode()
    signature = s.sign(OLD[0], "evt-1", NOW, body)
    assert verdict(headers(signature), body, OLD[1]) == "ok"
    for names in itertools.permutations(sent):
        moved = json.dumps({name: sent[name] for name in names}).encode()
        assert (verdict(headers(signature), moved, OLD[1]) == "ok") is (moved == body)
    assert verdict(headers(signature), json.dumps(sent, indent=1).encode(), OLD[1]) == "signature"


def test_a_tolerance_of_ones_own() -> None:
    given = headers(s.sign(OLD[0], "evt-1", NOW, b""))
    assert verdict(given, b"", OLD[1], now=NOW + 11, tolerance=10) == "stale"
    assert verdict(given, b"", OLD[1], now=NOW - 11, tolerance=10) == "future"


def test_signatures_are_few() -> None:
    one = s.sign(OLD[0], "evt-1", NOW, b"")
    assert verdict(headers(" ".join([FOREIGN] * 15 + [one])), b"", OLD[1]) == "ok"
    assert verdict(headers(" ".join([FOREIGN] * 16 + [one])), b"", OLD[1]) == "malformed"


@pytest.mark.parametrize("bad", ["", "a.b", "a b", "a\r\nb", "é", "x" * 257])
def test_an_id_that_cannot_be_sent_is_not_signed(bad: str) -> None:
    with pytest.raises(Misuse, match="webhook id"):
        s.sign(OLD[0], bad, NOW, b"")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "begins with whsk_"),
        ("", "begins with whsk_"),
        (WHPK, "begins with whsk_"),
        ("whsec_", "24 to 64 bytes"),
        ("whsec_bm90LXZhbGlkCg==", "24 to 64 bytes"),
        ("whsec_" + "A" * 88, "24 to 64 bytes"),
        ("whsec_%%%", "base64"),
        (WHSK[:-2], "base64"),
        ("whsk_AAAA", "32 bytes, or 64"),
        (WHSK[:60] + "AAAA" + WHSK[64:], "do not belong together"),
    ],
)
def test_bad_signing_keys(text: str, said: str) -> None:
    with pytest.raises(Misuse, match=said) as caught:
        s.signing_key(text)
    assert len(text) < 10 or text[6:] not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [(WHSK, "sender's own"), ("whpk_AAAA", "32 bytes, not 3"), ("whpk_*", "base64"), ("pk", "whpk_ or")],
)
def test_bad_checking_keys(text: str, said: str) -> None:
    with pytest.raises(Misuse, match=said):
        s.checking_key(text)


def jwk(number: int, **other: str) -> dict[str, str]:
    raw = pair(number)[0].public_key().public_bytes_raw()
    x = base64.urlsafe_b64encode(raw).decode().rstrip("=")
    return {"kty": "OKP", "crv": "Ed25519", "x": x, "kid": str(number), "alg": "EdDSA", **other}


def test_keys_of_a_jwks_document() -> None:
    rsa = {"kty": "RSA", "n": "AQAB", "e": "AQAB", "use": "sig"}
    document = {"keys": [rsa, jwk(1, use="sig"), jwk(2), jwk(3, use="enc")]}
    for form in (document, json.dumps(document), json.dumps(document).encode()):
        keys = s.jwks_keys(form)
        assert len(keys) == 2
        for (secret, _), expected in [(OLD, "ok"), (NEW, "ok"), (STRANGE, "signature")]:
            assert verdict(headers(s.sign(secret, "evt-1", NOW, b"x")), b"x", *keys) == expected


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (b"{", "no JWKS"),
        (b"[]", "no JWKS"),
        (b"{}", "no JWKS"),
        ({"keys": [1]}, "no JWKS"),
        ({"keys": []}, "no Ed25519 key"),
        ({"keys": [jwk(1, x="AAAA")]}, "32 bytes, not 3"),
        ({"keys": [jwk(1, x="é")]}, "no JWKS"),
    ],
)
def test_bad_jwks_documents(document: bytes | dict[str, object], said: str) -> None:
    with pytest.raises(Misuse, match=said):
        s.jwks_keys(document)


def test_a_shared_secret_does_not_print() -> None:
    assert "planted" not in repr(s.Shared(b"planted-planted-planted-planted"))
