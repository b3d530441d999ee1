"""What calling agents got wrong elsewhere, tried for real: PromptKit's and Arbiter's defects, over sockets."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from tests.client.agents import COMPLETED, HOME, Error, Http, Stand, card, task
from tests.client.test_client import WAYS
from tests.net.authority import Authority
from tests.net.targets import listening
from trunkline import Agent, Turn
from trunkline.bridge.tools import tools
from trunkline.client.client import Client
from trunkline.errors import RouteNotFound, TrunklineError, Unreachable, Unreadable, VersionNotSupported
from trunkline.mock.faults import cut as cut_at
from trunkline.mock.in_process import InProcessMock
from trunkline.mock.scenario import Reply, Rule, Scenario, When
from trunkline.net.in_process import InProcessHttpClient
from trunkline.wire.types import Message, Part, Task

T = TypeVar("T")
HOLD = [Rule(when=When(contains="hold"), reply=Reply(hold=True)), Rule(reply="free")]


@pytest.fixture
def holder() -> Iterator[InProcessMock]:
    """An agent on a socket that holds whoever says so, and answers all others."""
    mock = InProcessMock(HOLD)
    mock.listen()
    yield mock
    mock.close()


def within(work: Callable[[], Awaitable[T]], seconds: float = 30) -> T:
    async def main() -> T:
        async with asyncio.timeout(seconds):
            return await work()

    return asyncio.run(main())


@pytest.mark.parametrize(("binding", "version"), WAYS)
def test_pk_2_every_part_comes_back_as_it_went(binding: str, version: str) -> None:
    parts = [
        Part(text="words", metadata={"a": 1}),
        Part(raw="AP8=", media_type="image/png", filename="i.png", metadata={"b": 2}),
        Part(url="https://example.com/x", media_type="audio/wav", filename="x.wav", metadata={"c": 3}),
        Part(data={"deep": [{"x": None}]}, metadata={"d": 4}),
    ]
    agent = Agent("mirror", store="memory:", drain_limit=0, input_modes=["*/*"], output_modes=["*/*"])

    @agent.skill
    async def mirror(turn: Turn) -> Message:
        """Give it back."""
        return turn.message(list(turn.request.parts))

    async def main() -> None:
        app: Any = agent.asgi()
        async with (
            app.lifespan(),
            Client(HOME, http_client=InProcessHttpClient(app), version=version, bindings=[binding]) as client,
        ):
            for found in (await client.send(parts), await client.stream(parts).finish()):
                assert found.message is not None
                assert list(found.message.parts) == parts
                assert [file.content for file in found.files] == [b"\x00\xff", None]

    within(main)


def test_pk_5_streams_that_are_left_leave_nothing_behind(holder: InProcessMock) -> None:
    async def main() -> None:
        async with Client(holder.url) as client:
            await client.send("hi")

            async def leave(_: int) -> None:
                async with client.stream("hold") as stream:
                    await anext(stream)

            files, work = _open_files(), len(asyncio.all_tasks())
            for _ in range(10):
                await asyncio.gather(*map(leave, range(30)))
            while len(asyncio.all_tasks()) > work or _open_files() > files + 2:  # noqa: ASYNC110 - the system's
                await asyncio.sleep(0.01)

    within(main)


def _open_files() -> int:
    return len(list(Path(f"/proc/{os.getpid()}/fd").iterdir()))


def test_arb_13_many_held_streams_stand_in_nobodys_way(holder: InProcessMock) -> None:
    async def main() -> None:
        async with Client(holder.url) as client:
            streams = [client.stream("hold") for _ in range(150)]
            firsts = await asyncio.gather(*(anext(stream) for stream in streams))
            assert (await client.send("hi")).text == "free"
            assert (await client.cancel(cast("Task", firsts[0].notice.answer).id)).ended
            assert (await streams[0].finish()).ended
            for stream in streams:
                await stream.close()

    within(main)


def test_arb_13_a_remote_that_never_answers_holds_up_no_tools_but_its_own(holder: InProcessMock) -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    async def main() -> None:
        async with listening(silent) as port, Client(holder.url) as live:
            dead = Client(f"http://127.0.0.1:{port}", timeout_s=0.3, retries=0)
            async with dead, tools({"dead": dead, "live": live}) as box:
                assert [tool.agent for tool in box] == ["live"]
                assert "0.3 seconds" in box.missing["dead"]

    within(main, 10)


@pytest.mark.parametrize("dialect", ["promptkit", "arbiter", "quinn", "fasta2a"])
@pytest.mark.parametrize("cut", [0, 1, 3, 4])
def test_other_dialects_are_spoken_and_a_break_changes_nothing(dialect: str, cut: int) -> None:
    """A card at the old path, states of all spellings, no `kind`, an artifact for each chunk, no ids."""
    faults = (cut_at(cut, requests=[1], on=["stream"]),) if cut else ()
    mock = InProcessMock(
        Scenario(rules=(Rule(reply=Reply(stream=("a", "b", "c"))),), dialect=dialect, faults=faults)
    )
    text = "a\nb\nc" if dialect == "promptkit" else "abc"

    async def main() -> None:
        async with mock.client(poll_s=0.01) as client:
            found = await client.stream("hi").finish()
            assert (found.text, found.ok) == (text, True)
            assert found.text == (await client.get(found.task_id)).text
            if not cut:
                assert (await client.send("hi")).text == text

    within(main)
    assert set(mock.runs.values()) == {1}


def test_an_agent_that_has_nothing_but_send_is_streamed_from_all_the_same() -> None:
    stand = Stand(lambda asked: task(COMPLETED, "did it") if asked.method == "SendMessage" else Error(-32601))

    async def main() -> str:
        async with stand.client() as client:
            return (await client.stream("hi").finish()).text

    assert within(main) == "did it"
    assert stand.methods.count("SendMessage") == 1


# Which test shows the effect of each option of a client.
EFFECTS = {
    "auth": "test_oauth.py::test_one_token_for_many",
    "api_key": "test_credentials.py::test_an_api_key_goes_where_the_card_wants_it",
    "api_key_env": "test_executor.py::test_a_key_comes_from_the_environment",
    "bearer": "test_client.py::test_pk_10_every_option_has_an_effect",
    "bearer_env": "test_client_defects.py::test_pk_10_options_that_no_other_test_shows",
    "headers": "test_client.py::test_pk_10_every_option_has_an_effect",
    "version": "test_negotiation.py::test_cli_04_a_pinned_version_has_no_fallback",
    "bindings": "test_negotiation.py::test_preferred_bindings_come_first",
    "card": "test_session.py::test_a_given_card_is_not_fetched",
    "card_url": "test_client_defects.py::test_pk_10_options_that_no_other_test_shows",
    "card_ttl_s": "test_client_defects.py::test_pk_10_options_that_no_other_test_shows",
    "timeout_s": "test_client.py::test_row_56_total_and_idle_are_told_apart",
    "idle_s": "test_client.py::test_row_56_total_and_idle_are_told_apart",
    "connect_s": "test_client.py::test_row_56_no_connection_in_time",
    "poll_s": "test_stream.py::test_polls_slow_down_and_speed_up_again",
    "retries": "test_session.py::test_no_more_often_than_is_said",
    "deduplicates": "test_stream.py::test_the_operator_may_know_better_than_the_card",
    "verify_tls": "test_client_defects.py::test_pk_10_a_certificate_is_checked_unless_told_otherwise",
    "http_client": "test_client.py::test_row_54_every_operation_against_our_own_server",
    "transports": "test_negotiation.py::test_a_vendors_transport_is_used_like_ours",
    "egress": "test_client.py::test_row_56_no_connection_in_time",
}


def test_pk_10_no_option_is_without_a_test() -> None:
    assert list(EFFECTS) == list(inspect.signature(Client).parameters)[1:]
    for place in EFFECTS.values():
        file, _, name = place.partition("::")
        assert f"def {name}(" in (Path(__file__).parent / file).read_text(encoding="utf-8"), place


def test_pk_10_options_that_no_other_test_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere(Stand):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            known = scope["path"] == "/odd/place"
            path = "/.well-known/agent-card.json" if known else scope["path"].replace(".well-known", "none")
            await super().__call__({**scope, "path": path}, receive, send)

    monkeypatch.setenv("AGENT_TOKEN", "from-the-environment")
    stand = Elsewhere(lambda _: task(COMPLETED, "ok"))

    async def main() -> None:
        async with stand.client(card_url=f"{HOME}/odd/place", bearer_env="AGENT_TOKEN") as client:
            await client.send("hi")
            assert (await client.card()).name == "stand"
        assert (stand.cards, stand.asked[0].headers["authorization"]) == (1, "Bearer from-the-environment")
        async with stand.client(card_url=f"{HOME}/odd/place", card_ttl_s=0) as client:
            await client.card()
            await client.card()
        assert stand.cards == 3

    within(main)


def test_pk_10_a_certificate_is_checked_unless_told_otherwise(tmp_path: Path) -> None:
    async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await reader.read()

    async def main() -> None:
        tls = Authority(tmp_path).server("127.0.0.1")
        async with listening(nothing, tls) as port:
            url = f"https://127.0.0.1:{port}"
            async with Client(url, retries=0) as client:
                with pytest.raises(Unreachable, match="no trusted TLS connection"):
                    await client.card()
            async with Client(url, retries=0, verify_tls=False) as client:
                with pytest.raises(RouteNotFound):
                    await client.card()

    within(main)


@pytest.mark.parametrize(
    ("stand", "options", "kind", "said"),
    [
        (
            Stand(lambda _: Http(404), card(supportedInterfaces=[
                {"url": "localhost:50051", "protocolBinding": "GRPC", "protocolVersion": "1.0"}
            ])),
            {}, RouteNotFound, r"GRPC 1.0 at localhost:50051: not tried, as GRPC is not spoken here.*tried JSONRPC",
        ),
        (Stand(lambda _: Http(307, {"location": "https://new.example/a2a"})), {}, TrunklineError,
         r"HTTP 307: it sends callers on to https://new.example/a2a; if that is the agent, give that URL"),
        (Stand(lambda _: Http(200)), {}, Unreadable, r"with: nothing; .*message .* is not sent again: look for it"),
        (Stand(lambda _: Error(-32009, "only 1.0")), {"version": "0.3"}, VersionNotSupported,
         r"only 1.0; version 0.3 is pinned; leave it out"),
    ],
    ids=["grpc", "moved", "empty", "pinned"],
)  # fmt: skip
def test_what_went_wrong_and_what_to_do_is_said(
    stand: Stand, options: dict[str, Any], kind: type[Exception], said: str
) -> None:
    async def main() -> None:
        async with stand.client(**options) as client:
            with pytest.raises(kind, match=said):
                await client.send("hi")

    within(main)
