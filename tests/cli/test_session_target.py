"""Which word is the agent, and what a reference stands for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from trunkline.cli.session import resolve_target
from trunkline.errors import Misuse, Unreadable


@pytest.mark.parametrize(
    ("told", "url"),
    [
        ("agent.example", "https://agent.example"),
        ("agent.example:8443/agents/x", "https://agent.example:8443/agents/x"),
        ("localhost:8000", "http://localhost:8000"),
        ("127.0.0.1", "http://127.0.0.1"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("localhost.example", "https://localhost.example"),
        ("http://agent.example/a2a", "http://agent.example/a2a"),
    ],
)
def test_where_an_agent_is(told: str, url: str) -> None:
    assert resolve_target(told).url == url


@pytest.mark.parametrize("told", ["http://", "https:///path", "two words", "?"])
def test_what_names_no_agent(told: str) -> None:
    with pytest.raises(Misuse):
        resolve_target(told)


def test_a_card_that_names_no_interface(tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text('{"name": "x", "version": "1", "skills": []}')
    with pytest.raises(Unreadable):
        resolve_target(str(tmp_path / "card.json"))


@pytest.mark.parametrize("words", [("send", "hi"), ("card", "get"), ("get", "t1"), ("list",)])
def test_no_agent_is_named(trunkline: Run, words: tuple[str, ...]) -> None:
    code, _, err = trunkline(*words)
    assert code == 2
    assert "A2ACLI_AGENT_CARD" in err


def test_one_agent_at_a_time(trunkline: Run) -> None:
    for words in (("card", "a.example", "b.example"), ("card", "get", "a.example", "-a", "b.example")):
        code, _, err = trunkline(*words)
        assert code == 2
        assert "one agent at a time" in err


def test_a_configured_agent_never_changes_which_word_is_which(
    trunkline: Run, demo_url: str, monkeypatch: Any
) -> None:
    monkeypatch.setenv("A2ACLI_AGENT_CARD", demo_url)
    assert "hello" in trunkline("send", "hello")[1]
    code, _, err = trunkline("send", demo_url)
    assert code == 2
    assert "nothing to send" in err
