"""The client against our own server in process, and against agents that answer as a test says."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from tests.client.agents import (
    COMPLETED,
    HOME,
    WORKING,
    Asked,
    Error,
    Frames,
    Http,
    Lost,
    Raw,
    Stand,
    card,
    deduplicating,
    hello,
    message,
    stored,
    task,
)
from tests.loops import leap
from trunkline import Agent, Turn
from trunkline.client.client import Client
from trunkline.demo.agent import agent as demo
from trunkline.errors import (
    ExtendedCardNotConfigured,
    InvalidParams,
    Misuse,
    PushNotSupported,
    RouteNotFound,
    TaskNotCancelable,
    TaskNotFound,
    TimedOut,
    Unauthenticated,
    Uncertain,
    Unreachable,
    UnsupportedOperation,
)
from trunkline.mock.in_process import InProcessMock
from trunkline.mock.scenario import Reply
from trunkline.net.egress import Egress
from trunkline.net.in_process import InProcessHttpClient
from trunkline.wire.types import Message, Part, PushConfig, Role, TaskState

T = TypeVar("T")
SEND, GET, SUBSCRIBE = "SendMessage", "GetTask", "SubscribeToTask"
WAYS = [("JSONRPC", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "1.0"), ("HTTP+JSON", "0.3")]


def call(talk: Callable[[Client], Awaitable[T]], agent: Agent = demo, **options: Any) -> T:
    """Run a conversation with an agent that is started for it."""

    async def main() -> T:
        app: Any = agent.asgi(store="memory:", drain_limit=0, **options.pop("settings", {}))
        async with asyncio.timeout(60), app.lifespan():
            async with Client(HOME, http_client=InProcessHttpClient(app), **options) as client:
                return await talk(client)

    return asyncio.run(main())


def ask(stand: Stand, talk: Callable[[Client], Awaitable[T]], **options: Any) -> T:
    """The same with a stand-in, on a clock of its own."""

    async def main() -> T:
        async with stand.client(**options) as client:
            return await talk(client)

    return leap(main())


@pytest.mark.parametrize(("binding", "version"), WAYS)
def test_row_54_every_operation_against_our_own_server(binding: str, version: str) -> None:
    async def talk(client: Client) -> None:
        assert (await client.interface()).startswith(f"{binding} {version} at ")
        assert (await client.card()).name == "Trunkline demo"
        sent = await client.send("echo hello")
        assert (sent.text, sent.ok) == ("echo hello", True)
        assert (await client.get(sent.task_id)).text == "echo hello"
        stream = client.stream("count 5 0")
        assert "".join([update.text async for update in stream]).strip() == "1 2 3 4 5"
        assert (await stream.finish()).text == "1 2 3 4 5 "
        receipt = await client.send("sleep 0.05", wait=False)
        assert not receipt.ended
        assert (await client.subscribe(receipt.task_id).finish()).text == "slept 0.05 s"
        assert (await client.wait(receipt.task_id)).text == "slept 0.05 s"
        with pytest.raises(TaskNotCancelable):
            await client.cancel(receipt.task_id)
        long = await client.send("sleep 30", wait=False)
        assert (await client.cancel(long.task_id)).state is TaskState.CANCELED
        with pytest.raises(TaskNotFound):
            await client.get("no-such-task")

    call(talk, version=version, bindings=[binding])


def test_a_list_of_tasks_by_pages() -> None:
    async def talk(client: Client) -> None:
        sent = [(await client.send("echo x")).task_id for _ in range(3)]
        first = await client.list(page_size=2)
        rest = await client.list(page_size=2, page_token=first.next_page_token)
        assert [one.id for one in (*first.tasks, *rest.tasks)] == sent[::-1]
        assert (await client.list(status=TaskState.FAILED)).total_size == 0
        whole = await client.list(include_artifacts=True, page_size=1)
        assert whole.tasks[0].artifacts

    call(talk)


def test_push_configs() -> None:
    async def talk(client: Client) -> None:
        task_id = (await client.send("ask", wait=True)).task_id
        made = await client.set_push(task_id, {"url": "http://127.0.0.1:9/hook", "token": "t"})
        assert (await client.get_push(task_id, made.id)).url == "http://127.0.0.1:9/hook"
        assert [one.id for one in await client.list_push(task_id)] == [made.id]
        await client.delete_push(task_id, made.id)
        assert await client.list_push(task_id) == []

    settings = {"egress_hosts": ["127.0.0.1"], "secret_key": "a-secret-key-for-the-tests-of-push"}
    call(talk, settings=settings)


def test_a_push_config_is_sent_with_a_message() -> None:
    async def talk(client: Client) -> None:
        sent = await client.send("ask", push={"url": "http://127.0.0.1:9/hook", "id": "mine"})
        assert (await client.get_push(sent.task_id, "mine")).url == "http://127.0.0.1:9/hook"

    settings = {"egress_hosts": ["127.0.0.1"], "secret_key": "a-secret-key-for-the-tests-of-push"}
    call(talk, settings=settings)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "url"),
        ({"url": "https://example.com/hook", "tokn": "t"}, "tokn"),
        ({"url": 7}, "Expected `str`"),
        (
            "https://example.com/hook",
            "a PushConfig, or a dict with texts of url, id, token, scheme, credentials",
        ),
    ],
)
def test_a_push_config_that_is_none_is_named(given: Any, told: str) -> None:
    async def talk(client: Client) -> None:
        with pytest.raises(Misuse, match="push: ") as caught:
            await client.send("ask", push=given)
        assert told in str(caught.value)

    call(talk)


def test_what_the_card_does_not_offer_is_not_called() -> None:
    stand = Stand([], card(capabilities={"pushNotifications": False}))

    async def talk(client: Client) -> None:
        with pytest.raises(PushNotSupported, match="stand sends no"):
            await client.set_push("t1", PushConfig("https://example.com/hook"))
        with pytest.raises(PushNotSupported):
            await client.send("hi", push=PushConfig("https://example.com/hook"))
        with pytest.raises(PushNotSupported):
            await client.stream("hi", push=PushConfig("https://example.com/hook")).finish()
        with pytest.raises(ExtendedCardNotConfigured):
            await client.extended_card()

    ask(stand, talk)
    assert stand.asked == []


def test_the_extended_card_shows_more() -> None:
    clerk = Agent("clerk", description="d", version="1")

    @clerk.skill(public=False)
    async def pay(turn: Turn) -> str:
        return "paid"

    @clerk.skill()
    async def greet(turn: Turn) -> str:
        return "hello"

    async def talk(client: Client) -> None:
        assert [skill.id for skill in (await client.card()).skills] == ["greet"]
        assert len((await client.extended_card()).skills) == 2

    call(talk, clerk, settings={"keys": ["k" * 20]}, api_key="k" * 20)


def test_what_an_agent_is_told() -> None:
    stand = Stand(lambda _: task(COMPLETED, "ok"))

    async def talk(client: Client) -> None:
        await client.send("hi", skill="s", task_id="t1", context_id="c1", metadata={"a": 1}, history_length=2)
        await client.send(
            {"n": 1}, output_modes=["text/plain"], extensions=["urn:x"], correlation_id="co", parent_id="pa"
        )
        await client.send(["one", Part(text="two")])
        given = Message("m7", role=Role.USER, parts=(Part(text="mine"),), metadata={"own": 1})
        await client.send(given, skill="s")

    ask(stand, talk)
    one, two, three, four = [asked.params for asked in stand.asked]
    said = one["message"]
    assert (said["taskId"], said["contextId"], said["role"]) == ("t1", "c1", "ROLE_USER")
    assert said["metadata"] == {"skillHint": "s", "skillId": "s"}
    assert (one["metadata"], one["configuration"]["historyLength"]) == ({"a": 1}, 2)
    assert two["message"]["parts"] == [{"data": {"n": 1}}]
    assert two["configuration"]["acceptedOutputModes"] == ["text/plain"]
    headers = stand.asked[1].headers
    assert {name: headers[name] for name in ("x-correlation-id", "x-parent-id", "a2a-extensions", "a2a-version")} == {
        "x-correlation-id": "co", "x-parent-id": "pa", "a2a-extensions": "urn:x", "a2a-version": "1.0",
    }  # fmt: skip
    assert [part["text"] for part in three["message"]["parts"]] == ["one", "two"]
    assert four["message"]["messageId"] == "m7"
    assert four["message"]["metadata"] == {"own": 1, "skillHint": "s", "skillId": "s"}


def test_pk_10_every_option_has_an_effect() -> None:
    """Each option of a client changes what goes out or what comes of it; those not here have tests by name."""
    stand = Stand(lambda _: task(COMPLETED, "ok"))

    async def talk(client: Client) -> None:
        await client.send("hi")

    ask(stand, talk, headers={"X-Tenant": "blue"}, bearer="token-of-mine")
    assert stand.asked[0].headers["x-tenant"] == "blue"
    assert stand.asked[0].headers["authorization"] == "Bearer token-of-mine"
    ask(stand, talk, api_key="key-of-mine", version="1.0", card_url=f"{HOME}/.well-known/agent-card.json")
    assert stand.asked[1].headers["x-api-key"] == "key-of-mine"


def test_pk_11_two_clients_of_one_url_use_their_own_credentials() -> None:
    stand = Stand(lambda _: task(COMPLETED, "ok"))

    async def main() -> None:
        async with stand.client(bearer="one") as one, stand.client(bearer="two") as two:
            for client in (one, two, one):
                await client.send("hi")

    leap(main())
    assert [asked.headers["authorization"] for asked in stand.asked] == [
        "Bearer one",
        "Bearer two",
        "Bearer one",
    ]


def test_a_401_says_what_the_card_wants() -> None:
    wants = {
        "securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": "X-Team"}},
        "security": [{"k": []}],
    }

    async def talk(client: Client) -> None:
        with pytest.raises(Unauthenticated, match=r"an API key in X-Team"):
            await client.send("hi")

    ask(Stand(lambda _: Http(401), card(**wants)), talk)


# Answers that are not the end.


def test_pk_1_a_slow_agent_that_answers_with_a_receipt_is_waited_for() -> None:
    stand = Stand([task(WORKING), Frames([task(WORKING), *hello()[2:]])])

    async def talk(client: Client) -> None:
        assert (await client.send("hi")).text == "hello world"

    ask(stand, talk)
    assert stand.methods == [SEND, SUBSCRIBE]


def test_pk_1_failed_is_not_success() -> None:
    async def talk(client: Client) -> None:
        failed = await client.send("hi")
        assert (failed.ok, failed.ended, failed.text) == (False, True, "broke")

    ask(Stand([task("TASK_STATE_FAILED", said="broke")]), talk)


def test_without_streams_a_receipt_is_polled() -> None:
    stand = Stand(
        [task(WORKING), stored(WORKING), stored(COMPLETED, "done")], card(capabilities={"streaming": False})
    )

    async def talk(client: Client) -> None:
        assert (await client.send("hi")).text == "done"

    ask(stand, talk)
    assert stand.methods == [SEND, GET, GET]


def test_without_wait_the_receipt_is_the_answer() -> None:
    stand = Stand([task("TASK_STATE_SUBMITTED")])

    async def talk(client: Client) -> None:
        assert (await client.send("hi", wait=False)).state is TaskState.SUBMITTED

    ask(stand, talk)
    assert stand.asked[0].params["configuration"] == {"returnImmediately": True}


def test_row_10_a_direct_message_is_an_answer() -> None:
    async def talk(client: Client) -> None:
        found = await client.send("hi")
        assert (found.text, found.task_id, found.context_id, found.ok) == ("hello", "", "c3", True)

    ask(Stand([message("hello", contextId="c3")]), talk)


def test_a_status_update_as_an_answer_is_understood() -> None:
    update = {"statusUpdate": {"taskId": "t1", "contextId": "c1", "status": {"state": "input-required"}}}

    async def talk(client: Client) -> None:
        found = await client.send("hi")
        assert (found.state, found.task_id) == (TaskState.INPUT_REQUIRED, "t1")

    ask(Stand([update]), talk)


# What went wrong.


@pytest.mark.parametrize("trouble", [Lost(), Raw(b'{"jsonrpc"', cut=True), Http(502), Http(504)])
def test_a_lost_answer_is_uncertain(trouble: Any) -> None:
    stand = Stand([trouble])

    async def talk(client: Client) -> None:
        with pytest.raises(Uncertain) as caught:
            await client.send("hi", message_id="mine")
        assert caught.value.message_id == "mine"

    ask(stand, talk)
    assert stand.methods == [SEND]


def test_a_lost_answer_of_who_knows_a_message_again_is_asked_for_again() -> None:
    stand = Stand([Lost(), Raw(b"{", cut=True), task(COMPLETED, "once")], deduplicating())

    async def talk(client: Client) -> None:
        assert (await client.send("hi")).text == "once"

    ask(stand, talk)
    assert len({asked.message_id for asked in stand.asked}) == 1
    assert all(asked.headers["idempotency-key"] == asked.message_id for asked in stand.asked)


def test_our_own_server_runs_a_repeated_message_once() -> None:
    runs: list[str] = []
    counter = Agent("counter", description="d", version="1")

    @counter.skill()
    async def count(turn: Turn) -> str:
        runs.append(turn.text)
        return str(len(runs))

    class Forgetful(InProcessHttpClient):
        """Loses the first answer to a message."""

        lost = 0

        async def open(self, request: Any) -> Any:
            reply = await super().open(request)
            if request.method == "POST" and not self.lost:
                self.lost += 1
                await reply.read(1 << 20)
                await reply.close()
                raise Unreachable("broke off", reason="sent")
            return reply

    async def main() -> None:
        app: Any = counter.asgi(store="memory:", drain_limit=0)
        async with asyncio.timeout(60), app.lifespan():
            async with Client(HOME, http_client=Forgetful(app)) as client:
                assert (await client.send("hi")).text == "1"

    asyncio.run(main())
    assert runs == ["hi"]


def test_row_55_a_busy_agent_is_tried_again_and_a_refusal_is_not() -> None:
    moments: list[float] = []

    def script(asked: Asked) -> Any:
        moments.append(asyncio.get_running_loop().time())
        return Http(503, {"retry-after": "4"}) if len(moments) < 3 else task(COMPLETED, "at last")

    async def talk(client: Client) -> None:
        assert (await client.send("hi")).text == "at last"

    ask(Stand(script), talk)
    assert [later - earlier >= 4 for earlier, later in zip(moments, moments[1:], strict=False)] == [
        True,
        True,
    ]
    stand = Stand([Http(400, {}, b"no"), Error(-32602)])

    async def refused(client: Client) -> None:
        for _ in range(2):
            with pytest.raises(Exception, match=r"no|HTTP 400"):
                await client.get("t1")

    ask(stand, refused)
    assert len(stand.asked) == 2


def test_row_56_total_and_idle_are_told_apart() -> None:
    async def never(_: Asked) -> Any:
        await asyncio.sleep(1e6)

    async def total(client: Client) -> None:
        with pytest.raises(TimedOut) as caught:
            await client.send("hi", message_id="mine")
        assert caught.value.reason == "total"
        assert "mine" in str(caught.value)

    ask(Stand(never), total, timeout_s=30)

    async def idle(client: Client) -> None:
        with pytest.raises(TimedOut) as caught:
            await client.get("t1")
        assert caught.value.reason == "idle"

    stand = Stand(lambda _: Raw(b"{", stall=True))
    ask(stand, idle, idle_s=5, retries=1)
    assert stand.methods == [GET, GET]


def test_row_56_no_connection_in_time() -> None:
    async def never(host: str, port: int, /) -> list[str]:
        await asyncio.sleep(60)
        return []

    async def main() -> None:
        silent = Egress(resolver=never)
        async with Client("http://agent.example", connect_s=0.05, retries=0, egress=silent) as client:
            with pytest.raises(TimedOut) as caught:
                await client.send("hi")
            assert caught.value.reason == "connect"

    asyncio.run(main())


def test_a_deadline_of_one_call_and_the_task_it_names() -> None:
    def script(asked: Asked) -> Any:
        if asked.method == SUBSCRIBE:
            return Frames([task(WORKING)], stall=True)
        return task(WORKING) if asked.method == SEND else stored(WORKING)

    async def talk(client: Client) -> None:
        with pytest.raises(TimedOut, match="task t1 goes on") as caught:
            await client.send("hi", timeout_s=7)
        assert caught.value.reason == "total"
        with pytest.raises(TimedOut, match="t1"):
            await client.wait("t1", timeout_s=3)

    ask(Stand(script), talk)


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"idle_s": float("inf")}, "idle_s is inf"),
        ({"retries": -1}, "retries is -1"),
        ({"version": "2.0"}, "give 1.0 or 0.3"),
        ({"card_ttl_s": -1}, "card_ttl_s is -1"),
        ({"bindings": ["SOAP"]}, "bindings has 'SOAP'; spoken here are JSONRPC"),
    ],
)
def test_options_that_make_no_sense_are_named(options: dict[str, Any], fix: str) -> None:
    with pytest.raises(Misuse, match=fix):
        Client(HOME, **options)


def test_a_url_that_is_none_is_named() -> None:
    for url in ("", "agent.example", "ftp://agent.example", "https://user:pass@agent.example"):
        with pytest.raises(Misuse, match="url: "):
            Client(url)


def test_content_that_is_none_is_named() -> None:
    async def talk(client: Client) -> None:
        for content, fix in (
            (b"bytes", "content is bytes"),
            ([1], r"content\[0\] is int"),
            ([], "at least one"),
            (7, "content is int"),
        ):
            with pytest.raises(Misuse, match=fix):
                await client.send(content)  # pyright: ignore[reportArgumentType]
        with pytest.raises(Misuse, match="task_id is empty"):
            await client.get("")
        with pytest.raises(Misuse, match="timeout_s is -1"):
            await client.send("hi", timeout_s=-1)

    ask(Stand([]), talk)


def test_a_wrong_field_is_the_agents_word() -> None:
    async def talk(client: Client) -> None:
        with pytest.raises(InvalidParams, match="there is no skill"):
            await client.send("hi", skill="no-such")
        with pytest.raises(UnsupportedOperation):
            done = await client.send("echo x")
            await client.send("more", task_id=done.task_id)

    call(talk)


def test_secrets_are_in_no_repr_and_no_error() -> None:
    async def talk(client: Client) -> None:
        with pytest.raises(Unauthenticated) as caught:
            await client.send("hi")
        assert (
            "s3cret"
            not in f"{caught.value!r} {caught.value} {client!r} {vars(client)!r} {client.explanation}"
        )

    ask(Stand(lambda _: Http(401)), talk, bearer="s3cret")


def test_a_card_that_cannot_be_fetched_now_is_fetched_again() -> None:
    class Shy(Stand):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            if self.cards < 2 and scope["path"].startswith("/.well-known/"):
                self.cards += 1
                await self._plain(send, Http(503))
                return
            await super().__call__(scope, receive, send)

    async def talk(client: Client) -> None:
        assert (await client.send("hi")).text == "ok"

    stand = Shy([task(COMPLETED, "ok")])
    ask(stand, talk)
    assert (stand.cards, stand.methods) == (3, [SEND])


def test_cli_01_every_request_says_its_version() -> None:
    stand = Stand(
        lambda asked: (
            Frames(hello())
            if "Stream" in asked.method or "Subscribe" in asked.method
            else task(COMPLETED)["task"]
        )
    )

    async def talk(client: Client) -> None:
        await client.send("hi")
        await client.stream("hi").finish()
        await client.subscribe("t1").finish()
        await client.get("t1")
        await client.cancel("t1")

    ask(stand, talk)
    assert {asked.headers["a2a-version"] for asked in stand.asked} == {"1.0"}


# What Arbiter's own calls to other agents lack.


def test_arb_1_who_leaves_a_stream_can_come_back_for_the_rest_of_it() -> None:
    async def talk(client: Client) -> None:
        async with client.stream("count 20 5") as stream:
            async for update in stream:
                if update.kind == "artifact":
                    break
            assert stream.result is not None
            task_id, words = stream.result.task_id, stream.result.text.split()
        rest = client.subscribe(task_id, after=update.id)
        more = "".join([update.text async for update in rest]).split()
        count = [str(number) for number in range(1, 21)]
        # On a busy machine the frame that closes the answer brings text, and then has all of it.
        assert more == count[len(words) :] or more[-20:] == count
        found = await rest.finish()
        assert (found.state, found.text.split()) == (TaskState.COMPLETED, count)

    call(talk)


def test_arb_8_an_agent_on_this_machine_can_be_called_when_the_operator_names_it() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with asyncio.timeout(60), server, Client(f"http://127.0.0.1:{port}", retries=0) as client:
            with pytest.raises(RouteNotFound):
                await client.card()
            other = Client("http://agent.example", egress=Egress(resolver=_home), retries=0)
            with pytest.raises(Unreachable, match="not public"):
                await other.card()
            await other.close()

    async def _home(host: str, port: int, /) -> list[str]:
        return ["127.0.0.1"]

    asyncio.run(main())


def test_arb_13_a_dead_peer_delays_nobody_else() -> None:
    async def never(_: Asked) -> Any:
        await asyncio.sleep(1e6)

    async def main() -> float:
        loop = asyncio.get_running_loop()
        async with Stand(never).client() as dead, Stand([task(COMPLETED)]).client() as alive:
            waiting = asyncio.create_task(dead.send("hi"))
            began = loop.time()
            await alive.send("hi")
            took = loop.time() - began
            waiting.cancel()
            return took

    assert leap(main()) == 0


def test_an_answer_that_is_too_large_is_not_asked_for_elsewhere() -> None:
    interfaces = [
        {"url": f"{HOME}/a2a", "protocolBinding": binding, "protocolVersion": "1.0"}
        for binding in ("JSONRPC", "HTTP+JSON")
    ]
    stand = Stand(lambda _: task(COMPLETED, "x" * (17 << 20)), card(supportedInterfaces=interfaces))

    async def main() -> None:
        async with stand.client() as client:
            with pytest.raises(Unreachable, match="over 16777216 bytes.*read it with stream"):
                await client.send("hi")
            assert stand.methods == [SEND]
            with pytest.raises(Unreachable, match="over 16777216 bytes.*read it with stream"):
                await client.wait("t1")
            assert stand.methods == [SEND, GET]

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_client_goes_on_in_the_next_event_loop_but_not_in_two_at_once() -> None:
    mock = InProcessMock(Reply(text="here"))
    client = Client(mock.listen())

    async def main() -> None:
        await client.send("hi")
        with pytest.raises(Misuse, match="another event loop; make one for each, or a SyncClient"):
            await asyncio.to_thread(lambda: asyncio.run(client.send("hi")))

    try:
        assert asyncio.run(client.send("hi")).text == "here"
        asyncio.run(main())
        asyncio.run(client.close())
        gc.collect()
    finally:
        mock.close()


def test_a_method_that_a_liar_has_in_its_own_version_is_found() -> None:
    def answer(asked: Asked) -> Any:
        if "/" not in asked.method:
            return Error(-32601)
        return {"tasks": [stored(COMPLETED)]} if asked.method == "tasks/list" else Error(-32001)

    def poor(asked: Asked) -> Any:
        return Error(-32601)

    async def main() -> None:
        async with Stand(answer).client() as client:
            assert len((await client.list()).tasks) == 1
        async with Stand(poor).client() as client:
            with pytest.raises(UnsupportedOperation, match="no ListTasks"):
                await client.list()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("own", "asked"),
    [
        ({"protocolVersion": "0.3.0", "url": f"{HOME}/a2a", "preferredTransport": "JSONRPC"}, "tasks/get"),
        ({}, SUBSCRIBE),
    ],
    ids=["0.3", "1.0"],
)
def test_who_waits_at_an_agent_of_0_3_does_not_subscribe(own: dict[str, str], asked: str) -> None:
    """Agents on the SDK of 0.3 store what a task makes once for each stream of it."""
    described = {**card(), **own}
    if own:
        del described["supportedInterfaces"]
    looks = 0

    def script(said: Asked) -> Any:
        nonlocal looks
        if said.method == SUBSCRIBE:
            return Frames([task(WORKING), task(COMPLETED, "found")])
        looks += 1
        return stored(WORKING) if looks == 1 else stored(COMPLETED, "found")

    stand = Stand(script, described)

    async def talk(client: Client) -> None:
        assert (await client.wait("t1")).text == "found"

    ask(stand, talk)
    assert stand.methods[1] == asked
    assert "tasks/resubscribe" not in stand.methods


def test_a_0_3_agent_reads_the_work_in_both_metadata() -> None:
    stand = Stand(lambda _: task(COMPLETED)["task"])
    named = {"skillHint": "s", "correlationId": "co", "parentId": "pa"}

    async def talk(client: Client) -> None:
        await client.send("hi", skill="s", correlation_id="co", parent_id="pa", metadata={"own": 1})

    ask(stand, talk, version="0.3")
    (asked,) = [one for one in stand.asked if one.method == "message/send"]
    assert asked.params["metadata"] == {**named, "own": 1}
    assert asked.params["message"]["metadata"] == {**named, "skillId": "s"}
