"""Tokens of `auth login`, kept for later calls in a file that only its owner can read; one per origin."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from trunkline.cli.dotenv import config_folder
from trunkline.cli.oauth import renew
from trunkline.cli.private_file import write_private
from trunkline.client.oauth import Token
from trunkline.clock import now_ms
from trunkline.config import LONGEST_S, Secret
from trunkline.errors import Misuse, Unauthenticated
from trunkline.net.http import HttpClient

NAME = "tokens.json"
# A token that runs out on the way is of no use.
_SKEW_MS = 30_000
_OTHERS = 0o077


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
            kept = made(await renew(http_client, _grant(kept), kept.refresh_token, secret), kept)
            self.keep(url, kept)
        return Secret(kept.access_token)

    def _read(self) -> dict[str, KeptToken]:
        try:
            if self.path.stat().st_mode & _OTHERS:
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
    return KeptToken(
        token.access_token,
        before.token_url,
        before.client_id,
        before.flow,
        now_ms() + int(min(lasts, LONGEST_S) * 1000) if lasts else 0,
        token.refresh_token or before.refresh_token,
        before.scopes,
    )


def _grant(kept: KeptToken) -> tuple[str, str, tuple[str, ...]]:
    return kept.token_url, kept.client_id, kept.scopes
