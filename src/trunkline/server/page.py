"""The page that a browser gets at the root: what is served here, without scripts and in one file."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape

from trunkline.http.exchange import Exchange, Headers
from trunkline.wire.card import Card

HTML = b"text/html; charset=utf-8"
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:42rem;margin:3rem auto;padding:0 1rem}"
    "h1,h2{line-height:1.2}dt{font-weight:600}dd{margin:0 0 .5rem}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#eee}a{color:#8cf}}"
)
_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()
HEADERS: Headers = (
    (
        b"content-security-policy",
        f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'".encode(),
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
    (b"vary", b"Accept"),
)


def wants_page(exchange: Exchange) -> bool:
    """Whether a browser asks, and not a client of the agent."""
    return exchange.method in ("GET", "HEAD") and b"text/html" in exchange.headers.get(b"accept", b"")


def page(agents: Sequence[tuple[str, Card]]) -> bytes:
    """The page of these agents, each with the path that its site is at."""
    title = escape(agents[0][1].name if len(agents) == 1 else f"{len(agents)} agents")
    sections = "".join(_section(path, card) for path, card in agents)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><main>{sections}</main></body></html>"
    ).encode()


def _section(path: str, card: Card) -> str:
    skills = "".join(
        f"<dt>{escape(skill.name)}</dt><dd>{escape(skill.description)}</dd>" for skill in card.skills
    )
    # Relative, so that it leads to the right place below any prefix.
    link = f"{escape(path)}.well-known/agent-card.json"
    return (
        f"<h1>{escape(card.name)}</h1><p>{escape(card.description)}</p>"
        f'<p>An A2A agent: <a href="{link}">its card</a></p><h2>Skills</h2><dl>{skills}</dl>'
    )
