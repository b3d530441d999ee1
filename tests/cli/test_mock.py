"""`trunkline mock`: what it serves, says and leaves behind, as a process of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.conftest import Run
from trunkline.client.sync import SyncClient
from trunkline.demo.agent import agent
from trunkline.errors import Refused
from trunkline.mock.serve import BackgroundServer

SCRIPT = Path(sys.executable).with_name("trunkline")
SCENARIO = """\
agents:
  - name: scribe
    agent: {name: Scribe}
    rules:
      - {name: greet, when: {contains: hello}, reply: Hi there}
    expect:
      - {rule: greet, count: 1}
      - {when: {contains: bye}}
  - name: other
    rules: [{reply: {message: I am the other}}]
"""


class Running:
    """A `trunkline mock` that runs, and what it says."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self.output = ""

    def url(self) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"mock\.serving .*url=(\S+)", line):
                return found[1]
        raise AssertionError("".join(self.lines))

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        self.output, rest = self.process.communicate(timeout=120)
        self.lines += rest.splitlines()
        return self.process.returncode


@contextmanager
def running(tmp_path: Path, *words: str) -> Iterator[Running]:
    process = subprocess.Popen(
        [SCRIPT, "mock", *words, "--port", "0"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Running(process)
    finally:
        process.kill()
        process.communicate(timeout=120)


def test_a_file_is_served_and_its_expectations_judged(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(SCENARIO, encoding="utf-8")
    with running(tmp_path, "scenario.yaml") as mock:
        scribe, other = mock.url(), mock.url()
        assert (scribe.rsplit("/", 1)[1], other.rsplit("/", 1)[1]) == ("scribe", "other")
        with SyncClient(scribe) as client:
            assert client.send("hello").text == "Hi there"
            with pytest.raises(Refused, match="no rule of the mock fits"):
                client.send("what?")
        with SyncClient(other) as client:
            assert client.send("who?").text == "I am the other"
        assert mock.end() == 1
    said = "\n".join(mock.lines)
    assert "mock.hit rule='greet'" in said
    assert "mock.unmatched" in said and "text='what?'" in said
    assert mock.output == "Scribe: expected at least 1 of messages with contains 'bye', and 0 came\n"


def test_an_agent_is_recorded_and_replayed(tmp_path: Path) -> None:
    with BackgroundServer(agent.asgi(store="memory:", drain_limit=1)) as url:
        with running(tmp_path, "record", url, "-o", "demo.yaml") as recorder:
            proxy = recorder.url()
            connection = HTTPConnection(urlsplit(proxy).netloc, timeout=60)
            connection.request("GET", "/.well-known/agent-card.json", headers={"Host": "evil.example"})
            assert connection.getresponse().status == 403
            connection.close()
            with SyncClient(proxy) as client:
                real = client.send("echo hi").text, client.stream("count 3").finish().text
            assert recorder.end() == 0
    assert any("mock.written file=demo.yaml messages=2" in line for line in recorder.lines)
    assert (tmp_path / "demo.yaml").stat().st_mode & 0o777 == 0o600
    with running(tmp_path, "demo.yaml") as mock:
        with SyncClient(mock.url()) as client:
            assert (client.send("echo hi").text, client.stream("count 3").finish().text) == real
            assert client.card().name == "Trunkline demo"
        assert mock.end() == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("none.yaml",), "none.yaml: no such file"),
        (("open.yaml", "--host", "0.0.0.0"), "say --open"),
        (("record", "nowhere"), "not the URL of an agent"),
        (("record", "http://127.0.0.1:1", "-o", "no/such/place.yaml"), "no/such is no folder"),
    ],
)
def test_mistakes_are_named(trunkline: Run, words: tuple[str, ...], said: str) -> None:
    Path("open.yaml").write_text("rules: []\n", encoding="utf-8")
    code, _, complaint = trunkline("mock", *words)
    assert code == 2
    assert said in complaint
