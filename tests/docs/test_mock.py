"""The page on mocks: its scenarios, its tests and its commands, as printed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import openai
import pytest

from tests.docs.pages import ROOT, blocks
from tests.mock.inner import run_tests
from trunkline.client.sync import SyncClient
from trunkline.mock.faults import OPERATIONS, Kind
from trunkline.mock.in_process import InProcessMock
from trunkline.mock.quirks import PRESETS
from trunkline.mock.scenario import Persona, Reply, When
from trunkline.wire.types import TaskState

PAGE = "docs/mock.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
MODEL, TRAVEL, FAULTY, EXPECTING = blocks(PAGE, "yaml")
SERVE, SEND, RECORD, REPLAY = [block.splitlines() for block in blocks(PAGE, "sh")]
COMMAND = [sys.executable, "-c", "from trunkline.cli.main import main; main()"]


@contextmanager
def served(folder: Path, line: str) -> Iterator[str]:
    """A mock that the page starts, on a free port; ended as a reader ends it."""
    words = re.sub(r" --port \d+", "", line).split()[1:]
    process = subprocess.Popen(
        [*COMMAND, *words, "--port", "0"],
        cwd=folder,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    reading = threading.Thread(target=process.stderr.read)
    try:
        found = next(re.finditer(r"url=(\S+)", "".join([process.stderr.readline()])))
        reading.start()
        yield found[1]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        reading.join(60)
        process.stderr.close()


def test_the_model_answers_as_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_text(MODEL, encoding="utf-8")
    (line,) = [line for line in TEXT.splitlines() if line.startswith("trunkline mock model.yaml --openai")]
    with served(tmp_path, line) as url:
        client = openai.OpenAI(base_url=url, api_key="none")
        answers = [
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
            for text in ("Hello!", "read it", "else")
        ]
    messages = [one.choices[0].message for one in answers]
    assert [one.content for one in messages] == ["Good morning.", None, "I do not know."]
    assert messages[1].tool_calls


def test_the_scenario_and_its_recording(tmp_path: Path) -> None:
    (tmp_path / "scenario.yaml").write_text(TRAVEL, encoding="utf-8")
    told: list[str] = []
    with (
        served(tmp_path, SERVE[0]) as url,
        served(tmp_path, RECORD[0].replace("http://127.0.0.1:8000", url)) as tap,
    ):
        for line in SEND:
            words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', line)]
            words = [word.replace("http://127.0.0.1:8000", tap) for word in words[1:]]
            done = subprocess.run(
                [*COMMAND, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
            )
            told.append(done.stdout + done.stderr)
    assert "Good morning." in told[0]
    assert "On which day?" in told[1]
    with served(tmp_path, REPLAY[0]) as url, SyncClient(url) as client:
        assert client.send("hello there").text == "Good morning."
        assert client.send("to Paris", skill="book").question == "On which day?"
        assert client.card().name == "Travel desk"


def test_the_rest_of_the_scenario() -> None:
    mock = InProcessMock(TRAVEL)
    with mock.sync_client() as client:
        chat = client.chat(skill="book")
        chat.say("to Paris")
        booked = chat.say("Monday")
        assert (booked.text, booked.data) == ("Booked and paid.", {"price": 120})
        assert client.send("slow").text == "At last."
        assert client.send("sell").state is TaskState.REJECTED


def test_the_faults() -> None:
    mock = InProcessMock(FAULTY)
    with mock.sync_client() as client:
        assert client.stream("a report").finish().text == "onetwothree"
        assert client.send("a report").text == "onetwothree"
    assert max(mock.runs.values()) == 1
    assert {fault.do for each in mock.received for fault in each.faults} == {"cut", "status", "lie"}


def test_the_expectations() -> None:
    mock = InProcessMock(EXPECTING)
    with mock.sync_client() as client:
        client.send("hello")
        mock.verify()
        client.send("hello again")
    with pytest.raises(AssertionError, match="expected 1 of messages with rule 'greet', and 2 came"):
        mock.verify()


def test_the_tests(tmp_path: Path) -> None:
    (tmp_path / "test_page.py").write_text(blocks(PAGE, "python")[0], encoding="utf-8")
    said = run_tests(tmp_path)
    assert "4 passed" in said, said


@pytest.mark.parametrize(
    "names",
    [
        get_args(Kind),
        OPERATIONS,
        tuple(PRESETS),
        Reply.__struct_fields__,
        When.__struct_fields__,
        Persona.__struct_fields__,
    ],
    ids=["faults", "operations", "dialects", "reply", "when", "agent"],
)
def test_every_word_of_a_scenario_is_on_the_page(names: tuple[str, ...]) -> None:
    unsaid = {"metadata", "url"}
    assert [name for name in names if name not in unsaid and not re.search(rf"\b{name}\b", TEXT)] == []
