"""The file that leads operators' commands to a running server: what stands in it, and whose it is."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from trunkline.cli.admin import KEYS, Operator, settings_for, span_ms
from trunkline.cli.admin_endpoint import remove_admin_endpoint, write_admin_endpoint
from trunkline.config import Secret, Settings
from trunkline.errors import Misuse, StoreInUse
from trunkline.store.sqlite.database import FileLock
from trunkline.store.url import store_from_url

TOKEN = Secret("the-token-of-the-server")


def settings(folder: Path, **more: Any) -> Settings:
    return Settings(store=f"sqlite:///{folder}/tasks.db", **more)


@pytest.mark.parametrize(
    ("chosen", "url", "host"),
    [
        ({}, "http://127.0.0.1:80", "127.0.0.1:80"),
        ({"host": "localhost"}, "http://localhost:80", "localhost:80"),
        ({"host": "::1"}, "http://[::1]:80", "[::1]:80"),
        ({"host": "0.0.0.0"}, "http://127.0.0.1:80", "127.0.0.1:80"),
        ({"host": "::"}, "http://[::1]:80", "[::1]:80"),
        ({"host": "10.0.0.5"}, "http://10.0.0.5:80", "10.0.0.5:80"),
        ({"public_url": "https://a.example/x"}, "http://127.0.0.1:80", "127.0.0.1:80"),
        ({"host": "0.0.0.0", "public_url": "https://a.example/x"}, "http://127.0.0.1:80", "a.example"),
        ({"host": "0.0.0.0", "allowed_hosts": ("b.example:8000",)}, "http://127.0.0.1:80", "b.example:8000"),
        ({"host": "::", "allowed_hosts": ("fd00::1",)}, "http://[::1]:80", "[fd00::1]"),
        ({"host": "10.0.0.5", "allowed_hosts": ("b.example", "10.0.0.5")}, "http://10.0.0.5:80", "10.0.0.5:80"),
    ],
)  # fmt: skip
def test_where_it_leads(tmp_path: Path, chosen: dict[str, Any], url: str, host: str) -> None:
    write_admin_endpoint(settings(tmp_path, **chosen), 80, TOKEN)
    (file,) = tmp_path.iterdir()
    assert (file.name, stat.S_IMODE(file.stat().st_mode)) == ("tasks.db.admin", 0o600)
    written = {"url": url, "host": host, "token": TOKEN.reveal(), "pid": str(os.getpid())}
    assert json.loads(file.read_bytes()) == written


def test_it_is_taken_away_by_who_wrote_it(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    remove_admin_endpoint(chosen, TOKEN)
    write_admin_endpoint(chosen, 80, TOKEN)
    remove_admin_endpoint(chosen, Secret("of another server"))
    assert len(list(tmp_path.iterdir())) == 1
    remove_admin_endpoint(chosen, TOKEN)
    assert list(tmp_path.iterdir()) == []


def test_the_one_before_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db.admin"
    file.write_text("left by one that was killed")
    file.chmod(0o644)
    write_admin_endpoint(settings(tmp_path), 80, TOKEN)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_bytes())["token"] == TOKEN.reveal()


def told(folder: Path, change: Callable[[Path], None]) -> bytes:
    """What somebody on the port hears of a command, after something was done to the file."""
    chosen = settings(folder)
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        lock = FileLock(f"{folder}/tasks.db")
        lock.acquire()
        try:
            write_admin_endpoint(chosen, stranger.getsockname()[1], TOKEN)
            change(folder / "tasks.db.admin")
            answering = Thread(target=answer, args=(stranger, heard := []))
            answering.start()
            with contextlib.suppress(StoreInUse):
                Operator(chosen.store).ask("POST", KEYS, {"owner": "alice"})
            # Whoever was not called is now, so that it comes to an end.
            with contextlib.suppress(OSError), socket.create_connection(stranger.getsockname(), 5):
                pass
            answering.join(60)
        finally:
            lock.release()
    return heard[0]


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
NO_PATH = b'HTTP/1.1 404 Not Found\r\ncontent-length: 26\r\n\r\n{"code":"ROUTE_NOT_FOUND"}'


def answer(listener: socket.socket, heard: list[bytes], response: bytes = OK) -> None:
    listener.settimeout(60)
    line, _ = listener.accept()
    with line:
        line.settimeout(60)
        heard.append(line.recv(65536))
        line.sendall(response)


def by_another_process(file: Path) -> None:
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "pid": "1"}))


def by_another_user(file: Path) -> None:
    os.chown(file, 12345, -1)


def test_the_server_that_has_the_store_hears_the_token(tmp_path: Path) -> None:
    assert TOKEN.reveal().encode() in told(tmp_path, lambda _: None)


def test_a_stranger_on_the_port_of_a_dead_one_does_not(tmp_path: Path) -> None:
    assert told(tmp_path, by_another_process) == b""


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a file away")
def test_what_another_user_wrote_is_not_followed(tmp_path: Path) -> None:
    assert told(tmp_path, by_another_user) == b""


def test_command_of_a_hub_is_refused_at_a_server_that_is_no_hub(tmp_path: Path) -> None:
    asyncio.run(_made(tmp_path))
    operator = Operator(settings(tmp_path).store)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        write_admin_endpoint(settings(tmp_path), listener.getsockname()[1], TOKEN)
        lock = FileLock(f"{tmp_path}/tasks.db")
        lock.acquire()
        answering = Thread(target=answer, args=(listener, [], NO_PATH))
        answering.start()
        with pytest.raises(Misuse, match="is not a hub: it has no /api/agents") as refused:
            operator.ask("GET", "/api/agents")
        answering.join()
        lock.release()
    assert refused.value.hint == "--store DIR"


def test_command_of_a_hub_names_the_store_that_no_server_has(tmp_path: Path) -> None:
    asyncio.run(_made(tmp_path))
    with pytest.raises(Misuse, match=f"no server has this store: sqlite:///{tmp_path}/tasks.db") as refused:
        Operator(settings(tmp_path).store).ask("GET", "/api/agents")
    assert refused.value.hint == f"trunkline hub --store sqlite:///{tmp_path}/tasks.db"


async def _made(folder: Path) -> None:
    store = store_from_url(settings(folder).store)
    await store.open()
    await store.close()


def test_a_store_in_memory_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    write_admin_endpoint(Settings(store="memory:"), 80, TOKEN)
    assert list(tmp_path.iterdir()) == []


def test_one_of_a_database_lies_with_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_admin_endpoint(Settings(store="postgresql://me:secret@db/x"), 80, TOKEN)
    write_admin_endpoint(Settings(store="postgresql://me@db/y"), 81, TOKEN)
    folder = tmp_path / ".config" / "a2a-cli" / "servers"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}
    remove_admin_endpoint(Settings(store="postgresql://me@db/y"), TOKEN)
    # By whatever login: it is the same database.
    (file,) = folder.iterdir()
    remove_admin_endpoint(Settings(store="postgresql://other@db/x"), TOKEN)
    assert not file.exists()


def test_the_store_of_a_workspace_is_what_its_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "demo"
    workspace.mkdir()
    (workspace / "hub.yaml").write_text("settings: {store: 'postgresql://me@db/x', retention: 2d}")
    for url, folder in ((str(workspace), tmp_path), (None, workspace)):
        monkeypatch.chdir(folder)
        chosen = settings_for(url)
        assert (chosen.store, chosen.kept_s) == ("postgresql://me@db/x", 2 * 86400.0)
    (workspace / "hub.yaml").write_text("name: x")
    monkeypatch.chdir(tmp_path)
    assert settings_for(str(workspace)).store == f"sqlite:///{workspace}/trunkline.db"
    # Of the files of a workspace only the list of agents has to be there.
    (workspace / "hub.yaml").rename(workspace / "agents.yaml")
    assert settings_for(str(workspace)).store == f"sqlite:///{workspace}/trunkline.db"
    monkeypatch.setenv("TRUNKLINE_STORE", "sqlite:///other.db")
    assert settings_for(None).store == "sqlite:///other.db"


def test_a_folder_that_takes_no_file_is_no_reason_to_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_admin_endpoint(settings(tmp_path / "nowhere"), 80, TOKEN)
    assert "admin.closed" in caplog.text
    assert TOKEN.reveal() not in caplog.text


@pytest.mark.parametrize(("text", "ms"), [("90s", 90_000), ("1.5h", 5_400_000), ("0s", 0)])
def test_a_span(text: str, ms: int) -> None:
    assert span_ms(text, "--grace") == ms


@pytest.mark.parametrize("text", ["", "7", "x", "-1d", "1w", "9999999d"])
def test_no_span(text: str) -> None:
    with pytest.raises(Misuse, match="--grace takes a number and s, m, h or d"):
        span_ms(text, "--grace")


def test_only_the_inbox_is_read_beside_a_server(tmp_path: Path) -> None:
    """What else the API shows, such as ceremonies, is asked of the server that has the store."""
    chosen = settings(tmp_path)

    async def held() -> None:
        store = store_from_url(chosen.store)
        await store.open()
        try:
            assert await asyncio.to_thread(Operator(chosen.store).ask, "GET", "/api/inbox") == {
                "items": [],
                "next": None,
            }
            with pytest.raises(StoreInUse):
                await asyncio.to_thread(Operator(chosen.store).ask, "GET", "/api/ceremonies")
        finally:
            await store.close()

    asyncio.run(held())
