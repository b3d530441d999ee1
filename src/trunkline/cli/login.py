"""`trunkline auth login` and `logout`."""

from __future__ import annotations

import sys
from shlex import quote

from msgspec.structs import replace

from trunkline.cli.console import one_line, print_field, print_json, print_notice
from trunkline.cli.oauth import (
    CLIENT,
    DEVICE,
    DeviceCode,
    KeptToken,
    OAuthFlow,
    TokenFile,
    ask_client,
    ask_device,
    flows_of,
    made,
    origin_of,
)
from trunkline.cli.options import SHOWN
from trunkline.cli.parsing import Commands
from trunkline.cli.session import Session
from trunkline.cli.wire_trace import Redaction
from trunkline.client.oauth import Token
from trunkline.errors import Misuse
from trunkline.net.egress import shown, target
from trunkline.net.http import HttpClient
from trunkline.wire.spellings import timestamp

commands = Commands()


@commands.calling(
    "login",
    "flow", "client-id", "client-secret", "token-url", "scope", "agent-card", "insecure", "timeout", *SHOWN,
    use_login=False,
)  # fmt: skip
async def login(session: Session) -> None:
    """Get an OAuth token for an agent and store it for later calls."""
    config = session.config
    card = await session.card()
    flow = _chosen(flows_of(card), config.text("flow"))
    if token_url := config.text("token-url"):
        flow = replace(flow, token_url=token_url)
    client_id = config.text("client-id")
    if not client_id:
        raise Misuse("--client-id says who logs in, as the authorization server knows it")
    scopes = config.items("scope") or flow.scopes
    url, secret = session.target.url, config.secret("client-secret")
    if flow.kind == CLIENT and not token_url and secret is not None:
        _check_token_url(url, flow.token_url)
    http_client = session.http_client(Redaction([secret.reveal()] if secret else []))
    try:
        async with session.time_limit("nobody approved the login in time"):
            token = await _granted(session, http_client, flow, scopes)
    finally:
        await http_client.close()
    kept = made(token, KeptToken("", flow.token_url, client_id, flow.kind, scopes=scopes))
    tokens = TokenFile()
    tokens.keep(url, kept)
    shown = {"Agent": origin_of(url), "Flow": flow.kind, "Kept": str(tokens.path)}
    if kept.expires_ms:
        shown["Expires"] = timestamp(kept.expires_ms)
    _show(session, shown)


async def _granted(
    session: Session, http_client: HttpClient, flow: OAuthFlow, scopes: tuple[str, ...]
) -> Token:
    client_id, secret = session.config.text("client-id"), session.config.secret("client-secret")
    if flow.kind == DEVICE:
        return await ask_device(http_client, flow, client_id, scopes, _invite)
    # The card chose who sees the secret, so it is said who that is.
    print_notice("Asking", f"{shown(flow.token_url)} for a token")
    return await ask_client(http_client, flow.token_url, client_id, secret, scopes)


def _check_token_url(agent: str, token_url: str) -> None:
    """Let the secret go to the agent's own origin; anywhere else only if a person says so.

    Raises:
        Misuse: nobody is there to say it, or said no.
    """
    if target(token_url).origin == target(agent).origin:
        return
    told = f"the card of {shown(agent)} has the client secret sent to {shown(token_url)}"
    if _is_terminal():
        print_notice("Warning", told)
        print("Send it there? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return
    raise Misuse(
        f"{told}, which is another origin; if that is right, say --token-url {quote(shown(token_url))}"
    )


def _is_terminal() -> bool:
    """Whether somebody is there to be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _chosen(flows: list[OAuthFlow], told: str) -> OAuthFlow:
    fitting = [flow for flow in flows if told in {"", flow.kind}]
    if not fitting:
        what = f"the {told} flow" if told else "an OAuth flow that a command line can do"
        raise Misuse(f"the card does not declare {what}; set A2ACLI_BEARER or A2ACLI_API_KEY instead")
    return fitting[0]


def _invite(device: DeviceCode) -> None:
    print_notice("Open", device.verification_uri_complete or device.verification_uri)
    print(f"Code: {one_line(device.user_code)}", file=sys.stderr, flush=True)


@commands.calling("logout", "agent-card", *SHOWN, use_login=False)
async def logout(session: Session) -> None:
    """Delete the stored token of an agent."""
    url = session.target.url
    there = TokenFile().drop(url)
    _show(session, {"Agent": origin_of(url), "Forgotten": "yes" if there else "there was none"})


def _show(session: Session, fields: dict[str, str]) -> None:
    if session.config.as_json:
        print_json({name.lower(): value for name, value in fields.items()})
        return
    for label, value in fields.items():
        print_field(label, value)
