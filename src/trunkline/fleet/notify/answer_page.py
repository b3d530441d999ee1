"""The page behind a link: it shows a question and takes its answer.

Only a POST answers, so that whatever looks at links by itself, as mail programs do, answers nothing.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Container
from hashlib import sha256
from html import escape
from urllib.parse import parse_qs

import msgspec
from msgspec import UNSET, Struct

from trunkline.auth.principal import Principal
from trunkline.auth.principal import Scope as AuthScope
from trunkline.errors import InvalidParams, ParseError, Refused, TaskNotFound, UnsupportedOperation
from trunkline.fleet.call import ApiCall
from trunkline.fleet.inbox import AnswerForm, Inbox, InboxItem
from trunkline.fleet.notify.links import PREFIX, AnswerLinks, AnswerRight
from trunkline.http.asgi import Receive, Scope, Send
from trunkline.http.mounts import PUBLIC, App, Mount, Route
from trunkline.wire.codes import write_problem
from trunkline.wire.decode import DECODE_ERRORS, check_structure

_BODY_LIMIT = 256 << 10
_FIELDS = 10
_STYLE = (
    "body{font:1rem/1.5 system-ui,sans-serif;max-width:42rem;margin:2rem auto;padding:0 1rem}"
    "blockquote{white-space:pre-wrap;margin:1rem 0;padding:.5rem 1rem;border-left:.3rem solid #999}"
    "textarea,input[type=text]{width:100%;font:inherit;box-sizing:border-box}"
    "button{font:inherit;padding:.4rem 1rem;margin:.5rem .5rem 0 0}label{display:block;margin:.5rem 0}"
    ".wrong{color:#b00020}"
)
_STYLE_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
# With a stricter referrer policy browsers would not say of which origin the form is.
_HEADERS = [
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", _POLICY.encode()),
    (b"referrer-policy", b"same-origin"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-robots-tag", b"noindex"),
]
_LOGIN = (
    "<p>Log in there, if you know that place. If the agent then does not go on by itself, say here that it "
    "is done. Write no password: what you write is kept.</p>"
)
_CLOSED = "This question is closed: it was answered, or nobody waits for an answer any more."
_OVER = "This link is over. The question may still be open: look into the inbox."
_UNKNOWN = "This link leads nowhere. Perhaps it was not copied as a whole."


class AnswerView(Struct, frozen=True):
    """A page and its status."""

    status: int
    body: str


class AnswerPage:
    """An ASGI application; the door that it is behind has found the route and read the body."""

    def __init__(self, inbox: Inbox, links: AnswerLinks, closed: Container[str] = ()) -> None:
        """Take the tenants that are closed: their links lead nowhere."""
        self._inbox = inbox
        self._closed = closed
        self._links = links

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve ASGI."""
        token = scope["path"].removeprefix(scope["root_path"]).strip("/")
        posted = scope["method"] == "POST"
        body: bytes = (await receive())["body"] if posted else b""
        page = await self._page(self._links.read(token), body, posted=posted)
        text = page.body.encode()
        headers = [*_HEADERS, (b"content-length", b"%d" % len(text))]
        await send({"type": "http.response.start", "status": page.status, "headers": headers})
        is_head = scope["method"] == "HEAD"
        await send({"type": "http.response.body", "body": b"" if is_head else text, "more_body": False})

    async def _page(self, right: AnswerRight | None, body: bytes, *, posted: bool) -> AnswerView:
        if right is None or right.tenant in self._closed:
            return AnswerView(404, _written("No question", _UNKNOWN))
        state = await self._inbox.asking(right.tenant, right.task_id)
        item = None if state is None else self._inbox.question(state)
        if item is None or item.question != right.question:
            return AnswerView(409 if posted else 410, _written("Closed", _CLOSED))
        if self._links.is_over(right):
            return AnswerView(410, _written("Over", _OVER))
        if not posted:
            return AnswerView(200, question_page(item))
        try:
            taken = await self._answer(right, read_answer_form(body))
        except (InvalidParams, ParseError) as refused:
            if "conflict" in refused.details:
                return AnswerView(409, _written("Closed", _CLOSED))
            return AnswerView(400, question_page(item, refused))
        except (TaskNotFound, UnsupportedOperation):
            return AnswerView(409, _written("Closed", _CLOSED))
        return AnswerView(
            200, _written("Thank you", f"Your answer was taken ({taken}). You may close this page.")
        )

    async def _answer(self, right: AnswerRight, form: AnswerForm) -> str:
        principal = Principal(right.tenant, right.who, frozenset({AuthScope.ANSWER}))
        call = ApiCall(principal, right.tenant, right.task_id)
        named = msgspec.structs.replace(form, question=right.question)
        return (await self._inbox.answer(call, named)).decision


def answer_mount(app: App) -> Mount:
    """The place of the page: whoever has a link may see what it leads to."""
    routes = [Route("GET /{token}", PUBLIC, 0), Route("POST /{token}", PUBLIC, _BODY_LIMIT)]
    return Mount(PREFIX, app, routes, write_problem)


def read_answer_form(body: bytes) -> AnswerForm:
    """The answer in the form of the page.

    Raises:
        InvalidParams: it is not such a form, or the data is no JSON.
    """
    try:
        sent = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS)
    except ValueError:
        raise InvalidParams("this is not what the form of this page sends") from None
    fields = {name: values[-1] for name, values in sent.items()}
    match fields.get("decision"):
        case "accept":
            return AnswerForm(decision="accept")
        case "reject":
            return AnswerForm(decision="reject", text=fields.get("reason", "").strip())
        case "edit":
            return AnswerForm(decision="edit", data=_data(fields.get("data", "")))
        case "respond":
            return AnswerForm(decision="respond", text=fields.get("text", "").strip())
        case _:
            raise InvalidParams("choose one of the buttons", field="decision")


def _data(text: str) -> object:
    try:
        check_structure(body := text.encode())
        return msgspec.json.decode(body)
    except (*DECODE_ERRORS, ParseError):
        raise InvalidParams("the data is no JSON", field="data") from None


def _written(title: str, text: str) -> str:
    return _whole(title, f"<p>{escape(text)}</p>")


def question_page(item: InboxItem, refused: Refused | None = None) -> str:
    """The page of an open question, with what was wrong with an answer."""
    login = item.state == "auth-required"
    does = "wants somebody to log in" if login else "asks"
    about = f"Agent <b>{escape(item.agent)}</b> {does}, since {escape(item.asked_at)}"
    until = f", until {escape(item.deadline)}" if item.deadline else ""
    wrong = "" if refused is None else f'<p class="wrong" role="alert">{escape(refused.message)}</p>'
    return _whole(
        "A login" if login else "A question",
        f"<p>{about}{until}:</p><blockquote>{escape(item.text)}</blockquote>{_LOGIN if login else ''}{wrong}"
        f'<form method="post" autocomplete="off">{_answers(item)}'
        '<label>Why not, if you reject it <input type="text" name="reason" maxlength="2000"></label>'
        '<button name="decision" value="reject">Reject</button></form>',
    )


def _answers(item: InboxItem) -> str:
    """The fields and buttons that fit the question; the first button is the one that Enter presses."""
    proposal = "" if item.proposal is UNSET else escape(msgspec.json.encode(item.proposal).decode())
    accept = (
        f"<p>Proposed: <code>{proposal}</code></p>"
        '<button name="decision" value="accept">Accept the proposal</button>'
    )
    if item.schema is not None:
        schema = escape(msgspec.json.encode(item.schema).decode())
        fields = (
            f"<label>Your answer, as JSON <textarea name=data rows=6>{proposal}</textarea></label>"
            f"<details><summary>What it must be</summary><code>{schema}</code></details>"
            '<button name="decision" value="edit">Send this</button>'
        )
    elif item.choices:
        radios = "".join(
            f'<label><input type="radio" name="text" value="{escape(one)}"> {escape(one)}</label>'
            for one in item.choices
        )
        fields = f'{radios}<button name="decision" value="respond">Answer</button>'
    else:
        fields = (
            "<label>Your answer <textarea name=text rows=4></textarea></label>"
            '<button name="decision" value="respond">Answer</button>'
        )
    return (accept if proposal else "") + fields


def _whole(title: str, inner: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{inner}</body></html>"
    )
