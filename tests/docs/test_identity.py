"""The identity page: its commands run one after the other as printed, its settings load, its agent is served."""

from __future__ import annotations

import json
import shlex
import subprocess
import tomllib
from pathlib import Path

import httpx2

from tests.cli.conftest import Run, trunkline
from tests.docs.pages import blocks
from tests.harness import ServerProcess
from trunkline.config import Issuer, load

__all__ = ["trunkline"]

PAGE = "docs/identity.md"
LINES = [line for block in blocks(PAGE, "sh") for line in block.splitlines()]


def run(trunkline: Run, words: list[str]) -> str:
    if words[0] == "trunkline":
        code, out, err = trunkline(*words[1:])
        assert code == 0, err
        return out
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_beside_a_server(tmp_path: Path, trunkline: Run) -> None:
    (tmp_path / "clerk.py").write_text(
        blocks(PAGE, "python")[0].replace(', keys=["a-key-of-this-agent"]', "")
    )
    said: dict[str, str] = {}
    token = key_id = ""
    with ServerProcess(tmp_path, "clerk:agent") as server:
        for line in LINES:
            line = line.replace("http://127.0.0.1:8000", server.base).replace("tl_ID_SECRET", token)
            words = [key_id if word == "ID" else word for word in shlex.split(line)]
            if words[0] == "curl":
                words.insert(1, "-s")
            out = run(trunkline, words)
            if words[2] == "create":
                key_id, token = out.split()[1], out.splitlines()[2].strip()
            if words[0] == "curl":
                assert json.loads(out)["tasks"] == [], out
            said[" ".join(words[1:3])] = out
        refused = httpx2.get(f"{server.base}/tasks", headers={"X-API-Key": token}, timeout=60)
    assert "from now on callers must send one" in said["keys create"]
    assert key_id in said["keys list"]
    assert refused.status_code == 401, "it was revoked"
    assert {"keys create", "keys list", "keys rotate", "keys revoke"} <= said.keys()


def test_the_settings(tmp_path: Path) -> None:
    (block,) = blocks(PAGE, "toml")
    (tmp_path / "trunkline.toml").write_text(block)
    login, builds = load(file=tmp_path / "trunkline.toml").issuers
    assert (login.jwks_url, login.owner_claim) == ("", "sub")
    assert (builds.tenant, builds.default_scopes) == ("builds", ("tasks:read",))
    named = {name for table in tomllib.loads(block)["issuers"] for name in table}
    text = Path(__file__).parents[2].joinpath(PAGE).read_text(encoding="utf-8")
    assert named <= set(Issuer.__struct_fields__)
    assert [name for name in Issuer.__struct_fields__ if f"`{name}`" not in text] == []


def test_the_agent(tmp_path: Path) -> None:
    (tmp_path / "clerk.py").write_text(blocks(PAGE, "python")[0])
    with ServerProcess(tmp_path, "clerk:agent") as server:
        public = httpx2.get(f"{server.base}/.well-known/agent-card.json", timeout=60).json()
        headers = {"X-API-Key": "a-key-of-this-agent"}
        whole = httpx2.get(f"{server.base}/v1/card", headers=headers, timeout=60).json()
    assert [[skill["id"] for skill in card["skills"]] for card in (public, whole)] == [
        ["greet"],
        ["greet", "pay"],
    ]
