"""OAuth as a command line does it: device authorization (RFC 8628), client credentials and renewal.

Tokens are kept for later calls, one per origin, in a file that only its owner can read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trunkline.cli.configuration import OTHERS, config_folder, write_private
from trunkline.client.oauth import Token, post_form, read_token, refusal_of, request_token
from trunkline.clock import now_ms
from trunkline.config import LONGEST_S, Secret
from trunkline.errors import Misuse, Unauthenticated, Unreadable
from trunkline.net.egress import shown
from trunkline.net.http import HttpClient
from trunkline.wire.error_reader import as_object
from trunkline.wire.peer_card import PeerCard

DEVICE, CLIENT = "device", "client"
_KINDS = {"deviceCode": DEVICE, "deviceAuthorization": DEVICE, "clientCredentials": CLIENT}
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
    for scheme in as_object(card.document.get("securitySchemes")).values():
        inner = as_object(as_object(scheme).get("oauth2SecurityScheme")) or as_object(scheme)
        flows = as_object(inner.get("flows"))
        for name, kind in _KINDS.items():
            flow = as_object(flows.get(name))
            token_url, device_url = flow.get("tokenUrl", ""), flow.get("deviceAuthorizationUrl", "")
            if token_url and (device_url or kind == CLIENT):
                scopes = tuple(as_object(flow.get("scopes")))
                found.append(OAuthFlow(kind, str(token_url), str(device_url), scopes))
    return sorted(found, key=lambda flow: flow.kind != DEVICE)


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


NAME = "tokens.json"
# A token that runs out on the way is of no use.
_SKEW_MS = 30_000


class KeptToken(Struct, frozen=True, omit_defaults=True):
    """One token and what it takes to renew it."""

    access_token: str
    token_url: str
    client_id: str
    flow: str
    expires_ms: int = 0
    refresh_token: str = ""
    scopes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "KeptToken(***)"


class TokenFile:
    """The file; read when it is asked, written whole."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = config_folder() / NAME if path is None else path

    def has(self, url: str) -> bool:
        """Whether there is a token for the agent at this URL."""
        return origin_of(url) in self._read()

    def origins(self) -> tuple[str, ...]:
        """The origins whose tokens are kept."""
        return tuple(self._read())

    def keep(self, url: str, kept: KeptToken) -> None:
        """Keep a token for the agent at this URL, in place of the one before."""
        self._write({**self._read(), origin_of(url): kept})

    def drop(self, url: str) -> bool:
        """Forget it; whether there was one."""
        known = self._read()
        found = known.pop(origin_of(url), None)
        if found is not None:
            self._write(known)
        return found is not None

    async def fresh(self, url: str, http_client: HttpClient, secret: Secret | None = None) -> Secret:
        """The token for the agent at this URL, renewed if it has run out.

        Raises:
            Unauthenticated: it has, and cannot be renewed.
        """
        kept = self._read()[origin_of(url)]
        if kept.expires_ms and kept.expires_ms - _SKEW_MS < now_ms():
            if not kept.refresh_token and not (kept.flow == "client" and secret is not None):
                raise Unauthenticated(f"the token for {origin_of(url)} has run out; log in again")
            kept = made(await _renewed(http_client, kept, secret), kept)
            self.keep(url, kept)
        return Secret(kept.access_token)

    def _read(self) -> dict[str, KeptToken]:
        try:
            if self.path.stat().st_mode & OTHERS:
                raise Misuse(
                    f"{self.path} can be read by others: chmod 600 it, or remove it and log in again"
                )
            return msgspec.json.decode(self.path.read_bytes(), type=dict[str, KeptToken])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            raise Misuse(f"{self.path} cannot be read: {error}; remove it and log in again") from None

    def _write(self, known: dict[str, KeptToken]) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        body = msgspec.json.format(msgspec.json.encode(known))
        write_private(self.path, lambda out: out.write(body))


def origin_of(url: str) -> str:
    """Scheme, host and port: what a token is good for."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}"


def made(token: Token, before: KeptToken) -> KeptToken:
    """The record that is kept of a token from an authorization server."""
    lasts = token.seconds(0)
    return replace(
        before,
        access_token=token.access_token,
        expires_ms=now_ms() + int(min(lasts, LONGEST_S) * 1000) if lasts else 0,
        refresh_token=token.refresh_token or before.refresh_token,
    )


async def _renewed(http_client: HttpClient, kept: KeptToken, secret: Secret | None) -> Token:
    if not kept.refresh_token:
        return await ask_client(http_client, kept.token_url, kept.client_id, secret, kept.scopes)
    fields = {"grant_type": "refresh_token", "refresh_token": kept.refresh_token, "client_id": kept.client_id}
    return await request_token(http_client, kept.token_url, fields)
