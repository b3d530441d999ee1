"""`trunkline auth login` and `logout`."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from trunkline.cli.access import caller_for
from trunkline.cli.command import carry_out
from trunkline.cli.commands.client import Given
from trunkline.cli.oauth import DEVICE, Device, Flow, Grant, ask_client, ask_device, flows_of
from trunkline.cli.screen import document, field, line, remark
from trunkline.cli.session import Session
from trunkline.cli.tokens import Kept, TokenFile, made, origin_of
from trunkline.cli.wire_trace import Redaction, WireTrace
from trunkline.errors import Misuse, TimedOut
from trunkline.net.egress import shown
from trunkline.net.http import HttpClient
from trunkline.wire.spellings import timestamp


def login(given: Given) -> None:
    """Get a token and keep it."""
    carry_out(given, _login, alone=True, kept=False)


def logout(given: Given) -> None:
    """Forget a token."""
    carry_out(given, _logout, alone=True, kept=False)


async def _login(session: Session) -> None:
    choices = session.choices
    card = await session.card()
    flow = _chosen(flows_of(card), choices.text("flow"))
    client_id = choices.text("client-id")
    if not client_id:
        raise Misuse("--client-id says who logs in, as the authorization server knows it")
    scopes = choices.items("scope") or flow.scopes
    carrier: HttpClient = caller_for(session.reference, choices)
    if choices.flag("debug"):
        secret = choices.secret("client-secret")
        carrier = WireTrace(carrier, Redaction([secret.reveal()] if secret else []))
    try:
        async with asyncio.timeout(choices.seconds("timeout")):
            grant = await _granted(session, carrier, flow, scopes)
    except TimeoutError:
        raise TimedOut("nobody approved the login in time", reason="total") from None
    finally:
        await carrier.close()
    url = session.reference.url
    kept = made(grant, Kept("", flow.token_url, client_id, flow.kind, scopes=scopes))
    tokens = TokenFile()
    tokens.keep(url, kept)
    shown = {"Agent": origin_of(url), "Flow": flow.kind, "Kept": str(tokens.path)}
    if kept.expires_ms:
        shown["Expires"] = timestamp(kept.expires_ms)
    _show(session, shown)


async def _granted(session: Session, carrier: HttpClient, flow: Flow, scopes: tuple[str, ...]) -> Grant:
    client_id, secret = session.choices.text("client-id"), session.choices.secret("client-secret")
    if flow.kind == DEVICE:
        return await ask_device(carrier, flow, client_id, scopes, _invite)
    # The card chose who sees the secret, so it is said who that is.
    remark("Asking", f"{shown(flow.token_url)} for a token")
    return await ask_client(carrier, flow.token_url, client_id, secret, scopes)


def _chosen(flows: list[Flow], told: str) -> Flow:
    fitting = [flow for flow in flows if told in {"", flow.kind}]
    if not fitting:
        what = f"the {told} flow" if told else "an OAuth flow that a command line can do"
        raise Misuse(f"the card does not declare {what}; set A2ACLI_BEARER or A2ACLI_API_KEY instead")
    return fitting[0]


def _invite(device: Device) -> None:
    remark("Open", device.verification_uri_complete or device.verification_uri)
    print(f"Code: {line(device.user_code)}", file=sys.stderr, flush=True)


async def _logout(session: Session) -> None:
    url = session.reference.url
    there = TokenFile().drop(url)
    _show(session, {"Agent": origin_of(url), "Forgotten": "yes" if there else "there was none"})


def _show(session: Session, fields: dict[str, str]) -> None:
    if session.choices.as_json:
        document(msgspec.json.encode({name.lower(): value for name, value in fields.items()}), compact=False)
        return
    for label, value in fields.items():
        field(label, value)
