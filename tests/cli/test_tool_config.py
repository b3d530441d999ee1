"""`trunkline config show`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from trunkline.cli.options import OPTIONS
from trunkline.config import Settings


def test_every_value_has_its_source(trunkline: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("A2ACLI_POLL_INTERVAL=9s\nA2ACLI_BEARER=hush-hush\n")
    above = tmp_path / "home/.config/a2a-cli"
    above.mkdir(parents=True)
    (above / ".env").write_text("A2ACLI_TRANSPORT=HTTP+JSON\n")
    monkeypatch.setenv("A2ACLI_A2A_VERSION", "0.3")
    code, out, _ = trunkline("config", "show", "--timeout", "1m30s")
    assert code == 0
    lines = out.splitlines()
    assert "timeout: 90.0 (flag)" in lines
    assert "a2a-version: 0.3 (environment)" in lines
    assert f"poll-interval: 9.0 ({tmp_path / '.env'})" in lines
    assert f"bearer: *** ({tmp_path / '.env'})" in lines
    assert f'transport: ["HTTP+JSON"] ({above / ".env"})' in lines
    assert "output: text (default)" in lines
    assert "insecure: no (default)" in lines
    assert "hush-hush" not in out
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    shown = json.loads(trunkline("config", "show", "-o", "json")[1])["settings"]
    assert shown.keys() == {name for name, option in OPTIONS.items() if option.lasting}
    assert shown["bearer"] == {"value": "***", "source": str(tmp_path / ".env")}
    assert before == sorted(path for path in tmp_path.rglob("*") if path.is_file())


def test_another_file_takes_the_place_of_the_local_one(trunkline: Run, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A2ACLI_AGENT_CARD=https://near.example\n")
    (tmp_path / "other.env").write_text("A2ACLI_TIMEOUT=3s\n")
    out = trunkline("config", "show", "--config", "other.env")[1]
    assert "agent-card: not set (default)" in out
    assert "timeout: 3.0 (other.env)" in out


def test_a_wrong_file_is_an_error_like_others(trunkline: Run, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("A2ACLI_TIMEOUT=soon\n")
    code, out, _ = trunkline("config", "show", "-o", "json")
    error = json.loads(out)["error"]
    assert (code, error["code"]) == (2, "A2ACLI_ERR_USAGE")
    assert str(tmp_path / ".env") in error["message"]


def test_nothing_of_a_call_is_kept(trunkline: Run, demo_url: str, tmp_path: Path) -> None:
    trunkline("send", demo_url, "hello")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_every_server_setting_is_shown_with_its_source_and_without_secrets(
    trunkline: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trunkline.toml").write_text('store = "postgresql://me:planted-word@db/x"\n')
    monkeypatch.setenv("TRUNKLINE_KEYS", "planted-key-1,planted-key-2")
    code, out, _ = trunkline("config", "show", "--server")
    assert code == 0 and "planted" not in out
    lines = out.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(Settings.__struct_fields__)
    assert {"port: 8000 (default)", 'keys: ["***","***"] (TRUNKLINE_KEYS)'} <= set(lines)
    assert lines[0].startswith("store: postgresql://") and lines[0].endswith("(trunkline.toml)")
    shown = json.loads(trunkline("config", "show", "--server", "--json")[1])["settings"]
    assert shown["port"] == {"value": 8000, "source": "default"}


def test_variables_that_set_nothing_are_reported(trunkline: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRUNKLINE_RETENTON", "3d")
    code, out, err = trunkline("config", "show", "--server")
    assert (code, err) == (0, "Warning: TRUNKLINE_RETENTON sets nothing; did you mean TRUNKLINE_RETENTION?\n")
    assert "retention: not set" in out
    monkeypatch.setenv("A2ACLI_TIMOUT", "3s")
    monkeypatch.setenv("A2ACLI_ZZZ", "3s")
    assert trunkline("card", "http://127.0.0.1:1")[2].splitlines()[:2] == [
        "Warning: A2ACLI_TIMOUT sets nothing; did you mean A2ACLI_TIMEOUT?",
        "Warning: A2ACLI_ZZZ sets nothing; trunkline config show lists the names",
    ]


def test_the_settings_of_a_hub_come_from_its_file(trunkline: Run, tmp_path: Path) -> None:
    (tmp_path / "hub.yaml").write_text("name: here\nsettings: {retention: 7d}\n")
    lines = trunkline("config", "show", "--server")[1].splitlines()
    assert "retention: 7d (hub.yaml)" in lines
    assert "store: sqlite:///trunkline.db (default)" in lines
