"""How receivers are told, against a local server: signed webhooks, and what apprise makes of its URLs."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.fleet.notify.desk import Desk, desk
from trunkline.errors import Misuse
from trunkline.fleet.notify import channels
from trunkline.fleet.notify.channels import AppriseChannel, WebhookChannel, check_receivers
from trunkline.fleet.notify.notice import NoticeText
from trunkline.fleet.notify.receiver import NoticeReceiver
from trunkline.net import webhook_signature
from trunkline.net.egress import Egress
from trunkline.net.fetch import Fetcher

__all__ = ["desk"]
SAID = NoticeText("an-id", "desk asks: Which?", "Which?\nTask t", {"type": "inbox.question", "taskId": "t"})
# Of what apprise imports.
IGNORED = "ignore:'imghdr':DeprecationWarning"
NOW = 1_800_000_000_000


def test_a_webhook_is_signed_and_its_answer_counts(desk: Desk) -> None:
    key = Ed25519PrivateKey.generate()

    async def main() -> list[str]:
        fetcher = Fetcher(Egress(hosts=["127.0.0.1"]))
        url = f"http://{desk.place}/hook?canary"

        def sign(id: str, moment: int, body: bytes) -> str:
            return webhook_signature.sign(key, id, moment, body)

        found: list[str] = []
        for status in (204, 302, 500):
            desk.status = status
            found.append(await WebhookChannel(url, fetcher, sign, lambda: NOW).tell(SAID))
        found.append(await WebhookChannel(url, fetcher, None, lambda: NOW).tell(SAID))
        found.append(await WebhookChannel("http://127.0.0.1:1", fetcher, None, lambda: NOW).tell(SAID))
        await fetcher.close()
        return found

    assert asyncio.run(main()) == ["", "status 302", "status 500", "status 500", "connect"]
    path, headers, body = desk.heard[0]
    assert path == "/hook?canary"
    assert json.loads(body) == {
        "content": "desk asks: Which?\nTask t", "id": "an-id", "type": "inbox.question", "taskId": "t",
    }  # fmt: skip
    assert webhook_signature.verify(headers, body, [key.public_key()], NOW / 1000) == "an-id"
    assert "webhook-signature" not in desk.heard[3][1]


@pytest.mark.parametrize(
    ("receivers", "why"),
    [
        (["a", "a"], "notify: two receivers are called a"),
        ([{"name": "a", "webhook": "ftp://canary"}], "notify a: its address cannot be called"),
        ([{"name": "a", "webhook_env": "NOPE"}], "notify a: the environment has no NOPE"),
        ([{"name": "a", "apprise": "nonsense://canary"}], "notify a: apprise does not know such a URL"),
    ],
)
@pytest.mark.filterwarnings(IGNORED)
def test_receivers_that_could_not_be_told_are_named(receivers: list[Any], why: str) -> None:
    given = [{"name": one, "webhook": "http://x"} if isinstance(one, str) else one for one in receivers]
    with pytest.raises(Misuse, match=why) as refused:
        check_receivers(msgspec.convert(given, list[NoticeReceiver]), dict[str, str]().get)
    assert "canary" not in str(refused.value)


@pytest.mark.filterwarnings(IGNORED)
def test_apprise_tells_by_its_urls(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    pytest.importorskip("apprise")
    channel = AppriseChannel(f"json://user:canary@{desk.place}/told")
    assert asyncio.run(channel.tell(SAID)) == ""
    path, _, body = desk.heard[0]
    assert (path, json.loads(body)["title"], json.loads(body)["message"]) == ("/told", SAID.title, SAID.text)
    desk.status = 500
    assert asyncio.run(channel.tell(SAID)) == "refused"
    assert "canary" not in caplog.text
    check_receivers(
        [NoticeReceiver(name="a", apprise="json://x"), NoticeReceiver(name="b", webhook="http://x")],
        dict[str, str]().get,
    )


def test_a_system_that_bounds_no_memory_tells_all_the_same(desk: Desk) -> None:
    pytest.importorskip("apprise")
    program = Path(channels.__file__).with_name("apprise_process.py")
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
        telling = asyncio.create_task(channel.tell(SAID))
        assert await asyncio.to_thread(is_asked.wait, 30)
        telling.cancel()
        await asyncio.wait([telling])

    def wait(method: str, path: str, body: bytes) -> bytes:
        is_asked.set()
        is_left.wait(30)
        return b""

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    desk.answer = wait
    channel = AppriseChannel(f"json://{desk.place}/told")
    asyncio.run(main())
    is_left.set()
    assert [one.returncode for one in begun] == [-9]


def test_without_its_extra_a_receiver_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "apprise", None)
    with pytest.raises(Misuse, match=r"pip install 'trunkline\[notify\]'"):
        AppriseChannel("json://127.0.0.1")
