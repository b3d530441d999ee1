"""Acts of operators from the command line: right on the store, or through the server that has it open.

A server on a SQLite file writes where it can be reached to `DATABASE.admin`, one on PostgreSQL to a file of
that database in the folder of the configuration; both are readable by its own user alone.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from trunkline.auth.key_store import KeyStore
from trunkline.auth.keys import Keyring
from trunkline.auth.signing import Signer
from trunkline.auth.vault import Vault, find_key
from trunkline.cli.admin_endpoint import AdminEndpoint, read_admin_endpoint
from trunkline.cli.console import print_json
from trunkline.cli.failure import THEN, has_secret
from trunkline.clock import Ids, now_ms
from trunkline.config import DEFAULT, Settings, SourcedValue, collect, convert, seconds
from trunkline.errors import (
    Forbidden,
    Misuse,
    Refused,
    RouteNotFound,
    StoreInUse,
    TaskNotCancelable,
    TaskNotFound,
    TimedOut,
    TooManyRequests,
    TrunklineError,
    Unauthenticated,
    Unavailable,
    Unreachable,
)
from trunkline.fleet.catalogue.files import LIST
from trunkline.fleet.health.routes import health_on_store
from trunkline.fleet.inbox_store import NO_SERVER, perform_on_store
from trunkline.fleet.mount import PREFIX as MOUNTED
from trunkline.gateway.documents import DOCUMENT_KINDS
from trunkline.gateway.mounts import is_of_tenants, perform_tenants
from trunkline.hub.workspace import HUB, STORE, read_hub
from trunkline.net.egress import Egress, shown, target
from trunkline.net.http import HttpRequest
from trunkline.net.http_client import SocketHttpClient
from trunkline.run.tasks import Tasks
from trunkline.server.admin import LOCAL, PREFIX, Admin, WaitingTask
from trunkline.store.base import Store
from trunkline.store.records import DeliveryRecord
from trunkline.store.url import database_file, store_from_url
from trunkline.store.url import shown as shown_store

KEYS = PREFIX + "keys"
TASKS = PREFIX + "tasks"
# Tasks in the operator's API, of every agent of a hub.
TASKS_API = MOUNTED + "/tasks"
AGENTS = MOUNTED + "/agents"
HEALTH = MOUNTED + "/fleet/health"
INBOX = MOUNTED + "/inbox"
TIMEOUT_S = 60.0
_ANSWER_BYTES = 64 << 20
# Refusals of the API that commands tell apart; all others are mistakes of usage.
_REFUSALS: dict[str, type[Refused]] = {
    "TASK_NOT_FOUND": TaskNotFound,
    "TASK_NOT_CANCELABLE": TaskNotCancelable,
    "UNAUTHENTICATED": Unauthenticated,
    "PERMISSION_DENIED": Forbidden,
    "ROUTE_NOT_FOUND": RouteNotFound,
}
_PAGE = 200
# Of the lists under `/admin/`.
_LONGEST_PAGE = 1000
RowT = TypeVar("RowT", DeliveryRecord, WaitingTask)


def settings_for(url: str | None) -> Settings:
    """Return the settings of a store, named by its URL or by the workspace of a hub.

    Raises:
        Misuse: the store is in memory, or the workspace is invalid.
    """
    settings = convert(collect_for(url))
    if settings.store == "memory:":
        raise Misuse(
            "a store in memory ends with its process: name another one with --store",
            hint="--store sqlite:///runs.db",
        )
    return settings


def collect_for(url: str | None) -> dict[str, SourcedValue]:
    """Return what is set for a server on a store, named by its URL or by the workspace of a hub.

    Raises:
        Misuse: a file or a variable is invalid, or the URL is neither that of a store nor such a workspace.
    """
    workspace = Path(url or ".")
    # An agents.yaml in the current folder may belong to any program; hub.yaml is unmistakable.
    if any([(workspace / name).is_file() for name in ((HUB, LIST) if url else (HUB,))]):
        own = SourcedValue(f"sqlite:///{workspace / STORE}", DEFAULT)
        return {"store": own, **collect(read_hub(workspace).settings, author=str(workspace / HUB))}
    if url and ":" not in url:
        why, hint = f"it contains neither {HUB} nor {LIST}", ""
        if not workspace.is_dir():
            why, hint = "there is no such folder", shlex.join(["trunkline", "hub", "init", url])
        raise Misuse(f"{url!r} is neither a store URL nor the folder of a hub: {why}", hint=hint)
    return collect({}, {"store": url})


def start_command(place: str) -> str:
    """Return the command that starts the hub of a folder or of a store; a password is left out."""
    if ":" not in place:
        return shlex.join(["trunkline", "hub", place])
    return "trunkline hub --store " + ("URL" if has_secret([place]) else shlex.quote(place))


class Operator:
    """The acts of an operator on one store, and the printing of what comes of them.

    A command with such a parameter has the option --store there, and those by which JSON is asked for.
    """

    def __init__(self, store: str | None, *, as_json: bool = False) -> None:
        self.store = store
        self.as_json = as_json

    @cached_property
    def settings(self) -> Settings:
        """The settings of the store; see `settings_for`."""
        return settings_for(self.store)

    def ask(self, method: str, path: str, form: object = None, **query: str) -> Any:
        """Perform one act and give its answer; what is empty in the query is left out.

        Raises:
            Refused: it cannot be done as asked.
            Misuse: the server that has the store refused it, or cannot be reached.
            StoreError: the store cannot be opened.
        """
        body = b"" if form is None else msgspec.json.encode(form)
        asked = {name: text for name, text in query.items() if text}
        try:
            return msgspec.json.decode(asyncio.run(_performed(self.settings, method, path, asked, body)))
        except RouteNotFound as error:
            if error.missing == NO_SERVER:
                raise self.no_server() from None
            raise

    def no_server(self) -> Misuse:
        """Return the error of a store that no server has open."""
        text = f"no server has this store: {shown_store(self.settings.store)}; start it"
        return Misuse(text, hint=start_command(self.store or "."))

    def each(self, path: str, **query: str) -> Iterator[dict[str, Any]]:
        """The items of a list of the operator's API, page by page."""
        after: str | None = ""
        while after is not None:
            page = self.ask("GET", path, **query, limit=str(_PAGE), after=after)
            yield from page["items"]
            after = page["next"]

    def rows(self, path: str, row: type[RowT], wanted: int = _LONGEST_PAGE, **query: str) -> Iterator[RowT]:
        """The rows of a list under `/admin/`, page by page; what comes next follows the last id."""
        size, after = min(wanted, _LONGEST_PAGE), ""
        while True:
            page = self.ask("GET", path, **query, limit=str(size), after=after)
            found = msgspec.convert(page[path.removeprefix(PREFIX)], list[row])
            yield from found
            if len(found) < size:
                return
            after = found[-1].id

    def print(self, found: object, *lines: str) -> None:
        """Print what a command found: as one line of JSON, or in these lines."""
        if self.as_json:
            print_json(found, compact=True)
        elif lines:
            print(*lines, sep="\n")


def checked_id(matches: Callable[[str], object], kind: str, listing: str, given: str) -> str:
    """An id that may be part of a path, if it looks as ids of its kind do.

    Raises:
        Misuse: no id of this kind looks so; the command of the `listing` shows those that there are.
    """
    if not matches(given):
        raise Misuse(f"{given!r} is not the ID of a {kind}", hint=f"trunkline {listing}")
    return given


def server_beside(settings: Settings) -> AdminEndpoint | None:
    """A server of this machine on a store that several processes may have open: only it knows its fleet."""
    endpoint = None if database_file(settings.store) else read_admin_endpoint(settings)
    if endpoint is None:
        return None
    try:
        os.kill(int(endpoint.pid), 0)
    except ProcessLookupError:
        # It was killed and could not take its file away; nobody takes its token any more.
        return None
    except PermissionError:
        # It lives, and is another user's.
        pass
    return endpoint


def server_of(settings: Settings, busy: StoreInUse) -> AdminEndpoint:
    """Where the server is reached that has a store open.

    Raises:
        StoreInUse: nothing says where.
    """
    found = read_admin_endpoint(settings)
    if found is None or found.pid != busy.pid:
        # One that was killed left its own behind, and its port may be a stranger's by now.
        raise StoreInUse(f"{busy}; or ask again once the server that has it is up") from None
    return found


@asynccontextmanager
async def opened_store(settings: Settings, *, read_only: bool = False) -> AsyncGenerator[Store]:
    """The store that the settings name, opened in this process."""
    store = store_from_url(settings.store, read_only=read_only)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def _performed(
    settings: Settings, method: str, path: str, query: Mapping[str, str], body: bytes
) -> bytes:
    """The answer to an act: by a server beside us that knows more, on the store, or by who has that open."""
    beside = server_beside(settings) if path.startswith(f"{MOUNTED}/") else None
    if beside is not None:
        return await _there(beside, method, path, query, body)
    try:
        if (method, path) != ("POST", KEYS):
            # Only to see that there is a store: what is not there is not to be made.
            await _here(settings, "GET", KEYS, {}, b"")
        return await _here(settings, method, path, query, body)
    except StoreInUse as busy:
        return await _there(server_of(settings, busy), method, path, query, body)


async def _here(settings: Settings, method: str, path: str, query: Mapping[str, str], body: bytes) -> bytes:
    # What only reads may be done beside a running server, but not the list of tasks that wait: which
    # processes live, only the server knows, or whoever has the store for itself. Health is counted when asked
    # for, which is writing too. Of the rest of the API only the inbox can be read without the server.
    beside = path.startswith(INBOX) if path.startswith(f"{MOUNTED}/") else path != TASKS
    async with opened_store(settings, read_only=method == "GET" and beside) as store:
        keys = KeyStore(store.docs, Keyring(()), now_ms)
        tasks = Tasks(store)
        if path == HEALTH:
            return await health_on_store(store, query, settings.health_window_s, principal=LOCAL)
        if path.startswith(f"{MOUNTED}/"):
            inner = path.removeprefix(MOUNTED)
            return await perform_on_store(tasks, method, inner, query, body, principal=LOCAL)
        if is_of_tenants(path):
            return await perform_tenants(store, method, path, query, body, principal=LOCAL)
        acts = Admin(store, keys, lambda: _signer(settings, store), tasks)
        acts.kinds = lambda: DOCUMENT_KINDS
        _, answer = await acts.perform(method, path, query, body, principal=LOCAL)
        return answer


def _signer(settings: Settings, store: Store) -> Signer | None:
    key = find_key(settings)
    return None if key is None else Signer(store.docs, Vault(key), now_ms, Ids())


async def _there(
    endpoint: AdminEndpoint, method: str, path: str, query: Mapping[str, str], body: bytes
) -> bytes:
    headers = (("Host", endpoint.host), ("X-API-Key", endpoint.token), ("Content-Type", "application/json"))
    try:
        return await call_api(method, endpoint.url + path, query, headers, body)
    except RouteNotFound:
        raise Misuse(
            f"the server at {endpoint.url} that has the store is not a hub: it has no {path}; "
            "run this command in the folder of a hub, or name the folder",
            hint="--store DIR",
        ) from None
    except Unreachable as error:
        text = f"the server that has the store does not answer at {endpoint.url}: {error}"
        raise Misuse(f"{text}; it is starting or stopping, so try again", hint=f"sleep 5{THEN}") from None


async def call_api(
    method: str,
    url: str,
    query: Mapping[str, str],
    headers: tuple[tuple[str, str], ...],
    body: bytes = b"",
    *,
    timeout_s: float = TIMEOUT_S,
) -> bytes:
    """Return the body that a server's API answers.

    Raises:
        Unreachable: the server does not answer.
        Refused: the server refuses the request with a code of the protocol.
        Misuse: the server refuses the request for another reason.
    """
    url += f"?{urlencode(query)}" if query else ""
    # Only this host, wherever it is: a server may listen on an inner address.
    client = SocketHttpClient(Egress(hosts=[target(url).host]))
    try:
        async with asyncio.timeout(timeout_s):
            response = await client.open(HttpRequest(method, url, headers, body))
            answer = await response.read(_ANSWER_BYTES)
    except TimeoutError:
        raise TimedOut(f"{shown(url)}: no answer within {timeout_s:g} s", reason="total") from None
    finally:
        await client.close()
    if response.status >= 300:
        wait = response.headers.get("retry-after", "")
        raise refusal_of(response.status, answer, float(wait) if wait.isdecimal() else 1.0)
    return answer


class _Refusal(Struct, frozen=True):
    error: dict[str, Any] = {}
    # Of the operator's API.
    detail: str = ""
    code: str = ""
    field: str = ""


def refusal_of(status: int, answer: bytes, retry_after_s: float) -> TrunklineError:
    """Return the error that a server's answer stands for."""
    try:
        refusal = msgspec.json.decode(answer, type=_Refusal)
    except msgspec.MsgspecError:
        refusal = _Refusal()
    text = str(refusal.error.get("message", "")) or refusal.detail or f"the server answered {status}"
    if refusal.field and refusal.field not in text:
        text = f"{refusal.field}: {text}"
    if status == 429:
        if "try again in " not in text:
            text += f"; try again in {retry_after_s:g} s"
        return TooManyRequests(text, retry_after_s=retry_after_s)
    if status == 503:
        return Unavailable(text)
    kind = _REFUSALS.get(refusal.code)
    return Misuse(text) if kind is None else kind(text)


def span_ms(text: str, flag: str) -> int:
    """An age such as 90d in milliseconds; with its unit, for a bare 7 was meant as days.

    Raises:
        Misuse: it is none.
    """
    try:
        return round(seconds(text if text.endswith(("s", "m", "h", "d")) else "") * 1000)
    except ValueError:
        said = f"{flag} takes a number and s, m, h or d, for example 7d, not {text!r}"
        raise Misuse(said, hint=f"{flag} 7d") from None
