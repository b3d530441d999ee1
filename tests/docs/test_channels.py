"""The page about channels: its receivers are valid, and its channel of Slack sends, asks and answers."""

from __future__ import annotations

import hashlib
import hmac
import sys
from pathlib import Path
from urllib.parse import urlencode

import msgspec
import pytest

from tests.docs.pages import blocks
from tests.fleet.notify.desk import ChannelOffice, Desk, channel_office, desk
from tests.fleet.office import NORTH
from trunkline.clock import now_ms
from trunkline.fleet.notify.channels import find_kind
from trunkline.fleet.notify.receiver import NoticeReceiver
from trunkline.yaml_reader import read_yaml

__all__ = ["desk"]
PAGE = "docs/channels.md"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_channels.py").write_text(blocks(PAGE, "python")[0])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_channels", raising=False)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("page", [PAGE, "docs/hub.md"])
def test_the_receivers_of_the_page_are_valid(page: str) -> None:
    (block,) = [one for one in blocks(page, "yaml") if one.startswith("notify:")]
    found = read_yaml(block.replace("64-HEX-DIGITS", f'"{"0" * 64}"'), page)
    assert found is not None
    for one in msgspec.convert(found[0], dict[str, list[NoticeReceiver]])["notify"]:
        assert callable(find_kind(one.kind))


@pytest.mark.usefixtures("own")
def test_the_channel_of_slack_takes_a_command_and_sends_the_result(desk: Desk) -> None:
    async def work(at: ChannelOffice) -> None:
        body = urlencode({"trigger_id": "1", "user_name": "ada", "text": "hello"}).encode()
        moment = str(now_ms() // 1000)
        signed = hmac.new(b"secret", b"v0:%b:%b" % (moment.encode(), body), hashlib.sha256).hexdigest()
        headers = {"X-Slack-Request-Timestamp": moment, "X-Slack-Signature": f"v0={signed}"}
        shown = (await at.client.post("/channels/sales", content=body, headers=headers)).json()["text"]
        (item,) = (await at.at.get("root", "/api/tasks"))["items"]
        assert shown == f"ada asks: hello (task {item['taskId']})"
        desk.status = 200
        await at.settled(item["taskId"], "completed")
        assert desk.bodies() == [{"text": "desk: completed\ndid hello"}]
        forged = {**headers, "X-Slack-Signature": "v0=00"}
        assert (await at.client.post("/channels/sales", content=body, headers=forged)).status_code == 401

    receiver = NoticeReceiver(
        name="sales",
        channel="own_channels:Slack",
        options={"url_env": "URL", "secret_env": "SECRET"},
        calls=True,
        tenants=(NORTH,),
    )
    channel_office(work, [receiver], URL=f"http://{desk.place}/slack", SECRET="secret")
