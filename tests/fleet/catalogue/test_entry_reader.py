"""An entry of the catalogue: every field of it has an effect, every mistake its name."""

from __future__ import annotations

from typing import Any

import pytest

from trunkline.errors import InvalidParams
from trunkline.fleet.catalogue.entry import Entry, EntrySkill
from trunkline.fleet.catalogue.entry_reader import ENTRY_LIMIT, read_entry

KNOWN = {"HOST": "writer.example", "KEY": "a-secret", "EMPTY": ""}


def read(owner: Any = "file", **members: Any) -> Entry:
    return read_entry(members, owner, lambda name: KNOWN.get(name) or None, tenant="north")


def test_a_whole_peer() -> None:
    found = read(
        name="writer",
        url="http://${HOST}:${PORT:-80}/a2a",
        description="Writes",
        tags=["text"],
        tenants=["north", "south"],
        skills=["draft", {"name": "edit", "description": "Edits"}, {"id": "x", "name": "X", "tags": ["t"]}],
        auth={"scheme": "bearer", "credentialsEnv": "KEY"},
        headers={"a2a-extensions": "urn:one"},
        streaming=True,
        external=True,
        concurrency=3,
        cooldown={"draft": "2m", "edit": 5},
        uncertain="ask",
    )
    assert (found.kind, found.tenants, found.concurrency) == ("peer", ("north", "south"), 3)
    assert found.skills == (
        EntrySkill(id="draft", name="draft"),
        EntrySkill(id="edit", name="edit", description="Edits"),
        EntrySkill(id="x", name="X", tags=("t",)),
    )
    assert found.cooldown_s == {"draft": 120.0, "edit": 5.0}
    peer = found.peer
    assert peer is not None and peer.url == "http://writer.example:80/a2a"
    assert (peer.bearer_env, peer.api_key_env, peer.uncertain) == ("KEY", "", "ask")
    assert peer.headers == {"a2a-extensions": "urn:one"} and found.streaming and peer.external
    short = read(name="a", url="http://x", apiKeyEnv="KEY").peer
    assert short is not None and (short.api_key_env, short.bearer_env) == ("KEY", "")
    both = read(name="a", url="http://x", apiKeyEnv="OTHER", auth={"credentialsEnv": "KEY"}).peer
    assert both is not None and both.api_key_env == "KEY"


def test_an_imported_agent_and_all_tenants() -> None:
    found = read(name="local", **{"import": "package.module:agent"}, tenants="all", enabled=False)
    assert (found.kind, found.imported, found.peer) == ("skill", "package.module:agent", None)
    assert found.serves("anybody") and not found.enabled
    assert not read(name="a", url="http://x").serves("north")


def test_equal_texts_have_equal_revisions() -> None:
    one = read(name="a", url="http://x")
    assert one.revision == read(name="a", url="http://x").revision != read(name="a", url="http://y").revision


@pytest.mark.parametrize(
    ("members", "field", "words"),
    [
        ({"name": "a", "url": "http://${NOWHERE}/x"}, "url", "NOWHERE is not set"),
        ({"name": "a", "url": "http://${EMPTY}/x"}, "url", "EMPTY is not set"),
        ({"name": "a", "url": "http://${1}/x"}, "url", "${NAME}"),
        ({"name": "a", "url": "http://x", "tags": ["${NOWHERE}"]}, "tags[0]", "NOWHERE"),
        ({"name": "a", "url": "http://x", "headers": {"h": "${NOWHERE}"}}, "headers.h", "NOWHERE"),
        ({"name": "a", "url": "http://x", "apiKeyEnv": "NOWHERE"}, "apiKeyEnv", "NOWHERE is not set"),
        ({"name": "a", "url": "http://x", "auth": {"scheme": "bearer"}}, "auth.credentialsEnv", "variable"),
        ({"name": "a", "url": "http://x", "auth": {"scheme": "hmac"}}, "auth.scheme", "hmac"),
        ({"name": "a", "url": "http://x", "apiKeyEnv": "a secret!"}, "apiKeyEnv", "not the secret itself"),
        ({"name": "a", "url": "http://x", "cardUrl": "a\0b"}, "cardUrl", "address of a card"),
        ({"name": "a", "url": "http://x", "apiKeyEnvs": "KEY"}, "apiKeyEnvs", "did you mean 'apiKeyEnv'?"),
        ({"name": "a", "url": "http://x", "subscribesTo": []}, "subscribesTo", "there are name, "),
        ({"name": "a", "url": "http://x", "apiKeyEnv": "A", "api_key_env": "B"}, "apiKeyEnv", "given twice"),
        ({"name": "a", "url": "http://x", "uncertain": "no"}, "uncertain", "; choose ask, fail"),
        ({"name": "a", "url": "http://x", "auth": {"credentialEnv": "K"}}, "auth.credentialEnv", "credentialsEnv"),
        ({"name": "a", "url": "http://x", "skills": [{"nam": "x"}]}, "skills[0].nam", "did you mean 'name'?"),
        ({"name": "a", "url": "http://x", "skills": ["x", "x"]}, "skills[1]", "two skills"),
        ({"name": "a", "url": "http://x", "skills": [{"description": "x"}]}, "skills[0]", "has a name"),
        ({"name": "a"}, "url", "either a url, an import, a workflow or a model"),
        ({"name": "a", "url": "http://x", "import": "a:b"}, "url", "either"),
        ({"name": "a", "url": "ftp://x"}, "url", "http://"),
        ({"name": "a", "url": "http://me:pw@x/"}, "url", "login"),
        ({"name": "a", "url": "http://x?key=1"}, "url", "query"),
        ({"name": "a", "import": "no path"}, "import", "package.module:agent"),
        ({"name": "a", "import": "a:b", "headers": {"h": "v"}}, "headers", "runs here"),
        ({"name": "all", "url": "http://x"}, "name", "not all or hub"),
        ({"name": "a b", "url": "http://x"}, "name", "letters"),
        ({"url": "http://x"}, "name", "missing"),
        ({"name": "a", "model": "openai:x", "advisor": {}}, "advisor.model", "missing"),
        ({"name": "a", "url": 7}, "url", "expected string"),
        ({"name": "a", "url": "http://x", "tenants": []}, "tenants", "ids of tenants"),
        ({"name": "a", "url": "http://x", "tenants": ["a/b"]}, "tenants", "no id"),
        ({"name": "a", "url": "http://x", "concurrency": 0}, "concurrency", ">= 1"),
        ({"name": "a", "url": "http://x", "cooldown": {"s": "soon"}}, "cooldown.s", "not a duration"),
        ({"name": "a", "url": "http://x", "headers": {"bad name": "x"}}, "headers.bad name", "header"),
        ({"name": "a", "url": "http://x", "headers": {"Content-Length": "3"}}, "headers.Content-Length", "itself"),
        ({"name": "a", "url": "http://x", "description": "x" * 5000}, "description", "4096"),
        ({"name": "a", "url": "http://x", "tags": ["x" * 4000] * 17}, "", f"{ENTRY_LIMIT >> 10} KiB"),
    ],
)  # fmt: skip
def test_mistakes_are_named(members: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        read(**members)
    assert (refused.value.field, words in refused.value.message) == (field, True), refused.value.message


@pytest.mark.parametrize(
    ("member", "field"),
    [
        ({"import": "a:b"}, "import"),
        ({"apiKeyEnv": "KEY"}, "apiKeyEnv"),
        ({"auth": {"credentialsEnv": "KEY"}}, "auth.credentialsEnv"),
        ({"description": "${KEY}"}, "description"),
        ({"headers": {"x": "${KEY}"}}, "headers.x"),
        ({"skills": [{"name": "${KEY:-x}"}]}, "skills[0].name"),
        ({"tenants": "all"}, "tenants"),
        ({"headers": {"Authorization": "Bearer x"}}, "headers.Authorization"),
        ({"headers": {"HOST": "inner.example"}}, "headers.HOST"),
    ],
)
@pytest.mark.parametrize("owner", ["api", "announce"])
def test_what_only_files_may_say(owner: str, member: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        read(owner, name="a", url="http://x", **member)
    assert refused.value.field == field and "a-secret" not in refused.value.message


def test_an_entry_of_the_api_is_of_its_tenant() -> None:
    assert read("api", name="a", url="https://x.example").tenants == ("north",)
