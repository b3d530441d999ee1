"""Calls one agent: `async with Client(url) as client: result = await client.send("hello")`."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar, Unpack, cast

from msgspec import Struct

from trunkline.client.assembler import Assembler
from trunkline.client.chat import Chat
from trunkline.client.credentials import Auth, FixedHeaders, Guarded, credentials
from trunkline.client.message import Content, Sending, compose, push_config
from trunkline.client.negotiation import Negotiation
from trunkline.client.options import Options, check_seconds, in_time
from trunkline.client.result import Result
from trunkline.client.session import AgentSession, CancelAttempt, Work, out_of_time
from trunkline.client.stream import Stream
from trunkline.client.transport import Frame, Transport, TransportFactory
from trunkline.config import Secret
from trunkline.errors import ExtendedCardNotConfigured, MethodNotFound, Misuse, Unreachable
from trunkline.net.egress import Egress, target
from trunkline.net.http import Headers, HttpClient
from trunkline.net.http_client import SocketHttpClient
from trunkline.wire.peer_card import PeerCard
from trunkline.wire.types import (
    RESTING,
    ListQuery,
    PushConfig,
    PushQuery,
    PushRequest,
    Task,
    TaskPage,
    TaskQuery,
    TaskState,
)

T = TypeVar("T")


class Capabilities(Struct, frozen=True):
    """What an agent can do beyond answering, and the interface by which it is called, in words.

    With `deduplicates` it knows a message that comes twice; without `reads_tasks` nobody can look at a task.
    """

    interface: str
    streaming: bool
    push: bool
    deduplicates: bool
    reads_tasks: bool = True


class Client:
    """One agent, named by its URL: that of its card, of its interface, or the base of both.

    The card is found and the interface chosen at the first call, once. Safe to use from many tasks at once.
    """

    # With the transport and the card that they are of.
    _capabilities: tuple[Transport | None, PeerCard | None, Capabilities | None] = (None, None, None)

    def __init__(
        self,
        url: str,
        *,
        auth: Auth | None = None,
        api_key: str | Secret = "",
        api_key_env: str = "",
        bearer: str | Secret = "",
        bearer_env: str = "",
        headers: Mapping[str, str] | None = None,
        version: str = "",
        bindings: Sequence[str] = (),
        card: PeerCard | None = None,
        card_url: str = "",
        card_ttl_s: float = 600,
        timeout_s: float = 300,
        idle_s: float = 60,
        connect_s: float = 5,
        poll_s: float = 1,
        retries: int = 3,
        deduplicates: bool | None = None,
        verify_tls: bool = True,
        http_client: HttpClient | None = None,
        transports: Mapping[str, TransportFactory] | None = None,
        egress: Egress | None = None,
    ) -> None:
        self._options = options = Options(
            timeout_s=timeout_s,
            idle_s=idle_s,
            connect_s=connect_s,
            poll_s=poll_s,
            retries=retries,
            deduplicates=deduplicates,
            version=version,
            bindings=tuple(bindings),
            card_url=card_url,
            card_ttl_s=card_ttl_s,
        )
        self.url = _checked(url)
        # An HTTP client that was given belongs to whoever gave it.
        self._own: SocketHttpClient | None = None
        if http_client is None:
            http_client = self._own = _socket_client(url, egress, connect_s, verify=verify_tls)
        if headers:
            http_client = Guarded(http_client, FixedHeaders(headers), url)
        known = credentials(
            auth, api_key=api_key, api_key_env=api_key_env, bearer=bearer, bearer_env=bearer_env
        )
        self._negotiation = Negotiation(url, options, http_client, known, transports=transports, card=card)
        self._session = AgentSession(url, options, self._negotiation)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of every connection; tasks go on. An HTTP client that was given stays open."""
        if self._own is not None:
            await self._own.close()

    def close_idle(self) -> None:
        """Let go of the connections that no call uses now, where the next call is a long time away."""
        if self._own is not None:
            self._own.close_idle()

    @property
    def explanation(self) -> tuple[str, ...]:
        """How the interface was chosen, line by line; empty before the first call."""
        return self._negotiation.explanation

    async def interface(self) -> str:
        """The interface that was chosen, in words."""
        return (await self._negotiation.open()).name

    async def capabilities(self) -> Capabilities:
        """The capabilities on the agent's card; without a card it is assumed to stream and to push.

        Whether tasks can be looked at no card says: they can until the agent refuses it.

        Raises:
            Unreachable: nobody is there.
            Unreadable: what is there is no agent.
        """
        await self._session.ready()
        return cast("Capabilities", self.known_capabilities)

    @property
    def known_capabilities(self) -> Capabilities | None:
        """The agent's capabilities, once its interface is chosen."""
        negotiation, session = self._negotiation, self._session
        transport, card, reads = negotiation.transport, negotiation.known, negotiation.reads_tasks
        if transport is None:
            return None
        of, had, known = self._capabilities
        # Asked with every message; what they are made of changes once in a while.
        if of is not transport or had is not card or known is None or known.reads_tasks is not reads:
            push = card is None or card.push
            known = Capabilities(transport.name, session.streams, push, session.deduplicates, reads)
            self._capabilities = transport, card, known
        return known

    async def card(self, *, refresh: bool = False) -> PeerCard:
        """The agent's card, kept as long as its headers allow.

        Raises:
            Unreachable: there is no card, or nobody is there.
            Unreadable: what is there is no card.
        """
        return await _within(self._options.timeout_s, lambda _: self._negotiation.card(refresh=refresh))

    async def extended_card(self) -> PeerCard:
        """The card for callers whom the agent knows.

        Raises:
            ExtendedCardNotConfigured: its card says that there is none.
        """
        await self._negotiation.open()
        # None if the agent has none and is spoken to all the same.
        card = self._negotiation.known
        if card is not None and not card.extended_card:
            raise ExtendedCardNotConfigured(f"{card.name} has no extended card; its card says so")
        return await self._ask(lambda transport, call: transport.extended_card(call))

    async def send(self, content: Content, *, wait: bool = True, **said: Unpack[Sending]) -> Result:
        """Say something; with `wait` the answer, however long the agent takes, else its receipt.

        Raises:
            Refused: the agent will not do it.
            TimedOut: there was no answer in time; the text names the task.
            Uncertain: the message was sent and its answer lost.
            Unreachable: nobody is there.
            Unreadable: what it answers is no A2A.
        """
        request = compose(content, said, wait=wait)
        headers = _about(said)
        seconds = self._seconds(said.get("timeout_s"))
        known: Assembler | None = None
        limit = asyncio.timeout(seconds)
        # As `_within` does it, without its calls: most of what a client does is done here.
        try:
            async with limit:
                if request.push is not None:
                    await self._session.check_push()
                notice = await self._session.call(
                    lambda transport, call: transport.send(request, call),
                    headers=headers,
                    deadline=limit.when(),
                    message_id=request.message.message_id,
                )
                answer = notice.answer
                if type(answer) is Task and (answer.status.state in RESTING or not wait):
                    return Result(answer)
                # Only who goes on after the first answer needs to put frames together.
                known = Assembler()
                known.take(Frame(notice))
                if known.rests or not wait:
                    return cast("Result", known.result())
                following = Stream(self._session, known=known, headers=headers, deadline=limit.when())
                return await following.finish()
        except TimeoutError:
            if not limit.expired():
                raise
            task_id = "" if known is None else known.task_id
            raise out_of_time(seconds, task_id, request.message.message_id) from None

    def stream(self, content: Content, **said: Unpack[Sending]) -> Stream:
        """Say something and read the answer as it is made; what may be said beside it is as for `send`."""
        seconds = self._seconds(said.get("timeout_s"))
        request = compose(content, said)
        return Stream(self._session, request=request, headers=_about(said), timeout_s=seconds)

    def subscribe(self, task_id: str, *, after: str = "", through_questions: bool = True) -> Stream:
        """Follow a task: from a snapshot, or from what came `after` an event's id.

        It ends with the task, or without `through_questions` also where the agent asks something.
        """
        return Stream(
            self._session,
            known=Assembler(_named(task_id), after),
            timeout_s=self._options.timeout_s,
            through_questions=through_questions,
        )

    async def wait(self, task_id: str, *, timeout_s: float | None = None) -> Result:
        """A task when it rests: it has ended, or asks something.

        Raises:
            TaskNotFound: the agent does not know it.
            TimedOut: it took longer.
        """
        seconds, query = self._seconds(timeout_s), TaskQuery(_named(task_id))
        return await _within(seconds, lambda deadline: self._rested(query, deadline), task_id)

    async def _rested(self, query: TaskQuery, deadline: float) -> Result:
        task = await self._session.call(lambda transport, call: transport.get(query, call), deadline=deadline)
        if task.status.state in RESTING:
            return Result(task)
        return await Stream(self._session, known=Assembler(query.id), deadline=deadline).finish()

    async def get(self, task_id: str, *, history_length: int | None = None) -> Result:
        """A task as it stands.

        Raises:
            TaskNotFound: the agent does not know it.
        """
        query = TaskQuery(_named(task_id), history_length)
        try:
            return Result(await self._ask(lambda transport, call: transport.get(query, call)))
        except MethodNotFound:
            self._negotiation.reads_tasks = False
            raise

    async def list(
        self,
        *,
        context_id: str = "",
        status: TaskState | None = None,
        page_size: int = 50,
        page_token: str = "",
        history_length: int | None = None,
        include_artifacts: bool = False,
        updated_after_ms: int | None = None,
    ) -> TaskPage:
        """A page of tasks, the latest first; `page_token` is the `next_page_token` of the page before."""
        query = ListQuery(
            context_id, status, page_size, page_token, history_length, updated_after_ms, include_artifacts
        )
        return await self._ask(lambda transport, call: transport.list(query, call))

    async def cancel(self, task_id: str) -> Result:
        """Stop a task.

        Raises:
            TaskNotCancelable: it has already ended.
        """
        return Result(await self._ask(CancelAttempt(_named(task_id))))

    async def set_push(self, task_id: str, config: PushConfig | Mapping[str, str]) -> PushConfig:
        """Have a webhook told of a task.

        Raises:
            PushNotSupported: the agent's card says that it sends no notifications.
        """
        await self._session.check_push()
        request = PushRequest(_named(task_id), push_config(config))
        return await self._ask(lambda transport, call: transport.set_push(request, call))

    async def get_push(self, task_id: str, config_id: str = "") -> PushConfig:
        """One push config of a task."""
        await self._session.check_push()
        query = PushQuery(_named(task_id), config_id)
        return await self._ask(lambda transport, call: transport.get_push(query, call))

    async def list_push(self, task_id: str) -> builtins.list[PushConfig]:
        """All push configs of a task."""
        await self._session.check_push()
        query = PushQuery(_named(task_id))
        return [*await self._ask(lambda transport, call: transport.list_push(query, call))]

    async def delete_push(self, task_id: str, config_id: str) -> None:
        """Forget a push config."""
        await self._session.check_push()
        query = PushQuery(_named(task_id), config_id)
        await self._ask(lambda transport, call: transport.delete_push(query, call))

    def chat(self, *, context_id: str = "", skill: str = "") -> Chat:
        """A conversation that keeps its context and its task."""
        return Chat(self, context_id=context_id, skill=skill)

    async def _ask(self, work: Work[T]) -> T:
        """A request that may be made twice."""
        return await _within(
            self._options.timeout_s, lambda deadline: self._session.call(work, deadline=deadline)
        )

    def _seconds(self, timeout_s: float | None) -> float:
        return self._options.timeout_s if timeout_s is None else check_seconds("timeout_s", timeout_s)


async def _within(seconds: float, work: Callable[[float], Awaitable[T]], task_id: str = "") -> T:
    """What comes of the work, which is told its deadline; who is too late hears which task goes on."""
    deadline = asyncio.get_running_loop().time() + seconds
    return await in_time(seconds, work(deadline), lambda: out_of_time(seconds, task_id, ""))


def _checked(url: str) -> str:
    try:
        target(url)
    except Unreachable as error:
        raise Misuse(f"url: {error}; give the whole of it, such as https://agent.example") from None
    return url


def _socket_client(url: str, egress: Egress | None, connect_s: float, *, verify: bool) -> SocketHttpClient:
    """An HTTP client to the public, and to the host that the operator names, wherever that is."""
    return SocketHttpClient(egress or Egress(hosts=[target(url).host]), connect_s=connect_s, verify=verify)


def _named(task_id: str) -> str:
    if not task_id:
        raise Misuse("task_id is empty; give the task_id of a result")
    return task_id


def _about(said: Sending) -> Headers:
    """The headers that go with a message."""
    headers: list[tuple[str, str]] = []
    if correlation_id := said.get("correlation_id"):
        headers.append(("x-correlation-id", correlation_id))
    if parent_id := said.get("parent_id"):
        headers.append(("x-parent-id", parent_id))
    if trace := said.get("traceparent"):
        headers.append(("traceparent", trace))
    if extensions := said.get("extensions"):
        # Before 1.0 the header had a prefix.
        named = ", ".join(extensions)
        headers += [("a2a-extensions", named), ("x-a2a-extensions", named)]
    return tuple(headers)
