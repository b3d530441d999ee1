"""One entry of a registry file keeps its secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from trunkline.bridge.registry import AgentEntry, AuthEntry, expand_variables, normalize_keys
from trunkline.config import Secret
from trunkline.errors import Misuse


def test_a_token_is_never_shown(tmp_path: Path) -> None:
    entry = AgentEntry("a", "http://x", auth=AuthEntry(token=Secret("hunter2")))
    assert "hunter2" not in repr(entry)


def test_members_by_either_spelling_and_headers_as_they_are() -> None:
    raw = {"apiKeyEnv": "K", "skillFilter": {"blocklist": ["a"]}, "headers": {"X-Camel-Case": "v"}}
    assert normalize_keys(raw) == {
        "api_key_env": "K",
        "skill_filter": {"deny": ["a"]},
        "headers": {"X-Camel-Case": "v"},
    }


def test_variables_in_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TL_ONE", "1")
    monkeypatch.delenv("TL_TWO", raising=False)
    assert expand_variables("${TL_ONE}-${TL_TWO:-2}-$x-${}", "url") == "1-2-$x-${}"
    with pytest.raises(Misuse, match="url: the variable TL_TWO"):
        expand_variables("${TL_TWO}", "url")
