"""The pages of a browser: what is served here, and where a person shows a key and ends the session it begins.

Without scripts, and each in one file. A key that is shown here is judged and counted as any other key; what
comes of it is a cookie.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from html import escape
from urllib.parse import parse_qsl

from msgspec import Struct

from trunkline import errors
from trunkline.auth.browser_sessions import LASTS_S, BrowserSessions, cookie_name
from trunkline.auth.principal import Principal
from trunkline.http.exchange import Exchange, Headers, read_query
from trunkline.server.admission import Admission
from trunkline.telemetry.traces import TraceSeen
from trunkline.wire.card import Card
from trunkline.wire.codes import code_of

HTML = b"text/html; charset=utf-8"
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:42rem;margin:3rem auto;padding:0 1rem}"
    "h1,h2{line-height:1.2}dt{font-weight:600}dd{margin:0 0 .5rem}form{max-width:28rem}"
    "input,button{font:inherit;padding:.4rem;box-sizing:border-box}input{width:100%;margin:.3rem 0 1rem}"
    ".wrong{color:#b00020}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#eee}a{color:#8cf}.wrong{color:#f88}}"
)
_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; frame-ancestors 'none'; form-action "
)
HEADERS: Headers = (
    (b"content-security-policy", f"{_POLICY}'none'".encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
    (b"vary", b"Accept"),
)
_FORM_HEADERS: Headers = (
    (b"content-security-policy", f"{_POLICY}'self'".encode()),
    (b"x-content-type-options", b"nosniff"),
    # With a stricter one browsers would not say of which origin the form is.
    (b"referrer-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
SIGN_IN, SIGN_OUT = "/ui/sign-in", "/ui/sign-out"
_FORM = b"application/x-www-form-urlencoded"
_BODY_LIMIT, _FIELDS = 16 << 10, 8
_LONGEST_PATH = 2000


def wants_page(exchange: Exchange) -> bool:
    """Whether a browser asks, and not a client of the agent."""
    return exchange.method in ("GET", "HEAD") and b"text/html" in exchange.headers.get(b"accept", b"")


def page(agents: Sequence[tuple[str, Card]]) -> bytes:
    """The page of these agents, each with the path that its site is at."""
    title = escape(agents[0][1].name if len(agents) == 1 else f"{len(agents)} agents")
    sections = "".join(_section(path, card) for path, card in agents)
    return _document(title, sections)


def _document(title: str, body: str) -> bytes:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><main>{body}</main></body></html>"
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


class SignInPages(Struct, frozen=True):
    """Answers at the two paths of signing in and out."""

    _admission: Admission

    async def sign_in(self, exchange: Exchange, seen: TraceSeen) -> None:
        """Show the form, or begin a session with the key that was sent by it."""
        if exchange.method in ("GET", "HEAD"):
            self._admission.check(exchange)
            following = _local(read_query(exchange.query_string).get("next", ""))
            page = self._form(exchange.base, following, self._admission.identity.signed_in(exchange.headers))
            await exchange.respond(200, page, HTML, _FORM_HEADERS)
            return
        sessions = self._check_post(exchange)
        sent = await self._sent(exchange)
        following = _local(sent.get("next", ""))
        key = sent.get("key", "").strip().encode()
        # From here on the request is one with this key, and nothing else says who sends it.
        said = (b"authorization", b"cookie", b"x-api-key")
        kept = {name: value for name, value in exchange.headers.items() if name not in said}
        exchange.headers = {**kept, b"x-api-key": key} if key else kept
        try:
            self._admission.enter(exchange, seen)
            value = sessions.begin(key)
        except errors.Refused as refused:
            write = partial(_refused_page, exchange.base, following)
            await self._admission.refusals.answer_by(write, exchange, seen, refused, more=_FORM_HEADERS)
            return
        cookie = _cookie(exchange, value, LASTS_S)
        await exchange.respond(303, b"", HTML, [_to(exchange, following), cookie, *_FORM_HEADERS])

    async def sign_out(self, exchange: Exchange, seen: TraceSeen) -> None:
        """End the session, here and at every process that shares the store."""
        del seen
        sessions = self._check_post(exchange)
        await self._sent(exchange)
        await sessions.end(exchange.headers)
        cookie = _cookie(exchange, "", 0)
        await exchange.respond(303, b"", HTML, [_to(exchange, SIGN_IN), cookie, *_FORM_HEADERS])

    def _check_post(self, exchange: Exchange) -> BrowserSessions:
        if exchange.method != "POST":
            raise errors.RouteNotFound("this path takes a form by POST", allow="POST")
        self._admission.check_own(exchange)
        if self._admission.identity.sessions is None:
            raise errors.UnsupportedOperation("nobody can sign in here")
        return self._admission.identity.sessions

    async def _sent(self, exchange: Exchange) -> dict[str, str]:
        body = await exchange.body(_BODY_LIMIT, self._admission.body_limits[1])
        media_type = exchange.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if body and media_type != _FORM:
            raise errors.ContentTypeNotSupported(f"send a form, as {_FORM.decode()}", field="Content-Type")
        try:
            sent = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS)
        except ValueError:
            raise errors.InvalidParams("this is not what the form of this page sends") from None
        return dict(sent)

    def _form(self, base: str, following: str, who: Principal | None) -> bytes:
        if who is not None:
            name = f"{escape(who.name)} of {escape(who.tenant)}"
            return _page(
                "Signed in",
                f"<p>You are signed in as {name}.</p>"
                f'<form method="post" action="{escape(base + SIGN_OUT)}"><button>Sign out</button></form>',
            )
        if not self._admission.identity.enforced:
            return _page("No key is needed", "<p>Everybody who reaches this server may use it.</p>")
        return _page("Sign in", _key_form(base, following))


def _cookie(exchange: Exchange, value: str, lasts_s: int) -> tuple[bytes, bytes]:
    # The browser's own word: a proxy may have taken the encryption off.
    secure = "; Secure" if exchange.headers.get(b"origin", b"").startswith(b"https:") else ""
    where = exchange.base or "/"
    name = cookie_name(exchange.headers).decode()
    text = f"{name}={value}; Path={where}; Max-Age={lasts_s}; HttpOnly; SameSite=Lax{secure}"
    return b"set-cookie", text.encode()


def _refused_page(base: str, following: str, refused: errors.Refused) -> tuple[int, bytes, bytes]:
    """The form once more, with what was wrong: its status, the page and its media type."""
    wrong = f'<p class="wrong" role="alert">{escape(refused.message)}</p>'
    return code_of(refused).http, _page("Sign in", wrong + _key_form(base, following)), HTML


def _key_form(base: str, following: str) -> str:
    return (
        f'<form method="post" action="{escape(base + SIGN_IN)}">'
        '<label>Key <input type="password" name="key" required autofocus '
        'autocomplete="current-password"></label>'
        f'<input type="hidden" name="next" value="{escape(following)}"><button>Sign in</button></form>'
    )


def _page(title: str, inner: str) -> bytes:
    return _document(title, f"<h1>{title}</h1>{inner}")


def _local(path: str) -> str:
    """A path of this server to go on with; anything else, such as another server, is the sign-in page."""
    is_path = path.startswith("/") and not path.startswith("//") and "\\" not in path
    return (
        path if is_path and path.isascii() and path.isprintable() and len(path) <= _LONGEST_PATH else SIGN_IN
    )


def _to(exchange: Exchange, path: str) -> tuple[bytes, bytes]:
    return b"location", (exchange.base + path).encode()
