"""OAuth as a command line does it: device authorization (RFC 8628), client credentials and renewal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from trunkline.config import Secret
from trunkline.errors import Misuse, Unauthenticated, Unreadable
from trunkline.net.egress import shown, target
from trunkline.net.http import HttpClient, HttpRequest
from trunkline.wire.peer_card import PeerCard

DEVICE, CLIENT = "device", "client"
_LIMIT = 1 << 20
_IDLE_S = 30.0
_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
# RFC 8628: unless told, ask every five seconds; when it is too often, five seconds more.
_INTERVAL_S = 5.0
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}

T = TypeVar("T")


class Flow(Struct, frozen=True):
    """What a card says of one flow."""

    kind: str
    token_url: str
    device_url: str = ""
    scopes: tuple[str, ...] = ()


class Grant(Struct, frozen=True):
    """A token as an authorization server gives it."""

    access_token: str
    expires_in: float = 0
    refresh_token: str = ""
    token_type: str = "Bearer"

    def __repr__(self) -> str:
        return "Grant(***)"


class Device(Struct, frozen=True):
    """Where a person goes with which code."""

    device_code: str
    user_code: str
    verification_uri: str
    expires_in: float
    interval: float = _INTERVAL_S
    verification_uri_complete: str = ""

    def __repr__(self) -> str:
        return "Device(***)"


def flows_of(card: PeerCard) -> list[Flow]:
    """The flows that a card declares and a command line can do, device code first."""
    found: list[Flow] = []
    for scheme in _object(card.document.get("securitySchemes")).values():
        inner = _object(scheme)
        inner = _object(inner.get("oauth2SecurityScheme")) or inner
        found.extend(_declared(_object(inner.get("flows"))))
    return sorted(found, key=lambda flow: flow.kind != DEVICE)


def _object(value: object) -> dict[str, Any]:
    """A card is a stranger's; what is no object there is taken for an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _declared(flows: dict[str, Any]) -> list[Flow]:
    found: list[Flow] = []
    for name, kind in (
        ("deviceCode", DEVICE),
        ("deviceAuthorization", DEVICE),
        ("clientCredentials", CLIENT),
    ):
        told = _object(flows.get(name))
        token_url, device_url = told.get("tokenUrl", ""), told.get("deviceAuthorizationUrl", "")
        if token_url and (device_url or kind == CLIENT):
            found.append(Flow(kind, str(token_url), str(device_url), tuple(_object(told.get("scopes")))))
    return found


async def ask_device(
    http_client: HttpClient,
    flow: Flow,
    client_id: str,
    scopes: tuple[str, ...],
    show: Callable[[Device], None],
) -> Grant:
    """Have a person approve, and wait until that is done.

    Raises:
        Unauthenticated: it was refused, or took too long.
    """
    status, answer = await _post(
        http_client, flow.device_url, {"client_id": client_id, "scope": " ".join(scopes)}
    )
    if status != 200:
        raise Unauthenticated(f"no code was given: {_said(answer, status)}")
    device = _read(answer, Device, flow.device_url)
    show(device)
    loop = asyncio.get_running_loop()
    interval, until = max(device.interval, 0.05), loop.time() + device.expires_in
    fields = {"grant_type": _DEVICE_GRANT, "device_code": device.device_code, "client_id": client_id}
    while loop.time() + interval < until:
        await asyncio.sleep(interval)
        status, answer = await _post(http_client, flow.token_url, fields)
        if status == 200:
            return _read(answer, Grant, flow.token_url)
        if answer.get("error") == "slow_down":
            interval += _INTERVAL_S
        elif answer.get("error") != "authorization_pending":
            raise Unauthenticated(f"the login was not granted: {_said(answer, status)}")
    raise Unauthenticated("the code has run out before anybody approved it; try again")


async def ask_client(
    http_client: HttpClient, token_url: str, client_id: str, secret: Secret | None, scopes: tuple[str, ...]
) -> Grant:
    """A token for the client itself.

    Raises:
        Misuse: there is no secret to show.
        Unauthenticated: it was refused.
    """
    if secret is None:
        raise Misuse("this flow needs a client's secret: set A2ACLI_CLIENT_SECRET")
    fields = {
        "grant_type": "client_credentials",
        "client_id": client_id,
        "client_secret": secret.reveal(),
        "scope": " ".join(scopes),
    }
    return await _granted(http_client, token_url, fields)


async def renew(
    http_client: HttpClient, kept: tuple[str, str, tuple[str, ...]], refresh_token: str, secret: Secret | None
) -> Grant:
    """A new token in place of one that has run out; see `ask_client`."""
    token_url, client_id, scopes = kept
    if not refresh_token:
        return await ask_client(http_client, token_url, client_id, secret, scopes)
    fields = {"grant_type": "refresh_token", "refresh_token": refresh_token, "client_id": client_id}
    return await _granted(http_client, token_url, fields)


async def _granted(http_client: HttpClient, url: str, fields: dict[str, str]) -> Grant:
    status, answer = await _post(http_client, url, fields)
    if status != 200:
        raise Unauthenticated(f"no token was given: {_said(answer, status)}")
    return _read(answer, Grant, url)


async def _post(http_client: HttpClient, url: str, fields: dict[str, str]) -> tuple[int, dict[str, Any]]:
    # The same reader of URLs as the HTTP client's, so that what is judged is what is called.
    at = target(url)
    if at.scheme != "https" and at.host not in _LOOPBACK:
        raise Misuse(f"{shown(url)} is not https; no secret is sent there")
    body = urlencode({name: value for name, value in fields.items() if value}).encode()
    headers = (("content-type", "application/x-www-form-urlencoded"), ("accept", "application/json"))
    reply = await http_client.open(HttpRequest("POST", url, headers, body))
    try:
        raw = await reply.read(_LIMIT, idle_s=_IDLE_S)
    finally:
        await reply.close()
    try:
        return reply.status, msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.MsgspecError:
        raise Unreadable(f"{shown(url)} answered {reply.status} and no JSON object") from None


def _read(answer: dict[str, Any], kind: type[T], url: str) -> T:
    try:
        return msgspec.convert(answer, kind, strict=False)
    except msgspec.ValidationError as error:
        # It names the member and its type, not its value.
        raise Unreadable(f"{shown(url)}: {error}") from None


def _said(answer: dict[str, Any], status: int) -> str:
    text = answer.get("error_description") or answer.get("error") or f"status {status}"
    return str(text)
