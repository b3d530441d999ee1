"""Files of the catalogue: merged by name, followed by content, and harmless while they are broken."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from trunkline.errors import Misuse
from trunkline.fleet.catalogue import files as module
from trunkline.fleet.catalogue.entry import Entry
from trunkline.fleet.catalogue.files import JSON_VARIABLE, CatalogueFiles, parse

TWO = "agents:\n  - name: a\n    url: http://a.example\n  - name: b\n    url: http://b.example\n"


class Workspace:
    """Files, and what was read of them."""

    def __init__(self, folder: Path, **variables: str) -> None:
        self.folder = folder
        self.entries: dict[str, Entry] = {}
        self.files = CatalogueFiles(folder, variables.get, self.take)

    def take(self, entries: Sequence[Entry]) -> None:
        self.entries = {one.name: one for one in entries}

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def urls(self) -> dict[str, str]:
        return {one.name: one.fault or (one.peer.url if one.peer else "") for one in self.entries.values()}


def test_the_folder_wins_by_name(tmp_path: Path) -> None:
    at = Workspace(tmp_path)
    at.write("agents.yaml", TWO)
    at.write("agents.d/b.yaml", "name: b\nurl: http://other.example\n")
    at.write("agents.d/c.yaml", "name: c\nurl: http://c.example\n")
    at.write("agents.d/d.yaml.example", "no YAML at all: [")
    at.files.start()
    assert at.urls() == {"a": "http://a.example", "b": "http://other.example", "c": "http://c.example"}


def test_changes_are_seen_by_content(tmp_path: Path) -> None:
    at = Workspace(tmp_path)
    at.write("agents.yaml", TWO)
    at.files.start()
    assert not at.files.check()
    stat = (tmp_path / "agents.yaml").stat()
    at.write("agents.yaml", TWO.replace("//b.", "//x."))
    os.utime(tmp_path / "agents.yaml", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert at.files.check() and at.urls()["b"] == "http://x.example"
    at.write("agents.d/a.yaml", "name: a\nurl: http://n.example\n")
    assert at.files.check() and at.urls()["a"] == "http://n.example"
    (tmp_path / "agents.d" / "a.yaml").unlink()
    assert at.files.check() and at.urls()["a"] == "http://a.example"
    (tmp_path / "agents.yaml").unlink()
    assert at.files.check() and at.urls() == {}


def test_a_broken_file_changes_nothing_and_shows(tmp_path: Path) -> None:
    at = Workspace(tmp_path)
    at.write("agents.yaml", TWO)
    at.write("agents.d/c.yaml", "name: c\nurl: http://c.example\n")
    at.files.start()
    at.write("agents.yaml", "agents:\n  - name: [\n")
    at.write("agents.d/c.yaml", "name: c\nname: d\n")
    assert at.files.check() and not at.files.check()
    urls = at.urls()
    assert [urls[name] for name in "abc"] == ["http://a.example", "http://b.example", "http://c.example"]
    assert urls["agents.yaml"].startswith("agents.yaml, line 3:")
    assert urls["agents.d/c.yaml"].startswith("agents.d/c.yaml, line 2:")
    with pytest.raises(Misuse, match=r"agents.yaml, line 3"):
        Workspace(tmp_path).files.start()
    at.write("agents.yaml", TWO)
    assert at.files.check() and "agents.yaml" not in at.urls()


def test_hb_04_an_unset_variable_makes_its_entry_invalid(tmp_path: Path) -> None:
    at = Workspace(tmp_path, PORT="81")
    at.write(
        "agents.yaml",
        TWO + "  - name: c\n    url: http://${NOWHERE}/\n  - name: d\n    url: http://d:${PORT}\n",
    )
    at.files.start()
    assert at.entries["c"].peer is None
    assert at.entries["c"].fault == "agents.yaml, line 7: url: the variable NOWHERE is not set"
    assert at.urls()["d"] == "http://d:81"


def test_entries_with_mistakes_are_kept_to_be_seen(tmp_path: Path) -> None:
    at = Workspace(tmp_path)
    at.write(
        "agents.yaml",
        TWO + "  - url: http://x\n  - name: a\n    url: http://y\n  - name: hub\n    url: http://x\n",
    )
    at.files.start()
    assert at.urls()["a"] == "http://a.example"
    assert at.urls()["agents.yaml:6"] == "agents.yaml, line 6: name: missing required field 'name'"
    assert at.urls()["agents.yaml:a"] == "agents.yaml, line 7: there are two agents 'a'"
    assert "not all or hub" in at.urls()["agents.yaml:9"]


def test_json_by_the_environment(tmp_path: Path) -> None:
    at = Workspace(tmp_path, **{JSON_VARIABLE: '{"agents": [{"name": "j", "url": "http://j.example"}]}'})
    at.write("agents.yaml", TWO)
    at.write("agents.d/c.yaml", "name: c\nurl: http://c.example\n")
    at.files.start()
    assert list(at.urls()) == ["j", "c"]
    lone = Workspace(tmp_path, **{JSON_VARIABLE: '[{"name": "j", "url": "http://j.example"}]'})
    lone.files.start()
    assert list(lone.urls()) == ["j", "c"]
    with pytest.raises(Misuse, match=JSON_VARIABLE):
        Workspace(tmp_path, **{JSON_VARIABLE: "{"}).files.start()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- name: a\n", "begin with agents:"),
        ("agent: []\n", "agents.yaml, line 1: unknown field 'agent'"),
        ("agents: 7\n", "agents is a list"),
        ("agents:\n  - text\n", "agents.yaml, line 2: an entry has at least"),
        ("x: &a 1\nagents: [*a]\n", "aliases"),
    ],
)
def test_no_lists_of_agents(text: str, words: str) -> None:
    with pytest.raises(Misuse) as refused:
        parse("agents.yaml", text, lambda _: None)
    assert words in str(refused.value)


def test_a_catalogue_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "ENTRIES_LIMIT", 2)
    assert len(parse("agents.yaml", TWO, lambda _: None)) == 2
    with pytest.raises(Misuse, match="at most 2"):
        parse("agents.yaml", TWO + "  - name: c\n    url: http://c\n", lambda _: None)
    at = Workspace(tmp_path)
    at.write("agents.yaml", TWO)
    at.write("agents.d/c.yaml", "name: c\nurl: http://c.example\n")
    at.files.check()
    assert list(at.urls()) == ["a", "b", "agents.d"]
    with pytest.raises(Misuse, match="no entry"):
        parse("agents.d/x.yaml", "", lambda _: None)


def test_files_are_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "WATCH_S", 0.01)
    at = Workspace(tmp_path)
    at.files.start()

    async def main() -> None:
        watching = asyncio.create_task(at.files.watch())
        at.write("agents.yaml", TWO)
        async with asyncio.timeout(30):
            while list(at.urls()) != ["a", "b"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert not caplog.text
            at.write("agents.yaml", TWO + "  - {name: c, ulr: 'http://c'}\n")
            while "c" not in at.entries:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    asyncio.run(main())
    fault = at.entries["c"].fault
    assert fault.startswith("agents.yaml, line ") and "did you mean 'url'?" in fault
    assert f"catalogue.entry_refused agent=c error={fault!a}" in caplog.text


def test_a_file_that_is_being_written_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WATCH_S", 0.01)
    monkeypatch.setattr(module, "SETTLE_S", 0.01)
    at = Workspace(tmp_path)
    at.write("agents.yaml", TWO)
    at.files.start()
    # What an editor leaves behind on its way: nothing, then a part that could be read.
    half, changed = TWO[: TWO.index("b")].rpartition("\n")[0], TWO.replace("name: b", "name: c")
    looks = ["", half, changed]
    taken: list[list[str]] = []

    def look(path: Path) -> str:
        if path.name != "agents.yaml":
            raise FileNotFoundError
        return looks.pop(0) if len(looks) > 1 else looks[0]

    def take(entries: Sequence[Entry]) -> None:
        taken.append([one.name for one in entries])

    monkeypatch.setattr(module, "read_text", look)
    monkeypatch.setattr(at.files, "_take", take)

    async def main() -> None:
        watching = asyncio.create_task(at.files.watch())
        async with asyncio.timeout(30):
            while not taken:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    asyncio.run(main())
    assert taken == [["a", "c"]]


def test_agents_elsewhere_by_name_in_json(tmp_path: Path) -> None:
    at = Workspace(tmp_path, TOKEN="t0ken")
    at.write(
        "a2a_agents.json",
        '{"agents": {"one": {"url": "https://one.example", "auth": {"token_env": "TOKEN"}},'
        ' "two": {"url": "https://two.example", "auth": {"type": "bearer", "token": "s3cret"}},'
        ' "three": {"url": "https://three.example", "auth": {"type": "digest", "token": "s3cret"}},'
        ' "login": {"url": "https://login.example", "auth": {"type": "oauth2", "token_env": "TOKEN",'
        ' "tokenUrl": "https://login.example/token", "clientId": "me"}},'
        ' "ours": {"url": "https://ours.example", "auth": {"scheme": "apiKey", "credentialsEnv": "TOKEN"}},'
        ' "unset": {"url": "https://five.example", "auth": {"token_env": "NOWHERE"}},'
        ' "wrong": {"url": "https://six.example", "auth": {"token_env": "TOKEN", "tokenEnv": "TOKEN"}},'
        ' "four": {}}}',
    )
    at.files.start()
    one, two, three, four = [at.entries[name] for name in ("one", "two", "three", "four")]
    assert one.peer is not None and one.peer.bearer_env == "TOKEN" and one.owner == "file"
    assert two.peer is not None and two.peer.headers == {"Authorization": "Bearer s3cret"}
    assert "s3cret" not in repr(two)
    assert "auth.type" in three.fault and "s3cret" not in three.fault
    # Faults call members what the file calls them.
    assert at.entries["unset"].fault.endswith("auth.token_env: the variable NOWHERE is not set")
    assert at.entries["unset"].peer is None
    assert "auth.tokenEnv" in at.entries["wrong"].fault
    # Members that are called as in `agents.yaml` are not passed over.
    ours = at.entries["ours"].peer
    assert ours is not None and (ours.api_key_env, ours.bearer_env) == ("TOKEN", "")
    login = at.entries["login"].peer
    assert login is not None and login.login is not None and login.login.client_id == "me"
    assert "a2a_agents.json" in four.fault
    at.write("a2a_agents.json", '{"agents": [')
    at.files.check()
    assert at.entries["one"] == one and "a2a_agents.json" in at.entries["a2a_agents.json"].fault
