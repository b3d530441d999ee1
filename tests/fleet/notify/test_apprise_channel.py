"""Messages by apprise, against a local server: what it makes of its URLs, and when its process ends."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any, cast

import msgspec
import pytest

from tests.fleet.notify.desk import Desk, desk, settings_of
from trunkline.errors import Misuse
from trunkline.fleet.notify import apprise_channel
from trunkline.fleet.notify.apprise_channel import AppriseChannel
from trunkline.fleet.notify.notice import ChannelMessage
from trunkline.fleet.notify.receiver import NoticeReceiver
from trunkline.net.fetch import Fetcher

__all__ = ["desk"]
SAID = ChannelMessage(
    "an-id", "desk asks: Which?", "Which?\nTask t", {"type": "inbox.question", "taskId": "t"}
)
# Apprise imports a module that is deprecated.
IGNORED = "ignore:'imghdr':DeprecationWarning"


def made(url: str) -> AppriseChannel:
    return AppriseChannel(settings_of(NoticeReceiver(name="a", apprise=url), cast("Fetcher", None)))


@pytest.mark.filterwarnings(IGNORED)
def test_apprise_tells_by_its_urls(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    pytest.importorskip("apprise")
    channel = made(f"json://user:canary@{desk.place}/told")
    assert asyncio.run(channel.send(SAID)) == ""
    path, _, body = desk.heard[0]
    assert (path, json.loads(body)["title"], json.loads(body)["message"]) == ("/told", SAID.title, SAID.text)
    desk.status = 500
    assert asyncio.run(channel.send(SAID)) == "refused"
    assert "canary" not in caplog.text


def test_a_system_that_bounds_no_memory_tells_all_the_same(desk: Desk) -> None:
    pytest.importorskip("apprise")
    program = Path(apprise_channel.__file__).with_name("apprise_process.py")
    # As some systems answer, whatever is asked for.
    fixed = (
        "import resource, runpy, sys\ndef setrlimit(*_): raise ValueError\nresource.setrlimit = setrlimit\n"
    )
    command = [sys.executable, "-c", f"{fixed}runpy.run_path({str(program)!r}, run_name='__main__')"]
    given = msgspec.json.encode([f"json://{desk.place}/told", SAID.title, SAID.text])
    subprocess.run(command, input=given, check=True, timeout=30)
    assert [path for path, _, _ in desk.heard] == ["/told"]


@pytest.mark.filterwarnings(IGNORED)
def test_what_apprise_waits_for_ends_with_the_attempt(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("apprise")
    begin, is_asked, is_left = asyncio.create_subprocess_exec, Event(), Event()
    begun: list[asyncio.subprocess.Process] = []

    async def noted(*command: str, **how: Any) -> asyncio.subprocess.Process:
        begun.append(await begin(*command, **how))
        return begun[0]

    async def main() -> None:
        telling = asyncio.create_task(channel.send(SAID))
        assert await asyncio.to_thread(is_asked.wait, 30)
        telling.cancel()
        await asyncio.wait([telling])

    def wait(method: str, path: str, body: bytes) -> bytes:
        is_asked.set()
        is_left.wait(30)
        return b""

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    desk.answer = wait
    channel = made(f"json://{desk.place}/told")
    asyncio.run(main())
    is_left.set()
    assert [one.returncode for one in begun] == [-9]


def test_without_its_extra_a_receiver_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(Misuse, match=r"pip install 'trunkline\[notify\]'"):
        made("json://127.0.0.1")
