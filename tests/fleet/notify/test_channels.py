"""Kinds of channels: built in, installed, and of the workspace; and which receivers are refused."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fleet.notify.desk import ChannelOffice, channel_office
from tests.fleet.office import NORTH
from trunkline.errors import Misuse
from trunkline.fleet.notify import channels
from trunkline.fleet.notify.channels import BUILT_IN, GROUP, check_receivers, find_kind
from trunkline.fleet.notify.receiver import NoticeReceiver

# Apprise imports a module that is deprecated.
IGNORED = "ignore:'imghdr':DeprecationWarning"
TEAM = """
from trunkline.fleet.notify import Channel, ChannelCall, ChannelMessage, ChannelResponse
from msgspec import Struct

class Options(Struct, forbid_unknown_fields=True):
    room: str

class Team(Channel):
    def __init__(self, settings):
        self.room, self.sent = settings.read_options(Options).room, []

    async def send(self, message: ChannelMessage) -> str:
        self.sent.append((self.room, message.chat))
        return ""

    async def receive(self, request, hub):
        call = ChannelCall(id="1", by="grace", text=request.body.decode())
        return ChannelResponse.of_json({"task": await hub.call(call)})

class Silent(Channel):
    def __init__(self, settings):
        pass

    async def send(self, message):
        return ""

nothing = None
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_channels.py").write_text(TEAM)
    (tmp_path / "broken_channels.py").write_text("raise RuntimeError('no key')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_channels", raising=False)


@pytest.mark.parametrize(
    ("receivers", "why"),
    [
        (["a", "a"], "notify: two receivers are called a"),
        ([{"name": "a", "webhook": "ftp://canary"}], "notify a: its address cannot be called"),
        ([{"name": "a", "webhook_env": "NOPE"}], "notify a: the environment has no NOPE"),
        ([{"name": "a", "apprise": "nonsense://canary"}], "notify a: apprise does not know such a URL"),
        (
            [{"name": "a", "channel": "pigeon"}],
            "channel 'pigeon' not found; choose apprise, discord, webhook",
        ),
        (
            [{"name": "a", "channel": "no_such:Team"}],
            "'no_such:Team' cannot be imported: ModuleNotFoundError",
        ),
        ([{"name": "a", "channel": "broken_channels:Team"}], "cannot be imported: RuntimeError: no key"),
        ([{"name": "a", "channel": "own_channels:nothing"}], "is no class that makes channels"),
        ([{"name": "a", "channel": "own_channels:Team"}], "options.room: it is missing"),
        (
            [{"name": "a", "channel": "own_channels:Team", "options": {"room": 1}}],
            "options.room: expected string",
        ),
        (
            [{"name": "a", "channel": "own_channels:Silent", "calls": True}],
            "own_channels:Silent accept no calls",
        ),
        ([{"name": "a", "channel": "own_channels:Silent", "about": ["progress"]}], "progress needs messages"),
        ([{"name": "a", "webhook": "http://x", "calls": True}], "set webhook_secret_env"),
        (
            [{"name": "a", "channel": "discord", "options": {"channel": "1"}}],
            "options.token_env: it is missing",
        ),
    ],
)
@pytest.mark.filterwarnings(IGNORED)
@pytest.mark.usefixtures("own")
def test_receivers_that_could_not_be_told_are_named(receivers: list[Any], why: str) -> None:
    given = [{"name": one, "webhook": "http://x"} if isinstance(one, str) else one for one in receivers]
    with pytest.raises(Misuse, match=why) as refused:
        check_receivers(msgspec.convert(given, list[NoticeReceiver]), dict[str, str]().get)
    assert "canary" not in str(refused.value)


def test_an_installed_package_adds_a_kind_by_its_entry_point(
    own: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = EntryPoints([EntryPoint("team", "own_channels:Team", GROUP)])
    monkeypatch.setattr(channels, "entry_points", lambda group: points.select(group=group))
    receiver = NoticeReceiver(name="a", channel="team", options={"room": "r"})
    check_receivers([receiver], dict[str, str]().get)
    assert find_kind("team") is find_kind("own_channels:Team")
    assert set(BUILT_IN) == {"apprise", "discord", "webhook"}
    with pytest.raises(Misuse, match="choose apprise, discord, team, webhook"):
        find_kind("pigeon")


def test_a_channel_of_the_workspace_is_sent_questions_and_opens_tasks(own: None) -> None:
    async def work(at: ChannelOffice) -> None:
        response = await at.client.post("/channels/team", content=b"ask me")
        task = response.json()["task"]
        await at.settled(task, "input-required")
        channel: Any = at.told.channels["team"]
        assert channel.sent == [("lobby", f"desk asks: Which one?\nTask {task}")]
        (item,) = (await at.at.get("root", "/api/inbox"))["items"]
        assert item["principal"] == "team:grace"

    channel_office(
        work,
        [
            NoticeReceiver(
                name="team",
                channel="own_channels:Team",
                options={"room": "lobby"},
                calls=True,
                tenants=(NORTH,),
            )
        ],
    )
