"""OAuth as a command line does it: device authorization (RFC 8628), client credentials and renewal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import Struct

from trunkline.client.oauth import Token, post_form, read_token, refusal_of, request_token
from trunkline.config import Secret
from trunkline.errors import Misuse, Unauthenticated, Unreadable
from trunkline.net.egress import shown
from trunkline.net.http import HttpClient
from trunkline.wire.peer_card import PeerCard

DEVICE, CLIENT = "device", "client"
_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
# RFC 8628: unless told, ask every five seconds; when it is too often, five seconds more.
_INTERVAL_S = 5.0


class OAuthFlow(Struct, frozen=True):
    """An OAuth flow that a card declares, and where it is gone through."""

    kind: str
    token_url: str
    device_url: str = ""
    scopes: tuple[str, ...] = ()


class DeviceCode(Struct, frozen=True):
    """Where a person goes to approve a login, and with which code."""

    device_code: str
    user_code: str
    verification_uri: str
    expires_in: float
    interval: float = _INTERVAL_S
    verification_uri_complete: str = ""

    def __repr__(self) -> str:
        return "DeviceCode(***)"


def flows_of(card: PeerCard) -> list[OAuthFlow]:
    """The flows that a card declares and a command line can do, device code first."""
    found: list[OAuthFlow] = []
    for scheme in _object(card.document.get("securitySchemes")).values():
        inner = _object(scheme)
        inner = _object(inner.get("oauth2SecurityScheme")) or inner
        found.extend(_declared(_object(inner.get("flows"))))
    return sorted(found, key=lambda flow: flow.kind != DEVICE)


def _object(value: object) -> dict[str, Any]:
    """A card is a stranger's; what is no object there is taken for an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _declared(flows: dict[str, Any]) -> list[OAuthFlow]:
    found: list[OAuthFlow] = []
    for name, kind in (
        ("deviceCode", DEVICE),
        ("deviceAuthorization", DEVICE),
        ("clientCredentials", CLIENT),
    ):
        told = _object(flows.get(name))
        token_url, device_url = told.get("tokenUrl", ""), told.get("deviceAuthorizationUrl", "")
        if token_url and (device_url or kind == CLIENT):
            found.append(OAuthFlow(kind, str(token_url), str(device_url), tuple(_object(told.get("scopes")))))
    return found


async def ask_device(
    http_client: HttpClient,
    flow: OAuthFlow,
    client_id: str,
    scopes: tuple[str, ...],
    show: Callable[[DeviceCode], None],
) -> Token:
    """Have a person approve, and wait until that is done.

    Raises:
        Unauthenticated: it was refused, or took too long.
    """
    status, answer = await post_form(
        http_client, flow.device_url, {"client_id": client_id, "scope": " ".join(scopes)}
    )
    if not answer:
        raise Unreadable(f"{shown(flow.device_url)} answered {status} and no JSON object")
    if status != 200:
        raise Unauthenticated(f"no code was given (HTTP {status}){refusal_of(answer)}")
    try:
        device = msgspec.convert(answer, DeviceCode, strict=False)
    except msgspec.ValidationError as error:
        # It names the member and its type, not its value.
        raise Unreadable(f"{shown(flow.device_url)}: {error}") from None
    show(device)
    loop = asyncio.get_running_loop()
    interval, until = max(device.interval, 0.05), loop.time() + device.expires_in
    fields = {"grant_type": _DEVICE_GRANT, "device_code": device.device_code, "client_id": client_id}
    while loop.time() + interval < until:
        await asyncio.sleep(interval)
        status, answer = await post_form(http_client, flow.token_url, fields)
        if status == 200:
            return read_token(flow.token_url, status, answer)
        if answer.get("error") == "slow_down":
            interval += _INTERVAL_S
        elif answer.get("error") != "authorization_pending":
            raise Unauthenticated(f"the login was not granted (HTTP {status}){refusal_of(answer)}")
    raise Unauthenticated("the code has run out before anybody approved it; try again")


async def ask_client(
    http_client: HttpClient, token_url: str, client_id: str, secret: Secret | None, scopes: tuple[str, ...]
) -> Token:
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
    return await request_token(http_client, token_url, fields)


async def renew(
    http_client: HttpClient, kept: tuple[str, str, tuple[str, ...]], refresh_token: str, secret: Secret | None
) -> Token:
    """A new token in place of one that has run out; see `ask_client`."""
    token_url, client_id, scopes = kept
    if not refresh_token:
        return await ask_client(http_client, token_url, client_id, secret, scopes)
    fields = {"grant_type": "refresh_token", "refresh_token": refresh_token, "client_id": client_id}
    return await request_token(http_client, token_url, fields)
