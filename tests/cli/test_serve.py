"""`trunkline serve`: what it refuses and how it says so, its exit codes, and what it starts."""

from __future__ import annotations

import asyncio
import gc
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from tests.cli.conftest import Run
from tests.harness import Agent, ServerProcess
from trunkline import __version__
from trunkline.auth.key_store import KeyStore
from trunkline.auth.keys import Keyring
from trunkline.cli.main import main
from trunkline.cli.serve import collect_garbage_rarely, spare_what_stays
from trunkline.clock import now_ms
from trunkline.config import Issuer, Secret, Settings, load
from trunkline.errors import Misuse
from trunkline.store.url import store_from_url

DEMO = "trunkline.demo:agent"
Refuse = Callable[..., tuple[int, str]]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Refuse:
    """Run `trunkline serve` for as long as it takes to say no: its exit code and what it printed."""
    for field in Settings.__struct_fields__:
        monkeypatch.delenv(f"TRUNKLINE_{field.upper()}", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def run(*args: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["trunkline", "serve", *args])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, said.out + said.err

    return run


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "agent.example", "127.agent.example"])
def test_no_open_door_without_a_key(refuse: Refuse, host: str) -> None:
    code, said = refuse(DEMO, "--host", host)
    assert code == 2
    assert said == (
        f"Error: {host} is reachable by other machines and no key is set: create one, "
        "give --key KEY, or give --open to serve anybody\n"
        "Code: A2ACLI_ERR_USAGE\nHint: trunkline keys create --owner OWNER\n"
    )


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("scribe", "'scribe' should be MODULE:AGENT, for example scribe:agent"),
        (":agent", "should be MODULE:AGENT"),
        ("scribe:", "should be MODULE:AGENT"),
        (".scribe:agent", "should be MODULE:AGENT"),
        ("scribe.py:agent", "did you mean scribe:agent?"),
        ("agents/scribe.py:agent", "did you mean agents.scribe:agent?"),
        ("trunkline.demo:agnet", "did you mean trunkline.demo:agent?"),
        ("nowhere:agent", "there is no module 'nowhere'"),
        ("trunkline.nowhere:agent", "there is no module 'trunkline.nowhere'"),
        ("trunkline.demo:nobody", "trunkline.demo has no Agent named 'nobody'"),
        ("trunkline.demo:__name__", "has no Agent named"),
    ],
)
def test_an_agent_that_is_not_there(refuse: Refuse, target: str, words: str) -> None:
    code, said = refuse(target)
    assert code == 2
    assert said.startswith("Error: ") and words in said and said.count("\n") == 3


def test_an_agent_without_skills(refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "lazy_agent.py").write_text("from trunkline import Agent\nagent = Agent('lazy')\n")
    code, said = refuse("lazy_agent:agent")
    assert (code, "@agent.skill" in said) == (2, True)


def test_a_module_that_misses_another_shows_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from trunkline.cli.serve import find

    (tmp_path / "scribe_here.py").write_text("import scribe_h\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(Misuse, match="scribe_here does not import at scribe_here.py:1: ModuleNotFoundError"):
        find("scribe_here:agent")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ["--store", "mysql://me:hidden-word@db/x"],
            "no store at 'mysql://***@db/x': use sqlite:///relative.db",
        ),
        (["--store", "trunkline.db"], "no store at 'trunkline.db'"),
        (["--store", "sqlite://x.db"], "no store at"),
        (["--store", "sqlite:///x.db?mode=ro"], "no store at"),
        (["--store", ""], "no store at ''"),
        (["--port", "70000"], "setting 'port' (from command line): expected"),
        (
            ["--log-level", "loud"],
            "setting 'log_level' (from command line): invalid value 'loud'; choose debug",
        ),
        (
            ["--log-format", "xml"],
            "setting 'log_format' (from command line): invalid value 'xml'; choose text, json",
        ),
        (["--public-url", "agent.example"], "public_url"),
        (["--key", "short"], "at least 8 characters"),
        (["--set", "port"], "--set takes name=value"),
        (["--set", "boddy_limit=1"], "did you mean 'body_limit'?"),
        (
            ["--set", "nothing=1"],
            "unknown setting 'nothing' (from command line); `trunkline config show --server` lists all",
        ),
        (["--set", "body_limit=-1"], "setting 'body_limit' (from command line): expected"),
        (["--set", "body_timeout=soon"], "setting 'body_timeout' (from command line): expected"),
        (["--set", "allowed_hosts=https://x"], "allowed_hosts"),
        (["--workers", "0"], "setting 'workers' (from command line): expected"),
        (["--workers", "-1"], "setting 'workers' (from command line): expected"),
        (["--workers", "2000"], "setting 'workers' (from command line): expected"),
    ],
)
def test_a_setting_that_does_not_fit(refuse: Refuse, flags: list[str], words: str) -> None:
    code, said = refuse(DEMO, *flags)
    assert code == 2
    assert said.startswith("Error: ") and words in said and said.count("\n") == 3, said
    assert "hidden-word" not in said


@pytest.mark.parametrize(
    ("store", "why"),
    [("sqlite:///tasks.db", "is a file for one process"), ("memory:", "ends with its process")],
)
def test_several_processes_need_a_store_that_they_share(refuse: Refuse, store: str, why: str) -> None:
    code, said = refuse(DEMO, "--workers", "2", "--store", store)
    assert code == 2
    assert said.startswith(
        f"Error: --workers 2 needs a store that processes share, and {store} {why}: "
        "use --store postgresql://USER@HOST/DATABASE, or --workers 1\n"
    )


@pytest.mark.parametrize("args", [[], [DEMO, "--port", "x"], [DEMO, "--nothing"]])
def test_flags_that_do_not_fit(refuse: Refuse, args: list[str]) -> None:
    code, said = refuse(*args)
    assert (code, "Code: A2ACLI_ERR_USAGE" in said) == (2, True)


def test_every_agent_is_named_by_module_and_attribute(refuse: Refuse) -> None:
    code, said = refuse(DEMO, "more")
    assert (code, said.splitlines()[0]) == (
        2,
        "Error: 'more' should be MODULE:AGENT, for example scribe:agent",
    )


def test_help_names_every_flag(refuse: Refuse) -> None:
    code, said = refuse("--help")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said)
    assert code == 0
    for flag in (
        "MODULE:AGENT",
        "--host",
        "--port",
        "--store",
        "--workers",
        "--key",
        "--public-url",
        "--open",
        "--dev",
        "--log-level",
        "--log-format",
        "--metrics",
        "--set",
        "--help",
    ):
        assert flag in plain


def test_a_file_of_settings_is_read(refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "trunkline.toml").write_text('host = "0.0.0.0"\n')
    assert "0.0.0.0 is reachable" in refuse(DEMO)[1]


def _serve(directory: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from trunkline.cli.main import main; main()", "serve", DEMO, *args]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120, check=False)


def test_a_store_that_cannot_be_opened_ends_with_3(tmp_path: Path) -> None:
    ended = _serve(tmp_path, "--port", "0", "--store", f"sqlite:///{tmp_path}/nowhere/x.db")
    assert ended.returncode == 3
    assert "there is no folder" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ended = _serve(tmp_path, "--port", str(taken.getsockname()[1]), "--store", "memory:")
    assert ended.returncode == 2
    assert "Address already in use; choose another --host or --port" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_version_is_told() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "trunkline.cli", "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert ended.stdout == f"trunkline {__version__}\n"


def test_a_second_server_on_one_file_is_told_so(tmp_path: Path) -> None:
    with ServerProcess(tmp_path):
        ended = _serve(tmp_path, "--port", "0", "--store", "sqlite:///tasks.db")
    assert ended.returncode == 3
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_told_to_stop(tmp_path: Path, how: signal.Signals) -> None:
    with ServerProcess(tmp_path) as server:
        agent = Agent(server.base)
        assert agent.send("echo hello")["status"]["state"] == "TASK_STATE_COMPLETED"
        agent.close()
        code = server.stop(how)
        log = server.text()
    assert code == 0
    assert f"server.ready url=http://127.0.0.1:{server.port}/a2a" in log
    assert "auth.off access=this_machine" in log
    assert "Traceback" not in log


def test_open_says_that_anybody_can_use_it(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, DEMO, "--host", "0.0.0.0", "--open") as server:
        assert httpx2.get(f"{server.base}/tasks").status_code == 200
        card = httpx2.get(f"{server.base}/.well-known/agent-card.json").json()
        server.stop()
        assert "auth.off access=everyone" in server.text()
        assert "fix=--public-url" in server.text()
    assert card["url"] == server.url


def test_a_key_opens_it_to_other_machines(tmp_path: Path) -> None:
    with ServerProcess(
        tmp_path, DEMO, "--host", "0.0.0.0", "--key", "key-number-one", env={"TRUNKLINE_KEYS": "not-this-one"}
    ) as server:
        statuses = [
            httpx2.get(f"{server.base}/tasks", headers={"X-API-Key": key}).status_code
            for key in ("key-number-one", "not-this-one")
        ]
        server.stop()
        assert "auth.off" not in server.text()
    assert statuses == [200, 401]


def test_any_setting_can_be_set(tmp_path: Path) -> None:
    flags = (
        "--set",
        "reply=receipt",
        "--set",
        "log-level=warning",
        "--set",
        "keys=key-number-one,key-number-two",
    )
    with ServerProcess(tmp_path, DEMO, *flags) as server:
        agent = Agent(server.base, headers={"X-API-Key": "key-number-two"})
        answer = agent.result(
            "SendMessage",
            {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "sleep 0.2"}]}},
        )
        agent.close()
        server.stop()
        assert server.text() == ""
    assert answer["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"


# Who may face the network


def test_what_guards_a_server(tmp_path: Path) -> None:
    from trunkline.cli.serve import is_guarded

    file = tmp_path / "tasks.db"
    store = f"sqlite:///{file}"
    issuer = Issuer(issuer="https://a.example", audience="x")
    assert is_guarded(Settings(keys=(Secret("a-key-of-this-agent"),)))
    assert is_guarded(Settings(store=store, issuers=(issuer,)))
    assert is_guarded(Settings(store="memory:")) is False
    assert is_guarded(Settings(store=store)) is False
    assert not file.exists(), "a look makes no store"
    file.write_bytes(b"not a database, or one of another version")
    assert is_guarded(Settings(store=store)) is None
    file.unlink()
    asyncio.run(_opened(store))
    assert is_guarded(Settings(store=store)) is False
    asyncio.run(_opened(store, "alice"))
    assert is_guarded(Settings(store=store)) is True


async def _opened(url: str, owner: str = "") -> None:
    store = store_from_url(url)
    await store.open()
    if owner:
        await KeyStore(store.docs, Keyring(()), now_ms).create(owner)
    await store.close()


def test_the_start_itself_looks_again() -> None:
    from trunkline.demo import agent

    async def start() -> None:
        application = agent.asgi(store="memory:", host="0.0.0.0")
        application.host.exposed = True
        async with application.lifespan():
            raise AssertionError("it was served")

    with pytest.raises(Misuse, match="0.0.0.0 is reachable by other machines and no key is set"):
        asyncio.run(start())


def test_a_module_that_does_not_import_shows_its_own_frames(refuse: Refuse, tmp_path: Path) -> None:
    (tmp_path / "broken_agent.py").write_text("def make():\n    raise ValueError('no model')\n\n\nmake()\n")
    code, said = refuse("broken_agent:agent")
    assert code == 2
    assert 'broken_agent.py", line 5' in said and "raise ValueError('no model')" in said
    assert "importlib" not in said and "trunkline/cli" not in said
    assert "Error: broken_agent does not import at broken_agent.py:2: ValueError: no model" in said


def test_a_key_may_be_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_MINE", "a-key-from-elsewhere")
    assert load({}, {"keys": ("env:KEY_OF_MINE",)}).keys[0].reveal() == "a-key-from-elsewhere"
    monkeypatch.delenv("KEY_OF_MINE")
    with pytest.raises(Misuse, match="environment variable 'KEY_OF_MINE' is not set"):
        load({}, {"keys": ("env:KEY_OF_MINE",)})


@pytest.mark.parametrize(("words", "dev"), [((), True), (("--no-dev",), False)])
def test_a_flag_that_is_off_wins_over_the_environment(
    trunkline: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], dev: bool
) -> None:
    chosen: list[bool] = []
    monkeypatch.setenv("TRUNKLINE_DEV", "true")
    monkeypatch.setattr("trunkline.cli.serve.serve_alone", lambda host: chosen.append(host.settings.dev))
    assert trunkline("serve", "trunkline.demo:agent", "--store", "memory:", *words)[0] == 0
    assert chosen == [dev]


@pytest.fixture
def collected() -> Iterator[None]:
    """Leave the garbage collector of the tests as it was."""
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.usefixtures("collected")
def test_much_that_comes_in_is_looked_through_in_small_parts() -> None:
    parts: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 1:
            parts.append(sum(len(gc.get_objects(generation)) for generation in (0, 1)))

    collect_garbage_rarely()
    gc.callbacks.append(note)
    try:
        kept: list[list[int]] = [[] for _ in range(500_000)]
    finally:
        gc.callbacks.remove(note)
    assert len(kept) == 500_000 and parts and max(parts) < 100_000


@pytest.mark.usefixtures("collected")
def test_what_has_come_by_then_is_not_looked_through_again() -> None:
    kept: list[list[int]] = [[] for _ in range(50_000)]
    spare_what_stays()
    assert kept and len(gc.get_objects()) < 50_000
