"""`trunkline keys …`: what each command prints and refuses, alone, beside a running server, on PostgreSQL."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx2
import pytest

from tests.harness import NO_TLS, ServerProcess

Command = Callable[..., tuple[int, str, str]]
STORE = ("--store", "sqlite:///tasks.db")


@pytest.fixture
def command(trunkline: Command) -> Command:
    """Run `trunkline keys`: exit code, output, complaint."""
    return partial(trunkline, "keys")


def made(command: Command, *args: str) -> tuple[str, str]:
    """The id and the token of a new key."""
    code, out, said = command("create", "--json", *args)
    assert (code, said) == (0, "")
    answer = json.loads(out)
    return answer["key"]["id"], answer["token"]


def states(command: Command, *store: str) -> dict[str, str]:
    return {key["id"]: key["state"] for key in json.loads(command("list", "--json", *store)[1])}


def test_a_key_is_made_listed_replaced_and_revoked(command: Command, tmp_path: Path) -> None:
    code, out, said = command("create", "--owner", "alice", "--scope", "tasks:read", "--expires", "90d")
    assert (code, said) == (0, "")
    first, _, token, _, once, notice = out.splitlines()
    key_id = first.split()[1]
    assert first.startswith(f"key {key_id} of alice (tenant default): tasks:read, until 20")
    assert token.strip().startswith(f"tl_{key_id}_")
    assert once == "It is shown this once."
    assert notice == "This is the first key in this store: from now on callers must send one."
    assert "first" not in command("create", "--owner", "bob", "--tenant", "blue")[1]

    head, *rows = command("list")[1].splitlines()
    assert head.split() == ["id", "owner", "tenant", "scopes", "state", "created", "expires"]
    assert [row.split()[1:3] for row in rows] == [["alice", "default"], ["bob", "blue"]]
    assert "tasks:read tasks:write" in rows[1]
    assert token.strip() not in "".join(rows)

    code, out, _ = command("rotate", key_id, "--grace", "1h")
    assert (code, out.splitlines()[-1]) == (0, "The secret before opens for another 1h.")
    assert token.strip() not in out
    assert command("revoke", key_id) == (0, f"key {key_id} of alice is revoked\n", "")
    assert set(states(command).values()) == {"active", "revoked"}
    assert command("rotate", key_id)[2].startswith(f"Error: key {key_id} was revoked; create another one\n")
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert token.strip().encode() not in kept and token.strip().split("_", 2)[2].encode() not in kept


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["create", "--owner", ""], "an owner is a printable name"),
        (["create", "--owner", "a", "--scope", "root"], "there is no scope 'root': choose tasks:read, tasks:write"),
        (["create", "--owner", "a", "--tenant", "v1"], "'v1' cannot be a tenant"),
        (["create", "--owner", "a", "--expires", "90"], "--expires takes a number and s, m, h or d, for example 7d"),
        (["create", "--owner", "a", "--expires", "soon"], "--expires takes"),
        (["create", "--owner", "a", "--store", "memory:"], "a store in memory ends with its process"),
        (["list"], "there is no such file"),
        (["revoke", "abc"], "there is no such file"),
        (["rotate", "abc"], "there is no such file"),
        (["rotate", "--signing"], "there is no such file"),
        (["revoke", "../x"], "is not the ID of a key"),
        (["rotate", "a:b"], "is not the ID of a key"),
        (["rotate", "abc", "--grace", "x"], "--grace takes"),
    ],
)  # fmt: skip
def test_what_is_refused_makes_no_store(
    command: Command, tmp_path: Path, args: list[str], words: str
) -> None:
    code, out, said = command(*args)
    assert (code, out) == (1 if "\nCode: InvalidParamsError\n" in said else 2, "")
    assert said.startswith("Error: ") and words in said, said
    if args[0] != "create":
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "args",
    [
        ["rotate"],
        ["rotate", "abc", "--signing"],
        ["rotate", "--signing", "--grace", "1h"],
        ["create"],
        ["revoke"],
    ],
)
def test_flags_that_do_not_fit(command: Command, args: list[str]) -> None:
    code, _, said = command(*args)
    assert (code, "Code: A2ACLI_ERR_USAGE" in said) == (2, True)


def test_a_key_that_is_not_there(command: Command) -> None:
    command("create", "--owner", "a")
    for act in ("revoke", "rotate"):
        assert command(act, "abc")[2].endswith("\nHint: trunkline keys list\n")


def test_the_signing_key(command: Command, tmp_path: Path) -> None:
    command("create", "--owner", "a")
    code, out, _ = command("rotate", "--signing")
    assert code == 0 and out.startswith("webhooks are signed with key ")
    assert set(json.loads(command("rotate", "--signing", "--json")[1])) == {"kid"}
    assert (tmp_path / "trunkline.db.key").is_file()


def test_beside_a_running_server(command: Command, tmp_path: Path) -> None:
    with ServerProcess(tmp_path, "trunkline.demo:agent", "--public-url", "https://agent.example/x") as server:

        def status(token: str = "") -> int:
            headers = {"X-API-Key": token, "Host": "agent.example"} if token else {}
            return httpx2.get(f"{server.base}/tasks", headers=headers, timeout=60, verify=NO_TLS).status_code

        endpoint = tmp_path / "tasks.db.admin"
        deadline = time.monotonic() + 60
        while not endpoint.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert stat.S_IMODE(endpoint.stat().st_mode) == 0o600
        assert status() == 200
        key_id, token = made(command, "--owner", "alice", *STORE)
        # At once: the server itself has done it.
        assert [status(), status(token), status("tl_aaaaaaaaaaaa_x")] == [401, 200, 401]
        assert states(command, *STORE) == {key_id: "active"}
        again = json.loads(command("rotate", key_id, "--grace", "0s", "--json", *STORE)[1])["token"]
        assert [status(token), status(again)] == [401, 200]
        assert command("rotate", "--signing", *STORE)[0] == 0
        assert len(httpx2.get(f"{server.base}/.well-known/jwks.json", timeout=60).json()["keys"]) == 2
        assert command("revoke", key_id, *STORE)[0] == 0
        assert [status(), status(again)] == [401, 401]
        assert command("revoke", "abc", *STORE)[2].endswith(
            "\nHint: trunkline keys list --store sqlite:///tasks.db\n"
        )
        assert server.stop() == 0
    text = server.text()
    assert "admin.key.created" in text and "by='operator'" in text
    assert not [secret for secret in (token, again) if secret in text]
    assert not endpoint.exists(), "taken away at a clean end"


def test_stored_keys_let_a_server_face_the_network(command: Command, tmp_path: Path) -> None:
    _, token = made(command, "--owner", "alice", "--scope", "admin", "--scope", "tasks:read", *STORE)
    with ServerProcess(tmp_path, "trunkline.demo:agent", "--host", "0.0.0.0") as server:
        answers = [
            httpx2.get(f"{server.base}{path}", headers=headers, timeout=60, verify=NO_TLS).status_code
            for path in ("/tasks", "/admin/keys")
            for headers in ({}, {"X-API-Key": token})
        ]
        assert answers == [401, 200, 401, 200]
        # One that was killed leaves its file; it leads nowhere, and the store is free.
        server.kill()
        assert (tmp_path / "tasks.db.admin").exists()
        assert command("create", "--owner", "bob", *STORE)[0] == 0
    assert "auth.off" not in server.text()


def test_a_server_without_an_endpoint(command: Command, tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        assert httpx2.get(f"{server.base}/readyz", timeout=60).status_code == 200
        endpoint = tmp_path / "tasks.db.admin"
        deadline = time.monotonic() + 60
        while not endpoint.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        whole = endpoint.read_bytes()
        for broken, words in {
            b"": "one process per SQLite file",
            whole.replace(b":%d" % server.port, b":1"): "does not answer at http://127.0.0.1:1",
            whole.replace(b'"token":"', b'"token":"x'): "this needs the scope admin",
        }.items():
            endpoint.write_bytes(broken)
            code, _, said = command("create", "--owner", "a", *STORE)
            assert (code, words in said) == (2, True), said
        os.unlink(endpoint)
        assert "ask again once the server that has it is up" in command("revoke", "abc", *STORE)[2]


def test_on_postgresql_replicas_follow(command: Command, tmp_path: Path, postgres_url: str) -> None:
    store = ("--store", postgres_url)
    with ServerProcess(tmp_path, store=postgres_url) as server:

        def until(token: str, wanted: int) -> None:
            deadline = time.monotonic() + 60
            while True:
                headers = {"X-API-Key": token} if token else {}
                found = httpx2.get(
                    f"{server.base}/tasks", headers=headers, timeout=60, verify=NO_TLS
                ).status_code
                if found == wanted:
                    return
                assert time.monotonic() < deadline, found
                time.sleep(0.05)

        until("", 200)
        key_id, token = made(command, "--owner", "alice", *store)
        until("", 401)
        until(token, 200)
        assert command("revoke", key_id, *store)[0] == 0
        until(token, 401)
        assert "nothing is signed here" in command("rotate", "--signing", *store)[2]
        lines = [line for line in server.text().splitlines() if "push.off reason=no_secret_key" in line]
        assert [line.split()[1] for line in lines] == ["WARNING"]
